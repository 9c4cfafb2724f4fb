//! Authentication of a client: certificates and tokens. Their files are read again when they
//! change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_identity::tls::PeerExpectation;
use headroom_transport::file_watch::FileWatcher;
use headroom_transport::{CertificateFiles, trust_none_config};
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::addresses::{ManagerAddresses, UnlistedLeaderPolicy};
use crate::{ClientError, ClientResult};

/// Timeout of a connection attempt to the only address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a connection attempt to one of several addresses: the time that a host which does not
/// respond costs a call.
const LISTED_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The credentials of a client, and the peer that it expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCredentials {
    /// Certificates.
    pub files: CertificateFiles,
    /// Source of the token.
    pub token: TokenSource,
    /// The expected peer.
    pub other: ExpectedPeer,
}

impl ClientCredentials {
    /// True if the client authenticates: the caller then needs no other user name.
    pub fn is_authenticated(&self) -> bool {
        self.token != TokenSource::Nowhere || self.files.own.is_some()
    }

    /// The credentials of a program in a container: the authority that the agent passes, and a
    /// token in a file.
    ///
    /// The file is removed after it is read, so that the program's child processes cannot read it.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn of_a_container(ca: Option<PathBuf>, token: Option<&Path>) -> ClientResult<Self> {
        let token = match token {
            Some(path) => {
                let text = read(path)?;
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(%error, "cannot remove the token file");
                }
                TokenSource::Text(text)
            }
            None => TokenSource::Nowhere,
        };
        Ok(ClientCredentials {
            files: CertificateFiles { ca, own: None },
            token,
            other: ExpectedPeer::Manager,
        })
    }
}

/// The expected peer of an encrypted connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// A resource manager.
    #[default]
    Manager,
    /// A node agent.
    Node,
    /// Any peer. The caller must verify the answers by other means, and no token may be sent.
    Stranger,
}

/// Source of a token.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum TokenSource {
    /// No token.
    #[default]
    Nowhere,
    /// A token from the environment. Secret.
    Text(String),
    /// A token in a file, read again when the file changes.
    File(PathBuf),
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TokenSource::Nowhere => f.write_str("Nowhere"),
            TokenSource::Text(_) => f.write_str("Text(…)"),
            TokenSource::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// The HTTP client and the token of a client, renewed when the files change.
#[derive(Debug)]
pub(crate) struct HttpConnector {
    addresses: ManagerAddresses,
    trust: ClientCredentials,
    now: Mutex<LoadedCredentials>,
}

#[derive(Debug)]
struct LoadedCredentials {
    watched: FileWatcher,
    http: reqwest::Client,
    token: Option<HeaderValue>,
}

impl HttpConnector {
    pub(crate) fn open(
        addresses: &ManagerAddresses,
        trust: ClientCredentials,
    ) -> ClientResult<Arc<Self>> {
        let to_strangers = trust.other == ExpectedPeer::Stranger;
        let heard = addresses
            .iter()
            .find(|address| to_strangers || address.is_heard());
        if trust.token != TokenSource::Nowhere
            && let Some(address) = heard
        {
            let why = format!(
                "a token is not sent to {address}, because the connection is not encrypted; write https://"
            );
            return Err(ClientError::Trust { why });
        }
        let file = match &trust.token {
            TokenSource::File(path) => Some(path.clone()),
            TokenSource::Nowhere | TokenSource::Text(_) => None,
        };
        let watched = FileWatcher::new(trust.files.paths().into_iter().chain(file).collect());
        let (http, token) = (http(addresses, &trust)?, token(&trust.token)?);
        Ok(Arc::new(HttpConnector {
            addresses: addresses.clone(),
            trust,
            now: Mutex::new(LoadedCredentials {
                watched,
                http,
                token,
            }),
        }))
    }

    /// The credentials of the client.
    pub(crate) fn trust(&self) -> &ClientCredentials {
        &self.trust
    }

    /// Whether calls follow a standby to a leader that is not in the list.
    pub(crate) fn unlisted_leader_policy(&self) -> UnlistedLeaderPolicy {
        match (self.trust.other, &self.trust.token) {
            (ExpectedPeer::Node | ExpectedPeer::Stranger, _) => UnlistedLeaderPolicy::Ignore,
            (ExpectedPeer::Manager, TokenSource::Nowhere) => UnlistedLeaderPolicy::Follow,
            (ExpectedPeer::Manager, TokenSource::Text(_) | TokenSource::File(_)) => {
                UnlistedLeaderPolicy::FollowUnheard
            }
        }
    }

    /// The HTTP client for calls.
    pub(crate) fn http(&self) -> reqwest::Client {
        self.look(|now| now.http.clone())
    }

    /// Adds the token to a request.
    pub(crate) fn sign(&self, request: &mut reqwest::Request) {
        if let Some(token) = self.look(|now| now.token.clone()) {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
    }

    /// Reads changed files again. Unusable files leave the earlier ones in force, because a
    /// rotation may be incomplete.
    fn look<T>(&self, get: impl FnOnce(&LoadedCredentials) -> T) -> T {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed() {
            match (http(&self.addresses, &self.trust), token(&self.trust.token)) {
                (Ok(http), Ok(token)) => (now.http, now.token) = (http, token),
                (Err(error), _) | (_, Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "the changed certificate or token cannot be used; the previous one stays active"
                    );
                }
            }
        }
        get(&now)
    }
}

fn http(addresses: &ManagerAddresses, trust: &ClientCredentials) -> ClientResult<reqwest::Client> {
    let unusable = |why: String| ClientError::Trust { why };
    let first = addresses.first();
    let connect_timeout = if addresses.count() == 1 {
        CONNECT_TIMEOUT
    } else {
        LISTED_CONNECT_TIMEOUT
    };
    let builder = reqwest::Client::builder()
        .connect_timeout(connect_timeout)
        // The kernel ends connections to a host that has vanished, also silent ones.
        .tcp_keepalive(Duration::from_secs(2))
        .tcp_keepalive_interval(Duration::from_secs(1))
        .tcp_keepalive_retries(2)
        .tcp_nodelay(true)
        .no_proxy();
    // TLS is configured also for unencrypted addresses. By default the HTTP library would load the
    // authorities of the host, which takes longer than most calls.
    let tls = if first.is_encrypted() {
        let client = match trust.other {
            ExpectedPeer::Manager => trust.files.client(PeerExpectation::Manager),
            ExpectedPeer::Node => trust.files.client(PeerExpectation::Node),
            ExpectedPeer::Stranger => headroom_identity::tls::pinned(None).map_err(Into::into),
        };
        client.map_err(|error| unusable(error.to_string()))?
    } else {
        trust_none_config().map_err(|error| unusable(error.to_string()))?
    };
    let builder = builder.tls_backend_preconfigured(tls);
    let builder = match first.socket_path() {
        Some(path) => builder.unix_socket(path),
        None => builder,
    };
    builder.build().map_err(|source| ClientError::Unreachable {
        url: first.to_string(),
        source,
    })
}

fn token(from: &TokenSource) -> ClientResult<Option<HeaderValue>> {
    let text = match from {
        TokenSource::Nowhere => return Ok(None),
        TokenSource::Text(text) => text.clone(),
        TokenSource::File(path) => read(path)?,
    };
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| ClientError::Trust {
        why: "the token contains invalid characters".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn read(path: &Path) -> ClientResult<String> {
    headroom_identity::files::read_secret(path).map_err(|error| ClientError::Trust {
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_is_not_sent_unencrypted_and_not_in_debug_output() {
        let trust = |text: &str| ClientCredentials {
            token: TokenSource::Text(text.to_owned()),
            ..ClientCredentials::default()
        };
        let open = |list: &str, trust| {
            let addresses = ManagerAddresses::parse(list).expect("a list");
            HttpConnector::open(&addresses, trust)
        };
        for safe in [
            "http://127.0.0.1:7070",
            "http://[::1]:7070",
            "http://localhost:1",
            "unix:/run/rm.sock",
        ] {
            open(safe, trust("hru_1_2")).expect("stays here");
        }
        for heard in [
            "http://10.0.0.7:7070",
            "http://127.0.0.1:7070,http://10.0.0.7:7070",
        ] {
            let error = open(heard, trust("hru_1_2"))
                .map(|_| ())
                .expect_err("is not encrypted");
            assert_eq!(
                error.to_string(),
                "a token is not sent to http://10.0.0.7:7070, because the connection is not \
                 encrypted; write https://"
            );
        }
        open("http://127.0.0.1:1", trust("hru\n"))
            .map(|_| ())
            .expect("a newline at the end is ignored");
        open("http://127.0.0.1:1", trust("a\nb"))
            .map(|_| ())
            .expect_err("two lines");
        assert!(!format!("{:?}", trust("hru_secret")).contains("secret"));
    }

    #[test]
    fn only_a_client_of_resource_managers_follows_to_an_unlisted_leader() {
        let addresses = ManagerAddresses::parse("https://rm1:1,https://rm2:1").expect("a list");
        let policy = |token: TokenSource, other| {
            let trust = ClientCredentials {
                token,
                other,
                ..ClientCredentials::default()
            };
            HttpConnector::open(&addresses, trust).map(|http| http.unlisted_leader_policy())
        };
        let token = || TokenSource::Text("hru_1_2".to_owned());
        let table = [
            (
                TokenSource::Nowhere,
                ExpectedPeer::Manager,
                UnlistedLeaderPolicy::Follow,
            ),
            (
                token(),
                ExpectedPeer::Manager,
                UnlistedLeaderPolicy::FollowUnheard,
            ),
            (
                TokenSource::Nowhere,
                ExpectedPeer::Node,
                UnlistedLeaderPolicy::Ignore,
            ),
            (
                TokenSource::Nowhere,
                ExpectedPeer::Stranger,
                UnlistedLeaderPolicy::Ignore,
            ),
        ];
        for (token, other, wanted) in table {
            assert_eq!(policy(token, other).expect("a client"), wanted, "{other:?}");
        }
    }

    #[test]
    fn a_container_reads_its_token_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        std::fs::write(&path, "hra_sort.1@1_00").expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("closes");
        let trust = ClientCredentials::of_a_container(None, Some(&path)).expect("reads");
        assert_eq!(trust.token, TokenSource::Text("hra_sort.1@1_00".into()));
        assert!(!path.exists(), "child processes cannot read the token");
        ClientCredentials::of_a_container(None, Some(&path))
            .expect_err("the token can be read once");
        assert_eq!(
            ClientCredentials::of_a_container(None, None).expect("none are configured"),
            ClientCredentials::default()
        );
    }
}

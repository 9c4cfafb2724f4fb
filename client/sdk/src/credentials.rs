//! Authentication of a client: certificates and tokens. Their files are read again when they
//! change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_identity::tls::PeerExpectation;
use headroom_transport::file_watch::FileWatcher;
use headroom_transport::{CertificateFiles, trust_none_config};
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::address::UNIX;
use crate::{ClientError, ClientResult};

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(3);

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
    base: String,
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
    pub(crate) fn open(base: &str, trust: ClientCredentials) -> ClientResult<Arc<Self>> {
        let to_strangers = trust.other == ExpectedPeer::Stranger;
        if trust.token != TokenSource::Nowhere && (is_heard(base) || to_strangers) {
            let why = format!(
                "a token is not sent to {base}, because the connection is not encrypted; write https://"
            );
            return Err(ClientError::Trust { why });
        }
        let file = match &trust.token {
            TokenSource::File(path) => Some(path.clone()),
            TokenSource::Nowhere | TokenSource::Text(_) => None,
        };
        let watched = FileWatcher::new(trust.files.paths().into_iter().chain(file).collect());
        let (http, token) = (http(base, &trust)?, token(&trust.token)?);
        Ok(Arc::new(HttpConnector {
            base: base.to_owned(),
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
            match (http(&self.base, &self.trust), token(&self.trust.token)) {
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

/// True if requests to `base` leave this host unencrypted.
fn is_heard(base: &str) -> bool {
    let url = reqwest::Url::parse(base)
        .ok()
        .filter(|url| url.scheme() == "http");
    let host = url
        .as_ref()
        .and_then(reqwest::Url::host_str)
        .map(|host| host.trim_matches(['[', ']']).to_owned());
    host.is_some_and(|host| {
        host != "localhost"
            && !host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    })
}

fn http(base: &str, trust: &ClientCredentials) -> ClientResult<reqwest::Client> {
    let unusable = |why: String| ClientError::Trust { why };
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .no_proxy();
    // TLS is configured also for unencrypted addresses. By default the HTTP library would load the
    // authorities of the host, which takes longer than most calls.
    let tls = if base.starts_with("https://") {
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
    let builder = match base.strip_prefix(UNIX) {
        Some(path) => builder.unix_socket(path),
        None => builder,
    };
    builder.build().map_err(|source| ClientError::Unreachable {
        url: base.to_owned(),
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
        for safe in [
            "http://127.0.0.1:7070",
            "http://[::1]:7070",
            "http://localhost:1",
            "unix:/run/rm.sock",
        ] {
            HttpConnector::open(safe, trust("hru_1_2")).expect("stays here");
        }
        let error = HttpConnector::open("http://10.0.0.7:7070", trust("hru_1_2"))
            .map(|_| ())
            .expect_err("is not encrypted");
        assert!(error.to_string().contains("https://"), "{error}");
        HttpConnector::open("http://127.0.0.1:1", trust("hru\n"))
            .map(|_| ())
            .expect("a newline at the end is ignored");
        HttpConnector::open("http://127.0.0.1:1", trust("a\nb"))
            .map(|_| ())
            .expect_err("two lines");
        assert!(!format!("{:?}", trust("hru_secret")).contains("secret"));
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

//! How a client reaches the other end and proves who it is; files with certificates and tokens are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_identity::tls::Expect;
use headroom_transport::watched::Watched;
use headroom_transport::{KeyFiles, trusting_nobody};
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::ClientError;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);

/// By what a client proves who it is, and whom it believes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Certificates.
    pub files: KeyFiles,
    /// A token.
    pub token: TokenFrom,
    /// Who is to be at the other end.
    pub other: Other,
}

impl Trust {
    /// Whether it says who calls: then no other name needs to be given.
    pub fn names_somebody(&self) -> bool {
        self.token != TokenFrom::Nowhere || self.files.own.is_some()
    }

    /// That of a program in a container: whom the agent says is to be believed, and a token in a file, which is removed, so that what
    /// the program starts does not find it.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn of_a_container(ca: Option<PathBuf>, token: Option<&Path>) -> Result<Self, ClientError> {
        let token = match token {
            Some(path) => {
                let text = read(path)?;
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(%error, "the file of the token stays behind, ignoring");
                }
                TokenFrom::Text(text)
            }
            None => TokenFrom::Nowhere,
        };
        Ok(Trust { files: KeyFiles { ca, own: None }, token, other: Other::Manager })
    }
}

/// Who is to be at the other end of an encrypted connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Other {
    /// A resource manager.
    #[default]
    Manager,
    /// The agent of a node.
    Node,
    /// Anybody: what is said must be checked by other means, and nothing may be shown there.
    Stranger,
}

/// Where a token comes from.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum TokenFrom {
    /// There is none.
    #[default]
    Nowhere,
    /// Out of the environment. Secret.
    Text(String),
    /// Out of a file, read again when it changes.
    File(PathBuf),
}

impl std::fmt::Debug for TokenFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TokenFrom::Nowhere => f.write_str("Nowhere"),
            TokenFrom::Text(_) => f.write_str("Text(…)"),
            TokenFrom::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// What a client has in its hands now.
#[derive(Debug)]
pub(crate) struct Wire {
    base: String,
    trust: Trust,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    watched: Watched,
    http: reqwest::Client,
    token: Option<HeaderValue>,
}

impl Wire {
    pub(crate) fn open(base: &str, trust: Trust) -> Result<Arc<Self>, ClientError> {
        let to_strangers = trust.other == Other::Stranger;
        if trust.token != TokenFrom::Nowhere && (is_heard(base) || to_strangers) {
            let why = format!("a token is not sent to {base}, where it could be read on the way; write https://");
            return Err(ClientError::Trust { why });
        }
        let file = match &trust.token {
            TokenFrom::File(path) => Some(path.clone()),
            TokenFrom::Nowhere | TokenFrom::Text(_) => None,
        };
        let watched = Watched::new(trust.files.paths().into_iter().chain(file).collect());
        let (http, token) = (http(base, &trust)?, token(&trust.token)?);
        Ok(Arc::new(Wire { base: base.to_owned(), trust, now: Mutex::new(Now { watched, http, token }) }))
    }

    /// By what it proves who calls.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// What calls are made with.
    pub(crate) fn http(&self) -> reqwest::Client {
        self.look(|now| now.http.clone())
    }

    /// Signs a request.
    pub(crate) fn sign(&self, request: &mut reqwest::Request) {
        if let Some(token) = self.look(|now| now.token.clone()) {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
    }

    /// Files that cannot be used leave those before in force: a rotation that is half done is no reason to fall silent.
    fn look<T>(&self, get: impl FnOnce(&Now) -> T) -> T {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed() {
            match (http(&self.base, &self.trust), token(&self.trust.token)) {
                (Ok(http), Ok(token)) => (now.http, now.token) = (http, token),
                (Err(error), _) | (_, Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "certificate or token has changed and cannot be used; the one before stays, going on");
                }
            }
        }
        get(&now)
    }
}

/// Whether what is sent there leaves this host as it is.
fn is_heard(base: &str) -> bool {
    let url = reqwest::Url::parse(base).ok().filter(|url| url.scheme() == "http");
    let host = url.as_ref().and_then(reqwest::Url::host_str).map(|host| host.trim_matches(['[', ']']).to_owned());
    host.is_some_and(|host| host != "localhost" && !host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

fn http(base: &str, trust: &Trust) -> Result<reqwest::Client, ClientError> {
    let unusable = |why: String| ClientError::Trust { why };
    let builder = reqwest::Client::builder().connect_timeout(CONNECT).tcp_nodelay(true).no_proxy();
    // Also where nothing is encrypted: by default the authorities of the host would be read, which takes longer than most calls.
    let tls = if base.starts_with("https://") {
        let client = match trust.other {
            Other::Manager => trust.files.client(Expect::Manager),
            Other::Node => trust.files.client(Expect::Node),
            Other::Stranger => headroom_identity::tls::pinned(None).map_err(Into::into),
        };
        client.map_err(|error| unusable(error.to_string()))?
    } else {
        trusting_nobody().map_err(|error| unusable(error.to_string()))?
    };
    let builder = builder.tls_backend_preconfigured(tls);
    let builder = match base.strip_prefix(crate::UNIX) {
        Some(path) => builder.unix_socket(path),
        None => builder,
    };
    builder.build().map_err(|source| ClientError::Unreachable { url: base.to_owned(), source })
}

fn token(from: &TokenFrom) -> Result<Option<HeaderValue>, ClientError> {
    let text = match from {
        TokenFrom::Nowhere => return Ok(None),
        TokenFrom::Text(text) => text.clone(),
        TokenFrom::File(path) => read(path)?,
    };
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| ClientError::Trust { why: "the token has characters that no token has".to_owned() })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn read(path: &Path) -> Result<String, ClientError> {
    headroom_identity::files::read_secret(path).map_err(|error| ClientError::Trust { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_does_not_leave_the_host_unencrypted_and_is_shown_to_nobody() {
        let trust = |text: &str| Trust { token: TokenFrom::Text(text.to_owned()), ..Trust::default() };
        for safe in ["http://127.0.0.1:7070", "http://[::1]:7070", "http://localhost:1", "unix:/run/rm.sock"] {
            Wire::open(safe, trust("hru_1_2")).expect("stays here");
        }
        let error = Wire::open("http://10.0.0.7:7070", trust("hru_1_2")).map(|_| ()).expect_err("can be read on the way");
        assert!(error.to_string().contains("https://"), "{error}");
        Wire::open("http://127.0.0.1:1", trust("hru\n")).map(|_| ()).expect("the end of a line is none of it");
        Wire::open("http://127.0.0.1:1", trust("a\nb")).map(|_| ()).expect_err("two lines");
        assert!(!format!("{:?}", trust("hru_secret")).contains("secret"));
    }

    #[test]
    fn a_container_reads_its_token_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        std::fs::write(&path, "hra_sort.1@1_00").expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("closes");
        let trust = Trust::of_a_container(None, Some(&path)).expect("reads");
        assert_eq!(trust.token, TokenFrom::Text("hra_sort.1@1_00".into()));
        assert!(!path.exists(), "what it starts does not find it");
        Trust::of_a_container(None, Some(&path)).expect_err("it was there once");
        assert_eq!(Trust::of_a_container(None, None).expect("nothing is said"), Trust::default());
    }
}

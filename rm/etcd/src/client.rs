//! Calls to etcd: one member after the other, within a timeout, with a renewed login.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_config::etcd::EtcdConfig;
use headroom_identity::{files, tls};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::EtcdError;
use crate::error::silent;
use crate::keys::after;
use crate::message::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, EmptyResponse, EncodedBytes,
    EncodedNumber, LeaseGrantRequest, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse,
    Refusal, StreamMessage, TxnRequest, TxnResponse,
};

/// Longest wait for the answer of one member to a read.
const READ: Duration = Duration::from_secs(2);
/// Longest wait for the answer of one member to a transaction or a renewal. Another member may have
/// found the new leader of etcd before.
const CALL: Duration = Duration::from_millis(1_000);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_millis(700);
/// Maximum number of keys in one page.
const PAGE: i64 = 2_000;

/// A client of all members. Clones share its connections.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    shared: Arc<SharedClient>,
}

#[derive(Debug)]
struct SharedClient {
    http: reqwest::Client,
    endpoints: Vec<String>,
    /// The member that answered last.
    current: AtomicUsize,
    /// File with `USER:PASSWORD`.
    login: Option<PathBuf>,
    token: Mutex<Option<HeaderValue>>,
}

/// Entries in key order, of one revision.
#[derive(Debug, Default)]
pub struct KeyPage {
    /// Keys and values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// The revision of etcd that they belong to.
    pub revision: i64,
}

/// A walk over the keys with a prefix, page by page, all of one revision.
#[derive(Debug)]
pub struct KeyPages {
    client: EtcdClient,
    next: Option<Vec<u8>>,
    end: Vec<u8>,
    revision: i64,
}

impl EtcdClient {
    /// A client with these settings. Nothing is called yet.
    pub fn new(settings: &EtcdConfig) -> Result<Self, EtcdError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .no_proxy();
        let (ca, own) = match &settings.tls {
            Some(dir) => certificates(dir)?,
            None => (None, None),
        };
        let own = own
            .as_ref()
            .map(|(cert, key)| (cert.as_str(), key.as_str()));
        let http = builder
            .tls_backend_preconfigured(tls::foreign_client(ca.as_deref(), own)?)
            .build()
            .map_err(|error| EtcdError::Tls(error.to_string()))?;
        Ok(EtcdClient {
            shared: Arc::new(SharedClient {
                http,
                endpoints: settings.endpoints.clone(),
                current: AtomicUsize::new(0),
                login: settings.login.clone(),
                token: Mutex::new(None),
            }),
        })
    }

    /// The value and creation revision of a key, with the revision of etcd.
    pub(crate) async fn get(&self, key: Vec<u8>) -> Result<RangeResponse, EtcdError> {
        let request = RangeRequest {
            key: EncodedBytes(key),
            ..RangeRequest::default()
        };
        self.call("kv/range", &request).await
    }

    /// The current revision of etcd.
    pub async fn revision(&self, key: Vec<u8>) -> Result<i64, EtcdError> {
        Ok(self.get(key).await?.header.revision.0)
    }

    /// The revision of etcd at which a key was written last; 0 if there is none.
    pub async fn changed_at(&self, key: Vec<u8>) -> Result<i64, EtcdError> {
        let found = self.get(key).await?.kvs.pop();
        Ok(found.map_or(0, |found| found.mod_revision.0))
    }

    /// The value of a key.
    pub async fn value(&self, key: Vec<u8>) -> Result<Option<Vec<u8>>, EtcdError> {
        Ok(self.get(key).await?.kvs.pop().map(|found| found.value.0))
    }

    /// All keys from `from` up to, not including, `end`.
    pub fn pages(&self, from: Vec<u8>, end: Vec<u8>) -> KeyPages {
        KeyPages {
            client: self.clone(),
            next: Some(from),
            end,
            revision: 0,
        }
    }

    /// All keys from `from` on that have this prefix.
    pub fn pages_from(&self, from: Vec<u8>, prefix: &[u8]) -> KeyPages {
        self.pages(from, after(prefix))
    }

    /// All keys with a prefix.
    pub fn pages_of(&self, prefix: Vec<u8>) -> KeyPages {
        let end = after(&prefix);
        self.pages(prefix, end)
    }

    /// Sends a transaction. It may be executed twice if a member was silent, so it must have the
    /// same effect then.
    pub(crate) async fn transaction(&self, request: &TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.call("kv/txn", request).await
    }

    /// Sends a transaction to one member. If that one decides nothing, the next call goes to another
    /// member.
    ///
    /// # Errors
    /// After a transient error the transaction may still take effect, at any later time.
    pub(crate) async fn transaction_once(
        &self,
        request: &TxnRequest,
    ) -> Result<TxnResponse, EtcdError> {
        let current = &self.shared.current;
        let (member, members) = (current.load(Ordering::Relaxed), self.shared.endpoints.len());
        let answer = self.call_member(member, "kv/txn", request, CALL).await;
        if answer.as_ref().is_err_and(EtcdError::is_transient) {
            // Another call may have chosen another member meanwhile.
            let next = (member + 1) % members;
            let _ = current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }

    /// A new lease. etcd rounds it up to whole seconds, and up to its own minimum.
    pub(crate) async fn grant_lease(&self, lease: Duration) -> Result<LeaseResponse, EtcdError> {
        let seconds = lease.as_millis().div_ceil(1000);
        let ttl = EncodedNumber(i64::try_from(seconds).unwrap_or(i64::MAX));
        self.call("lease/grant", &LeaseGrantRequest { ttl }).await
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// [`EtcdError::LeaseGone`] if it has expired.
    pub(crate) async fn renew_lease(&self, id: i64) -> Result<(), EtcdError> {
        let request = LeaseRequest {
            id: EncodedNumber(id),
        };
        let answer: StreamMessage<LeaseResponse> = self.call("lease/keepalive", &request).await?;
        match answer {
            StreamMessage::Result(renewed) if renewed.ttl.0 > 0 => Ok(()),
            StreamMessage::Result(_) => Err(EtcdError::LeaseGone),
            StreamMessage::Error(refusal) => {
                Err(EtcdError::of_refusal(refusal.grpc_code, &refusal.message))
            }
        }
    }

    /// Ends a lease, and with it all keys that are attached to it.
    pub(crate) async fn revoke_lease(&self, id: i64) -> Result<(), EtcdError> {
        let request = LeaseRequest {
            id: EncodedNumber(id),
        };
        let EmptyResponse {} = self.call("lease/revoke", &request).await?;
        Ok(())
    }

    /// Removes the history before a revision. It concerns all users of this etcd.
    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest {
            revision: EncodedNumber(revision),
        };
        match self.call("kv/compaction", &request).await {
            Ok(EmptyResponse {}) | Err(EtcdError::Compacted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a streaming call at the member that answered last.
    pub(crate) async fn stream<B: Serialize>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<reqwest::Response, EtcdError> {
        self.on_all_members(|endpoint| self.open(endpoint, path, body, None))
            .await
    }

    async fn call<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, EtcdError> {
        self.call_within(path, body, CALL).await
    }

    async fn call_within<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        within: Duration,
    ) -> Result<T, EtcdError> {
        self.on_all_members(|endpoint| self.call_member(endpoint, path, body, within))
            .await
    }

    /// Makes a call at one member after the other, until one of them decides it.
    async fn on_all_members<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        call: impl Fn(usize) -> F,
    ) -> Result<T, EtcdError> {
        let members = self.shared.endpoints.len();
        let first = self.shared.current.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        let mut without_quorum = false;
        for step in 0..members {
            let endpoint = (first + step) % members;
            match call(endpoint).await {
                Err(EtcdError::NoQuorum(cause)) => {
                    without_quorum = true;
                    failures.push(format!("{}: {cause}", self.shared.endpoints[endpoint]));
                }
                Err(EtcdError::Unreachable(cause)) => {
                    failures.push(format!("{}: {cause}", self.shared.endpoints[endpoint]));
                }
                decided => {
                    self.shared.current.store(endpoint, Ordering::Relaxed);
                    return decided;
                }
            }
        }
        let failures = failures.join("; ");
        Err(if without_quorum {
            EtcdError::NoQuorum(failures)
        } else {
            EtcdError::Unreachable(failures)
        })
    }

    async fn call_member<B: Serialize, T: DeserializeOwned>(
        &self,
        endpoint: usize,
        path: &str,
        body: &B,
        within: Duration,
    ) -> Result<T, EtcdError> {
        let response = self.open(endpoint, path, body, Some(within)).await?;
        let bytes = response.bytes().await.map_err(|e| lost(&e, within))?;
        serde_json::from_slice(&bytes).map_err(|e| EtcdError::Answer(format!("{path}: {e}")))
    }

    /// Sends a call to one member. A login that has expired is renewed once.
    async fn open<B: Serialize>(
        &self,
        endpoint: usize,
        path: &str,
        body: &B,
        within: Option<Duration>,
    ) -> Result<reqwest::Response, EtcdError> {
        match self.send(endpoint, path, body, within).await {
            Err(EtcdError::Denied(_)) if self.shared.login.is_some() => {
                self.log_in(endpoint).await?;
                self.send(endpoint, path, body, within).await
            }
            other => other,
        }
    }

    async fn log_in(&self, endpoint: usize) -> Result<(), EtcdError> {
        let Some(login) = &self.shared.login else {
            return Ok(());
        };
        let denied = |cause: String| EtcdError::Denied(format!("etcd.login: {cause}"));
        let text = files::read_secret(login).map_err(|error| denied(error.to_string()))?;
        let (user, password) = text.trim_end().split_once(':').ok_or_else(|| {
            denied(format!(
                "{} does not have the form USER:PASSWORD",
                login.display()
            ))
        })?;
        let request = AuthenticateRequest {
            name: user.to_owned(),
            password: password.to_owned(),
        };
        self.set_token(None);
        let response = self
            .send(endpoint, "auth/authenticate", &request, Some(CALL))
            .await?;
        let answer: AuthenticateResponse = response
            .json()
            .await
            .map_err(|e| EtcdError::Answer(e.to_string()))?;
        let mut token = HeaderValue::from_str(&answer.token)
            .map_err(|e| EtcdError::Answer(format!("auth/authenticate: {e}")))?;
        token.set_sensitive(true);
        self.set_token(Some(token));
        Ok(())
    }

    fn set_token(&self, token: Option<HeaderValue>) {
        *self
            .shared
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = token;
    }

    async fn send<B: Serialize>(
        &self,
        endpoint: usize,
        path: &str,
        body: &B,
        within: Option<Duration>,
    ) -> Result<reqwest::Response, EtcdError> {
        let url = format!("{}/v3/{path}", self.shared.endpoints[endpoint]);
        let mut request = self.shared.http.post(&url).json(body);
        let token = self
            .shared
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(within) = within {
            request = request.timeout(within);
        }
        let sent = tokio::time::timeout(within.unwrap_or(CALL), request.send()).await;
        let response = match sent {
            Ok(sent) => sent.map_err(|e| lost(&e, CALL))?,
            Err(_) => return Err(EtcdError::Unreachable(silent(within.unwrap_or(CALL)))),
        };
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.bytes().await.map_err(|e| lost(&e, CALL))?;
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(EtcdError::of_refusal(refusal.code, &refusal.message)),
            Err(_) => Err(EtcdError::Answer(format!("{path}: status {status}"))),
        }
    }
}

/// PEM texts of the authority, and of the own certificate with its key.
type PemTexts = (Option<String>, Option<(String, String)>);

/// Reads the certificates in a directory. The own one is optional.
fn certificates(dir: &Path) -> Result<PemTexts, EtcdError> {
    let wrong = |error: files::FileError| EtcdError::Tls(format!("etcd.tls: {error}"));
    let ca = files::read(&dir.join("ca.pem")).map_err(wrong)?;
    let cert = dir.join("cert.pem");
    let own = if cert.exists() {
        let key = files::read_secret(&dir.join("key.pem")).map_err(wrong)?;
        Some((files::read(&cert).map_err(wrong)?, key))
    } else {
        None
    };
    Ok((Some(ca), own))
}

/// The error of a call without an answer: its innermost cause in a few words.
fn lost(error: &reqwest::Error, within: Duration) -> EtcdError {
    if error.is_timeout() && !error.is_connect() {
        return EtcdError::Unreachable(silent(within));
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    EtcdError::Unreachable(cause.to_string())
}

impl KeyPages {
    /// The next page; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<KeyPage>, EtcdError> {
        let Some(from) = self.next.take() else {
            return Ok(None);
        };
        let request = RangeRequest {
            key: EncodedBytes(from),
            range_end: Some(EncodedBytes(self.end.clone())),
            limit: Some(EncodedNumber(PAGE)),
            revision: (self.revision > 0).then_some(EncodedNumber(self.revision)),
        };
        let answer: RangeResponse = self.client.call_within("kv/range", &request, READ).await?;
        if self.revision == 0 {
            self.revision = answer.header.revision.0;
        }
        if let (true, Some(last)) = (answer.more, answer.kvs.last()) {
            let mut next = last.key.0.clone();
            next.push(0);
            self.next = Some(next);
        }
        let entries = answer.kvs.into_iter().map(|kv| (kv.key.0, kv.value.0));
        Ok(Some(KeyPage {
            entries: entries.collect(),
            revision: self.revision,
        }))
    }
}

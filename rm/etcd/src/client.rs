//! Calls to etcd: one member after the other, within a timeout, with a renewed login.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use headroom_config::etcd::EtcdConfig;
use headroom_identity::{files, tls};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, DATE, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::EtcdError;
use crate::error::{FailedMembers, lost, silent};
use crate::keys::after;
use crate::message::{
    AlarmKind, AlarmRequest, AlarmResponse, AuthenticateRequest, AuthenticateResponse,
    CompactionRequest, EmptyRequest, EmptyResponse, EncodedBytes, EncodedNumber, LeaseGrantRequest,
    LeaseRequest, LeaseResponse, RangeRequest, RangeResponse, RefusalBody, StatusResponse,
    StreamMessage, TxnRequest, TxnResponse,
};

/// Longest wait for the answer of one member to a read.
const READ: Duration = Duration::from_secs(2);
/// Longest wait for the answer of one member to a call that changes something. Another member may have
/// found the new leader of etcd before.
pub(crate) const CALL: Duration = Duration::from_millis(1_000);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_millis(700);
/// The refusal of a client whose certificate has a common name, by the gateway of an etcd with
/// users.
const COMMON_NAME: &str = "the certificate in etcd.tls has a common name, with which the gateway \
    of an etcd with users refuses every call; issue one without a common name";
/// Time without data after which a host is checked, and interval between the checks.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Unanswered checks after which a connection ends. A watch has no other timeout that is short.
const LOST_KEEPALIVES: u32 = 2;
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
    /// Whether this client presents a certificate.
    has_certificate: bool,
    /// File with `USER:PASSWORD`.
    login: Option<PathBuf>,
    token: Mutex<Option<HeaderValue>>,
    /// Held during a login, so that calls that fail together log in once.
    logging_in: tokio::sync::Mutex<()>,
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
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_keepalive_retries(LOST_KEEPALIVES)
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
                has_certificate: own.is_some(),
                login: settings.login.clone(),
                token: Mutex::new(None),
                logging_in: tokio::sync::Mutex::new(()),
            }),
        })
    }

    /// The value and creation revision of a key, with the revision of etcd.
    pub(crate) async fn get(&self, key: Vec<u8>) -> Result<RangeResponse, EtcdError> {
        self.call("kv/range", &RangeRequest::key(key)).await
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

    /// Sends a transaction as [`Self::transaction`] does. Each member has the time `within` to answer.
    pub(crate) async fn transaction_within(
        &self,
        request: &TxnRequest,
        within: Duration,
    ) -> Result<TxnResponse, EtcdError> {
        self.call_within("kv/txn", request, within).await
    }

    /// Sends a transaction to one member, which has the time `within` to answer. If that one decides
    /// nothing, the next call goes to another member.
    ///
    /// # Errors
    /// After a transient error the transaction may still take effect, at any later time.
    pub(crate) async fn transaction_once(
        &self,
        request: &TxnRequest,
        within: Duration,
    ) -> Result<TxnResponse, EtcdError> {
        let current = &self.shared.current;
        let (member, members) = (current.load(Ordering::Relaxed), self.shared.endpoints.len());
        let answer = self.call_member(member, "kv/txn", request, within).await;
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

    /// The status of the member of an endpoint, and the time that it names.
    pub(crate) async fn member_status(
        &self,
        endpoint: usize,
    ) -> Result<(StatusResponse, Option<SystemTime>), EtcdError> {
        let path = "maintenance/status";
        let member = |cause: String| format!("{}: {cause}", self.shared.endpoints[endpoint]);
        let response = self
            .open(endpoint, path, &EmptyRequest {}, Some(READ))
            .await;
        let response = response.map_err(|error| error.at(member))?;
        let date = response.headers().get(DATE);
        let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let bytes = response.bytes().await.map_err(|e| self.lost(&e, READ))?;
        let status = serde_json::from_slice(&bytes);
        let status = status.map_err(|e| EtcdError::Answer(format!("{path}: {e}")))?;
        Ok((status, date))
    }

    /// The quota of a member's database, from its metrics. Bytes.
    pub(crate) async fn member_quota(&self, endpoint: usize) -> Option<u64> {
        let url = format!("{}/metrics", self.shared.endpoints[endpoint]);
        let response = self.shared.http.get(url).timeout(READ).send().await.ok()?;
        let page = response.text().await.ok()?;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix("etcd_server_quota_backend_bytes "))?;
        bytes_of(value)
    }

    /// The raised alarms of all members.
    pub(crate) async fn alarms(&self) -> Result<Vec<AlarmKind>, EtcdError> {
        let request = AlarmRequest { action: "GET" };
        let answer: AlarmResponse = self.call("maintenance/alarm", &request).await?;
        Ok(answer.alarms.into_iter().map(|alarm| alarm.alarm).collect())
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
        let mut failures = FailedMembers::default();
        for step in 0..members {
            let endpoint = (first + step) % members;
            match call(endpoint).await {
                Err(error) if error.is_transient() => {
                    failures.add(&self.shared.endpoints[endpoint], error);
                }
                decided => {
                    self.shared.current.store(endpoint, Ordering::Relaxed);
                    return decided;
                }
            }
        }
        Err(failures.into_error())
    }

    async fn call_member<B: Serialize, T: DeserializeOwned>(
        &self,
        endpoint: usize,
        path: &str,
        body: &B,
        within: Duration,
    ) -> Result<T, EtcdError> {
        let response = self.open(endpoint, path, body, Some(within)).await?;
        let bytes = response.bytes().await.map_err(|e| self.lost(&e, within))?;
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
        let token = self.token();
        match self
            .send(endpoint, path, body, (within, token.clone()))
            .await
        {
            Err(EtcdError::Denied(_)) if self.shared.login.is_some() => {
                let token = self.renewed_token(endpoint, token.as_ref()).await?;
                self.send(endpoint, path, body, (within, Some(token))).await
            }
            other => other,
        }
    }

    fn token(&self) -> Option<HeaderValue> {
        let token = self.shared.token.lock();
        token.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A token other than `refused`: one that another call has obtained meanwhile, or that of a new
    /// login.
    async fn renewed_token(
        &self,
        endpoint: usize,
        refused: Option<&HeaderValue>,
    ) -> Result<HeaderValue, EtcdError> {
        let _one_login = self.shared.logging_in.lock().await;
        if let Some(token) = self.token().filter(|token| Some(token) != refused) {
            return Ok(token);
        }
        let token = self.log_in(endpoint).await?;
        *self
            .shared
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    async fn log_in(&self, endpoint: usize) -> Result<HeaderValue, EtcdError> {
        let denied = |cause: String| EtcdError::Denied(format!("etcd.login: {cause}"));
        let login = self.shared.login.as_deref().unwrap_or(Path::new(""));
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
        let response = self
            .send(endpoint, "auth/authenticate", &request, (Some(CALL), None))
            .await?;
        let answer: AuthenticateResponse = response
            .json()
            .await
            .map_err(|e| EtcdError::Answer(e.to_string()))?;
        let mut token = HeaderValue::from_str(&answer.token)
            .map_err(|e| EtcdError::Answer(format!("auth/authenticate: {e}")))?;
        token.set_sensitive(true);
        Ok(token)
    }

    async fn send<B: Serialize>(
        &self,
        endpoint: usize,
        path: &str,
        body: &B,
        (within, token): (Option<Duration>, Option<HeaderValue>),
    ) -> Result<reqwest::Response, EtcdError> {
        let url = format!("{}/v3/{path}", self.shared.endpoints[endpoint]);
        let mut request = self.shared.http.post(&url).json(body);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(within) = within {
            request = request.timeout(within);
        }
        // A stream has this time to begin.
        let within = within.unwrap_or(CALL);
        let response = match tokio::time::timeout(within, request.send()).await {
            Ok(sent) => sent.map_err(|e| self.lost(&e, within))?,
            Err(_) => return Err(EtcdError::Unreachable(silent(within))),
        };
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.bytes().await.map_err(|e| self.lost(&e, within))?;
        match serde_json::from_slice::<RefusalBody>(&bytes) {
            Ok(refusal) => {
                let (code, message) = refusal.into_parts();
                Err(EtcdError::of_refusal(code, &message))
            }
            Err(_) => {
                let text = String::from_utf8_lossy(&bytes);
                if text.starts_with("CommonName of client") {
                    return Err(EtcdError::Denied(COMMON_NAME.into()));
                }
                let text: String = text.trim().chars().take(200).collect();
                Err(EtcdError::Answer(format!(
                    "{path}: status {status}: {text}"
                )))
            }
        }
    }

    fn lost(&self, error: &reqwest::Error, within: Duration) -> EtcdError {
        lost(error, within, self.shared.has_certificate)
    }
}

/// A number of bytes in a page of metrics, such as `2.147483648e+09`.
fn bytes_of(value: &str) -> Option<u64> {
    let (digits, exponent) = value.trim().split_once("e+").unwrap_or((value.trim(), "0"));
    let exponent: usize = exponent.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction: String = fraction
        .chars()
        .chain(std::iter::repeat('0'))
        .take(exponent)
        .collect();
    format!("{whole}{fraction}").parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_metrics_are_read() {
        assert_eq!(bytes_of("2.147483648e+09"), Some(2 << 30));
        assert_eq!(bytes_of("2e+07"), Some(20_000_000));
        assert_eq!(bytes_of("4096"), Some(4096));
        assert_eq!(bytes_of("NaN"), None);
    }
}

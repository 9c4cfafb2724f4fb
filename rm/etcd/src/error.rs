//! Errors of calls to etcd, by the reaction they require.

use std::time::Duration;

use headroom_identity::tls::{self, TlsFailure, TlsFileError};

/// A failed call to etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// No member answered. One line for each endpoint.
    #[error("no member of etcd answers ({0}); check that etcd runs and that this host reaches it")]
    Unreachable(String),
    /// TLS with a member fails: one side refuses the certificate of the other.
    #[error("TLS with etcd fails ({0})")]
    Untrusted(String),
    /// The members have no quorum, or the call took too long inside etcd.
    #[error("etcd has no quorum ({0}); start the missing members")]
    NoQuorum(String),
    /// The database of etcd has reached its quota.
    #[error(
        "etcd is full; compact and defragment it, then run `etcdctl alarm disarm`, or raise its --quota-backend-bytes"
    )]
    Full,
    /// The lease has expired or was revoked.
    #[error("the lease has expired")]
    LeaseGone,
    /// Another resource manager leads, so the write was refused.
    #[error("this resource manager no longer leads, so etcd refused the write")]
    Deposed,
    /// The leader gave up before etcd confirmed the write. Its outcome is unknown.
    #[error("etcd did not confirm a write in time: {0}")]
    Unconfirmed(String),
    /// The user, password or certificate is not accepted.
    #[error(
        "etcd denies access ({0}); check etcd.login and the permissions of that user on the prefix"
    )]
    Denied(String),
    /// The history that a watch or a page needs was compacted.
    #[error("etcd has compacted the requested revision")]
    Compacted,
    /// A certificate file cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The answer has another form than this version expects.
    #[error("unexpected answer from etcd: {0}")]
    Answer(String),
    /// Any other refusal of etcd.
    #[error("etcd refused a call: {0}")]
    Refused(String),
}

impl From<TlsFileError> for EtcdError {
    fn from(error: TlsFileError) -> Self {
        EtcdError::Tls(error.to_string())
    }
}

impl EtcdError {
    /// The error of a refusal: its gRPC code and sentence.
    pub(crate) fn of_refusal(code: i64, message: &str) -> Self {
        // The codes are too coarse: 8 stands for a full database and for too many requests.
        match (code, message) {
            (_, "etcdserver: mvcc: database space exceeded") => EtcdError::Full,
            (_, "etcdserver: requested lease not found") => EtcdError::LeaseGone,
            (_, "etcdserver: mvcc: required revision has been compacted") => EtcdError::Compacted,
            (UNAVAILABLE | DEADLINE | ABORTED, _) => EtcdError::NoQuorum(message.to_owned()),
            (UNAUTHENTICATED | PERMISSION_DENIED, _)
            | (_, "etcdserver: revision of auth store is old")
            | (_, "etcdserver: user name is empty")
            | (_, "etcdserver: authentication failed, invalid user ID or password") => {
                EtcdError::Denied(message.to_owned())
            }
            (_, "etcdserver: too many requests") => EtcdError::NoQuorum(message.to_owned()),
            (_, _) => EtcdError::Refused(message.to_owned()),
        }
    }

    /// The error with its cause in these words, if it is one of a single member.
    pub(crate) fn at(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            EtcdError::Unreachable(cause) => EtcdError::Unreachable(words(cause)),
            EtcdError::Untrusted(cause) => EtcdError::Untrusted(words(cause)),
            EtcdError::NoQuorum(cause) => EtcdError::NoQuorum(words(cause)),
            EtcdError::Denied(cause) => EtcdError::Denied(words(cause)),
            EtcdError::Answer(cause) => EtcdError::Answer(words(cause)),
            EtcdError::Refused(cause) => EtcdError::Refused(words(cause)),
            EtcdError::Full
            | EtcdError::LeaseGone
            | EtcdError::Deposed
            | EtcdError::Unconfirmed(_)
            | EtcdError::Compacted
            | EtcdError::Tls(_) => self,
        }
    }

    /// Whether another member, or the same one later, may answer the same call.
    pub fn is_transient(&self) -> bool {
        match self {
            EtcdError::Unreachable(_) | EtcdError::Untrusted(_) | EtcdError::NoQuorum(_) => true,
            EtcdError::Full
            | EtcdError::LeaseGone
            | EtcdError::Deposed
            | EtcdError::Unconfirmed(_)
            | EtcdError::Denied(_)
            | EtcdError::Compacted
            | EtcdError::Tls(_)
            | EtcdError::Answer(_)
            | EtcdError::Refused(_) => false,
        }
    }
}

const DEADLINE: i64 = 4;
const PERMISSION_DENIED: i64 = 7;
const ABORTED: i64 = 10;
const UNAVAILABLE: i64 = 14;
const UNAUTHENTICATED: i64 = 16;

/// The failures of members that a call was sent to. The most instructive kind names the error.
#[derive(Debug, Default)]
pub(crate) struct FailedMembers {
    causes: Vec<String>,
    without_quorum: bool,
    untrusted: bool,
}

impl FailedMembers {
    /// Adds the transient error of the member at `endpoint`.
    pub(crate) fn add(&mut self, endpoint: &str, error: EtcdError) {
        let cause = match error {
            EtcdError::NoQuorum(cause) => {
                self.without_quorum = true;
                cause
            }
            EtcdError::Untrusted(cause) => {
                self.untrusted = true;
                cause
            }
            EtcdError::Unreachable(cause) => cause,
            EtcdError::Full
            | EtcdError::LeaseGone
            | EtcdError::Deposed
            | EtcdError::Unconfirmed(_)
            | EtcdError::Denied(_)
            | EtcdError::Compacted
            | EtcdError::Tls(_)
            | EtcdError::Answer(_)
            | EtcdError::Refused(_) => error.to_string(),
        };
        self.causes.push(format!("{endpoint}: {cause}"));
    }

    /// The error of the call.
    pub(crate) fn into_error(self) -> EtcdError {
        let causes = self.causes.join("; ");
        if self.without_quorum {
            EtcdError::NoQuorum(causes)
        } else if self.untrusted {
            EtcdError::Untrusted(causes)
        } else {
            EtcdError::Unreachable(causes)
        }
    }
}

/// The error of a call without an answer. A member that requires a certificate may reset the
/// connection before its alert is read.
pub(crate) fn lost(error: &reqwest::Error, within: Duration, has_certificate: bool) -> EtcdError {
    if error.is_timeout() && !error.is_connect() {
        return EtcdError::Unreachable(silent(within));
    }
    match tls::failure(error) {
        Some(TlsFailure::PeerRefused(cause)) => {
            return EtcdError::Untrusted(format!(
                "the certificate of the member is refused: {cause}; \
                 check ca.pem in etcd.tls, and the host names in that certificate"
            ));
        }
        Some(TlsFailure::RefusedByPeer(cause)) if has_certificate => {
            return EtcdError::Untrusted(format!(
                "the member refuses the certificate of this manager: {cause}; \
                 check cert.pem and key.pem in etcd.tls"
            ));
        }
        Some(TlsFailure::RefusedByPeer(_)) => return without_certificate(),
        Some(TlsFailure::Other(cause)) => return EtcdError::Untrusted(cause),
        None => {}
    }
    let https = error.url().is_some_and(|url| url.scheme() == "https");
    if https && !has_certificate && !error.is_connect() {
        return without_certificate();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    EtcdError::Unreachable(cause.to_string())
}

fn without_certificate() -> EtcdError {
    EtcdError::Untrusted(
        "the member ends the connection, as one that requires a client certificate does; \
         put cert.pem and key.pem into etcd.tls"
            .into(),
    )
}

/// The words for a member that was silent.
pub(crate) fn silent(within: Duration) -> String {
    format!("no answer within {} ms", within.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_instructive_failure_names_the_error() {
        let unreachable = || EtcdError::Unreachable("refused".into());
        let untrusted = || EtcdError::Untrusted("unknown issuer".into());
        let mut failed = FailedMembers::default();
        failed.add("https://a", unreachable());
        failed.add("https://b", untrusted());
        let error = failed.into_error();
        assert!(matches!(error, EtcdError::Untrusted(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("https://b: unknown issuer"), "{text}");
        let mut failed = FailedMembers::default();
        failed.add("https://a", untrusted());
        failed.add("https://b", EtcdError::NoQuorum("no leader".into()));
        assert!(matches!(failed.into_error(), EtcdError::NoQuorum(_)));
    }

    #[test]
    fn a_token_of_an_earlier_revision_is_a_denied_access() {
        let old = EtcdError::of_refusal(3, "etcdserver: revision of auth store is old");
        assert!(matches!(old, EtcdError::Denied(_)), "{old}");
    }
}

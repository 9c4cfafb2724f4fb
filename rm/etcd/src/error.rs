//! Errors of calls to etcd, by the reaction they require.

use std::time::Duration;

use headroom_identity::tls::TlsFileError;

/// A failed call to etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// No member answered. One line for each endpoint.
    #[error("no member of etcd answers ({0}); check that etcd runs and that this host reaches it")]
    Unreachable(String),
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
    /// The lease ended before etcd confirmed the write. Its outcome is unknown.
    #[error("etcd did not confirm a write within the lease: {0}")]
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
            | (_, "etcdserver: user name is empty")
            | (_, "etcdserver: authentication failed, invalid user ID or password") => {
                EtcdError::Denied(message.to_owned())
            }
            (_, "etcdserver: too many requests") => EtcdError::NoQuorum(message.to_owned()),
            (_, _) => EtcdError::Refused(message.to_owned()),
        }
    }

    /// Whether another member, or the same one later, may answer the same call.
    pub fn is_transient(&self) -> bool {
        match self {
            EtcdError::Unreachable(_) | EtcdError::NoQuorum(_) => true,
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

/// The words for a member that was silent.
pub(crate) fn silent(within: Duration) -> String {
    format!("no answer within {} ms", within.as_millis())
}

//! What can go wrong between a caller and the resource manager.

use headroom_wire::v1::error::{Code, Problem};

/// How an answer that never came is described.
pub(crate) const SILENT: &str = "nothing for";

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not a URL.
    #[error("{address:?} is not an address; write for example http://127.0.0.1:7070")]
    Address {
        /// What was given.
        address: String,
    },
    /// No answer: refused, unreachable, or too late.
    #[error("no answer from {url}")]
    Unreachable {
        /// What was called.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The answer was an error with a code.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The answer was not what this version understands.
    #[error("{url} answered something else than expected: {what}")]
    Answer {
        /// What was called.
        url: String,
        /// What was wrong with it.
        what: String,
    },
}

impl ClientError {
    /// The stable code, when the other side gave one.
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Problem(p) => Some(p.code),
            ClientError::Address { .. } | ClientError::Unreachable { .. } | ClientError::Answer { .. } => None,
        }
    }
    /// Whether nobody answered: refused, unreachable, too late, or the stream fell silent.
    pub fn unreachable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Answer { what, .. } => what.starts_with(SILENT),
            ClientError::Address { .. } | ClientError::Problem(_) => false,
        }
    }
    /// The innermost cause in a few words: `connection refused`.
    pub fn root_cause(&self) -> String {
        let mut cause: &dyn std::error::Error = self;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        cause.to_string()
    }
    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            ClientError::Problem(p) => p.retryable,
            ClientError::Unreachable { .. } => true,
            ClientError::Address { .. } | ClientError::Answer { .. } => false,
        }
    }
}

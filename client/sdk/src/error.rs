//! What can go wrong between a caller and the resource manager.

use headroom_wire::v1::error::{Code, Problem};

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
    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            ClientError::Problem(p) => p.retryable,
            ClientError::Unreachable { .. } => true,
            ClientError::Address { .. } | ClientError::Answer { .. } => false,
        }
    }
}

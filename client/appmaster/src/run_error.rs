//! The reasons why a master could not work, with their exit codes. The start of a master and its
//! driver return them.

use std::net::SocketAddr;

use headroom_client::ClientError;
use headroom_config::FileProblem;

use crate::journal::JournalError;

/// The reason why a master could not work.
#[derive(Debug, thiserror::Error)]
pub enum MasterRunError {
    /// The job file has mistakes.
    #[error("{}", headroom_config::render(.0))]
    Job(Vec<FileProblem>),
    /// The resource manager does not answer.
    #[error(
        "the resource manager at {url} does not answer; start it, or give its address with --rm"
    )]
    Unreachable {
        /// Its address.
        url: String,
        /// The cause.
        #[source]
        source: ClientError,
    },
    /// The resource manager refused this master.
    #[error("the resource manager refused this master")]
    Refused(#[source] ClientError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The listener for executors could not be opened.
    #[error("cannot listen on {address}; give another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No secret could be created.
    #[error("cannot make a secret for executors")]
    Random(#[source] headroom_identity::token::NoRandomness),
}

impl MasterRunError {
    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            MasterRunError::Job(_) => 2,
            MasterRunError::Unreachable { .. } => 6,
            MasterRunError::Refused(_)
            | MasterRunError::Journal(_)
            | MasterRunError::Listen { .. }
            | MasterRunError::Random(_) => 1,
        }
    }
}

//! The result of a simulated call as the client library returns it.

use std::time::Duration;

use headroom_client::{AnswerDefect, ClientError};
use headroom_rm_core::{CallAnswer, CallRefusal};
use headroom_rm_server::to_wire;
use headroom_types::Epoch;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};

/// Timeout of a call. Milliseconds.
pub(super) const CALL_TIMEOUT: u64 = 10_000;
/// The address of the simulated resource manager, for errors.
pub(super) const MANAGER_URL: &str = "http://simulated";

/// The result of a call for its caller.
#[derive(Clone, Debug)]
pub(super) enum SimCallResult {
    Answer(Box<CallAnswer>, Epoch),
    /// The stream is open.
    Listening,
    Refused(CallRefusal),
    /// The requested updates are no longer kept.
    TooOld,
    /// No response.
    Lost,
}

impl SimCallResult {
    /// The answer with the epoch of the resource manager.
    pub(super) fn answer(self) -> Result<(CallAnswer, Epoch), ClientError> {
        match self {
            SimCallResult::Answer(answer, epoch) => Ok((*answer, epoch)),
            SimCallResult::Refused(refusal) => {
                Err(ClientError::Problem(Box::new(to_wire::problem(&refusal))))
            }
            SimCallResult::TooOld => {
                let sentence = "the updates are no longer kept";
                let problem = ProblemDetails::new(ErrorCode::HR0411, sentence);
                Err(ClientError::Problem(Box::new(problem)))
            }
            SimCallResult::Lost => {
                let waited = Duration::from_millis(CALL_TIMEOUT);
                Err(defective(AnswerDefect::Silent(waited)))
            }
            SimCallResult::Listening => Err(unexpected()),
        }
    }

    /// The error of a call that opens a stream; `None` if the stream is open.
    pub(super) fn stream_error(self) -> Option<ClientError> {
        match self {
            SimCallResult::Listening => None,
            SimCallResult::Answer(..)
            | SimCallResult::Refused(_)
            | SimCallResult::TooOld
            | SimCallResult::Lost => Some(self.answer().err().unwrap_or_else(unexpected)),
        }
    }
}

fn defective(defect: AnswerDefect) -> ClientError {
    let url = MANAGER_URL.to_owned();
    ClientError::Answer { url, defect }
}

/// The error for an answer to another call.
pub(super) fn unexpected() -> ClientError {
    defective(AnswerDefect::Malformed("answer to another call".to_owned()))
}

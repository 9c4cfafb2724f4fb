//! Requests of operators to the daemon's process over the interface: reload of the configuration,
//! log level.
//!
//! The program that started the resource manager owns the file and the log, so handlers pass the
//! request on and wait. A resource manager inside another program has neither, and refuses the
//! request.

use std::time::Duration;

use headroom_types::LogLevel;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::operator::{LogLevelView, ReloadResult};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue, in requests.
const LINE: usize = 8;
/// Timeout of a request, after which its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request, with the receiver of its result.
#[derive(Debug)]
pub enum OperatorRequest {
    /// Reload the configuration.
    Reload(oneshot::Sender<Result<ReloadResult, String>>),
    /// Set the log level, if one is given, and return it.
    Log(Option<LogLevel>, oneshot::Sender<LogLevelView>),
}

/// Sender of requests.
#[derive(Clone, Debug)]
pub struct OperatorHandle(mpsc::Sender<OperatorRequest>);

/// Creates the sender and the receiver of requests.
pub fn line() -> (OperatorHandle, mpsc::Receiver<OperatorRequest>) {
    let (ask, asked) = mpsc::channel(LINE);
    (OperatorHandle(ask), asked)
}

impl OperatorHandle {
    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// The receiver has ended, or the result did not arrive in time.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> OperatorRequest,
    ) -> ProblemResult<T> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.0.send(request(reply)).await.ok()?;
            answer.await.ok()
        };
        let answered = tokio::time::timeout(REQUEST_TIMEOUT, asked).await;
        let late = || {
            ProblemDetails::unavailable(
                "the daemon did not respond in time; it may be shutting down",
            )
        };
        answered.ok().flatten().ok_or_else(late)
    }
}

/// Outcome of a reload as one line.
pub(crate) fn reload_summary(reloaded: &ReloadResult) -> String {
    let mut parts = reloaded.holds.clone();
    if !reloaded.waits.is_empty() {
        parts.push(format!("after a restart: {}", reloaded.waits.join(", ")));
    }
    parts.extend(reloaded.notes.iter().cloned());
    if parts.is_empty() {
        "no key has changed".to_owned()
    } else {
        parts.join("; ")
    }
}

//! Requests of operators to the daemon's process over the interface: reload of the configuration,
//! log level.
//!
//! The program that started the resource manager owns the file and the log, so handlers pass the
//! request on and wait. A resource manager inside another program has neither, and refuses the
//! request.

use std::time::Duration;

use headroom_types::LogLevel;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::operator::{LogView, Reloaded};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue, in requests.
const LINE: usize = 8;
/// Timeout of a request, after which its outcome is unknown.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request, with the receiver of its result.
#[derive(Debug)]
pub enum Wish {
    /// Reload the configuration.
    Reload(oneshot::Sender<Result<Reloaded, String>>),
    /// Set the log level, if one is given, and return it.
    Log(Option<LogLevel>, oneshot::Sender<LogView>),
}

/// Sender of requests.
#[derive(Clone, Debug)]
pub struct Operator(mpsc::Sender<Wish>);

/// Creates the sender and the receiver of requests.
pub fn line() -> (Operator, mpsc::Receiver<Wish>) {
    let (ask, asked) = mpsc::channel(LINE);
    (Operator(ask), asked)
}

impl Operator {
    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// The receiver has ended, or the result did not arrive in time.
    pub(crate) async fn ask<T>(&self, wish: impl FnOnce(oneshot::Sender<T>) -> Wish) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.0.send(wish(reply)).await.ok()?;
            answer.await.ok()
        };
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        let late = || Problem::new(Code::HR0503, "the daemon did not take this up; it may be ending");
        answered.ok().flatten().ok_or_else(late)
    }
}

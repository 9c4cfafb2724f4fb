//! What an operator asks of the daemon as a process, over the interface: to read its configuration again, to say more or less in its log.
//!
//! Who has the file and the log is whoever started the resource manager, so handlers pass the wish on and wait. One that runs inside
//! another program has neither, and says so.

use std::time::Duration;

use headroom_types::LogLevel;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::operator::{LogView, Reloaded};
use tokio::sync::{mpsc, oneshot};

/// Wishes that may wait.
const LINE: usize = 8;
/// What is wished for is done by then, or it is not known whether it will be.
const PATIENCE: Duration = Duration::from_secs(30);

/// One wish, and where what came of it is told.
#[derive(Debug)]
pub enum Wish {
    /// The configuration is to be read again.
    Reload(oneshot::Sender<Result<Reloaded, String>>),
    /// How much is said in the log is to be told, and another level to be taken up before that, if one is given.
    Log(Option<LogLevel>, oneshot::Sender<LogView>),
}

/// Takes wishes in.
#[derive(Clone, Debug)]
pub struct Operator(mpsc::Sender<Wish>);

/// Where wishes come from and where they go to.
pub fn line() -> (Operator, mpsc::Receiver<Wish>) {
    let (ask, asked) = mpsc::channel(LINE);
    (Operator(ask), asked)
}

impl Operator {
    /// Passes a wish on and waits for what comes of it.
    ///
    /// # Errors
    /// Nobody could be asked, or there was no answer in time.
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

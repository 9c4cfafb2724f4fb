//! The connection to the master: made, lost, made again.
//!
//! Owned by a task of its own that only moves lines. It knows neither tasks nor results: at each new connection the executor's
//! loop says what it has. A master that was restarted listens elsewhere, so before each new try the resource manager is asked
//! where it is now.

use std::time::Duration;

use futures_util::StreamExt as _;
use headroom_client::Client;
use headroom_client::retry::Backoff;
use headroom_transport::{Address, Line, Reading, Writing, connect, halves};
use headroom_types::AppId;
use headroom_wire::v1::task::{FromExecutor, LineError, MAX_LINE, ToExecutor};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long the resource manager may take to answer.
const ASK: Duration = Duration::from_secs(2);
/// How long one write may hang before the other side counts as gone.
const WRITE: Duration = Duration::from_secs(20);
/// How long a master that sends signs of life may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// A connection that lived this long, or on which the master said something, was a good one.
const GOOD: Duration = Duration::from_secs(2);
/// Lines that may wait for the socket.
const WAITING_LINES: usize = 1024;

/// What the link tells the loop.
#[derive(Debug)]
pub enum LinkEvent {
    /// Connected. Nothing was said yet; the first line must be `Hello`.
    Up(Writer),
    /// The master said something.
    Got(Box<ToExecutor>),
    /// The connection is gone.
    Down {
        /// Why.
        why: String,
        /// Whether a master was there at all.
        good: bool,
    },
    /// The resource manager says that the application has ended: there will be no master any more.
    AppOver,
}

/// Where the master is looked for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it was last.
    pub master: Address,
    /// The resource manager, which knows where it is now.
    pub rm: Option<Client>,
    /// Whose master.
    pub app: AppId,
}

/// The sending side of one connection. Dropping it closes the connection after what was sent has left.
#[derive(Debug)]
pub struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
}

/// The connection cannot take the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// It is gone.
    Closed,
    /// The master does not read fast enough.
    Full,
    /// The line is longer than the protocol allows.
    TooLong,
}

impl Writer {
    /// Sends one message; never waits.
    pub fn send(&self, message: &FromExecutor) -> Result<(), SendError> {
        let mut line = serde_json::to_vec(message).map_err(|_| SendError::TooLong)?;
        if line.len() >= MAX_LINE {
            return Err(SendError::TooLong);
        }
        line.push(b'\n');
        self.lines.try_send(line).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }
}

/// Keeps a connection for as long as somebody listens to `events`.
pub async fn keep(mut target: Target, events: mpsc::Sender<LinkEvent>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let client = target.rm.clone();
    loop {
        match timeout(CONNECT, connect(&target.master.at, target.master.pin)).await {
            Ok(Ok(stream)) => {
                let end = converse(stream, &events).await;
                if end.good {
                    backoff.reset();
                }
                if events.send(LinkEvent::Down { why: end.why, good: end.good }).await.is_err() {
                    return;
                }
            }
            Ok(Err(e)) => tracing::debug!(master = %target.master.at, error = %e, "the master does not answer"),
            Err(_) => tracing::debug!(master = %target.master.at, "the master does not answer within 3 s"),
        }
        tokio::select! {
            () = events.closed() => return,
            () = tokio::time::sleep(backoff.wait()) => {}
        }
        let Some(client) = &client else { continue };
        match ask(client, &target.app).await {
            Whereabouts::At(master) => target.master = master,
            Whereabouts::Unknown => {}
            Whereabouts::Over => {
                let _ = events.send(LinkEvent::AppOver).await;
                return;
            }
        }
    }
}

/// What the resource manager knows of the master.
enum Whereabouts {
    At(Address),
    Unknown,
    Over,
}

async fn ask(client: &Client, app: &AppId) -> Whereabouts {
    match timeout(ASK, client.app(app)).await {
        Ok(Ok(view)) if view.state.is_final() => Whereabouts::Over,
        Ok(Ok(view)) => view.master_url.as_deref().and_then(|url| url.parse().ok()).map_or(Whereabouts::Unknown, Whereabouts::At),
        Ok(Err(e)) => {
            tracing::debug!(error = %e, "the resource manager cannot tell where the master is");
            Whereabouts::Unknown
        }
        Err(_) => Whereabouts::Unknown,
    }
}

/// How a connection ended.
struct ConversationEnd {
    why: String,
    good: bool,
}

async fn converse(stream: Line, events: &mpsc::Sender<LinkEvent>) -> ConversationEnd {
    let since = Instant::now();
    let (read, write) = halves(stream);
    let (lines, waiting) = mpsc::channel(WAITING_LINES);
    if events.send(LinkEvent::Up(Writer { lines })).await.is_err() {
        return ConversationEnd { why: "the executor ends".into(), good: true };
    }
    let mut heard = false;
    let why = tokio::select! {
        why = receive(read, events, &mut heard) => why,
        why = transmit(write, waiting) => why,
    };
    ConversationEnd { why, good: heard || since.elapsed() >= GOOD }
}

/// Hands on what the master says, until it says no more.
async fn receive(read: Reading, events: &mpsc::Sender<LinkEvent>, heard: &mut bool) -> String {
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE));
    let mut sends_signs = false;
    loop {
        // A master that never sends a sign of life is not expected to.
        let next = if sends_signs {
            match timeout(SILENCE, lines.next()).await {
                Ok(next) => next,
                Err(_) => return format!("the master was silent for {} s", SILENCE.as_secs()),
            }
        } else {
            lines.next().await
        };
        let line = match next {
            None => return "the master closed the connection".into(),
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                return format!("the master sent a line longer than {MAX_LINE} bytes");
            }
            Some(Err(LinesCodecError::Io(e))) => return format!("the connection broke: {e}"),
            Some(Ok(line)) => line,
        };
        match ToExecutor::read(&line) {
            Ok(message) => {
                // A master that only refuses is no master.
                *heard |= !matches!(message, ToExecutor::Refused { .. });
                sends_signs |= message == ToExecutor::Alive;
                if events.send(LinkEvent::Got(Box::new(message))).await.is_err() {
                    return "the executor ends".into();
                }
            }
            Err(LineError::Unknown(kind)) => tracing::debug!(kind, "the master says more than this version knows, ignoring"),
            Err(e @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => {
                tracing::warn!(error = %e, "a line of the master is not understood, ignoring");
            }
        }
    }
}

/// Writes what waits, all of it in one go, until nobody sends any more.
async fn transmit(mut write: Writing, mut waiting: mpsc::Receiver<Vec<u8>>) -> String {
    let mut buffer = Vec::new();
    while let Some(first) = waiting.recv().await {
        buffer.clear();
        buffer.extend_from_slice(&first);
        while let Ok(next) = waiting.try_recv() {
            buffer.extend_from_slice(&next);
        }
        match timeout(WRITE, write.write_all(&buffer)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return format!("the connection broke: {e}"),
            Err(_) => return format!("the master read nothing for {} s", WRITE.as_secs()),
        }
    }
    let _ = timeout(WRITE, write.shutdown()).await;
    "closed by the executor".into()
}

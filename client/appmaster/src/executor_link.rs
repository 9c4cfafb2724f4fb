//! The task channel's server: takes executors' connections and moves lines between them and the loop.
//!
//! One reading and one writing task for each connection, with bounded queues. It checks version, secret and line length, and knows
//! nothing of tasks. A connection that is not understood is closed; the executor tries again and says hello anew. One that knows the
//! secret is told why, a stranger is told nothing. Kinds that a later version may have added are passed over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use headroom_transport::{Lock, Reading, Stream, Writing, greet, halves};
use headroom_types::{AppId, ContainerId};
use headroom_wire::v1::task::{FromExecutor, LineError, MAX_LINE, OLDEST, Salute, ToExecutor, VERSION};
use tokio::io::AsyncWriteExt as _;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use crate::event::Hello;

/// How long a new connection may take to say hello.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// An executor sends a sign of life at least this often.
const SILENCE: Duration = Duration::from_secs(30);
/// A sign of life is sent after this much quiet.
const QUIET: Duration = Duration::from_secs(5);
/// How long one write may hang.
const WRITE: Duration = Duration::from_secs(10);
/// Messages that may wait for one executor.
const WAITING: usize = 1024;
/// Connections at once.
const MOST_CONNECTIONS: usize = 20_000;

/// Tells connections of the same executor apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection(u64);

/// What the link tells the loop.
#[derive(Debug)]
pub enum LinkEvent {
    /// An executor has said hello.
    Up {
        /// On this connection.
        connection: Connection,
        /// Its words.
        hello: Hello,
        /// Where answers go.
        sender: mpsc::Sender<ToExecutor>,
        /// Ends when everything that was sent has left.
        writer: JoinHandle<()>,
    },
    /// An executor said something else.
    Heard {
        /// On this connection.
        connection: Connection,
        /// Which executor.
        container: ContainerId,
        /// Its words.
        message: Box<FromExecutor>,
    },
    /// A connection is gone.
    Down {
        /// Which.
        connection: Connection,
        /// Whose.
        container: ContainerId,
    },
}

/// Who may speak.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The application's secret.
    pub token: String,
    /// Executors of other applications are refused.
    pub app: AppId,
}

/// Why a connection was closed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("it said nothing for {} s", FIRST_LINE.as_secs())]
    Silent,
    #[error("the line is longer than {MAX_LINE} bytes")]
    TooLong,
    #[error("its first line is no hello")]
    NoHello,
    #[error("it does not speak the task channel: {0}")]
    NotUnderstood(LineError),
    #[error("its protocol version is {0}, this master speaks {OLDEST} to {VERSION}")]
    Version(u32),
    #[error("it does not know the application's secret")]
    Token,
    #[error("container {0} belongs to another application")]
    Foreign(ContainerId),
    #[error("the connection broke")]
    Gone,
}

impl Refused {
    /// The words for an executor that has shown the secret.
    fn told(&self) -> Option<ToExecutor> {
        match self {
            Refused::TooLong | Refused::NotUnderstood(_) | Refused::Version(_) | Refused::Foreign(_) => {
                Some(ToExecutor::Refused { why: self.to_string(), oldest: OLDEST, newest: VERSION })
            }
            Refused::Silent | Refused::NoHello | Refused::Token | Refused::Gone => None,
        }
    }
}

/// Takes connections, encrypted where there is a lock, until the receiver of `events` is gone.
pub async fn serve(listener: TcpListener, lock: Option<Lock>, gate: Gate, events: mpsc::Sender<LinkEvent>) {
    let gate = Arc::new(gate);
    let numbers = AtomicU64::new(1);
    let room = Arc::new(tokio::sync::Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = events.closed() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                let connection = Connection(numbers.fetch_add(1, Ordering::Relaxed));
                let (gate, events, server) = (Arc::clone(&gate), events.clone(), lock.as_ref().map(|l| l.server.clone()));
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true); // only costs speed
                    match greet(stream, server).await {
                        Ok((stream, _)) => converse(connection, stream, peer, &gate, events).await,
                        Err(error) => tracing::warn!(%peer, %error, "refused an executor's connection"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an executor could not connect");
                tokio::time::sleep(Duration::from_millis(50)).await; // out of file descriptors: do not spin
            }
        }
    }
}

type Lines = FramedRead<Reading, LinesCodec>;

async fn converse(connection: Connection, stream: Stream, peer: SocketAddr, gate: &Gate, events: mpsc::Sender<LinkEvent>) {
    let (read, mut write) = halves(stream);
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE));
    let hello = match first_words(&mut lines, gate).await {
        Ok(hello) => hello,
        Err(why) => {
            tracing::warn!(%peer, %why, "refused an executor's connection");
            if let Some(words) = why.told() {
                let _ = timeout(WRITE, say(&mut write, &words)).await; // it is closed in any case
            }
            return;
        }
    };
    let container = hello.container.clone();
    let (sender, waiting) = mpsc::channel(WAITING);
    let (closed, mut broken) = mpsc::channel(1);
    let writer = tokio::spawn(transmit(write, waiting, closed));
    let last = sender.downgrade();
    if events.send(LinkEvent::Up { connection, hello, sender, writer }).await.is_err() {
        return;
    }
    let why = tokio::select! {
        why = receive(&mut lines, connection, &container, &events) => why,
        _ = broken.recv() => Refused::Gone,
    };
    match (why.told(), last.upgrade()) {
        (Some(words), Some(last)) => {
            tracing::warn!(%container, %why, "an executor is not understood, closing its connection");
            let _ = last.try_send(words); // one that does not read does not read this either
        }
        (Some(_) | None, _) => tracing::debug!(%container, %why, "an executor's connection ended"),
    }
    let _ = events.send(LinkEvent::Down { connection, container }).await;
}

async fn next(lines: &mut Lines, wait: Duration) -> Result<String, Refused> {
    match timeout(wait, lines.next()).await {
        Err(_) => Err(Refused::Silent),
        Ok(None) => Err(Refused::Gone),
        Ok(Some(Err(LinesCodecError::MaxLineLengthExceeded))) => Err(Refused::TooLong),
        Ok(Some(Err(LinesCodecError::Io(_)))) => Err(Refused::Gone),
        Ok(Some(Ok(line))) => Ok(line),
    }
}

async fn first_words(lines: &mut Lines, gate: &Gate) -> Result<Hello, Refused> {
    // Whoever sends an endless line has not shown the secret.
    let stranger = |why| if matches!(why, Refused::TooLong) { Refused::NoHello } else { why };
    let line = next(lines, FIRST_LINE).await.map_err(stranger)?;
    let salute = Salute::read(&line).ok_or(Refused::NoHello)?;
    if !same(&salute.token, &gate.token) {
        return Err(Refused::Token);
    }
    if !(OLDEST..=VERSION).contains(&salute.version) {
        return Err(Refused::Version(salute.version));
    }
    match FromExecutor::read(&line).map_err(Refused::NotUnderstood)? {
        FromExecutor::Hello { container, .. } if container.app != gate.app => Err(Refused::Foreign(container)),
        FromExecutor::Hello { container, slots, running, unacked, .. } => Ok(Hello { container, slots, running, unacked }),
        FromExecutor::Started { .. }
        | FromExecutor::Usage { .. }
        | FromExecutor::Ended { .. }
        | FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Alive => Err(Refused::NoHello),
    }
}

/// Compares in a time that does not depend on where the two differ.
fn same(given: &str, secret: &str) -> bool {
    let differ = given.bytes().zip(secret.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == secret.len() && differ == 0
}

async fn receive(
    lines: &mut Lines,
    connection: Connection,
    container: &ContainerId,
    events: &mpsc::Sender<LinkEvent>,
) -> Refused {
    loop {
        let line = match next(lines, SILENCE).await {
            Ok(line) => line,
            Err(why) => return why,
        };
        match FromExecutor::read(&line) {
            Ok(FromExecutor::Alive) => {}
            Ok(message) => {
                let heard = LinkEvent::Heard { connection, container: container.clone(), message: Box::new(message) };
                if events.send(heard).await.is_err() {
                    return Refused::Gone;
                }
            }
            Err(LineError::Unknown(kind)) => {
                tracing::debug!(%container, kind, "an executor of a later version, ignoring the line")
            }
            Err(why @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => return Refused::NotUnderstood(why),
        }
    }
}

/// Writes until the sending side is dropped; then everything has left. A write that hangs ends the connection.
async fn transmit(mut write: Writing, mut waiting: mpsc::Receiver<ToExecutor>, closed: mpsc::Sender<()>) {
    loop {
        let message = match timeout(QUIET, waiting.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) => ToExecutor::Alive,
        };
        if !matches!(timeout(WRITE, say(&mut write, &message)).await, Ok(Ok(()))) {
            break;
        }
    }
    let _ = timeout(WRITE, write.shutdown()).await;
    let _ = closed.try_send(());
}

async fn say(write: &mut Writing, message: &ToExecutor) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    write.write_all(&line).await
}

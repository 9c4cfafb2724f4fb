//! The connection to the master, with reconnects.
//!
//! Runs in its own tokio task that only transfers lines. It knows neither tasks nor results: on
//! each new connection the executor's session reports its state. [`MasterSearch`] decides on
//! addresses and waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use headroom_client::Client;
use headroom_transport::{
    ConnectionReader, ConnectionWriter, MasterAddress, MasterConnection, connect, halves,
};
use headroom_types::AppId;
use headroom_wire::v1::task::{FromExecutor, LineError, MAX_LINE_BYTES, ToExecutor};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use crate::master_search::{MasterLocation, MasterSearch, is_good_connection};
use crate::session::shows_master;

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a query to the resource manager.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one write, after which the connection is closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence after which the resource manager is queried for another master. A host that is paused
/// still accepts connections, and a master that was replaced may not have noticed it.
const SILENCE_BEFORE_QUERY: Duration = Duration::from_secs(10);
/// Maximum silence of a master that sends heartbeats.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of queued lines.
const MAX_QUEUED_LINES: usize = 1024;

/// An event of the link.
#[derive(Debug)]
pub enum LinkEvent {
    /// Connected. Nothing is sent yet; the first line must be `Hello`.
    Up(MasterWriter),
    /// A message of the master.
    Got(Box<ToExecutor>),
    /// The connection is closed.
    Down {
        /// Reason.
        why: String,
        /// True if the connection was good, that is, a master was there.
        good: bool,
    },
    /// The application has ended, as reported by the resource manager: no master will follow.
    AppOver,
}

/// The addresses at which the link searches the master.
#[derive(Clone, Debug)]
pub struct MasterTarget {
    /// Last known address of the master; `None` for an executor that started along with it.
    pub master: Option<MasterAddress>,
    /// Client of the resource manager, which knows the current address.
    pub rm: Option<Client>,
    /// Application of the master.
    pub app: AppId,
}

/// The sending side of a connection. A drop closes the connection after all queued lines are sent.
#[derive(Debug)]
pub struct MasterWriter {
    lines: mpsc::Sender<Vec<u8>>,
}

/// The error of a line that the connection does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The connection is closed.
    Closed,
    /// The queue is full because the master reads too slowly.
    Full,
    /// The line exceeds the maximum length of the protocol.
    TooLong,
}

impl MasterWriter {
    /// Queues one message; never waits.
    pub fn send(&self, message: &FromExecutor) -> Result<(), SendError> {
        let mut line = serde_json::to_vec(message).map_err(|_| SendError::TooLong)?;
        if line.len() >= MAX_LINE_BYTES {
            return Err(SendError::TooLong);
        }
        line.push(b'\n');
        self.lines.try_send(line).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }
}

/// Maintains a connection until the receiver of `events` is dropped.
pub async fn maintain_connection(target: MasterTarget, events: mpsc::Sender<LinkEvent>) {
    let MasterTarget {
        master,
        rm: client,
        app,
    } = target;
    let mut search = MasterSearch::new(master);
    loop {
        if let Some(address) = search.address() {
            let other = OtherMaster {
                client: client.as_ref(),
                app: &app,
                address,
            };
            if let Some(ConnectionEnd { why, good }) = connection(&events, other).await {
                search.on_disconnected(good);
                if events.send(LinkEvent::Down { why, good }).await.is_err() {
                    return;
                }
            }
            if !pause(&events, search.wait()).await {
                return;
            }
        }
        let Some(client) = &client else {
            if search.address().is_some() {
                continue;
            }
            tracing::error!("neither the address of a master nor a resource manager is known");
            return;
        };
        let query = query_master_address(client, &app, search.registration_wait());
        let location = tokio::select! {
            () = events.closed() => return,
            location = query => location,
        };
        if !search.on_location(location) {
            let _ = events.send(LinkEvent::AppOver).await;
            return;
        }
        if search.address().is_none() && !pause(&events, search.wait()).await {
            return;
        }
    }
}

/// Waits. Returns false if the receiver of `events` is dropped.
async fn pause(events: &mpsc::Sender<LinkEvent>, wait: Duration) -> bool {
    tokio::select! {
        () = events.closed() => false,
        () = tokio::time::sleep(wait) => true,
    }
}

/// One connection to the master at `other.address`; `None` if it could not be opened.
async fn connection(
    events: &mpsc::Sender<LinkEvent>,
    other: OtherMaster<'_>,
) -> Option<ConnectionEnd> {
    let address = other.address;
    match timeout(CONNECT_TIMEOUT, connect(&address.at, address.pin)).await {
        Ok(Ok(stream)) => return Some(run_connection(stream, events, other).await),
        Ok(Err(e)) => {
            tracing::debug!(master = %address.at, error = %e, "the master does not answer")
        }
        Err(_) => {
            tracing::debug!(master = %address.at, "the master does not answer within 3 s")
        }
    }
    None
}

/// Queries the address of the master, and waits at most `wait` until it has registered.
async fn query_master_address(client: &Client, app: &AppId, wait: Duration) -> MasterLocation {
    match timeout(QUERY_TIMEOUT + wait, client.master_address(app, wait)).await {
        Ok(Ok(found)) => MasterLocation::of(found.state, found.master_url.as_deref()),
        Ok(Err(e)) => {
            tracing::debug!(error = %e, "the resource manager does not return the address of the master");
            MasterLocation::Unknown
        }
        Err(_) => MasterLocation::Unknown,
    }
}

/// The end of a connection.
struct ConnectionEnd {
    why: String,
    good: bool,
}

/// The search for another master while the connected one is silent.
struct OtherMaster<'a> {
    client: Option<&'a Client>,
    app: &'a AppId,
    /// Address of the connected master.
    address: &'a MasterAddress,
}

impl OtherMaster<'_> {
    /// Waits until the resource manager names another master. Queries only after a silence of the
    /// connected one; `lines` counts its messages.
    async fn found(self, lines: &AtomicU64) -> String {
        let mut known = 0;
        loop {
            tokio::time::sleep(SILENCE_BEFORE_QUERY).await;
            let now = lines.load(Ordering::Relaxed);
            if std::mem::replace(&mut known, now) != now {
                continue;
            }
            let Some(client) = self.client else { continue };
            if let MasterLocation::At(other) =
                query_master_address(client, self.app, Duration::ZERO).await
                && other != *self.address
            {
                return format!("the master is silent, and another one is at {}", other.at);
            }
        }
    }
}

async fn run_connection(
    stream: MasterConnection,
    events: &mpsc::Sender<LinkEvent>,
    other: OtherMaster<'_>,
) -> ConnectionEnd {
    let since = Instant::now();
    let (read, write) = halves(stream);
    let (lines, waiting) = mpsc::channel(MAX_QUEUED_LINES);
    if events
        .send(LinkEvent::Up(MasterWriter { lines }))
        .await
        .is_err()
    {
        return ConnectionEnd {
            why: "the executor ends".into(),
            good: true,
        };
    }
    let mut heard = false;
    let received = AtomicU64::new(0);
    let why = tokio::select! {
        why = receive(read, events, (&mut heard, &received)) => why,
        why = other.found(&received) => why,
        why = transmit(write, waiting) => why,
    };
    ConnectionEnd {
        why,
        good: is_good_connection(heard, since.elapsed()),
    }
}

/// Forwards messages of the master until the connection ends.
async fn receive(
    read: ConnectionReader,
    events: &mpsc::Sender<LinkEvent>,
    (heard, received): (&mut bool, &AtomicU64),
) -> String {
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    let mut sends_signs = false;
    loop {
        // Silence is limited only for a master that has sent heartbeats.
        let next = if sends_signs {
            match timeout(HEARTBEAT_TIMEOUT, lines.next()).await {
                Ok(next) => next,
                Err(_) => {
                    return format!(
                        "the master sent nothing for {} s",
                        HEARTBEAT_TIMEOUT.as_secs()
                    );
                }
            }
        } else {
            lines.next().await
        };
        let line = match next {
            None => return "the master closed the connection".into(),
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                return format!("the master sent a line longer than {MAX_LINE_BYTES} bytes");
            }
            Some(Err(LinesCodecError::Io(e))) => return format!("the connection failed: {e}"),
            Some(Ok(line)) => line,
        };
        received.fetch_add(1, Ordering::Relaxed);
        match ToExecutor::read(&line) {
            Ok(message) => {
                *heard |= shows_master(&message);
                sends_signs |= message == ToExecutor::Alive;
                if events
                    .send(LinkEvent::Got(Box::new(message)))
                    .await
                    .is_err()
                {
                    return "the executor ends".into();
                }
            }
            Err(LineError::Unknown(kind)) => tracing::debug!(
                kind,
                "the master sent a message of an unknown kind, ignoring"
            ),
            Err(e @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => {
                tracing::warn!(error = %e, "the master sent an invalid line, ignoring");
            }
        }
    }
}

/// Writes all queued lines at once, until the sender is dropped.
async fn transmit(mut write: ConnectionWriter, mut waiting: mpsc::Receiver<Vec<u8>>) -> String {
    let mut buffer = Vec::new();
    while let Some(first) = waiting.recv().await {
        buffer.clear();
        buffer.extend_from_slice(&first);
        while let Ok(next) = waiting.try_recv() {
            buffer.extend_from_slice(&next);
        }
        match timeout(WRITE_TIMEOUT, write.write_all(&buffer)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return format!("the connection failed: {e}"),
            Err(_) => return format!("the master read nothing for {} s", WRITE_TIMEOUT.as_secs()),
        }
    }
    let _ = timeout(WRITE_TIMEOUT, write.shutdown()).await;
    "closed by the executor".into()
}

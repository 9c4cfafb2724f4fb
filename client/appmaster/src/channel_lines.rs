//! Lines of JSON on a connection: the reading and the writing side, with timeouts.

use std::time::Duration;

use headroom_transport::{ConnectionReader, ConnectionWriter};
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use futures_util::StreamExt as _;

/// Interval after which an idle connection sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of one write.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The reading side of a connection.
pub(crate) type ChannelLineReader = FramedRead<ConnectionReader, LinesCodec>;

/// The reason why no line was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineReadFailure {
    /// No line arrived in time.
    Silent,
    /// The line is longer than the limit.
    TooLong,
    /// The connection was lost or closed.
    Gone,
}

/// Reads the next line within this time.
pub(crate) async fn read_line(
    lines: &mut ChannelLineReader,
    wait: Duration,
) -> Result<String, LineReadFailure> {
    match timeout(wait, lines.next()).await {
        Err(_) => Err(LineReadFailure::Silent),
        Ok(None) => Err(LineReadFailure::Gone),
        Ok(Some(Err(LinesCodecError::MaxLineLengthExceeded))) => Err(LineReadFailure::TooLong),
        Ok(Some(Err(LinesCodecError::Io(_)))) => Err(LineReadFailure::Gone),
        Ok(Some(Ok(line))) => Ok(line),
    }
}

/// Writes messages until the sender is dropped and the queue is empty; `alive` while it is idle. A
/// write that reaches its timeout ends the connection.
pub(crate) async fn transmit<M: Serialize>(
    mut write: ConnectionWriter,
    mut waiting: mpsc::Receiver<M>,
    closed: mpsc::Sender<()>,
    alive: M,
) {
    loop {
        let message = match timeout(HEARTBEAT_INTERVAL, waiting.recv()).await {
            Ok(Some(message)) => Some(message),
            Ok(None) => break,
            Err(_) => None,
        };
        let message = message.as_ref().unwrap_or(&alive);
        if !matches!(
            timeout(WRITE_TIMEOUT, write_message(&mut write, message)).await,
            Ok(Ok(()))
        ) {
            break;
        }
    }
    let _ = timeout(WRITE_TIMEOUT, write.shutdown()).await;
    let _ = closed.try_send(());
}

/// Writes one message as a line.
pub(crate) async fn write_message<M: Serialize>(
    write: &mut ConnectionWriter,
    message: &M,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    write.write_all(&line).await
}

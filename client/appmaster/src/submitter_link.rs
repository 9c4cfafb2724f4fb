//! Connections of the clients of a live job, on the listener of the executors. The server checks
//! version, secret and line length, and forwards messages between a client and the loop through
//! bounded queues.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headroom_transport::ConnectionWriter;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::submission::{FromSubmitter, ToSubmitter, VERSION};
use headroom_wire::v1::task::LineError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::channel_lines::{
    ChannelLineReader, LineReadFailure, WRITE_TIMEOUT, read_line, transmit, write_message,
};
use crate::event::SubmitterConnection;

/// Maximum time between two messages of a client; it sends heartbeats at least every 10 s.
const SUBMITTER_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages that wait for one client.
pub(crate) const MAX_QUEUED_ANSWERS: usize = 1024;
/// Maximum number of connected clients.
const MAX_CONNECTED_SUBMITTERS: usize = 64;

/// An event of the connections of clients.
#[derive(Debug)]
pub enum SubmitterLinkEvent {
    /// A client has sent its first line.
    Up {
        /// The connection.
        connection: SubmitterConnection,
        /// The client's name for itself.
        client: String,
        /// Cursor of the last result that it has processed.
        after: u64,
        /// Sender for messages to the client.
        sender: mpsc::Sender<ToSubmitter>,
        /// Ends after everything that was sent has been written.
        writer: JoinHandle<()>,
    },
    /// A client has sent another message.
    Heard {
        /// The connection.
        connection: SubmitterConnection,
        /// The message.
        message: Box<FromSubmitter>,
    },
    /// A connection was lost.
    Down {
        /// The connection.
        connection: SubmitterConnection,
    },
}

/// Requirements on connecting clients, and the receiver of their messages.
#[derive(Clone, Debug)]
pub struct SubmissionListener {
    /// The secret of the submission channel.
    pub token: String,
    /// Receives the events.
    pub events: mpsc::Sender<SubmitterLinkEvent>,
    places: Arc<Semaphore>,
}

impl SubmissionListener {
    /// A listener for clients that know this secret.
    pub fn new(token: String, events: mpsc::Sender<SubmitterLinkEvent>) -> SubmissionListener {
        SubmissionListener {
            token,
            events,
            places: Arc::new(Semaphore::new(MAX_CONNECTED_SUBMITTERS)),
        }
    }

    /// Serves a connection that is authenticated by its first line, until it ends.
    pub(crate) async fn serve(
        &self,
        number: u64,
        mut lines: ChannelLineReader,
        mut write: ConnectionWriter,
        first: &str,
        peer: SocketAddr,
    ) {
        let connection = SubmitterConnection(number);
        let admitted = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| {
                let what = format!("{MAX_CONNECTED_SUBMITTERS} clients are connected");
                ProblemDetails::new(ErrorCode::HR0429, what).hint("connect again later")
            })
            .and_then(|place| Ok((greeting(first)?, place)));
        let ((client, after), _place) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                tracing::warn!(%peer, %error, "refused the connection of a client");
                let refused = refusal(error);
                // The connection is closed in any case.
                let _ = timeout(WRITE_TIMEOUT, write_message(&mut write, &refused)).await;
                return;
            }
        };
        let (sender, waiting) = mpsc::channel(MAX_QUEUED_ANSWERS);
        let (closed, mut broken) = mpsc::channel(1);
        let writer = tokio::spawn(transmit(write, waiting, closed, ToSubmitter::Alive));
        let last = sender.downgrade();
        let up = SubmitterLinkEvent::Up {
            connection,
            client: client.clone(),
            after,
            sender,
            writer,
        };
        if self.events.send(up).await.is_err() {
            return;
        }
        let error = tokio::select! {
            error = self.receive(&mut lines, connection) => error,
            _ = broken.recv() => None,
        };
        match (error, last.upgrade()) {
            (Some(error), Some(last)) => {
                tracing::warn!(client, %error, "a client sent an invalid message, closing its connection");
                let _ = last.try_send(refusal(error)); // a full queue means that it does not read
            }
            (Some(_) | None, _) => tracing::debug!(client, "a client's connection ended"),
        }
        let _ = self
            .events
            .send(SubmitterLinkEvent::Down { connection })
            .await;
    }

    /// Forwards messages until the connection ends. Returns the error of an invalid message.
    async fn receive(
        &self,
        lines: &mut ChannelLineReader,
        connection: SubmitterConnection,
    ) -> Option<ProblemDetails> {
        loop {
            let line = match read_line(lines, SUBMITTER_SILENCE_TIMEOUT).await {
                Ok(line) => line,
                Err(LineReadFailure::Gone) => return None,
                Err(LineReadFailure::Silent) => {
                    let seconds = SUBMITTER_SILENCE_TIMEOUT.as_secs();
                    let what = format!("no message arrived for {seconds} s");
                    return Some(
                        ProblemDetails::new(ErrorCode::HR0503, what)
                            .hint("send `alive` at least every 10 s"),
                    );
                }
                Err(LineReadFailure::TooLong) => {
                    let what = "the line is longer than 1 MiB";
                    return Some(ProblemDetails::too_large(what).hint("send smaller batches"));
                }
            };
            let message = match FromSubmitter::read(&line) {
                Ok(FromSubmitter::Alive) => continue,
                Ok(message) => Box::new(message),
                Err(LineError::Unknown(kind)) => {
                    tracing::debug!(
                        kind,
                        "ignoring an unknown message of a client of a later version"
                    );
                    continue;
                }
                Err(why @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => {
                    return Some(ProblemDetails::bad_request(why.to_string()));
                }
            };
            let heard = SubmitterLinkEvent::Heard {
                connection,
                message,
            };
            if self.events.send(heard).await.is_err() {
                return None;
            }
        }
    }
}

/// A message that refuses the whole connection.
fn refusal(error: ProblemDetails) -> ToSubmitter {
    ToSubmitter::Refused {
        subject: None,
        error: Box::new(error),
    }
}

/// Client and cursor of the first line.
fn greeting(first: &str) -> Result<(String, u64), ProblemDetails> {
    let read = FromSubmitter::read(first);
    let read = read.map_err(|why| ProblemDetails::bad_request(why.to_string()))?;
    let FromSubmitter::Submitter {
        version,
        client,
        after,
        ..
    } = read
    else {
        return Err(ProblemDetails::bad_request(
            "the first line is not of kind `submitter`",
        ));
    };
    if version != VERSION {
        let what = format!("protocol version {version}; this master supports version {VERSION}");
        return Err(ProblemDetails::bad_request(what).hint("install a client of this release"));
    }
    Ok((client, after))
}

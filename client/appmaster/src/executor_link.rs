//! The server of the task channel: accepts connections of executors and forwards messages between
//! them and the loop. Clients of a live job connect to the same address.
//!
//! Each connection has one reading and one writing task, with bounded queues. The server checks
//! version, secret and line length, and has no knowledge of tasks. It closes a connection that
//! violates the protocol; the executor reconnects and sends a new hello. An authenticated executor
//! receives the reason; an unauthenticated peer receives no message and has small buffers. The
//! server ignores unknown message kinds of later versions.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use headroom_telemetry::{RejectedConnections, RejectionReason};
use headroom_transport::{
    ConnectionLimiter, ConnectionPermit, ConnectionReader, ConnectionWriter, ListenerIdentity,
    LoopbackPolicy, accept_handshake, halves,
};
use headroom_types::{AppId, ContainerId};
use headroom_wire::v1::submission::SubmitterPreamble;
use headroom_wire::v1::task::{
    FromExecutor, HelloPreamble, LineError, MAX_LINE_BYTES, MAX_UNAUTHENTICATED_BYTES,
    OLDEST_VERSION, ToExecutor, VERSION, hello_token,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use crate::channel_lines::{
    ChannelLineReader, LineReadFailure, WRITE_TIMEOUT, read_line, transmit, write_message,
};
use crate::event::ExecutorHello;
use crate::submitter_link::SubmissionListener;

/// Timeout for the handshake and the secret of a new connection.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time between two messages of an executor; the executor sends heartbeats more often.
const EXECUTOR_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages that wait for one executor.
const MAX_QUEUED_MESSAGES: usize = 1024;
/// Maximum number of connected executors.
const MAX_EXECUTORS: usize = 20_000;
/// Maximum number of connections that are not authenticated yet.
const MAX_UNAUTHENTICATED: usize = 256;
/// The same limit for one remote address. When all executors of a node reconnect at once, some may
/// have to retry.
const MAX_UNAUTHENTICATED_PER_IP: u32 = 64;

/// Distinguishes connections of the same executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionNumber(pub(crate) u64);

/// An event of the link.
#[derive(Debug)]
pub enum ExecutorLinkEvent {
    /// An executor has sent its hello.
    Up {
        /// The connection.
        connection: ConnectionNumber,
        /// The hello.
        hello: ExecutorHello,
        /// Sender for messages to the executor.
        sender: mpsc::Sender<ToExecutor>,
        /// Ends after everything that was sent has been written.
        writer: JoinHandle<()>,
    },
    /// An executor has sent another message.
    Heard {
        /// The connection.
        connection: ConnectionNumber,
        /// The executor's container.
        container: ContainerId,
        /// The message.
        message: Box<FromExecutor>,
    },
    /// A connection was lost.
    Down {
        /// The connection.
        connection: ConnectionNumber,
        /// The executor's container.
        container: ContainerId,
    },
}

/// Requirements on connecting executors.
#[derive(Clone, Debug)]
pub struct ChannelCredentials {
    /// The application's secret.
    pub token: String,
    /// The application; executors of others are refused.
    pub app: AppId,
    /// Accepts the clients of a live job; `None` for any other job.
    pub submissions: Option<SubmissionListener>,
}

/// The reason why a connection was closed.
#[derive(Debug, thiserror::Error)]
enum ConnectionRefusal {
    #[error("the handshake failed: {0}")]
    NoHandshake(#[source] io::Error),
    #[error("no message arrived for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("its first line is not a hello or submitter message")]
    NoHello,
    #[error("invalid task channel message: {0}")]
    NotUnderstood(LineError),
    #[error("its protocol version is {0}, this master supports {OLDEST_VERSION} to {VERSION}")]
    Version(u32),
    #[error("its token is not the application's secret")]
    Token,
    #[error("container {0} belongs to another application")]
    Foreign(ContainerId),
    #[error("{MAX_EXECUTORS} executors are connected, which is the maximum")]
    Full,
    #[error("the connection was lost")]
    Gone,
}

impl ConnectionRefusal {
    /// The message to an authenticated executor; `None` for errors that are not reported to the
    /// peer.
    fn message_to_peer(&self) -> Option<ToExecutor> {
        match self {
            ConnectionRefusal::TooLong
            | ConnectionRefusal::NotUnderstood(_)
            | ConnectionRefusal::Version(_)
            | ConnectionRefusal::Foreign(_)
            | ConnectionRefusal::Full => Some(ToExecutor::Refused {
                why: self.to_string(),
                oldest: OLDEST_VERSION,
                newest: VERSION,
            }),
            ConnectionRefusal::NoHandshake(_)
            | ConnectionRefusal::Silent(_)
            | ConnectionRefusal::NoHello
            | ConnectionRefusal::Token
            | ConnectionRefusal::Gone => None,
        }
    }
}

/// Accepts connections until the receiver of `events` is dropped. They are encrypted if a `lock` is
/// given.
pub async fn serve(
    listener: TcpListener,
    lock: Option<ListenerIdentity>,
    gate: ChannelCredentials,
    events: mpsc::Sender<ExecutorLinkEvent>,
) {
    Arc::new(ExecutorListener::new(lock, gate))
        .serve(listener, events)
        .await;
}

/// The listener for executors. It limits the memory and the time of unauthenticated connections.
struct ExecutorListener {
    gate: ChannelCredentials,
    lock: Option<ListenerIdentity>,
    /// Permits for unauthenticated connections. Without a free permit, no connection is accepted:
    /// executors that connect in a burst wait briefly in the kernel's queue and need no retry.
    strangers: Arc<Semaphore>,
    /// Unauthenticated connections by address. An address at its limit is rejected, so that it does
    /// not delay others.
    peers: Arc<ConnectionLimiter>,
    /// Permits for authenticated connections.
    known: Arc<Semaphore>,
    patience: Duration,
    turned: RejectedConnections,
}

/// The resources of an unauthenticated connection.
struct UnauthenticatedPeer {
    _place: OwnedSemaphorePermit,
    _present: ConnectionPermit,
}

/// An authenticated connection.
struct AuthenticatedPeer {
    lines: ChannelLineReader,
    write: ConnectionWriter,
    role: PeerRole,
}

/// The role of an authenticated peer.
enum PeerRole {
    /// An executor, and its first line if that is complete.
    Executor(Option<String>),
    /// A client of a live job, and its first line.
    Submitter(String, SubmissionListener),
}

impl ExecutorListener {
    fn new(lock: Option<ListenerIdentity>, gate: ChannelCredentials) -> ExecutorListener {
        ExecutorListener {
            gate,
            lock,
            strangers: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
            peers: ConnectionLimiter::new(MAX_UNAUTHENTICATED_PER_IP, LoopbackPolicy::Free),
            known: Arc::new(Semaphore::new(MAX_EXECUTORS)),
            patience: AUTHENTICATION_TIMEOUT,
            turned: RejectedConnections::default(),
        }
    }

    async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        events: mpsc::Sender<ExecutorLinkEvent>,
    ) {
        let mut number = 0;
        loop {
            let accepted = tokio::select! {
                () = events.closed() => return,
                accepted = self.accept(&listener) => accepted,
            };
            match accepted {
                Ok((stream, peer, stranger)) => {
                    number += 1;
                    tokio::spawn(Arc::clone(&self).serve_connection(
                        ConnectionNumber(number),
                        stream,
                        peer,
                        stranger,
                        events.clone(),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an executor connection");
                    tokio::time::sleep(Duration::from_millis(50)).await; // out of file descriptors: avoids a busy loop
                }
            }
        }
    }

    /// Accepts the next connection within the limits. Each permit is free again after the timeout
    /// at the latest.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, SocketAddr, UnauthenticatedPeer)> {
        let place = Arc::clone(&self.strangers)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        loop {
            let (stream, peer) = listener.accept().await?;
            if let Some(present) = self.peers.acquire(peer.ip()) {
                return Ok((
                    stream,
                    peer,
                    UnauthenticatedPeer {
                        _place: place,
                        _present: present,
                    },
                ));
            }
            self.turned.record_rejection(
                peer.ip(),
                RejectionReason::PerIpLimit,
                &format_args!("{} unauthenticated connections", self.peers.most()),
            );
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        connection: ConnectionNumber,
        stream: TcpStream,
        peer: SocketAddr,
        stranger: UnauthenticatedPeer,
        events: mpsc::Sender<ExecutorLinkEvent>,
    ) {
        let _ = stream.set_nodelay(true); // a failure only costs latency
        let proven = timeout(self.patience, self.authenticate(stream)).await;
        drop(stranger);
        match proven.unwrap_or(Err(ConnectionRefusal::Silent(self.patience))) {
            Ok(AuthenticatedPeer { lines, write, role }) => match role {
                PeerRole::Executor(line) => {
                    let known = (lines, write, line);
                    self.serve_executor(connection, known, peer, events).await;
                }
                PeerRole::Submitter(line, listener) => {
                    listener
                        .serve(connection.0, lines, write, &line, peer)
                        .await;
                }
            },
            Err(why) => {
                self.turned
                    .record_rejection(peer.ip(), RejectionReason::HandshakeFailed, &why)
            }
        }
    }

    /// Authenticates a connection with the shortest possible part of its first line.
    async fn authenticate(
        &self,
        stream: TcpStream,
    ) -> Result<AuthenticatedPeer, ConnectionRefusal> {
        let (stream, _) =
            accept_handshake(stream, self.lock.as_ref().map(|lock| lock.server.clone()))
                .await
                .map_err(ConnectionRefusal::NoHandshake)?;
        let (read, write) = halves(stream);
        let mut short = FramedRead::new(
            read,
            LinesCodec::new_with_max_length(MAX_UNAUTHENTICATED_BYTES),
        );
        let role = match short.next().await {
            Some(Ok(line)) => self.role_of(line)?,
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                let beginning = short.read_buffer();
                let beginning = beginning
                    .get(..MAX_UNAUTHENTICATED_BYTES)
                    .unwrap_or(beginning);
                let token = hello_token(beginning).ok_or(ConnectionRefusal::NoHello)?;
                if !same(&token, &self.gate.token) {
                    return Err(ConnectionRefusal::Token);
                }
                PeerRole::Executor(None)
            }
            Some(Err(LinesCodecError::Io(_))) | None => return Err(ConnectionRefusal::Gone),
        };
        // Bytes beyond that part are read again.
        let rest = io::Cursor::new(short.read_buffer().to_vec());
        let read: ConnectionReader = Box::new(rest.chain(short.into_inner()));
        Ok(AuthenticatedPeer {
            lines: FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES)),
            write,
            role,
        })
    }

    /// The role of a peer with this first line, if its secret is that of the role.
    fn role_of(&self, line: String) -> Result<PeerRole, ConnectionRefusal> {
        if let Some(hello) = HelloPreamble::read(&line) {
            return if same(&hello.token, &self.gate.token) {
                Ok(PeerRole::Executor(Some(line)))
            } else {
                Err(ConnectionRefusal::Token)
            };
        }
        let submitter = SubmitterPreamble::read(&line).ok_or(ConnectionRefusal::NoHello)?;
        match &self.gate.submissions {
            Some(listener) if same(&submitter.token, &listener.token) => {
                Ok(PeerRole::Submitter(line, listener.clone()))
            }
            Some(_) | None => Err(ConnectionRefusal::Token),
        }
    }

    async fn serve_executor(
        &self,
        connection: ConnectionNumber,
        (mut lines, mut write, line): (ChannelLineReader, ConnectionWriter, Option<String>),
        peer: SocketAddr,
        events: mpsc::Sender<ExecutorLinkEvent>,
    ) {
        let (hello, _place) = match self.admit(&mut lines, line).await {
            Ok(admitted) => admitted,
            Err(why) => {
                tracing::warn!(%peer, %why, "refused an executor's connection");
                if let Some(words) = why.message_to_peer() {
                    let _ = timeout(WRITE_TIMEOUT, write_message(&mut write, &words)).await; // the connection is closed in any case
                }
                return;
            }
        };
        let container = hello.container.clone();
        let (sender, waiting) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let (closed, mut broken) = mpsc::channel(1);
        let writer = tokio::spawn(transmit(write, waiting, closed, ToExecutor::Alive));
        let last = sender.downgrade();
        if events
            .send(ExecutorLinkEvent::Up {
                connection,
                hello,
                sender,
                writer,
            })
            .await
            .is_err()
        {
            return;
        }
        let why = tokio::select! {
            why = receive(&mut lines, connection, &container, &events) => why,
            _ = broken.recv() => ConnectionRefusal::Gone,
        };
        match (why.message_to_peer(), last.upgrade()) {
            (Some(words), Some(last)) => {
                tracing::warn!(%container, %why, "an executor sent an invalid message, closing its connection");
                let _ = last.try_send(words); // a full queue means that the executor does not read
            }
            (Some(_) | None, _) => {
                tracing::debug!(%container, %why, "an executor's connection ended")
            }
        }
        let _ = events
            .send(ExecutorLinkEvent::Down {
                connection,
                container,
            })
            .await;
    }

    /// Checks the hello and reserves a permit for the executor.
    async fn admit(
        &self,
        lines: &mut ChannelLineReader,
        line: Option<String>,
    ) -> Result<(ExecutorHello, OwnedSemaphorePermit), ConnectionRefusal> {
        let place = Arc::clone(&self.known)
            .try_acquire_owned()
            .map_err(|_| ConnectionRefusal::Full)?;
        let line = match line {
            Some(line) => line,
            None => next(lines, EXECUTOR_SILENCE_TIMEOUT).await?,
        };
        Ok((hello(&line, &self.gate)?, place))
    }
}

async fn next(lines: &mut ChannelLineReader, wait: Duration) -> Result<String, ConnectionRefusal> {
    read_line(lines, wait)
        .await
        .map_err(|failure| match failure {
            LineReadFailure::Silent => ConnectionRefusal::Silent(wait),
            LineReadFailure::TooLong => ConnectionRefusal::TooLong,
            LineReadFailure::Gone => ConnectionRefusal::Gone,
        })
}

fn hello(line: &str, gate: &ChannelCredentials) -> Result<ExecutorHello, ConnectionRefusal> {
    let salute = HelloPreamble::read(line).ok_or(ConnectionRefusal::NoHello)?;
    if !(OLDEST_VERSION..=VERSION).contains(&salute.version) {
        return Err(ConnectionRefusal::Version(salute.version));
    }
    match FromExecutor::read(line).map_err(ConnectionRefusal::NotUnderstood)? {
        FromExecutor::Hello { container, .. } if container.app != gate.app => {
            Err(ConnectionRefusal::Foreign(container))
        }
        FromExecutor::Hello {
            container,
            slots,
            task_groups,
            running,
            unacked,
            ..
        } => Ok(ExecutorHello {
            container,
            slots,
            task_groups,
            running,
            unacked,
        }),
        FromExecutor::Started { .. }
        | FromExecutor::Usage { .. }
        | FromExecutor::Ended { .. }
        | FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Leftover { .. }
        | FromExecutor::Alive => Err(ConnectionRefusal::NoHello),
    }
}

/// Compares in constant time, independent of the position of a difference.
fn same(given: &str, secret: &str) -> bool {
    let differ = given
        .bytes()
        .zip(secret.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == secret.len() && differ == 0
}

async fn receive(
    lines: &mut ChannelLineReader,
    connection: ConnectionNumber,
    container: &ContainerId,
    events: &mpsc::Sender<ExecutorLinkEvent>,
) -> ConnectionRefusal {
    loop {
        let line = match next(lines, EXECUTOR_SILENCE_TIMEOUT).await {
            Ok(line) => line,
            Err(why) => return why,
        };
        match FromExecutor::read(&line) {
            Ok(FromExecutor::Alive) => {}
            Ok(message) => {
                let heard = ExecutorLinkEvent::Heard {
                    connection,
                    container: container.clone(),
                    message: Box::new(message),
                };
                if events.send(heard).await.is_err() {
                    return ConnectionRefusal::Gone;
                }
            }
            Err(LineError::Unknown(kind)) => {
                tracing::debug!(%container, kind, "ignoring an unknown message of an executor of a later version")
            }
            Err(why @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => {
                return ConnectionRefusal::NotUnderstood(why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    const SOON: Duration = Duration::from_secs(60);

    fn gate() -> ChannelCredentials {
        ChannelCredentials {
            token: "secret".into(),
            app: "job.1".parse().expect("id"),
            submissions: None,
        }
    }

    async fn serving(
        door: Arc<ExecutorListener>,
    ) -> (SocketAddr, mpsc::Receiver<ExecutorLinkEvent>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let (events, heard) = mpsc::channel(16);
        tokio::spawn(door.serve(listener, events));
        (address, heard)
    }

    async fn hello(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let hello = r#"{"kind":"hello","version":1,"container":"job.1.e1.c1","token":"secret","slots":1,"task_groups":false,"running":[],"unacked":[]}"#;
        stream
            .write_all(format!("{hello}\n").as_bytes())
            .await
            .expect("sends");
        stream
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        matches!(
            timeout(SOON, stream.read_to_end(&mut rest)).await,
            Ok(Ok(0) | Err(_))
        )
    }

    async fn comes_in(events: &mut mpsc::Receiver<ExecutorLinkEvent>) -> ExecutorLinkEvent {
        let event = timeout(SOON, events.recv())
            .await
            .expect("in time")
            .expect("an event");
        assert!(matches!(event, ExecutorLinkEvent::Up { .. }), "{event:?}");
        event
    }

    #[tokio::test]
    async fn unauthenticated_connections_are_limited_per_address() {
        let peers = ConnectionLimiter::new(2, LoopbackPolicy::Counted);
        let door = ExecutorListener {
            peers: peers.clone(),
            patience: SOON * 2,
            ..ExecutorListener::new(None, gate())
        };
        let (address, mut events) = serving(Arc::new(door)).await;
        let first = TcpStream::connect(address).await.expect("connects");
        let mut known = Vec::new();
        for _ in 0..3 {
            known.push((hello(address).await, comes_in(&mut events).await));
        }
        let second = TcpStream::connect(address).await.expect("connects");
        for _ in 0..2 {
            assert!(
                is_closed(&mut hello(address).await).await,
                "the address has reached its limit"
            );
        }
        drop((first, second));
        let gone = async {
            while peers.addresses() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, gone)
            .await
            .expect("closed connections free their places");
        known.push((hello(address).await, comes_in(&mut events).await));
    }

    /// Runs next to a plain handshake, which ends only at its own, longer timeout.
    #[tokio::test]
    async fn authentication_timeout_includes_the_handshake() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = ListenerIdentity::at(&dir.path().join("lock.pem")).expect("a lock");
        let other = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let _mute = TcpStream::connect(other.local_addr().expect("an address"))
            .await
            .expect("connects");
        let (accepted, _) = other.accept().await.expect("accepts");
        let longest = accept_handshake(accepted, Some(lock.server.clone()));
        let door = ExecutorListener {
            patience: Duration::from_millis(200),
            ..ExecutorListener::new(Some(lock.clone()), gate())
        };
        let (address, _events) = serving(Arc::new(door)).await;
        let mut mute = TcpStream::connect(address).await.expect("connects");
        let mut shaken = headroom_transport::connect(&address.to_string(), Some(lock.pin))
            .await
            .expect("a handshake");
        let mut rest = Vec::new();
        let both = async {
            (
                is_closed(&mut mute).await,
                timeout(SOON, shaken.read_to_end(&mut rest)).await.is_ok(),
            )
        };
        tokio::select! {
            closed = both => assert_eq!(closed, (true, true)),
            _ = longest => panic!("an unauthenticated peer stays longer than the handshake timeout"),
        }
    }

    #[tokio::test]
    async fn executors_beyond_the_limit_are_refused_with_a_reason() {
        let door = ExecutorListener {
            known: Arc::new(Semaphore::new(1)),
            ..ExecutorListener::new(None, gate())
        };
        let (address, mut events) = serving(Arc::new(door)).await;
        let first = (hello(address).await, comes_in(&mut events).await);
        let mut second = hello(address).await;
        let mut words = String::new();
        timeout(SOON, second.read_to_string(&mut words))
            .await
            .expect("in time")
            .expect("reads");
        assert!(
            words.contains("refused") && words.contains("executors are connected"),
            "{words}"
        );
        drop(first);
        assert!(matches!(
            timeout(SOON, events.recv()).await,
            Ok(Some(ExecutorLinkEvent::Down { .. }))
        ));
    }
}

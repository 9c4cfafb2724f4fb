//! Where callers come in: plain on loopback, with certificates where other hosts reach it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::{IncomingStream, Listener};
use headroom_identity::Role;
use headroom_transport::{Caller, Keys, Stream, greet};
use headroom_wire::v1::error::Code;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::refuse;

/// Callers that may be asked who they are at once.
const ASKED: usize = 256;
/// Out of file descriptors: until something was given back.
const RECOVER: Duration = Duration::from_millis(200);

/// A listener that hands out connections of which it is known who is there.
#[derive(Debug)]
pub(crate) struct Door {
    address: SocketAddr,
    greeted: mpsc::Receiver<(Stream, Guest)>,
    _task: AbortOnDropHandle<()>,
}

/// Who has come in, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    caller: Caller,
    peer: SocketAddr,
}

impl Door {
    /// Takes callers in, each of whom is asked in its own time.
    pub(crate) fn new(listener: TcpListener, keys: Option<Arc<Keys>>) -> io::Result<Self> {
        let (tell, greeted) = mpsc::channel(ASKED);
        let address = listener.local_addr()?;
        let task = AbortOnDropHandle::new(tokio::spawn(take(listener, keys, tell)));
        Ok(Door { address, greeted, _task: task })
    }
}

async fn take(listener: TcpListener, keys: Option<Arc<Keys>>, tell: mpsc::Sender<(Stream, Guest)>) {
    let room = Arc::new(Semaphore::new(ASKED));
    while let Ok(place) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (tell, server) = (tell.clone(), keys.as_ref().map(|keys| keys.server()));
                tokio::spawn(async move {
                    match greet(stream, server).await {
                        // Nobody takes it when the agent ends.
                        Ok((stream, caller)) => drop(tell.send((stream, Guest { caller, peer })).await),
                        Err(error) => debug!(%peer, %error, "nobody came in"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "a connection could not be taken in, going on");
                tokio::time::sleep(RECOVER).await;
            }
        }
    }
}

impl Listener for Door {
    type Io = Stream;
    type Addr = Guest;

    async fn accept(&mut self) -> (Stream, Guest) {
        match self.greeted.recv().await {
            Some(greeted) => greeted,
            // The task that takes them in ends with this listener and not before.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Guest> {
        Ok(Guest { caller: Caller::Unasked, peer: self.address })
    }
}

impl Connected<IncomingStream<'_, Door>> for Guest {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Lets through who may: the manager everywhere, people to what the node says of itself, everybody where nobody is asked.
pub(crate) async fn guard(ConnectInfo(guest): ConnectInfo<Guest>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let of_the_node = matches!(path, "/livez" | "/metrics" | "/v1/doctor");
    let (code, why) = match &guest.caller {
        Caller::Unasked | Caller::Known(Role::Manager) => return next.run(request).await,
        Caller::Known(Role::User(_)) if of_the_node => return next.run(request).await,
        Caller::Known(Role::Node(_)) | Caller::Nobody if path == "/livez" => return next.run(request).await,
        Caller::Known(role) => (Code::HR0403, format!("{role} may not do this here: ask the resource manager")),
        Caller::Nobody => (Code::HR0401, "nobody may do this without showing a certificate".to_owned()),
    };
    warn!(peer = %guest.peer, path, why, "a call was refused");
    refuse(code, why).into_response()
}

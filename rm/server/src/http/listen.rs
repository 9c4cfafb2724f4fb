//! Accept loop: a bounded number of connections, a deadline for request headers, and a graceful
//! shutdown.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::head_holding_stream::{HeadHold, HeadHoldingStream};
use super::limits::{ConnectionLimits, ConnectionSlot, PeerAddress};
use super::listeners::{SILENT, ServerListener};

/// Maximum number of connections. A node has two, a master two, a browser or terminal one or two.
const CONNECTIONS: u64 = 30_000;
/// Descriptors reserved for other uses: the store, the log, calls to nodes.
const OTHERS: u64 = 512;
/// Timeout for receiving a request body.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);
/// Timeout for the headers of a request, and for an idle connection between two requests. It is
/// longer than the idle timeout of clients, so that the clients close first.
pub(crate) const HEADERS: Duration = Duration::from_secs(100);
/// Pause after a failed accept, for example without free descriptors or memory.
const RECOVER: Duration = Duration::from_millis(200);
/// Time that running calls have to end at a shutdown.
const DRAIN: Duration = Duration::from_secs(3);

/// Accepts connections and serves them until `closing`, then waits for running calls. Connections
/// wait until there are `routes`: ten thousand nodes connect at the start of the daemon, more than the
/// kernel queues, and it would let the others try again only after a second.
pub(crate) async fn serve<D: ServerListener>(
    listener: D,
    routes: watch::Receiver<Option<Router>>,
    limits: ConnectionLimits,
    headers: Duration,
    closing: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(
        usize::try_from(places(descriptors())).unwrap_or(usize::MAX),
    ));
    let (connections, listener) = (TaskTracker::new(), Arc::new(listener));
    loop {
        let (place, raw, peer) = tokio::select! {
            () = closing.cancelled() => break,
            taken = take(&listener, &places) => match taken {
                Some(taken) => taken,
                None => continue,
            },
        };
        let Some(inside) = limits.enter(peer) else {
            continue;
        };
        let (mut routes, listener, closing) = (routes.clone(), listener.clone(), closing.clone());
        connections.spawn(async move {
            let routes = tokio::select! {
                () = closing.cancelled() => return,
                routes = ready(&mut routes) => routes,
            };
            let Some(routes) = routes else { return };
            let (stream, visitor) = match listener.authenticate(raw).await {
                Ok(greeted) => greeted,
                Err(error) if error.kind() == SILENT => return,
                Err(error) => return inside.handshake_failed(&error),
            };
            drop(listener);
            let head = HeadHold::default();
            let stream = HeadHoldingStream::new(stream, head.clone());
            let slot = ConnectionSlot::new(place, inside, head);
            let routes = TowerToHyperService::new(routes);
            let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(PeerAddress(peer));
                request.extensions_mut().insert(visitor.clone());
                request.extensions_mut().insert(slot.clone());
                routes.call(request)
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(headers);
            // A handler may take over the connection for another protocol.
            let connection = http
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let mut connection = pin!(connection);
            let served = tokio::select! {
                served = connection.as_mut() => served,
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "a connection failed"
                );
            }
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait())
        .await
        .is_err()
    {
        debug!("some connections did not end in time; closing them");
    }
}

/// The routes, as soon as there are some. `None` if there will be none.
async fn ready(routes: &mut watch::Receiver<Option<Router>>) -> Option<Router> {
    let routes = routes.wait_for(Option::is_some).await.ok()?;
    routes.clone()
}

/// Raises the limit of open files to the hard limit and returns it. Ten thousand nodes need twice
/// as many descriptors, and the usual soft limit of a shell is about a thousand.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (Some(soft), hard) = (limit.current, limit.maximum) else {
        return u64::MAX;
    };
    if hard.is_some_and(|hard| hard <= soft) {
        return soft;
    }
    let wanted = hard.unwrap_or(CONNECTIONS + OTHERS);
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum: hard,
        },
    ) {
        Ok(()) => wanted,
        Err(error) => {
            warn!(
                error = &error as &dyn std::error::Error,
                soft, "cannot raise the limit of open files"
            );
            soft
        }
    }
}

/// Number of connections for this number of descriptors.
fn places(descriptors: u64) -> u64 {
    descriptors.saturating_sub(OTHERS).clamp(1, CONNECTIONS)
}

/// An accepted connection, with its slot and address.
type AcceptedConnection<D> = (OwnedSemaphorePermit, <D as ServerListener>::Raw, IpAddr);

async fn take<D: ServerListener>(
    listener: &Arc<D>,
    places: &Arc<Semaphore>,
) -> Option<AcceptedConnection<D>> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((raw, peer)) => Some((place, raw, peer)),
        Err(error) => {
            warn!(
                error = &error as &dyn std::error::Error,
                "cannot accept a connection; trying again"
            );
            tokio::time::sleep(RECOVER).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_the_last_descriptor() {
        assert_eq!(places(u64::MAX), CONNECTIONS);
        assert_eq!(places(20_000), 20_000 - OTHERS);
        assert_eq!(places(100), 1, "at least one connection is possible");
        assert!(descriptors() >= 256);
    }
}

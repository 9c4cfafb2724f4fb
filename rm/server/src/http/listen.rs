//! Connections: taken in up to a bound, with a deadline for their headers, and ended in good order.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::doors::Door;
use super::limits::{Doors, Peer};

/// Connections at once. A node has two, a master two, a screen one or two.
const CONNECTIONS: u64 = 30_000;
/// Descriptors kept for all that is no connection: the store, the log, calls to nodes.
const OTHERS: u64 = 512;
/// A request's headers have to be there by then; also the longest a connection may idle between two. Longer than clients keep
/// theirs, so that they are the first to close.
pub(crate) const HEADERS: Duration = Duration::from_secs(100);
/// Out of file descriptors or memory: until something was given back.
const RECOVER: Duration = Duration::from_millis(200);
/// Calls that are under way may take so long when the end has come.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves until `closing`, then lets what is under way come to its end.
pub(crate) async fn serve<D: Door>(door: D, router: Router, doors: Doors, headers: Duration, closing: CancellationToken) {
    let places = Arc::new(Semaphore::new(usize::try_from(places(descriptors())).unwrap_or(usize::MAX)));
    let (graceful, door) = (GracefulShutdown::new(), Arc::new(door));
    loop {
        let (place, raw, peer) = tokio::select! {
            () = closing.cancelled() => break,
            taken = take(&door, &places) => match taken {
                Some(taken) => taken,
                None => continue,
            },
        };
        let Some(inside) = doors.enter(peer) else { continue };
        let (routes, door, watcher) = (router.clone(), door.clone(), graceful.watcher());
        tokio::spawn(async move {
            let (_place, inside) = (place, inside);
            let (stream, visitor) = match door.greet(raw).await {
                Ok(greeted) => greeted,
                Err(error) => return inside.unproven(&error),
            };
            drop(door);
            let routes = TowerToHyperService::new(routes);
            let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(Peer(peer));
                request.extensions_mut().insert(visitor.clone());
                routes.call(request)
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(headers);
            let connection = watcher.watch(http.serve_connection(TokioIo::new(stream), service));
            if let Err(error) = connection.await {
                debug!(error = &error as &dyn std::error::Error, "connection ended");
            }
        });
    }
    drop(door);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        debug!("some connections did not end in time and are cut");
    }
}

/// As many descriptors as this process may have: ten thousand nodes take twice as many, and shells give out a thousand.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (Some(soft), hard) = (limit.current, limit.maximum) else { return u64::MAX };
    if hard.is_some_and(|hard| hard <= soft) {
        return soft;
    }
    let wanted = hard.unwrap_or(CONNECTIONS + OTHERS);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: hard }) {
        Ok(()) => wanted,
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, soft, "the limit of open files stays low, going on");
            soft
        }
    }
}

/// Connections at once, with so many descriptors.
fn places(descriptors: u64) -> u64 {
    descriptors.saturating_sub(OTHERS).clamp(1, CONNECTIONS)
}

/// What knocks, with its place, and from where it came.
type Taken<D> = (OwnedSemaphorePermit, <D as Door>::Raw, IpAddr);

async fn take<D: Door>(door: &Arc<D>, places: &Arc<Semaphore>) -> Option<Taken<D>> {
    let place = places.clone().acquire_owned().await.ok()?;
    match door.accept().await {
        Ok((raw, peer)) => Some((place, raw, peer)),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "a connection could not be taken in, going on");
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
        assert_eq!(places(100), 1, "even then somebody can look");
        assert!(descriptors() >= 256);
    }
}

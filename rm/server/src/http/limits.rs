//! Limits for each caller: the rate of changing calls, connections, open streams.
//!
//! The interface owns them. Calls of nodes and masters have no rate limit: their number is bounded
//! by their containers. Callers on the same host are exempt unless the configuration includes them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_config::CallerLimits;
use headroom_telemetry::{RejectedConnections, RejectionReason};
use headroom_transport::{ConnectionLimiter, ConnectionPermit, LoopbackPolicy};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{HandlerResult, ProblemResponse};
use super::head_holding_stream::HeadHold;

/// Limit on callers with a rate bucket.
const PEERS: usize = 10_000;

/// Address of the peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// Rate limiter by caller.
#[derive(Debug)]
pub(crate) struct CallerRateLimiter {
    limits: CallerLimits,
    buckets: Mutex<BTreeMap<IpAddr, TokenBucket>>,
}

/// Token bucket: it fills with time, and each call takes one token.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    left: f64,
    at: Instant,
}

impl CallerRateLimiter {
    pub(crate) fn new(limits: CallerLimits) -> Self {
        CallerRateLimiter {
            limits,
            buckets: Mutex::new(BTreeMap::new()),
        }
    }

    /// Takes one token. Without one, returns the wait until the next.
    fn take(&self, peer: IpAddr, now: Instant) -> Result<(), Duration> {
        if !counts(peer, &self.limits) {
            return Ok(());
        }
        let (most, rate) = (
            f64::from(self.limits.calls_at_once.max(1)),
            f64::from(self.limits.calls_per_second.max(1)),
        );
        // Poisoning is harmless: no panic can leave the map half changed.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = |b: &TokenBucket| {
            (b.left + now.saturating_duration_since(b.at).as_secs_f64() * rate).min(most)
        };
        if buckets.len() >= PEERS && !buckets.contains_key(&peer) {
            // A full bucket is equal to a new one, so it can be dropped.
            buckets.retain(|_, b| filled(b) < most);
        }
        let known = buckets.get(&peer).map(filled);
        let left = match known {
            Some(left) => left,
            None if buckets.len() >= PEERS => return Err(Duration::from_secs(1)),
            None => most,
        };
        if left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - left) / rate));
        }
        buckets.insert(
            peer,
            TokenBucket {
                left: left - 1.0,
                at: now,
            },
        );
        Ok(())
    }
}

/// Whether the limits apply to this caller.
fn counts(peer: IpAddr, limits: &CallerLimits) -> bool {
    limits.loopback || !peer.to_canonical().is_loopback()
}

/// Middleware that rejects callers above their rate. Reads are exempt.
pub(crate) async fn rate(
    State(rates): State<Arc<CallerRateLimiter>>,
    request: Request,
    next: Next,
) -> Response {
    let reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    let peer = request.extensions().get::<PeerAddress>().copied();
    if let (false, Some(PeerAddress(peer))) = (reads, peer)
        && let Err(wait) = rates.take(peer, Instant::now())
    {
        let seconds = wait.as_secs_f64().ceil();
        let problem = ProblemDetails::new(
            ErrorCode::HR0429,
            format!("{peer} sends more calls than the configuration allows"),
        );
        let problem = problem.hint(format!(
            "wait {seconds} s, send several things in one call, or raise limits.calls_per_second"
        ));
        return too_many(problem, &format!("{seconds}"));
    }
    next.run(request).await
}

/// Rejection with a `Retry-After` header. `after` is in seconds.
fn too_many(problem: ProblemDetails, after: &str) -> Response {
    let mut response = ProblemResponse(problem).into_response();
    response.headers_mut().insert(
        header::RETRY_AFTER,
        HeaderValue::from_str(after).unwrap_or(HeaderValue::from_static("1")),
    );
    response
}

/// Acquires a stream slot, which is released on drop.
pub(crate) fn place(streams: &Arc<Semaphore>) -> HandlerResult<OwnedSemaphorePermit> {
    streams.clone().try_acquire_owned().map_err(|_| {
        let problem = ProblemDetails::new(
            ErrorCode::HR0429,
            "the number of open streams and waiting queries is at its limit",
        );
        problem.hint("close one, or raise limits.streams").into()
    })
}

/// Connection limits by caller.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    limits: CallerLimits,
    peers: Arc<ConnectionLimiter>,
    turned: Arc<RejectedConnections>,
}

/// The slot of a connection, which ends with its last copy. A handler that changes the protocol keeps
/// one.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlot {
    head: HeadHold,
    _held: Arc<(OwnedSemaphorePermit, AdmittedConnection)>,
}

impl ConnectionSlot {
    /// A slot among all connections and among those of the caller.
    pub(crate) fn new(
        place: OwnedSemaphorePermit,
        inside: AdmittedConnection,
        head: HeadHold,
    ) -> Self {
        ConnectionSlot {
            head,
            _held: Arc::new((place, inside)),
        }
    }

    /// Joins the head of the response that follows with the first bytes of the next protocol, which
    /// the handler writes at once.
    pub(crate) fn join_head(&self) {
        self.head.hold_next_write();
    }
}

/// One admitted connection.
#[derive(Debug)]
pub(crate) struct AdmittedConnection {
    turned: Arc<RejectedConnections>,
    present: ConnectionPermit,
}

impl ConnectionLimits {
    pub(crate) fn new(limits: CallerLimits, turned: Arc<RejectedConnections>) -> Self {
        let local = if limits.loopback {
            LoopbackPolicy::Counted
        } else {
            LoopbackPolicy::Free
        };
        ConnectionLimits {
            limits,
            peers: ConnectionLimiter::new(limits.connections_per_peer, local),
            turned,
        }
    }

    /// Creates separate limits for another listener; rejected connections are counted together.
    pub(crate) fn another(&self) -> Self {
        ConnectionLimits::new(self.limits, self.turned.clone())
    }

    /// Admits a connection. `None` if the caller has the maximum number of connections.
    pub(crate) fn enter(&self, peer: IpAddr) -> Option<AdmittedConnection> {
        let Some(present) = self.peers.acquire(peer) else {
            self.turned.record_rejection(
                peer,
                RejectionReason::PerIpLimit,
                &format_args!("{} are open", self.peers.most()),
            );
            return None;
        };
        Some(AdmittedConnection {
            turned: self.turned.clone(),
            present,
        })
    }
}

impl AdmittedConnection {
    /// Counts a failed handshake.
    pub(crate) fn handshake_failed(&self, error: &std::io::Error) {
        self.turned
            .record_rejection(self.present.peer(), RejectionReason::HandshakeFailed, error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> CallerLimits {
        CallerLimits {
            calls_per_second: 10,
            calls_at_once: 3,
            connections_per_peer: 2,
            ..CallerLimits::default()
        }
    }
    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_bucket_empties_with_calls_and_fills_with_time() {
        let (rates, start) = (CallerRateLimiter::new(limits()), Instant::now());
        let at = |ms: u64| rates.take(ip("10.0.0.1"), start + Duration::from_millis(ms));
        assert!((0..3).all(|_| at(0).is_ok()));
        assert_eq!(at(0), Err(Duration::from_millis(100)));
        assert!(at(100).is_ok() && at(100).is_err());
        assert!(
            rates.take(ip("10.0.0.2"), start).is_ok(),
            "each caller has its own bucket"
        );
        assert!(
            (0..3).all(|_| at(60_000).is_ok()) && at(60_000).is_err(),
            "a bucket never holds more than calls_at_once"
        );
    }

    #[test]
    fn loopback_callers_are_exempt_unless_configured() {
        let rates = CallerRateLimiter::new(limits());
        let now = Instant::now();
        assert!((0..100).all(|_| rates.take(ip("127.0.0.1"), now).is_ok()
            && rates.take(ip("::ffff:127.0.0.1"), now).is_ok()));
        let strict = CallerRateLimiter::new(CallerLimits {
            loopback: true,
            ..limits()
        });
        assert!(
            (0..3).all(|_| strict.take(ip("127.0.0.1"), now).is_ok())
                && strict.take(ip("127.0.0.1"), now).is_err()
        );
    }

    #[test]
    fn a_flood_of_addresses_does_not_exhaust_memory() {
        let (rates, start) = (CallerRateLimiter::new(limits()), Instant::now());
        let address = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + n));
        let n = u32::try_from(PEERS).expect("the number fits");
        assert!((0..n).all(|i| rates.take(address(i), start).is_ok()));
        assert!(
            rates.take(address(n), start).is_err(),
            "no bucket is full and can be removed"
        );
        assert!(
            rates
                .take(address(n), start + Duration::from_secs(1))
                .is_ok()
        );
        assert_eq!(
            rates
                .buckets
                .lock()
                .expect("the lock is not poisoned")
                .len(),
            1,
            "full buckets were removed"
        );
    }

    #[test]
    fn a_closed_connection_releases_its_place() {
        let connections = ConnectionLimits::new(limits(), Arc::default());
        let (first, second) = (
            connections.enter(ip("10.0.0.1")),
            connections.enter(ip("10.0.0.1")),
        );
        assert!(first.is_some() && second.is_some() && connections.enter(ip("10.0.0.1")).is_none());
        assert!(
            connections.enter(ip("10.0.0.2")).is_some()
                && connections.another().enter(ip("10.0.0.1")).is_some()
        );
        drop(first);
        assert!(connections.enter(ip("10.0.0.1")).is_some());
        drop(second);
        assert_eq!(connections.peers.addresses(), 0);
    }
}

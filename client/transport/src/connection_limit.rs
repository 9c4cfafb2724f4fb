//! Connections per remote address, so that one address cannot use up all connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether connections from this host are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackPolicy {
    /// Loopback connections are not limited.
    Free,
    /// Loopback connections are limited like all others.
    Counted,
}

/// Open connections by address.
#[derive(Debug)]
pub struct ConnectionLimiter {
    most: u32,
    local: LoopbackPolicy,
    open: Mutex<BTreeMap<IpAddr, u32>>,
}

/// One open connection, counted until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    peers: Arc<ConnectionLimiter>,
    peer: IpAddr,
}

impl ConnectionLimiter {
    /// A counter with at most `most` connections per address.
    #[must_use]
    pub fn new(most: u32, local: LoopbackPolicy) -> Arc<Self> {
        Arc::new(ConnectionLimiter {
            most,
            local,
            open: Mutex::default(),
        })
    }

    /// Registers a connection. `None` if the address has reached its limit.
    #[must_use]
    pub fn acquire(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let peer = peer.to_canonical();
        let counted = match self.local {
            LoopbackPolicy::Free => !peer.is_loopback(),
            LoopbackPolicy::Counted => true,
        };
        // A panic under the lock leaves complete counts.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = open.get(&peer).copied().unwrap_or_default();
        if counted && of_peer >= self.most {
            return None;
        }
        open.insert(peer, of_peer + 1);
        Some(ConnectionPermit {
            peers: Arc::clone(self),
            peer,
        })
    }

    /// Maximum number of connections of one address.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Number of addresses with an open connection.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

impl ConnectionPermit {
    /// The remote address.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.peer
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self
            .peers
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(of_peer) = open.get_mut(&self.peer) {
            *of_peer = of_peer.saturating_sub(1);
            if *of_peer == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_closed_connection_frees_its_place() {
        let peers = ConnectionLimiter::new(2, LoopbackPolicy::Free);
        let (first, second) = (
            peers.acquire(ip("192.0.2.7")),
            peers.acquire(ip("::ffff:192.0.2.7")),
        );
        assert!(
            first.is_some() && second.is_some(),
            "both connections have a place"
        );
        assert!(
            peers.acquire(ip("192.0.2.7")).is_none()
                && peers.acquire(ip("::ffff:192.0.2.7")).is_none()
        );
        assert!(
            peers.acquire(ip("192.0.2.8")).is_some(),
            "another address has its own limit"
        );
        drop(first);
        let third = peers.acquire(ip("192.0.2.7"));
        assert!(third.is_some() && peers.acquire(ip("192.0.2.7")).is_none());
        drop((second, third));
        assert_eq!(
            peers.addresses(),
            0,
            "addresses without connections are removed"
        );
    }

    #[test]
    fn loopback_connections_count_according_to_the_policy() {
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let (free, counted) = (
                ConnectionLimiter::new(1, LoopbackPolicy::Free),
                ConnectionLimiter::new(1, LoopbackPolicy::Counted),
            );
            let (_free, _counted) = (free.acquire(ip(own)), counted.acquire(ip(own)));
            assert!(
                free.acquire(ip(own)).is_some() && counted.acquire(ip(own)).is_none(),
                "{own}"
            );
        }
    }
}

//! Connections that were rejected before a request was read: counted by reason, and logged at a
//! limited rate.
//!
//! The remote side controls the rate of rejections, so the log must not grow with it.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::{MetricDefinition, MetricsPage};

/// Shortest interval between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The reason for a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// The address has reached its limit of connections.
    PerIpLimit,
    /// The limit of connections that have not authenticated is reached.
    UnauthenticatedLimit,
    /// The peer did not complete the handshake or the authentication in time.
    HandshakeFailed,
}

impl RejectionReason {
    const ALL: [RejectionReason; 3] = [
        RejectionReason::PerIpLimit,
        RejectionReason::UnauthenticatedLimit,
        RejectionReason::HandshakeFailed,
    ];

    /// The value of the metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RejectionReason::PerIpLimit => "per_ip_limit",
            RejectionReason::UnauthenticatedLimit => "unauthenticated_limit",
            RejectionReason::HandshakeFailed => "handshake_failed",
        }
    }
}

/// Counts of rejected connections.
#[derive(Debug, Default)]
pub struct RejectedConnections {
    per_ip_limit: AtomicU64,
    unauthenticated_limit: AtomicU64,
    handshake_failed: AtomicU64,
    log_limit: Mutex<LogLimit>,
}

/// State of the rate limit.
#[derive(Debug, Default)]
struct LogLimit {
    at: Option<Instant>,
    /// Rejections since the last log line.
    since: u64,
}

impl RejectedConnections {
    /// Counts a rejected connection.
    pub fn record_rejection(&self, peer: IpAddr, why: RejectionReason, detail: &dyn Display) {
        self.of(why).fetch_add(1, Ordering::Relaxed);
        if let Some(others) = self.take_unlogged(Instant::now()) {
            warn!(%peer, why = why.as_str(), %detail, others, "a connection was rejected");
        }
    }

    /// The number of rejections that were not logged, if the next log line is due.
    fn take_unlogged(&self, now: Instant) -> Option<u64> {
        // A panic under the lock leaves complete counts.
        let mut log_limit = self
            .log_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if log_limit
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL)
        {
            log_limit.since += 1;
            return None;
        }
        log_limit.at = Some(now);
        Some(std::mem::take(&mut log_limit.since))
    }

    fn of(&self, why: RejectionReason) -> &AtomicU64 {
        match why {
            RejectionReason::PerIpLimit => &self.per_ip_limit,
            RejectionReason::UnauthenticatedLimit => &self.unauthenticated_limit,
            RejectionReason::HandshakeFailed => &self.handshake_failed,
        }
    }

    /// Adds the counts to a page; `metric` has one label, the reason.
    pub fn put(&self, page: &mut MetricsPage, metric: &MetricDefinition) {
        for why in RejectionReason::ALL {
            page.count(
                metric,
                &[why.as_str()],
                self.of(why).load(Ordering::Relaxed),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpositionFormat;
    use crate::names::NODE_CONNECTIONS_REFUSED;

    #[test]
    fn all_rejections_are_counted_and_few_are_logged() {
        let (turned, now) = (RejectedConnections::default(), Instant::now());
        let peer = IpAddr::from([192, 0, 2, 7]);
        turned.record_rejection(peer, RejectionReason::PerIpLimit, &"256 of 256");
        turned.record_rejection(
            peer,
            RejectionReason::HandshakeFailed,
            &"no handshake in time",
        );
        turned.record_rejection(
            peer,
            RejectionReason::HandshakeFailed,
            &"no handshake in time",
        );
        assert_eq!(
            turned.take_unlogged(now),
            None,
            "a line was logged just now"
        );
        assert_eq!(
            turned.take_unlogged(now + 2 * LOG_INTERVAL),
            Some(3),
            "the rejections since the last line"
        );
        assert_eq!(turned.take_unlogged(now + 4 * LOG_INTERVAL), Some(0));
        let mut page = MetricsPage::new();
        turned.put(&mut page, &NODE_CONNECTIONS_REFUSED);
        let text = page.write(ExpositionFormat::Text);
        for line in [
            "{reason=\"per_ip_limit\"} 1.0\n",
            "{reason=\"unauthenticated_limit\"} 0.0\n",
            "{reason=\"handshake_failed\"} 2.0\n",
        ] {
            assert!(
                text.contains(&format!("headroom_node_connections_refused_total{line}")),
                "{text}"
            );
        }
    }
}

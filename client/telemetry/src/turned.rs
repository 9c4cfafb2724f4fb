//! Connections that were turned away before anything was read from them: counted by why, and told in the log now and then.
//!
//! Whoever knocks decides how often this happens, so nobody's log grows with it.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::{Metric, Page};

/// The log is told of one in this time.
const SELDOM: Duration = Duration::from_secs(10);

/// Why somebody was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Their address has as many connections as one may have.
    Crowded,
    /// As many as there may be are here that have shown nothing.
    Strangers,
    /// They did not show, in time, what lets them in.
    Unproven,
}

impl Why {
    const ALL: [Why; 3] = [Why::Crowded, Why::Strangers, Why::Unproven];

    /// As a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Crowded => "crowded",
            Why::Strangers => "strangers",
            Why::Unproven => "unproven",
        }
    }
}

/// Counts them.
#[derive(Debug, Default)]
pub struct Turned {
    crowded: AtomicU64,
    strangers: AtomicU64,
    unproven: AtomicU64,
    told: Mutex<Told>,
}

/// What the log was told.
#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    /// Turned away since.
    since: u64,
}

impl Turned {
    /// Somebody was turned away.
    pub fn away(&self, peer: IpAddr, why: Why, detail: &dyn Display) {
        self.of(why).fetch_add(1, Ordering::Relaxed);
        if let Some(others) = self.tell(Instant::now()) {
            warn!(%peer, why = why.as_str(), %detail, others, "a connection was turned away");
        }
    }

    /// How many nobody was told of, when it is time to tell of one.
    fn tell(&self, now: Instant) -> Option<u64> {
        // Whoever panicked here left whole figures behind.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.at.is_some_and(|at| now.saturating_duration_since(at) < SELDOM) {
            told.since += 1;
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.since))
    }

    fn of(&self, why: Why) -> &AtomicU64 {
        match why {
            Why::Crowded => &self.crowded,
            Why::Strangers => &self.strangers,
            Why::Unproven => &self.unproven,
        }
    }

    /// Puts the counts on a page; `metric` has one label, the reason.
    pub fn put(&self, page: &mut Page, metric: &Metric) {
        for why in Why::ALL {
            page.count(metric, &[why.as_str()], self.of(why).load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::names::NODE_CONNECTIONS_REFUSED;

    #[test]
    fn all_are_counted_and_few_are_told() {
        let (turned, now) = (Turned::default(), Instant::now());
        let peer = IpAddr::from([192, 0, 2, 7]);
        turned.away(peer, Why::Crowded, &"256 of 256");
        turned.away(peer, Why::Unproven, &"no handshake in time");
        turned.away(peer, Why::Unproven, &"no handshake in time");
        assert_eq!(turned.tell(now), None, "one was told just now");
        assert_eq!(turned.tell(now + 2 * SELDOM), Some(3), "those of whom nobody was told");
        assert_eq!(turned.tell(now + 4 * SELDOM), Some(0));
        let mut page = Page::new();
        turned.put(&mut page, &NODE_CONNECTIONS_REFUSED);
        let text = page.write(Format::Text);
        for line in ["{reason=\"crowded\"} 1.0\n", "{reason=\"strangers\"} 0.0\n", "{reason=\"unproven\"} 2.0\n"] {
            assert!(text.contains(&format!("headroom_node_connections_refused_total{line}")), "{text}");
        }
    }
}

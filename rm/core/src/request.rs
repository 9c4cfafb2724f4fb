//! Container requests: the requested counts and the granted counts.
//!
//! Counts are absolute, so a repeated request changes nothing. Granted counts are kept apart from
//! requests, because they must outlive a withdrawn request and a restarted master.

use std::sync::Arc;
use std::time::Duration;

use headroom_types::{LaunchSpec, RequestId, Resource, Tick};

use crate::placement::{LocalityLevel, RequestPlacement};
use crate::table::RowPosition;

/// Container request of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Id that the application chose.
    pub request: RequestId,
    /// Size of each container.
    pub resource: Resource,
    /// Containers in total: live, ended and still to be granted.
    pub count: u32,
    /// Ends of these containers that the master has seen.
    pub ended: u32,
    /// Priority within the application; higher goes first.
    pub priority: i32,
    /// Placement rules.
    pub place: RequestPlacement,
    /// Longest wait, counted from the first acceptance. Containers that are missing then are not
    /// granted any more.
    pub deadline: Option<Duration>,
    /// Time that the request has waited already, measured by the master.
    pub waited: Duration,
    /// Command, environment and files.
    pub launch: Arc<LaunchSpec>,
}

/// An accepted request and its waiting state.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// The request as the master sent it.
    pub ask: ContainerRequest,
    /// Row of its counts in the record of its application.
    pub(crate) counts: RowPosition,
    /// Position among the requests of all applications, in order of arrival.
    pub arrival: u64,
    /// Start of the current wait for all containers: first acceptance, or an increase after all
    /// were granted.
    pub wanting: Tick,
    /// Waiting time before that start, as an earlier incarnation of the resource manager measured
    /// it.
    pub before: Duration,
    /// Start of the wait for the next container.
    pub waiting: Tick,
    /// Containers granted in the whole cluster when the wait began.
    pub served: u64,
    /// Locality level that the next container may use now.
    pub reach: LocalityLevel,
    /// Time when its deadline passed with containers missing; nothing is granted after that.
    pub expired: Option<Tick>,
}

impl PendingRequest {
    /// Creates a request that begins to wait.
    pub(crate) fn new(ask: ContainerRequest, counts: RowPosition, arrival: u64, now: Tick) -> Self {
        let reach = LocalityLevel::first(&ask.place);
        let before = ask.waited;
        PendingRequest {
            ask,
            counts,
            arrival,
            wanting: now,
            before,
            waiting: now,
            served: 0,
            reach,
            expired: None,
        }
    }
}

/// Granted containers of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantCounts {
    /// Alive on a node.
    pub live: u32,
    /// Ended, not acknowledged by the master.
    pub unacked: u32,
    /// Granted in this incarnation of the resource manager, ended and acknowledged.
    own: u32,
    /// Granted in an earlier incarnation; the master knows their end.
    before: u32,
}

/// Accuracy of a master's own count of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAccuracy {
    /// Counted together with the acknowledgement that was just processed.
    Exactly,
    /// Possibly older than the latest acknowledgement.
    AtLeast,
}

/// Incarnation of the resource manager in which a container was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantIncarnation {
    /// The current one.
    This,
    /// An earlier one.
    Earlier,
}

impl GrantCounts {
    /// All containers that were ever granted.
    pub fn granted(&self) -> u32 {
        self.live
            .saturating_add(self.unacked)
            .saturating_add(self.known_ends())
    }
    /// Ended containers whose end the master knows.
    pub fn known_ends(&self) -> u32 {
        self.own.saturating_add(self.before)
    }
    /// Counts a container that was granted, or that a node reported.
    pub fn count_grant(&mut self) {
        self.live = self.live.saturating_add(1);
    }
    /// Counts the end of a live container.
    pub fn ended(&mut self) {
        self.live = self.live.saturating_sub(1);
        self.unacked = self.unacked.saturating_add(1);
    }
    /// Counts an acknowledged end.
    pub fn acked(&mut self, life: GrantIncarnation) {
        self.unacked = self.unacked.saturating_sub(1);
        match life {
            GrantIncarnation::This => self.own = self.own.saturating_add(1),
            // The master may have counted this end before the restart. Until its next count, one
            // container too few is better than a container granted twice.
            GrantIncarnation::Earlier => self.before = self.before.saturating_add(1),
        }
    }
    /// Forgets the known ends: a new attempt of the master reports its own count.
    pub fn forget_known_ends(&mut self) {
        (self.own, self.before) = (0, 0);
    }
    /// Applies the master's count of all ends that it has seen.
    pub fn apply_reported_ends(&mut self, ended: u32, how: CountAccuracy) {
        match how {
            // a smaller count than the known one comes from a master that does not count
            CountAccuracy::Exactly if ended >= self.own => self.before = ended - self.own,
            CountAccuracy::Exactly => {}
            CountAccuracy::AtLeast => self.before = self.before.max(ended.saturating_sub(self.own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reported_in_two_epochs_is_counted_once() {
        let mut counts = GrantCounts::default();
        // first count after a restart: three ends, one of them unknown to every incarnation
        counts.apply_reported_ends(3, CountAccuracy::Exactly);
        counts.count_grant();
        counts.ended();
        assert_eq!(counts.granted(), 4);
        counts.acked(GrantIncarnation::Earlier);
        assert_eq!(
            counts.granted(),
            4,
            "an end of an earlier epoch counts until the master reports it"
        );
        counts.apply_reported_ends(3, CountAccuracy::AtLeast);
        assert_eq!(counts.granted(), 4);
        counts.apply_reported_ends(3, CountAccuracy::Exactly);
        assert_eq!(
            counts.granted(),
            3,
            "the end was one of the three that the master reports"
        );
    }

    #[test]
    fn a_master_that_reports_no_ends_gets_no_duplicate_containers() {
        let mut counts = GrantCounts::default();
        counts.count_grant();
        counts.ended();
        counts.acked(GrantIncarnation::This);
        counts.apply_reported_ends(0, CountAccuracy::Exactly);
        counts.apply_reported_ends(0, CountAccuracy::AtLeast);
        assert_eq!((counts.granted(), counts.known_ends()), (1, 1));
    }
}

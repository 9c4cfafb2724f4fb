//! The times at which the node agent reports to the resource manager.
//!
//! The link to the resource manager owns this state. An end is reported at once; a change of phase
//! is reported with all other changes of the same moment. A heartbeat carries all containers with
//! their use; the resource manager sets its interval. At most one report is under way.
//!
//! ```text
//!            due(now) = Send            answered
//!   Idle ───────────────────► Under way ─────────► Idle
//!     ▲                           │ failed
//!     └──────── waited ── Waiting ◄┘
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{ContainerId, Tick};

/// Interval between heartbeats, if the resource manager sets none.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval that a resource manager may set.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval that a resource manager may set.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);

/// The containers that a report contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportScope {
    /// All containers: a heartbeat.
    All,
    /// The containers that changed.
    Changed(BTreeSet<ContainerId>),
}

/// The next action of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportDue {
    /// Send a report of this scope, with all exit reports that are not received yet, and then call
    /// [`ReportSchedule::answered`] or [`ReportSchedule::failed`].
    Send(ReportScope),
    /// Nothing before this time.
    At(Tick),
    /// Nothing before the report under way is answered.
    Wait,
}

/// Changes that are not reported yet.
#[derive(Clone, Debug)]
pub struct ReportSchedule {
    changed: BTreeSet<ContainerId>,
    ends: bool,
    node: bool,
    interval: Duration,
    alive_at: Tick,
    state: ReportPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportPhase {
    Idle,
    UnderWay,
    Waiting { until: Tick },
}

impl ReportSchedule {
    /// The state after a registration, which reported all containers. `interval` is the one between
    /// heartbeats that the resource manager set.
    pub fn registered(now: Tick, interval: Option<Duration>) -> Self {
        let interval = bounded(interval);
        ReportSchedule {
            changed: BTreeSet::new(),
            ends: false,
            node: false,
            interval,
            alive_at: now.plus(interval),
            state: ReportPhase::Idle,
        }
    }

    /// Records that the phase of a container changed.
    pub fn changed(&mut self, id: &ContainerId) {
        self.changed.insert(id.clone());
    }

    /// Records a change of the node itself. It is reported at once.
    pub fn node_changed(&mut self) {
        self.node = true;
    }

    /// Records that an exit report exists.
    pub fn ended(&mut self, id: &ContainerId) {
        self.changed.insert(id.clone());
        self.ends = true;
    }

    /// The next action. After a `Send`, the report counts as under way.
    pub fn due(&mut self, now: Tick) -> ReportDue {
        match self.state {
            ReportPhase::UnderWay => return ReportDue::Wait,
            ReportPhase::Waiting { until } if now < until => return ReportDue::At(until),
            ReportPhase::Waiting { .. } | ReportPhase::Idle => {}
        }
        if self.alive_at <= now {
            self.alive_at = now.plus(self.interval);
            return self.send(ReportScope::All);
        }
        if self.ends || self.node || !self.changed.is_empty() {
            let changed = self.changed.clone();
            return self.send(ReportScope::Changed(changed));
        }
        self.state = ReportPhase::Idle;
        ReportDue::At(self.alive_at)
    }

    /// The report under way was answered, with this interval between heartbeats.
    pub fn answered(&mut self, now: Tick, interval: Option<Duration>) {
        self.state = ReportPhase::Idle;
        let interval = bounded(interval);
        if interval != self.interval {
            self.interval = interval;
            // The resource manager counts the interval from the last heartbeat, which was before.
            self.alive_at = self.alive_at.min(now.plus(interval));
        }
    }

    /// The report was not answered. After `wait`, all containers are reported again.
    pub fn failed(&mut self, now: Tick, wait: Duration) {
        self.alive_at = now;
        self.state = ReportPhase::Waiting {
            until: now.plus(wait),
        };
    }

    fn send(&mut self, scope: ReportScope) -> ReportDue {
        self.state = ReportPhase::UnderWay;
        self.changed.clear();
        self.ends = false;
        self.node = false;
        ReportDue::Send(scope)
    }
}

/// The interval that a resource manager set, within the limits.
fn bounded(interval: Option<Duration>) -> Duration {
    interval.map_or(HEARTBEAT_INTERVAL, |set| {
        set.clamp(MIN_HEARTBEAT_INTERVAL, MAX_HEARTBEAT_INTERVAL)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u64) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("id")
    }

    #[test]
    fn an_exit_is_sent_at_once_with_all_changes() {
        let mut s = ReportSchedule::registered(Tick(0), None);
        assert_eq!(s.due(Tick(10)), ReportDue::At(Tick(1000)));
        s.changed(&id(1));
        s.ended(&id(2));
        assert_eq!(
            s.due(Tick(10)),
            ReportDue::Send(ReportScope::Changed([id(1), id(2)].into()))
        );
        s.changed(&id(3));
        assert_eq!(s.due(Tick(11)), ReportDue::Wait, "one report at a time");
        s.answered(Tick(11), None);
        assert_eq!(
            s.due(Tick(12)),
            ReportDue::Send(ReportScope::Changed([id(3)].into()))
        );
    }

    #[test]
    fn a_change_of_the_node_is_sent_at_once_and_once() {
        let mut s = ReportSchedule::registered(Tick(0), None);
        s.node_changed();
        assert_eq!(
            s.due(Tick(10)),
            ReportDue::Send(ReportScope::Changed(BTreeSet::new()))
        );
        s.answered(Tick(10), None);
        assert_eq!(s.due(Tick(11)), ReportDue::At(Tick(1000)));
    }

    #[test]
    fn a_heartbeat_contains_all_containers() {
        let mut s = ReportSchedule::registered(Tick(0), None);
        assert_eq!(s.due(Tick(1000)), ReportDue::Send(ReportScope::All));
        s.answered(Tick(1000), None);
        assert_eq!(s.due(Tick(1001)), ReportDue::At(Tick(2000)));
    }

    #[test]
    fn the_resource_manager_sets_the_interval() {
        let ten = Some(Duration::from_secs(10));
        let mut s = ReportSchedule::registered(Tick(0), ten);
        assert_eq!(s.due(Tick(0)), ReportDue::At(Tick(10_000)));
        assert_eq!(s.due(Tick(10_000)), ReportDue::Send(ReportScope::All));
        // A shorter interval begins at once, a longer one with the next heartbeat.
        s.answered(Tick(10_100), None);
        assert_eq!(s.due(Tick(10_100)), ReportDue::At(Tick(11_100)));
        assert_eq!(s.due(Tick(11_100)), ReportDue::Send(ReportScope::All));
        s.answered(Tick(11_200), ten);
        assert_eq!(s.due(Tick(11_200)), ReportDue::At(Tick(12_100)));
        assert_eq!(s.due(Tick(12_100)), ReportDue::Send(ReportScope::All));
        s.answered(Tick(12_100), Some(Duration::ZERO));
        assert_eq!(
            s.due(Tick(12_100)),
            ReportDue::At(Tick(12_200)),
            "at least 100 ms"
        );
    }

    #[test]
    fn an_unanswered_report_is_sent_again() {
        let mut s = ReportSchedule::registered(Tick(0), None);
        s.ended(&id(1));
        assert!(matches!(s.due(Tick(5)), ReportDue::Send(_)));
        s.failed(Tick(6), Duration::from_millis(50));
        assert_eq!(s.due(Tick(7)), ReportDue::At(Tick(56)));
        assert_eq!(s.due(Tick(56)), ReportDue::Send(ReportScope::All));
    }

    proptest! {
        /// Liveness: with any sequence of failures, every end is reported within the longest wait
        /// and one heartbeat.
        #[test]
        fn every_exit_is_reported(fails in proptest::collection::vec(any::<bool>(), 1..40)) {
            let mut s = ReportSchedule::registered(Tick(0), None);
            s.ended(&id(1));
            let (mut now, mut reported) = (Tick(0), false);
            for failed in fails.into_iter().chain([false, false]) {
                match s.due(now) {
                    ReportDue::At(at) => { prop_assert!(at > now); now = at; }
                    ReportDue::Wait => prop_assert!(false, "no report is in flight"),
                    ReportDue::Send(_) if failed => s.failed(now, Duration::from_millis(20)),
                    ReportDue::Send(scope) => {
                        reported |= scope == ReportScope::All || scope == ReportScope::Changed([id(1)].into());
                        s.answered(now, None);
                    }
                }
            }
            prop_assert!(reported);
        }
    }
}

//! When to tell the resource manager what.
//!
//! Owned by the link to the resource manager. An end leaves at once; a change of phase leaves with whatever else changed in the
//! same moment; every second a sign of life carries all containers with their use. One report is on its way at a time.
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

/// How often a sign of life is sent.
pub const ALIVE: Duration = Duration::from_secs(1);

/// Which containers a report names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every one: a sign of life.
    All,
    /// Those that changed.
    Changed(BTreeSet<ContainerId>),
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send a report of this scope with every report of an end that is not yet received, then say how it went.
    Send(Scope),
    /// Nothing until then.
    At(Tick),
    /// Nothing until the report under way is answered.
    Wait,
}

/// What is still to be told.
#[derive(Clone, Debug)]
pub struct Sync {
    changed: BTreeSet<ContainerId>,
    ends: bool,
    node: bool,
    alive_at: Tick,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    UnderWay,
    Waiting { until: Tick },
}

impl Sync {
    /// Fresh after a registration, which told everything.
    pub fn registered(now: Tick) -> Self {
        Sync { changed: BTreeSet::new(), ends: false, node: false, alive_at: now.plus(ALIVE), state: State::Idle }
    }

    /// The phase of a container changed.
    pub fn changed(&mut self, id: &ContainerId) {
        self.changed.insert(id.clone());
    }

    /// Something about the node itself changed: a report leaves at once.
    pub fn node_changed(&mut self) {
        self.node = true;
    }

    /// A report of an end is there.
    pub fn ended(&mut self, id: &ContainerId) {
        self.changed.insert(id.clone());
        self.ends = true;
    }

    /// What to do now; a `Send` counts as sent.
    pub fn due(&mut self, now: Tick) -> Due {
        match self.state {
            State::UnderWay => return Due::Wait,
            State::Waiting { until } if now < until => return Due::At(until),
            State::Waiting { .. } | State::Idle => {}
        }
        if self.alive_at <= now {
            self.alive_at = now.plus(ALIVE);
            return self.send(Scope::All);
        }
        if self.ends || self.node || !self.changed.is_empty() {
            let changed = self.changed.clone();
            return self.send(Scope::Changed(changed));
        }
        self.state = State::Idle;
        Due::At(self.alive_at)
    }

    /// The report was answered.
    pub fn answered(&mut self) {
        self.state = State::Idle;
    }

    /// The report was not answered: everything is told again after `wait`.
    pub fn failed(&mut self, now: Tick, wait: Duration) {
        self.alive_at = now;
        self.state = State::Waiting { until: now.plus(wait) };
    }

    fn send(&mut self, scope: Scope) -> Due {
        self.state = State::UnderWay;
        self.changed.clear();
        self.ends = false;
        self.node = false;
        Due::Send(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u64) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("id")
    }

    #[test]
    fn an_end_leaves_at_once_and_the_rest_with_it() {
        let mut s = Sync::registered(Tick(0));
        assert_eq!(s.due(Tick(10)), Due::At(Tick(1000)));
        s.changed(&id(1));
        s.ended(&id(2));
        assert_eq!(s.due(Tick(10)), Due::Send(Scope::Changed([id(1), id(2)].into())));
        s.changed(&id(3));
        assert_eq!(s.due(Tick(11)), Due::Wait, "one at a time");
        s.answered();
        assert_eq!(s.due(Tick(12)), Due::Send(Scope::Changed([id(3)].into())));
    }

    #[test]
    fn a_change_of_the_node_itself_leaves_at_once_and_once() {
        let mut s = Sync::registered(Tick(0));
        s.node_changed();
        assert_eq!(s.due(Tick(10)), Due::Send(Scope::Changed(BTreeSet::new())));
        s.answered();
        assert_eq!(s.due(Tick(11)), Due::At(Tick(1000)));
    }

    #[test]
    fn a_sign_of_life_names_all() {
        let mut s = Sync::registered(Tick(0));
        assert_eq!(s.due(Tick(1000)), Due::Send(Scope::All));
        s.answered();
        assert_eq!(s.due(Tick(1001)), Due::At(Tick(2000)));
    }

    #[test]
    fn what_was_not_answered_is_told_again() {
        let mut s = Sync::registered(Tick(0));
        s.ended(&id(1));
        assert!(matches!(s.due(Tick(5)), Due::Send(_)));
        s.failed(Tick(6), Duration::from_millis(50));
        assert_eq!(s.due(Tick(7)), Due::At(Tick(56)));
        assert_eq!(s.due(Tick(56)), Due::Send(Scope::All));
    }

    proptest! {
        /// Liveness: whatever is answered or not, everything is told within the longest wait and a sign of life.
        #[test]
        fn nothing_is_left_untold(fails in proptest::collection::vec(any::<bool>(), 1..40)) {
            let mut s = Sync::registered(Tick(0));
            s.ended(&id(1));
            let (mut now, mut told) = (Tick(0), false);
            for failed in fails.into_iter().chain([false, false]) {
                match s.due(now) {
                    Due::At(at) => { prop_assert!(at > now); now = at; }
                    Due::Wait => prop_assert!(false, "nothing is under way here"),
                    Due::Send(_) if failed => s.failed(now, Duration::from_millis(20)),
                    Due::Send(scope) => {
                        told |= scope == Scope::All || scope == Scope::Changed([id(1)].into());
                        s.answered();
                    }
                }
            }
            prop_assert!(told);
        }
    }
}

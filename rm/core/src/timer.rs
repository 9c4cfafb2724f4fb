//! Timers as data: at most one per key, fired in order.
//!
//! The cluster owns the timers. They never wait: the event loop reads the next deadline and sends
//! an event.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, NodeId, RequestId, Tick};

use crate::table::{HashedTable, StableHash};

/// Key of a timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// End of the recovery after a restart.
    Recovery,
    /// Next timeout of a silent node.
    Node(NodeId),
    /// Heartbeat timeout of a master.
    Master(AppId),
    /// End of the time that a finished master has to end by itself.
    Linger(AppId),
    /// Next attempt of a master that could not be started.
    Relaunch(AppId),
    /// Timeout for a node's answer to a resize.
    Resize(ContainerId),
    /// Deadline of a drain.
    Drain(NodeId),
    /// End of an application's lifetime.
    Lifetime(AppId),
    /// Relaxation of a request's preference by one level.
    Reach(AppId, RequestId),
    /// Review of reservations.
    Reserve,
    /// Deadline of a request.
    Deadline(AppId, RequestId),
    /// Next round of preemption.
    Preempt,
    /// End of a claim's warning.
    Claim(u64),
}

impl StableHash for TimerKey {
    fn hash(&self) -> u64 {
        let (kind, name) = match self {
            TimerKey::Recovery => (1, 0),
            TimerKey::Node(node) => (2, node.hash()),
            TimerKey::Master(app) => (3, app.hash()),
            TimerKey::Linger(app) => (4, app.hash()),
            TimerKey::Resize(container) => (5, container.hash()),
            TimerKey::Drain(node) => (6, node.hash()),
            TimerKey::Lifetime(app) => (7, app.hash()),
            TimerKey::Reach(app, request) => (8, app.hash() ^ request.hash()),
            TimerKey::Reserve => (9, 0),
            TimerKey::Deadline(app, request) => (10, app.hash() ^ request.hash()),
            TimerKey::Preempt => (11, 0),
            TimerKey::Claim(claim) => (12, *claim),
            TimerKey::Relaunch(app) => (13, app.hash()),
        };
        name.rotate_left(8) ^ kind
    }
}

/// All timers.
#[derive(Clone, Debug, Default)]
pub struct TimerQueue {
    at: HashedTable<TimerKey, TimerDeadline>,
    order: BTreeSet<(Tick, TimerKey)>,
}

/// Deadline of a key.
#[derive(Clone, Copy, Debug)]
struct TimerDeadline {
    at: Tick,
    /// Position in the order, never later than the deadline. A timer that is postponed repeatedly
    /// moves only when its position is reached.
    filed: Tick,
}

impl TimerQueue {
    /// Sets a timer and replaces the one with the same key.
    pub fn set(&mut self, key: TimerKey, at: Tick) {
        if let Some(due) = self.at.get_mut(&key).filter(|due| due.filed <= at) {
            due.at = at;
            return;
        }
        self.cancel(&key);
        self.at.insert(key.clone(), TimerDeadline { at, filed: at });
        self.order.insert((at, key));
    }
    /// Cancels a timer.
    pub fn cancel(&mut self, key: &TimerKey) {
        if let Some(due) = self.at.remove(key) {
            self.order.remove(&(due.filed, key.clone()));
        }
    }
    /// Removes and returns the first timer that is due.
    pub fn due(&mut self, now: Tick) -> Option<TimerKey> {
        while self.order.first().is_some_and(|(filed, _)| *filed <= now) {
            let (_, key) = self.order.pop_first()?;
            let due = self.at.get_mut(&key)?;
            if due.at <= now {
                self.at.remove(&key);
                return Some(key);
            }
            due.filed = due.at;
            self.order.insert((due.at, key));
        }
        None
    }
    /// Time of the next check: no timer is due earlier.
    pub fn next(&self) -> Option<Tick> {
        self.order.first().map(|(at, _)| *at)
    }
    /// Deadline of a timer.
    pub fn of(&self, key: &TimerKey) -> Option<Tick> {
        self.at.get(key).map(|due| due.at)
    }
    /// Postpones all timers by the length of a stall of the event loop.
    pub fn postpone(&mut self, by: Duration) {
        for due in self.at.values_mut() {
            due.at = due.at.plus(by);
            due.filed = due.at;
        }
        self.order = self
            .at
            .iter()
            .map(|(key, due)| (due.at, key.clone()))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_once() {
        let mut timers = TimerQueue::default();
        let node = TimerKey::Node("n1".parse().expect("id"));
        timers.set(node.clone(), Tick(5));
        timers.set(TimerKey::Recovery, Tick(3));
        timers.set(node.clone(), Tick(9));
        assert_eq!(timers.next(), Some(Tick(3)));
        assert_eq!(timers.due(Tick(8)), Some(TimerKey::Recovery));
        assert_eq!(
            timers.due(Tick(8)),
            None,
            "the later deadline replaced the earlier one"
        );
        timers.postpone(Duration::from_millis(10));
        assert_eq!(timers.due(Tick(18)), None);
        assert_eq!(timers.due(Tick(19)), Some(node));
        assert_eq!(timers.next(), None);
    }
}

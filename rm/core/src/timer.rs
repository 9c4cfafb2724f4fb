//! Deadlines as data: at most one for each key, fired in order.
//!
//! Owned by the cluster. Never waits: the loop asks when the next one is due and comes back with an event.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, NodeId, RequestId, Tick};

use crate::table::{Named, Table};

/// Whose deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// After a restart: no longer wait for nodes.
    Recovery,
    /// A node was silent for another stage.
    Node(NodeId),
    /// A master was silent for too long.
    Master(AppId),
    /// A master that said it is done is still there.
    Linger(AppId),
    /// A node has not said what became of another size for a container.
    Resize(ContainerId),
    /// What is left on a node that is being drained is stopped.
    Drain(NodeId),
    /// An application has lived as long as it may.
    Lifetime(AppId),
    /// A request's preference gives way by one step.
    Reach(AppId, RequestId),
    /// Who has waited for long is given a node.
    Reserve,
    /// What is missing of a request is worth nothing any more.
    Deadline(AppId, RequestId),
    /// Another round of preemption.
    Preempt,
    /// The warning of a claim is over.
    Claim(u64),
}

impl Named for Key {
    fn hash(&self) -> u64 {
        let (kind, name) = match self {
            Key::Recovery => (1, 0),
            Key::Node(node) => (2, node.hash()),
            Key::Master(app) => (3, app.hash()),
            Key::Linger(app) => (4, app.hash()),
            Key::Resize(container) => (5, container.hash()),
            Key::Drain(node) => (6, node.hash()),
            Key::Lifetime(app) => (7, app.hash()),
            Key::Reach(app, request) => (8, app.hash() ^ request.hash()),
            Key::Reserve => (9, 0),
            Key::Deadline(app, request) => (10, app.hash() ^ request.hash()),
            Key::Preempt => (11, 0),
            Key::Claim(claim) => (12, *claim),
        };
        name.rotate_left(8) ^ kind
    }
}

/// All deadlines.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    at: Table<Key, Due>,
    order: BTreeSet<(Tick, Key)>,
}

/// When a key is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Tick,
    /// Where it stands in the order: not later. A deadline that is put off again and again moves only when its place comes up.
    filed: Tick,
}

impl Timers {
    /// Sets a deadline; the former one of the same key is gone.
    pub fn set(&mut self, key: Key, at: Tick) {
        if let Some(due) = self.at.get_mut(&key).filter(|due| due.filed <= at) {
            due.at = at;
            return;
        }
        self.cancel(&key);
        self.at.insert(key.clone(), Due { at, filed: at });
        self.order.insert((at, key));
    }
    /// Removes a deadline.
    pub fn cancel(&mut self, key: &Key) {
        if let Some(due) = self.at.remove(key) {
            self.order.remove(&(due.filed, key.clone()));
        }
    }
    /// Takes the first deadline that is due.
    pub fn due(&mut self, now: Tick) -> Option<Key> {
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
    /// When to look next: the first one is not due before.
    pub fn next(&self) -> Option<Tick> {
        self.order.first().map(|(at, _)| *at)
    }
    /// When this one is due.
    pub fn of(&self, key: &Key) -> Option<Tick> {
        self.at.get(key).map(|due| due.at)
    }
    /// Moves every deadline by as long as the loop stood still.
    pub fn postpone(&mut self, by: Duration) {
        for due in self.at.values_mut() {
            due.at = due.at.plus(by);
            due.filed = due.at;
        }
        self.order = self.at.iter().map(|(key, due)| (due.at, key.clone())).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_and_once() {
        let mut timers = Timers::default();
        let node = Key::Node("n1".parse().expect("id"));
        timers.set(node.clone(), Tick(5));
        timers.set(Key::Recovery, Tick(3));
        timers.set(node.clone(), Tick(9));
        assert_eq!(timers.next(), Some(Tick(3)));
        assert_eq!(timers.due(Tick(8)), Some(Key::Recovery));
        assert_eq!(timers.due(Tick(8)), None, "the later deadline replaced the earlier one");
        timers.postpone(Duration::from_millis(10));
        assert_eq!(timers.due(Tick(18)), None);
        assert_eq!(timers.due(Tick(19)), Some(node));
        assert_eq!(timers.next(), None);
    }
}

//! Deadlines as data: at most one for each key, fired in order.
//!
//! Owned by the cluster. Never waits: the loop asks when the next one is due and comes back with an event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{AppId, ContainerId, NodeId, RequestId, Tick};

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

/// All deadlines.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    at: BTreeMap<Key, Tick>,
    order: BTreeSet<(Tick, Key)>,
}

impl Timers {
    /// Sets a deadline; the former one of the same key is gone.
    pub fn set(&mut self, key: Key, at: Tick) {
        self.cancel(&key);
        self.at.insert(key.clone(), at);
        self.order.insert((at, key));
    }
    /// Removes a deadline.
    pub fn cancel(&mut self, key: &Key) {
        if let Some(at) = self.at.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }
    /// Takes the first deadline that is due.
    pub fn due(&mut self, now: Tick) -> Option<Key> {
        let (at, _) = self.order.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }
    /// When the first one is due.
    pub fn next(&self) -> Option<Tick> {
        self.order.first().map(|(at, _)| *at)
    }
    /// When this one is due.
    pub fn of(&self, key: &Key) -> Option<Tick> {
        self.at.get(key).copied()
    }
    /// Moves every deadline by as long as the loop stood still.
    pub fn postpone(&mut self, by: Duration) {
        for at in self.at.values_mut() {
            *at = at.plus(by);
        }
        self.order = self.at.iter().map(|(key, at)| (*at, key.clone())).collect();
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

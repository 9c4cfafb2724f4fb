//! People who change a cluster while it works: sizes, nodes, queues, applications. In the end they put everything back, so that whatever
//! was asked for can come.

use std::collections::{BTreeMap, BTreeSet};

use headroom_rm_core::{Call, Cordon, How, Lifetime, Size, TagChange};
use headroom_types::{Name, NodeId, UnixMillis};

use super::manager::Input;
use super::wire::{Caller, Heard};
use super::{Thing as Any, World};
use crate::scenario::estate::{Order, Word, word};

/// So long after the last disturbance everything is as it was. Milliseconds.
pub(super) const RESTORED: u64 = 120_000;
/// Orders that were held up on the way, or sent twice, have arrived so long after the last disturbance. Milliseconds.
const ARRIVED: u64 = 10_500;
/// An answer that never came is asked for again. Milliseconds.
const AGAIN: u64 = 1_000;

#[derive(Debug)]
pub(super) enum Thing {
    Give { order: Order, must: Must },
    Heard { number: u64, heard: Box<Heard> },
}

/// Whether an order is repeated until it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    /// Once is enough.
    No,
    /// Everything hangs on it.
    Yes,
}

/// What was ordered and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Operator {
    open: BTreeMap<u64, (Order, Must)>,
    /// Since when it has been answered that something is said of a node. Nothing is known of one of which something was taken back.
    said: BTreeMap<(NodeId, Word), UnixMillis>,
    /// Nodes that were to be labelled: a manager that died before it answered may have written it down.
    labelled: BTreeSet<NodeId>,
    taken_back: BTreeSet<NodeId>,
}

impl Operator {
    /// Something is said of a node, and has been since before this moment, whatever has become of the manager since.
    pub(super) fn has_said(&self, node: &NodeId, word: Word, before: UnixMillis) -> bool {
        !self.taken_back.contains(node) && self.said.get(&(node.clone(), word)).is_some_and(|since| *since < before)
    }
    /// A label may have been on a node at some time.
    pub(super) fn may_have_labelled(&self, node: &NodeId) -> bool {
        self.labelled.contains(node) || self.open.values().any(|(order, _)| is_label(order))
    }
}

fn is_label(order: &Order) -> bool {
    matches!(order, Order::Tag { word: Word::Label, .. })
}

impl World {
    pub(super) fn operators_plan(&mut self) {
        for (at, order) in self.scenario.estate.orders.clone() {
            self.at(at, Any::Operator(Thing::Give { order, must: Must::No }));
        }
        let estate = &self.scenario.estate;
        if estate.tenants.is_empty() {
            return;
        }
        let mut last: Vec<Order> = (0..estate.nodes.len()).map(|node| Order::Undrain { node }).collect();
        last.extend((0..estate.nodes.len()).map(|node| Order::Tag { node, word: Word::Nothing }));
        last.extend(estate.trees.len().checked_sub(1).map(|tree| Order::Queues { tree }));
        // A tree says of every queue whether it is open: this one says so of all.
        for order in last {
            let at = self.scenario.calm_ms + ARRIVED;
            self.at(at, Any::Operator(Thing::Give { order, must: Must::Yes }));
        }
    }

    pub(super) fn operator_thing(&mut self, thing: Thing) {
        match thing {
            Thing::Give { order, must } => {
                let Some(call) = self.call_of(&order) else { return };
                let number = self.call(Caller::Operator, Input::Call(Box::new(call)));
                self.operator.open.insert(number, (order, must));
            }
            Thing::Heard { number, heard } => {
                let Some((order, must)) = self.operator.open.remove(&number) else { return };
                let settled = match &*heard {
                    Heard::Answer(..) => {
                        self.heard_of_tag(&order);
                        true
                    }
                    Heard::Refused(refusal) => {
                        self.note(|| format!("operator: {order:?} is refused: {refusal}"));
                        // A node that never was drained, or is not known yet.
                        must == Must::No || matches!(order, Order::Undrain { .. } | Order::Tag { .. })
                    }
                    Heard::Lost | Heard::Listening | Heard::TooOld => must == Must::No,
                };
                if !settled {
                    self.later(AGAIN, Any::Operator(Thing::Give { order, must }));
                }
            }
        }
    }

    fn call_of(&mut self, order: &Order) -> Option<Call> {
        let node = |w: &World, n: usize| -> Option<NodeId> { w.hosts.keys().nth(n).cloned() };
        let app = |w: &World, n: usize| w.tenants.get(n).and_then(|t| t.app.clone());
        Some(match order {
            Order::Drain { node: n, within, then } => {
                self.oracle.drained();
                Call::Drain { node: node(self, *n)?, within: *within, reason: "a simulation".into(), then: *then }
            }
            Order::Undrain { node: n } => Call::Undrain { node: node(self, *n)? },
            Order::Tag { node: n, word } => return self.tag_of(node(self, *n)?, *word),
            Order::Resize { pick, percent } => return self.resize_of(*pick, *percent),
            Order::Change { tenant, queue, priority, lifetime } => Call::ChangeApp {
                app: app(self, *tenant)?,
                queue: queue.clone(),
                priority: *priority,
                lifetime: lifetime.map(Lifetime::AtMost),
            },
            Order::Queues { tree } => Call::SetQueues {
                tree: Box::new(self.scenario.estate.trees.get(*tree)?.clone()),
                generation: None,
                how: How::Really,
            },
            Order::Gate { queue, gate } => Call::SetGate { queue: queue.clone(), gate: *gate },
            Order::Kill { tenant } => Call::Kill { app: app(self, *tenant)?, reason: None },
        })
    }

    fn tag_of(&mut self, node: NodeId, said: Word) -> Option<Call> {
        let (ssd, etl): (Name, Name) = (word("ssd"), word("etl"));
        if said == Word::Label {
            self.operator.labelled.insert(node.clone());
        }
        let mut change = TagChange::default();
        match said {
            Word::Cordon => change.cordon = Some(Cordon::On("a simulation".into())),
            Word::Taint => change.taints = [(etl, Some(String::new()))].into(),
            Word::Label => change.labels = [ssd].into(),
            Word::Nothing => {
                self.operator.taken_back.insert(node.clone());
                let taints = [(etl, None)].into();
                change = TagChange { cordon: Some(Cordon::Off), drop_labels: [ssd].into(), taints, ..change };
            }
        }
        Some(Call::Tag { node, change: Box::new(change), how: How::Really })
    }

    fn heard_of_tag(&mut self, order: &Order) {
        let Order::Tag { node, word } = order else { return };
        let Some(id) = self.hosts.keys().nth(*node).cloned() else { return };
        let now = self.wall();
        self.operator.said.entry((id, *word)).or_insert(now);
    }

    /// One of the containers that tenants know to live.
    fn resize_of(&self, pick: u64, percent: u64) -> Option<Call> {
        let all: Vec<_> = self.tenants.iter().flat_map(|t| t.live.iter()).collect();
        let n = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
        let (id, lease) = all.get(usize::try_from(pick % n).ok()?)?;
        let mut resource = lease.resource.clone();
        resource.memory = resource.memory.mul_ratio(percent, 100);
        let version = lease.version.filter(|_| pick.is_multiple_of(3));
        Some(Call::Resize { container: (*id).clone(), version, size: Size { resource, heap: None }, how: How::Really })
    }
}

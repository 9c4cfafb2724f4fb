//! Operators who change a running cluster: sizes, nodes, queues, applications. At the end they
//! revert their changes, so that all requests can be granted.

use std::collections::{BTreeMap, BTreeSet};

use headroom_rm_core::{Call, Cordon, How, Lifetime, Size, TagChange};
use headroom_types::{Name, NodeId, UnixMillis};

use super::manager::Input;
use super::wire::{Caller, Heard};
use super::{Thing as Any, World};
use crate::scenario::estate::{Order, Word, word};

/// Time after the last fault at which all changes are reverted. Milliseconds.
pub(super) const RESTORED: u64 = 120_000;
/// Time after the last fault at which delayed and repeated orders have arrived. Milliseconds.
const ARRIVED: u64 = 10_500;
/// Interval of retries after a lost response. Milliseconds.
const AGAIN: u64 = 1_000;

#[derive(Debug)]
pub(super) enum Thing {
    Give { order: Order, must: Must },
    Heard { number: u64, heard: Box<Heard> },
}

/// Whether an order is repeated until it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    /// It is sent once.
    No,
    /// It is repeated.
    Yes,
}

/// Orders without a response, and acknowledged marks.
#[derive(Debug, Default)]
pub(super) struct Operator {
    open: BTreeMap<u64, (Order, Must)>,
    /// Time of the first acknowledgement of a mark. It is not valid for nodes in `taken_back`.
    said: BTreeMap<(NodeId, Word), UnixMillis>,
    /// Nodes with a label order. A manager that died before its response may have stored it.
    labelled: BTreeSet<NodeId>,
    taken_back: BTreeSet<NodeId>,
}

impl Operator {
    /// True if a mark was acknowledged before this time and never removed. Restarts of the manager
    /// do not change that.
    pub(super) fn has_said(&self, node: &NodeId, word: Word, before: UnixMillis) -> bool {
        !self.taken_back.contains(node) && self.said.get(&(node.clone(), word)).is_some_and(|since| *since < before)
    }
    /// True if the node may have had a label at some time.
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
        // A tree contains the state of all queues; this one opens all.
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
                        // The node was never drained, or it is not registered yet.
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

    /// A resize of one of the containers that tenants know as live.
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

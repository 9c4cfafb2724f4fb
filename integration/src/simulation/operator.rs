//! Operators who change a running cluster: sizes, nodes, queues, applications. At the end they
//! revert their changes, so that all requests can be granted.

use std::collections::{BTreeMap, BTreeSet};

use headroom_rm_core::{
    ApplicationLifetime, ClusterCall, ContainerSize, CordonState, DryRun, TagChange,
};
use headroom_types::{Name, NodeId, UnixMillis};

use super::call_result::SimCallResult;
use super::manager::SimManagerInput;
use super::network::Caller;
use super::{Simulation, SimulationEvent as Any};
use crate::scenario::scenario_cluster::{OperatorAction, OperatorMark, word};

/// Time after the last fault at which all changes are reverted. Milliseconds.
pub(super) const RESTORED: u64 = 120_000;
/// Time after the last fault at which delayed and repeated orders have arrived. Milliseconds.
const ARRIVED: u64 = 10_500;
/// Interval of retries after a lost response. Milliseconds.
const AGAIN: u64 = 1_000;

#[derive(Debug)]
pub(super) enum SimOperatorEvent {
    Give {
        order: OperatorAction,
        must: OrderRepeat,
    },
    Heard {
        number: u64,
        heard: Box<SimCallResult>,
    },
}

/// Whether an order is repeated until it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderRepeat {
    /// It is sent once.
    No,
    /// It is repeated.
    Yes,
}

/// Orders without a response, and acknowledged marks.
#[derive(Debug, Default)]
pub(super) struct Operator {
    open: BTreeMap<u64, (OperatorAction, OrderRepeat)>,
    /// Time of the first acknowledgement of a mark. It is not valid for nodes in `taken_back`.
    said: BTreeMap<(NodeId, OperatorMark), UnixMillis>,
    /// Nodes with a label order. A manager that died before its response may have stored it.
    labelled: BTreeSet<NodeId>,
    taken_back: BTreeSet<NodeId>,
}

impl Operator {
    /// True if a mark was acknowledged before this time and never removed. Restarts of the manager
    /// do not change that.
    pub(super) fn has_said(&self, node: &NodeId, word: OperatorMark, before: UnixMillis) -> bool {
        !self.taken_back.contains(node)
            && self
                .said
                .get(&(node.clone(), word))
                .is_some_and(|since| *since < before)
    }
    /// True if the node may have had a label at some time.
    pub(super) fn may_have_labelled(&self, node: &NodeId) -> bool {
        self.labelled.contains(node) || self.open.values().any(|(order, _)| is_label(order))
    }
}

fn is_label(order: &OperatorAction) -> bool {
    matches!(
        order,
        OperatorAction::Tag {
            word: OperatorMark::Label,
            ..
        }
    )
}

impl Simulation {
    pub(super) fn operators_plan(&mut self) {
        for (at, order) in self.scenario.estate.orders.clone() {
            self.at(
                at,
                Any::Operator(SimOperatorEvent::Give {
                    order,
                    must: OrderRepeat::No,
                }),
            );
        }
        let estate = &self.scenario.estate;
        if estate.tenants.is_empty() {
            return;
        }
        let mut last: Vec<OperatorAction> = (0..estate.nodes.len())
            .map(|node| OperatorAction::Undrain { node })
            .collect();
        last.extend((0..estate.nodes.len()).map(|node| OperatorAction::Tag {
            node,
            word: OperatorMark::Nothing,
        }));
        last.extend(
            estate
                .trees
                .len()
                .checked_sub(1)
                .map(|tree| OperatorAction::Queues { tree }),
        );
        // A tree contains the state of all queues; this one opens all.
        for order in last {
            let at = self.scenario.calm_ms + ARRIVED;
            self.at(
                at,
                Any::Operator(SimOperatorEvent::Give {
                    order,
                    must: OrderRepeat::Yes,
                }),
            );
        }
    }

    pub(super) fn operator_thing(&mut self, thing: SimOperatorEvent) {
        match thing {
            SimOperatorEvent::Give { order, must } => {
                let Some(call) = self.call_of(&order) else {
                    return;
                };
                let number = self.call(Caller::Operator, SimManagerInput::Call(Box::new(call)));
                self.operator.open.insert(number, (order, must));
            }
            SimOperatorEvent::Heard { number, heard } => {
                let Some((order, must)) = self.operator.open.remove(&number) else {
                    return;
                };
                let is_done = match &*heard {
                    SimCallResult::Answer(..) => {
                        self.heard_of_tag(&order);
                        true
                    }
                    SimCallResult::Refused(refusal) => {
                        self.note(|| format!("operator: {order:?} is refused: {refusal}"));
                        // The node was never drained, or it is not registered yet.
                        must == OrderRepeat::No
                            || matches!(
                                order,
                                OperatorAction::Undrain { .. } | OperatorAction::Tag { .. }
                            )
                    }
                    SimCallResult::Lost | SimCallResult::Listening | SimCallResult::TooOld => {
                        must == OrderRepeat::No
                    }
                };
                if !is_done {
                    self.later(AGAIN, Any::Operator(SimOperatorEvent::Give { order, must }));
                }
            }
        }
    }

    fn call_of(&mut self, order: &OperatorAction) -> Option<ClusterCall> {
        let node = |w: &Simulation, n: usize| -> Option<NodeId> { w.hosts.keys().nth(n).cloned() };
        let app = |w: &Simulation, n: usize| w.tenants.get(n).and_then(|t| t.app.clone());
        Some(match order {
            OperatorAction::Drain {
                node: n,
                within,
                then,
            } => {
                self.oracle.drained();
                ClusterCall::Drain {
                    node: node(self, *n)?,
                    within: *within,
                    reason: "a simulation".into(),
                    then: *then,
                }
            }
            OperatorAction::Undrain { node: n } => ClusterCall::Undrain {
                node: node(self, *n)?,
            },
            OperatorAction::Tag { node: n, word } => return self.tag_of(node(self, *n)?, *word),
            OperatorAction::Resize { pick, percent } => return self.resize_of(*pick, *percent),
            OperatorAction::Change {
                tenant,
                queue,
                priority,
                lifetime,
            } => ClusterCall::ChangeApp {
                app: app(self, *tenant)?,
                queue: queue.clone(),
                priority: *priority,
                lifetime: lifetime.map(ApplicationLifetime::AtMost),
            },
            OperatorAction::Queues { tree } => ClusterCall::SetQueues {
                tree: Box::new(self.scenario.estate.trees.get(*tree)?.clone()),
                generation: None,
                how: DryRun::Really,
            },
            OperatorAction::SetQueueState { queue, state } => ClusterCall::SetQueueState {
                queue: queue.clone(),
                state: *state,
            },
            OperatorAction::Kill { tenant } => ClusterCall::Kill {
                app: app(self, *tenant)?,
                reason: None,
            },
        })
    }

    fn tag_of(&mut self, node: NodeId, said: OperatorMark) -> Option<ClusterCall> {
        let (ssd, etl): (Name, Name) = (word("ssd"), word("etl"));
        if said == OperatorMark::Label {
            self.operator.labelled.insert(node.clone());
        }
        let mut change = TagChange::default();
        match said {
            OperatorMark::Cordon => change.cordon = Some(CordonState::On("a simulation".into())),
            OperatorMark::Taint => change.taints = [(etl, Some(String::new()))].into(),
            OperatorMark::Label => change.labels = [ssd].into(),
            OperatorMark::Nothing => {
                self.operator.taken_back.insert(node.clone());
                let taints = [(etl, None)].into();
                change = TagChange {
                    cordon: Some(CordonState::Off),
                    drop_labels: [ssd].into(),
                    taints,
                    ..change
                };
            }
        }
        Some(ClusterCall::Tag {
            node,
            change: Box::new(change),
            how: DryRun::Really,
        })
    }

    fn heard_of_tag(&mut self, order: &OperatorAction) {
        let OperatorAction::Tag { node, word } = order else {
            return;
        };
        let Some(id) = self.hosts.keys().nth(*node).cloned() else {
            return;
        };
        let now = self.wall();
        self.operator.said.entry((id, *word)).or_insert(now);
    }

    /// A resize of one of the containers that tenants know as live.
    fn resize_of(&self, pick: u64, percent: u64) -> Option<ClusterCall> {
        let all: Vec<_> = self.tenants.iter().flat_map(|t| t.live.iter()).collect();
        let n = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
        let (id, lease) = all.get(usize::try_from(pick % n).ok()?)?;
        let mut resource = lease.resource.clone();
        resource.memory = resource.memory.mul_ratio(percent, 100);
        let version = lease.version.filter(|_| pick.is_multiple_of(3));
        Some(ClusterCall::Resize {
            container: (*id).clone(),
            version,
            size: ContainerSize {
                resource,
                heap: None,
            },
            how: DryRun::Really,
        })
    }
}

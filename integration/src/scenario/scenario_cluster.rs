//! The shape of a simulated cluster: node traits, tenants that hold containers under all rules of
//! placement, and operators who change the cluster meanwhile.
//!
//! It is drawn from the seed before the run, like the rest of a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_node_core::fence::FenceTimeout;
use headroom_rm_core::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::QueueState;
use headroom_rm_core::{AfterDrain, Exclusive, NodeProperties};
use headroom_types::{Bytes, Cpus, Name, NodeId, QueuePath, RequestId, Resource};

use super::trees;
use crate::simulation::random_source::RandomSource;

/// All parts of a scenario except jobs and faults.
#[derive(Clone, Debug)]
pub struct ScenarioCluster {
    /// The traits of each node.
    pub nodes: Vec<NodeSetup>,
    /// The timeout of the self-fence of a disconnected node.
    pub fence: FenceTimeout,
    /// The tenants that request containers.
    pub tenants: Vec<TenantPlan>,
    /// The initial queues, and the trees that can replace them.
    pub trees: Vec<QueueTree>,
    /// Operators' actions with their times in milliseconds.
    pub orders: Vec<(u64, OperatorAction)>,
}

/// The traits of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeSetup {
    /// Traits for placement.
    pub traits: NodeProperties,
    /// The node refuses all resizes.
    pub rigid: bool,
}

/// An application that holds containers for a while. Its master has no tasks and never fails.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    /// Its application's name.
    pub name: Name,
    /// The user who submits it.
    pub user: String,
    /// The queue.
    pub queue: QueuePath,
    /// Application priority; higher is first.
    pub priority: i32,
    /// Time of submission. Milliseconds.
    pub at_ms: u64,
    /// Maximum lifetime.
    pub lifetime: Option<Duration>,
    /// It releases containers on a preemption warning.
    pub heeds: bool,
    /// Its requests.
    pub wants: Vec<TenantRequest>,
}

/// A request for equal containers.
#[derive(Clone, Debug)]
pub struct TenantRequest {
    /// Its name.
    pub request: RequestId,
    /// Size of each container.
    pub size: Resource,
    /// Number of containers that must complete their work.
    pub count: u32,
    /// Request priority; higher is first.
    pub priority: i32,
    /// Work time of each container. Milliseconds.
    pub runs_ms: u64,
    /// Time of the request, counted from the tenant's submission. Milliseconds.
    pub after_ms: u64,
    /// Placement rules.
    pub place: PlacementRules,
    /// Maximum wait.
    pub deadline: Option<Duration>,
}

/// One action of an operator.
#[derive(Clone, Debug)]
pub enum OperatorAction {
    /// Drains a node.
    Drain {
        /// Index of the node.
        node: usize,
        /// Time until its containers are stopped.
        within: Option<Duration>,
        /// The state of the node after the drain.
        then: AfterDrain,
    },
    /// Ends a drain.
    Undrain {
        /// Index of the node.
        node: usize,
    },
    /// Sets the marks of a node.
    Tag {
        /// Index of the node.
        node: usize,
        /// The new mark.
        word: OperatorMark,
    },
    /// Resizes a container.
    Resize {
        /// Selects one of the containers that are alive at that time.
        pick: u64,
        /// New size relative to the present size. Per cent.
        percent: u64,
    },
    /// Changes an application.
    Change {
        /// Index of the tenant.
        tenant: usize,
        /// New queue.
        queue: Option<QueuePath>,
        /// New priority.
        priority: Option<i32>,
        /// New lifetime.
        lifetime: Option<Duration>,
    },
    /// Replaces the tree of queues.
    Queues {
        /// Index of the tree in the scenario.
        tree: usize,
    },
    /// Sets the state of a queue.
    SetQueueState {
        /// The queue.
        queue: QueuePath,
        /// The new state.
        state: QueueState,
    },
    /// Kills an application.
    Kill {
        /// Index of the tenant.
        tenant: usize,
    },
}

/// A mark on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorMark {
    /// Cordoned: no new containers.
    Cordon,
    /// A taint: only containers that tolerate it.
    Taint,
    /// An additional label.
    Label,
    /// No marks.
    Nothing,
}

impl ScenarioCluster {
    /// A cluster without tenants, marks and operators.
    pub fn none(nodes: usize) -> Self {
        ScenarioCluster {
            nodes: vec![NodeSetup::default(); nodes],
            fence: FenceTimeout::Endless,
            tenants: Vec::new(),
            trees: vec![QueueTree::default()],
            orders: Vec::new(),
        }
    }

    /// A random shape for these nodes. Operators act until `calm_ms`.
    pub fn any(chance: &mut RandomSource, offers: &[Resource], from_ms: u64, calm_ms: u64) -> Self {
        let nodes: Vec<NodeSetup> = offers
            .iter()
            .map(|_| standing(&mut chance.split()))
            .collect();
        let trees = trees::any(&mut chance.split());
        let count = chance.between(1, 5);
        let tenants: Vec<TenantPlan> = (0..count)
            .map(|n| tenant(n, &nodes, offers, from_ms, &mut chance.split()))
            .collect();
        let fence = match chance.below(4) {
            0 => FenceTimeout::Endless,
            _ => FenceTimeout::For(Duration::from_secs(chance.between(40, 200))),
        };
        let most = chance.pick(&[0, 3, 8, 16]).unwrap_or(0);
        let mut orders: Vec<(u64, OperatorAction)> = Vec::new();
        for _ in 0..chance.between(0, most) {
            let at = chance.between(from_ms, calm_ms);
            orders.push((at, order(chance, offers.len(), tenants.len(), trees.len())));
        }
        // A separate random source, so that the other choices of a seed do not depend on these
        // actions.
        let mut words = chance.clone().split();
        for _ in 0..words.between(0, most) / 2 {
            let node = words
                .pick(&(0..offers.len()).collect::<Vec<_>>())
                .unwrap_or(0);
            let word = words
                .pick(&[
                    OperatorMark::Cordon,
                    OperatorMark::Taint,
                    OperatorMark::Taint,
                    OperatorMark::Label,
                    OperatorMark::Nothing,
                ])
                .unwrap_or(OperatorMark::Nothing);
            orders.push((
                words.between(from_ms, calm_ms),
                OperatorAction::Tag { node, word },
            ));
        }
        orders.sort_by_key(|(at, _)| *at);
        ScenarioCluster {
            nodes,
            fence,
            tenants,
            trees,
            orders,
        }
    }

    /// Removes the exclusive flag of all nodes.
    pub(super) fn open_to_all(&mut self) {
        self.nodes
            .iter_mut()
            .for_each(|standing| standing.traits.exclusive = Exclusive::No);
    }

    /// The leaf queues of tenants.
    pub fn leaves() -> Vec<QueuePath> {
        trees::leaves()
    }
}

/// Parses a constant name.
pub(crate) fn word<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Display,
{
    text.parse().unwrap_or_else(|e| unreachable!("{text}: {e}"))
}

fn standing(chance: &mut RandomSource) -> NodeSetup {
    let rack = chance
        .pick(&[None, Some("r1"), Some("r1"), Some("r2")])
        .flatten()
        .map(word);
    let labels: BTreeSet<Name> = ["ssd", "big"]
        .into_iter()
        .filter(|_| chance.percent(30))
        .map(word)
        .collect();
    let exclusive = if !labels.is_empty() && chance.percent(15) {
        Exclusive::Yes
    } else {
        Exclusive::No
    };
    let zone = chance.pick(&[None, Some("north"), Some("south")]).flatten();
    let attributes: BTreeMap<Name, String> = zone
        .map(|z| (word("zone"), z.to_owned()))
        .into_iter()
        .collect();
    NodeSetup {
        traits: NodeProperties {
            rack,
            labels,
            exclusive,
            attributes,
            taints: BTreeMap::new(),
        },
        rigid: chance.percent(20),
    }
}

fn tenant(
    n: u64,
    nodes: &[NodeSetup],
    offers: &[Resource],
    from_ms: u64,
    chance: &mut RandomSource,
) -> TenantPlan {
    let largest = offers.iter().map(|o| o.memory).max().unwrap_or_default();
    let wants = (0..chance.between(1, 3))
        .map(|w| want(w, nodes.len(), largest, chance))
        .collect();
    TenantPlan {
        name: word(&format!("tenant{n}")),
        user: format!("user{}", chance.below(3)),
        queue: trees::leaf(chance),
        priority: chance.small(0, 3).cast_signed(),
        at_ms: chance.between(from_ms, 25_000),
        lifetime: chance
            .percent(8)
            .then(|| Duration::from_secs(chance.between(10, 120))),
        heeds: chance.percent(50),
        wants,
    }
}

fn want(n: u64, nodes: usize, largest: Bytes, chance: &mut RandomSource) -> TenantRequest {
    let part = match chance.below(10) {
        0..=6 => chance.between(3, 25),
        7..=8 => chance.between(25, 70),
        _ => chance.between(70, 110),
    };
    TenantRequest {
        request: word(&format!("w{n}")),
        size: Resource::new(
            largest.mul_ratio(part, 100),
            Cpus::from_milli(chance.small(1, 20) * 100),
        ),
        count: if part > 40 {
            chance.small(1, 2)
        } else {
            chance.small(1, 8)
        },
        priority: chance.small(0, 2).cast_signed(),
        runs_ms: chance
            .pick(&[200, 2_000, 10_000, 10_000, 40_000])
            .unwrap_or(2_000)
            + chance.below(500),
        after_ms: chance.pick(&[0, 0, 3_000, 20_000]).unwrap_or(0),
        place: {
            let tolerant = chance.clone().split().percent(25);
            let place = if chance.percent(50) {
                PlacementRules::default()
            } else {
                placement(nodes, chance)
            };
            let tolerate = tolerant.then(|| (word("etl"), None)).into_iter().collect();
            PlacementRules { tolerate, ..place }
        },
        deadline: chance
            .percent(10)
            .then(|| Duration::from_secs(chance.between(1, 60))),
    }
}

fn placement(nodes: usize, chance: &mut RandomSource) -> PlacementRules {
    let mut place = PlacementRules::default();
    for _ in 0..chance.between(1, 2) {
        one_rule(&mut place, nodes, chance);
    }
    place
}

fn one_rule(place: &mut PlacementRules, nodes: usize, chance: &mut RandomSource) {
    let count = u64::try_from(nodes).unwrap_or(1);
    let node = |chance: &mut RandomSource| word::<NodeId>(&format!("n{}", chance.below(count)));
    let rack = |chance: &mut RandomSource| word::<Name>(chance.pick(&["r1", "r2"]).unwrap_or("r1"));
    match chance.below(11) {
        0 => place.nodes = (0..chance.between(1, 2)).map(|_| node(chance)).collect(),
        1 => place.racks = vec![rack(chance)],
        2 => place.avoid_nodes = vec![node(chance)],
        3 => place.avoid_racks = vec![rack(chance)],
        4 => place.prefer_nodes = vec![node(chance)],
        5 => place.prefer_racks = vec![rack(chance)],
        6 => {
            place.prefer_nodes = vec![node(chance)];
            place.relax = match chance.below(3) {
                0 => RelaxationPolicy::AtOnce,
                1 => RelaxationPolicy::After {
                    ms: 1000 * chance.between(1, 20),
                },
                _ => RelaxationPolicy::Never,
            };
        }
        7 => place.labels = [word(chance.pick(&["ssd", "big"]).unwrap_or("ssd"))].into(),
        8 => {
            let values: BTreeSet<String> = ["north".to_owned()].into();
            let zone = chance.pick(&[
                AttributeMatch::Exists,
                AttributeMatch::Absent,
                AttributeMatch::OneOf(values.clone()),
                AttributeMatch::NoneOf(values),
            ]);
            place.attributes = zone.map(|m| (word("zone"), m)).into_iter().collect();
        }
        9 => {
            let level = chance
                .pick(&[
                    PlacementLevel::Node,
                    PlacementLevel::Node,
                    PlacementLevel::Rack,
                ])
                .unwrap_or(PlacementLevel::Node);
            place.apart = Some(AntiAffinityRule {
                from: Vec::new(),
                level,
            });
        }
        _ => place.spread = chance.pick(&[PlacementLevel::Node, PlacementLevel::Rack]),
    }
}

fn order(chance: &mut RandomSource, nodes: usize, tenants: usize, trees: usize) -> OperatorAction {
    let place = |chance: &mut RandomSource, n: usize| {
        usize::try_from(chance.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0)
    };
    let (node, tenant) = (place(chance, nodes), place(chance, tenants));
    match chance.below(20) {
        0..=7 => OperatorAction::Resize {
            pick: chance.any(),
            percent: chance.between(20, 220),
        },
        8..=9 => {
            let within = chance
                .percent(70)
                .then(|| Duration::from_secs(chance.between(1, 40)));
            let then = if chance.percent(30) {
                AfterDrain::Decommission
            } else {
                AfterDrain::Stay
            };
            OperatorAction::Drain { node, within, then }
        }
        10..=11 => OperatorAction::Undrain { node },
        12..=13 => OperatorAction::Change {
            tenant,
            queue: chance.percent(60).then(|| trees::leaf(chance)),
            priority: chance.percent(60).then(|| chance.small(0, 5).cast_signed()),
            lifetime: chance
                .percent(10)
                .then(|| Duration::from_secs(chance.between(20, 200))),
        },
        14..=16 => OperatorAction::Queues {
            tree: place(chance, trees),
        },
        17..=18 => {
            let state = chance
                .pick(&[
                    QueueState::Running,
                    QueueState::Paused,
                    QueueState::Draining,
                    QueueState::Stopped,
                ])
                .unwrap_or_default();
            OperatorAction::SetQueueState {
                queue: trees::leaf(chance),
                state,
            }
        }
        _ => OperatorAction::Kill { tenant },
    }
}

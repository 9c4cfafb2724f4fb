//! What is simulated beside jobs: what nodes are, tenants that hold containers under every rule of placement, and operators who change
//! things while all of that goes on.
//!
//! Drawn from the seed before anything runs, like the rest of a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_node_core::fence::Patience;
use headroom_rm_core::ask::{Apart, Level, Match, Placement, Relax};
use headroom_rm_core::queue::spec::{Gate, Tree};
use headroom_rm_core::{AfterDrain, Exclusive, Traits};
use headroom_types::{Bytes, Cpus, Name, NodeId, QueuePath, RequestId, Resource};

use super::trees;
use crate::world::chance::Chance;

/// Everything of a scenario that is no job.
#[derive(Clone, Debug)]
pub struct Estate {
    /// What each node is.
    pub nodes: Vec<Standing>,
    /// How long a node goes on alone.
    pub fence: Patience,
    /// Who asks for containers.
    pub tenants: Vec<Tenant>,
    /// The queues there are, and those there will be.
    pub trees: Vec<Tree>,
    /// What operators do, and when. Milliseconds.
    pub orders: Vec<(u64, Order)>,
}

/// What one node is.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// For placement.
    pub traits: Traits,
    /// It gives no container another size.
    pub rigid: bool,
}

/// Somebody who holds containers for a while: a master without tasks, that survives everything.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its application's name.
    pub name: Name,
    /// Who submits it.
    pub user: String,
    /// Where to.
    pub queue: QueuePath,
    /// Higher goes first.
    pub priority: i32,
    /// When. Milliseconds.
    pub at_ms: u64,
    /// How long it may live.
    pub lifetime: Option<Duration>,
    /// It gives containers back when it is warned.
    pub heeds: bool,
    /// What it wants.
    pub wants: Vec<Want>,
}

/// Containers of one kind.
#[derive(Clone, Debug)]
pub struct Want {
    /// Its name.
    pub request: RequestId,
    /// Of each.
    pub size: Resource,
    /// How many have to do their work to the end.
    pub count: u32,
    /// Higher goes first.
    pub priority: i32,
    /// How long each works. Milliseconds.
    pub runs_ms: u64,
    /// When it is asked for, after the tenant has come. Milliseconds.
    pub after_ms: u64,
    /// Where.
    pub place: Placement,
    /// How long it may wait.
    pub deadline: Option<Duration>,
}

/// What an operator does.
#[derive(Clone, Debug)]
pub enum Order {
    /// Empties a node.
    Drain {
        /// Which, by its place.
        node: usize,
        /// How long its containers have.
        within: Option<Duration>,
        /// What it is to be.
        then: AfterDrain,
    },
    /// Takes a node back.
    Undrain {
        /// Which, by its place.
        node: usize,
    },
    /// Says something of a node.
    Tag {
        /// Which, by its place.
        node: usize,
        /// What.
        word: Word,
    },
    /// Gives a container another size.
    Resize {
        /// Which of those that live then.
        pick: u64,
        /// Of what it has. Per cent.
        percent: u64,
    },
    /// Changes an application.
    Change {
        /// Which tenant's.
        tenant: usize,
        /// Into another queue.
        queue: Option<QueuePath>,
        /// With another priority.
        priority: Option<i32>,
        /// With another end of its time.
        lifetime: Option<Duration>,
    },
    /// Puts another tree of queues in place.
    Queues {
        /// Which of the scenario's.
        tree: usize,
    },
    /// Opens or closes a queue.
    Gate {
        /// Which.
        queue: QueuePath,
        /// From now on.
        gate: Gate,
    },
    /// Ends an application.
    Kill {
        /// Which tenant's.
        tenant: usize,
    },
}

/// What an operator says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// It gets nothing new.
    Cordon,
    /// Only who tolerates that comes.
    Taint,
    /// It has a label more.
    Label,
    /// Nothing any more.
    Nothing,
}

impl Estate {
    /// Nothing of all that.
    pub fn none(nodes: usize) -> Self {
        Estate {
            nodes: vec![Standing::default(); nodes],
            fence: Patience::Endless,
            tenants: Vec::new(),
            trees: vec![Tree::default()],
            orders: Vec::new(),
        }
    }

    /// Any, for these nodes; operators rest after `calm_ms`.
    pub fn any(chance: &mut Chance, offers: &[Resource], from_ms: u64, calm_ms: u64) -> Self {
        let nodes: Vec<Standing> = offers.iter().map(|_| standing(&mut chance.split())).collect();
        let trees = trees::any(&mut chance.split());
        let count = chance.between(1, 5);
        let tenants: Vec<Tenant> = (0..count).map(|n| tenant(n, &nodes, offers, from_ms, &mut chance.split())).collect();
        let fence = match chance.below(4) {
            0 => Patience::Endless,
            _ => Patience::For(Duration::from_secs(chance.between(40, 200))),
        };
        let most = chance.pick(&[0, 3, 8, 16]).unwrap_or(0);
        let mut orders: Vec<(u64, Order)> = Vec::new();
        for _ in 0..chance.between(0, most) {
            let at = chance.between(from_ms, calm_ms);
            orders.push((at, order(chance, offers.len(), tenants.len(), trees.len())));
        }
        // Drawn from a source of their own, so that a seed means otherwise what it meant before there were any.
        let mut words = chance.clone().split();
        for _ in 0..words.between(0, most) / 2 {
            let node = words.pick(&(0..offers.len()).collect::<Vec<_>>()).unwrap_or(0);
            let word = words.pick(&[Word::Cordon, Word::Taint, Word::Taint, Word::Label, Word::Nothing]).unwrap_or(Word::Nothing);
            orders.push((words.between(from_ms, calm_ms), Order::Tag { node, word }));
        }
        orders.sort_by_key(|(at, _)| *at);
        Estate { nodes, fence, tenants, trees, orders }
    }

    /// No node is kept for anybody.
    pub(super) fn open_to_all(&mut self) {
        self.nodes.iter_mut().for_each(|standing| standing.traits.exclusive = Exclusive::No);
    }

    /// The queues that tenants can be in.
    pub fn leaves() -> Vec<QueuePath> {
        trees::leaves()
    }
}

/// A word of this file.
pub(crate) fn word<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Display,
{
    text.parse().unwrap_or_else(|e| unreachable!("{text}: {e}"))
}

fn standing(chance: &mut Chance) -> Standing {
    let rack = chance.pick(&[None, Some("r1"), Some("r1"), Some("r2")]).flatten().map(word);
    let labels: BTreeSet<Name> = ["ssd", "big"].into_iter().filter(|_| chance.percent(30)).map(word).collect();
    let exclusive = if !labels.is_empty() && chance.percent(15) { Exclusive::Yes } else { Exclusive::No };
    let zone = chance.pick(&[None, Some("north"), Some("south")]).flatten();
    let attributes: BTreeMap<Name, String> = zone.map(|z| (word("zone"), z.to_owned())).into_iter().collect();
    Standing { traits: Traits { rack, labels, exclusive, attributes, taints: BTreeMap::new() }, rigid: chance.percent(20) }
}

fn tenant(n: u64, nodes: &[Standing], offers: &[Resource], from_ms: u64, chance: &mut Chance) -> Tenant {
    let largest = offers.iter().map(|o| o.memory).max().unwrap_or_default();
    let wants = (0..chance.between(1, 3)).map(|w| want(w, nodes.len(), largest, chance)).collect();
    Tenant {
        name: word(&format!("tenant{n}")),
        user: format!("user{}", chance.below(3)),
        queue: trees::leaf(chance),
        priority: chance.small(0, 3).cast_signed(),
        at_ms: chance.between(from_ms, 25_000),
        lifetime: chance.percent(8).then(|| Duration::from_secs(chance.between(10, 120))),
        heeds: chance.percent(50),
        wants,
    }
}

fn want(n: u64, nodes: usize, largest: Bytes, chance: &mut Chance) -> Want {
    let part = match chance.below(10) {
        0..=6 => chance.between(3, 25),
        7..=8 => chance.between(25, 70),
        _ => chance.between(70, 110),
    };
    Want {
        request: word(&format!("w{n}")),
        size: Resource::new(largest.mul_ratio(part, 100), Cpus::from_milli(chance.small(1, 20) * 100)),
        count: if part > 40 { chance.small(1, 2) } else { chance.small(1, 8) },
        priority: chance.small(0, 2).cast_signed(),
        runs_ms: chance.pick(&[200, 2_000, 10_000, 10_000, 40_000]).unwrap_or(2_000) + chance.below(500),
        after_ms: chance.pick(&[0, 0, 3_000, 20_000]).unwrap_or(0),
        place: {
            let tolerant = chance.clone().split().percent(25);
            let place = if chance.percent(50) { Placement::default() } else { placement(nodes, chance) };
            let tolerate = tolerant.then(|| (word("etl"), None)).into_iter().collect();
            Placement { tolerate, ..place }
        },
        deadline: chance.percent(10).then(|| Duration::from_secs(chance.between(1, 60))),
    }
}

fn placement(nodes: usize, chance: &mut Chance) -> Placement {
    let mut place = Placement::default();
    for _ in 0..chance.between(1, 2) {
        one_rule(&mut place, nodes, chance);
    }
    place
}

fn one_rule(place: &mut Placement, nodes: usize, chance: &mut Chance) {
    let count = u64::try_from(nodes).unwrap_or(1);
    let node = |chance: &mut Chance| word::<NodeId>(&format!("n{}", chance.below(count)));
    let rack = |chance: &mut Chance| word::<Name>(chance.pick(&["r1", "r2"]).unwrap_or("r1"));
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
                0 => Relax::AtOnce,
                1 => Relax::After(Duration::from_secs(chance.between(1, 20))),
                _ => Relax::Never,
            };
        }
        7 => place.labels = [word(chance.pick(&["ssd", "big"]).unwrap_or("ssd"))].into(),
        8 => {
            let values: BTreeSet<String> = ["north".to_owned()].into();
            let zone = chance.pick(&[Match::Exists, Match::Absent, Match::OneOf(values.clone()), Match::NoneOf(values)]);
            place.attributes = zone.map(|m| (word("zone"), m)).into_iter().collect();
        }
        9 => {
            let level = chance.pick(&[Level::Node, Level::Node, Level::Rack]).unwrap_or(Level::Node);
            place.apart = Some(Apart { from: Vec::new(), level });
        }
        _ => place.spread = chance.pick(&[Level::Node, Level::Rack]),
    }
}

fn order(chance: &mut Chance, nodes: usize, tenants: usize, trees: usize) -> Order {
    let place = |chance: &mut Chance, n: usize| usize::try_from(chance.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0);
    let (node, tenant) = (place(chance, nodes), place(chance, tenants));
    match chance.below(20) {
        0..=7 => Order::Resize { pick: chance.any(), percent: chance.between(20, 220) },
        8..=9 => {
            let within = chance.percent(70).then(|| Duration::from_secs(chance.between(1, 40)));
            let then = if chance.percent(30) { AfterDrain::Decommission } else { AfterDrain::Stay };
            Order::Drain { node, within, then }
        }
        10..=11 => Order::Undrain { node },
        12..=13 => Order::Change {
            tenant,
            queue: chance.percent(60).then(|| trees::leaf(chance)),
            priority: chance.percent(60).then(|| chance.small(0, 5).cast_signed()),
            lifetime: chance.percent(10).then(|| Duration::from_secs(chance.between(20, 200))),
        },
        14..=16 => Order::Queues { tree: place(chance, trees) },
        17..=18 => {
            let gate = chance.pick(&[Gate::Open, Gate::Paused, Gate::Draining, Gate::Closed]).unwrap_or_default();
            Order::Gate { queue: trees::leaf(chance), gate }
        }
        _ => Order::Kill { tenant },
    }
}

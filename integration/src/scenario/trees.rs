//! Queues for a scenario: several trees over the same leaves, so that one can replace another at
//! any time.
//!
//! Each tree contains `root.default` without limits; jobs use it. The last tree has no limits: with
//! it, each request that fits a node fits its queue.

use std::collections::BTreeMap;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{
    LeafOrder, QueueDefinition, QueuePreemption, QueueShare, ShareOrAmount,
};
use headroom_types::{Name, QueuePath};

use super::scenario_cluster::word;
use crate::simulation::random_source::RandomSource;

/// Leaves below the root, and leaves below `lab`.
const LEAVES: [&str; 2] = ["etl", "adhoc"];
const LAB: [&str; 2] = ["a", "b"];

/// The strictness of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Only guarantees and orders.
    Mild,
    /// Limits of every kind.
    Strict,
}

/// Random trees, at least one.
pub(super) fn any(chance: &mut RandomSource) -> Vec<QueueTree> {
    if chance.percent(15) {
        return vec![tree(Mood::Mild, chance)];
    }
    let strict = chance.between(1, 2);
    let mut trees: Vec<QueueTree> = (0..strict).map(|_| tree(Mood::Strict, chance)).collect();
    trees.push(tree(Mood::Mild, chance));
    trees
}

/// All leaves for tenants.
pub(super) fn leaves() -> Vec<QueuePath> {
    let below_root = LEAVES.iter().map(|name| format!("root.{name}"));
    let below_lab = LAB.iter().map(|name| format!("root.lab.{name}"));
    below_root
        .chain(below_lab)
        .chain(["root.default".to_owned()])
        .map(|path| word(&path))
        .collect()
}

/// A random leaf.
pub(super) fn leaf(chance: &mut RandomSource) -> QueuePath {
    chance
        .pick(&leaves())
        .unwrap_or_else(QueuePath::default_leaf)
}

fn tree(mood: Mood, chance: &mut RandomSource) -> QueueTree {
    let named = |name: &&str, spec| (word::<Name>(name), spec);
    let mut children: BTreeMap<Name, QueueDefinition> = LEAVES
        .iter()
        .map(|name| named(name, leaf_spec(mood, 250, chance)))
        .collect();
    let below = LAB
        .iter()
        .map(|name| named(name, leaf_spec(mood, 500, chance)))
        .collect();
    let lab = QueueDefinition {
        children: below,
        state: Default::default(),
        ..shares(mood, 250, chance)
    };
    children.extend([
        named(&"lab", lab),
        named(&"default", QueueDefinition::default()),
    ]);
    let root = QueueDefinition {
        children,
        ..QueueDefinition::default()
    };
    QueueTree::new(root)
        .unwrap_or_else(|problems| unreachable!("a scenario with invalid queues: {problems:?}"))
}

fn part(thousandths: u32) -> QueueShare {
    QueueShare {
        memory: Some(ShareOrAmount::Part(thousandths)),
        ..QueueShare::default()
    }
}

/// The shares of a queue relative to its siblings.
fn shares(mood: Mood, most: u32, chance: &mut RandomSource) -> QueueDefinition {
    let guaranteed = if chance.percent(70) {
        part(chance.small(50, most))
    } else {
        QueueShare::default()
    };
    let maximum = if mood == Mood::Strict && chance.percent(40) {
        part(chance.small(most, 1000))
    } else {
        QueueShare::default()
    };
    let weight = chance.percent(30).then(|| chance.small(1, 5));
    QueueDefinition {
        guaranteed,
        maximum,
        weight,
        priority: chance.small(0, 1).cast_signed(),
        ..QueueDefinition::default()
    }
}

fn leaf_spec(mood: Mood, most: u32, chance: &mut RandomSource) -> QueueDefinition {
    let order = if chance.percent(50) {
        LeafOrder::Fair
    } else {
        LeafOrder::Fifo
    };
    let preemptable = if chance.percent(15) {
        QueuePreemption::No
    } else {
        QueuePreemption::Yes
    };
    let mild = QueueDefinition {
        order,
        preemptable,
        ..shares(mood, most, chance)
    };
    if mood == Mood::Mild {
        return mild;
    }
    QueueDefinition {
        user_limit: chance.percent(30).then(|| chance.small(200, 1000)),
        master_share: chance.percent(30).then(|| chance.small(100, 1000)),
        max_running: chance.percent(30).then(|| chance.small(1, 3)),
        max_apps: chance.percent(10).then(|| chance.small(1, 5)),
        max_lifetime_ms: chance.percent(5).then(|| chance.between(20_000, 200_000)),
        ..mild
    }
}

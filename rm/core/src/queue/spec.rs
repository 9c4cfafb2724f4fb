//! What an operator says about queues: a tree of shares, limits and rules. Plain data; [`Tree`] cannot hold nonsense.
//!
//! Owned by whoever hands it in. Never says what a queue has or who waits in it.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, Name, QueuePath};

/// How much of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount<T> {
    /// Of what the parent queue has; for the root, of all member nodes. Thousandths.
    Part(u32),
    /// So much.
    Exactly(T),
}

/// A share of the cluster, for each resource by itself. A resource that is not named follows `memory`'s part, or is unbounded
/// where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Of memory.
    pub memory: Option<Amount<Bytes>>,
    /// Of processors.
    pub cpus: Option<Amount<Cpus>>,
    /// Of countable resources.
    pub extra: BTreeMap<Name, Amount<u64>>,
}

/// Who goes first among the applications of one leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Priority, then first come, first served.
    #[default]
    Fifo,
    /// Priority, then whoever has least of what it uses most.
    Fair,
}

/// What a queue takes in and gives out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Applications come in and containers are granted.
    #[default]
    Open,
    /// Nothing is granted; applications still come in and wait.
    Paused,
    /// No application comes in; those there go on to their end.
    Draining,
    /// No application comes in and nothing is granted.
    Closed,
}

/// Whether containers may be taken from a queue that has more than its guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemptable {
    /// They may.
    #[default]
    Yes,
    /// Never.
    No,
}

/// One queue as written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSpec {
    /// What it can count on.
    pub guaranteed: Share,
    /// What it can never pass. Unbounded where left out.
    pub maximum: Share,
    /// Against its siblings, when fairness is measured. 1 when left out.
    pub weight: Option<u32>,
    /// Higher is served first among siblings, before fairness.
    pub priority: i32,
    /// Among its applications; for leaves.
    pub order: Order,
    /// Most of the queue's maximum (of the cluster, where it has none) that one user can have. Thousandths; 1000 when left out.
    pub user_limit: Option<u32>,
    /// Most of the queue's maximum that masters can have. Thousandths; 1000 when left out.
    pub master_share: Option<u32>,
    /// Most applications whose master has a container or has registered.
    pub max_running: Option<u32>,
    /// Most applications that have not ended.
    pub max_apps: Option<u32>,
    /// What it takes in and gives out.
    pub gate: Gate,
    /// Whether containers may be taken from it for others.
    pub preemptable: Preemptable,
    /// Longest life of an application in it. Milliseconds.
    pub max_lifetime_ms: Option<u64>,
    /// The queues in it. None makes it a leaf.
    pub children: BTreeMap<Name, QueueSpec>,
}

/// A tree that was found right as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: QueueSpec,
}

/// One thing that is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queue}: {key}: {what}; {fix}")]
pub struct QueueProblem {
    /// Which queue.
    pub queue: QueuePath,
    /// Which of its keys.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
}

impl Tree {
    /// The tree below `root`, when nothing is wrong with it.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn new(root: QueueSpec) -> Result<Tree, Vec<QueueProblem>> {
        let problems = super::valid::problems(&root);
        if problems.is_empty() { Ok(Tree { root }) } else { Err(problems) }
    }
    /// The same tree with another gate at one queue. `None` when there is no such queue.
    pub(crate) fn with_gate(&self, queue: &QueuePath, gate: Gate) -> Option<Tree> {
        let mut tree = self.clone();
        let mut spec = &mut tree.root;
        for word in queue.as_str().split('.').skip(1) {
            spec = spec.children.iter_mut().find(|(name, _)| name.as_str() == word)?.1;
        }
        spec.gate = gate;
        Some(tree)
    }
    /// Every queue, the root first.
    pub fn paths(&self) -> impl Iterator<Item = QueuePath> {
        self.walk().into_iter().map(|(path, _)| path)
    }
    /// The queues that applications go to.
    pub fn leaves(&self) -> impl Iterator<Item = QueuePath> {
        self.walk().into_iter().filter(|(_, spec)| spec.children.is_empty()).map(|(path, _)| path)
    }
    fn walk(&self) -> Vec<(QueuePath, &QueueSpec)> {
        let mut all = vec![(QueuePath::root(), &self.root)];
        let mut at = 0;
        while let Some((path, spec)) = all.get(at).cloned() {
            all.extend(spec.children.iter().map(|(name, child)| (path.child(name), child)));
            at += 1;
        }
        all
    }
    /// The root with all below it.
    pub fn root(&self) -> &QueueSpec {
        &self.root
    }
}

impl Default for Tree {
    /// One leaf, `root.default`, that may have everything.
    fn default() -> Self {
        let leaf = QueueSpec::default();
        let children = "default".parse::<Name>().map(|name| (name, leaf)).into_iter().collect();
        Tree { root: QueueSpec { children, ..QueueSpec::default() } }
    }
}

impl Gate {
    /// The word people see.
    pub fn as_str(self) -> &'static str {
        match self {
            Gate::Open => "open",
            Gate::Paused => "paused",
            Gate::Draining => "draining",
            Gate::Closed => "closed",
        }
    }
    /// Containers are granted.
    pub fn grants(self) -> bool {
        match self {
            Gate::Open | Gate::Draining => true,
            Gate::Paused | Gate::Closed => false,
        }
    }
    /// Applications come in.
    pub fn admits(self) -> bool {
        match self {
            Gate::Open | Gate::Paused => true,
            Gate::Draining | Gate::Closed => false,
        }
    }
}

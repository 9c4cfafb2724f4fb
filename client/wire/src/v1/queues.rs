//! Queues: the tree as an operator writes it, and what readers see of it.
//!
//! The same keys stand in the configuration file of the resource manager and in `PUT /v1/queues`.

use std::collections::BTreeMap;

use headroom_types::{Name, QueuePath, Resource};
use serde::{Deserialize, Serialize};

use super::share::{Percent, Share};

/// One queue as written down, with the queues in it. `PUT /v1/queues` takes the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    /// What it can count on: `"40%"` of its parent, or so much of each resource.
    #[serde(skip_serializing_if = "Share::is_empty")]
    pub guaranteed: Share,
    /// What it can never pass. Unbounded where left out.
    #[serde(skip_serializing_if = "Share::is_empty")]
    pub maximum: Share,
    /// Against its siblings, when fairness is measured. 1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Higher is served first among siblings, before fairness.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Who goes first among its applications.
    #[serde(skip_serializing_if = "is_usual")]
    pub order: Order,
    /// Most of the queue's maximum that one user can have. `"100%"` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_limit: Option<Percent>,
    /// Most of the queue's maximum that application masters can have. `"100%"` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_share: Option<Percent>,
    /// Most applications that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Most applications that have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_apps: Option<u32>,
    /// What it takes in and gives out.
    #[serde(skip_serializing_if = "is_usual")]
    pub gate: Gate,
    /// Whether containers may be taken from it while it has more than its guarantee.
    #[serde(skip_serializing_if = "is_usual")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub preemptable: Preemptable,
    /// Longest life of an application in it. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lifetime_ms: Option<u64>,
    /// The queues in it. None makes it a leaf.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub queues: BTreeMap<Name, QueueSpec>,
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// Who goes first among the applications of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Priority, then first come, first served.
    #[default]
    Fifo,
    /// Priority, then whoever has least.
    Fair,
}

/// What a queue takes in and gives out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
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

impl Gate {
    /// Every one of them.
    pub const ALL: [Gate; 4] = [Gate::Open, Gate::Paused, Gate::Draining, Gate::Closed];

    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Gate::Open => "open",
            Gate::Paused => "paused",
            Gate::Draining => "draining",
            Gate::Closed => "closed",
        }
    }
}

/// Whether containers may be taken from a queue for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Preemptable {
    /// They may: `true`.
    #[default]
    Yes,
    /// Never: `false`.
    No,
}

impl From<bool> for Preemptable {
    fn from(yes: bool) -> Self {
        if yes { Preemptable::Yes } else { Preemptable::No }
    }
}
impl From<Preemptable> for bool {
    fn from(preemptable: Preemptable) -> bool {
        preemptable == Preemptable::Yes
    }
}

/// `POST /v1/queues/{path}/gate`. Answer: the [`QueueView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetGate {
    /// From now on.
    pub gate: Gate,
}

/// `GET /v1/queues`, and the answer to `PUT` and `PATCH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueuesView {
    /// Counts up with every change of the tree; `If-Match` takes it.
    pub generation: u64,
    /// The root with all below it.
    pub root: QueueView,
}

/// One queue: `GET /v1/queues/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueView {
    /// Its place in the tree.
    pub path: QueuePath,
    /// As written down, the queues in it left out.
    pub spec: QueueSpec,
    /// What it takes in and gives out in effect: its own gate and those of the queues that hold it.
    pub gate: Gate,
    /// What it can count on now; nothing of a resource it has no guarantee of.
    pub guaranteed: Resource,
    /// What it can never pass now.
    pub maximum: Resource,
    /// What its containers have.
    pub used: Resource,
    /// Of that, what application masters have.
    pub masters: Resource,
    /// Its use against its guarantee, or against the cluster where it has none, of the resource where that is largest.
    /// Thousandths.
    pub share: u64,
    /// It has less than it can count on.
    pub below_guarantee: bool,
    /// Containers its applications have.
    pub containers: u32,
    /// Containers asked for and not yet granted.
    pub pending: u64,
    /// What those containers would take.
    pub waiting: Resource,
    /// Applications that have not ended.
    pub apps: u32,
    /// Applications whose master has a container or has registered.
    pub running: u32,
    /// Who has what in it; for leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<QueueUser>,
    /// The queues in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub queues: Vec<QueueView>,
}

/// What one user has in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueUser {
    /// Who.
    pub user: String,
    /// Applications that have not ended.
    pub apps: u32,
    /// What their containers have.
    pub used: Resource,
}

/// What becomes of a tree that was sent with `dry_run=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueuesChecked {
    /// The generation that would be in force.
    pub generation: u64,
    /// The tree as it was understood.
    pub tree: QueueSpec,
}

/// One thing that is wrong with a tree of queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueProblem {
    /// Which queue.
    pub queue: String,
    /// Which of its keys.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
}

impl QueueView {
    /// This queue and all below it, each before those in it.
    pub fn walk(&self) -> Vec<&QueueView> {
        let mut found = vec![self];
        let mut at = 0;
        while let Some(next) = found.get(at) {
            let below: Vec<&QueueView> = next.queues.iter().collect();
            found.splice(at + 1..at + 1, below);
            at += 1;
        }
        found
    }

    /// The queue of this path, here or below.
    pub fn find(&self, path: &QueuePath) -> Option<&QueueView> {
        if self.path == *path {
            return Some(self);
        }
        self.queues.iter().find(|q| path.is_within(&q.path))?.find(path)
    }
}

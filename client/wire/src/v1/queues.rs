//! Queues: the tree as operators write it, and its state as users see it.
//!
//! The configuration file of the resource manager and `PUT /v1/queues` use the same keys.

use std::collections::BTreeMap;

use headroom_types::{Name, QueuePath, Resource, word_enum};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::share::{Percent, ResourceShare};

/// Settings of one queue and of the queues in it. `PUT /v1/queues` takes the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    /// Guarantee: `"40%"` of its parent, or a quantity of each resource.
    #[serde(skip_serializing_if = "ResourceShare::is_empty")]
    pub guaranteed: ResourceShare,
    /// Maximum. Unlimited if omitted.
    #[serde(skip_serializing_if = "ResourceShare::is_empty")]
    pub maximum: ResourceShare,
    /// Weight against its siblings in fair sharing. The default is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Priority among siblings, before fair sharing; higher values go first.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Order of its applications.
    #[serde(skip_serializing_if = "is_usual")]
    pub order: ApplicationOrder,
    /// Maximum of one user, as a share of the queue's maximum. The default is `"100%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_limit: Option<Percent>,
    /// Maximum of application masters, as a share of the queue's maximum. The default is `"100%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_share: Option<Percent>,
    /// Maximum number of running applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Maximum number of applications that have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_apps: Option<u32>,
    /// State of the queue; the default is `running`.
    #[serde(skip_serializing_if = "is_usual")]
    pub state: QueueRunState,
    /// True if other queues may preempt its containers above its guarantee.
    #[serde(skip_serializing_if = "is_usual")]
    #[schema(value_type = bool)]
    pub preemptable: Preemptable,
    /// Maximum lifetime of an application. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lifetime_ms: Option<u64>,
    /// Child queues. A queue without children is a leaf.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(no_recursion)]
    pub queues: BTreeMap<Name, QueueSpec>,
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

word_enum! {
    /// The order of the applications of a queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ApplicationOrder: "is not an order of applications; use" {
        /// Priority, then order of submission.
        #[default]
        Fifo = "fifo",
        /// Priority, then the smallest dominant share.
        Fair = "fair",
    }
}

word_enum! {
    /// The state of a queue.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum QueueRunState: "is not a state of a queue; use" {
        /// Accepts applications and grants containers.
        #[default]
        Running = "running",
        /// Accepts applications, which wait; grants no containers.
        Paused = "paused",
        /// Accepts no applications; existing applications run to their end.
        Draining = "draining",
        /// Accepts no applications and grants no containers.
        Stopped = "stopped",
    }
}

/// Whether other queues may preempt containers of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Preemptable {
    /// Preemptable: `true`.
    #[default]
    Yes,
    /// Not preemptable: `false`.
    No,
}

impl From<bool> for Preemptable {
    fn from(yes: bool) -> Self {
        if yes {
            Preemptable::Yes
        } else {
            Preemptable::No
        }
    }
}
impl From<Preemptable> for bool {
    fn from(preemptable: Preemptable) -> bool {
        preemptable == Preemptable::Yes
    }
}

/// `POST /v1/queues/{path}/state`. Response: [`QueueView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQueueState {
    /// The new state.
    pub state: QueueRunState,
}

/// `GET /v1/queues`, and the response to `PUT` and `PATCH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuesView {
    /// Generation of the tree, incremented by every change; usable in `If-Match`.
    pub generation: u64,
    /// The root queue with all queues below it.
    pub root: QueueView,
}

/// A queue: `GET /v1/queues/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Path in the tree.
    pub path: QueuePath,
    /// Its settings, without its child queues.
    pub spec: QueueSpec,
    /// Effective state: the combination of its own state and those of its ancestors.
    pub state: QueueRunState,
    /// Current guarantee; zero for a resource without a guarantee.
    pub guaranteed: Resource,
    /// Current maximum.
    pub maximum: Resource,
    /// Resources of its containers.
    pub used: Resource,
    /// Resources of application masters, included in `used`.
    pub masters: Resource,
    /// Use divided by the guarantee, or by the cluster without a guarantee, of the dominant
    /// resource. Thousandths.
    pub share: u64,
    /// True if its use is below its guarantee.
    pub below_guarantee: bool,
    /// Containers of its applications.
    pub containers: u32,
    /// Requested containers that are not granted yet.
    pub pending: u64,
    /// Resources of those containers.
    pub waiting: Resource,
    /// Applications that have not ended.
    pub apps: u32,
    /// Applications whose master has a container or has registered.
    pub running: u32,
    /// Use by user; for leaf queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<QueueUser>,
    /// Child queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub queues: Vec<QueueView>,
}

/// The use of one user in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueUser {
    /// User.
    pub user: String,
    /// Applications that have not ended.
    pub apps: u32,
    /// Resources of their containers.
    pub used: Resource,
}

/// The response to `PUT /v1/queues` with `dry_run=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueTreeCheck {
    /// The generation that the tree would have.
    pub generation: u64,
    /// The parsed tree.
    pub tree: QueueSpec,
}

/// An error in a tree of queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueProblem {
    /// The queue.
    pub queue: String,
    /// The key of the queue.
    pub key: String,
    /// The error.
    pub what: String,
    /// The correction.
    pub fix: String,
}

impl QueueView {
    /// This queue and all queues below it, each queue before its children.
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

    /// The queue with this path, here or below.
    pub fn find(&self, path: &QueuePath) -> Option<&QueueView> {
        if self.path == *path {
            return Some(self);
        }
        self.queues
            .iter()
            .find(|q| path.is_within(&q.path))?
            .find(path)
    }
}

//! Queue definitions of an operator: a tree of shares, limits and rules.
//!
//! Plain data; a [`QueueTree`](super::QueueTree) of these definitions is always valid. This module
//! knows neither the allocated resources of a queue nor its waiting requests.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, Name, QueuePath, word_enum};

/// Amount of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareOrAmount<T> {
    /// Part of the parent queue's resources; for the root, of all member nodes. Thousandths.
    Part(u32),
    /// Absolute amount.
    Exactly(T),
}

/// Share of the cluster, per resource. A resource that is not named follows `memory`'s part, or is
/// unbounded if memory has no part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueShare {
    /// Memory.
    pub memory: Option<ShareOrAmount<Bytes>>,
    /// Processors.
    pub cpus: Option<ShareOrAmount<Cpus>>,
    /// Countable resources.
    pub extra: BTreeMap<Name, ShareOrAmount<u64>>,
}

impl QueueShare {
    /// Whether no resource is a part of the parent queue's resources.
    pub(crate) fn is_absolute(&self) -> bool {
        fn is_amount<T>(share: &ShareOrAmount<T>) -> bool {
            match share {
                ShareOrAmount::Part(_) => false,
                ShareOrAmount::Exactly(_) => true,
            }
        }
        self.memory.as_ref().is_none_or(is_amount)
            && self.cpus.as_ref().is_none_or(is_amount)
            && self.extra.values().all(is_amount)
    }
}

word_enum! {
    /// Scheduling order of the applications of one leaf.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LeafOrder: "is not an order of applications; use" {
        /// Priority, then order of arrival.
        #[default]
        Fifo = "fifo",
        /// Priority, then the smallest dominant share.
        Fair = "fair",
    }
}

word_enum! {
    /// State of a queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum QueueState: "is not a state of a queue; use" {
        /// Accepts applications and grants containers.
        #[default]
        Running = "running",
        /// Grants no containers; still accepts applications, which wait.
        Paused = "paused",
        /// Accepts no applications; its applications continue to their end.
        Draining = "draining",
        /// Accepts no applications and grants no containers.
        Stopped = "stopped",
    }
}

/// Whether containers of a queue above its guarantee may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePreemption {
    /// Its containers may be preempted.
    #[default]
    Yes,
    /// Its containers are never preempted.
    No,
}

/// Definition of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDefinition {
    /// Guaranteed share.
    pub guaranteed: QueueShare,
    /// Maximum share. Unbounded where left out.
    pub maximum: QueueShare,
    /// Weight among siblings for fair sharing. 1 when left out.
    pub weight: Option<u32>,
    /// Priority among siblings, before fairness; higher goes first.
    pub priority: i32,
    /// Order of its applications; only for leaves.
    pub order: LeafOrder,
    /// Largest part of the queue's maximum (of the cluster without a maximum) that one user can
    /// use. Thousandths; 1000 when left out.
    pub user_limit: Option<u32>,
    /// Largest part of the queue's maximum that masters can use. Thousandths; 1000 when left out.
    pub master_share: Option<u32>,
    /// Most applications whose master has a container or has registered.
    pub max_running: Option<u32>,
    /// Most applications that have not ended.
    pub max_apps: Option<u32>,
    /// State of the queue.
    pub state: QueueState,
    /// Whether its containers may be preempted.
    pub preemptable: QueuePreemption,
    /// Longest lifetime of an application. Milliseconds.
    pub max_lifetime_ms: Option<u64>,
    /// Child queues. A queue without children is a leaf.
    pub children: BTreeMap<Name, QueueDefinition>,
}

/// Problem of a queue definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queue}: {key}: {what}; {fix}")]
pub struct QueueDefinitionError {
    /// The queue.
    pub queue: QueuePath,
    /// The key.
    pub key: &'static str,
    /// Description of the problem.
    pub what: String,
    /// Correction.
    pub fix: String,
}

impl QueueState {
    /// True when containers are granted.
    pub fn grants(self) -> bool {
        match self {
            QueueState::Running | QueueState::Draining => true,
            QueueState::Paused | QueueState::Stopped => false,
        }
    }
    /// True when applications are accepted.
    pub fn admits(self) -> bool {
        match self {
            QueueState::Running | QueueState::Paused => true,
            QueueState::Draining | QueueState::Stopped => false,
        }
    }
}

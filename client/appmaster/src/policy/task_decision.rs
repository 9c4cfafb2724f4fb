//! The decision on a task: done, again or given up. The policy makes it, a record stores it, and
//! the core applies it.

use serde::{Deserialize, Serialize};

use super::attempt_size::AttemptSize;

/// The decision on a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskDecision {
    /// The task is done.
    Done,
    /// The task runs again.
    Again {
        /// The size of the next attempt.
        size: AttemptSize,
        /// Minimum wait. Milliseconds.
        wait_ms: u64,
        /// The place to avoid, as long as another one exists.
        elsewhere: AvoidScope,
        /// The reason, for display.
        why: String,
    },
    /// The task is given up.
    GiveUp {
        /// The cause.
        cause: GiveUpCause,
        /// The message; contains the task, the size and the remedy.
        message: String,
    },
}

/// The place that a repeated attempt must avoid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AvoidScope {
    /// None.
    No,
    /// The executor; another one is used.
    Executor,
    /// The node; another one is used.
    Node,
}

/// The cause for which a task was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUpCause {
    /// Killed at the largest possible size, or at the end of the mode's ladder.
    Memory,
    /// Failed too often by itself.
    Plain,
    /// Lost too often without a failure of its own.
    Transient,
    /// Must not run twice.
    NotIdempotent,
    /// Infeasible: no node can ever hold it.
    NeverFits,
    /// Cancelled by an order.
    Cancelled,
}

/// The decision to run again without a wait.
pub(super) fn again(
    size: AttemptSize,
    elsewhere: AvoidScope,
    why: impl Into<String>,
) -> TaskDecision {
    TaskDecision::Again {
        size,
        wait_ms: 0,
        elsewhere,
        why: why.into(),
    }
}

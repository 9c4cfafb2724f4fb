//! The budgets of a task: the account to which an end is charged, and the spent part. The core
//! stores them with each task; they never change by themselves.

use serde::{Deserialize, Serialize};

/// The spent part of a task's budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentBudgets {
    /// Attempts that ended with the task's own memory failure.
    pub memory: u32,
    /// Attempts that ended as a plain failure.
    pub plain: u32,
    /// Attempts that were lost without a failure of the task.
    pub transient: u32,
    /// Attempts with the same size after a kill that page cache explains.
    pub spikes: u32,
    /// Attempts that were killed for an outer limit. Not a budget: each makes the next wait longer.
    #[serde(default)]
    pub collateral: u32,
}

/// The budget to which an end is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeAccount {
    /// None: the task succeeded.
    Success,
    /// The task's own memory failures.
    Memory,
    /// A memory failure at the task's own limit that page cache explains; counted, and retried once
    /// with the same size.
    Spike,
    /// Plain failures.
    Plain,
    /// Lost without a failure of the task.
    Transient,
    /// None: lost to another task's memory failure.
    #[serde(alias = "innocent")] // the name in the version before
    Bystander,
    /// None: the platform preempted the container, or drained the node.
    Taken,
    /// None: the task was killed for an outer limit.
    Collateral,
}

//! The decision on a task whose attempt has ended: a pure function from facts to one decision.
//!
//! Each mode is a small module behind [`MemoryFailureMode`]. All modes use the same facts,
//! classified by the same [`classify`]. The policy has no owner and no state: the spent budgets are
//! part of the facts.
//!
//! *Architecture Invariant*: no clock, no files, no state.

pub mod blame;
pub mod classify;
pub mod collateral;
pub mod contention;
mod databricks;
mod fixed;
pub mod grow;
mod headroom;
pub mod ladder;
pub mod leak;
mod pinterest;
pub mod sizing;
pub mod slot_placement;
pub mod tovar;
pub mod treatment;
mod uber;

pub use headroom_sizes::learn;

use std::time::Duration;

use headroom_config::{ExecutorSpec, Idempotent, RetrySpec, Runtime};
use headroom_types::{Bytes, Dimension, ExitReason, Profile};
use headroom_wire::v1::job::MemoryFailureMode;
use serde::{Deserialize, Serialize};

use blame::AttemptFate;
use classify::AttemptEndClass;
use learn::SizeAfterKill;
use treatment::ChosenTreatment;

/// The place where an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPlace {
    /// In slots of a shared executor.
    Shared,
    /// In a container that was requested for this task alone.
    Own,
}

/// The size of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSize {
    /// Heap, overhead, processors.
    pub profile: Profile,
    /// Occupied slots of the executor; 1 in an own container.
    pub slots: u32,
    /// The rung; 1 for the size of the stage.
    pub rung: u32,
    /// The place.
    pub place: AttemptPlace,
}

impl AttemptSize {
    /// Heap and overhead together.
    pub fn memory(&self) -> Bytes {
        self.profile.memory()
    }
}

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
    /// Lost to another task's memory failure.
    Innocent,
    /// None: the platform preempted the container, or drained the node.
    Taken,
    /// None: the task was killed for an outer limit.
    Collateral,
}

/// The facts about an end.
#[derive(Clone, Debug)]
pub struct DecisionInput<'a> {
    /// The mode of the job.
    pub mode: MemoryFailureMode,
    /// The task, for messages.
    pub task: &'a str,
    /// The reason of the end.
    pub reason: ExitReason,
    /// The class of that reason.
    pub class: AttemptEndClass,
    /// The part of the task in the death of its executor.
    pub fate: AttemptFate,
    /// The size of the attempt.
    pub size: &'a AttemptSize,
    /// The executors of its stage.
    pub set: &'a ExecutorSpec,
    /// The manager of the task's memory.
    pub runtime: Runtime,
    /// Whether an attempt may be repeated.
    pub idempotent: Idempotent,
    /// The budgets.
    pub retry: &'a RetrySpec,
    /// The part of the budgets that was spent before this end.
    pub spent: SpentBudgets,
    /// The largest size that a task can get.
    pub cap: TaskSizeCap,
    /// Learned data of its kind, for a memory failure in a job that learns.
    pub known: SizeAfterKill,
    /// Input that came over the network into a managed runtime and that no earlier size included.
    /// Bytes.
    pub remote_input: Bytes,
    /// The reason for no more memory, if its stage is marked badly sized or the job's budget is
    /// spent.
    pub bound: Option<GrowthBound<'a>>,
    /// The treatment that the diagnosis of this end suggests. `None` without a diagnosis, and in
    /// modes other than `headroom`.
    pub treated: Option<&'a ChosenTreatment>,
}

/// The largest size that a task can get, and the origin of this cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSizeCap {
    /// Heap and overhead of one task. Bytes.
    pub task: Bytes,
    /// Memory of the largest container of any node; `None` if unknown. Bytes.
    pub largest: Option<Bytes>,
    /// True if the job's own `retry.cap` is the cap.
    pub by_job: bool,
}

impl TaskSizeCap {
    /// The origin of the cap, for messages.
    pub fn words(&self) -> String {
        match (self.by_job, self.largest) {
            (true, _) => format!("the job's retry.cap of {}", self.task),
            (false, Some(largest)) => format!("the largest container here, {largest}"),
            (false, None) => "no known limit".to_owned(),
        }
    }
}

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

/// The reason why tasks get no more memory, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthBound<'a> {
    /// Too many tasks of the stage had to get another size.
    Stage(&'a str),
    /// Memory failures have spent the job's budget.
    Budget(&'a str),
}

impl<'a> GrowthBound<'a> {
    fn words(self) -> &'a str {
        match self {
            GrowthBound::Stage(why) | GrowthBound::Budget(why) => why,
        }
    }
    fn remedy(self) -> &'static str {
        match self {
            GrowthBound::Stage(_) => "give its stage a larger profile, or raise retry.breaker",
            GrowthBound::Budget(_) => {
                "give its stage a larger profile, or raise retry.budget_gib_h"
            }
        }
    }
}

/// A step of a mode's ladder.
pub(crate) enum LadderStep {
    To(AttemptSize, String),
    /// The ladder has no larger size.
    Top(String),
}

/// Returns the decision, and the account to which the end is charged.
pub fn decide(case: &DecisionInput<'_>) -> (ChargeAccount, TaskDecision) {
    let account = account(case);
    if account != ChargeAccount::Success
        && case.idempotent == Idempotent::No
        && !case.reason.eq(&ExitReason::LaunchFailed)
    {
        return (account, not_again(case));
    }
    if let Some(next) = treatment::next(case, account) {
        return (account, next);
    }
    let next = match account {
        ChargeAccount::Success => TaskDecision::Done,
        ChargeAccount::Plain => plain(case),
        ChargeAccount::Transient => transient(case),
        ChargeAccount::Innocent => innocent(case),
        ChargeAccount::Taken => {
            let why = if case.reason == ExitReason::LaunchFailed {
                "its node could not start it: same size on another node, not charged".to_owned()
            } else {
                format!(
                    "its container was taken ({}): same size on another node, not charged",
                    case.reason
                )
            };
            again(case.size.clone(), AvoidScope::Node, why)
        }
        ChargeAccount::Collateral => collateral::again(case),
        ChargeAccount::Spike => again(
            case.size.clone(),
            AvoidScope::No,
            "same size once more: page cache filled the limit",
        ),
        ChargeAccount::Memory => memory(case),
    };
    (account, next)
}

fn account(case: &DecisionInput<'_>) -> ChargeAccount {
    match case.class {
        AttemptEndClass::Success => ChargeAccount::Success,
        AttemptEndClass::Plain => ChargeAccount::Plain,
        AttemptEndClass::Transient => ChargeAccount::Transient,
        AttemptEndClass::Taken => ChargeAccount::Taken,
        AttemptEndClass::Collateral => ChargeAccount::Collateral,
        AttemptEndClass::Bystander => ChargeAccount::Innocent,
        AttemptEndClass::Memory(failure) => match case.fate {
            AttemptFate::Innocent => match case.mode {
                // Spark counts the loss of an executor by memory as a failure of every task on it.
                MemoryFailureMode::Fixed => ChargeAccount::Memory,
                MemoryFailureMode::Headroom
                | MemoryFailureMode::Pinterest
                | MemoryFailureMode::Uber
                | MemoryFailureMode::Databricks
                | MemoryFailureMode::Tovar => ChargeAccount::Innocent,
            },
            AttemptFate::Own
            | AttemptFate::Blamed
            | AttemptFate::Unknown {
                charged: UnknownCharge::Yes,
            } => match case.mode {
                MemoryFailureMode::Headroom if failure.spike && case.spent.spikes == 0 => {
                    ChargeAccount::Spike
                }
                MemoryFailureMode::Headroom
                | MemoryFailureMode::Pinterest
                | MemoryFailureMode::Uber
                | MemoryFailureMode::Databricks
                | MemoryFailureMode::Tovar
                | MemoryFailureMode::Fixed => ChargeAccount::Memory,
            },
            AttemptFate::Unknown {
                charged: UnknownCharge::No,
            } => ChargeAccount::Innocent,
        },
    }
}

pub use blame::UnknownCharge;

fn again(size: AttemptSize, elsewhere: AvoidScope, why: impl Into<String>) -> TaskDecision {
    TaskDecision::Again {
        size,
        wait_ms: 0,
        elsewhere,
        why: why.into(),
    }
}

fn not_again(case: &DecisionInput<'_>) -> TaskDecision {
    let message = format!(
        "{} ended ({}) at {} and must not run twice (idempotent = \"no\"); give it more memory from the start, or make it idempotent",
        case.task,
        case.reason,
        case.size.memory()
    );
    TaskDecision::GiveUp {
        cause: GiveUpCause::NotIdempotent,
        message,
    }
}

/// The wait after failures: 1 s after the first, doubled after each further one, at most 30 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(30))
}

fn plain(case: &DecisionInput<'_>) -> TaskDecision {
    let failures = case.spent.plain + 1;
    let (task, most) = (case.task, case.retry.max_attempts);
    if tries(case) >= most {
        let message = if case.reason == ExitReason::LaunchFailed {
            format!("{task}: its program does not exist or cannot be executed; correct its command")
        } else {
            format!(
                "{task} failed {failures} times, last: {}; memory is not the cause, see its standard error",
                case.reason.sentence()
            )
        };
        return TaskDecision::GiveUp {
            cause: GiveUpCause::Plain,
            message,
        };
    }
    let wait = backoff(failures);
    let why = format!(
        "failure {failures} of {most}: again on another executor in {} s",
        wait.as_secs()
    );
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    TaskDecision::Again {
        size: case.size.clone(),
        wait_ms,
        elsewhere: AvoidScope::Executor,
        why,
    }
}

/// Attempts that count against `max_attempts`, including this one. Spark's rule counts every
/// failure of the task.
fn tries(case: &DecisionInput<'_>) -> u32 {
    match case.mode {
        MemoryFailureMode::Fixed => case.spent.plain + case.spent.memory + 1,
        MemoryFailureMode::Headroom
        | MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Tovar => case.spent.plain + 1,
    }
}

fn transient(case: &DecisionInput<'_>) -> TaskDecision {
    let losses = case.spent.transient + 1;
    if losses > case.retry.transient {
        let next = if case.reason == ExitReason::LaunchFailed {
            format!(
                "rmctl diagnose JOB/{} shows the failed step; every node needs the directory of the job file",
                case.task
            )
        } else {
            "check the nodes on which it ran, or raise retry.transient".to_owned()
        };
        let (task, last) = (case.task, case.reason.sentence());
        let message = format!(
            "{task} was lost {losses} times for causes outside the task, last: {last}; {next}"
        );
        return TaskDecision::GiveUp {
            cause: GiveUpCause::Transient,
            message,
        };
    }
    let why = format!(
        "not caused by the task ({}): same size, another node preferred",
        case.reason
    );
    again(case.size.clone(), AvoidScope::Node, why)
}

fn innocent(case: &DecisionInput<'_>) -> TaskDecision {
    match (case.mode, case.fate) {
        (MemoryFailureMode::Uber, _) | (_, AttemptFate::Unknown { .. }) => {
            match uber::isolate(case) {
                LadderStep::To(size, why) => again(size, AvoidScope::No, why),
                LadderStep::Top(_) => again(
                    case.size.clone(),
                    AvoidScope::No,
                    "lost with its executor: same size",
                ),
            }
        }
        (MemoryFailureMode::Headroom, AttemptFate::Innocent)
            if case.size.place == AttemptPlace::Shared =>
        {
            let size = AttemptSize {
                slots: 1,
                place: AttemptPlace::Own,
                ..case.size.clone()
            };
            let why = "another task's memory failure ended its executor: same size in a container of its own, not charged";
            again(size, AvoidScope::No, why)
        }
        (
            MemoryFailureMode::Headroom
            | MemoryFailureMode::Pinterest
            | MemoryFailureMode::Databricks
            | MemoryFailureMode::Tovar
            | MemoryFailureMode::Fixed,
            AttemptFate::Own | AttemptFate::Blamed | AttemptFate::Innocent,
        ) => again(
            case.size.clone(),
            AvoidScope::No,
            "another task's memory failure: same size, not charged",
        ),
    }
}

fn memory(case: &DecisionInput<'_>) -> TaskDecision {
    let AttemptEndClass::Memory(failure) = case.class else {
        return TaskDecision::Done;
    };
    let spent = case.spent.memory + 1 >= case.retry.memory_attempts;
    let growth = match case.mode {
        // Spark's rule has its own budget.
        MemoryFailureMode::Fixed => fixed::grow(case),
        MemoryFailureMode::Headroom
        | MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Tovar
            if spent =>
        {
            exhausted(case)
        }
        MemoryFailureMode::Headroom
        | MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Tovar
            if case.bound.is_some() =>
        {
            LadderStep::Top(
                case.bound
                    .map(GrowthBound::words)
                    .unwrap_or_default()
                    .to_owned(),
            )
        }
        MemoryFailureMode::Headroom => headroom::grow(case, failure),
        MemoryFailureMode::Pinterest => pinterest::grow(case),
        MemoryFailureMode::Uber => uber::isolate(case),
        MemoryFailureMode::Databricks => databricks::grow(case),
        MemoryFailureMode::Tovar => tovar::grow(case),
    };
    match growth {
        LadderStep::To(size, why) => again(size, AvoidScope::No, why),
        LadderStep::Top(why) => TaskDecision::GiveUp {
            cause: GiveUpCause::Memory,
            message: genuine(case, failure.dimension, &why),
        },
    }
}

fn exhausted(case: &DecisionInput<'_>) -> LadderStep {
    LadderStep::Top(format!(
        "that was memory failure {} of {}",
        case.spent.memory + 1,
        case.retry.memory_attempts
    ))
}

/// The message of a task that was killed for memory and is not retried.
fn genuine(case: &DecisionInput<'_>, dimension: Dimension, why: &str) -> String {
    let what = match dimension {
        Dimension::Heap => format!("a heap above {}", case.size.profile.heap),
        Dimension::Overhead => format!("off-heap memory above {}", case.size.profile.overhead),
        Dimension::Native => format!("more than {}", case.size.memory()),
    };
    let remedy = match case.mode {
        MemoryFailureMode::Headroom
        | MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Tovar
            if case.bound.is_some() =>
        {
            case.bound.map(GrowthBound::remedy).unwrap_or_default()
        }
        MemoryFailureMode::Headroom | MemoryFailureMode::Databricks | MemoryFailureMode::Tovar
            if case.cap.by_job =>
        {
            "raise retry.cap, or split its input"
        }
        MemoryFailureMode::Headroom | MemoryFailureMode::Databricks | MemoryFailureMode::Tovar => {
            "split its input, or use a larger node"
        }
        MemoryFailureMode::Pinterest | MemoryFailureMode::Uber | MemoryFailureMode::Fixed => {
            "give its stage a larger profile, or use mode headroom"
        }
    };
    format!(
        "{} was killed at {} and needs {what}; {why}. {remedy}",
        case.task,
        case.size.memory()
    )
}

#[cfg(test)]
mod tests;

//! The facts about an ended attempt on which the policy decides. The core collects them; they
//! contain no state and no decision.

use headroom_config::{ExecutorSpec, Idempotent, RetrySpec, TaskRuntime};
use headroom_sizes::learn::SizeAfterKill;
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::job::MemoryFailureMode;

use super::attempt_size::{AttemptSize, TaskSizeCap};
use super::blame::AttemptFate;
use super::budget::SpentBudgets;
use super::chosen_treatment::ChosenTreatment;
use super::classify::AttemptEndClass;

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
    pub runtime: TaskRuntime,
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

impl DecisionInput<'_> {
    /// Attempts that count against `max_attempts`, including this one. Spark's rule counts every
    /// failure of the task.
    pub(super) fn charged_attempts(&self) -> u32 {
        if self.mode == MemoryFailureMode::Fixed {
            self.spent.plain + self.spent.memory + 1
        } else {
            self.spent.plain + 1
        }
    }
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
    /// The reason.
    pub(super) fn words(self) -> &'a str {
        match self {
            GrowthBound::Stage(why) | GrowthBound::Budget(why) => why,
        }
    }
    /// What a user can change.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            GrowthBound::Stage(_) => "give its stage a larger profile, or raise retry.breaker",
            GrowthBound::Budget(_) => {
                "give its stage a larger profile, or raise retry.budget_gib_h"
            }
        }
    }
}

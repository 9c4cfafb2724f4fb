//! Job views, as application masters report them: stages, tasks, rungs, verdicts.

use std::collections::BTreeMap;

use headroom_types::exit::MemorySample;
use headroom_types::{
    AppliedTreatment, Bytes, ContainerId, Diagnosis, Dimension, Evidence, ExitReason, Name, NodeId,
    Profile, Remedy, TaskAttemptId, TaskId, UnixMillis, word_enum,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::EventLevel;
use super::job_history::EnlargedTask;

word_enum! {
    /// The mode of memory failures of a job.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum MemoryFailureMode: "is not a mode; use" {
        /// More memory for the failed task only, in the dimension that ran out.
        #[default]
        Headroom = "headroom",
        /// Doubled processors, then executors of twice, three and four times the size.
        Pinterest = "pinterest",
        /// All tasks of the lost executor get a whole executor each; a kill of a task alone on an
        /// executor is final.
        Uber = "uber",
        /// Doubled size, again and again up to the largest available size.
        Databricks = "databricks",
        /// First size with the least expected waste; after a kill the largest available size.
        Tovar = "tovar",
        /// Same size, for a fixed number of attempts.
        Fixed = "fixed",
    }
}

/// The view of a whole job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Totals over all tasks.
    pub totals: JobTotals,
    /// All tasks, in the order of stage and index.
    pub tasks: Vec<TaskRow>,
}

/// Changed rows of a job view, sent by the master with its sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobViewPatch {
    /// True if rows that the patch does not contain no longer exist.
    #[serde(default)]
    pub full: bool,
    /// Totals over all tasks.
    pub totals: JobTotals,
    /// New and changed tasks.
    #[serde(default)]
    pub tasks: Vec<TaskRow>,
    /// Tasks of this patch or earlier patches that are counted in `totals.folded` from now on and
    /// lose their row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<TaskId>,
    /// New events, for the event log.
    #[serde(default)]
    pub events: Vec<JobEvent>,
    /// Tasks that succeeded with more memory than configured, for the next job of the same user and
    /// name. Only what is new since the last patch, unless this one is full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enlarged: Vec<EnlargedTask>,
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// Time of the event.
    pub time: UnixMillis,
    /// Level.
    pub level: EventLevel,
    /// A name of the closed list: `OomKilled`, `Escalated`, `EscalationExhausted`, `TaskRetried`,
    /// `TaskFinished`, `TaskFailed`, `JobStarted` …
    pub reason: String,
    /// The subject: a task attempt, a task or a stage.
    pub object: String,
    /// Description, for users.
    pub message: String,
}

/// Totals over all tasks of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobTotals {
    /// Mode of memory failures.
    pub mode: MemoryFailureMode,
    /// All tasks.
    pub tasks: u32,
    /// Succeeded tasks.
    pub done: u32,
    /// Failed tasks.
    pub failed: u32,
    /// Running tasks.
    pub running: u32,
    /// Attempts that ended in a memory failure.
    pub memory_kills: u32,
    /// Reruns of attempts that had stayed within their own size (collateral).
    #[serde(alias = "innocent_reruns")] // in stored jobs of the version before
    pub collateral_reruns: u32,
    /// Attempts that were lost without being charged to the task.
    pub transient: u32,
    /// Tasks that received another size.
    pub escalated: u32,
    /// Running attempts that received more memory instead of a kill.
    #[serde(default)]
    pub grown: u32,
    /// Running attempts that were evicted to free memory for frozen ones; they run again, not
    /// charged.
    #[serde(default, alias = "gave_way")] // in stored jobs of the version before
    pub evicted: u32,
    /// Trace spans that the collector rejected, in this run of the master.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spans_dropped: u64,
    /// Memory × time of attempts that had to run again. Byte-milliseconds.
    pub rerun_byte_ms: u128,
    /// Memory × time of all attempts. Byte-milliseconds.
    pub allocated_byte_ms: u128,
    /// Locality of inputs and bytes read, by stage; only stages with known inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<StageInputs>,
    /// Totals of shadow sizes; only if the job requests them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowTotals>,
    /// Tasks without a row that succeeded at their first attempt, by stage. The first 10,000 tasks
    /// of a job always have a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<FoldedTasks>,
}

/// Tasks of one stage that are counted without a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoldedTasks {
    /// The stage.
    pub stage: Name,
    /// Number of tasks that succeeded.
    pub done: u32,
    /// Number of tasks that failed; only in live jobs.
    #[serde(default, skip_serializing_if = "is_none_failed")]
    pub failed: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_none_failed(failed: &u32) -> bool {
    *failed == 0
}

impl JobTotals {
    /// The number of tasks without a row, over all stages.
    pub fn folded_tasks(&self) -> u32 {
        self.folded.iter().fold(0, |sum: u32, stage| {
            sum.saturating_add(stage.done).saturating_add(stage.failed)
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Hypothetical results of learned first sizes, over the first attempts with a known outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShadowTotals {
    /// Attempts that succeeded and fit the learned size.
    pub fit: u32,
    /// Attempts that the learned size would have killed, regardless of their outcome.
    pub killed: u32,
    /// Attempts killed for memory that the larger learned size might have saved.
    pub perhaps: u32,
    /// Memory × time of the successful attempts at their actual size. Byte-milliseconds.
    pub given_byte_ms: u128,
    /// Memory × time of the successful attempts at the learned size. An attempt that it would have
    /// killed counts at both sizes, as if it had run to its end first. Byte-milliseconds.
    pub learned_byte_ms: u128,
}

word_enum! {
    /// The state of a task.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum TaskState: "is not a state of a task; use" {
        /// Its stage has not started.
        Blocked = "blocked",
        /// Waits for slots or for a container.
        Pending = "pending",
        /// An attempt runs.
        Running = "running",
        /// Succeeded.
        Done = "done",
        /// Failed.
        Failed = "failed",
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskRow {
    /// Task id.
    pub task: TaskId,
    /// State.
    pub state: TaskState,
    /// Current size.
    pub profile: Profile,
    /// Current rung; 1 for the size of its stage.
    pub rung: u32,
    /// Reason of the wait or of the failure.
    #[serde(default)]
    pub note: String,
    /// Set while its running attempt is frozen near its limit and waits for memory.
    #[serde(default, alias = "held", skip_serializing_if = "Option::is_none")] // see `evicted`
    pub frozen: Option<FrozenTaskView>,
    /// All attempts, the first one first.
    pub attempts: Vec<AttemptRow>,
    /// Heap and overhead of the next rungs, one per further memory failure, as far as predictable.
    /// Only for tasks that have started and not ended. Bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<Bytes>,
    /// Priority; tasks with higher values start first. The default is 0.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub priority: i32,
    /// Labels that the client of a live job gave it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A frozen task that waits for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrozenTaskView {
    /// Time of the freeze.
    pub since: UnixMillis,
    /// Additional memory that it waits for. Bytes.
    pub more: Bytes,
}

fn is_usual(priority: &i32) -> bool {
    *priority == 0
}

/// An attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptRow {
    /// Task attempt id.
    pub attempt: TaskAttemptId,
    /// Size.
    pub profile: Profile,
    /// Slots that it takes of the executor.
    pub slots: u32,
    /// Rung; 1 for the size of its stage.
    pub rung: u32,
    /// Container.
    pub container: ContainerId,
    /// Node.
    pub node: NodeId,
    /// Time at which it was sent to the executor.
    pub started: UnixMillis,
    /// Time of the end; `None` while it runs.
    pub ended: Option<UnixMillis>,
    /// Largest memory use; a lower bound after a kill. Bytes.
    pub peak: Option<Bytes>,
    /// Memory in use. Bytes.
    pub used: Option<Bytes>,
    /// Exit reason.
    pub reason: Option<ExitReason>,
    /// The quantity that ran out.
    pub dimension: Option<Dimension>,
    /// Measurements behind the verdict; `None` for a success.
    pub evidence: Option<Evidence>,
    /// Causes and cures.
    #[serde(default)]
    pub diagnosis: Vec<Diagnosis>,
    /// Decision on the failure, for users.
    #[serde(default)]
    pub decision: String,
    /// Memory from start to end; only for ended attempts without success.
    #[serde(default)]
    pub timeline: Vec<MemorySample>,
    /// End of standard error.
    #[serde(default)]
    pub log_tail: String,
    /// Increases of its memory while it ran; `profile` is the last size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grown: Vec<AttemptGrowth>,
    /// Reason of its size, for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Shadow size of a learner that only observes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowSize>,
    /// Input and its locality, if the job file declares inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<AttemptInput>,
    /// Treatment of its failure, by the first sub-cause of its diagnosis; `None` for a success and
    /// outside of mode headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub treatment: Option<AppliedTreatment>,
    /// Remedies in its environment for failures of earlier attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
    /// Text that begins and ends the lines of the attempt in standard error of its container, such
    /// as `(TID 45)`; empty if all lines there are those of the attempt. `None` if the attempt has
    /// log files of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_marker: Option<String>,
    /// True if all its processes have ended and both logs are empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
}

/// The input of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptInput {
    /// Planned size of the input. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<Bytes>,
    /// Bytes read by system calls, a lower bound; `None` while it runs or without measurement.
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Bytes>,
    /// Location of the input relative to its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<DataLocality>,
    /// Set if read and planned bytes differ by more than 1.5 times and more than 4 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<InputGap>,
}

/// The location of an input relative to a node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DataLocality {
    /// On the same node.
    Local,
    /// Remote: read over the network.
    Remote,
}

/// The difference between read and planned bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InputGap {
    /// Far more bytes were read.
    More,
    /// Far fewer bytes were read.
    Less,
}

/// Inputs of the ended attempts of a stage, as far as known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageInputs {
    /// The stage.
    pub stage: Name,
    /// Attempts with a known input location.
    pub attempts: u32,
    /// Attempts with a remote input, included in `attempts`.
    pub remote: u32,
    /// Attempts killed for memory, included in `attempts`.
    pub kills: u32,
    /// Killed attempts with a remote input.
    pub remote_kills: u32,
    /// Attempts that read far more than planned.
    pub more: u32,
    /// Attempts that read far less than planned.
    pub less: u32,
}

impl StageInputs {
    /// A stage without ended attempts.
    pub fn new(stage: Name) -> Self {
        StageInputs {
            stage,
            attempts: 0,
            remote: 0,
            kills: 0,
            remote_kills: 0,
            more: 0,
            less: 0,
        }
    }
    /// True if most killed attempts had a remote input. False for fewer than three kills.
    pub fn mostly_remote_kills(&self) -> bool {
        self.kills >= 3 && self.remote_kills * 2 > self.kills
    }
}

/// The size that a learner that only observes would have chosen for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShadowSize {
    /// The size.
    pub profile: Profile,
    /// Reason, for users.
    pub why: String,
    /// Hypothetical outcome; `None` while it runs or if its end does not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ShadowOutcome>,
}

/// The hypothetical outcome of another size.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ShadowOutcome {
    /// The attempt fits.
    Fits,
    /// The size is too small.
    Killed,
    /// Larger than the size that was too small; the outcome is unknown.
    Perhaps,
}

/// An increase of a running attempt's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptGrowth {
    /// Time.
    pub at: UnixMillis,
    /// Heap and overhead before. Bytes.
    pub from: Bytes,
    /// Heap and overhead after the increase. Bytes.
    pub to: Bytes,
    /// From memory pressure to the new limit in the kernel; `None` until the executor has reported
    /// it. Microseconds.
    #[serde(
        default,
        alias = "held_us", // in stored jobs and journals of the version before
        skip_serializing_if = "Option::is_none"
    )]
    pub frozen_us: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_a_job_stored_by_the_version_before_are_read() {
        let totals = JobTotals {
            collateral_reruns: 3,
            evicted: 2,
            ..JobTotals::default()
        };
        let text = serde_json::to_string(&totals).expect("writes");
        let former = text
            .replace("collateral_reruns", "innocent_reruns")
            .replace("evicted", "gave_way");
        assert_ne!(former, text);
        let read: JobTotals = serde_json::from_str(&former).expect("reads");
        assert_eq!(read, totals);
    }

    #[test]
    fn a_growth_stored_by_the_version_before_is_read() {
        let growth = AttemptGrowth {
            at: UnixMillis(5),
            from: Bytes::from_mib(64),
            to: Bytes::from_mib(96),
            frozen_us: Some(4711),
        };
        let text = serde_json::to_string(&growth).expect("writes");
        let former = text.replace("frozen_us", "held_us");
        assert_ne!(former, text);
        let read: AttemptGrowth = serde_json::from_str(&former).expect("reads");
        assert_eq!(read, growth);
    }
}

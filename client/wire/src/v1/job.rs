//! What an application master tells about its job, for screens and history: stages, tasks, rungs, verdicts.

use headroom_types::exit::Sample;
use headroom_types::{
    AppliedTreatment, Bytes, ContainerId, Diagnosis, Dimension, Evidence, ExitReason, Name, NodeId, Profile, Remedy,
    TaskAttemptId, TaskId, UnixMillis,
};
use serde::{Deserialize, Serialize};

use super::events::EventLevel;

/// How a job's memory failures are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Only the task that needs it, only in the dimension that ran out.
    #[default]
    Headroom,
    /// Twice the processors, then executors of twice, three and four times the size.
    Pinterest,
    /// Everything that was on the lost executor gets a whole one; alone on one and killed is final.
    Uber,
    /// Twice the size, and twice again, up to the largest there is.
    Databricks,
    /// The first size with the least expected waste; killed there, the largest there is.
    Tovar,
    /// The same size again, a fixed number of times.
    Fixed,
}

impl Mode {
    /// The name in job files, JSON and screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Headroom => "headroom",
            Mode::Pinterest => "pinterest",
            Mode::Uber => "uber",
            Mode::Databricks => "databricks",
            Mode::Tovar => "tovar",
            Mode::Fixed => "fixed",
        }
    }
    /// All of them, as they are shown.
    pub const ALL: [Mode; 6] = [Mode::Headroom, Mode::Pinterest, Mode::Uber, Mode::Databricks, Mode::Tovar, Mode::Fixed];
}
impl std::str::FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Mode::ALL
            .into_iter()
            .find(|m| m.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a mode; use headroom, pinterest, uber, databricks, tovar or fixed"))
    }
}

/// The job as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Figures over all tasks.
    pub totals: JobTotals,
    /// Every task, in the order of stage and index.
    pub tasks: Vec<TaskRow>,
}

/// Changed rows of a job; sent by the master with its sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPatch {
    /// True when rows not named in it are gone.
    #[serde(default)]
    pub full: bool,
    /// Figures over all tasks.
    pub totals: JobTotals,
    /// New and changed tasks.
    #[serde(default)]
    pub tasks: Vec<TaskRow>,
    /// Tasks of `tasks`, or of patches before, that are counted in `totals.folded` from now on and have no row any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<TaskId>,
    /// What happened, for the event log.
    #[serde(default)]
    pub events: Vec<JobEvent>,
}

/// One thing that happened in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// When.
    pub time: UnixMillis,
    /// How much attention it wants.
    pub level: EventLevel,
    /// Closed word: `OomKilled`, `Escalated`, `EscalationExhausted`, `TaskRetried`, `TaskFinished`, `TaskFailed`, `JobStarted` …
    pub reason: String,
    /// What it is about: a task attempt, a task, a stage.
    pub object: String,
    /// For people.
    pub message: String,
}

/// Figures over all tasks of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobTotals {
    /// How memory failures are answered.
    pub mode: Mode,
    /// All tasks.
    pub tasks: u32,
    /// Done and right.
    pub done: u32,
    /// Given up.
    pub failed: u32,
    /// Running now.
    pub running: u32,
    /// Attempts that ended as a memory failure.
    pub memory_kills: u32,
    /// Attempts of tasks that had stayed within their own size, and had to run again.
    pub innocent_reruns: u32,
    /// Attempts that were lost through no fault of the task.
    pub transient: u32,
    /// Tasks that were given another size.
    pub escalated: u32,
    /// Times that a running attempt was given more, instead of being killed.
    #[serde(default)]
    pub grown: u32,
    /// Running attempts that were ended to make room for held ones, and run again uncharged.
    #[serde(default)]
    pub gave_way: u32,
    /// Spans of its trace that its collector did not take, in this run of the master.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spans_dropped: u64,
    /// Memory × time of attempts that had to be run again. Byte-milliseconds.
    pub rerun_byte_ms: u128,
    /// Memory × time of all attempts. Byte-milliseconds.
    pub allocated_byte_ms: u128,
    /// Where inputs were and what was read, by stage; only of stages of which something is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<StageInputs>,
    /// What learned sizes would have come to; only where the job asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowTotals>,
    /// Tasks that ended well at their first attempt and have no row, by stage. None of the first 10,000 tasks of a job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<FoldedTasks>,
}

/// Tasks of one stage that are counted and have no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoldedTasks {
    /// The stage.
    pub stage: Name,
    /// How many.
    pub done: u32,
}

impl JobTotals {
    /// Tasks of all stages that have no row.
    pub fn folded_tasks(&self) -> u32 {
        self.folded.iter().fold(0, |sum, stage| sum.saturating_add(stage.done))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What learned first sizes would have come to, over the first attempts that tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShadowTotals {
    /// Attempts that ended well and would have done so at the learned size.
    pub fit: u32,
    /// Attempts, however they ended, that would have been killed at it.
    pub killed: u32,
    /// Attempts that were killed for memory, and might not have been at the learned size, which was larger.
    pub perhaps: u32,
    /// Memory × time of those that ended well, at the size they had. Byte-milliseconds.
    pub given_byte_ms: u128,
    /// And at the learned size; one that would have been killed is counted at both, as if it had run to its end first. Byte-milliseconds.
    pub learned_byte_ms: u128,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its stage has not begun.
    Blocked,
    /// Waits for slots or a container.
    Pending,
    /// Runs.
    Running,
    /// Done.
    Done,
    /// Given up.
    Failed,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskRow {
    /// Its id.
    pub task: TaskId,
    /// Where it is.
    pub state: TaskState,
    /// Its size now.
    pub profile: Profile,
    /// 1 for the size of its stage.
    pub rung: u32,
    /// Why it waits, or why it was given up.
    #[serde(default)]
    pub note: String,
    /// Its running attempt is held near its limit until there is room for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldTask>,
    /// Every attempt, the first one first.
    pub attempts: Vec<AttemptRow>,
    /// Heap and overhead that it would be given next, if memory ended it again at each size, as far as that can be told before. Of
    /// tasks that have been started and have not ended. Bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<Bytes>,
    /// Tasks with a higher one begin first; 0 is the usual.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub priority: i32,
}

/// A task that waits for more memory where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldTask {
    /// Since when.
    pub since: UnixMillis,
    /// How much more it is to be given. Bytes.
    pub more: Bytes,
}

fn is_usual(priority: &i32) -> bool {
    *priority == 0
}

/// One attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptRow {
    /// Its id.
    pub attempt: TaskAttemptId,
    /// Its size.
    pub profile: Profile,
    /// Slots of the executor that it takes.
    pub slots: u32,
    /// 1 for the size of its stage.
    pub rung: u32,
    /// In which container.
    pub container: ContainerId,
    /// On which node.
    pub node: NodeId,
    /// When it was sent to the executor.
    pub started: UnixMillis,
    /// When it ended; `None` while it runs.
    pub ended: Option<UnixMillis>,
    /// Largest use of memory; a lower bound when it was killed. Bytes.
    pub peak: Option<Bytes>,
    /// In use now. Bytes.
    pub used: Option<Bytes>,
    /// How it ended.
    pub reason: Option<ExitReason>,
    /// Which quantity ran out.
    pub dimension: Option<Dimension>,
    /// What the verdict was decided from; `None` for a success.
    pub evidence: Option<Evidence>,
    /// Causes and cures.
    #[serde(default)]
    pub diagnosis: Vec<Diagnosis>,
    /// What was decided upon it, for people.
    #[serde(default)]
    pub decision: String,
    /// Memory from birth to death; of ended attempts that did not succeed.
    #[serde(default)]
    pub timeline: Vec<Sample>,
    /// The end of its standard error.
    #[serde(default)]
    pub log_tail: String,
    /// How it was given more while it ran; `profile` is the last size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grown: Vec<Growth>,
    /// Why its size is what it is, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What it would have been given by a learner that only watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// What it read and where that was, as far as the job says what there is to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<AttemptInput>,
    /// What is done about its failure, by the first sub-cause of its diagnosis; `None` for a success, and outside of mode headroom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub treatment: Option<AppliedTreatment>,
    /// Remedies that it runs with: what its environment has for the failures of earlier attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
}

/// The input of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptInput {
    /// What its task was to read. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Bytes>,
    /// What it read by system calls, a lower bound; `None` while it runs, or where its executor did not look. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Bytes>,
    /// Where the input is, as seen from its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// It read far from what was planned: by more than 1.5 times, and 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<InputGap>,
}

/// Where an input is, as seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Locality {
    /// On the same node.
    Local,
    /// It comes over the network.
    Remote,
}

/// How what was read differs from what was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum InputGap {
    /// Much more was read.
    More,
    /// Much less was read.
    Less,
}

/// The inputs of a stage's attempts that have ended, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StageInputs {
    /// The stage.
    pub stage: Name,
    /// Attempts of which it is known where their input was.
    pub attempts: u32,
    /// Of them, those whose input was remote.
    pub remote: u32,
    /// Of the attempts, those that were killed for memory.
    pub kills: u32,
    /// Of them, those whose input was remote.
    pub remote_kills: u32,
    /// Attempts that read much more than was planned.
    pub more: u32,
    /// Attempts that read much less than was planned.
    pub less: u32,
}

impl StageInputs {
    /// A stage of which nothing has ended.
    pub fn new(stage: Name) -> Self {
        StageInputs { stage, attempts: 0, remote: 0, kills: 0, remote_kills: 0, more: 0, less: 0 }
    }
    /// Most of those that were killed had a remote input. Of fewer than three nothing is said.
    pub fn mostly_remote_kills(&self) -> bool {
        self.kills >= 3 && self.remote_kills * 2 > self.kills
    }
}

/// What a learner that only watches would have given to an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shadow {
    /// The size.
    pub profile: Profile,
    /// Why, for people.
    pub why: String,
    /// What would have come of it; `None` while it runs, or where its end does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ShadowOutcome>,
}

/// What would have come of another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShadowOutcome {
    /// It holds what was needed.
    Fits,
    /// It does not.
    Killed,
    /// It is larger than the size that was not enough; whether it is enough is not known.
    Perhaps,
}

/// One time that a running attempt was given more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Growth {
    /// When.
    pub at: UnixMillis,
    /// Heap and overhead before. Bytes.
    pub from: Bytes,
    /// And after. Bytes.
    pub to: Bytes,
    /// From the sign of pressure to the new limit in the kernel; `None` until its executor has said so. Microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_us: Option<u64>,
}

//! A checked job: all names exist, all sizes are above zero, all templates can be filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, FetchedFile, Name, NodeId, Profile, QueuePath, word_enum};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::job::MemoryFailureMode;

use super::live::LiveJob;
use super::node_constraints::NodeConstraints;
use super::runtime::{GcLogSetting, RuntimeFlags, TaskRuntime};
use super::template::{Placeholder, PlaceholderTemplate};
use super::treatments::Treatments;

/// Maximum number of tasks of a job.
pub const MAX_TASKS: u32 = 100_000;

/// A job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Name of the job.
    pub name: Name,
    /// Queue; the default queue of the cluster if absent.
    pub queue: Option<QueuePath>,
    /// Priority within the queue; higher values go first.
    pub priority: i32,
    /// Mode of memory failures.
    pub mode: MemoryFailureMode,
    /// The key `sizes` of the file; [`JobSpec::sizes`] is the effective value.
    pub sizes: Option<SizingMode>,
    /// Shared executors, by name. Never empty.
    pub executors: Vec<ExecutorSpec>,
    /// Stages, in the order of the file. `after` may refer to a later stage, but never forms a
    /// cycle. Empty only in a live job.
    pub stages: Vec<StageSpec>,
    /// Limits on attempts.
    pub retry: RetrySpec,
    /// Users and groups that may view or change the job.
    pub access: AppAccess,
    /// Treatments that override the default by sub-cause.
    pub treatments: Treatments,
    /// Set for a live job, which accepts stages and tasks while it runs.
    pub live: Option<Box<LiveJob>>,
}

/// True in the modes that can start tasks with learned sizes.
pub fn mode_learns_sizes(mode: MemoryFailureMode) -> bool {
    match mode {
        MemoryFailureMode::Headroom | MemoryFailureMode::Tovar => true,
        MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Fixed => false,
    }
}

impl JobSpec {
    /// The effective `sizes`. Only two modes have learned sizes: `tovar` always, `headroom` on
    /// request.
    pub fn sizes(&self) -> SizingMode {
        match self.sizes {
            Some(SizingMode::Shadow) => SizingMode::Shadow,
            Some(SizingMode::Learned) if mode_learns_sizes(self.mode) => SizingMode::Learned,
            None if self.mode == MemoryFailureMode::Tovar => SizingMode::Learned,
            Some(SizingMode::Learned | SizingMode::Stated) | None => SizingMode::Stated,
        }
    }
    /// The executor set of a stage. Never `None` for a stage of this job.
    pub fn executors_of(&self, stage: &StageSpec) -> Option<&ExecutorSpec> {
        self.executors.iter().find(|e| e.name == stage.executors)
    }
    /// All files of the stages on one executor set, without duplicate names.
    pub fn files_for(&self, executors: &Name) -> Vec<FetchedFile> {
        let mut files: Vec<FetchedFile> = Vec::new();
        for file in self
            .stages
            .iter()
            .filter(|stage| stage.executors == *executors)
            .flat_map(|stage| &stage.files)
        {
            if files.iter().all(|known| known.name != file.name) {
                files.push(file.clone());
            }
        }
        files
    }
    /// The stage with this name.
    pub fn stage(&self, name: &Name) -> Option<&StageSpec> {
        self.stages.iter().find(|s| s.name == *name)
    }
    /// The total number of tasks.
    pub fn tasks(&self) -> u32 {
        self.stages.iter().fold(0, |n, s| n.saturating_add(s.count))
    }
}

/// An executor set: equal executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorSpec {
    /// Its name.
    pub name: Name,
    /// Size of each executor.
    pub profile: Profile,
    /// Maximum number of executors.
    pub count: u32,
    /// Minimum number of executors while the job runs.
    pub min: u32,
    /// Time after which an idle executor that no later stage needs is released.
    pub idle: Duration,
    /// Slots of each executor. At least 1.
    pub slots: u32,
    /// Memory reserved for the executor itself.
    pub reserve: Bytes,
    /// Program that replaces the node's own executor.
    pub program: Option<ExecutorProgram>,
    /// Node constraints of the containers, those of escalated tasks included.
    pub place: NodeConstraints,
}

/// A third-party executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorProgram {
    /// Program and arguments, as in a launch. Never empty.
    pub command: Vec<String>,
    /// Whether the executor creates task cgroups; decides which side judges a killed task.
    pub task_groups: TaskGroups,
}

/// Whether an executor creates a cgroup for each of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskGroups {
    /// All tasks share the cgroup of the container; a kill at its limit ends the container.
    #[default]
    No,
    /// Each task has its own cgroup, and the executor reports its end.
    Yes,
}

impl ExecutorSpec {
    /// Memory that all tasks together may use.
    pub fn task_memory(&self) -> Bytes {
        self.profile.memory().saturating_sub(self.reserve)
    }
    /// Memory of one slot in whole bytes. Above zero.
    pub fn slot_memory(&self) -> Bytes {
        self.task_memory().mul_ratio(1, u64::from(self.slots))
    }
    /// Slots that a task of this size takes; may exceed the slots of an executor.
    pub fn slots_for(&self, memory: Bytes) -> u32 {
        u32::try_from(memory.div_ceil(self.slot_memory()))
            .unwrap_or(u32::MAX)
            .max(1)
    }
}

/// A stage: an array of equal tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    /// Its name. At most 40 characters.
    pub name: Name,
    /// Index of the first task.
    pub first: u32,
    /// Number of tasks. 0 for a live stage, whose tasks are submitted while the job runs.
    pub count: u32,
    /// Stages that must finish before.
    pub after: Vec<Name>,
    /// Its executor set.
    pub executors: Name,
    /// Program and arguments.
    pub command: Vec<PlaceholderTemplate>,
    /// Slots of one task, as determined by its processors.
    pub cpus_per_task: u32,
    /// Initial size of a task.
    pub profile: Profile,
    /// The manager of a task's memory.
    pub runtime: TaskRuntime,
    /// Flags and environment variables that pass its budget to the runtime.
    pub flags: RuntimeFlags,
    /// Whether its collector writes a log.
    pub gc_log: GcLogSetting,
    /// Exit codes by which the runtime reports a full heap.
    pub heap_exit_codes: Vec<i32>,
    /// Additional environment variables of a task.
    pub env: BTreeMap<String, PlaceholderTemplate>,
    /// Maximum run time of a task.
    pub timeout: Option<Duration>,
    /// Whether an attempt may be repeated.
    pub idempotent: Idempotent,
    /// Output directory of a fenced stage, absolute. Set if, and only if, the stage is fenced.
    pub output: Option<String>,
    /// The limit that enforces the size of a task.
    pub enforce: TaskLimit,
    /// Growth of running tasks, with the maximum time for which a task is frozen near its limit.
    pub grow: GrowthSetting,
    /// Kind of its tasks for learned sizes; the name of the stage if absent.
    pub kind: Option<Name>,
    /// Input size of each task, for learned sizes.
    pub input: Option<InputSizes>,
    /// Location of the input relative to the tasks; unknown if absent.
    pub input_locality: Option<InputLocality>,
    /// Nodes with the input of each task. Set if, and only if, the input can be local.
    pub input_hosts: Option<InputHosts>,
    /// Files that the node puts into the working directory of the executors before they start.
    /// Tasks run in this directory, if there is any file.
    pub files: Vec<FetchedFile>,
    /// Program and arguments of the fork server that starts the attempts, in each executor.
    pub fork_server: Option<Vec<String>>,
}

impl StageSpec {
    /// The indexes of its tasks.
    pub fn indexes(&self) -> std::ops::Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
    /// The kind of its tasks.
    pub fn kind(&self) -> &Name {
        self.kind.as_ref().unwrap_or(&self.name)
    }
}

word_enum! {
    /// The initial sizes of tasks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum SizingMode: "is not one of" {
        /// The size of the stage.
        Stated = "stated",
        /// Sizes learned from tasks of the same kind.
        Learned = "learned",
        /// The size of the stage; in addition, the learned size and its hypothetical outcome are
        /// reported.
        Shadow = "shadow",
    }
}

/// The source of input sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSizes {
    /// The size of this file, measured when the stage starts.
    File(PlaceholderTemplate),
    /// Sizes in the job file, one per task. Bytes.
    Listed(Vec<Bytes>),
}

word_enum! {
    /// The location of the input of a stage's tasks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum InputLocality: "is not one of" {
        /// On some nodes: an attempt on one of them reads locally, any other attempt over the network.
        Local = "local",
        /// On no node: every attempt reads over the network.
        Remote = "remote",
    }
}

/// The nodes with the input of a stage's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputHosts {
    /// Names with the task index filled in, the same for all tasks.
    Same(Vec<PlaceholderTemplate>),
    /// Separate nodes for each task.
    Each(Vec<Vec<NodeId>>),
}

impl InputHosts {
    /// The nodes with the input of the task `index`; `nth` is its position in the stage's array.
    /// Names that are invalid after the index is filled in are omitted.
    pub fn of(&self, index: u32, nth: usize) -> Vec<NodeId> {
        match self {
            InputHosts::Each(each) => each.get(nth).cloned().unwrap_or_default(),
            InputHosts::Same(names) => {
                let known = |place| match place {
                    Placeholder::Index => index.to_string(),
                    Placeholder::Attempt
                    | Placeholder::Rung
                    | Placeholder::Heap
                    | Placeholder::HeapMib
                    | Placeholder::Memory
                    | Placeholder::MemoryMib
                    | Placeholder::Overhead
                    | Placeholder::Slots
                    | Placeholder::Stage
                    | Placeholder::Job
                    | Placeholder::Output => String::new(),
                };
                names
                    .iter()
                    .filter_map(|name| name.fill(known).parse().ok())
                    .collect()
            }
        }
    }
}

word_enum! {
    /// Whether an attempt at a task may be repeated.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Idempotent: "is not one of" {
        /// An attempt may be repeated without harm.
        #[default]
        Yes = "yes",
        /// Each attempt writes into its own directory; the directory of one attempt becomes the output
        /// of the task.
        Fenced = "fenced",
        /// A task must never run twice.
        No = "no",
    }
}

word_enum! {
    /// The limit that enforces the size of a task.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TaskLimit: "is not one of" {
        /// Its own cgroup, with its size as the limit.
        #[default]
        Task = "task",
        /// The limit of its executor only.
        Executor = "executor",
    }
}

/// Growth setting of a stage, with the maximum time for which a task is frozen near its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthSetting {
    /// Not set: tasks grow wherever the kernel enforces their limits.
    Usual(Duration),
    /// `grow = true`.
    Stated(Duration),
    /// `grow = false`, or no task of the stage has a limit of its own.
    Off,
}

/// Limits on the attempts of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySpec {
    /// Maximum number of attempts that end in a plain failure (in mode `fixed`, in any failure that
    /// is charged to the task).
    pub max_attempts: u32,
    /// Maximum number of attempts that end in a memory failure.
    pub memory_attempts: u32,
    /// Maximum number of lost attempts that are not charged to the task.
    pub transient: u32,
    /// Largest size of a task; the size of the largest node if absent.
    pub cap: Option<Bytes>,
    /// Per cent of a stage's tasks that may escalate. Beyond it the stage is marked as badly sized,
    /// and its tasks no longer escalate. Unlimited if absent.
    pub breaker: Option<u32>,
    /// Budget of the job for memory failures: memory × time of attempts that had to run again, and
    /// of the additional memory of escalated attempts. Beyond it no task of the job escalates.
    /// Unlimited if absent.
    pub budget: Option<GibibyteHours>,
    /// Time that the container of an escalated task waits before an executor of the same job is
    /// drained for it. The master waits at most half the mean run time of the job's tasks.
    pub drain_after: Duration,
    /// Processors of the container of an escalated task, if fewer than the task has in an executor.
    pub cpus: Option<Cpus>,
}

/// Memory × time, exact to a thousandth of a GiB·h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GibibyteHours {
    thousandths: u32,
}

impl GibibyteHours {
    /// A value of `thousandths` thousandths of a GiB·h.
    pub fn from_thousandths(thousandths: u32) -> Self {
        GibibyteHours { thousandths }
    }
    /// The value in byte-milliseconds.
    pub fn byte_ms(self) -> u128 {
        (u128::from(self.thousandths) << 30) * 3_600
    }
    /// The value nearest to `byte_ms` byte-milliseconds; saturates.
    pub fn nearest(byte_ms: u128) -> Self {
        let one = 3_600u128 << 30;
        GibibyteHours {
            thousandths: u32::try_from((byte_ms + one / 2) / one).unwrap_or(u32::MAX),
        }
    }
}

impl std::str::FromStr for GibibyteHours {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("{text:?} is not a number of GiB·h above 0, with at most three decimals");
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if part.len() > 3 || !digits(whole) || !digits(part) {
            return Err(wrong());
        }
        let (whole, part) = (
            whole.parse::<u32>().ok(),
            format!("{part:0<3}").parse::<u32>().ok(),
        );
        let both = whole
            .and_then(|n| n.checked_mul(1000))
            .zip(part)
            .and_then(|(n, part)| n.checked_add(part));
        both.filter(|n| *n > 0)
            .map(GibibyteHours::from_thousandths)
            .ok_or_else(wrong)
    }
}

impl std::fmt::Display for GibibyteHours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}.{:03} GiB·h",
            self.thousandths / 1000,
            self.thousandths % 1000
        )
    }
}

impl Default for RetrySpec {
    fn default() -> Self {
        RetrySpec {
            max_attempts: 4,
            memory_attempts: 6,
            transient: 3,
            cap: None,
            breaker: None,
            budget: None,
            drain_after: Duration::from_secs(1),
            cpus: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_share_the_memory_after_the_reserve() {
        let profile = Profile {
            heap: Bytes::from_mib(256),
            overhead: Bytes::from_mib(32),
            cpus: Cpus::from_cores(4),
        };
        let e = ExecutorSpec {
            name: "main".parse().expect("name"),
            profile,
            count: 2,
            min: 0,
            idle: Duration::ZERO,
            slots: 4,
            reserve: Bytes::from_mib(32),
            program: None,
            place: NodeConstraints::default(),
        };
        assert_eq!(e.slot_memory(), Bytes::from_mib(64));
        let needs: Vec<u32> = [1, 64, 65, 128, 300]
            .iter()
            .map(|m| e.slots_for(Bytes::from_mib(*m)))
            .collect();
        assert_eq!(needs, [1, 1, 2, 2, 5]);
    }
}

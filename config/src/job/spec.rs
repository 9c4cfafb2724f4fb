//! A job, checked: every name it uses exists, every size is above zero, every template can be filled.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, FetchedFile, Name, NodeId, Profile, QueuePath};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::job::Mode;

use super::grow::GrowSpec;
use super::place::Where;
use super::runtime::{Flags, GcLog, Runtime};
use super::template::{Placeholder, Template};
use super::treatments::Treatments;

/// A whole job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// The name people will know it by.
    pub name: Name,
    /// The queue it goes to; the cluster's default when left out.
    pub queue: Option<QueuePath>,
    /// Higher goes first within its queue.
    pub priority: i32,
    /// How memory failures are answered.
    pub mode: Mode,
    /// What its file says of learned sizes; [`JobSpec::sizes`] is what follows from it.
    pub sizes: Option<Sizes>,
    /// Shared executors, by name. Never empty.
    pub executors: Vec<ExecutorSpec>,
    /// Stages, in the order of the file; `after` may point forward, and never in a circle. Never empty.
    pub stages: Vec<StageSpec>,
    /// How often a task is tried.
    pub retry: RetrySpec,
    /// Whom its owner lets come near it.
    pub access: AppAccess,
    /// What is done about a sub-cause, where that is not the usual.
    pub treatments: Treatments,
}

impl JobSpec {
    /// What tasks start with. Only two modes have learned sizes: `tovar` is nothing without them, `headroom` gives them when asked to.
    pub fn sizes(&self) -> Sizes {
        match (self.sizes, self.mode) {
            (Some(Sizes::Shadow), _) => Sizes::Shadow,
            (Some(Sizes::Stated), _) => Sizes::Stated,
            (Some(Sizes::Learned), Mode::Headroom | Mode::Tovar) | (None, Mode::Tovar) => Sizes::Learned,
            (Some(Sizes::Learned), Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Fixed)
            | (None, Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Fixed) => Sizes::Stated,
        }
    }
    /// The executors of a stage. `None` cannot happen for a stage of this job.
    pub fn executors_of(&self, stage: &StageSpec) -> Option<&ExecutorSpec> {
        self.executors.iter().find(|e| e.name == stage.executors)
    }
    /// What is to be there for all stages that run on one set of executors: no name twice, and none that means two things.
    pub fn files_for(&self, executors: &Name) -> Vec<FetchedFile> {
        let mut files: Vec<FetchedFile> = Vec::new();
        for file in self.stages.iter().filter(|stage| stage.executors == *executors).flat_map(|stage| &stage.files) {
            if files.iter().all(|known| known.name != file.name) {
                files.push(file.clone());
            }
        }
        files
    }
    /// The stage of that name.
    pub fn stage(&self, name: &Name) -> Option<&StageSpec> {
        self.stages.iter().find(|s| s.name == *name)
    }
    /// How many tasks it has in all.
    pub fn tasks(&self) -> u32 {
        self.stages.iter().fold(0, |n, s| n.saturating_add(s.count))
    }
}

/// A set of equal executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorSpec {
    /// Its name.
    pub name: Name,
    /// The size of each.
    pub profile: Profile,
    /// How many at most, when there is work for so many.
    pub count: u32,
    /// How many at least, as long as the job runs.
    pub min: u32,
    /// How long one is kept that nothing runs in and no later stage needs.
    pub idle: Duration,
    /// Slots of each. At least 1.
    pub slots: u32,
    /// Memory that is kept for the executor itself.
    pub reserve: Bytes,
    /// What is started in their containers instead of the node's own executor.
    pub program: Option<ExecutorProgram>,
    /// Which nodes their containers may go to, those of escalated tasks counted in.
    pub place: Where,
}

/// An executor that somebody else has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorProgram {
    /// Program and arguments, as a launch names them. Never empty.
    pub command: Vec<String>,
    /// Who judges a task that the kernel has killed.
    pub task_groups: TaskGroups,
}

/// Whether an executor makes a cgroup for each of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskGroups {
    /// All tasks share the container's; a kill for its limit ends the container.
    #[default]
    No,
    /// Each has its own, and the executor says what became of it.
    Yes,
}

impl ExecutorSpec {
    /// Memory that tasks may take together.
    pub fn room(&self) -> Bytes {
        self.profile.memory().saturating_sub(self.reserve)
    }
    /// Memory of one slot, whole bytes. Above zero.
    pub fn share(&self) -> Bytes {
        self.room().mul_ratio(1, u64::from(self.slots))
    }
    /// Slots that a task of this size takes by its memory; may be more than an executor has.
    pub fn slots_for(&self, memory: Bytes) -> u32 {
        u32::try_from(memory.div_ceil(self.share())).unwrap_or(u32::MAX).max(1)
    }
}

/// A stage: an array of equal tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    /// Its name. At most 40 characters.
    pub name: Name,
    /// Index of the first task.
    pub first: u32,
    /// How many tasks. At least 1.
    pub count: u32,
    /// Stages that must be done before.
    pub after: Vec<Name>,
    /// The executors it runs on.
    pub executors: Name,
    /// Program and arguments.
    pub command: Vec<Template>,
    /// Slots that one task takes by its processors.
    pub cpus_per_task: u32,
    /// Size of one task at first.
    pub profile: Profile,
    /// What manages the task's memory.
    pub runtime: Runtime,
    /// What of its budget it is told by flags and environment.
    pub flags: Flags,
    /// Whether its collector writes a log.
    pub gc_log: GcLog,
    /// Exit codes by which the runtime says that its heap is full.
    pub heap_exit_codes: Vec<i32>,
    /// Added to the task's environment.
    pub env: BTreeMap<String, Template>,
    /// Longest a task may run.
    pub timeout: Option<Duration>,
    /// Whether an attempt may be repeated.
    pub idempotent: Idempotent,
    /// Where the outputs of a fenced stage go: an absolute directory. There if, and only if, it is fenced.
    pub output: Option<String>,
    /// What holds a task to its size.
    pub enforce: TaskLimit,
    /// Whether a running task may be given more, and the longest time it is held near its limit for that.
    pub grow: GrowSpec,
    /// What its tasks have in common with those of other stages, for learned sizes; its own name when left out.
    pub kind: Option<Name>,
    /// What each task reads, for learned sizes.
    pub input: Option<Input>,
    /// Where its tasks' input is, as seen from where they run. Not known when left out.
    pub input_locality: Option<InputLocality>,
    /// The nodes that hold each task's input. There if, and only if, the input can be local.
    pub input_hosts: Option<InputHosts>,
    /// What the node puts into the working directory of the stage's executors before they start. Its tasks run there, if there is any.
    pub files: Vec<FetchedFile>,
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

/// What tasks start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sizes {
    /// The size of their stage.
    Stated,
    /// What tasks of their kind turned out to need.
    Learned,
    /// The size of their stage; beside it is told what the learned size would have been, and what would have come of it.
    Shadow,
}

/// How the size of each task's input is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The size of this file, measured when the stage begins.
    File(Template),
    /// Told in the job file, one for each task. Bytes.
    Told(Vec<Bytes>),
}

/// Where the input of a stage's tasks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputLocality {
    /// On some nodes: an attempt on one of them reads locally, any other one over the network.
    Local,
    /// On none of the nodes: every attempt reads over the network.
    Remote,
}

/// The nodes that hold the inputs of a stage's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputHosts {
    /// For every task these names, filled in with its index.
    Same(Vec<Template>),
    /// For each task its own ones.
    Each(Vec<Vec<NodeId>>),
}

impl InputHosts {
    /// The nodes that hold the input of the task with this index; `nth` is its place in the stage's array. A name that is none once
    /// it is filled in is left out.
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
                names.iter().filter_map(|name| name.fill(known).parse().ok()).collect()
            }
        }
    }
}

/// Whether an attempt at a task may be repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idempotent {
    /// Repeating it does no harm.
    #[default]
    Yes,
    /// Each attempt writes into a directory of its own, and that of one attempt becomes the task's output.
    Fenced,
    /// It must never run twice.
    No,
}

/// What holds a task to its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskLimit {
    /// A cgroup of its own with its size as the limit.
    #[default]
    Task,
    /// Only the limit of its executor.
    Executor,
}

/// How often a task is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySpec {
    /// Attempts in all that may end as a plain failure (or, in mode `fixed`, in any failure of the task's own).
    pub max_attempts: u32,
    /// Attempts in all that may end as a memory failure.
    pub memory_attempts: u32,
    /// Attempts that may be lost through no fault of the task.
    pub transient: u32,
    /// Largest size a task may grow to; that of the largest node when left out.
    pub cap: Option<Bytes>,
    /// Per cent of a stage's tasks that may be given another size; beyond it the stage is marked badly sized, and nothing of it is
    /// given more. No bound when left out.
    pub breaker: Option<u32>,
    /// What memory failures may cost the job: memory × time of attempts that had to run again, and of whatever escalated ones have beyond
    /// their first size. Beyond it nothing of the job is given more. No bound when left out.
    pub budget: Option<GibHours>,
    /// How long the container of an escalated task waits before an executor of its own job makes room for it. The master waits at most
    /// half the mean run time of the job's tasks.
    pub drain_after: Duration,
    /// Processors of the container of an escalated task, where that is fewer than the task has in an executor.
    pub cpus: Option<Cpus>,
}

/// Memory over time, exact to a thousandth of a GiB·h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GibHours {
    thousandths: u32,
}

impl GibHours {
    /// So many thousandths of a GiB·h.
    pub fn from_thousandths(thousandths: u32) -> Self {
        GibHours { thousandths }
    }
    /// Byte-milliseconds.
    pub fn byte_ms(self) -> u128 {
        (u128::from(self.thousandths) << 30) * 3_600
    }
    /// The nearest to so many byte-milliseconds; the largest there is beyond that.
    pub fn nearest(byte_ms: u128) -> Self {
        let one = 3_600u128 << 30;
        GibHours { thousandths: u32::try_from((byte_ms + one / 2) / one).unwrap_or(u32::MAX) }
    }
}

impl std::str::FromStr for GibHours {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a number of GiB·h above 0, with at most three decimals");
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if part.len() > 3 || !digits(whole) || !digits(part) {
            return Err(wrong());
        }
        let (whole, part) = (whole.parse::<u32>().ok(), format!("{part:0<3}").parse::<u32>().ok());
        let both = whole.and_then(|n| n.checked_mul(1000)).zip(part).and_then(|(n, part)| n.checked_add(part));
        both.filter(|n| *n > 0).map(GibHours::from_thousandths).ok_or_else(wrong)
    }
}

impl std::fmt::Display for GibHours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03} GiB·h", self.thousandths / 1000, self.thousandths % 1000)
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
    fn slots_share_what_the_reserve_leaves() {
        let profile = Profile { heap: Bytes::from_mib(256), overhead: Bytes::from_mib(32), cpus: Cpus::from_cores(4) };
        let e = ExecutorSpec {
            name: "main".parse().expect("name"),
            profile,
            count: 2,
            min: 0,
            idle: Duration::ZERO,
            slots: 4,
            reserve: Bytes::from_mib(32),
            program: None,
            place: Where::default(),
        };
        assert_eq!(e.share(), Bytes::from_mib(64));
        let needs: Vec<u32> = [1, 64, 65, 128, 300].iter().map(|m| e.slots_for(Bytes::from_mib(*m))).collect();
        assert_eq!(needs, [1, 1, 2, 2, 5]);
    }
}

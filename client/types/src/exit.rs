//! How a container or a task ended: a closed reason, the evidence for it, and the report that carries both.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::diagnosis::{Certainty, Diagnosis, SubCause};
pub use crate::heap::{Collector, GcCause, GcFacts, HeapFacts};
pub use crate::process::ProcessFacts;
pub use crate::timeline::{Mark, Sample};
pub use crate::unattributed::{LeftBy, Unattributed};
use crate::{Bytes, ContainerId, NodeId, OwnLimit, TaskAttemptId, UnixMillis};

/// What holds a container to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnforcerKind {
    /// cgroup v2: the kernel, with `memory.max`.
    Cgroup2,
    /// cgroup v1: the kernel, with `memory.limit_in_bytes`.
    Cgroup1,
    /// No privileges: the agent measures and kills. Not enforced by the kernel.
    Poll,
}

impl EnforcerKind {
    /// The name used in configuration, JSON and screens.
    pub fn as_str(self) -> &'static str {
        match self {
            EnforcerKind::Cgroup2 => "cgroup2",
            EnforcerKind::Cgroup1 => "cgroup1",
            EnforcerKind::Poll => "poll",
        }
    }
    /// True when the kernel itself holds the limit.
    pub fn is_kernel(self) -> bool {
        match self {
            EnforcerKind::Cgroup2 | EnforcerKind::Cgroup1 => true,
            EnforcerKind::Poll => false,
        }
    }
}
impl fmt::Display for EnforcerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a container or a task is no longer there. Closed: every reader handles every reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitReason {
    /// The runtime said that its heap is full, or the kernel killed it at its own limit with the heap beyond its budget. A program that
    /// was refused memory far below its limit is not one of these: it ended by itself.
    HeapOom,
    /// The kernel killed it at its own limit while the heap was within its budget.
    OverheadOom,
    /// A task's own cgroup was the victim; its executor lives.
    TaskOom,
    /// At its own limit, re-reading its own pages for ever, and no kill in sight; the agent ended it.
    StalledAtLimit,
    /// Killed for the limit of an outer cgroup.
    AncestorOom,
    /// Killed because the host ran out of memory.
    NodeOom,
    /// SIGKILL, no counter moved, and nobody of ours asked.
    KilledExternally,
    /// Somebody asked for it to stop.
    Stopped,
    /// Taken back for another queue's share.
    Preempted,
    /// Ran longer than it may.
    Timeout,
    /// The node is gone.
    NodeLost,
    /// It never ran: no such program, no directory, no cgroup.
    LaunchFailed,
    /// The program ended by itself.
    Exit {
        /// Its exit code; 0 is success.
        code: i32,
    },
    /// The program ended by a signal that was no matter of memory.
    Signal {
        /// The signal's number.
        signal: i32,
    },
}

/// Which of the two quantities ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// The runtime's heap.
    Heap,
    /// All else.
    Overhead,
    /// No managed heap: one quantity.
    Native,
}

/// Whose account an end goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// A memory failure of the task's own.
    Memory,
    /// The task's own, but no matter of memory.
    Plain,
    /// Not the task's fault: same size again.
    Free,
    /// It did what it should.
    Success,
}

impl ExitReason {
    /// The name used in JSON, events and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            ExitReason::HeapOom => "heap_oom",
            ExitReason::OverheadOom => "overhead_oom",
            ExitReason::TaskOom => "task_oom",
            ExitReason::StalledAtLimit => "stalled_at_limit",
            ExitReason::AncestorOom => "ancestor_oom",
            ExitReason::NodeOom => "node_oom",
            ExitReason::KilledExternally => "killed_externally",
            ExitReason::Stopped => "stopped",
            ExitReason::Preempted => "preempted",
            ExitReason::Timeout => "timeout",
            ExitReason::NodeLost => "node_lost",
            ExitReason::LaunchFailed => "launch_failed",
            ExitReason::Exit { .. } => "exit",
            ExitReason::Signal { .. } => "signal",
        }
    }

    /// Whose account it goes to.
    pub fn charge(&self) -> Charge {
        match self {
            ExitReason::HeapOom | ExitReason::OverheadOom | ExitReason::TaskOom | ExitReason::StalledAtLimit => Charge::Memory,
            ExitReason::AncestorOom
            | ExitReason::NodeOom
            | ExitReason::KilledExternally
            | ExitReason::Stopped
            | ExitReason::Preempted
            | ExitReason::NodeLost
            | ExitReason::LaunchFailed => Charge::Free,
            ExitReason::Exit { code: 0 } => Charge::Success,
            ExitReason::Exit { .. } | ExitReason::Signal { .. } | ExitReason::Timeout => Charge::Plain,
        }
    }

    /// The number a YARN client expects for this end; a heap failure keeps the process's own code, given as `code`.
    pub fn yarn_status(&self, code: Option<i32>) -> i32 {
        match self {
            ExitReason::OverheadOom | ExitReason::TaskOom | ExitReason::StalledAtLimit => -104,
            ExitReason::HeapOom => code.unwrap_or(-104),
            ExitReason::AncestorOom | ExitReason::NodeOom | ExitReason::NodeLost | ExitReason::LaunchFailed => -100,
            ExitReason::Preempted => -102,
            ExitReason::KilledExternally => 137,
            ExitReason::Stopped => -105,
            ExitReason::Timeout => -106,
            ExitReason::Exit { code } => *code,
            ExitReason::Signal { signal } => 128 + signal,
        }
    }

    /// What happened, for people, without figures.
    pub fn sentence(&self) -> String {
        match self {
            ExitReason::HeapOom => "out of memory: the heap is full".into(),
            ExitReason::OverheadOom => "out of memory: off-heap memory passed the limit".into(),
            ExitReason::TaskOom => "out of memory at the task's own limit; its executor lives".into(),
            ExitReason::StalledAtLimit => "stuck at its own limit, re-reading its own pages; ended by the node agent".into(),
            ExitReason::AncestorOom => "killed for an outer limit, not for its own".into(),
            ExitReason::NodeOom => "killed because the host ran out of memory".into(),
            ExitReason::KilledExternally => "killed from outside (SIGKILL, and no memory counter moved)".into(),
            ExitReason::Stopped => "stopped on request".into(),
            ExitReason::Preempted => "preempted for another queue".into(),
            ExitReason::Timeout => "ran longer than it may".into(),
            ExitReason::NodeLost => "its node is gone".into(),
            ExitReason::LaunchFailed => "could not be started".into(),
            ExitReason::Exit { code: 0 } => "finished".into(),
            ExitReason::Exit { code } => format!("the program ended with exit code {code}"),
            ExitReason::Signal { signal } => format!("the program ended by signal {signal}"),
        }
    }
}
impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Exit { code } => f.pad(&format!("exit({code})")),
            ExitReason::Signal { signal } => f.pad(&format!("signal({signal})")),
            ExitReason::HeapOom
            | ExitReason::OverheadOom
            | ExitReason::TaskOom
            | ExitReason::StalledAtLimit
            | ExitReason::AncestorOom
            | ExitReason::NodeOom
            | ExitReason::KilledExternally
            | ExitReason::Stopped
            | ExitReason::Preempted
            | ExitReason::Timeout
            | ExitReason::NodeLost
            | ExitReason::LaunchFailed => f.pad(self.name()),
        }
    }
}

/// Memory of one cgroup by kind. A kind the kernel does not tell is `None`. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryStat {
    /// Anonymous memory.
    pub anon: Option<Bytes>,
    /// Page cache, tmpfs included.
    pub file: Option<Bytes>,
    /// Mapped page cache.
    pub file_mapped: Option<Bytes>,
    /// tmpfs and shared memory.
    pub shmem: Option<Bytes>,
    /// All kernel memory: stacks, slabs, page tables.
    pub kernel: Option<Bytes>,
    /// Kernel stacks.
    pub kernel_stack: Option<Bytes>,
    /// Slabs that cannot be reclaimed.
    pub slab_unreclaimable: Option<Bytes>,
    /// Socket buffers.
    pub sock: Option<Bytes>,
    /// Pages of its own file mappings that it had to read again; a count.
    pub workingset_refault_file: Option<u64>,
}

impl MemoryStat {
    /// What cannot be given back by reclaim: anonymous, shared and unreclaimable kernel memory. `None` without `anon`.
    pub fn demand(&self) -> Option<Bytes> {
        let kernel = self.kernel.or(self.slab_unreclaimable).unwrap_or_default();
        Some(self.anon?.saturating_add(self.shmem.unwrap_or_default()).saturating_add(kernel))
    }
}

/// Counters of one cgroup at one moment, or their growth since an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryEvents {
    /// Times the use passed `memory.high`.
    pub high: u64,
    /// Times the use hit the limit (v1: `failcnt`).
    pub max: u64,
    /// Times the out-of-memory path was entered.
    pub oom: u64,
    /// Processes killed by the kernel for memory.
    pub oom_kill: u64,
    /// Whole groups killed by the kernel for memory.
    pub oom_group_kill: u64,
}

impl MemoryEvents {
    /// Growth since `earlier`; a counter that went back counts as unchanged.
    pub fn since(&self, earlier: &MemoryEvents) -> MemoryEvents {
        MemoryEvents {
            high: self.high.saturating_sub(earlier.high),
            max: self.max.saturating_sub(earlier.max),
            oom: self.oom.saturating_sub(earlier.oom),
            oom_kill: self.oom_kill.saturating_sub(earlier.oom_kill),
            oom_group_kill: self.oom_group_kill.saturating_sub(earlier.oom_group_kill),
        }
    }
}

/// One cgroup as read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupFacts {
    /// The limit; `None` when there is none. Bytes.
    pub limit: Option<Bytes>,
    /// In use now. Bytes.
    pub current: Bytes,
    /// Largest use since birth; `None` where the kernel does not keep it. Bytes.
    pub peak: Option<Bytes>,
    /// By kind.
    pub stat: MemoryStat,
    /// Counters that include all descendants (v2 `memory.events`).
    pub events: MemoryEvents,
    /// Counters of this level only (v2 `memory.events.local`; v1 has no other kind).
    pub local: MemoryEvents,
}

/// One process that was there, or was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Victim {
    /// Process id on its node.
    pub pid: i32,
    /// Name of the program, at most 15 characters as the kernel keeps it.
    pub name: String,
    /// Resident memory. Bytes.
    pub rss: Bytes,
}

/// What the verdict was decided from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// What held the limit.
    pub enforcer: EnforcerKind,
    /// The program's exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether somebody of ours asked for the end before the counters moved.
    pub stop_asked: Option<StopCause>,
    /// Its own cgroup at the end.
    pub own: GroupFacts,
    /// The out-of-memory kills by the kernel counted in the enclosing levels during its life: container (for a task), fence, host.
    pub outer: Vec<OuterLevel>,
    /// The heap budget handed to the runtime; `None` where no runtime is declared. Bytes.
    pub heap_budget: Option<Bytes>,
    /// The last thing the runtime told about its heap.
    pub heap: Option<HeapFacts>,
    /// The line of output or the marker file that named a full heap.
    pub heap_marker: Option<String>,
    /// Who was killed, or the largest processes seen last.
    pub victims: Vec<Victim>,
    /// What the memory of its largest process was made of, looked at when it was last near its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<ProcessFacts>,
    /// Limits that it, its command or its job file set by hand; of each kind the last one that was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_limits: Vec<OwnLimit>,
    /// What could not be read and so was not weighed.
    pub missing: Vec<String>,
}

impl Evidence {
    /// No facts yet.
    pub fn empty(enforcer: EnforcerKind) -> Self {
        Evidence {
            enforcer,
            exit_code: None,
            signal: None,
            stop_asked: None,
            own: GroupFacts::default(),
            outer: Vec::new(),
            heap_budget: None,
            heap: None,
            heap_marker: None,
            victims: Vec::new(),
            inside: None,
            own_limits: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// Growth of the counters of an enclosing level during the life of a container or task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OuterLevel {
    /// Which level: `container`, `containers` (the fence of a node) or `host`.
    pub level: String,
    /// Its limit. Bytes.
    pub limit: Option<Bytes>,
    /// Growth of its own counters.
    pub local: MemoryEvents,
    /// What was charged to it and held by nothing that ran in it; `None` where that was nothing worth naming, or is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattributed: Option<Unattributed>,
}

impl OuterLevel {
    /// A level of which only counters are known.
    pub fn counted(level: &str, limit: Option<Bytes>, local: MemoryEvents) -> Self {
        OuterLevel { level: level.to_owned(), limit, local, unattributed: None }
    }
}

/// Who asked for an end, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The application, a user, or the resource manager on their behalf.
    Asked,
    /// The resource manager took it back.
    Preempted,
    /// Its time was up.
    Timeout,
    /// The agent's own fallback enforcer saw it beyond its limit.
    OverLimit,
    /// The agent ended it: stuck at its limit.
    Stalled,
    /// The agent ended it: nothing was heard of the resource manager for too long.
    Fenced,
}

/// The node agent's verdict on a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExitReport {
    /// Whose end.
    pub container: ContainerId,
    /// Where.
    pub node: NodeId,
    /// The closed reason.
    pub reason: ExitReason,
    /// What it was decided from.
    pub evidence: Evidence,
    /// Causes and cures, cheapest first.
    pub diagnosis: Vec<Diagnosis>,
    /// First instruction of the program; `None` when it never ran.
    pub started: Option<UnixMillis>,
    /// End of its main process.
    pub ended: UnixMillis,
    /// Memory from birth to death, thinned to a bounded number of points.
    pub timeline: Vec<Sample>,
    /// The end of its standard error, at most 4 KiB.
    pub log_tail: String,
    /// The task cgroups found in it when it ended.
    pub tasks: Vec<TaskGroupFacts>,
}

/// One task cgroup inside a container that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskGroupFacts {
    /// Name of the cgroup: stage-index-attempt.
    pub name: String,
    /// As read after the end.
    pub facts: GroupFacts,
}

/// The executor's verdict on one task attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskReport {
    /// Which attempt.
    pub attempt: TaskAttemptId,
    /// In which container.
    pub container: ContainerId,
    /// The closed reason.
    pub reason: ExitReason,
    /// Which quantity ran out, for memory failures.
    pub dimension: Option<Dimension>,
    /// What it was decided from.
    pub evidence: Evidence,
    /// Causes and cures, cheapest first.
    pub diagnosis: Vec<Diagnosis>,
    /// Start of the task's process.
    pub started: Option<UnixMillis>,
    /// Its end.
    pub ended: UnixMillis,
    /// Memory from birth to death.
    pub timeline: Vec<Sample>,
    /// The end of its standard error, at most 4 KiB.
    pub log_tail: String,
    /// What its processes read by system calls, from the page cache or not, as far as it was seen: a lower bound. `None` where nobody
    /// looked. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Bytes>,
}

impl TaskReport {
    /// How long it ran.
    pub fn ran_for(&self) -> Duration {
        self.started.map(|from| self.ended.since(from)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_failures_of_its_own_are_charged_as_memory() {
        let free = [ExitReason::AncestorOom, ExitReason::NodeOom, ExitReason::KilledExternally, ExitReason::Stopped];
        assert!(free.iter().all(|r| r.charge() == Charge::Free));
        let own = [ExitReason::HeapOom, ExitReason::OverheadOom, ExitReason::TaskOom, ExitReason::StalledAtLimit];
        assert!(own.iter().all(|r| r.charge() == Charge::Memory));
        assert_eq!(ExitReason::Exit { code: 0 }.charge(), Charge::Success);
        assert_eq!(ExitReason::Exit { code: 137 }.charge(), Charge::Plain, "exit code 137 alone proves nothing");
    }

    #[test]
    fn yarn_numbers() {
        assert_eq!(ExitReason::OverheadOom.yarn_status(None), -104);
        assert_eq!(ExitReason::HeapOom.yarn_status(Some(3)), 3);
        assert_eq!(ExitReason::Signal { signal: 15 }.yarn_status(None), 143);
    }

    #[test]
    fn demand_leaves_page_cache_out() {
        let stat = MemoryStat {
            anon: Some(Bytes::from_mib(10)),
            file: Some(Bytes::from_mib(90)),
            shmem: Some(Bytes::from_mib(2)),
            kernel: Some(Bytes::from_mib(1)),
            ..MemoryStat::default()
        };
        assert_eq!(stat.demand(), Some(Bytes::from_mib(13)));
    }

    #[test]
    fn reasons_read_well_in_json() {
        let text = serde_json::to_string(&ExitReason::Exit { code: 3 }).expect("writes");
        assert_eq!(text, r#"{"kind":"exit","code":3}"#);
        assert_eq!(serde_json::to_string(&ExitReason::HeapOom).expect("writes"), r#"{"kind":"heap_oom"}"#);
    }
}

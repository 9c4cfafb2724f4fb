//! The end of a container or task: a closed reason, its evidence, and the report with both.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::diagnosis::{Certainty, Diagnosis, SubCause};
pub use crate::heap::{CollectionReport, GarbageCollector, GcCause, HeapReport};
pub use crate::process::ProcessMemory;
pub use crate::timeline::{MemorySample, TimelineMark};
pub use crate::unattributed::{LeftoverOwner, Unattributed};
use crate::{Bytes, ContainerId, NodeId, OwnLimit, TaskAttemptId, UnixMillis};

word_enum! {
    /// The mechanism that enforces the memory limit of a container.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum EnforcerKind: "is not an enforcer; use" {
        /// cgroup v2: the kernel enforces `memory.max`.
        Cgroup2 = "cgroup2",
        /// cgroup v1: the kernel enforces `memory.limit_in_bytes`.
        Cgroup1 = "cgroup1",
        /// No privileges: the node agent measures and kills. The kernel enforces nothing.
        Poll = "poll",
    }
}

impl EnforcerKind {
    /// True when the kernel enforces the limit.
    pub fn is_kernel(self) -> bool {
        match self {
            EnforcerKind::Cgroup2 | EnforcerKind::Cgroup1 => true,
            EnforcerKind::Poll => false,
        }
    }
}
/// The reason for the end of a container or task. Closed: every reader handles every reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitReason {
    /// The runtime reported a full heap, or the kernel killed the program at its own limit with the
    /// heap above its budget. A program whose allocation failed far below its limit does not count:
    /// it exited by itself.
    HeapOom,
    /// The kernel killed the program at its own limit with the heap within its budget.
    OverheadOom,
    /// The kernel killed a task in the task's own cgroup; its executor survives.
    TaskOom,
    /// The program stalled at its own limit and re-read its own pages without an OOM kill; the
    /// agent ended it.
    StalledAtLimit,
    /// The kernel killed the program for the limit of an outer cgroup.
    AncestorOom,
    /// The kernel killed the program because the host ran out of memory.
    NodeOom,
    /// SIGKILL without a change of a memory counter and without a stop request.
    KilledExternally,
    /// Ended on request.
    Stopped,
    /// Preempted for the guarantee of another queue.
    Preempted,
    /// Exceeded its maximum run time.
    Timeout,
    /// The node was lost.
    NodeLost,
    /// The program did not start: missing program, directory or cgroup.
    LaunchFailed,
    /// The program exited by itself.
    Exit {
        /// Exit code; 0 is success.
        code: i32,
    },
    /// A signal that is unrelated to memory ended the program.
    Signal {
        /// Number of the signal.
        signal: i32,
    },
}

/// The quantity that ran out.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// The runtime's heap.
    Heap,
    /// All memory outside the heap.
    Overhead,
    /// A program without a managed heap has one quantity.
    Native,
}

word_enum! {
    /// The account to which an end is charged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ExitCharge: "is not a charge; use" {
        /// A memory failure of the task itself.
        Memory = "memory",
        /// A failure of the task itself that is unrelated to memory.
        Plain = "plain",
        /// Not charged to the task; the next attempt has the same size.
        Free = "free",
        /// Success.
        Success = "success",
    }
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

    /// The account to which the end is charged.
    pub fn charge(&self) -> ExitCharge {
        match self {
            ExitReason::HeapOom
            | ExitReason::OverheadOom
            | ExitReason::TaskOom
            | ExitReason::StalledAtLimit => ExitCharge::Memory,
            ExitReason::AncestorOom
            | ExitReason::NodeOom
            | ExitReason::KilledExternally
            | ExitReason::Stopped
            | ExitReason::Preempted
            | ExitReason::NodeLost
            | ExitReason::LaunchFailed => ExitCharge::Free,
            ExitReason::Exit { code: 0 } => ExitCharge::Success,
            ExitReason::Exit { .. } | ExitReason::Signal { .. } | ExitReason::Timeout => {
                ExitCharge::Plain
            }
        }
    }

    /// The YARN exit status for this end. A heap failure keeps the exit code of the process,
    /// `code`.
    pub fn yarn_status(&self, code: Option<i32>) -> i32 {
        match self {
            ExitReason::OverheadOom | ExitReason::TaskOom | ExitReason::StalledAtLimit => -104,
            ExitReason::HeapOom => code.unwrap_or(-104),
            ExitReason::AncestorOom
            | ExitReason::NodeOom
            | ExitReason::NodeLost
            | ExitReason::LaunchFailed => -100,
            ExitReason::Preempted => -102,
            ExitReason::KilledExternally => 137,
            ExitReason::Stopped => -105,
            ExitReason::Timeout => -106,
            ExitReason::Exit { code } => *code,
            ExitReason::Signal { signal } => 128 + signal,
        }
    }

    /// The end in words for users, without numbers.
    pub fn sentence(&self) -> String {
        match self {
            ExitReason::HeapOom => "out of memory: the heap is full".into(),
            ExitReason::OverheadOom => "out of memory: off-heap memory passed the limit".into(),
            ExitReason::TaskOom => {
                "out of memory at the task's own limit; its executor lives".into()
            }
            ExitReason::StalledAtLimit => {
                "stalled at its own limit, re-reading its own pages; ended by the node agent".into()
            }
            ExitReason::AncestorOom => "killed for an outer limit, not for its own".into(),
            ExitReason::NodeOom => "killed because the host ran out of memory".into(),
            ExitReason::KilledExternally => {
                "killed from outside (SIGKILL, and no memory counter moved)".into()
            }
            ExitReason::Stopped => "stopped on request".into(),
            ExitReason::Preempted => "preempted for another queue".into(),
            ExitReason::Timeout => "ran longer than its time limit".into(),
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

/// Memory of one cgroup by kind. Bytes. A kind that the kernel does not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// Pages of file mappings that were read again after reclaim; a count.
    pub workingset_refault_file: Option<u64>,
}

impl MemoryStat {
    /// Memory that reclaim cannot free: anonymous, shared and unreclaimable kernel memory. `None`
    /// without `anon`.
    pub fn demand(&self) -> Option<Bytes> {
        let kernel = self.kernel.or(self.slab_unreclaimable).unwrap_or_default();
        Some(
            self.anon?
                .saturating_add(self.shmem.unwrap_or_default())
                .saturating_add(kernel),
        )
    }
}

/// Counters of one cgroup at one moment, or their growth since an earlier moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryEvents {
    /// Number of times that the use passed `memory.high`.
    pub high: u64,
    /// Number of times that the use hit the limit (v1: `failcnt`).
    pub max: u64,
    /// Number of times that the kernel entered the out-of-memory path.
    pub oom: u64,
    /// Processes that the kernel killed for memory.
    pub oom_kill: u64,
    /// Whole groups that the kernel killed for memory.
    pub oom_group_kill: u64,
}

impl MemoryEvents {
    /// The growth since `earlier`. A counter that decreased counts as unchanged.
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

/// The state of one cgroup at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CgroupStats {
    /// The limit; `None` without a limit. Bytes.
    pub limit: Option<Bytes>,
    /// Current use. Bytes.
    pub current: Bytes,
    /// Largest use since the cgroup was created; `None` where the kernel does not record it. Bytes.
    pub peak: Option<Bytes>,
    /// Memory by kind.
    pub stat: MemoryStat,
    /// Counters that include all descendants (v2 `memory.events`).
    pub events: MemoryEvents,
    /// Counters of this level only (v2 `memory.events.local`; v1 has only these).
    pub local: MemoryEvents,
}

/// A killed process, or one of the largest processes seen last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VictimProcess {
    /// Process id on its node.
    pub pid: i32,
    /// Program name, at most 15 characters as the kernel keeps it.
    pub name: String,
    /// Resident memory. Bytes.
    pub rss: Bytes,
}

/// The measurements behind a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    /// The mechanism that enforced the limit.
    pub enforcer: EnforcerKind,
    /// Exit code of a program that exited by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// The stop request of Headroom that preceded the change of the counters, if any.
    pub stop_asked: Option<StopCause>,
    /// Its own cgroup at the end.
    pub own: CgroupStats,
    /// OOM kills in the enclosing levels during the run: container (for a task), fence, host.
    pub outer: Vec<OuterLevel>,
    /// Heap budget of the runtime; `None` without a declared runtime. Bytes.
    pub heap_budget: Option<Bytes>,
    /// The last heap report of the runtime.
    pub heap: Option<HeapReport>,
    /// The output line or marker file that reported a full heap.
    pub heap_marker: Option<String>,
    /// The killed processes, or the largest processes seen last.
    pub victims: Vec<VictimProcess>,
    /// Memory of the largest process by kind, sampled when it was last near its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<ProcessMemory>,
    /// Limits that the program, its command or its job file sets by hand; the last value seen of
    /// each kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_limits: Vec<OwnLimit>,
    /// Inputs that could not be read and were not considered.
    pub missing: Vec<String>,
}

impl Evidence {
    /// Evidence without measurements.
    pub fn empty(enforcer: EnforcerKind) -> Self {
        Evidence {
            enforcer,
            exit_code: None,
            signal: None,
            stop_asked: None,
            own: CgroupStats::default(),
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

    /// Process id of the runtime with a heap: by its heap report, or the only `java` among the
    /// largest processes. `None` if it is unknown.
    pub fn runtime_pid(&self) -> Option<i32> {
        if let Some(pid) = self.heap.and_then(|heap| heap.pid) {
            return Some(pid);
        }
        let mut named = self.victims.iter().filter(|v| v.name == "java");
        match (named.next(), named.next()) {
            (Some(only), None) => Some(only.pid),
            (Some(_), Some(_)) | (None, _) => None,
        }
    }

    /// Memory of the inspected process, unless that process is known not to be the runtime.
    pub fn runtime_memory(&self) -> Option<ProcessMemory> {
        let runtime = self.runtime_pid();
        self.inside.filter(|inside| {
            // 0: the process was not recorded.
            inside.pid == 0 || runtime.is_none_or(|pid| pid == inside.pid)
        })
    }
}

/// Counter growth of an enclosing level during the run of a container or task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OuterLevel {
    /// The level: `container`, `containers` (the fence of a node) or `host`.
    pub level: String,
    /// Its limit. Bytes.
    pub limit: Option<Bytes>,
    /// Growth of the counters of this level.
    pub local: MemoryEvents,
    /// Memory charged to the level that no running process in it holds; `None` when negligible or
    /// not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unattributed: Option<Unattributed>,
}

impl OuterLevel {
    /// A level with counters only.
    pub fn counted(level: &str, limit: Option<Bytes>, local: MemoryEvents) -> Self {
        OuterLevel {
            level: level.to_owned(),
            limit,
            local,
            unattributed: None,
        }
    }
}

/// The origin of a stop request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The application, a user, or the resource manager on their behalf requested it.
    Asked,
    /// The resource manager preempted it.
    Preempted,
    /// It reached its maximum run time.
    Timeout,
    /// The fallback enforcer of the agent measured it above its limit.
    OverLimit,
    /// The agent ended it because it stalled at its limit.
    Stalled,
    /// The agent ended it because the resource manager was unreachable for too long.
    Fenced,
}

/// The verdict of the node agent on a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExitReport {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// The closed reason.
    pub reason: ExitReason,
    /// The measurements behind the verdict.
    pub evidence: Evidence,
    /// Causes and cures, cheapest first.
    pub diagnosis: Vec<Diagnosis>,
    /// First instruction of the program; `None` when it never ran.
    pub started: Option<UnixMillis>,
    /// End of the main process.
    pub ended: UnixMillis,
    /// Memory from start to end, thinned to a bounded number of points.
    pub timeline: Vec<MemorySample>,
    /// The end of standard error, at most 4 KiB.
    pub log_tail: String,
    /// Task cgroups that existed in the container when it ended.
    pub tasks: Vec<TaskGroupStats>,
}

/// A task cgroup inside a container that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskGroupStats {
    /// Name of the cgroup: stage-index-attempt.
    pub name: String,
    /// State of the cgroup after the end.
    pub facts: CgroupStats,
}

/// The verdict of the executor on one task attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskReport {
    /// The task attempt.
    pub attempt: TaskAttemptId,
    /// The container.
    pub container: ContainerId,
    /// The closed reason.
    pub reason: ExitReason,
    /// The quantity that ran out, for memory failures.
    pub dimension: Option<Dimension>,
    /// The measurements behind the verdict.
    pub evidence: Evidence,
    /// Causes and cures, cheapest first.
    pub diagnosis: Vec<Diagnosis>,
    /// Start of the task's process.
    pub started: Option<UnixMillis>,
    /// End of the task's process.
    pub ended: UnixMillis,
    /// Memory from start to end.
    pub timeline: Vec<MemorySample>,
    /// The end of standard error, at most 4 KiB.
    pub log_tail: String,
    /// Bytes that its processes read by system calls, from the page cache or from disk: a lower
    /// bound. `None` if not measured. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Bytes>,
    /// The value that the program wrote into the file `HEADROOM_VALUE_FILE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Size of that file if it is too large; `value` is `None` then. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_too_large: Option<Bytes>,
    /// True if all its processes have ended and both logs are empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
}

impl TaskReport {
    /// The run time.
    pub fn ran_for(&self) -> Duration {
        self.started
            .map(|from| self.ended.since(from))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_memory_failures_are_charged_as_memory() {
        let free = [
            ExitReason::AncestorOom,
            ExitReason::NodeOom,
            ExitReason::KilledExternally,
            ExitReason::Stopped,
        ];
        assert!(free.iter().all(|r| r.charge() == ExitCharge::Free));
        let own = [
            ExitReason::HeapOom,
            ExitReason::OverheadOom,
            ExitReason::TaskOom,
            ExitReason::StalledAtLimit,
        ];
        assert!(own.iter().all(|r| r.charge() == ExitCharge::Memory));
        assert_eq!(ExitReason::Exit { code: 0 }.charge(), ExitCharge::Success);
        assert_eq!(
            ExitReason::Exit { code: 137 }.charge(),
            ExitCharge::Plain,
            "exit code 137 alone proves nothing"
        );
    }

    #[test]
    fn exit_reasons_map_to_yarn_numbers() {
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
        assert_eq!(
            serde_json::to_string(&ExitReason::HeapOom).expect("writes"),
            r#"{"kind":"heap_oom"}"#
        );
    }
}

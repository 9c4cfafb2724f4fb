//! A case of the verdict matrix: a program, the action on it, and the right verdict.

use std::str::FromStr;

use headroom_node_core::{VerdictScope, classify};
use headroom_types::{
    Bytes, Dimension, EnforcerKind, Evidence, ExitReason, ExitReport, LaunchSpec, StopCause,
    TaskReport,
};
use headroom_wire::v1::task::TaskStart;

use super::tools::Tools;

/// One case.
#[derive(Clone, Debug)]
pub struct VerdictCase {
    /// Its name in the table.
    pub name: &'static str,
    /// The enforcers for which it makes sense.
    pub on: &'static [EnforcerKind],
    /// The kind of node that it needs.
    pub stage: Stage,
    /// How often it runs.
    pub pace: CaseFrequency,
    /// The container's limit. MiB.
    pub mib: u64,
    /// The program.
    pub program: Program,
    /// The action on the container.
    pub act: CaseAction,
    /// The right verdict.
    pub right: ExpectedVerdict,
}

/// All three enforcers.
pub const ALL: &[EnforcerKind] = &EnforcerKind::ALL;
/// The enforcers of the kernel.
pub const KERNEL: &[EnforcerKind] = &[EnforcerKind::Cgroup2, EnforcerKind::Cgroup1];
/// Only cgroup v2.
pub const V2: &[EnforcerKind] = &[EnforcerKind::Cgroup2];

/// The kind of node that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A node with memory for all containers.
    Roomy,
    /// A node with memory for all, on which a hundred containers run the case at once.
    Burst,
    /// A node whose own limit is below those of its containers. A collateral container runs beside
    /// the case and must survive.
    Fenced,
    /// A node in a cgroup with a foreign limit.
    Nested,
    /// A node whose agent is killed.
    Fragile,
    /// A host with swap. Only in guests.
    Swapped,
    /// A host with less memory than the container's limit. Only in guests.
    Starved,
}

impl Stage {
    /// Its name on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Roomy => "roomy",
            Stage::Burst => "burst",
            Stage::Fenced => "fenced",
            Stage::Nested => "nested",
            Stage::Fragile => "fragile",
            Stage::Swapped => "swapped",
            Stage::Starved => "starved",
        }
    }
}

impl FromStr for Stage {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "roomy" => Stage::Roomy,
            "burst" => Stage::Burst,
            "fenced" => Stage::Fenced,
            "nested" => Stage::Nested,
            "fragile" => Stage::Fragile,
            "swapped" => Stage::Swapped,
            "starved" => Stage::Starved,
            _ => {
                return Err("use roomy, burst, fenced, nested, fragile, swapped or starved".into());
            }
        })
    }
}

/// The share of rounds in which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseFrequency {
    /// Each round.
    Every,
    /// One round in ten, because a runtime has to start.
    Tenth,
    /// One round in a hundred, because it takes seconds.
    Hundredth,
}

impl CaseFrequency {
    /// Number of runs; at least one.
    pub fn times(self, rounds: u32) -> u32 {
        match self {
            CaseFrequency::Every => rounds,
            CaseFrequency::Tenth => rounds.div_ceil(10),
            CaseFrequency::Hundredth => rounds.div_ceil(100),
        }
        .max(1)
    }
}

/// The program in a container.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// The workload with these steps; `SCRATCH` in them stands for a directory on a disk.
    Steps(&'static [&'static str]),
    /// The workload with a limit of processes.
    Few(u32, &'static [&'static str]),
    /// The workload, which creates cgroups for tasks.
    Executor(&'static [&'static str]),
    /// The shipped executor with this number of parallel tasks, each with this limit (MiB) and the
    /// workload with these steps.
    Tasks(u32, u64, &'static [&'static str]),
    /// A program of a runtime, with its heap budget (MiB) and the exit codes that mean a full heap.
    Runtime(Runtime, u64, &'static [i32]),
}

/// Programs of runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Flags of the JVM, and the argument of the class.
    Java(&'static [&'static str], &'static str),
    /// As `Java`, with a private copy of the newest JVM: all of its code is charged to this
    /// container.
    OwnJava(&'static [&'static str], &'static str),
    /// As `Java`, with the newest JVM, whose code is dropped from the page cache before: it is
    /// charged to this container.
    ColdJava(&'static [&'static str], &'static str),
    /// Flags of Node, and its script.
    Node(&'static [&'static str], &'static str),
    /// Node below a shell, which turns its end into an exit code.
    NodeInShell(&'static str),
    /// A Go program and its argument.
    Go(&'static str),
    /// A script and its argument. Python has no heap budget.
    Python(&'static str, &'static str),
}

/// The action on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseAction {
    /// No action.
    None,
    /// Its program is killed when it is ready.
    Kill,
    /// Its whole cgroup is killed when it is ready.
    KillAll,
    /// It is stopped when it is ready.
    Stop,
    /// It continues and is stopped, immediately one after the other, in either order.
    StopAsItContinues,
    /// It continues, and the agent is killed shortly afterwards and restarted.
    CrashAsItContinues,
}

/// The right verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVerdict {
    /// This reason with this dimension.
    Is(ExitReason, Option<Dimension>),
    /// Stop or kill, according to the counters: whichever came first.
    StopOrKill,
    /// It succeeds, and a task in it is the victim of its own limit.
    TaskVictim,
    /// Its executor succeeds and reports this verdict for each task.
    EachTask(ExitReason, Option<Dimension>),
    /// Its task died for the container's limit. The kernel may also kill the executor, because it
    /// does not wait for the memory of a victim. On a slow machine the container may stall at its
    /// limit before the kernel kills.
    TaskOrExecutor,
    /// Stalled, killed, or out of heap, consistent with its counters.
    StuckOrDead,
}

impl VerdictCase {
    /// The launch of its container; the reason if its runtime is not on this machine.
    pub(super) fn launch(&self, tools: &Tools) -> Result<LaunchSpec, String> {
        tools.launch(&self.program)
    }

    /// The tasks for its executor.
    pub(super) fn tasks(&self, tools: &Tools) -> Result<Vec<TaskStart>, String> {
        match self.program {
            Program::Tasks(count, mib, steps) => (0..count)
                .map(|n| tools.task(n, Bytes::from_mib(mib), steps))
                .collect(),
            Program::Steps(_) | Program::Few(..) | Program::Executor(_) | Program::Runtime(..) => {
                Ok(Vec::new())
            }
        }
    }

    /// The container's limit.
    pub fn limit(&self) -> Bytes {
        Bytes::from_mib(self.mib)
    }

    /// Whether the action waits until the program is ready.
    pub fn waits(&self) -> bool {
        self.act != CaseAction::None
    }

    /// Checks the verdict. An error describes the difference.
    pub fn judge(&self, report: &ExitReport, codes: &[i32]) -> Result<(), String> {
        let e = &report.evidence;
        let verdict = classify(e, VerdictScope::Container, codes);
        if verdict.reason != report.reason {
            return Err(format!("its evidence means {}", verdict.reason));
        }
        let killed = e.own.events.oom_kill > 0;
        let stalled = report.reason == ExitReason::StalledAtLimit
            && e.stop_asked == Some(StopCause::Stalled)
            && !killed;
        match self.right {
            ExpectedVerdict::Is(reason, dimension) => {
                let same = (report.reason, verdict.dimension) == (reason, dimension);
                same.then_some(())
                    .ok_or_else(|| format!("expected {}", shown(reason, dimension)))
            }
            ExpectedVerdict::StopOrKill => {
                let stopped =
                    report.reason == ExitReason::Stopped && e.stop_asked == Some(StopCause::Asked);
                let by_us = e.stop_asked == Some(StopCause::OverLimit);
                let over = report.reason == ExitReason::OverheadOom
                    && (by_us || e.stop_asked.is_none() && killed);
                (stopped || over)
                    .then_some(())
                    .ok_or_else(|| "neither a stop nor a kill".into())
            }
            ExpectedVerdict::TaskVictim => task_victim(report),
            ExpectedVerdict::TaskOrExecutor
                if killed && report.reason == ExitReason::OverheadOom && e.signal == Some(9) =>
            {
                Ok(())
            }
            ExpectedVerdict::TaskOrExecutor if stalled => Ok(()),
            ExpectedVerdict::EachTask(..) | ExpectedVerdict::TaskOrExecutor => {
                let well = report.reason == (ExitReason::Exit { code: 0 });
                well.then_some(())
                    .ok_or_else(|| "its executor should have succeeded".into())
            }
            ExpectedVerdict::StuckOrDead => {
                let oom = [ExitReason::HeapOom, ExitReason::OverheadOom].contains(&report.reason);
                let dead = oom && (killed || e.exit_code == Some(3));
                (stalled || dead)
                    .then_some(())
                    .ok_or_else(|| "the reason contradicts its counters".into())
            }
        }
    }

    /// Checks the executor's verdict on one of its tasks. An error describes the difference.
    pub fn judge_task(&self, report: &TaskReport) -> Result<(), String> {
        let (reason, dimension) = match self.right {
            ExpectedVerdict::EachTask(reason, dimension) => (reason, dimension),
            ExpectedVerdict::TaskOrExecutor => (ExitReason::AncestorOom, None),
            ExpectedVerdict::Is(..)
            | ExpectedVerdict::StopOrKill
            | ExpectedVerdict::TaskVictim
            | ExpectedVerdict::StuckOrDead => {
                return Err("it should have no tasks".into());
            }
        };
        let same = (report.reason, report.dimension) == (reason, dimension);
        same.then_some(())
            .ok_or_else(|| format!("expected {}", shown(reason, dimension)))
    }

    /// The right verdict as text.
    pub fn expected(&self) -> String {
        match self.right {
            ExpectedVerdict::Is(reason, dimension) => shown(reason, dimension),
            ExpectedVerdict::StopOrKill => "stopped | overhead_oom".into(),
            ExpectedVerdict::TaskVictim => "exit(0), its task task_oom".into(),
            ExpectedVerdict::EachTask(reason, dimension) => shown(reason, dimension),
            ExpectedVerdict::TaskOrExecutor => {
                "ancestor_oom | overhead_oom or stalled_at_limit of its executor".into()
            }
            ExpectedVerdict::StuckOrDead => "stalled_at_limit | oom".into(),
        }
    }
}

/// A reason and its dimension as text.
pub fn shown(reason: ExitReason, dimension: Option<Dimension>) -> String {
    match dimension {
        Some(Dimension::Heap) => format!("{reason} heap"),
        Some(Dimension::Overhead) => format!("{reason} overhead"),
        Some(Dimension::Native) => format!("{reason} native"),
        None => reason.to_string(),
    }
}

/// Checks a program that succeeded with a task whose own cgroup was the kernel's victim.
fn task_victim(report: &ExitReport) -> Result<(), String> {
    if report.reason != (ExitReason::Exit { code: 0 }) {
        return Err("its program still runs".into());
    }
    let task = report
        .tasks
        .first()
        .ok_or("its task is not in the report")?;
    let mut e = Evidence::empty(report.evidence.enforcer);
    (e.signal, e.own) = (Some(9), task.facts.clone());
    let reason = classify(&e, VerdictScope::Task, &[]).reason;
    if reason == ExitReason::TaskOom {
        Ok(())
    } else {
        Err(format!("the task's counters mean {reason}"))
    }
}

/// Time from the `started` line of the program to its end. Milliseconds; `None` without the line.
pub(super) fn stuck_ms(report: &ExitReport) -> Option<u64> {
    let begun = report
        .log_tail
        .lines()
        .find_map(|line| line.strip_prefix("started ")?.trim().parse::<u64>().ok())?;
    report
        .ended
        .0
        .checked_sub(begun)
        .filter(|_| report.reason == ExitReason::StalledAtLimit)
}

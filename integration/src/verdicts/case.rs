//! What a case of the matrix is: a program, what is done to it, and the verdict that is right.

use std::str::FromStr;

use headroom_node_core::{Scope, classify};
use headroom_types::{Bytes, Dimension, EnforcerKind, Evidence, ExitReason, ExitReport, StopCause, TaskReport};
use headroom_wire::v1::am::LaunchSpec;
use headroom_wire::v1::task::TaskStart;

use super::tools::Tools;

/// One way to die, or not to.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in the table.
    pub name: &'static str,
    /// Where it has a meaning.
    pub on: &'static [EnforcerKind],
    /// Which node it needs.
    pub stage: Stage,
    /// How often it is played.
    pub pace: Pace,
    /// The container's limit. MiB.
    pub mib: u64,
    /// What runs.
    pub program: Program,
    /// What is done to it.
    pub act: Act,
    /// What is right.
    pub right: Right,
}

/// All three enforcers.
pub const ALL: &[EnforcerKind] = &[EnforcerKind::Cgroup2, EnforcerKind::Cgroup1, EnforcerKind::Poll];
/// Those where the kernel kills.
pub const KERNEL: &[EnforcerKind] = &[EnforcerKind::Cgroup2, EnforcerKind::Cgroup1];
/// What only v2 has.
pub const V2: &[EnforcerKind] = &[EnforcerKind::Cgroup2];

/// Which node a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// One with room for all.
    Roomy,
    /// One with room, played by a hundred containers at once.
    Herd,
    /// One whose own limit is below that of its containers. With an innocent one beside it, which must live.
    Fenced,
    /// One that lives in a cgroup with a limit that is not its own.
    Nested,
    /// One whose agent is killed.
    Fragile,
    /// A host with swap. Guests only.
    Swapped,
    /// A host with less memory than the container may take. Guests only.
    Starved,
}

impl Stage {
    /// Its name on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Roomy => "roomy",
            Stage::Herd => "herd",
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
            "herd" => Stage::Herd,
            "fenced" => Stage::Fenced,
            "nested" => Stage::Nested,
            "fragile" => Stage::Fragile,
            "swapped" => Stage::Swapped,
            "starved" => Stage::Starved,
            _ => return Err("there are roomy, herd, fenced, nested, fragile, swapped and starved".into()),
        })
    }
}

/// How often a case is played in a run of so many rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// In each round.
    Every,
    /// In every tenth: a runtime has to start.
    Tenth,
    /// In every hundredth: seconds have to pass.
    Hundredth,
}

impl Pace {
    /// Times it is played; never none.
    pub fn times(self, rounds: u32) -> u32 {
        match self {
            Pace::Every => rounds,
            Pace::Tenth => rounds.div_ceil(10),
            Pace::Hundredth => rounds.div_ceil(100),
        }
        .max(1)
    }
}

/// What runs in a container.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// The workload with these steps; `SCRATCH` in them is a directory on a disk.
    Steps(&'static [&'static str]),
    /// The workload, which may have so many processes.
    Few(u32, &'static [&'static str]),
    /// The workload that makes cgroups for tasks.
    Executor(&'static [&'static str]),
    /// The executor that is shipped, with so many tasks at once, each under this limit (MiB) and the workload with these steps.
    Tasks(u32, u64, &'static [&'static str]),
    /// A program of a runtime, with heap budget (MiB) and the exit codes by which it names its heap as full.
    Runtime(Runtime, u64, &'static [i32]),
}

/// Programs of runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Flags of the JVM, then the class's argument.
    Java(&'static [&'static str], &'static str),
    /// The same with a copy of the newest JVM, which nobody else has in use: all of its code is charged to this container.
    OwnJava(&'static [&'static str], &'static str),
    /// The same with the newest JVM there is, whose own code is not in the page cache: it is charged to this container.
    ColdJava(&'static [&'static str], &'static str),
    /// Flags of Node, then its script.
    Node(&'static [&'static str], &'static str),
    /// Node below a shell, which passes on its end as an exit code.
    NodeInShell(&'static str),
    /// A Go program and what it fills.
    Go(&'static str),
    /// A script and its argument. Python has no heap budget.
    Python(&'static str, &'static str),
}

/// What is done to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    None,
    /// Its program is killed when it is ready.
    Kill,
    /// All of it is killed when it is ready.
    KillAll,
    /// It is told to stop when it is ready.
    Stop,
    /// Its gate is opened and it is told to stop, one right after the other, in either order.
    StopAtGate,
    /// Its gate is opened, and the agent is killed a moment later and started again.
    CrashAtGate,
}

/// What is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// This reason, with this quantity.
    Is(ExitReason, Option<Dimension>),
    /// The one of two racing ends that came first by the counters.
    StopOrKill,
    /// It ends well, and a task in it is the victim of its own limit.
    TaskVictim,
    /// Its executor ends well, and each of its tasks is told to have ended so.
    EachTask(ExitReason, Option<Dimension>),
    /// Its task died for its container's limit; or the kernel, which does not wait for what a victim gives back, took the executor too.
    TaskOrExecutor,
    /// Stuck, or killed, or out of heap; but one of them, as its counters have it.
    StuckOrDead,
}

impl Case {
    /// What the container is launched with; the reason when its runtime is not on this machine.
    pub(super) fn launch(&self, tools: &Tools) -> Result<LaunchSpec, String> {
        tools.launch(&self.program)
    }

    /// What its executor is told to run.
    pub(super) fn tasks(&self, tools: &Tools) -> Result<Vec<TaskStart>, String> {
        match self.program {
            Program::Tasks(count, mib, steps) => (0..count).map(|n| tools.task(n, Bytes::from_mib(mib), steps)).collect(),
            Program::Steps(_) | Program::Few(..) | Program::Executor(_) | Program::Runtime(..) => Ok(Vec::new()),
        }
    }

    /// The container's limit.
    pub fn limit(&self) -> Bytes {
        Bytes::from_mib(self.mib)
    }

    /// Whether it waits for a word from the program before anything is done.
    pub fn waits(&self) -> bool {
        self.act != Act::None
    }

    /// Whether the verdict is right; if not, what is wrong with it.
    pub fn judge(&self, report: &ExitReport, codes: &[i32]) -> Result<(), String> {
        let e = &report.evidence;
        let verdict = classify(e, Scope::Container, codes);
        if verdict.reason != report.reason {
            return Err(format!("its evidence speaks of {}", verdict.reason));
        }
        let killed = e.own.events.oom_kill > 0;
        match self.right {
            Right::Is(reason, dimension) => {
                let same = (report.reason, verdict.dimension) == (reason, dimension);
                same.then_some(()).ok_or_else(|| format!("{} was to be expected", shown(reason, dimension)))
            }
            Right::StopOrKill => {
                let stopped = report.reason == ExitReason::Stopped && e.stop_asked == Some(StopCause::Asked);
                let by_us = e.stop_asked == Some(StopCause::OverLimit);
                let over = report.reason == ExitReason::OverheadOom && (by_us || e.stop_asked.is_none() && killed);
                (stopped || over).then_some(()).ok_or_else(|| "neither the stop nor the kill".into())
            }
            Right::TaskVictim => task_victim(report),
            Right::TaskOrExecutor if killed && report.reason == ExitReason::OverheadOom && e.signal == Some(9) => Ok(()),
            Right::EachTask(..) | Right::TaskOrExecutor => {
                let well = report.reason == (ExitReason::Exit { code: 0 });
                well.then_some(()).ok_or_else(|| "its executor was to end well".into())
            }
            Right::StuckOrDead => {
                let stuck = report.reason == ExitReason::StalledAtLimit && e.stop_asked == Some(StopCause::Stalled) && !killed;
                let oom = [ExitReason::HeapOom, ExitReason::OverheadOom].contains(&report.reason);
                let dead = oom && (killed || e.exit_code == Some(3));
                (stuck || dead).then_some(()).ok_or_else(|| "not what its counters say".into())
            }
        }
    }

    /// Whether the verdict of its executor on one of its tasks is right; if not, what is wrong with it.
    pub fn judge_task(&self, report: &TaskReport) -> Result<(), String> {
        let (reason, dimension) = match self.right {
            Right::EachTask(reason, dimension) => (reason, dimension),
            Right::TaskOrExecutor => (ExitReason::AncestorOom, None),
            Right::Is(..) | Right::StopOrKill | Right::TaskVictim | Right::StuckOrDead => {
                return Err("it was to have no tasks".into());
            }
        };
        let same = (report.reason, report.dimension) == (reason, dimension);
        same.then_some(()).ok_or_else(|| format!("{} was to be expected", shown(reason, dimension)))
    }

    /// The verdict that is right, for people.
    pub fn expected(&self) -> String {
        match self.right {
            Right::Is(reason, dimension) => shown(reason, dimension),
            Right::StopOrKill => "stopped | overhead_oom".into(),
            Right::TaskVictim => "exit(0), its task task_oom".into(),
            Right::EachTask(reason, dimension) => shown(reason, dimension),
            Right::TaskOrExecutor => "ancestor_oom | overhead_oom of its executor".into(),
            Right::StuckOrDead => "stalled_at_limit | oom".into(),
        }
    }
}

/// A reason and what ran out.
pub fn shown(reason: ExitReason, dimension: Option<Dimension>) -> String {
    match dimension {
        Some(Dimension::Heap) => format!("{reason} heap"),
        Some(Dimension::Overhead) => format!("{reason} overhead"),
        Some(Dimension::Native) => format!("{reason} native"),
        None => reason.to_string(),
    }
}

/// A program that ended well, with a task in it whose own cgroup is the kernel's victim.
fn task_victim(report: &ExitReport) -> Result<(), String> {
    if report.reason != (ExitReason::Exit { code: 0 }) {
        return Err("its program lives on".into());
    }
    let task = report.tasks.first().ok_or("its task is not in the report")?;
    let mut e = Evidence::empty(report.evidence.enforcer);
    (e.signal, e.own) = (Some(9), task.facts.clone());
    let reason = classify(&e, Scope::Task, &[]).reason;
    if reason == ExitReason::TaskOom { Ok(()) } else { Err(format!("the task's counters speak of {reason}")) }
}

/// How long it went round in circles until it was ended: the program says when it begins to. Milliseconds; `None` when it said nothing.
pub(super) fn stuck_ms(report: &ExitReport) -> Option<u64> {
    let begun = report.log_tail.lines().find_map(|line| line.strip_prefix("begun ")?.trim().parse::<u64>().ok())?;
    report.ended.0.checked_sub(begun).filter(|_| report.reason == ExitReason::StalledAtLimit)
}

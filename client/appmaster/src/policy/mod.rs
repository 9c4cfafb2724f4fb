//! What becomes of a task whose attempt has ended: facts in, one decision out.
//!
//! Each way of answering a memory failure is a small module behind [`Mode`]; all of them see the same facts, classified by the
//! same [`classify`]. Owned by nobody, remembers nothing: the budgets already spent are part of the facts.
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
pub mod seats;
pub mod sizing;
pub mod tovar;
pub mod treatment;
mod uber;

pub use headroom_sizes::learn;

use std::time::Duration;

use headroom_config::{ExecutorSpec, Idempotent, RetrySpec, Runtime};
use headroom_types::{Bytes, Dimension, ExitReason, Profile};
use headroom_wire::v1::job::Mode;
use serde::{Deserialize, Serialize};

use blame::Fate;
use classify::Class;
use learn::After;
use treatment::Treated;

/// Where an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In slots of a shared executor.
    Shared,
    /// In a container asked for this task alone.
    Own,
}

/// What an attempt is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Heap, overhead, processors.
    pub profile: Profile,
    /// Slots of the executor that it takes; 1 in a container of its own.
    pub slots: u32,
    /// 1 for the size of its stage.
    pub rung: u32,
    /// Where.
    pub place: Place,
}

impl Size {
    /// Heap and overhead together.
    pub fn memory(&self) -> Bytes {
        self.profile.memory()
    }
}

/// What a task has used of its three budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Attempts that ended as a memory failure of the task's own.
    pub memory: u32,
    /// Attempts that ended as a plain failure.
    pub plain: u32,
    /// Attempts that were lost through no fault of the task.
    pub transient: u32,
    /// Attempts at the same size after a kill that page cache explains.
    pub spikes: u32,
    /// Attempts that were killed for an outer limit. Not a budget: each makes the next wait longer.
    #[serde(default)]
    pub collateral: u32,
}

/// To which budget an end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// None: it did what it should.
    Success,
    /// Memory failures of its own.
    Memory,
    /// A memory failure at its own limit that page cache explains; counted, and tried once more at the same size.
    Spike,
    /// Plain failures.
    Plain,
    /// Lost through no fault of the task.
    Transient,
    /// Lost to another task's memory failure.
    Innocent,
    /// None: the platform took its place for somebody else, or emptied its node.
    Taken,
    /// None: it was killed for an outer limit.
    Collateral,
}

/// The facts about an end.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// How the job's memory failures are answered.
    pub mode: Mode,
    /// The task, for messages.
    pub task: &'a str,
    /// How it ended.
    pub reason: ExitReason,
    /// What that means.
    pub class: Class,
    /// Its part in the death of its executor.
    pub fate: Fate,
    /// What the attempt was given.
    pub size: &'a Size,
    /// The executors of its stage.
    pub set: &'a ExecutorSpec,
    /// What manages the task's memory.
    pub runtime: Runtime,
    /// Whether an attempt may be repeated.
    pub idempotent: Idempotent,
    /// The budgets.
    pub retry: &'a RetrySpec,
    /// What was spent of them before this end.
    pub spent: Spent,
    /// The largest size a task can be given.
    pub cap: Cap,
    /// What is known of its kind, for a memory failure in a job that learns.
    pub known: After,
    /// What came over the network into a managed runtime, and no size of the task has held yet. Bytes.
    pub remote_input: Bytes,
    /// Its stage is marked badly sized: nothing of it is given more. For people, why.
    pub bound: Option<Bound<'a>>,
    /// What the diagnosis of this end asks for; `None` where there is none, and in other modes than `headroom`.
    pub treated: Option<&'a Treated>,
}

/// The largest size a task can be given, and what sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Heap and overhead of one task. Bytes.
    pub task: Bytes,
    /// Memory of the largest container any node could give; `None` when it is not known. Bytes.
    pub largest: Option<Bytes>,
    /// True when the job's own `retry.cap` is what limits.
    pub by_job: bool,
}

impl Cap {
    /// What limits, in words.
    pub fn words(&self) -> String {
        match (self.by_job, self.largest) {
            (true, _) => format!("the job's retry.cap of {}", self.task),
            (false, Some(largest)) => format!("the largest container here, {largest}"),
            (false, None) => "no known limit".to_owned(),
        }
    }
}

/// What becomes of the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Next {
    /// It is done.
    Done,
    /// It runs again.
    Again {
        /// With this.
        size: Size,
        /// Not before this long. Milliseconds.
        wait_ms: u64,
        /// Not where it ran, while there is another place.
        elsewhere: Elsewhere,
        /// For people.
        why: String,
    },
    /// It is given up.
    GiveUp {
        /// What kind of end it is.
        cause: Cause,
        /// Names the task, the size and what to do.
        message: String,
    },
}

/// Where a repeated attempt should not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elsewhere {
    /// Anywhere.
    No,
    /// On another executor.
    Executor,
    /// On another node.
    Node,
}

/// Why a task was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Killed at the largest size it can have, or at the end of the mode's ladder.
    Memory,
    /// It failed by itself too often.
    Plain,
    /// It was lost too often through no fault of its own.
    Transient,
    /// It must not run twice.
    NotIdempotent,
    /// No node could ever give it room.
    NeverFits,
    /// Somebody asked for that.
    Cancelled,
}

/// Why nothing is given more any longer, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// Too much of the task's stage had to be given another size.
    Stage(&'a str),
    /// Memory failures have cost the job what they may.
    Budget(&'a str),
}

impl<'a> Bound<'a> {
    fn words(self) -> &'a str {
        match self {
            Bound::Stage(why) | Bound::Budget(why) => why,
        }
    }
    fn remedy(self) -> &'static str {
        match self {
            Bound::Stage(_) => "give its stage a larger profile, or raise retry.breaker",
            Bound::Budget(_) => "give its stage a larger profile, or raise retry.budget_gib_h",
        }
    }
}

/// A step of a mode's ladder.
pub(crate) enum Growth {
    To(Size, String),
    /// Nothing larger is left.
    Top(String),
}

/// Decides. The account says which budget the end was charged to.
pub fn decide(case: &Case<'_>) -> (Account, Next) {
    let account = account(case);
    if account != Account::Success && case.idempotent == Idempotent::No && !case.reason.eq(&ExitReason::LaunchFailed) {
        return (account, not_again(case));
    }
    if let Some(next) = treatment::next(case, account) {
        return (account, next);
    }
    let next = match account {
        Account::Success => Next::Done,
        Account::Plain => plain(case),
        Account::Transient => transient(case),
        Account::Innocent => innocent(case),
        Account::Taken => {
            let why = if case.reason == ExitReason::LaunchFailed {
                "its node could not start it: same size on another node, not charged".to_owned()
            } else {
                format!("its place was taken ({}): same size on another node, not charged", case.reason)
            };
            again(case.size.clone(), Elsewhere::Node, why)
        }
        Account::Collateral => collateral::again(case),
        Account::Spike => again(case.size.clone(), Elsewhere::No, "same size once more: page cache filled the limit"),
        Account::Memory => memory(case),
    };
    (account, next)
}

fn account(case: &Case<'_>) -> Account {
    match case.class {
        Class::Success => Account::Success,
        Class::Plain => Account::Plain,
        Class::Transient => Account::Transient,
        Class::Taken => Account::Taken,
        Class::Collateral => Account::Collateral,
        Class::Bystander => Account::Innocent,
        Class::Memory(failure) => match case.fate {
            Fate::Innocent => match case.mode {
                // Spark counts the loss of an executor by memory against every task on it.
                Mode::Fixed => Account::Memory,
                Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar => Account::Innocent,
            },
            Fate::Own | Fate::Blamed | Fate::Unknown { charged: Charged::Yes } => match case.mode {
                Mode::Headroom if failure.spike && case.spent.spikes == 0 => Account::Spike,
                Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar | Mode::Fixed => Account::Memory,
            },
            Fate::Unknown { charged: Charged::No } => Account::Innocent,
        },
    }
}

pub use blame::Charged;

fn again(size: Size, elsewhere: Elsewhere, why: impl Into<String>) -> Next {
    Next::Again { size, wait_ms: 0, elsewhere, why: why.into() }
}

fn not_again(case: &Case<'_>) -> Next {
    let message = format!(
        "{} ended ({}) at {} and must not run twice (idempotent = \"no\"); give it more room from the start, or make it repeatable",
        case.task,
        case.reason,
        case.size.memory()
    );
    Next::GiveUp { cause: Cause::NotIdempotent, message }
}

/// 1 s after the first failure, twice as long after each further one, 30 s at most.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(30))
}

fn plain(case: &Case<'_>) -> Next {
    let failures = case.spent.plain + 1;
    let (task, most) = (case.task, case.retry.max_attempts);
    if tries(case) >= most {
        let message = if case.reason == ExitReason::LaunchFailed {
            format!("{task}: there is no such program, or it cannot be executed; correct its command")
        } else {
            format!(
                "{task} failed {failures} times by itself, last: {}; no matter of memory, see its standard error",
                case.reason.sentence()
            )
        };
        return Next::GiveUp { cause: Cause::Plain, message };
    }
    let wait = backoff(failures);
    let why = format!("failure {failures} of {most}: again on another executor in {} s", wait.as_secs());
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Next::Again { size: case.size.clone(), wait_ms, elsewhere: Elsewhere::Executor, why }
}

/// Attempts that count against `max_attempts`, with this one. Spark's rule counts every failure of the task.
fn tries(case: &Case<'_>) -> u32 {
    match case.mode {
        Mode::Fixed => case.spent.plain + case.spent.memory + 1,
        Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar => case.spent.plain + 1,
    }
}

fn transient(case: &Case<'_>) -> Next {
    let losses = case.spent.transient + 1;
    if losses > case.retry.transient {
        let next = if case.reason == ExitReason::LaunchFailed {
            format!("rmctl diagnose JOB/{} says at which step; is the directory of the job file on every node?", case.task)
        } else {
            "see the nodes it ran on, or raise retry.transient".to_owned()
        };
        let (task, last) = (case.task, case.reason.sentence());
        let message = format!("{task} was lost {losses} times through no fault of its own, last: {last}; {next}");
        return Next::GiveUp { cause: Cause::Transient, message };
    }
    let why = format!("not its fault ({}): same size, another node preferred", case.reason);
    again(case.size.clone(), Elsewhere::Node, why)
}

fn innocent(case: &Case<'_>) -> Next {
    match (case.mode, case.fate) {
        (Mode::Uber, _) | (_, Fate::Unknown { .. }) => match uber::isolate(case) {
            Growth::To(size, why) => again(size, Elsewhere::No, why),
            Growth::Top(_) => again(case.size.clone(), Elsewhere::No, "lost with its executor: same size"),
        },
        (Mode::Headroom, Fate::Innocent) if case.size.place == Place::Shared => {
            let size = Size { slots: 1, place: Place::Own, ..case.size.clone() };
            let why = "another task's memory failure took its executor: same size in a container of its own, not charged";
            again(size, Elsewhere::No, why)
        }
        (
            Mode::Headroom | Mode::Pinterest | Mode::Databricks | Mode::Tovar | Mode::Fixed,
            Fate::Own | Fate::Blamed | Fate::Innocent,
        ) => again(case.size.clone(), Elsewhere::No, "another task's memory failure: same size, not charged"),
    }
}

fn memory(case: &Case<'_>) -> Next {
    let Class::Memory(failure) = case.class else { return Next::Done };
    let spent = case.spent.memory + 1 >= case.retry.memory_attempts;
    let growth = match case.mode {
        // Spark's rule has a budget of its own.
        Mode::Fixed => fixed::grow(case),
        Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar if spent => exhausted(case),
        Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar if case.bound.is_some() => {
            Growth::Top(case.bound.map(Bound::words).unwrap_or_default().to_owned())
        }
        Mode::Headroom => headroom::grow(case, failure),
        Mode::Pinterest => pinterest::grow(case),
        Mode::Uber => uber::isolate(case),
        Mode::Databricks => databricks::grow(case),
        Mode::Tovar => tovar::grow(case),
    };
    match growth {
        Growth::To(size, why) => again(size, Elsewhere::No, why),
        Growth::Top(why) => Next::GiveUp { cause: Cause::Memory, message: genuine(case, failure.dimension, &why) },
    }
}

fn exhausted(case: &Case<'_>) -> Growth {
    Growth::Top(format!("that was memory failure {} of {}", case.spent.memory + 1, case.retry.memory_attempts))
}

/// The message of a task that was killed for memory and gets no further try.
fn genuine(case: &Case<'_>, dimension: Dimension, why: &str) -> String {
    let what = match dimension {
        Dimension::Heap => format!("a heap above {}", case.size.profile.heap),
        Dimension::Overhead => format!("off-heap memory above {}", case.size.profile.overhead),
        Dimension::Native => format!("more than {}", case.size.memory()),
    };
    let remedy = match case.mode {
        Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Tovar if case.bound.is_some() => {
            case.bound.map(Bound::remedy).unwrap_or_default()
        }
        Mode::Headroom | Mode::Databricks | Mode::Tovar if case.cap.by_job => "raise retry.cap, or split its input",
        Mode::Headroom | Mode::Databricks | Mode::Tovar => "split its input, or use a larger node",
        Mode::Pinterest | Mode::Uber | Mode::Fixed => "give its stage a larger profile, or use mode headroom",
    };
    format!("{} was killed at {} and needs {what}; {why}. {remedy}", case.task, case.size.memory())
}

#[cfg(test)]
mod tests;

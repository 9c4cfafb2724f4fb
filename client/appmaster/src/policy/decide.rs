//! The decision on an ended attempt: its account, and whether and with which size the task runs
//! again. A pure function; each mode's ladder is a file of its own.

use headroom_config::Idempotent;
use headroom_types::{Dimension, ExitReason, millis};
use headroom_wire::v1::job::MemoryFailureMode;

use super::attempt_size::{AttemptPlace, AttemptSize};
use super::backoff::backoff;
use super::blame::{AttemptFate, UnknownCharge};
use super::budget::ChargeAccount;
use super::classify::AttemptEndClass;
use super::decision_input::{DecisionInput, GrowthBound};
use super::ladder::LadderStep;
use super::task_decision::{AvoidScope, GiveUpCause, TaskDecision, again};
use super::{collateral, databricks, fixed, headroom, pinterest, tovar, treatment, uber};

/// Returns the decision, and the account to which the end is charged.
pub fn decide(case: &DecisionInput<'_>) -> (ChargeAccount, TaskDecision) {
    let account = account(case);
    if account != ChargeAccount::Success
        && case.idempotent == Idempotent::No
        && !case.reason.eq(&ExitReason::LaunchFailed)
    {
        return (account, not_again(case));
    }
    if let Some(next) = treatment::next(case, account) {
        return (account, next);
    }
    let next = match account {
        ChargeAccount::Success => TaskDecision::Done,
        ChargeAccount::Plain => plain(case),
        ChargeAccount::Transient => transient(case),
        ChargeAccount::Bystander => bystander(case),
        ChargeAccount::Taken => {
            let why = if case.reason == ExitReason::LaunchFailed {
                "its node could not start it: same size on another node, not charged".to_owned()
            } else {
                format!(
                    "its container was taken ({}): same size on another node, not charged",
                    case.reason
                )
            };
            again(case.size.clone(), AvoidScope::Node, why)
        }
        ChargeAccount::Collateral => collateral::again(case),
        ChargeAccount::Spike => again(
            case.size.clone(),
            AvoidScope::No,
            "same size once more: page cache filled the limit",
        ),
        ChargeAccount::Memory => memory(case),
    };
    (account, next)
}

fn account(case: &DecisionInput<'_>) -> ChargeAccount {
    match case.class {
        AttemptEndClass::Success => ChargeAccount::Success,
        AttemptEndClass::Plain => ChargeAccount::Plain,
        AttemptEndClass::Transient => ChargeAccount::Transient,
        AttemptEndClass::Taken => ChargeAccount::Taken,
        AttemptEndClass::Collateral => ChargeAccount::Collateral,
        AttemptEndClass::Bystander => ChargeAccount::Bystander,
        AttemptEndClass::Memory(failure) => match case.fate {
            // Spark counts the loss of an executor by memory as a failure of every task on it.
            AttemptFate::Bystander if case.mode == MemoryFailureMode::Fixed => {
                ChargeAccount::Memory
            }
            AttemptFate::Bystander => ChargeAccount::Bystander,
            AttemptFate::Own
            | AttemptFate::Blamed
            | AttemptFate::Unknown {
                charged: UnknownCharge::Yes,
            } => {
                let spike = failure.spike && case.spent.spikes == 0;
                if spike && case.mode == MemoryFailureMode::Headroom {
                    ChargeAccount::Spike
                } else {
                    ChargeAccount::Memory
                }
            }
            AttemptFate::Unknown {
                charged: UnknownCharge::No,
            } => ChargeAccount::Bystander,
        },
    }
}

fn not_again(case: &DecisionInput<'_>) -> TaskDecision {
    let message = format!(
        "{} ended ({}) at {} and must not run twice (idempotent = \"no\"); give it more memory from the start, or make it idempotent",
        case.task,
        case.reason,
        case.size.memory()
    );
    TaskDecision::GiveUp {
        cause: GiveUpCause::NotIdempotent,
        message,
    }
}

fn plain(case: &DecisionInput<'_>) -> TaskDecision {
    let failures = case.spent.plain + 1;
    let (task, most) = (case.task, case.retry.max_attempts);
    if case.charged_attempts() >= most {
        let message = if case.reason == ExitReason::LaunchFailed {
            format!("{task}: its program does not exist or cannot be executed; correct its command")
        } else {
            format!(
                "{task} failed {failures} times, last: {}; memory is not the cause, see its standard error",
                case.reason.sentence()
            )
        };
        return TaskDecision::GiveUp {
            cause: GiveUpCause::Plain,
            message,
        };
    }
    let wait = backoff(failures);
    let why = format!(
        "failure {failures} of {most}: again on another executor in {} s",
        wait.as_secs()
    );
    let wait_ms = millis(wait);
    TaskDecision::Again {
        size: case.size.clone(),
        wait_ms,
        elsewhere: AvoidScope::Executor,
        why,
    }
}

fn transient(case: &DecisionInput<'_>) -> TaskDecision {
    let losses = case.spent.transient + 1;
    if losses > case.retry.transient {
        let next = if case.reason == ExitReason::LaunchFailed {
            format!(
                "rmctl diagnose JOB/{} shows the failed step; every node needs the directory of the job file",
                case.task
            )
        } else {
            "check the nodes on which it ran, or raise retry.transient".to_owned()
        };
        let (task, last) = (case.task, case.reason.sentence());
        let message = format!(
            "{task} was lost {losses} times for causes outside the task, last: {last}; {next}"
        );
        return TaskDecision::GiveUp {
            cause: GiveUpCause::Transient,
            message,
        };
    }
    let why = format!(
        "not caused by the task ({}): same size, another node preferred",
        case.reason
    );
    again(case.size.clone(), AvoidScope::Node, why)
}

fn bystander(case: &DecisionInput<'_>) -> TaskDecision {
    match (case.mode, case.fate) {
        (MemoryFailureMode::Uber, _) | (_, AttemptFate::Unknown { .. }) => {
            match uber::isolate(case) {
                LadderStep::To(size, why) => again(size, AvoidScope::No, why),
                LadderStep::Top(_) => again(
                    case.size.clone(),
                    AvoidScope::No,
                    "lost with its executor: same size",
                ),
            }
        }
        (MemoryFailureMode::Headroom, AttemptFate::Bystander)
            if case.size.place == AttemptPlace::Shared =>
        {
            let size = AttemptSize {
                slots: 1,
                place: AttemptPlace::Own,
                ..case.size.clone()
            };
            let why = "another task's memory failure ended its executor: same size in a container of its own, not charged";
            again(size, AvoidScope::No, why)
        }
        (
            MemoryFailureMode::Headroom
            | MemoryFailureMode::Pinterest
            | MemoryFailureMode::Databricks
            | MemoryFailureMode::Tovar
            | MemoryFailureMode::Fixed,
            AttemptFate::Own | AttemptFate::Blamed | AttemptFate::Bystander,
        ) => again(
            case.size.clone(),
            AvoidScope::No,
            "another task's memory failure: same size, not charged",
        ),
    }
}

fn memory(case: &DecisionInput<'_>) -> TaskDecision {
    let AttemptEndClass::Memory(failure) = case.class else {
        return TaskDecision::Done;
    };
    let spent = case.spent.memory + 1 >= case.retry.memory_attempts;
    let end = if spent {
        Some(exhausted(case))
    } else {
        let bound = case.bound.map(GrowthBound::words);
        bound.map(|words| LadderStep::Top(words.to_owned()))
    };
    // Spark's rule has its own budget.
    let end = end.filter(|_| case.mode != MemoryFailureMode::Fixed);
    let growth = end.unwrap_or_else(|| match case.mode {
        MemoryFailureMode::Fixed => fixed::grow(case),
        MemoryFailureMode::Headroom => headroom::grow(case, failure),
        MemoryFailureMode::Pinterest => pinterest::grow(case),
        MemoryFailureMode::Uber => uber::isolate(case),
        MemoryFailureMode::Databricks => databricks::grow(case),
        MemoryFailureMode::Tovar => tovar::grow(case),
    });
    match growth {
        LadderStep::To(size, why) => again(size, AvoidScope::No, why),
        LadderStep::Top(why) => TaskDecision::GiveUp {
            cause: GiveUpCause::Memory,
            message: genuine(case, failure.dimension, &why),
        },
    }
}

fn exhausted(case: &DecisionInput<'_>) -> LadderStep {
    LadderStep::Top(format!(
        "that was memory failure {} of {}",
        case.spent.memory + 1,
        case.retry.memory_attempts
    ))
}

/// The message of a task that was killed for memory and is not retried.
fn genuine(case: &DecisionInput<'_>, dimension: Dimension, why: &str) -> String {
    let what = match dimension {
        Dimension::Heap => format!("a heap above {}", case.size.profile.heap),
        Dimension::Overhead => format!("off-heap memory above {}", case.size.profile.overhead),
        Dimension::Native => format!("more than {}", case.size.memory()),
    };
    let bound = case.bound.filter(|_| case.mode != MemoryFailureMode::Fixed);
    let remedy = bound
        .map(GrowthBound::remedy)
        .unwrap_or_else(|| match case.mode {
            MemoryFailureMode::Headroom
            | MemoryFailureMode::Databricks
            | MemoryFailureMode::Tovar
                if case.cap.by_job =>
            {
                "raise retry.cap, or split its input"
            }
            MemoryFailureMode::Headroom
            | MemoryFailureMode::Databricks
            | MemoryFailureMode::Tovar => "split its input, or use a larger node",
            MemoryFailureMode::Pinterest | MemoryFailureMode::Uber | MemoryFailureMode::Fixed => {
                "give its stage a larger profile, or use mode headroom"
            }
        });
    format!(
        "{} was killed at {} and needs {what}; {why}. {remedy}",
        case.task,
        case.size.memory()
    )
}

#[cfg(test)]
mod tests;

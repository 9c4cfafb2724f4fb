//! The treatment of a sub-cause: the table of [`headroom_types::treatment`], the evidence, and the
//! orders of a job file.
//!
//! Used in mode `headroom` only. The other modes imitate other systems, which do not distinguish
//! sub-causes.

use headroom_config::TaskRuntime;
use headroom_types::treatment::usual_treatment;
use headroom_types::{AppliedTreatment, Bytes, Dimension, Remedy, SubCause, Treatment};
use headroom_wire::v1::job::AttemptRow;

use super::budget::ChargeAccount;
use super::decision_input::DecisionInput;
use super::task_decision::{AvoidScope, GiveUpCause, TaskDecision, again};

/// The facts that determine a treatment.
#[derive(Clone, Copy, Debug)]
pub struct TreatmentInput<'a> {
    /// The first sub-cause of the diagnosis.
    pub cause: SubCause,
    /// The quantity that ran out.
    pub quantity: Dimension,
    /// The manager of the task's memory.
    pub runtime: TaskRuntime,
    /// Total memory with the refused allocation included. Bytes.
    pub asked: Option<Bytes>,
    /// Memory of the largest container of any node. Bytes.
    pub largest: Option<Bytes>,
    /// Remedies that were active in the attempt.
    pub tried: &'a [Remedy],
    /// True if page cache explains a full limit, for the first time.
    pub cache_alone: bool,
    /// The treatment that the job file orders for this sub-cause.
    pub ordered: Option<Treatment>,
}

/// The treatment of a sub-cause.
pub fn treatment(finding: &TreatmentInput<'_>) -> AppliedTreatment {
    let row = usual_treatment(finding.cause);
    let untried = row
        .remedy
        .filter(|remedy| !finding.tried.contains(remedy) && works_for(*remedy, finding.runtime));
    let chosen = match (finding.ordered.unwrap_or(row.first), untried) {
        (Treatment::Remedy, None) => row.then,
        (Treatment::Retry, _)
            if finding.ordered.is_none() && finding.cause == SubCause::PageCache =>
        {
            if finding.cache_alone {
                Treatment::Retry
            } else {
                row.then
            }
        }
        (Treatment::Fail, _) if finding.ordered.is_none() && some_node_has(finding) => {
            Treatment::Grow
        }
        (
            chosen @ (Treatment::Grow
            | Treatment::Fail
            | Treatment::Retry
            | Treatment::Elsewhere
            | Treatment::Remedy
            | Treatment::Unknown),
            _,
        ) => chosen,
    };
    AppliedTreatment {
        cause: finding.cause,
        treatment: chosen,
        quantity: (chosen == Treatment::Grow).then_some(finding.quantity),
        remedy: untried.filter(|_| chosen == Treatment::Remedy),
    }
}

/// True when the host refused an amount that another node has.
fn some_node_has(finding: &TreatmentInput<'_>) -> bool {
    let fits = |asked: Bytes| finding.largest.is_some_and(|largest| asked <= largest);
    finding.cause == SubCause::ImpossibleRequest && finding.asked.is_some_and(fits)
}

/// Whether a runtime accepts a remedy in its environment.
fn works_for(remedy: Remedy, runtime: TaskRuntime) -> bool {
    match (remedy, runtime) {
        (
            Remedy::OneArena,
            TaskRuntime::Native | TaskRuntime::Jvm | TaskRuntime::Node | TaskRuntime::Python,
        ) => true,
        (Remedy::OneArena, TaskRuntime::Go) => false,
        (Remedy::TmpOnDisk | Remedy::FewerThreads, _) => true,
        (Remedy::SmallCodeCache, TaskRuntime::Jvm) => true,
        (
            Remedy::SmallCodeCache,
            TaskRuntime::Native | TaskRuntime::Node | TaskRuntime::Python | TaskRuntime::Go,
        ) => false,
        (Remedy::Unknown, _) => false,
    }
}

/// Total need of an attempt with the one request that was refused. Bytes.
pub fn asked(row: &AttemptRow) -> Option<Bytes> {
    let asked = row.diagnosis.first()?.asked?;
    Some(asked.saturating_add(row.peak.unwrap_or_default()))
}

/// The decision that follows from the treatment. `None` if the policy for the account decides, as
/// for growth and for another node.
pub(super) fn next(case: &DecisionInput<'_>, account: ChargeAccount) -> Option<TaskDecision> {
    let treated = case.treated?;
    let (cause, left) = match account {
        ChargeAccount::Memory => (
            GiveUpCause::Memory,
            case.spent.memory + 1 < case.retry.memory_attempts,
        ),
        ChargeAccount::Plain => (
            GiveUpCause::Plain,
            case.spent.plain + 1 < case.retry.max_attempts,
        ),
        ChargeAccount::Transient => (
            GiveUpCause::Transient,
            case.spent.transient < case.retry.transient,
        ),
        ChargeAccount::Success
        | ChargeAccount::Spike
        | ChargeAccount::Bystander
        | ChargeAccount::Taken
        | ChargeAccount::Collateral => return None,
    };
    let AppliedTreatment {
        cause: name,
        treatment,
        remedy,
        ..
    } = treated.applied;
    let same = |elsewhere, why: String| left.then(|| again(case.size.clone(), elsewhere, why));
    match (treatment, remedy) {
        (Treatment::Fail, _) => {
            let override_it = format!(
                "[treatments] {name} = \"grow\" in the job file tries larger sizes instead"
            );
            let message = format!(
                "{} failed at once ({name}): {}; {override_it}",
                case.task, treated.words
            );
            Some(TaskDecision::GiveUp { cause, message })
        }
        (Treatment::Remedy, Some(remedy)) => same(
            AvoidScope::No,
            format!("{name}: same size once more, {}", remedy.sentence()),
        ),
        (Treatment::Retry, _) if account != ChargeAccount::Plain => same(
            AvoidScope::Executor,
            format!("{name}: same size once more in another container"),
        ),
        (Treatment::Elsewhere, _) if account != ChargeAccount::Transient => same(
            AvoidScope::Node,
            format!("{name}: same size on another node"),
        ),
        (
            Treatment::Grow
            | Treatment::Retry
            | Treatment::Elsewhere
            | Treatment::Remedy
            | Treatment::Unknown,
            _,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cause: SubCause) -> TreatmentInput<'static> {
        TreatmentInput {
            cause,
            quantity: Dimension::Native,
            runtime: TaskRuntime::Native,
            asked: None,
            largest: Some(Bytes::from_gib(8)),
            tried: &[],
            cache_alone: false,
            ordered: None,
        }
    }

    #[test]
    fn the_job_file_overrides_the_treatment_table() {
        for cause in SubCause::ALL
            .iter()
            .copied()
            .filter(|cause| *cause != SubCause::PageCache)
        {
            let found = treatment(&TreatmentInput {
                runtime: TaskRuntime::Jvm,
                ..finding(cause)
            });
            assert_eq!(
                (found.treatment, found.remedy),
                (usual_treatment(cause).first, usual_treatment(cause).remedy),
                "{cause}"
            );
        }
        let ordered = TreatmentInput {
            ordered: Some(Treatment::Grow),
            ..finding(SubCause::OwnLimit)
        };
        assert_eq!(treatment(&ordered).to_string(), "grow memory");
        let ordered = TreatmentInput {
            ordered: Some(Treatment::Fail),
            ..finding(SubCause::OwnData)
        };
        assert_eq!(treatment(&ordered).to_string(), "fail");
    }

    #[test]
    fn a_remedy_is_tried_once_and_only_if_the_runtime_supports_it() {
        assert_eq!(
            treatment(&finding(SubCause::NativeArenas)).to_string(),
            "remedy one_arena"
        );
        let again = TreatmentInput {
            tried: &[Remedy::OneArena],
            ..finding(SubCause::NativeArenas)
        };
        assert_eq!(treatment(&again).to_string(), "grow memory");
        let go = TreatmentInput {
            runtime: TaskRuntime::Go,
            ..finding(SubCause::NativeArenas)
        };
        assert_eq!(treatment(&go).to_string(), "grow memory");
        assert_eq!(
            treatment(&finding(SubCause::CodeCache)).to_string(),
            "grow memory",
            "only a JVM has the flag"
        );
        let threads = TreatmentInput {
            tried: &[Remedy::FewerThreads],
            ..finding(SubCause::ThreadLimit)
        };
        assert_eq!(
            treatment(&threads).to_string(),
            "fail",
            "more memory does not allow more threads"
        );
    }

    #[test]
    fn page_cache_alone_is_tried_once_more() {
        let cache = TreatmentInput {
            cache_alone: true,
            ..finding(SubCause::PageCache)
        };
        assert_eq!(treatment(&cache).to_string(), "retry");
        assert_eq!(
            treatment(&finding(SubCause::PageCache)).to_string(),
            "grow memory"
        );
    }

    #[test]
    fn a_request_is_impossible_only_when_no_node_has_so_much() {
        let asks = |gib| TreatmentInput {
            asked: Some(Bytes::from_gib(gib)),
            ..finding(SubCause::ImpossibleRequest)
        };
        assert_eq!(treatment(&asks(6)).to_string(), "grow memory");
        assert_eq!(treatment(&asks(200)).to_string(), "fail");
        assert_eq!(
            treatment(&finding(SubCause::ImpossibleRequest)).to_string(),
            "fail",
            "the needed size is unknown"
        );
    }
}

//! Mode `uber`: a failed task, and every task on the lost executor, gets a whole executor of the
//! same size. A kill of a task that runs alone on a whole executor is final.

use super::attempt_size::{AttemptPlace, AttemptSize};
use super::decision_input::DecisionInput;
use super::ladder::{self, LadderStep};

pub(super) fn isolate(case: &DecisionInput<'_>) -> LadderStep {
    let (size, set) = (case.size, case.set);
    if size.place == AttemptPlace::Own || size.slots >= set.slots {
        return LadderStep::Top(
            "it ran alone on a whole executor, the last step of mode uber".to_owned(),
        );
    }
    let profile = ladder::in_proportion(
        &size.profile,
        set.task_memory().min(case.cap.task).max(size.memory()),
    );
    let (slots, rung) = (set.slots, size.rung + 1);
    let why = format!("rung {rung}: {profile}, a whole executor ({slots} slots)");
    LadderStep::To(
        AttemptSize {
            profile,
            slots,
            rung,
            place: AttemptPlace::Shared,
        },
        why,
    )
}

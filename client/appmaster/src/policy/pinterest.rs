//! Mode `pinterest`: twice the processors, and thus twice the share, on an existing executor; then
//! executors of two, three and four times the size; then the task fails. Both quantities grow in
//! proportion.

use headroom_types::Bytes;

use super::attempt_size::{AttemptPlace, AttemptSize};
use super::decision_input::DecisionInput;
use super::headroom;
use super::ladder::{self, LadderStep};

pub(super) fn grow(case: &DecisionInput<'_>) -> LadderStep {
    let (size, set) = (case.size, case.set);
    if case.spent.memory == 0 && size.place == AttemptPlace::Shared {
        let slots = size.slots.saturating_mul(2);
        let memory = size.memory().mul_ratio(2, 1);
        if slots <= set.slots && memory <= case.cap.task {
            let profile = ladder::in_proportion(&size.profile, memory);
            let rung = size.rung + 1;
            let why = format!("rung {rung}: {profile}, {slots} slots of a shared executor");
            return LadderStep::To(
                AttemptSize {
                    profile,
                    slots,
                    rung,
                    place: AttemptPlace::Shared,
                },
                why,
            );
        }
    }
    let sizes = (2..=4).map(|k| {
        set.profile
            .memory()
            .mul_ratio(k, 1)
            .saturating_sub(set.reserve)
    });
    let next: Option<Bytes> = sizes
        .map(|memory| memory.min(case.cap.task))
        .find(|memory| *memory > size.memory());
    match next {
        Some(memory) => headroom::own(case, ladder::in_proportion(&size.profile, memory)),
        None if size.memory() >= case.cap.task => LadderStep::Top(format!(
            "it ran alone at the largest size, set by {}",
            case.cap.words()
        )),
        None => LadderStep::Top(
            "it ran alone on an executor of four times the size, the last step of mode pinterest"
                .to_owned(),
        ),
    }
}

//! Mode `databricks`: size classes. After a memory kill, a task moves to a container of the next
//! class, twice the size, up to the largest possible one. Both quantities grow in proportion.

use super::decision_input::DecisionInput;
use super::headroom;
use super::ladder::{self, LadderStep};

pub(super) fn grow(case: &DecisionInput<'_>) -> LadderStep {
    let (size, cap) = (case.size, case.cap.task);
    if size.memory() >= cap {
        return LadderStep::Top(format!(
            "it ran at the largest size, set by {}",
            case.cap.words()
        ));
    }
    let class = size.memory().mul_ratio(2, 1).min(cap);
    headroom::own(case, ladder::in_proportion(&size.profile, class))
}

//! Mode `fixed`: the same size again, a fixed number of times. This is Spark's default behaviour,
//! kept for comparison.

use super::decision_input::DecisionInput;
use super::ladder::LadderStep;

pub(super) fn grow(case: &DecisionInput<'_>) -> LadderStep {
    let (tries, most) = (case.charged_attempts(), case.retry.max_attempts);
    if tries >= most {
        return LadderStep::Top(format!(
            "that was attempt {tries} of {most} at the same size, and mode fixed has no larger one"
        ));
    }
    LadderStep::To(
        case.size.clone(),
        format!("failure {tries} of {most}: the same size again"),
    )
}

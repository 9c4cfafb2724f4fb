//! A failed step of a launch.

use headroom_container_shim::LaunchStep;

/// A failed step, as the exit record names it.
pub(crate) struct StepFailure {
    pub(crate) step: LaunchStep,
    pub(crate) errno: i32,
    pub(crate) what: String,
}

impl StepFailure {
    /// A step that failed with `errno` at `what`: a path, a number, a name.
    pub(crate) fn new(step: LaunchStep, errno: i32, what: impl ToString) -> StepFailure {
        StepFailure {
            step,
            errno,
            what: what.to_string(),
        }
    }
}

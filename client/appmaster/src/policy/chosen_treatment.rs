//! The treatment that was chosen for the diagnosis of an ended attempt. Plain data; the table is in
//! [`super::treatment`].

use headroom_types::{AppliedTreatment, SubCause};
use headroom_wire::v1::job::AttemptRow;

/// The treatment of a task's failure, with its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTreatment {
    /// The treatment.
    pub applied: AppliedTreatment,
    /// The cause and the cure, for display.
    pub words: String,
}

impl ChosenTreatment {
    /// The treatment of the first sub-cause in the diagnosis of `row`. `None` without a diagnosis.
    pub fn of(
        row: &AttemptRow,
        finding: impl FnOnce(SubCause) -> AppliedTreatment,
    ) -> Option<ChosenTreatment> {
        let first = row.diagnosis.first()?;
        Some(ChosenTreatment {
            applied: finding(first.name),
            words: format!("{}. To cure it: {}", first.cause, first.fix),
        })
    }
}

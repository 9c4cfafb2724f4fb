//! Mode `uber`: a failed task, and every task on the lost executor, gets a whole executor of the
//! same size. A kill of a task that runs alone on a whole executor is final.

use super::{Case, Growth, Place, Size, ladder};

pub(super) fn isolate(case: &Case<'_>) -> Growth {
    let (size, set) = (case.size, case.set);
    if size.place == Place::Own || size.slots >= set.slots {
        return Growth::Top("it ran alone on a whole executor, the last step of mode uber".to_owned());
    }
    let profile = ladder::in_proportion(&size.profile, set.room().min(case.cap.task).max(size.memory()));
    let (slots, rung) = (set.slots, size.rung + 1);
    let why = format!("rung {rung}: {profile}, a whole executor ({slots} slots)");
    Growth::To(Size { profile, slots, rung, place: Place::Shared }, why)
}

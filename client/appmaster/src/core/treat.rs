//! The treatment of an end: the reaction to its diagnosis, leaks that only several attempts show,
//! and the treatments that the job file orders.

use headroom_config::MemoryQuantities;
use headroom_types::{Dimension, ExitCharge, Remedy, SubCause, Treatment};
use headroom_wire::v1::job::{AttemptRow, MemoryFailureMode, TaskState};

use super::MasterCore;
use crate::policy::blame::AttemptFate;
use crate::policy::chosen_treatment::ChosenTreatment;
use crate::policy::classify::{AttemptEndClass, MemoryFailure};
use crate::policy::leak;
use crate::policy::learn::SizeAfterKill;
use crate::policy::treatment::{TreatmentInput, asked, treatment};
use crate::taskset::{TaskInstance, TaskPosition};

impl MasterCore {
    /// The treatment of the end in `row`, and the resulting class. A failure whose treatment is
    /// more memory becomes a memory failure. A leak becomes the first row of the diagnosis.
    pub(super) fn treat(
        &self,
        key: TaskPosition,
        row: &mut AttemptRow,
        class: AttemptEndClass,
        fate: AttemptFate,
    ) -> (AttemptEndClass, Option<ChosenTreatment>) {
        let listens = self.job.mode == MemoryFailureMode::Headroom
            && !matches!(fate, AttemptFate::Bystander | AttemptFate::Unknown { .. });
        let (true, Some(stage), Some(set)) = (listens, self.stage_of(key), self.set_of(key)) else {
            return (class, None);
        };
        let quantity = match (class, stage.runtime.memory()) {
            (AttemptEndClass::Memory(failure), _) => failure.dimension,
            (_, MemoryQuantities::One) => Dimension::Native,
            (_, MemoryQuantities::HeapAndOverhead) => Dimension::Heap,
        };
        let ordered = |cause: SubCause| self.job.treatments.get(&cause).copied();
        let find = |row: &AttemptRow, cause: SubCause| {
            let asked = asked(row);
            let cache_alone = matches!(class, AttemptEndClass::Memory(failure) if failure.spike)
                && self
                    .tasks
                    .get(key)
                    .is_some_and(|task| task.spent.spikes == 0);
            let largest = self.cap(set).largest;
            let (runtime, tried) = (stage.runtime, row.remedies.as_slice());
            treatment(&TreatmentInput {
                cause,
                quantity,
                runtime,
                asked,
                largest,
                tried,
                cache_alone,
                ordered: ordered(cause),
            })
        };
        let mut treated = ChosenTreatment::of(row, |cause| find(row, cause));
        let grows = treated
            .as_ref()
            .is_none_or(|treated| treated.applied.treatment == Treatment::Grow);
        let may_leak = grows
            && matches!(class, AttemptEndClass::Memory(_))
            && ordered(SubCause::Leak) != Some(Treatment::Grow);
        if may_leak && let Some(found) = self.leaked(key, row) {
            row.diagnosis.insert(0, found);
            treated = ChosenTreatment::of(row, |cause| find(row, cause));
        }
        let by_order = row
            .diagnosis
            .first()
            .is_some_and(|first| ordered(first.name).is_some());
        (
            answered(class, treated.as_ref(), (by_order, quantity)),
            treated,
        )
    }

    /// The next rung that a refused memory request needs, if it is known.
    pub(super) fn known_of_request(
        row: &AttemptRow,
        treated: Option<&ChosenTreatment>,
    ) -> Option<SizeAfterKill> {
        let applied = treated?.applied;
        let grows =
            applied.cause == SubCause::ImpossibleRequest && applied.treatment == Treatment::Grow;
        asked(row).filter(|_| grows).map(SizeAfterKill::Rung)
    }

    /// The leak that the attempts of a task show, including the one that has just ended. Memory
    /// that another task of the stage needed as well is no leak.
    fn leaked(&self, key: TaskPosition, row: &AttemptRow) -> Option<headroom_types::Diagnosis> {
        let task = self.tasks.get(key)?;
        let of_memory = |row: &&AttemptRow| {
            row.reason
                .is_some_and(|reason| reason.charge() == ExitCharge::Memory)
        };
        let earlier = task
            .attempts
            .iter()
            .filter(|earlier| earlier.attempt != row.attempt)
            .filter(of_memory);
        let rows: Vec<&AttemptRow> = earlier.chain([row]).collect();
        leak::diagnose(&rows).filter(|_| !self.another_needed(key, row))
    }

    /// The reason for no growth of a running attempt whose memory grows like a leak.
    pub(super) fn leaks_while_it_grows(
        &self,
        key: TaskPosition,
        row: &AttemptRow,
    ) -> Option<String> {
        let allowed = self
            .job
            .treatments
            .get(&SubCause::Leak)
            .is_some_and(|treatment| *treatment == Treatment::Grow);
        let listens = self.job.mode == MemoryFailureMode::Headroom && !allowed;
        leak::grows_like_a_leak(row, self.now.unix)
            .filter(|_| listens && !self.another_needed(key, row))
    }

    /// True when a finished task of the stage has needed at least half of this attempt's memory.
    fn another_needed(&self, key: TaskPosition, row: &AttemptRow) -> bool {
        let half = row.profile.memory().mul_ratio(1, 2);
        let of_stage = self.tasks.of_stage(key.stage);
        let done = of_stage.filter(|(_, task)| task.row_state() == TaskState::Done);
        let forgotten = self
            .tasks
            .stages()
            .get(key.stage)
            .map(|s| &s.forgotten.peaks);
        done.filter_map(|(_, task)| task.attempts.last()?.peak)
            .chain(forgotten.into_iter().flatten().copied())
            .any(|peak| peak >= half)
    }
}

/// The class of an end after its treatment is known.
fn answered(
    class: AttemptEndClass,
    treated: Option<&ChosenTreatment>,
    (by_order, quantity): (bool, Dimension),
) -> AttemptEndClass {
    let Some(applied) = treated.map(|treated| treated.applied) else {
        return class;
    };
    match (class, applied.treatment) {
        (AttemptEndClass::Memory(failure), _) if by_order => {
            AttemptEndClass::Memory(MemoryFailure {
                spike: false,
                ..failure
            })
        }
        (AttemptEndClass::Plain | AttemptEndClass::Transient, Treatment::Grow)
            if by_order || applied.cause == SubCause::ImpossibleRequest =>
        {
            AttemptEndClass::Memory(MemoryFailure {
                dimension: quantity,
                off_heap: headroom_types::Bytes::ZERO,
                live: None,
                spike: false,
            })
        }
        (
            AttemptEndClass::Success
            | AttemptEndClass::Plain
            | AttemptEndClass::Transient
            | AttemptEndClass::Taken
            | AttemptEndClass::Collateral
            | AttemptEndClass::Bystander
            | AttemptEndClass::Memory(_),
            Treatment::Grow
            | Treatment::Fail
            | Treatment::Retry
            | Treatment::Elsewhere
            | Treatment::Remedy
            | Treatment::Unknown,
        ) => class,
    }
}

/// Remedies for the next attempt of a task: those of all its attempts so far.
pub(super) fn remedies(task: &TaskInstance) -> Vec<Remedy> {
    let mut all: Vec<Remedy> = task
        .attempts
        .iter()
        .filter_map(|row| row.treatment?.remedy)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

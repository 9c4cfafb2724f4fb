//! Sizes of tasks in a job that learns: which waiting tasks may start, with which size and for
//! which reason.
//!
//! ```text
//!                     ends, kills                     a turn in the queue, or in the line
//!  records ──► sizer ──────────────► sizes of tasks ──────────────────────────────► Placed | Moved
//!                                    that have not started (not durable)           (durable)
//! ```
//!
//! Learned data is durable state and changes only by applying records. The size of a task that has
//! not started is derived from it and computed again after a restart. It is recorded with the
//! task's first attempt, or when the task's own container is requested.

use std::path::PathBuf;

use headroom_config::{GibibyteHours, MemoryQuantities, StageSpec};
#[cfg(any(test, feature = "testkit"))]
use headroom_types::TaskId;
use headroom_types::{Bytes, Reason};
use headroom_wire::v1::job::{AttemptRow, ShadowOutcome, ShadowSize};
use headroom_wire::v1::job_history::{JobHistory, TaskKindHistory};

use super::MasterCore;
use crate::event::MasterEffect;
use crate::policy::learn::SizeAfterKill;
use crate::policy::sizing::MeasuredNeed;
use crate::policy::slot_placement::place_sized_task;
use crate::policy::{AttemptPlace, AttemptSize, ChargeAccount, TaskDecision};
use crate::record::{JournalRecord, KnownStage};
use crate::spec;
use crate::taskset::{LifecycleState, TaskPosition};

/// Each task is sized when its turn comes. All waiting tasks are sized again after every end while
/// they are few, else after a fraction of the others.
const FEW: u32 = 64;
const RESIZED_AFTER: u32 = 4;
/// Minimum run time for which an own container is worthwhile, since it takes about a second to
/// start. A shorter task stays in its executor. Seconds.
const MIN_OWN_CONTAINER_RUNTIME_S: f64 = 10.0;

impl MasterCore {
    /// The size that each task would start with now, whether it has started or not; for tests and
    /// comparisons.
    #[cfg(any(test, feature = "testkit"))]
    pub fn first_sizes(&mut self) -> Vec<(TaskId, AttemptSize, String)> {
        let keys: Vec<TaskPosition> = self.tasks.iter().map(|(key, _)| key).collect();
        let one = |key: TaskPosition| {
            let (size, why) = self.learned_size(key)?;
            Some((self.tasks.get(key)?.id.clone(), size, why))
        };
        keys.into_iter().filter_map(one).collect()
    }

    /// The files that the tasks of a stage read; `None` for a file whose directory is unknown.
    pub fn input_files(&self, stage: usize) -> Vec<Option<PathBuf>> {
        spec::input_files(&self.job, stage, self.setup.base_dir.as_deref())
    }

    /// Processes the measured inputs of a stage.
    pub(super) fn on_inputs(&mut self, stage: usize, sizes: Vec<Option<Bytes>>) {
        if self.learning.end_measurement(stage) {
            self.record(JournalRecord::Inputs { stage, sizes });
        }
    }

    pub(super) fn apply_inputs(&mut self, stage: usize, sizes: &[Option<Bytes>]) {
        self.learning.measured(stage, sizes);
        if self.learning.is_off() {
            self.charge_first(stage);
        }
    }

    /// Includes the usage history of earlier jobs, once, before the job's own measurements. The
    /// history contains peaks only. A peak does not separate the heap of a managed runtime, and
    /// does not name the measured input that it belonged to. Stages of these two kinds start
    /// without history.
    pub(super) fn on_known(&mut self, family: &JobHistory) {
        if self.job.live.is_some() {
            self.presence.history = Some(Box::new(family.clone()));
        }
        if !self.learning.takes_history() || self.outcome().is_some() {
            return;
        }
        let history_of = |(stage, spec): (usize, &StageSpec)| known_stage(family, stage, spec);
        let stages: Vec<KnownStage> = self
            .job
            .stages
            .iter()
            .enumerate()
            .filter_map(history_of)
            .collect();
        if !stages.is_empty() {
            self.record(JournalRecord::Known { stages });
        }
    }

    /// Includes the usage history of the stage that was declared last.
    pub(super) fn learn_history_of_last_stage(&mut self) {
        let last = self.job.stages.len().saturating_sub(1);
        let (Some(spec), Some(history)) = (self.job.stages.get(last), &self.presence.history)
        else {
            return;
        };
        let known = known_stage(history, last, spec).filter(|_| !self.learning.is_off());
        if let Some(known) = known {
            let stages = vec![known];
            self.record(JournalRecord::Known { stages });
        }
    }

    pub(super) fn apply_known(&mut self, stages: &[KnownStage]) {
        self.learning.include_history(&self.job, stages);
    }

    /// Learns from an attempt that has ended.
    pub(super) fn learn(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        account: ChargeAccount,
        need: Option<MeasuredNeed>,
        next: &TaskDecision,
    ) {
        if let Some(stage) = self.job.stages.get(key.stage) {
            self.learning.learn(stage, key, row, account, need, next);
        }
    }

    /// Learned data for the next size of a task that was killed for memory.
    pub(super) fn known_after(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        failures: u32,
    ) -> SizeAfterKill {
        let (Some(stage), Some(dimension)) = (self.job.stages.get(key.stage), row.dimension) else {
            return SizeAfterKill::Unknown;
        };
        if !self.learning.is_used() {
            return SizeAfterKill::Unknown;
        }
        // Heap and overhead are learned separately. The first kill of one dimension therefore has
        // the same meaning independent of the other dimension.
        let failures = match stage.runtime.memory() {
            MemoryQuantities::One => failures,
            MemoryQuantities::HeapAndOverhead => {
                let rows = self.tasks.get(key).map_or(&[][..], |task| &task.attempts);
                let alike = rows
                    .iter()
                    .filter(|a| a.attempt != row.attempt && a.dimension == Some(dimension))
                    .count();
                u32::try_from(alike).unwrap_or(u32::MAX).saturating_add(1)
            }
        };
        self.learning
            .after_kill(stage, key, dimension, &row.profile, failures)
    }

    /// Requests measurements of inputs, and sizes the waiting tasks again after enough was learned.
    pub(super) fn size_waiting(&mut self) {
        for (stage, spec) in self.job.stages.iter().enumerate() {
            let begun = self.tasks.stages().get(stage).is_some_and(|s| s.begun);
            if begun && self.learning.begin_measurement(stage, spec) {
                self.out.push(MasterEffect::Measure { stage });
            }
        }
        if self.learning.is_off() {
            return;
        }
        for kind in self.learning.kinds_with_news() {
            let stages = self.learning.stages_of(kind);
            let waiting = stages
                .iter()
                .filter_map(|stage| self.tasks.stages().get(*stage))
                .filter(|s| s.begun)
                .map(|s| s.left);
            let enough = waiting.fold(0, u32::saturating_add).saturating_sub(FEW) / RESIZED_AFTER;
            if !self.learning.take_news(kind, enough.max(1)) {
                continue;
            }
            let open: Vec<TaskPosition> = stages
                .into_iter()
                .flat_map(|stage| self.tasks.unfinished(stage))
                .filter(|key| self.is_open(*key))
                .collect();
            open.iter().for_each(|key| self.size_now(*key));
            if !open.is_empty() {
                self.report_learned_rung(kind);
            }
        }
    }

    /// Reports the learned size of a kind after its waiting tasks were sized again.
    fn report_learned_rung(&mut self, kind: usize) {
        let first = TaskPosition {
            stage: kind,
            index: 0,
        };
        let Some((size, why)) = self.learned_size(first) else {
            return;
        };
        let size = size.memory();
        let Some(stage) = self.job.stages.get(kind) else {
            return;
        };
        let stated = spec::first_size_with(&self.job, stage, self.first_charge(first)).memory();
        if let Some(before) = self.learning.report(kind, size, stated) {
            let name = stage.name.to_string();
            let message =
                format!("tasks such as {name}/0 start with {size} instead of {before}: {why}");
            self.view
                .add_event(self.now, Reason::RungLearned, &name, message);
        }
    }

    /// Gives a task that has not started the size that results from the current data.
    pub(super) fn size_now(&mut self, key: TaskPosition) {
        if !self.is_open(key) {
            return;
        }
        let Some((size, why)) = self.learned_size(key) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        task.why = why;
        if task.size != size {
            self.resize(key, &size);
            self.view.mark_dirty(key);
        }
    }

    /// True for a waiting task whose size is not recorded yet.
    pub(super) fn is_open(&self, key: TaskPosition) -> bool {
        let waits = |task: &&crate::taskset::TaskInstance| {
            !task.sized && matches!(task.state, LifecycleState::Pending { .. })
        };
        self.tasks.get(key).as_ref().is_some_and(waits)
    }

    /// False while only a few tasks of its kind may run, because little is known about it.
    pub(super) fn may_begin(&self, key: TaskPosition) -> bool {
        self.stage_of(key)
            .is_none_or(|stage| self.learning.may_begin(stage, key))
    }

    /// The size that a task would start with, and the reason.
    pub(super) fn learned_size(&mut self, key: TaskPosition) -> Option<(AttemptSize, String)> {
        let (stage, set) = (
            self.job.stages.get(key.stage)?,
            self.job.executors.get(*self.set_of.get(key.stage)?)?,
        );
        let cap = self.cap(set);
        let first = self.learning.first(stage, key);
        let long = self.learning.runtime_s(stage) >= MIN_OWN_CONTAINER_RUNTIME_S;
        // Learned sizes already include the memory that inputs take.
        let size = if first.learned {
            place_sized_task(stage, set, (&first.profile, long), cap)
        } else {
            spec::first_size_with(&self.job, stage, self.first_charge(key))
        };
        Some((size, first.why))
    }

    /// Requests own containers for the tasks in the line, as many at once as the memory of their
    /// executor set allows.
    pub(super) fn admit(&mut self) {
        let mut after = None;
        while let Some(key) = self.learning.next_in_line(after) {
            after = Some(key);
            if !self.may_begin(key) || self.own_is_full(key) {
                after = Some(TaskPosition {
                    index: u32::MAX,
                    ..key
                });
                continue;
            }
            self.size_now(key);
            let Some(task) = self
                .tasks
                .get(key)
                .filter(|task| task.size.place == AttemptPlace::Own)
            else {
                continue;
            };
            let (size, why) = (task.size.clone(), task.why.clone());
            self.record(JournalRecord::Moved {
                task: key,
                size,
                why,
            });
        }
    }

    /// True when first attempts in their own containers take the memory that the job states for the
    /// executors of their stage.
    fn own_is_full(&self, key: TaskPosition) -> bool {
        let Some(set) = self.set_of(key) else {
            return true;
        };
        let beside = self
            .own
            .iter()
            .filter(|other| self.set_of.get(other.stage) == self.set_of.get(key.stage));
        let beside: Vec<Bytes> = beside
            .filter(|k| self.tasks.get(**k).is_some_and(|t| t.size.rung == 1))
            .map(|k| self.own_memory(*k))
            .collect();
        let taken = beside.iter().fold(self.own_memory(key), |sum, memory| {
            sum.saturating_add(*memory)
        });
        let stated = set.profile.memory().mul_ratio(u64::from(set.count), 1);
        let slots =
            usize::try_from(u64::from(set.count) * u64::from(set.slots)).unwrap_or(usize::MAX);
        taken > stated && beside.len() >= slots
    }

    /// The size that a learner in shadow mode would have given to the first attempt of a task.
    pub(super) fn shadow(&mut self, key: TaskPosition) -> Option<ShadowSize> {
        if !self.learning.is_shadow()
            || self
                .tasks
                .get(key)
                .is_none_or(|task| !task.attempts.is_empty())
        {
            return None;
        }
        let (size, why) = self.learned_size(key)?;
        Some(ShadowSize {
            profile: size.profile,
            why,
            outcome: None,
        })
    }

    /// The reason why no task of the job gets more memory, once memory failures have spent the
    /// budget.
    pub(super) fn budget_spent(&self) -> Option<String> {
        let (budget, extra) = (self.job.retry.budget?, self.ledger.extra_byte_ms());
        (extra > budget.byte_ms()).then(|| {
            let spent = GibibyteHours::nearest(extra);
            format!("memory failures have cost this job {spent}, more than its budget of {budget}")
        })
    }

    /// The reason why no task of this stage gets more memory, once too many of its tasks had to get
    /// more.
    pub(super) fn breaker(&self, stage: usize) -> Option<String> {
        let (most, tasks) = (self.job.retry.breaker?, self.tasks.stages().get(stage)?);
        let spec = self.job.stages.get(stage)?;
        let too_many = u64::from(tasks.escalated) * 100 > u64::from(most) * u64::from(spec.count);
        (too_many && tasks.escalated >= LEAST_ESCALATED).then(|| {
            let (escalated, count) = (tasks.escalated, spec.count);
            format!("{escalated} of {count} tasks of stage {} had to be given another size, more than {most} in 100", spec.name)
        })
    }
}

/// The history of a stage; `None` if there is none, or if it does not apply.
fn known_stage(family: &JobHistory, stage: usize, spec: &StageSpec) -> Option<KnownStage> {
    let plain = spec.input.is_none() && spec.runtime.memory() == MemoryQuantities::One;
    let peaks = |kind: &TaskKindHistory| {
        kind.tasks
            .iter()
            .map(|need| (need.peak, need.runtime_ms))
            .collect()
    };
    let kind = family
        .kinds
        .iter()
        .find(|kind| kind.name == spec.name.as_str())
        .filter(|_| plain)?;
    Some(KnownStage {
        stage,
        tasks: peaks(kind),
    })
}

/// Minimum number of escalated tasks for which a stage is called badly sized.
const LEAST_ESCALATED: u32 = 5;

/// Sets the outcome that the attempt would have had with the size of its shadow.
pub(super) fn judge(row: &mut AttemptRow, account: ChargeAccount, need: Option<MeasuredNeed>) {
    let given = row.profile.memory();
    let Some(shadow) = &mut row.shadow else {
        return;
    };
    let larger = shadow.profile.memory() > given;
    shadow.outcome = match account {
        ChargeAccount::Success => need.map(|need| {
            if need.fits(&shadow.profile) {
                ShadowOutcome::Fits
            } else {
                ShadowOutcome::Killed
            }
        }),
        ChargeAccount::Memory => Some(if larger {
            ShadowOutcome::Perhaps
        } else {
            ShadowOutcome::Killed
        }),
        ChargeAccount::Spike
        | ChargeAccount::Plain
        | ChargeAccount::Transient
        | ChargeAccount::Bystander
        | ChargeAccount::Taken
        | ChargeAccount::Collateral => None,
    };
}

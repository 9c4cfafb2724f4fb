//! The learned data of a job, and the tasks that wait for a size. The core owns it and changes it
//! by applying records; it never places a task.

use std::collections::{BTreeMap, BTreeSet};

use headroom_config::{InputSizes, JobSpec, SizingMode, StageSpec};
use headroom_sizes::learn::SizeAfterKill;
use headroom_types::{AppliedTreatment, Bytes, Dimension, Profile, Treatment};
use headroom_wire::v1::job::AttemptRow;

use super::input_sizes::JobInputSizes;
use super::size_report::ReportedSizes;
use crate::ledger;
use crate::policy::sizing::{FirstTaskSize, MeasuredNeed, TaskSizePredictor, TaskSizeQuery};
use crate::policy::{ChargeAccount, TaskDecision};
use crate::record::KnownStage;
use crate::taskset::TaskPosition;

/// Weight of a kill, in ends: a kill contains more information than a success.
const KILL_WEIGHT: u32 = 8;

/// The learned data of a job, and the tasks that wait for a size.
#[derive(Clone, Debug)]
pub(super) struct LearnedSizes {
    mode: SizingMode,
    sizer: TaskSizePredictor,
    /// For each stage, the index of the first stage of the same kind.
    kind_of: Vec<usize>,
    inputs: JobInputSizes,
    /// Stages whose inputs are being measured. Not durable.
    measuring: BTreeSet<usize>,
    /// For each kind, the number of tasks that have started, or whose own container is requested,
    /// and that are not final.
    begun: BTreeMap<usize, usize>,
    /// For each kind, the amount of new information since the waiting tasks were sized. Not
    /// durable.
    news: BTreeMap<usize, u32>,
    /// Tasks that have not started and will have their own container.
    line: BTreeSet<TaskPosition>,
    /// The usage history of earlier jobs has been included.
    informed: bool,
    /// Learned sizes that were reported as events.
    reported: ReportedSizes,
}

impl LearnedSizes {
    /// The learned data of a job whose tasks have not run.
    pub(super) fn new(job: &JobSpec) -> LearnedSizes {
        let first = |stage: &StageSpec| {
            job.stages
                .iter()
                .position(|other| other.kind() == stage.kind())
                .unwrap_or(0)
        };
        let inputs_of = |stage: &StageSpec| match &stage.input {
            Some(InputSizes::Listed(sizes)) => sizes.iter().copied().map(Some).collect(),
            Some(InputSizes::File(_)) | None => Vec::new(),
        };
        let kind_of: Vec<usize> = job.stages.iter().map(first).collect();
        LearnedSizes {
            mode: job.sizes(),
            sizer: TaskSizePredictor::new(
                job.mode,
                job.stages
                    .iter()
                    .all(|stage| job.freeze_timeout(stage).is_some()),
            ),
            inputs: JobInputSizes::new(job.stages.iter().map(inputs_of).collect(), kind_of.clone()),
            kind_of,
            measuring: BTreeSet::new(),
            begun: BTreeMap::new(),
            news: BTreeMap::new(),
            line: BTreeSet::new(),
            informed: false,
            reported: ReportedSizes::default(),
        }
    }
    /// Adds the last stage of the job, which was declared while the job runs.
    pub(super) fn add_last_stage(&mut self, job: &JobSpec) {
        let Some(stage) = job.stages.last() else {
            return;
        };
        let alike = |other: &StageSpec| other.kind() == stage.kind();
        let kind = job.stages.iter().position(alike).unwrap_or(0);
        self.kind_of.push(kind);
        self.inputs.add_stage(kind);
        if job.freeze_timeout(stage).is_none() {
            self.sizer.expect_kills();
        }
    }
    /// Lets the sizer expect kills: these tasks run where no limit can be raised, so that a limit
    /// that is too small costs an attempt.
    pub(super) fn expect_kills(&mut self) {
        self.sizer.expect_kills();
    }
    /// Continues after the records of an earlier run.
    pub(super) fn resume(&mut self) {
        self.reported.resume();
    }
    /// True if tasks start with stated sizes and nothing is learned.
    pub(super) fn is_off(&self) -> bool {
        self.mode == SizingMode::Stated
    }
    /// True if learned sizes are recorded beside the stated ones and not used.
    pub(super) fn is_shadow(&self) -> bool {
        self.mode == SizingMode::Shadow
    }
    /// True if tasks start with learned sizes.
    pub(super) fn is_used(&self) -> bool {
        self.mode == SizingMode::Learned
    }
    /// True if the usage history of earlier jobs can still be included.
    pub(super) fn takes_history(&self) -> bool {
        !self.is_off() && !self.informed
    }
    /// True if the task waits for its own container.
    #[cfg(any(test, feature = "testkit"))]
    pub(super) fn in_line(&self, key: TaskPosition) -> bool {
        self.line.contains(&key)
    }
    /// Adds a task that has not started and will have its own container.
    pub(super) fn line_up(&mut self, key: TaskPosition) {
        self.line.insert(key);
    }
    /// Removes a task that does not wait for its own container any more.
    pub(super) fn leave_line(&mut self, key: TaskPosition) {
        self.line.remove(&key);
    }
    /// The next task that waits for its own container.
    pub(super) fn next_in_line(&self, after: Option<TaskPosition>) -> Option<TaskPosition> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.line
            .range((after.map_or(Unbounded, Excluded), Unbounded))
            .next()
            .copied()
    }
    /// The kind of a stage: the index of the first stage of the same kind.
    fn kind(&self, stage: usize) -> usize {
        self.kind_of.get(stage).copied().unwrap_or(stage)
    }
    fn learned(&mut self, stage: usize, how_much: u32) {
        let kind = self.kind(stage);
        let news = self.news.entry(kind).or_default();
        *news = news.saturating_add(how_much);
    }
    /// Marks all tasks of a stage that may start for sizing.
    pub(super) fn unblocked(&mut self, stage: usize) {
        if self.is_used() {
            self.learned(stage, u32::MAX);
        }
    }
    /// Counts a task that has started. Called only where sizes depend on learned data.
    pub(super) fn begins(&mut self, key: TaskPosition) {
        let begun = self.begun_mut(key);
        *begun = begun.saturating_add(1);
    }
    /// Uncounts a started task that has become final.
    pub(super) fn is_over(&mut self, key: TaskPosition) {
        let begun = self.begun_mut(key);
        *begun = begun.saturating_sub(1);
    }
    fn begun_mut(&mut self, key: TaskPosition) -> &mut usize {
        let kind = self.kind(key.stage);
        self.begun.entry(kind).or_default()
    }
    /// The sizes of inputs.
    pub(super) fn inputs(&self) -> &JobInputSizes {
        &self.inputs
    }
    /// True when the inputs of a stage have to be measured and no measurement is in progress; marks
    /// it as in progress.
    pub(super) fn begin_measurement(&mut self, stage: usize, spec: &StageSpec) -> bool {
        self.inputs.are_unknown(stage)
            && matches!(spec.input, Some(InputSizes::File(_)))
            && self.measuring.insert(stage)
    }
    /// Ends the measurement of a stage. False if none was in progress.
    pub(super) fn end_measurement(&mut self, stage: usize) -> bool {
        self.measuring.remove(&stage)
    }
    /// Includes the measured inputs of a stage.
    pub(super) fn measured(&mut self, stage: usize, sizes: &[Option<Bytes>]) {
        self.inputs.measured(stage, sizes);
        if !self.is_off() {
            self.learned(stage, u32::MAX);
        }
    }
    /// Includes the usage history of earlier jobs.
    pub(super) fn include_history(&mut self, job: &JobSpec, stages: &[KnownStage]) {
        self.informed = true;
        for known in stages {
            let Some(spec) = job.stages.get(known.stage) else {
                continue;
            };
            for (n, (peak, runtime_ms)) in (0..).zip(&known.tasks) {
                // Task numbers that no task of this job has.
                let ask = TaskSizeQuery {
                    kind: spec.kind().as_str(),
                    memory: spec.runtime.memory(),
                    input: None,
                    stated: &spec.profile,
                    task: u64::MAX - n,
                };
                self.sizer.ended(
                    &ask,
                    &MeasuredNeed {
                        heap: None,
                        rest: *peak,
                    },
                    seconds(*runtime_ms),
                );
            }
            self.learned(known.stage, u32::MAX);
        }
    }
    /// Learns from an attempt that has ended.
    pub(super) fn learn(
        &mut self,
        stage: &StageSpec,
        key: TaskPosition,
        row: &AttemptRow,
        account: ChargeAccount,
        need: Option<MeasuredNeed>,
        next: &TaskDecision,
    ) {
        if self.is_off() {
            return;
        }
        let mut ask = Self::ask(stage, &self.inputs, key);
        let mut amount = 1;
        match account {
            ChargeAccount::Success => {
                ask.input = self.inputs.actual(key, row);
                self.inputs.ended(key, row);
                // Older journals contain only the peak, which is the complete need of a runtime
                // with one quantity of memory.
                let whole = |rest| MeasuredNeed { heap: None, rest };
                if let Some(need) = need.or_else(|| row.peak.map(whole)) {
                    self.sizer.ended(&ask, &need, runtime_s(row));
                }
            }
            ChargeAccount::Memory => {
                if says_nothing_of_size(row.treatment) {
                    return;
                }
                if let Some(dimension) = row.dimension {
                    self.sizer.killed(&ask, dimension, &row.profile);
                }
                amount = KILL_WEIGHT;
            }
            ChargeAccount::Spike
            | ChargeAccount::Plain
            | ChargeAccount::Transient
            | ChargeAccount::Bystander
            | ChargeAccount::Taken
            | ChargeAccount::Collateral => {
                return;
            }
        }
        if matches!(next, TaskDecision::GiveUp { .. }) {
            self.sizer.dropped(&ask);
        }
        if self.is_used() {
            self.learned(key.stage, amount);
        }
    }
    /// The first size of a task.
    pub(super) fn first(&mut self, stage: &StageSpec, key: TaskPosition) -> FirstTaskSize {
        self.sizer.first(&Self::ask(stage, &self.inputs, key))
    }
    /// Data about the need of a task that was killed at the size `profile`, for the `failures`th
    /// time, because `dimension` ran out.
    pub(super) fn after_kill(
        &mut self,
        stage: &StageSpec,
        key: TaskPosition,
        dimension: Dimension,
        profile: &Profile,
        failures: u32,
    ) -> SizeAfterKill {
        let ask = Self::ask(stage, &self.inputs, key);
        self.sizer.after_kill(&ask, dimension, profile, failures)
    }
    /// Mean run time of the tasks of a stage's kind. Seconds; 0 while none has ended.
    pub(super) fn runtime_s(&self, stage: &StageSpec) -> f64 {
        self.sizer
            .runtime_s(stage.kind().as_str(), stage.runtime.memory())
    }
    /// False while only a few tasks of a kind may run, because little is known about it.
    pub(super) fn may_begin(&self, stage: &StageSpec, key: TaskPosition) -> bool {
        let begun = self.begun.get(&self.kind(key.stage)).copied().unwrap_or(0);
        self.sizer
            .may_start(stage.kind().as_str(), stage.runtime.memory(), begun)
    }
    /// The kinds about which something was learned since their waiting tasks were sized.
    pub(super) fn kinds_with_news(&self) -> Vec<usize> {
        self.news.keys().copied().collect()
    }
    /// The stages of a kind.
    pub(super) fn stages_of(&self, kind: usize) -> Vec<usize> {
        let stages = self.kind_of.iter().enumerate();
        stages
            .filter(|(_, of)| **of == kind)
            .map(|(stage, _)| stage)
            .collect()
    }
    /// Removes the new information about a kind if there is at least this much of it. True if it
    /// was removed, so that the waiting tasks have to be sized again.
    pub(super) fn take_news(&mut self, kind: usize, least: u32) -> bool {
        let enough = self.news.get(&kind).is_some_and(|news| *news >= least);
        if enough {
            self.news.remove(&kind);
        }
        enough
    }
    /// Returns the size from which the current size of a kind differs so much that this is
    /// reported, and takes the current size as reported. `stated` is the size without learned data.
    pub(super) fn report(&mut self, kind: usize, size: Bytes, stated: Bytes) -> Option<Bytes> {
        self.reported.replace(kind, size, stated)
    }
    fn ask<'a>(
        stage: &'a StageSpec,
        inputs: &JobInputSizes,
        key: TaskPosition,
    ) -> TaskSizeQuery<'a> {
        let input = inputs.expected(key);
        let task = (u64::try_from(key.stage).unwrap_or_default() << 32) | u64::from(key.index);
        TaskSizeQuery {
            kind: stage.kind().as_str(),
            memory: stage.runtime.memory(),
            input,
            stated: &stage.profile,
            task,
        }
    }
}

/// True when the end contains no information about the size that its task needs.
fn says_nothing_of_size(applied: Option<AppliedTreatment>) -> bool {
    applied.is_some_and(|applied| match applied.treatment {
        Treatment::Grow | Treatment::Unknown => false,
        Treatment::Fail | Treatment::Retry | Treatment::Elsewhere | Treatment::Remedy => true,
    })
}

fn runtime_s(row: &AttemptRow) -> f64 {
    seconds(ledger::runtime_ms(row))
}

#[allow(clippy::cast_precision_loss)] // milliseconds of a task
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

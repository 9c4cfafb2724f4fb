//! The end of an attempt as its executor reports it: classified, decided, recorded and
//! acknowledged.

use headroom_config::{MemoryQuantities, TaskRuntime};
use headroom_types::exit::{MemorySample, TaskReport};
use headroom_types::{AppliedTreatment, Bytes, ContainerId, ExitCharge, ExitReason, Treatment};
use headroom_wire::v1::job::AttemptRow;
use headroom_wire::v1::submission::MAX_VALUE_BYTES;
use headroom_wire::v1::task::ToExecutor;

use super::node_exclusion::is_of_the_node;
use super::{MasterCore, learn, send};
use crate::policy::blame::AttemptFate;
use crate::policy::chosen_treatment::ChosenTreatment;
use crate::policy::classify::{AttemptEndClass, AttemptEndFacts, classify};
use crate::policy::learn::SizeAfterKill;
use crate::policy::sizing::MeasuredNeed;
use crate::policy::{ChargeAccount, DecisionInput, GrowthBound, TaskDecision, decide};
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;

/// Maximum number of timeline points in an attempt's row.
const MAX_TIMELINE_POINTS: usize = 128;

impl MasterCore {
    /// Processes the report of an ended attempt. A late or repeated report is acknowledged and
    /// changes nothing.
    pub(super) fn on_ended(&mut self, container: &ContainerId, report: &TaskReport) {
        let seat = self.fleet.seat(container, &report.attempt);
        if let Some((key, held)) = seat.map(|s| (s.task, s.held)) {
            if let Some(held) = held.filter(|_| report.reason.charge() == ExitCharge::Memory) {
                self.end_freeze(container, &report.attempt, held);
            }
            self.end_by_report(key, report);
        }
        self.out.push(send(
            container,
            ToExecutor::Ack {
                attempt: report.attempt.clone(),
            },
        ));
    }

    fn end_by_report(&mut self, key: TaskPosition, report: &TaskReport) {
        let Some(stage) = self.stage_of(key) else {
            return;
        };
        let runtime = stage.runtime;
        let Some(open) = self.tasks.get(key).and_then(|t| t.open_attempt()) else {
            return;
        };
        let mut row = open.clone();
        let class = classify(&AttemptEndFacts {
            reason: report.reason,
            dimension: report.dimension,
            evidence: Some(&report.evidence),
            timeline: &report.timeline,
            profile: &row.profile,
            runtime,
        });
        let class = self.class_of_loss(&row.container, report.reason, class);
        let class = self.class_of_launch(key, &row, report.reason, class);
        fill_row(&mut row, report);
        self.note_read(key, &mut row, report.read);
        if let AttemptEndClass::Memory(failure) = class {
            row.dimension = Some(failure.dimension);
        }
        self.keep_value(key, report);
        let need = if class == AttemptEndClass::Success {
            needed(report, &row, runtime)
        } else {
            None
        };
        if class == AttemptEndClass::Success && self.is_fenced(key) {
            return self.commit(key, row, need);
        }
        self.end_attempt(
            key,
            row,
            ClassifiedEnd {
                class,
                fate: AttemptFate::Own,
                need,
            },
        );
    }

    /// Records the value that an attempt at a task of a live stage returned, however it ended.
    fn keep_value(&mut self, key: TaskPosition, report: &TaskReport) {
        let returned = report.value.is_some() || report.value_too_large.is_some();
        if !returned || self.submitted.get(key).is_none() {
            return;
        }
        let fits = |value: &&String| value.len() <= MAX_VALUE_BYTES;
        let size = |value: &String| Bytes::new(u64::try_from(value.len()).unwrap_or(u64::MAX));
        let value = report.value.as_ref().filter(fits).cloned();
        let too_large = match value {
            Some(_) => None,
            None => report.value_too_large.or(report.value.as_ref().map(size)),
        };
        let returned = JournalRecord::ValueReturned {
            task: key,
            value,
            too_large,
        };
        self.record(returned);
    }

    /// Decides on an attempt that has ended, and records both.
    pub(super) fn end_attempt(
        &mut self,
        key: TaskPosition,
        mut row: AttemptRow,
        ClassifiedEnd { class, fate, need }: ClassifiedEnd,
    ) {
        let (class, treated) = self.treat(key, &mut row, class, fate);
        let known = self.size_known_after(key, &row, class, treated.as_ref());
        let kills = self.tasks.get(key).map_or(0, |task| task.spent.collateral);
        let class = self.fleet.collateral.class(
            &row.node,
            row.started,
            (self.fleet.other_place(), kills),
            class,
        );
        let (breaker, budget) = (self.breaker(key.stage), self.budget_spent());
        let remote_input = self.remote_input(key, &row);
        let (Some(stage), Some(set), Some(task)) =
            (self.stage_of(key), self.set_of(key), self.tasks.get(key))
        else {
            return;
        };
        let Some(size) = self.size_after(key) else {
            return;
        };
        let reason = row.reason.unwrap_or(ExitReason::NodeLost);
        let name = task.id.to_string();
        let case = DecisionInput {
            mode: self.job.mode,
            task: &name,
            reason,
            class,
            fate,
            size: &size,
            set,
            runtime: stage.runtime,
            idempotent: stage.idempotent,
            retry: &self.job.retry,
            spent: task.spent,
            cap: self.cap(set),
            known,
            bound: budget
                .as_deref()
                .map(GrowthBound::Budget)
                .or_else(|| breaker.as_deref().map(GrowthBound::Stage)),
            remote_input,
            treated: treated.as_ref(),
        };
        let (account, next) = self.as_ordered(key, &row, decide(&case));
        row.treatment = treated.map(|treated| recorded(treated.applied, account));
        row.decision = decision(&next);
        learn::judge(&mut row, account, need);
        let collateral_rerun = account == ChargeAccount::Bystander && within(&row);
        let failures = self.fleet.failures(&row.node);
        let ended = JournalRecord::Ended {
            task: key,
            row: Box::new(row.clone()),
            account,
            collateral_rerun,
            next: next.clone(),
            need,
        };
        self.record(ended);
        self.report_attempt_end(key, &row, account, &next);
        self.report_input_gap(key, &row);
        self.charge_node(key, &row, account, failures);
        if let Some(why) = self.breaker(key.stage).filter(|_| breaker.is_none()) {
            self.report_badly_sized_stage(key, &why);
        }
    }

    /// The learned size for a task after the end of an attempt; known only after memory failures.
    fn size_known_after(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        class: AttemptEndClass,
        treated: Option<&ChosenTreatment>,
    ) -> SizeAfterKill {
        match class {
            AttemptEndClass::Memory(_)
                if let Some(known) = Self::known_of_request(row, treated) =>
            {
                known
            }
            AttemptEndClass::Memory(_) => self.known_after(
                key,
                row,
                self.tasks.get(key).map_or(0, |task| task.spent.memory) + 1,
            ),
            AttemptEndClass::Success
            | AttemptEndClass::Plain
            | AttemptEndClass::Transient
            | AttemptEndClass::Taken
            | AttemptEndClass::Collateral
            | AttemptEndClass::Bystander => SizeAfterKill::Unknown,
        }
    }

    /// Leaves or excludes the node of an attempt if the node caused its end. `failures` is the
    /// number of failures of the node before this end.
    fn charge_node(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        account: ChargeAccount,
        failures: u32,
    ) {
        if account == ChargeAccount::Collateral {
            self.leave_after_collateral(row);
        }
        if is_of_the_node(row, account) {
            self.exclude_node(
                &row.node,
                failures,
                &format!("{} could not be started ({})", row.attempt, row.log_tail),
            );
            self.note_shunned(key, &row.node);
        }
    }
}

/// The classification of an attempt's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassifiedEnd {
    /// Class of the end.
    pub(super) class: AttemptEndClass,
    /// The attempt's part in the end of its container.
    pub(super) fate: AttemptFate,
    /// Measured need of the task; only after a success.
    pub(super) need: Option<MeasuredNeed>,
}

impl ClassifiedEnd {
    /// An end without a measured need.
    pub(super) fn of(class: AttemptEndClass, fate: AttemptFate) -> ClassifiedEnd {
        ClassifiedEnd {
            class,
            fate,
            need: None,
        }
    }
}

/// The measured need of a task that succeeded. Page cache is not part of the need: if the samples
/// show how much of the peak was cache, it is subtracted.
fn needed(report: &TaskReport, row: &AttemptRow, runtime: TaskRuntime) -> Option<MeasuredNeed> {
    let peak = row.peak?;
    let most = report.timeline.iter().max_by_key(|sample| sample.current);
    let tmpfs = report.evidence.own.stat.shmem.unwrap_or_default();
    let cache = most
        .and_then(|sample| sample.file)
        .unwrap_or_default()
        .saturating_sub(tmpfs);
    let anon = report
        .timeline
        .iter()
        .filter_map(|sample| sample.anon)
        .max()
        .unwrap_or_default();
    let demand = peak.saturating_sub(cache).max(anon).min(peak);
    match runtime.memory() {
        MemoryQuantities::One => Some(MeasuredNeed {
            heap: None,
            rest: demand,
        }),
        MemoryQuantities::HeapAndOverhead => {
            let reported = report.evidence.heap?;
            let seen = report
                .timeline
                .iter()
                .filter_map(|sample| sample.heap)
                .max()
                .unwrap_or_default();
            let heap = reported.used.max(seen).min(row.profile.heap);
            Some(MeasuredNeed {
                heap: Some(heap),
                rest: demand.saturating_sub(reported.committed.min(row.profile.heap)),
            })
        }
    }
}

/// True when the attempt stayed within its own size, as far as the measurements show.
fn within(row: &AttemptRow) -> bool {
    row.peak.is_none_or(|peak| peak <= row.profile.memory())
}

/// The treatment to record. A limit that was full of page cache is answered with a retry, for
/// any sub-cause that the diagnosis lists first.
fn recorded(applied: AppliedTreatment, account: ChargeAccount) -> AppliedTreatment {
    match account {
        ChargeAccount::Spike => AppliedTreatment {
            treatment: Treatment::Retry,
            quantity: None,
            remedy: None,
            ..applied
        },
        ChargeAccount::Success
        | ChargeAccount::Memory
        | ChargeAccount::Plain
        | ChargeAccount::Transient
        | ChargeAccount::Bystander
        | ChargeAccount::Taken
        | ChargeAccount::Collateral => applied,
    }
}

fn decision(next: &TaskDecision) -> String {
    match next {
        TaskDecision::Done => "done".to_owned(),
        TaskDecision::Again { why, .. } => why.clone(),
        TaskDecision::GiveUp { message, .. } => format!("given up: {message}"),
    }
}

/// A timeline with few points. The master keeps the rows of all attempts until it ends.
pub(super) fn thinned(timeline: &[MemorySample]) -> Vec<MemorySample> {
    MemorySample::thin(timeline, MAX_TIMELINE_POINTS)
}

fn fill_row(row: &mut AttemptRow, report: &TaskReport) {
    let sampled: Option<Bytes> = report.timeline.iter().map(|s| s.current).max();
    row.ended = Some(report.ended.max(row.started));
    row.peak = report.evidence.own.peak.or(sampled).or(row.peak);
    row.used = None;
    row.reason = Some(report.reason);
    row.dimension = report.dimension;
    row.silent = report.silent;
    if report.reason != (ExitReason::Exit { code: 0 }) {
        row.evidence = Some(report.evidence.clone());
        row.diagnosis.clone_from(&report.diagnosis);
        row.timeline = thinned(&report.timeline);
        row.log_tail.clone_from(&report.log_tail);
    }
}

//! Reports of the job to the resource manager: changed rows, statistics and events.

use headroom_types::spelling::counted_noun;
use headroom_types::{Bytes, Dimension, ExitReason, Reason, SubCause, TaskAttemptId, TaskId};
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::{AttemptRow, InputGap, JobTotals, JobViewPatch, TaskRow};

use super::MasterCore;
use crate::event::{EventTimestamp, JobEndKind, JobOutcome};
use crate::ledger::changes_size;
use crate::policy::{AttemptPlace, AttemptSize, ChargeAccount, GiveUpCause, TaskDecision};
use crate::record::JournalRecord;
use crate::taskset::{LifecycleState, TaskPosition};

/// Maximum weight of one patch, in units of about 100 bytes of JSON: well below 1 MiB.
const MAX_PATCH_WEIGHT: usize = 5000;

impl MasterCore {
    /// True when changes wait to be reported.
    pub fn has_unreported_changes(&self) -> bool {
        !self.view.is_empty() || self.folded.has_forgotten()
    }

    /// The next patch of unreported changes. Pass it to [`MasterCore::restore_patch`] if it could
    /// not be sent.
    pub fn take_patch(&mut self) -> JobViewPatch {
        let (mut rows, mut folded): (Vec<TaskRow>, Vec<TaskId>) = (Vec::new(), Vec::new());
        let events = self.view.take_events();
        let mut spent = 2 * events.len();
        while spent < MAX_PATCH_WEIGHT
            && let Some(key) = self.view.take_dirty()
        {
            let Some(task) = self.tasks.get(key).filter(|_| !self.folded.contains(key)) else {
                continue;
            };
            spent += 3 + task.attempts.iter().map(weight).sum::<usize>();
            let row = TaskRow {
                ahead: self.ahead(key),
                frozen: self.frozen_task(key),
                ..task.row()
            };
            folded.extend(self.folded.fold(&self.job, &mut self.tasks, key, &row));
            rows.push(row);
        }
        while spent < MAX_PATCH_WEIGHT
            && let Some(key) = self.folded.take_forgotten()
        {
            spent += 1;
            folded.extend(self.task_id(key));
        }
        let full = self.view.take_full();
        let totals = JobTotals {
            folded: self.folded.counts(&self.job, &self.tasks),
            ..self.ledger.totals().clone()
        };
        JobViewPatch {
            full,
            totals,
            tasks: rows,
            folded,
            events,
            enlarged: Vec::new(),
        }
    }

    /// Restores a patch that could not be sent.
    pub fn restore_patch(&mut self, patch: JobViewPatch) {
        for row in &patch.tasks {
            if let Some(key) = self.tasks.find(&self.job, &row.task) {
                self.folded.unfold(&mut self.tasks, key, row);
                self.view.mark_dirty(key);
            }
        }
        for id in &patch.folded {
            if let Some(key) = self
                .position_of(id)
                .filter(|key| self.tasks.is_forgotten(*key))
            {
                self.folded.note_forgotten(key);
            }
        }
        self.view.restore(patch.full, patch.events);
    }

    /// The id of a task, which may be forgotten.
    pub(super) fn task_id(&self, key: TaskPosition) -> Option<TaskId> {
        let stage = self.job.stages.get(key.stage)?;
        Some(TaskId {
            stage: stage.name.clone(),
            index: stage.first.checked_add(key.index)?,
        })
    }

    /// The position of a task, which may be forgotten.
    fn position_of(&self, id: &TaskId) -> Option<TaskPosition> {
        let stage = self.job.stages.iter().position(|s| s.name == id.stage)?;
        let index = id.index.checked_sub(self.job.stages.get(stage)?.first)?;
        Some(TaskPosition { stage, index })
    }

    pub(super) fn report_job_started(&mut self) {
        let job = &self.job;
        let (tasks, stages) = (
            counted_noun(job.tasks() as usize, "task"),
            counted_noun(job.stages.len(), "stage"),
        );
        let message = format!(
            "{}: {tasks} in {stages}, mode {}",
            job.name,
            job.mode.as_str()
        );
        self.view
            .add_event(self.now, Reason::JobStarted, &job.name, message);
    }

    pub(super) fn report_attempt_end(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        account: ChargeAccount,
        next: &TaskDecision,
    ) {
        let attempt = &row.attempt;
        let reason = row.reason.unwrap_or(ExitReason::NodeLost);
        match account {
            ChargeAccount::Success => {
                let peak = row.peak.map(|p| format!(", peak {p}")).unwrap_or_default();
                let message = format!("{attempt} done{peak}");
                self.view
                    .add_event(self.now, Reason::TaskFinished, attempt, message);
            }
            ChargeAccount::Memory | ChargeAccount::Spike => {
                let message = format!(
                    "{attempt} {} on {}{}",
                    fate(row, &reason),
                    row.node,
                    treated(row)
                );
                self.view
                    .add_event(self.now, Reason::OomKilled, attempt, message);
            }
            ChargeAccount::Plain
            | ChargeAccount::Transient
            | ChargeAccount::Bystander
            | ChargeAccount::Taken
            | ChargeAccount::Collateral => {
                let gave_way = self.tasks.get(key).and_then(|task| task.gave_way.as_ref());
                let gave_way = gave_way.is_some_and(|g| {
                    g.attempt == row.attempt.attempt && reason == ExitReason::Stopped
                });
                let why = if gave_way {
                    "evicted to free memory for a frozen task".to_owned()
                } else {
                    reason.sentence()
                };
                let message = format!("{attempt} on {}: {why}{}", row.node, treated(row));
                self.view
                    .add_event(self.now, Reason::AttemptLost, attempt, message);
            }
        }
        match next {
            TaskDecision::Done => {}
            TaskDecision::Again { size, why, .. } => self.report_next_attempt(row, size, why, next),
            TaskDecision::GiveUp { cause, message } => self.report_given_up(key, *cause, message),
        }
    }

    fn report_next_attempt(
        &mut self,
        row: &AttemptRow,
        size: &AttemptSize,
        why: &str,
        next: &TaskDecision,
    ) {
        let task = &row.attempt.task;
        let before = AttemptSize {
            profile: row.profile.clone(),
            slots: row.slots,
            rung: row.rung,
            place: size.place,
        };
        if size.rung == row.rung && !changes_size(&before, next) {
            self.view.add_event(
                self.now,
                Reason::TaskRetried,
                task,
                format!("{task}: {why}"),
            );
            return;
        }
        let place = match size.place {
            AttemptPlace::Shared if size.slots == 1 => "1 slot".to_owned(),
            AttemptPlace::Shared => format!("{} slots", size.slots),
            AttemptPlace::Own => "own container".to_owned(),
        };
        let (from, to) = (row.profile.memory(), size.memory());
        let message = format!(
            "{task} rung {} → {} ({}, {place})",
            row.rung,
            size.rung,
            arrow(from, to)
        );
        self.view
            .add_event(self.now, Reason::Escalated, task, message);
    }

    pub(super) fn report_growth(&mut self, attempt: &TaskAttemptId, from: Bytes, to: Bytes) {
        let message = format!("{attempt} grows in place: {}", arrow(from, to));
        self.view
            .add_event(self.now, Reason::TaskGrown, attempt, message);
    }

    pub(super) fn report_refused_growth(&mut self, attempt: &TaskAttemptId, has: Bytes, why: &str) {
        let message = format!("{attempt} does not grow beyond {has}: {why}");
        self.view
            .add_event(self.now, Reason::GrowthRefused, attempt, message);
    }

    /// Gives a waiting task another size or place, and reports the reason.
    pub(super) fn move_task(&mut self, key: TaskPosition, size: AttemptSize, why: String) {
        let Some(task) = self.tasks.get(key).map(|task| task.id.clone()) else {
            return;
        };
        let message = format!("{task}: {why}");
        let task_moved = JournalRecord::Moved {
            task: key,
            size,
            why,
        };
        self.record(task_moved);
        self.view
            .add_event(self.now, Reason::TaskMoved, &task, message);
    }

    /// Reports the first attempt of a stage whose read bytes differ much from the plan; further
    /// ones are only counted.
    pub(super) fn report_input_gap(&mut self, key: TaskPosition, row: &AttemptRow) {
        let Some((planned, read, gap)) = row
            .input
            .as_ref()
            .and_then(|i| Some((i.planned?, i.read?, i.gap?)))
        else {
            return;
        };
        let Some(stage) = self.stage_of(key).map(|s| s.name.clone()) else {
            return;
        };
        let counted = self
            .ledger
            .totals()
            .inputs
            .iter()
            .find(|inputs| inputs.stage == stage);
        if counted.is_none_or(|inputs| inputs.more + inputs.less > 1) {
            return;
        }
        let so = match gap {
            InputGap::More => {
                "sizes learned from planned inputs do not apply: check how the input is split"
            }
            InputGap::Less => {
                "it skipped a part, or read through mapped files, which are not counted"
            }
        };
        let message = format!(
            "{} planned to read {planned} and read {read}; {so}",
            row.attempt
        );
        self.view
            .add_event(self.now, Reason::InputGap, &stage, message);
    }

    pub(super) fn report_badly_sized_stage(&mut self, key: TaskPosition, why: &str) {
        let Some(stage) = self.stage_of(key).map(|s| s.name.clone()) else {
            return;
        };
        let message = format!("{why}: the stage is badly sized, and its tasks get no more memory");
        self.view
            .add_event(self.now, Reason::StageBadlySized, &stage, message);
    }

    pub(super) fn report_given_up(&mut self, key: TaskPosition, cause: GiveUpCause, message: &str) {
        let Some(task) = self.tasks.get(key).map(|t| t.id.clone()) else {
            return;
        };
        if cause == GiveUpCause::Memory {
            self.view.add_event(
                self.now,
                Reason::EscalationExhausted,
                &task,
                message.to_owned(),
            );
        }
        self.view
            .add_event(self.now, Reason::TaskFailed, &task, message.to_owned());
    }

    pub(super) fn failed_ending(&self) -> JobEndKind {
        if self.causes.contains(&GiveUpCause::Memory) {
            JobEndKind::MemoryExhausted
        } else {
            JobEndKind::Failed
        }
    }

    /// The outcome of the job when no task can run any more.
    pub(super) fn final_outcome(&self) -> JobOutcome {
        let totals = self.ledger.totals();
        if totals.done == totals.tasks {
            let diagnostics = format!(
                "{} tasks done; {} escalated, {} memory kills, {} collateral re-runs",
                totals.done, totals.escalated, totals.memory_kills, totals.collateral_reruns
            );
            return JobOutcome {
                ending: JobEndKind::Succeeded,
                diagnostics,
            };
        }
        let never = totals
            .tasks
            .saturating_sub(totals.done)
            .saturating_sub(totals.failed);
        let mut diagnostics = format!(
            "{} of {} tasks done, {} failed",
            totals.done, totals.tasks, totals.failed
        );
        if never > 0 {
            diagnostics.push_str(&format!(
                ", {never} never run because a stage before them failed"
            ));
        }
        let first = self
            .tasks
            .iter()
            .map(|(_, t)| t)
            .find(|t| t.state == LifecycleState::Failed);
        if let Some(first) = first {
            diagnostics.push_str(&format!("; {}", first.note));
        }
        JobOutcome {
            ending: self.failed_ending(),
            diagnostics,
        }
    }

    /// Notes the reason on tasks of stages that never started.
    pub(super) fn note_tasks_never_run(&mut self) {
        let failed: Vec<String> = self
            .job
            .stages
            .iter()
            .zip(self.tasks.stages())
            .filter(|(_, s)| s.failed > 0)
            .map(|(spec, _)| spec.name.to_string())
            .collect();
        let note = format!(
            "never run: a stage before it failed ({})",
            failed.join(", ")
        );
        let blocked: Vec<TaskPosition> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.state == LifecycleState::Blocked)
            .map(|(key, _)| key)
            .collect();
        for key in blocked {
            if let Some(task) = self.tasks.get_mut(key) {
                task.note.clone_from(&note);
            }
            self.view.mark_dirty(key);
        }
    }

    /// Adds the last event of a job.
    pub fn report_job_end(&mut self, now: EventTimestamp, outcome: &JobOutcome) {
        let level = if outcome.ending == JobEndKind::Succeeded {
            EventLevel::Normal
        } else {
            EventLevel::Warning
        };
        let name = self.job.name.to_string();
        self.view.add_event_at(
            level,
            now,
            Reason::JobFinished,
            &name,
            format!("{name}: {}", outcome.diagnostics),
        );
    }
}

/// The weight of an attempt in a patch.
fn weight(row: &AttemptRow) -> usize {
    let evidence = if row.evidence.is_some() { 25 } else { 0 };
    let shadow = if row.shadow.is_some() { 3 } else { 0 };
    6 + evidence + shadow + 5 * row.diagnosis.len() + row.timeline.len() + row.log_tail.len() / 100
}

/// The sub-cause and its treatment: ` · tmpfs → remedy tmp_on_disk`.
fn treated(row: &AttemptRow) -> String {
    row.treatment
        .map(|treated| format!(" · {} → {treated}", treated.cause))
        .unwrap_or_default()
}

/// The memory failure for an event message, such as ` (off-heap)`. A runtime whose heap is full
/// ends by itself; other programs are killed at their limit.
fn fate(row: &AttemptRow, reason: &ExitReason) -> String {
    if *reason == ExitReason::HeapOom
        && row
            .treatment
            .is_some_and(|treated| treated.cause == SubCause::OwnLimit)
    {
        return "out of heap at a limit of its own".to_owned();
    }
    if *reason == ExitReason::HeapOom {
        return format!("out of heap: {} are full", row.profile.heap);
    }
    format!("killed at {}{}", row.profile.memory(), ran_out(row))
}

fn ran_out(row: &AttemptRow) -> String {
    let what = match row.dimension {
        Some(Dimension::Heap) => "heap full",
        Some(Dimension::Overhead) => "off-heap",
        Some(Dimension::Native) => "native memory",
        None => return String::new(),
    };
    format!(" ({what})")
}

/// `64 → 128 MiB`, or both units if they differ.
fn arrow(from: headroom_types::Bytes, to: headroom_types::Bytes) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    match (from.rsplit_once(' '), to.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} → {to}"),
        (Some(_) | None, Some(_) | None) => format!("{from} → {to}"),
    }
}

//! The end of a container, and the decisions on its attempts that have no report of their own.

use headroom_types::{Bytes, ContainerId, ExitCharge, ExitReason, ExitReport, TaskAttemptId};
use headroom_wire::v1::job::{AttemptRow, TaskState};

use super::MasterCore;
use super::ends::ClassifiedEnd;
use crate::executors::{ExecutorEntry, SlotAssignment};
use crate::policy::GiveUpCause;
use crate::policy::blame::{AttemptFate, SuspectTask, at_own_limit, blame};
use crate::policy::classify::{
    AttemptEndClass, AttemptEndFacts, MemoryFailure, class_of_container, classify,
};
use crate::record::JournalRecord;
use crate::taskset::{TaskInstance, TaskPosition};

/// Containers of a request that may end in a row before their executor sends a hello; then the
/// tasks of the request are given up.
const MAX_UNUSED_CONTAINERS: u32 = 5;

impl MasterCore {
    /// Processes the end of a container after which no further message of it is expected.
    pub(super) fn container_gone(&mut self, container: &ContainerId, report: &ExitReport) {
        let Some(executor) = self.fleet.executors.get(container).cloned() else {
            return;
        };
        match report.reason.charge() {
            ExitCharge::Memory => self.died_of_memory(&executor, report),
            ExitCharge::Free | ExitCharge::Plain | ExitCharge::Success => {
                let why = format!("its executor ended: {}", report.reason.sentence());
                let class = class_of_container(report.reason);
                self.lose_attempts(&executor, (lost_as(report.reason), class), &why);
            }
        }
        self.forget_container(container, &executor, Some(report.reason));
    }

    /// Closes the open attempts of an executor as lost without a failure of the tasks.
    pub(super) fn lose_attempts(
        &mut self,
        executor: &ExecutorEntry,
        (reason, class): (ExitReason, AttemptEndClass),
        why: &str,
    ) {
        for (attempt, seat) in &executor.seats {
            let Some(mut row) = self.open_row(seat.task, attempt) else {
                continue;
            };
            (row.ended, row.reason, row.used) =
                (Some(self.now.unix.max(row.started)), Some(reason), None);
            row.log_tail = why.to_owned();
            let class = self.class_of_loss(&row.container, reason, class);
            self.end_attempt(seat.task, row, ClassifiedEnd::of(class, AttemptFate::Own));
        }
    }

    /// Removes a container from the state. A container that ended before its first hello counts as
    /// unused for its request.
    pub(super) fn forget_container(
        &mut self,
        id: &ContainerId,
        executor: &ExecutorEntry,
        reason: Option<ExitReason>,
    ) {
        let unused = !executor.greeted && (!executor.leaving || executor.was_silent);
        // The reason of a container that was ordered to end does not indicate a fault of the node.
        let failed = unused && !executor.leaving && reason.is_some_and(failed_at_once);
        let why = reason.map_or_else(
            || "its end was never reported".to_owned(),
            |reason| reason.sentence(),
        );
        let (request, before) = (
            executor.request.clone(),
            self.fleet.failures(&executor.node),
        );
        self.record(JournalRecord::Gone {
            container: id.clone(),
            request: request.clone(),
            unused,
            failed,
        });
        if failed {
            self.exclude_node(
                &executor.node,
                before,
                &format!("an executor of {request} was not ready: {why}"),
            );
        }
        // An executor that still exists may send a hello, and then the job continues with it.
        let alone = !self
            .fleet
            .of_request(&request)
            .any(|(_, e)| e.may_run_tasks());
        let hopeless = unused
            && alone
            && self
                .fleet
                .requests
                .get(&request)
                .is_some_and(|r| r.unused >= MAX_UNUSED_CONTAINERS);
        if hopeless {
            let sentence = format!(
                "{MAX_UNUSED_CONTAINERS} times in a row containers of request {request} ended before their executor was ready, last on {}: {why}",
                executor.node
            );
            self.give_up_request(executor.purpose, GiveUpCause::Transient, &sentence);
        }
    }

    fn open_row(&self, key: TaskPosition, attempt: &TaskAttemptId) -> Option<AttemptRow> {
        let row = self.tasks.get(key)?.open_attempt()?;
        (row.attempt == *attempt).then(|| row.clone())
    }

    fn died_of_memory(&mut self, executor: &ExecutorEntry, report: &ExitReport) {
        // These attempts were never reported as running. Their start may not have arrived, and they
        // cannot have filled the memory.
        let mut unseen = executor.clone();
        unseen.seats.retain(|_, seat| !seat.started);
        let lost = (ExitReason::AncestorOom, AttemptEndClass::Transient);
        self.lose_attempts(
            &unseen,
            lost,
            "its executor was killed for memory before it was reported as running",
        );
        let seats: Vec<(TaskAttemptId, SlotAssignment, AttemptRow)> = executor
            .seats
            .iter()
            .filter(|(_, seat)| seat.started)
            .filter_map(|(attempt, seat)| {
                Some((attempt.clone(), *seat, self.open_row(seat.task, attempt)?))
            })
            .map(|(attempt, seat, row)| (attempt.clone(), seat, with_facts(row, report, &attempt)))
            .collect();
        let suspects: Vec<SuspectTask> = seats
            .iter()
            .map(|(attempt, seat, row)| self.suspect(report, attempt, seat.task, row))
            .collect();
        let fates = blame(self.room_of(executor), &suspects);
        for ((_, seat, mut row), fate) in seats.into_iter().zip(fates) {
            let guilty = matches!(fate, AttemptFate::Own | AttemptFate::Blamed);
            row.ended = Some(report.ended.max(row.started));
            row.used = None;
            row.reason = Some(if guilty {
                report.reason
            } else {
                ExitReason::AncestorOom
            });
            row.evidence = Some(report.evidence.clone());
            row.log_tail.clone_from(&report.log_tail);
            if guilty {
                row.diagnosis.clone_from(&report.diagnosis);
                row.timeline = super::ends::thinned(&report.timeline);
            }
            let failure = self.failure_of(seat.task, &row, report);
            row.dimension = guilty.then_some(failure.dimension);
            self.end_attempt(
                seat.task,
                row,
                ClassifiedEnd::of(AttemptEndClass::Memory(failure), fate),
            );
        }
    }

    fn suspect(
        &self,
        report: &ExitReport,
        attempt: &TaskAttemptId,
        key: TaskPosition,
        row: &AttemptRow,
    ) -> SuspectTask {
        let group = report.tasks.iter().find(|t| t.name == attempt.file_name());
        SuspectTask {
            size: row.profile.memory(),
            peak: row.peak,
            at_own_limit: group.is_some_and(|g| at_own_limit(&g.facts)),
            kind_fits: self.kind_fits(key.stage, row.profile.memory()),
        }
    }

    /// The memory of an executor's limit that is available to tasks.
    fn room_of(&self, executor: &ExecutorEntry) -> Bytes {
        let memory = self.memory_of(executor);
        let reserve = self
            .set_of_purpose(executor.purpose)
            .map_or(Bytes::ZERO, |s| s.reserve);
        memory.saturating_sub(reserve)
    }

    /// True when at least 19 in 20 of the stage's finished tasks used no more than `size`; false
    /// while none has finished.
    fn kind_fits(&self, stage: usize, size: Bytes) -> bool {
        let of_stage = self.tasks.of_stage(stage);
        let done = of_stage.filter(|(_, t)| t.row_state() == TaskState::Done);
        let peak = |(key, task): (TaskPosition, &TaskInstance)| {
            task.attempts
                .last()
                .map_or_else(|| self.folded.peak(key), |row| row.peak)
        };
        let forgotten = self.tasks.stages().get(stage).map(|s| &s.forgotten.peaks);
        let forgotten = forgotten.into_iter().flatten().copied();
        let peaks: Vec<Bytes> = done.filter_map(peak).chain(forgotten).collect();
        let fitting = peaks.iter().filter(|p| **p <= size).count();
        !peaks.is_empty() && fitting * 20 >= peaks.len() * 19
    }

    fn failure_of(
        &self,
        key: TaskPosition,
        row: &AttemptRow,
        report: &ExitReport,
    ) -> MemoryFailure {
        let runtime = self.stage_of(key).map(|s| s.runtime).unwrap_or_default();
        // The container's evidence describes all its tasks. Only the reason comes from it; the
        // numbers are those of the task.
        let facts = AttemptEndFacts {
            reason: report.reason,
            dimension: None,
            evidence: None,
            timeline: &[],
            profile: &row.profile,
            runtime,
        };
        match classify(&facts) {
            AttemptEndClass::Memory(mut failure) => {
                let peak = row.peak.unwrap_or_else(|| row.profile.memory());
                failure.off_heap = peak.saturating_sub(row.profile.heap);
                failure
            }
            AttemptEndClass::Success
            | AttemptEndClass::Plain
            | AttemptEndClass::Transient
            | AttemptEndClass::Taken
            | AttemptEndClass::Collateral
            | AttemptEndClass::Bystander => MemoryFailure {
                dimension: headroom_types::Dimension::Native,
                off_heap: Bytes::ZERO,
                live: None,
                spike: false,
            },
        }
    }
}

/// True for reasons that indicate a fault of the node when the container ends before its executor
/// is ready.
fn failed_at_once(reason: ExitReason) -> bool {
    match reason {
        ExitReason::LaunchFailed | ExitReason::Exit { .. } | ExitReason::Signal { .. } => true,
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::StalledAtLimit
        | ExitReason::AncestorOom
        | ExitReason::NodeOom
        | ExitReason::KilledExternally
        | ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost => false,
    }
}

/// The reason recorded for the attempts of an ended executor. A crash of the executor counts as an
/// external kill of its tasks.
fn lost_as(reason: ExitReason) -> ExitReason {
    match reason.charge() {
        ExitCharge::Free => reason,
        ExitCharge::Memory | ExitCharge::Plain | ExitCharge::Success => {
            ExitReason::KilledExternally
        }
    }
}

/// The row with the peak that the task's cgroup recorded.
fn with_facts(mut row: AttemptRow, report: &ExitReport, attempt: &TaskAttemptId) -> AttemptRow {
    if let Some(group) = report.tasks.iter().find(|t| t.name == attempt.file_name()) {
        let seen = group.facts.peak.unwrap_or(group.facts.current);
        row.peak = row.peak.max(Some(seen)).filter(|p| !p.is_zero());
    }
    row
}

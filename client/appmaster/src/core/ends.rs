//! The end of an attempt as its executor told it: classified, decided, written down, acknowledged.

use headroom_types::exit::{Sample, TaskReport};
use headroom_types::{Bytes, ContainerId, ExitReason};
use headroom_wire::v1::job::AttemptRow;
use headroom_wire::v1::task::ToExecutor;

use super::{Core, send};
use crate::event::{Effect, Now};
use crate::policy::blame::Fate;
use crate::policy::classify::{Class, Facts, classify};
use crate::policy::{Account, Case, Next, decide};
use crate::record::Record;
use crate::taskset::TaskKey;

/// Most points of a timeline that are kept in an attempt's row.
const MOST_POINTS: usize = 128;

impl Core {
    /// A report that is late, or comes twice, is acknowledged and changes nothing.
    pub(super) fn on_ended(&mut self, now: Now, container: &ContainerId, report: &TaskReport, out: &mut Vec<Effect>) {
        let seat = self.fleet.executors.get(container).and_then(|e| e.seats.get(&report.attempt));
        if let Some(key) = seat.map(|s| s.task) {
            self.end_by_report(now, key, report, out);
        }
        out.push(send(container, ToExecutor::Ack { attempt: report.attempt.clone() }));
    }

    fn end_by_report(&mut self, now: Now, key: TaskKey, report: &TaskReport, out: &mut Vec<Effect>) {
        let Some(stage) = self.stage_of(key) else { return };
        let runtime = stage.runtime;
        let Some(open) = self.tasks.get(key).and_then(|t| t.open_attempt()) else { return };
        let mut row = open.clone();
        let class = classify(&Facts {
            reason: report.reason,
            dimension: report.dimension,
            evidence: Some(&report.evidence),
            timeline: &report.timeline,
            profile: &row.profile,
            runtime,
        });
        fill_row(&mut row, report);
        if let Class::Memory(failure) = class {
            row.dimension = Some(failure.dimension);
        }
        self.end_attempt(now, key, row, class, Fate::Own, out);
    }

    /// Decides upon an attempt that has ended, and writes both down.
    pub(super) fn end_attempt(
        &mut self,
        now: Now,
        key: TaskKey,
        mut row: AttemptRow,
        class: Class,
        fate: Fate,
        out: &mut Vec<Effect>,
    ) {
        let (Some(stage), Some(set), Some(task)) = (self.stage_of(key), self.set_of(key), self.tasks.get(key)) else { return };
        let reason = row.reason.unwrap_or(ExitReason::NodeLost);
        let name = task.id.to_string();
        let case = Case {
            mode: self.job.mode,
            task: &name,
            reason,
            class,
            fate,
            size: &task.size,
            set,
            runtime: stage.runtime,
            idempotent: stage.idempotent,
            retry: &self.job.retry,
            spent: task.spent,
            cap: self.cap(set),
        };
        let (account, next) = decide(&case);
        row.decision = decision(&next);
        let innocent = account == Account::Innocent && within(&row);
        self.record(now, Record::Ended { task: key, row: Box::new(row.clone()), account, innocent, next: next.clone() }, out);
        self.tell_ended(now, key, &row, account, &next);
    }
}

/// True when it had stayed within its own size, as far as anybody saw.
fn within(row: &AttemptRow) -> bool {
    row.peak.is_none_or(|peak| peak <= row.profile.memory())
}

fn decision(next: &Next) -> String {
    match next {
        Next::Done => "done".to_owned(),
        Next::Again { why, .. } => why.clone(),
        Next::GiveUp { message, .. } => format!("given up: {message}"),
    }
}

/// Every n-th point, and the last one: a master keeps the rows of all attempts for as long as it lives.
pub(super) fn thinned(timeline: &[Sample]) -> Vec<Sample> {
    let step = timeline.len().div_ceil(MOST_POINTS).max(1);
    let last = timeline.len().saturating_sub(1);
    timeline.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, s)| *s).collect()
}

fn fill_row(row: &mut AttemptRow, report: &TaskReport) {
    let sampled: Option<Bytes> = report.timeline.iter().map(|s| s.current).max();
    row.ended = Some(report.ended.max(row.started));
    row.peak = report.evidence.own.peak.or(sampled).or(row.peak);
    row.used = None;
    row.reason = Some(report.reason);
    row.dimension = report.dimension;
    if report.reason != (ExitReason::Exit { code: 0 }) {
        row.evidence = Some(report.evidence.clone());
        row.diagnosis.clone_from(&report.diagnosis);
        row.timeline = thinned(&report.timeline);
        row.log_tail.clone_from(&report.log_tail);
    }
}

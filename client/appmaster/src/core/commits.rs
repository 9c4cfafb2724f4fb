//! The commit of the output of a fenced task. The successful attempt is recorded first, then its
//! directory becomes the task's output, and only then the task is done.
//!
//! ```text
//!  ended well ──► Committing (journal) ──► rename ──► Ended, done (journal)
//!                      └── after a restart of the master: requested again ──┘
//! ```
//!
//! Only the open attempt of a task reaches this code, so a late earlier attempt cannot commit.

use std::path::PathBuf;

use headroom_config::{Idempotent, StageSpec};
use headroom_types::TaskAttemptId;
use headroom_wire::v1::job::AttemptRow;

use super::ends::ClassifiedEnd;
use super::{MasterCore, MasterPhase};
use crate::event::MasterEffect;
use crate::output::{self, EarlierCommit, OutputCommit};
use crate::policy::blame::AttemptFate;
use crate::policy::classify::AttemptEndClass;
use crate::policy::sizing::MeasuredNeed;
use crate::policy::{ChargeAccount, GiveUpCause, TaskDecision};
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;

impl MasterCore {
    /// The directory into which an attempt of a fenced stage writes.
    pub(super) fn attempt_dir(
        &self,
        stage: &StageSpec,
        attempt: &TaskAttemptId,
    ) -> Option<PathBuf> {
        Some(output::attempt_dir(
            stage.output.as_deref()?,
            &self.setup.writer,
            attempt,
        ))
    }

    pub(super) fn is_fenced(&self, key: TaskPosition) -> bool {
        self.stage_of(key)
            .is_some_and(|stage| stage.idempotent == Idempotent::Fenced && stage.output.is_some())
    }

    /// Selects this attempt as the one whose output is committed.
    pub(super) fn commit(
        &mut self,
        key: TaskPosition,
        row: AttemptRow,
        need: Option<MeasuredNeed>,
    ) {
        self.record(JournalRecord::Committing {
            task: key,
            row: Box::new(row),
            need,
        });
        self.out.extend(self.commit_effect(key, self.setup.turn));
    }

    /// Requests again the commits that an earlier run decided and did not see completed.
    pub(super) fn commit_again(&mut self) {
        let turn = match self.setup.turn {
            EarlierCommit::First | EarlierCommit::Again => EarlierCommit::Again,
            EarlierCommit::Anew => EarlierCommit::Anew,
        };
        let again = self.commits.keys();
        let again: Vec<_> = again
            .filter_map(|key| self.commit_effect(*key, turn))
            .collect();
        self.out.extend(again);
    }

    fn commit_effect(&self, key: TaskPosition, turn: EarlierCommit) -> Option<MasterEffect> {
        let (stage, (row, _)) = (self.stage_of(key)?, self.commits.get(&key)?);
        let (task, attempt) = (row.attempt.task.clone(), row.attempt.clone());
        let from = self.attempt_dir(stage, &attempt)?;
        let to = output::output_path(stage.output.as_deref()?, &task);
        Some(MasterEffect::Commit {
            task: key,
            attempt,
            commit: OutputCommit {
                task,
                from,
                to,
                turn,
            },
        })
    }

    /// Frees the slots of the attempt; the attempt stays open until its output is in place.
    pub(super) fn apply_committing(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        need: Option<MeasuredNeed>,
    ) {
        if let Some(executor) = self.fleet.executors.get_mut(&row.container) {
            executor.seats.remove(&row.attempt);
        }
        if let Some(task) = self.tasks.get_mut(key) {
            task.note = "its output is being committed".to_owned();
        }
        self.commits.insert(key, (row.clone(), need));
        self.view.mark_dirty(key);
    }

    /// Processes the result of a commit. A repeated result, or one of another attempt, changes
    /// nothing.
    pub(super) fn on_committed(
        &mut self,
        key: TaskPosition,
        attempt: &TaskAttemptId,
        error: Option<String>,
    ) {
        let Some((row, need)) = self
            .commits
            .get(&key)
            .filter(|(row, _)| row.attempt == *attempt)
            .cloned()
        else {
            return;
        };
        if matches!(self.phase, MasterPhase::Over(_)) {
            return;
        }
        let Some(error) = error else {
            let end = ClassifiedEnd {
                class: AttemptEndClass::Success,
                fate: AttemptFate::Own,
                need,
            };
            return self.end_attempt(key, row, end);
        };
        let message = format!("{} succeeded but has no output: {error}", attempt.task);
        let next = TaskDecision::GiveUp {
            cause: GiveUpCause::Plain,
            message: message.clone(),
        };
        let row = AttemptRow {
            decision: format!("given up: {message}"),
            log_tail: error,
            ..row
        };
        let record = JournalRecord::Ended {
            task: key,
            row: Box::new(row.clone()),
            account: ChargeAccount::Plain,
            collateral_rerun: false,
            next: next.clone(),
            need: None,
        };
        self.record(record);
        self.report_attempt_end(key, &row, ChargeAccount::Plain, &next);
    }
}

//! Views of a live job for its clients: results, changed states and the credit. Nothing here
//! changes durable state.

use headroom_types::Bytes;
use headroom_wire::v1::job::AttemptRow;
use headroom_wire::v1::submission::{
    SubmittedTaskOutcome, SubmittedTaskResult, SubmittedTaskState, ToSubmitter,
};

use super::MasterCore;
use super::submissions::over_message;
use super::submitted_tasks::AcceptedTask;
use crate::event::JobOutcome;
use crate::policy::GiveUpCause;
use crate::taskset::{LifecycleState, TaskInstance, TaskPosition};

/// Maximum length of the log tail in a result. Bytes.
const MAX_TAIL_BYTES: usize = 4 << 10;

impl MasterCore {
    /// Number of tasks that a live job accepts at present.
    pub fn submission_credit(&self) -> u32 {
        self.submitted.credit()
    }

    /// The results after this cursor, at most `most` of them. They may be sent once all records are
    /// durable.
    pub fn results_after(&self, cursor: u64, most: usize) -> Vec<SubmittedTaskResult> {
        let results = self.submitted.results_after(cursor).take(most);
        results
            .filter_map(|(cursor, key, accepted)| {
                Some(result(cursor, self.tasks.get(key)?, accepted))
            })
            .collect()
    }

    /// Cursor of the last result.
    pub fn last_result(&self) -> u64 {
        self.submitted.last_cursor()
    }

    /// True when [`MasterCore::take_state_changes`] returns something.
    pub fn has_state_changes(&self) -> bool {
        self.presence.has_changes()
    }

    /// Removes and returns the states of tasks that have changed and have not ended, at most `most`
    /// of them.
    pub fn take_state_changes(&mut self, most: usize) -> Vec<SubmittedTaskState> {
        let mut states = Vec::new();
        while states.len() < most
            && let Some(key) = self.presence.take_change()
        {
            states.extend(self.submitted_state(key));
        }
        states
    }

    fn submitted_state(&self, key: TaskPosition) -> Option<SubmittedTaskState> {
        let (task, accepted) = (self.tasks.get(key)?, self.submitted.get(key)?);
        Some(SubmittedTaskState {
            key: accepted.submitted.key.clone(),
            state: task.row_state(),
            attempts: u32::try_from(task.attempts.len()).unwrap_or(u32::MAX),
            memory: task.size.memory(),
            node: task.open_attempt().map(|row| row.node.clone()),
        })
    }

    /// The last message to the clients of a job with this outcome.
    pub fn over_message(outcome: &JobOutcome) -> ToSubmitter {
        over_message(outcome)
    }
}

fn result(cursor: u64, task: &TaskInstance, accepted: &AcceptedTask) -> SubmittedTaskResult {
    let outcome = match task.state {
        LifecycleState::Done => SubmittedTaskOutcome::Succeeded,
        LifecycleState::Failed
        | LifecycleState::Blocked
        | LifecycleState::Pending { .. }
        | LifecycleState::Running { .. } => match task.given_up {
            Some(GiveUpCause::Cancelled) => SubmittedTaskOutcome::Cancelled,
            Some(
                GiveUpCause::Memory
                | GiveUpCause::Plain
                | GiveUpCause::Transient
                | GiveUpCause::NotIdempotent
                | GiveUpCause::NeverFits,
            )
            | None => SubmittedTaskOutcome::Failed,
        },
    };
    let last = task.attempts.last();
    let (message, log_tail) = match outcome {
        SubmittedTaskOutcome::Succeeded => (String::new(), String::new()),
        SubmittedTaskOutcome::Cancelled => (task.note.clone(), String::new()),
        SubmittedTaskOutcome::Failed => (
            task.note.clone(),
            last.map(|row| tail(&row.log_tail)).unwrap_or_default(),
        ),
    };
    SubmittedTaskResult {
        cursor,
        key: accepted.submitted.key.clone(),
        task: task.id.clone(),
        outcome,
        value: accepted.value.clone(),
        value_too_large: accepted.too_large.filter(|size| *size > Bytes::ZERO),
        reason: last.and_then(|row| row.reason),
        dimension: last.and_then(|row| row.dimension),
        message,
        log_tail,
        attempts: rows(&task.attempts),
    }
}

/// The rows of all attempts, small enough for one line: only the last one keeps its timeline.
fn rows(attempts: &[AttemptRow]) -> Vec<AttemptRow> {
    let last = attempts.len().saturating_sub(1);
    let row = |(n, attempt): (usize, &AttemptRow)| AttemptRow {
        timeline: if n == last {
            attempt.timeline.clone()
        } else {
            Vec::new()
        },
        log_tail: String::new(),
        ..attempt.clone()
    };
    attempts.iter().enumerate().map(row).collect()
}

/// The last part of a log tail.
fn tail(text: &str) -> String {
    let mut from = text.len().saturating_sub(MAX_TAIL_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().to_owned()
}

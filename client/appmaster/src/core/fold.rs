//! Folding of rows: rows of succeeded tasks become counts, so that memory and bandwidth of a long
//! job stay bounded.
//!
//! ```text
//!  succeeded at the first attempt, beyond the first 10,000 tasks
//!    ──row reported once──► counted in `folded`, attempts dropped
//! ```
//!
//! None of this state is durable: a master that takes over reads all attempts from its journal, and
//! reports and drops them again. A patch that could not be sent restores its attempts.

use std::collections::BTreeMap;

use headroom_config::JobSpec;
use headroom_types::{Bytes, TaskId};
use headroom_wire::v1::job::{FoldedTasks, TaskRow};

use crate::taskset::{JobTaskTable, LifecycleState, TaskPosition};

/// Number of tasks that always keep a row, counted in the order of the stages. The first task of
/// each stage keeps its row as well.
const FIRST_ROWS: u32 = 10_000;

/// Tasks without a row.
#[derive(Clone, Debug, Default)]
pub(super) struct FoldedRows {
    /// Peak memory by stage and task index.
    tasks: BTreeMap<usize, BTreeMap<u32, Option<Bytes>>>,
}

impl FoldedRows {
    /// True when the task has no row any more.
    pub(super) fn contains(&self, key: TaskPosition) -> bool {
        self.tasks
            .get(&key.stage)
            .is_some_and(|of_stage| of_stage.contains_key(&key.index))
    }

    /// Peak memory of a task that has no row any more.
    pub(super) fn peak(&self, key: TaskPosition) -> Option<Bytes> {
        *self.tasks.get(&key.stage)?.get(&key.index)?
    }

    /// Folds a row that is about to be reported for the last time: drops the attempts and counts
    /// the task. Returns `None` if the row stays.
    pub(super) fn fold(
        &mut self,
        job: &JobSpec,
        tasks: &mut JobTaskTable,
        key: TaskPosition,
        row: &TaskRow,
    ) -> Option<TaskId> {
        let before: u32 = job
            .stages
            .iter()
            .take(key.stage)
            .fold(0, |sum, stage| sum.saturating_add(stage.count));
        let plain = row.rung == 1
            && row.attempts.len() == 1
            && row.attempts.iter().all(|a| a.grown.is_empty());
        let task = tasks
            .get_mut(key)
            .filter(|task| task.state == LifecycleState::Done && plain)?;
        // The first task of each stage shows the initial size of its tasks.
        if key.index == 0 || before.saturating_add(key.index) < FIRST_ROWS {
            return None;
        }
        task.attempts = Vec::new();
        let peak = row.attempts.last().and_then(|attempt| attempt.peak);
        self.tasks
            .entry(key.stage)
            .or_default()
            .insert(key.index, peak);
        Some(row.task.clone())
    }

    /// Restores the attempts of a row whose patch could not be sent.
    pub(super) fn unfold(&mut self, tasks: &mut JobTaskTable, key: TaskPosition, row: &TaskRow) {
        let was = self
            .tasks
            .get_mut(&key.stage)
            .and_then(|of_stage| of_stage.remove(&key.index));
        if let Some(task) = tasks.get_mut(key).filter(|_| was.is_some()) {
            task.attempts.clone_from(&row.attempts);
        }
    }

    /// Number of tasks without a row, by stage.
    pub(super) fn counts(&self, job: &JobSpec) -> Vec<FoldedTasks> {
        let of = |(stage, tasks): (&usize, &BTreeMap<u32, Option<Bytes>>)| {
            let done = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
            Some(FoldedTasks {
                stage: job.stages.get(*stage)?.name.clone(),
                done,
            })
        };
        self.tasks
            .iter()
            .filter(|(_, tasks)| !tasks.is_empty())
            .filter_map(of)
            .collect()
    }
}

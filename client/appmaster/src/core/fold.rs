//! Folding of rows: rows of succeeded tasks become counts, so that memory and bandwidth of a long
//! job stay bounded.
//!
//! ```text
//!  succeeded at the first attempt, beyond the first 10,000 tasks
//!    ──row reported once──► counted in `folded`, attempts dropped
//! ```
//!
//! A task of a live stage is forgotten after its result was acknowledged, and loses its row then.
//!
//! None of this state is durable: a master that takes over reads all attempts from its journal, and
//! reports and drops them again. A patch that could not be sent restores its attempts.

use std::collections::{BTreeMap, BTreeSet};

use headroom_config::JobSpec;
use headroom_types::{Bytes, TaskId};
use headroom_wire::v1::job::{FoldedTasks, TaskRow};

use crate::taskset::{JobTaskTable, TaskPosition};

/// Number of tasks that always keep a row, counted in the order of the stages. The first task of
/// each stage keeps its row as well.
const FIRST_ROWS: u32 = 10_000;

/// Tasks without a row.
#[derive(Clone, Debug, Default)]
pub(super) struct FoldedRows {
    /// Peak memory by stage and task index.
    tasks: BTreeMap<usize, BTreeMap<u32, Option<Bytes>>>,
    /// Forgotten tasks of live stages whose rows the resource manager may still have.
    forgotten: BTreeSet<TaskPosition>,
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
        // A live task keeps its attempts until its result is acknowledged.
        if tasks
            .stages()
            .get(key.stage)
            .is_some_and(|stage| stage.live)
        {
            return None;
        }
        let task = tasks.get_mut(key).filter(|task| task.is_plain_success())?;
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

    /// Notes that a task of a live stage was forgotten, so that its row is removed.
    pub(super) fn note_forgotten(&mut self, key: TaskPosition) {
        self.forgotten.insert(key);
    }

    /// True when rows of forgotten tasks have to be removed.
    pub(super) fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Removes and returns the next task whose row has to be removed.
    pub(super) fn take_forgotten(&mut self) -> Option<TaskPosition> {
        self.forgotten.pop_first()
    }

    /// All rows are about to be replaced, so that none has to be removed.
    pub(super) fn clear_forgotten(&mut self) {
        self.forgotten.clear();
    }

    /// Number of tasks without a row, by stage.
    pub(super) fn counts(&self, job: &JobSpec, tasks: &JobTaskTable) -> Vec<FoldedTasks> {
        let of = |(stage, tasks): (&usize, &BTreeMap<u32, Option<Bytes>>)| {
            let done = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
            Some(FoldedTasks {
                stage: job.stages.get(*stage)?.name.clone(),
                done,
                failed: 0,
            })
        };
        let live = job.stages.iter().zip(tasks.stages());
        let live = live.filter(|(_, s)| s.forgotten.done + s.forgotten.failed > 0);
        let live = live.map(|(spec, stage)| FoldedTasks {
            stage: spec.name.clone(),
            done: stage.forgotten.done,
            failed: stage.forgotten.failed,
        });
        self.tasks
            .iter()
            .filter(|(_, tasks)| !tasks.is_empty())
            .filter_map(of)
            .chain(live)
            .collect()
    }
}

//! Tasks of live jobs, collected once for a whole screen: running tasks by container, and tasks
//! that needed more memory.

use std::collections::BTreeMap;

use headroom_types::{AppId, ExitCharge, UnixMillis};
use headroom_wire::v1::job::{JobTotals, TaskRow, TaskState};
use serde_json::{Value, json};

use super::brief::{self, RunningTaskNames};
use crate::jobs::JobRowStore;

/// Limit on live jobs whose tasks are read; the newest.
const JOBS: usize = 64;
/// Limit on task names for one container.
const NAMES: usize = 8;
/// Limit on ladders of all jobs together.
const LADDERS: usize = 6;

/// Collected data about tasks.
#[derive(Debug, Default)]
pub(crate) struct LiveTaskSummary {
    /// Names of running tasks by container.
    pub(crate) labels: RunningTaskNames,
    /// Totals by job.
    pub(crate) totals: BTreeMap<AppId, JobTotals>,
    /// Number of tasks that were killed for memory, by outcome.
    recovered: u32,
    going_on: u32,
    given_up: u32,
    /// The latest tasks that needed more memory, with the time of their last change.
    ladders: Vec<(UnixMillis, Value)>,
}

impl LiveTaskSummary {
    /// Collects the tasks of these applications, which are in order of submission.
    pub(crate) fn of<'a>(
        jobs: &JobRowStore,
        apps: impl DoubleEndedIterator<Item = &'a AppId>,
    ) -> LiveTaskSummary {
        let mut stories = LiveTaskSummary::default();
        for app in apps.rev().take(JOBS) {
            let Some(snapshot) = jobs.snapshot(app) else {
                continue;
            };
            stories
                .totals
                .insert(app.clone(), snapshot.totals().clone());
            snapshot.rows().for_each(|row| stories.take(app, row));
        }
        stories
            .ladders
            .sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        stories.ladders.truncate(LADDERS);
        stories
    }

    fn take(&mut self, app: &AppId, row: &TaskRow) {
        let Some(last) = row.attempts.last() else {
            return;
        };
        if row.state == TaskState::Running && last.ended.is_none() {
            let names = self.labels.entry(last.container.clone()).or_default();
            if names.len() < NAMES {
                names.push(row.task.to_string());
            }
        }
        if !needed_more_memory(row) {
            return;
        }
        if killed(row) {
            match row.state {
                TaskState::Done => self.recovered += 1,
                TaskState::Failed => self.given_up += 1,
                TaskState::Blocked | TaskState::Pending | TaskState::Running => self.going_on += 1,
            }
        }
        let at = last
            .ended
            .unwrap_or(UnixMillis(last.started.0.saturating_add(1)));
        let (kept, full) = (
            self.ladders.len(),
            self.ladders.iter().map(|(at, _)| *at).min(),
        );
        if kept < LADDERS * 4 || full.is_some_and(|oldest| at > oldest) {
            self.ladders
                .push((at, json!({"app": app, "row": brief::task(row)})));
        }
        if self.ladders.len() > LADDERS * 8 {
            self.ladders.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            self.ladders.truncate(LADDERS);
        }
    }

    /// The latest tasks that needed more memory.
    pub(crate) fn ladders(&self) -> Vec<&Value> {
        self.ladders.iter().map(|(_, value)| value).collect()
    }

    /// Totals over all jobs.
    pub(crate) fn figures(&self) -> Value {
        let sum =
            |of: fn(&JobTotals) -> u32| self.totals.values().map(|t| u64::from(of(t))).sum::<u64>();
        let rerun: u128 = self.totals.values().map(|t| t.rerun_byte_ms).sum();
        json!({
            "killed_tasks": self.recovered + self.going_on + self.given_up, "recovered": self.recovered, "going_on": self.going_on,
            "given_up": self.given_up, "kills": sum(|t| t.memory_kills), "grown": sum(|t| t.grown),
            "running": sum(|t| t.running), "tasks": sum(|t| t.tasks), "done": sum(|t| t.done),
            "rerun_byte_s": u64::try_from(rerun / 1000).unwrap_or(u64::MAX),
        })
    }
}

/// Whether an attempt was killed for memory.
pub(crate) fn killed(row: &TaskRow) -> bool {
    row.attempts
        .iter()
        .any(|a| a.reason.is_some_and(|r| r.charge() == ExitCharge::Memory))
}

/// Whether the task needed more than the first size of its stage: escalated, killed for memory, or
/// grown.
pub(crate) fn needed_more_memory(row: &TaskRow) -> bool {
    row.rung > 1 || killed(row) || row.attempts.iter().any(|a| !a.grown.is_empty())
}

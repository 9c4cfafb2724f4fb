//! Task rows that masters report: merged for each application, bounded, outside of the core.
//!
//! Only the main loop writes them. Rows are shared, so a reader holds the lock only while it copies
//! pointers. They are in memory while an application lives; the last state is stored as one opaque
//! document.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_config::MetricsGranularity;
use headroom_telemetry::MetricsPage;
use headroom_telemetry::names::AM_TASKS;
use headroom_types::{AppId, Name, Reason, TaskId, UnixMillis};
use headroom_wire::v1::events::LoggedEvent;
use headroom_wire::v1::job::{AttemptRow, JobEvent, JobTotals, JobView, JobViewPatch, TaskRow};
use headroom_wire::v1::job_history::EnlargedTask;

use crate::attempt_metrics::AttemptMetrics;
use crate::from_wire::cut;
use crate::index_ranges::IndexRanges;
use crate::usage_history::MAX_ENLARGED;

/// Limit on rows of one application.
const MAX_ROWS: usize = 50_000;
/// Limit on attempts of one task: the first one and the latest are kept.
const MAX_ATTEMPTS: usize = 64;
/// Maximum text of one event or note. Bytes.
const MAX_TEXT: usize = 2048;
/// Maximum marker of an attempt in the log of its container. Bytes.
const MAX_MARKER: usize = 128;
/// Maximum log tail of one attempt. Bytes.
const MAX_TAIL: usize = 4096;

/// Task rows of all live applications.
#[derive(Debug)]
pub(crate) struct JobRowStore {
    apps: Mutex<BTreeMap<AppId, StoredJobRows>>,
    /// Lock order: before `apps`.
    tallies: Mutex<AttemptMetrics>,
    /// Number of merged patches of all applications.
    changes: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct StoredJobRows {
    /// Value of [`JobRowStore::changes`] after the latest patch.
    changed: u64,
    totals: JobTotals,
    tasks: BTreeMap<TaskId, Arc<TaskRow>>,
    /// Tasks that are only counted. A repeated patch does not add their rows again.
    folded: BTreeMap<Name, IndexRanges>,
    /// Tasks with more memory than configured, for the usage history, by name.
    enlarged: BTreeMap<String, EnlargedTask>,
}

impl StoredJobRows {
    fn is_folded(&self, task: &TaskId) -> bool {
        self.folded
            .get(&task.stage)
            .is_some_and(|of_stage| of_stage.contains(task.index))
    }

    /// Adds sizes for the usage history, up to its limit. Unbounded entries are ignored.
    fn enlarge(&mut self, tasks: Vec<EnlargedTask>) {
        for task in tasks.into_iter().filter(EnlargedTask::is_bounded) {
            if self.enlarged.len() < MAX_ENLARGED || self.enlarged.contains_key(&task.name) {
                self.enlarged.insert(task.name.clone(), task);
            }
        }
    }
}

/// Task rows of one application at one moment.
#[derive(Clone, Debug)]
pub(crate) struct JobRowSnapshot {
    totals: JobTotals,
    tasks: Vec<Arc<TaskRow>>,
    enlarged: Vec<EnlargedTask>,
}

/// Whether a patch may create the rows of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowCreation {
    /// Any patch may.
    Allowed,
    /// Only a full patch may: an earlier state is already in the store.
    WithAllRows,
}

impl JobRowStore {
    /// Creates an empty state at the start of this incarnation; `fine` is the granularity of its
    /// metrics.
    pub(crate) fn new(now: UnixMillis, fine: MetricsGranularity) -> Self {
        JobRowStore {
            apps: Mutex::default(),
            tallies: Mutex::new(AttemptMetrics::new(now, fine)),
            changes: AtomicU64::new(0),
        }
    }

    /// Merges changed rows and returns the events of the patch. The second value is `false` if the
    /// rows were refused.
    pub(crate) fn merge(
        &self,
        app: &AppId,
        patch: JobViewPatch,
        start: RowCreation,
    ) -> (Vec<LoggedEvent>, bool) {
        let JobViewPatch {
            full,
            totals,
            tasks,
            folded,
            events,
            enlarged,
        } = patch;
        let mut tallies = self.tallies();
        let given_up = |e: &&JobEvent| e.reason == Reason::EscalationExhausted.as_str();
        events
            .iter()
            .filter(given_up)
            .for_each(|e| tallies.exhausted(app, &e.object));
        let events = events.into_iter().map(|e| event(app, e)).collect();
        let mut apps = self.apps();
        if !full && start == RowCreation::WithAllRows && !apps.contains_key(app) {
            return (events, false);
        }
        let rows = apps.entry(app.clone()).or_default();
        rows.changed = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        tallies.spans(app, rows.totals.spans_dropped, totals.spans_dropped);
        rows.totals = totals;
        let before = if full {
            std::mem::take(&mut rows.tasks)
        } else {
            BTreeMap::new()
        };
        if full {
            // Another application attempt may have another journal, in which these tasks must run.
            rows.folded.clear();
            rows.enlarged.clear();
        }
        rows.enlarge(enlarged);
        for row in tasks
            .into_iter()
            .filter(|row| !rows.is_folded(&row.task))
            .collect::<Vec<_>>()
        {
            if rows.tasks.len() < MAX_ROWS || rows.tasks.contains_key(&row.task) {
                let row = Arc::new(bounded(row));
                let old = rows.tasks.insert(row.task.clone(), row.clone());
                tallies.row(
                    app,
                    old.as_ref().or(before.get(&row.task)).map(|old| &**old),
                    &row,
                );
            }
        }
        for task in folded {
            rows.tasks.remove(&task);
            rows.folded
                .entry(task.stage)
                .or_default()
                .insert(task.index);
        }
        (events, true)
    }

    /// Current rows of an application; `None` if its master reported nothing in this incarnation.
    pub(crate) fn snapshot(&self, app: &AppId) -> Option<JobRowSnapshot> {
        let apps = self.apps();
        let rows = apps.get(app)?;
        Some(JobRowSnapshot {
            totals: rows.totals.clone(),
            tasks: rows.tasks.values().cloned().collect(),
            enlarged: rows.enlarged.values().cloned().collect(),
        })
    }

    /// Current totals of an application; `None` if its master reported nothing in this incarnation.
    pub(crate) fn totals(&self, app: &AppId) -> Option<JobTotals> {
        self.apps().get(app).map(|rows| rows.totals.clone())
    }

    /// Number of done tasks and of all tasks; `None` if the master reported nothing in this
    /// incarnation.
    pub(crate) fn part_done(&self, app: &AppId) -> Option<(u32, u32)> {
        self.apps()
            .get(app)
            .map(|rows| (rows.totals.done, rows.totals.tasks))
    }

    /// A number that grows with each change of the rows of an application, and never shrinks. Without
    /// rows, it may grow with the changes of others.
    pub(crate) fn index(&self, app: &AppId) -> u64 {
        let changed = self.apps().get(app).map(|rows| rows.changed);
        changed.unwrap_or_else(|| self.changes.load(Ordering::Acquire))
    }

    /// Removes an application that has ended and whose rows are in the store.
    pub(crate) fn forget(&self, app: &AppId) {
        self.apps().remove(app);
        self.tallies().forget(app);
    }

    /// Memory × time of attempts that ended without success in the hour before `now`, in this
    /// incarnation. Byte-seconds.
    pub(crate) fn wasted_in_last_hour(&self, now: UnixMillis) -> u64 {
        self.tallies().wasted_in_last_hour(now)
    }

    /// Adds the metrics of tasks and attempts to the page.
    pub(crate) fn put(&self, page: &mut MetricsPage) {
        for state in ["pending", "running", "done", "failed"] {
            page.count(&AM_TASKS, &["", state], 0);
        }
        let mut tallies = self.tallies();
        for (app, rows) in &*self.apps() {
            let job = tallies.job(app);
            let JobTotals {
                tasks,
                done,
                failed,
                running,
                ..
            } = &rows.totals;
            let pending = tasks
                .saturating_sub(*done)
                .saturating_sub(*failed)
                .saturating_sub(*running);
            for (state, n) in [
                ("pending", pending),
                ("running", *running),
                ("done", *done),
                ("failed", *failed),
            ] {
                page.count(&AM_TASKS, &[&job, state], u64::from(n));
            }
        }
        tallies.put(page);
    }

    fn tallies(&self) -> MutexGuard<'_, AttemptMetrics> {
        // See `apps`.
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<AppId, StoredJobRows>> {
        // Poisoning is harmless: a panic of a reader changes no state.
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobRowSnapshot {
    /// Totals over all tasks.
    pub(crate) fn totals(&self) -> &JobTotals {
        &self.totals
    }

    /// Rows of all tasks.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &TaskRow> {
        self.tasks.iter().map(|row| &**row)
    }

    /// Tasks with more memory than configured, for the usage history.
    pub(crate) fn enlarged(&self) -> &[EnlargedTask] {
        &self.enlarged
    }

    /// The job view that callers receive.
    pub(crate) fn view(&self) -> JobView {
        JobView {
            totals: self.totals.clone(),
            tasks: self.tasks.iter().map(|row| (**row).clone()).collect(),
        }
    }

    /// Number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Encodes the view as one document of at most `most` bytes. To reach that, it leaves out in
    /// this order: timelines; log tails, evidence and diagnoses of attempts; tasks that never ran;
    /// tasks that ran once; all tasks.
    pub(crate) fn encode(&self, most: usize) -> Vec<u8> {
        let mut view = self.view();
        let steps: [fn(&mut JobView); 5] = [
            |view| attempts(view).for_each(|a| a.timeline.clear()),
            |view| {
                attempts(view).for_each(|a| {
                    a.log_tail.clear();
                    a.evidence = None;
                    a.diagnosis.clear();
                });
            },
            |view| view.tasks.retain(|row| !row.attempts.is_empty()),
            |view| view.tasks.retain(|row| row.attempts.len() > 1),
            |view| view.tasks.clear(),
        ];
        let mut text = serde_json::to_vec(&view).unwrap_or_default();
        for step in steps {
            if text.len() <= most {
                break;
            }
            step(&mut view);
            text = serde_json::to_vec(&view).unwrap_or_default();
        }
        text
    }
}

fn attempts(view: &mut JobView) -> impl Iterator<Item = &mut AttemptRow> {
    view.tasks
        .iter_mut()
        .flat_map(|row| row.attempts.iter_mut())
}

fn bounded(mut row: TaskRow) -> TaskRow {
    if row.attempts.len() > MAX_ATTEMPTS {
        let surplus = row.attempts.len() - MAX_ATTEMPTS;
        row.attempts.drain(1..=surplus);
    }
    row.note = cut(row.note, MAX_TEXT);
    for attempt in &mut row.attempts {
        attempt.decision = cut(std::mem::take(&mut attempt.decision), MAX_TEXT);
        attempt.why = cut(std::mem::take(&mut attempt.why), MAX_TEXT);
        if let Some(shadow) = &mut attempt.shadow {
            shadow.why = cut(std::mem::take(&mut shadow.why), MAX_TEXT);
        }
        attempt.log_tail = cut(std::mem::take(&mut attempt.log_tail), MAX_TAIL);
        attempt.log_marker = attempt.log_marker.take().map(|text| cut(text, MAX_MARKER));
    }
    row
}

fn event(app: &AppId, event: JobEvent) -> LoggedEvent {
    let JobEvent {
        time,
        level,
        reason,
        object,
        message,
    } = event;
    let (reason, object, message) = (cut(reason, 64), cut(object, 256), cut(message, MAX_TEXT));
    LoggedEvent {
        index: 0,
        time,
        level,
        reason,
        object,
        app: Some(app.clone()),
        node: None,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, Profile};
    use headroom_wire::v1::job::TaskState;

    fn app() -> AppId {
        "job.1".parse().expect("id")
    }
    fn row(task: &str, attempts: usize, tail: usize) -> TaskRow {
        let profile = Profile {
            heap: Bytes::from_mib(64),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(1),
        };
        let attempt = |n: usize| AttemptRow {
            attempt: format!("{task}@{n}").parse().expect("id"),
            profile: profile.clone(),
            slots: 1,
            rung: 1,
            container: "job.1.e1.c1".parse().expect("id"),
            node: "n1".parse().expect("id"),
            started: UnixMillis(1),
            ended: None,
            peak: None,
            used: None,
            reason: None,
            dimension: None,
            evidence: None,
            diagnosis: Vec::new(),
            decision: String::new(),
            timeline: Vec::new(),
            log_tail: "x".repeat(tail),
            grown: Vec::new(),
            why: String::new(),
            shadow: None,
            input: None,
            treatment: None,
            remedies: Vec::new(),
            log_marker: None,
            silent: false,
        };
        TaskRow {
            task: task.parse().expect("id"),
            state: TaskState::Running,
            profile: profile.clone(),
            rung: 1,
            note: String::new(),
            attempts: (1..=attempts).map(attempt).collect(),
            frozen: None,
            ahead: Vec::new(),
            priority: 0,
            tags: Default::default(),
        }
    }
    fn patch(full: bool, tasks: Vec<TaskRow>) -> JobViewPatch {
        JobViewPatch {
            full,
            tasks,
            ..JobViewPatch::default()
        }
    }
    fn tasks(jobs: &JobRowStore) -> Vec<String> {
        jobs.snapshot(&app())
            .expect("rows")
            .view()
            .tasks
            .iter()
            .map(|t| t.task.to_string())
            .collect()
    }

    #[test]
    fn a_folded_row_stays_hidden_until_a_full_patch() {
        let jobs = JobRowStore::new(UnixMillis(0), MetricsGranularity::Job);
        let send = |full, tasks: Vec<TaskRow>, folded: &[&str]| {
            let folded = folded.iter().map(|id| id.parse().expect("id")).collect();
            jobs.merge(
                &app(),
                JobViewPatch {
                    folded,
                    ..patch(full, tasks)
                },
                RowCreation::Allowed,
            );
            jobs.snapshot(&app())
                .expect("rows")
                .rows()
                .map(|t| t.task.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            send(
                true,
                vec![row("map/1", 1, 0), row("map/2", 1, 0)],
                &["map/2"]
            ),
            ["map/1"]
        );
        assert_eq!(
            send(false, vec![row("map/2", 1, 0), row("map/3", 1, 0)], &[]),
            ["map/1", "map/3"],
            "map/2 stays folded"
        );
        assert_eq!(
            send(true, vec![row("map/2", 1, 0)], &[]),
            ["map/2"],
            "a new master attempt sends all rows"
        );
    }

    #[test]
    fn rows_are_merged_and_a_full_patch_replaces_all() {
        let jobs = JobRowStore::new(UnixMillis(0), MetricsGranularity::Profile);
        jobs.merge(
            &app(),
            patch(true, vec![row("map/10", 1, 0), row("map/2", 1, 0)]),
            RowCreation::Allowed,
        );
        jobs.merge(
            &app(),
            patch(false, vec![row("reduce/0", 1, 0), row("map/2", 2, 0)]),
            RowCreation::Allowed,
        );
        assert_eq!(tasks(&jobs), ["map/2", "map/10", "reduce/0"]);
        assert_eq!(
            jobs.snapshot(&app()).expect("rows").view().tasks[0]
                .attempts
                .len(),
            2
        );
        jobs.merge(
            &app(),
            patch(true, vec![row("map/3", 1, 0)]),
            RowCreation::Allowed,
        );
        assert_eq!(tasks(&jobs), ["map/3"]);
    }

    #[test]
    fn a_partial_patch_does_not_replace_stored_rows() {
        let jobs = JobRowStore::new(UnixMillis(0), MetricsGranularity::Profile);
        assert!(
            !jobs
                .merge(
                    &app(),
                    patch(false, vec![row("map/3", 1, 0)]),
                    RowCreation::WithAllRows
                )
                .1
        );
        assert!(jobs.snapshot(&app()).is_none());
        assert!(
            jobs.merge(
                &app(),
                patch(true, vec![row("map/3", 1, 0)]),
                RowCreation::WithAllRows
            )
            .1
        );
    }

    #[test]
    fn the_first_and_the_latest_attempts_are_kept() {
        let kept = bounded(row("map/1", 100, 0));
        assert_eq!(kept.attempts.len(), MAX_ATTEMPTS);
        let numbers: Vec<u32> = kept.attempts.iter().map(|a| a.attempt.attempt).collect();
        assert_eq!((numbers[0], numbers[1], numbers[63]), (1, 38, 100));
    }

    #[test]
    fn a_document_is_cut_down_to_its_bound() {
        let jobs = JobRowStore::new(UnixMillis(0), MetricsGranularity::Profile);
        let rows = (0..200)
            .map(|n| row(&format!("map/{n}"), if n == 7 { 2 } else { 1 }, 1000))
            .collect();
        jobs.merge(&app(), patch(true, rows), RowCreation::Allowed);
        let snapshot = jobs.snapshot(&app()).expect("rows");
        let read = |most: usize| -> JobView {
            let text = snapshot.encode(most);
            assert!(text.len() <= most, "{} > {most}", text.len());
            serde_json::from_slice(&text).expect("reads")
        };
        assert_eq!(read(10 << 20), snapshot.view());
        let without_tails = read(150 << 10);
        assert!(
            without_tails.tasks.len() == 200
                && without_tails.tasks[0].attempts[0].log_tail.is_empty()
        );
        assert_eq!(
            read(2000)
                .tasks
                .iter()
                .map(|t| t.task.to_string())
                .collect::<Vec<_>>(),
            ["map/7"]
        );
        assert!(read(600).tasks.is_empty());
    }
}

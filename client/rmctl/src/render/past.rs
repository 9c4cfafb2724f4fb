//! Screen of ended jobs, the latest first.

use headroom_types::{AppId, QueuePath, UnixMillis};
use headroom_wire::v1::apps::AppState;
use serde::Serialize;

use super::figures::{or_dash, span};
use super::table::{Column, list};
use super::{ListStyle, apps};
use crate::select::field::list_row;

/// An ended job. Numbers are absent if its master reported no tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EndedJobRow {
    pub(crate) id: AppId,
    pub(crate) state: AppState,
    pub(crate) user: String,
    pub(crate) queue: QueuePath,
    pub(crate) submitted: UnixMillis,
    pub(crate) ended: Option<UnixMillis>,
    pub(crate) tasks: Option<u32>,
    pub(crate) done: Option<u32>,
    pub(crate) failed: Option<u32>,
    /// Attempts that ended by a memory failure.
    pub(crate) oom_kills: Option<u32>,
    /// Finished tasks that had such an attempt.
    pub(crate) recovered: Option<u32>,
    /// Memory × time of all attempts. GiB·h.
    pub(crate) gib_h: Option<f64>,
    /// Memory × time of attempts that had to run again. GiB·h.
    pub(crate) rerun_gib_h: Option<f64>,
    pub(crate) diagnostics: String,
}

list_row!(EndedJobRow, |row| row.id, started: Some(row.submitted), {
    "job": row.id,
    "name": row.id.name(),
    "took": row.ended.map(|ended| ended.since(row.submitted).as_secs()),
    "oom": row.oom_kills,
    "note": row.diagnostics,
});

/// The whole screen; `all` is the total number of ended jobs.
pub(crate) fn screen(past: &[EndedJobRow], all: usize, now: UnixMillis, look: ListStyle) -> String {
    if past.is_empty() {
        return look.advice("no job has ended\nnext: rmctl ps\n".to_owned());
    }
    let ended = |job: &EndedJobRow| job.ended.map(|end| format!("{} ago", span(now.since(end))));
    let took = |job: &EndedJobRow| job.ended.map(|end| span(end.since(job.submitted)));
    let tasks = |job: &EndedJobRow| Some(format!("{}/{}", job.done?, job.tasks?));
    let hours = |hours: Option<f64>| or_dash(hours.map(|hours| format!("{hours:.2}")));
    let columns: &[Column<'_, &EndedJobRow>] = &[
        ("JOB", &|job| job.id.to_string()),
        ("STATE", &|job| apps::state(job.state, look.paint)),
        (">ENDED", &|job| or_dash(ended(job))),
        (">TOOK", &|job| or_dash(took(job))),
        (">TASKS", &|job| or_dash(tasks(job))),
        (">OOM", &|job| or_dash(job.oom_kills)),
        (">RECOVERED", &|job| or_dash(job.recovered)),
        (">GIB·H", &|job| hours(job.gib_h)),
        ("USER", &|job| job.user.clone()),
        ("+>RERUN", &|job| hours(job.rerun_gib_h)),
        ("+QUEUE", &|job| job.queue.short().to_owned()),
        ("NOTE", &|job| look.cut(&job.diagnostics, 50)),
    ];
    let rows = list(past, look, columns);
    let more = all.saturating_sub(past.len());
    let more = if more > 0 {
        format!("… {more} more: --limit, --since, --filter\n")
    } else {
        String::new()
    };
    let latest = past
        .first()
        .map(|job| job.id.to_string())
        .unwrap_or_default();
    let next = format!("rmctl diagnose {latest} · rmctl job purge JOB");
    rows + &look.advice(more + &look.paint.next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture::{NOW, START};

    fn past() -> Vec<EndedJobRow> {
        let job = |id: &str, state, ended_s: u64, figures: bool| EndedJobRow {
            id: id.parse().expect("id"),
            state,
            user: "ada".into(),
            queue: "etl".parse().expect("queue"),
            submitted: UnixMillis(START),
            ended: Some(UnixMillis(START + ended_s * 1000)),
            tasks: figures.then_some(24),
            done: figures.then_some(23),
            failed: figures.then_some(1),
            oom_kills: figures.then_some(6),
            recovered: figures.then_some(5),
            gib_h: figures.then_some(0.567),
            rerun_gib_h: figures.then_some(0.05),
            diagnostics: if figures {
                "map/11 was killed alone at 15 GiB, the largest there is".into()
            } else {
                String::new()
            },
        };
        vec![
            job("sort.9", AppState::Failed, 100, true),
            job("ask.8", AppState::Finished, 60, false),
        ]
    }

    #[test]
    fn jobs_that_have_ended() {
        insta::assert_snapshot!(screen(&past(), 5, NOW, ListStyle::USUAL));
        insta::assert_snapshot!(screen(&past(), 2, NOW, ListStyle::WIDE));
    }

    #[test]
    fn an_empty_history_is_reported() {
        assert!(screen(&[], 0, NOW, ListStyle::USUAL).starts_with("no job has ended\n"));
    }
}

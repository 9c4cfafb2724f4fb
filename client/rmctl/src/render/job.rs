//! Screen of one job: a line of totals, then its tasks, the most important first.

use headroom_types::{ExitCharge, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{
    AttemptRow, FrozenTaskView, JobTotals, ShadowTotals, TaskRow, TaskState,
};

use super::figures::{byte_time, byte_time_of, or_dash, short, short_or_dash, span};
use super::table::{Column, cut, list};
use super::{ListStyle, TextPainter, apps, count, inputs};
use crate::render::ladder::{ladder, rung};

/// Maximum number of tasks unless the screen is wide.
const MOST: usize = 40;

/// Maximum number of rows in an answer to `?tasks=first`.
const FIRST: usize = 100;

/// The whole screen. `chosen` are the selected rows in their order. Without a selection, all tasks
/// are shown, the most important first.
pub(crate) fn screen(
    app: &AppView,
    chosen: Option<&[TaskRow]>,
    now: UnixMillis,
    look: ListStyle,
) -> String {
    let paint = look.paint;
    let mut text = look.advice(head(app, now, paint) + "\n");
    if !app.diagnostics.is_empty() {
        text.push_str(&look.advice(format!("{}\n", app.diagnostics)));
    }
    let Some(job) = &app.job else {
        return text
            + &look.advice(
                "its master has not reported any task yet\n".to_owned() + &next(app, paint),
            );
    };
    text.push_str(&look.advice(figures(&job.totals)));
    let mut rows: Vec<&TaskRow> = chosen.unwrap_or(&job.tasks).iter().collect();
    if chosen.is_none() {
        rows.sort_by_key(|t| weight(t));
    }
    let most = if look.wide || chosen.is_some() {
        usize::MAX
    } else {
        MOST
    };
    text.push_str(&tasks(&rows[..rows.len().min(most)], now, look));
    let counted = job.totals.folded_tasks();
    // Of a large job only the first rows were read.
    let listed = usize::try_from(job.totals.tasks.saturating_sub(counted)).unwrap_or(usize::MAX);
    let all = if chosen.is_none() && !look.wide && rows.len() == FIRST {
        listed
    } else {
        rows.len()
    };
    let more = all.saturating_sub(most.min(rows.len()));
    if more > 0 {
        text.push_str(&look.advice(format!("… {more} more: rmctl ps {} -o wide\n", app.id)));
    }
    if counted > 0 {
        let verb = if counted == 1 { "has" } else { "have" };
        let counted = count(counted, "task");
        text.push_str(&look.advice(format!(
            "{counted} that succeeded at the first attempt {verb} no row\n"
        )));
    }
    text + &look.advice(next(app, paint))
}

fn last(t: &TaskRow) -> Option<&AttemptRow> {
    t.attempts.last()
}

/// The table of tasks.
pub(crate) fn tasks(rows: &[&TaskRow], now: UnixMillis, look: ListStyle) -> String {
    let age = |t| last(t).map(|a| a.ended.unwrap_or(now).since(a.started));
    let columns: &[Column<'_, &TaskRow>] = &[
        ("TASK", &|t| t.task.to_string()),
        ("STATE", &|t| state(t.state, look.paint)),
        (">RUNG", &rung),
        (">LIMIT", &|t| short(t.profile.memory())),
        (">USED", &|t| {
            short_or_dash(last(t).filter(|a| a.ended.is_none()).and_then(|a| a.used))
        }),
        (">PEAK", &|t| {
            short_or_dash(t.attempts.iter().rev().find_map(|a| a.peak))
        }),
        ("NODE", &|t| or_dash(last(t).map(|a| &a.node))),
        (">AGE", &|t| or_dash(age(t).map(span))),
        ("+>TRIES", &|t| t.attempts.len().to_string()),
        ("+>SLOTS", &|t| or_dash(last(t).map(|a| a.slots))),
        ("+CONTAINER", &|t| or_dash(last(t).map(|a| &a.container))),
        ("+VERDICT", &|t| or_dash(failure(t).and_then(|a| a.reason))),
        ("+TREATMENT", &|t| {
            let treated = failure(t).and_then(|a| a.treatment);
            or_dash(treated.map(|treated| format!("{} → {treated}", treated.cause)))
        }),
        ("REASON / LADDER", &|t| note(t, now, look.wide)),
    ];
    list(rows.iter().copied(), look, columns)
}

fn head(app: &AppView, now: UnixMillis, paint: TextPainter) -> String {
    let age = span(app.ended.unwrap_or(now).since(app.submitted));
    let master = if app.managed {
        format!("attempt {}", app.attempt)
    } else {
        "unmanaged".to_owned()
    };
    let containers = format!(
        "{} ({})",
        count(app.containers, "container"),
        short(app.memory)
    );
    format!(
        "{}  {}  {age} · {master} · {containers}",
        paint.strong(&app.id.to_string()),
        apps::state(app.state, paint)
    )
}

/// The totals of a job in two lines.
pub(crate) fn figures(t: &JobTotals) -> String {
    let waiting = t.tasks.saturating_sub(t.done + t.failed + t.running);
    let shadow = t.shadow.as_ref().map(shadow).unwrap_or_default() + &inputs::of_stages(&t.inputs);
    format!(
        "tasks   {} of {} done, {} running, {waiting} waiting, {} failed · mode {}\nmemory  {}, {} escalated, {}, {} lost otherwise · {} re-run\n{shadow}",
        t.done,
        t.tasks,
        t.running,
        t.failed,
        t.mode.as_str(),
        count(t.memory_kills, "kill"),
        t.escalated,
        count(t.collateral_reruns, "collateral re-run"),
        t.transient,
        byte_time_of(t.rerun_byte_ms, t.allocated_byte_ms),
    )
}

/// The result that learned sizes would have had.
fn shadow(s: &ShadowTotals) -> String {
    let perhaps = if s.perhaps == 0 {
        String::new()
    } else {
        format!(", {} uncertain", s.perhaps)
    };
    format!(
        "shadow  learned sizes would have given {} instead of {}; {} would have fitted, {} would have been killed{perhaps}\n",
        byte_time(s.learned_byte_ms),
        byte_time(s.given_byte_ms),
        s.fit,
        s.killed,
    )
}

/// The sort key of a task: failed, running after a kill, running, waiting, done.
fn weight(t: &TaskRow) -> (u8, std::cmp::Reverse<u32>, &headroom_types::TaskId) {
    let class = match t.state {
        TaskState::Failed => 0,
        TaskState::Running => 1,
        TaskState::Pending => 2,
        TaskState::Blocked => 3,
        TaskState::Done => 4,
    };
    (class, std::cmp::Reverse(t.rung), &t.task)
}

/// Verdict and treatment of the last failed attempt.
fn failure(t: &TaskRow) -> Option<&AttemptRow> {
    let failed = |a: &&AttemptRow| a.reason.is_some_and(|r| r.charge() != ExitCharge::Success);
    t.attempts.iter().rev().find(failed)
}

/// The ladder, and the note of the row.
fn note(t: &TaskRow, now: UnixMillis, wide: bool) -> String {
    let ladder = ladder(t);
    let free = t
        .attempts
        .iter()
        .rev()
        .find_map(|a| a.reason.filter(|r| r.charge() == ExitCharge::Free));
    let said = match (&t.note, free) {
        (_, _) if t.frozen.is_some() => t
            .frozen
            .map(|frozen| self::frozen(&frozen, now))
            .unwrap_or_default(),
        (note, _) if !note.is_empty() => note.clone(),
        (_, Some(reason)) if t.state == TaskState::Running => format!("again after {reason}"),
        (_, None) if t.state == TaskState::Pending => "waits for a slot".to_owned(),
        (_, _) if wide => t.attempts.last().map(|a| a.why.clone()).unwrap_or_default(),
        (_, _) => String::new(),
    };
    let said = if wide { said } else { cut(&said, 70) };
    format!("{ladder} {said}").trim().to_owned()
}

/// `frozen 12s for 300 MiB`.
pub(crate) fn frozen(frozen: &FrozenTaskView, now: UnixMillis) -> String {
    format!(
        "frozen {} for {}",
        span(now.since(frozen.since)),
        frozen.more
    )
}

/// A task's state with its glyph.
pub(crate) fn state(state: TaskState, paint: TextPainter) -> String {
    match state {
        TaskState::Blocked => paint.dim("… blocked"),
        TaskState::Pending => paint.dim("… pending"),
        TaskState::Running => paint.live("▶ running"),
        TaskState::Done => paint.good("✓ done"),
        TaskState::Failed => paint.bad("✗ failed"),
    }
}

fn next(app: &AppView, paint: TextPainter) -> String {
    let rows = app.job.as_ref().map_or(&[][..], |j| &j.tasks);
    let killed = |t: &&TaskRow| {
        t.attempts
            .iter()
            .any(|a| a.reason.is_some_and(|r| r.charge() == ExitCharge::Memory))
    };
    let waits = |t: &&TaskRow| t.state == TaskState::Pending;
    let failed = |t: &&TaskRow| t.state == TaskState::Failed;
    let see = match (
        rows.iter()
            .find(killed)
            .or_else(|| rows.iter().find(failed)),
        rows.iter().find(waits),
    ) {
        (Some(t), _) => format!("rmctl diagnose {}/{}", app.id, t.task),
        (None, Some(t)) => format!("rmctl why {}/{}", app.id, t.task),
        (None, None) if app.pending > 0 => format!("rmctl why {}", app.id),
        (None, None) => format!("rmctl logs {}", app.id),
    };
    paint.next(see)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_job_in_the_middle() {
        insta::assert_snapshot!(screen(
            &fixture::app(),
            None,
            fixture::NOW,
            ListStyle::USUAL
        ));
        insta::assert_snapshot!(
            "job_wide",
            screen(&fixture::app(), None, fixture::NOW, ListStyle::WIDE)
        );
    }

    #[test]
    fn a_frozen_task_shows_its_time_and_the_missing_memory() {
        let mut app = fixture::app();
        let job = app.job.as_mut().expect("job");
        let running = job
            .tasks
            .iter_mut()
            .find(|t| t.state == TaskState::Running)
            .expect("a running task");
        let since = UnixMillis(fixture::NOW.0 - 12_000);
        running.frozen = Some(FrozenTaskView {
            since,
            more: headroom_types::Bytes::from_mib(300),
        });
        let shown = screen(&app, None, fixture::NOW, ListStyle::USUAL);
        assert!(shown.contains("frozen 12s for 300 MiB"), "{shown}");
    }

    #[test]
    fn a_job_that_failed_for_memory() {
        let mut app = fixture::app();
        app.state = headroom_wire::v1::apps::AppState::Failed;
        app.ended = Some(fixture::NOW);
        app.diagnostics = "map/11: killed alone at 15 GiB, the largest there is".into();
        let job = app.job.as_mut().expect("job");
        job.totals.failed = 1;
        job.tasks.push(fixture::task_given_up());
        insta::assert_snapshot!(screen(&app, None, fixture::NOW, ListStyle::USUAL));
    }

    #[test]
    fn a_job_in_shadow_mode_shows_the_learned_sizes() {
        let mut app = fixture::app();
        let job = app.job.as_mut().expect("job");
        job.totals.shadow = Some(ShadowTotals {
            fit: 3,
            killed: 1,
            perhaps: 2,
            given_byte_ms: 400 << 50,
            learned_byte_ms: 100 << 50,
        });
        let text = figures(&job.totals);
        let line = text.lines().nth(2).expect("a third line");
        assert!(line.starts_with("shadow"), "{line}");
        assert!(
            line.ends_with("3 would have fitted, 1 would have been killed, 2 uncertain"),
            "{line}"
        );
        job.totals.shadow = None;
        assert_eq!(figures(&job.totals).lines().count(), 2);
    }

    #[test]
    fn a_job_without_a_report_of_its_master() {
        let app = AppView {
            job: None,
            pending: 0,
            ..fixture::app()
        };
        assert!(
            screen(&app, None, fixture::NOW, ListStyle::USUAL)
                .contains("has not reported any task")
        );
    }

    #[test]
    fn a_large_job_shows_the_important_rows_first() {
        let mut app = fixture::app();
        let job = app.job.as_mut().expect("job");
        for i in 100..200 {
            let mut row = fixture::done();
            row.task.index = i;
            job.tasks.push(row);
        }
        let text = screen(&app, None, fixture::NOW, ListStyle::USUAL);
        assert!(
            text.contains("… 64 more: rmctl ps wordcount.7 -o wide"),
            "{text}"
        );
        assert!(
            text.lines().nth(4).is_some_and(|l| l.starts_with("map/7")),
            "{text}"
        );
    }
}

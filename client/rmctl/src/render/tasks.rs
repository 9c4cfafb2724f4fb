//! Screens of one task: its state, its attempts, and its ladder as bars.

use headroom_types::{Bytes, ExitCharge, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};

use super::figures::{short, short_or_dash, span};
use super::ladder;
use super::table::{Column, cut, list};
use super::{ListStyle, TextPainter, bars, job};

/// Width of the bar of the largest size. Columns.
const WIDTH: usize = 40;

/// One task with its attempts.
pub(crate) fn one(app: &AppView, t: &TaskRow, now: UnixMillis, look: ListStyle) -> String {
    let paint = look.paint;
    let id = format!("{}/{}", app.id, t.task);
    let mut text = format!("{}  {}\n", paint.strong(&id), job::state(t.state, paint));
    text.push_str(&format!(
        "size    {} · rung {}  {}\n",
        t.profile,
        ladder::rung(t),
        ladder::ladder(t)
    ));
    if t.priority != 0 {
        text.push_str(&format!("order   priority {}\n", t.priority));
    }
    if !t.tags.is_empty() {
        let tags: Vec<String> = t.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        text.push_str(&format!("tags    {}\n", tags.join(" ")));
    }
    if !t.note.is_empty() {
        text.push_str(&format!("note    {}\n", t.note));
    }
    text.push_str(&table(&t.attempts, now, look));
    let see = match t.state {
        TaskState::Blocked | TaskState::Pending => format!("rmctl why {id}"),
        TaskState::Running => format!("rmctl logs -f {id}"),
        TaskState::Done | TaskState::Failed => format!("rmctl diagnose {id}"),
    };
    text + &paint.next(format!("{see} · rmctl task ladder {id}"))
}

/// Attempts of one or several tasks as a table.
pub(crate) fn attempts(
    app: &AppView,
    all: &[AttemptRow],
    now: UnixMillis,
    look: ListStyle,
) -> String {
    let paint = look.paint;
    if all.is_empty() {
        return look.advice(format!(
            "no attempt has been started\nnext: rmctl why {}\n",
            app.id
        ));
    }
    let failed = |a: &&AttemptRow| a.reason.is_some_and(|r| r.charge() != ExitCharge::Success);
    let worst = all.iter().rev().find(failed).or(all.last());
    let next = worst.map(|a| paint.next(format!("rmctl diagnose {}/{}", app.id, a.attempt)));
    table(all, now, look) + &look.advice(next.unwrap_or_default())
}

fn table(all: &[AttemptRow], now: UnixMillis, look: ListStyle) -> String {
    if all.is_empty() {
        return String::new();
    }
    let columns: &[Column<'_, &AttemptRow>] = &[
        ("ATTEMPT", &|a| a.attempt.to_string()),
        ("VERDICT", &|a| verdict(a, look.paint)),
        (">RUNG", &|a| a.rung.to_string()),
        (">LIMIT", &|a| short(a.profile.memory())),
        (">PEAK", &|a| short_or_dash(a.peak.or(a.used))),
        (">TOOK", &|a| span(a.ended.unwrap_or(now).since(a.started))),
        ("NODE", &|a| a.node.to_string()),
        ("+>SLOTS", &|a| a.slots.to_string()),
        ("+CONTAINER", &|a| a.container.to_string()),
        ("+CAUSE", &|a| {
            let first = a.diagnosis.first();
            first.map_or_else(|| "-".to_owned(), |first| first.name.to_string())
        }),
        ("+TREATMENT", &|a| {
            a.treatment
                .map_or_else(|| "-".to_owned(), |treated| treated.to_string())
        }),
        ("DECIDED", &|a| look.cut(&a.decision, 34)),
    ];
    list(all, look, columns)
}

fn verdict(a: &AttemptRow, paint: TextPainter) -> String {
    match a.reason {
        None => paint.live("▶ running"),
        Some(r) => match r.charge() {
            ExitCharge::Success => paint.good("✓ done"),
            ExitCharge::Memory | ExitCharge::Plain => paint.bad(&format!("✗ {r}")),
            ExitCharge::Free => paint.warn(&format!("↻ {r}")),
        },
    }
}

/// The sizes of a task's attempts as bars with one scale: used memory and verdict of each.
pub(crate) fn ladder(app: &AppView, t: &TaskRow, paint: TextPainter) -> String {
    let id = format!("{}/{}", app.id, t.task);
    let mut text = format!(
        "{}  {}  {}\n",
        paint.strong(&id),
        job::state(t.state, paint),
        ladder::ladder(t)
    );
    let sizes = t
        .attempts
        .iter()
        .map(|a| a.profile.memory())
        .chain([t.profile.memory()]);
    let largest = sizes.max().unwrap_or(Bytes::ZERO);
    let columns: &[Column<'_, &AttemptRow>] = &[
        ("RUNG", &|a| format!("{} @{}", a.rung, a.attempt.attempt)),
        (">LIMIT", &|a| short(a.profile.memory())),
        ("█ heap used  ▒ all else used  · free", &|a| {
            used_bar(a, largest)
        }),
        ("", &|a| verdict(a, paint)),
        ("WHY THIS SIZE", &|a| cut(&a.why, 30)),
    ];
    text.push_str(&list(&t.attempts, ListStyle::whole(paint), columns));
    text + &paint.next(format!("rmctl task show {id} · rmctl diagnose {id}"))
}

/// The memory that an attempt used, as parts of its limit.
fn used_bar(a: &AttemptRow, largest: Bytes) -> String {
    let limit = a.profile.memory();
    let used = a.peak.or(a.used).unwrap_or_default();
    let heap = a
        .evidence
        .as_ref()
        .and_then(|e| e.heap.as_ref())
        .map_or(Bytes::ZERO, |h| h.used.min(used));
    let (heap, rest) = if heap.is_zero() {
        (used, Bytes::ZERO)
    } else {
        (heap, used.saturating_sub(heap))
    };
    bars::stacked(heap, rest, limit, bars::scaled(limit, largest, WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_task_that_escalated() {
        let (app, row) = (fixture::app(), fixture::escalated());
        insta::assert_snapshot!("task", one(&app, &row, fixture::NOW, ListStyle::USUAL));
        insta::assert_snapshot!("task_ladder", ladder(&app, &row, TextPainter::PLAIN));
        insta::assert_snapshot!(
            "attempts_wide",
            attempts(&app, &row.attempts, fixture::NOW, ListStyle::WIDE)
        );
        assert!(attempts(&app, &[], fixture::NOW, ListStyle::USUAL).contains("rmctl why"));
    }
}

//! Screens of one task: its state, its attempts, and its ladder as bars.

use headroom_types::{Bytes, ExitCharge, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};

use super::figures::{short, short_or_dash, span};
use super::ladder;
use super::table::{Table, cut};
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
    if !t.note.is_empty() {
        text.push_str(&format!("note    {}\n", t.note));
    }
    text.push_str(&table(&t.attempts, now, look));
    let see = match t.state {
        TaskState::Blocked | TaskState::Pending => format!("rmctl why {id}"),
        TaskState::Running => format!("rmctl logs -f {id}"),
        TaskState::Done | TaskState::Failed => format!("rmctl diagnose {id}"),
    };
    text + &paint.dim(&format!("next: {see} · rmctl task ladder {id}")) + "\n"
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
    let next =
        worst.map(|a| paint.dim(&format!("next: rmctl diagnose {}/{}", app.id, a.attempt)) + "\n");
    table(all, now, look) + &look.advice(next.unwrap_or_default())
}

fn table(all: &[AttemptRow], now: UnixMillis, look: ListStyle) -> String {
    let paint = look.paint;
    if all.is_empty() {
        return String::new();
    }
    let mut headers = vec![
        "ATTEMPT", "VERDICT", ">RUNG", ">LIMIT", ">PEAK", ">TOOK", "NODE",
    ];
    if look.wide {
        headers.extend([">SLOTS", "CONTAINER", "CAUSE", "TREATMENT"]);
    }
    headers.push("DECIDED");
    let mut table = Table::new(&headers);
    for a in all {
        let limit = short(a.profile.memory());
        let peak = short_or_dash(a.peak.or(a.used));
        let took = span(a.ended.unwrap_or(now).since(a.started));
        let mut cells = vec![
            a.attempt.to_string(),
            verdict(a, paint),
            a.rung.to_string(),
            limit,
            peak,
            took,
            a.node.to_string(),
        ];
        if look.wide {
            let cause = a
                .diagnosis
                .first()
                .map_or_else(|| "-".to_owned(), |first| first.name.to_string());
            let treated = a
                .treatment
                .map_or_else(|| "-".to_owned(), |treated| treated.to_string());
            cells.extend([a.slots.to_string(), a.container.to_string(), cause, treated]);
        }
        cells.push(if look.wide {
            a.decision.clone()
        } else {
            cut(&a.decision, 34)
        });
        table.row(cells);
    }
    table.of(look.headers)
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
    let mut table = Table::new(&[
        "RUNG",
        ">LIMIT",
        "█ heap used  ▒ all else used  · free",
        "",
        "WHY THIS SIZE",
    ]);
    for a in &t.attempts {
        let limit = a.profile.memory();
        let used = a.peak.or(a.used).unwrap_or_default();
        let heap = a
            .evidence
            .as_ref()
            .and_then(|e| e.heap.as_ref())
            .map_or(Bytes::ZERO, |h| h.used.min(used));
        // If the heap is unknown, all used memory is one quantity.
        let (heap, rest) = if heap.is_zero() {
            (used, Bytes::ZERO)
        } else {
            (heap, used.saturating_sub(heap))
        };
        let bar = bars::stacked(heap, rest, limit, bars::scaled(limit, largest, WIDTH));
        let why = cut(&a.why, 30);
        table.row([
            format!("{} @{}", a.rung, a.attempt.attempt),
            short(limit),
            bar,
            verdict(a, paint),
            why,
        ]);
    }
    text.push_str(&table.text());
    text + &paint.dim(&format!("next: rmctl task show {id} · rmctl diagnose {id}")) + "\n"
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

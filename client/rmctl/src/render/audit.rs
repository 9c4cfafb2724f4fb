//! The audit log as lines: time, result, verb, object, caller, change.

use headroom_wire::v1::audit::AuditLine;

use super::TextPainter;
use super::events::number;
use super::figures::{rfc3339, time_of_day};
use super::table::cut;

/// Longest text of a change unless the screen is wide. Columns.
const CHANGE: usize = 60;

/// One entry.
pub(crate) fn line(a: &AuditLine, wide: bool, paint: TextPainter) -> String {
    let time = if wide {
        rfc3339(a.time)
    } else {
        time_of_day(a.time)
    };
    let done = (200..400).contains(&a.outcome);
    let outcome = match a.code {
        None if done => paint.good(&format!("{:<8}", "✓")),
        None => paint.bad(&format!("{:<8}", format!("✗ {}", a.outcome))),
        Some(code) => paint.bad(&format!("{:<8}", format!("✗ {code}"))),
    };
    let by = if a.who == a.from {
        format!("by {}", a.who)
    } else {
        format!("by {} from {}", a.who, a.from)
    };
    let change = match (&a.before, &a.after) {
        (Some(before), Some(after)) => format!("  {before} → {after}"),
        (Some(before), None) => format!("  was {before}"),
        (None, Some(after)) => format!("  {after}"),
        (None, None) => String::new(),
    };
    let change = if wide {
        format!("{change}  {}", a.request)
    } else {
        cut(&change, CHANGE)
    };
    format!(
        "{time} {:<6} {outcome} {:<14} {:<28} {by}{change}",
        number(a.index),
        a.verb,
        a.object
    )
    .trim_end()
    .to_owned()
}

/// The command to type after these entries.
pub(crate) fn next(all: &[AuditLine], paint: TextPainter) -> String {
    if all.is_empty() {
        return "no change is recorded\nnext: rmctl events\n".to_owned();
    }
    let refused = all.iter().rev().find_map(|a| a.code);
    let see = refused
        .map(|code| format!("rmctl explain {code} · "))
        .unwrap_or_default();
    paint.next(format!("{see}rmctl audit list -w"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::UnixMillis;
    use headroom_wire::v1::error::ErrorCode;

    fn call(index: u64, verb: &str, object: &str, outcome: u16) -> AuditLine {
        AuditLine {
            index,
            time: UnixMillis(fixture::START + index * 1000),
            who: "127.0.0.1".into(),
            from: "127.0.0.1".into(),
            verb: verb.into(),
            object: object.into(),
            request: "r-1".into(),
            outcome,
            code: None,
            before: None,
            after: None,
        }
    }

    #[test]
    fn calls_as_lines() {
        let mut moved = call(2, "PATCH", "apps/sort.3", 200);
        (moved.before, moved.after) = (Some("queue default".into()), Some("queue etl".into()));
        let mut refused = call(3, "POST kill", "apps/sort.2", 409);
        (refused.code, refused.who) = (Some(ErrorCode::HR0409), "ada".into());
        let all = [
            call(1, "POST drain", "nodes/worker-04", 200),
            moved,
            refused,
        ];
        let lines: String = all
            .iter()
            .map(|a| line(a, false, TextPainter::PLAIN) + "\n")
            .collect();
        insta::assert_snapshot!(lines + &next(&all, TextPainter::PLAIN));
        assert!(
            line(&all[1], true, TextPainter::PLAIN).ends_with("queue default → queue etl  r-1")
        );
        assert!(next(&[], TextPainter::PLAIN).ends_with("next: rmctl events\n"));
    }
}

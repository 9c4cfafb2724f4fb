//! The sizes of a task's attempts and the next sizes, in one cell: `64✗ 128✗ [192▶] 384`.

use headroom_types::{Bytes, ExitCharge};
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};

use super::figures::short;

/// Result of an attempt at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RungResult {
    Killed,
    Failed,
    Again,
    Running,
    Done,
    Waiting,
}

impl RungResult {
    fn of(attempt: &AttemptRow) -> RungResult {
        match attempt.reason.map(|r| r.charge()) {
            None => RungResult::Running,
            Some(ExitCharge::Success) => RungResult::Done,
            Some(ExitCharge::Memory) => RungResult::Killed,
            Some(ExitCharge::Plain) => RungResult::Failed,
            Some(ExitCharge::Free) => RungResult::Again,
        }
    }
    fn glyph(self) -> &'static str {
        match self {
            RungResult::Killed => "✗",
            RungResult::Failed => "!",
            RungResult::Again => "↻",
            RungResult::Running => "▶",
            RungResult::Done => "✓",
            RungResult::Waiting => "…",
        }
    }
}

/// The present rung, and the number of rungs if it is known.
pub(crate) fn rung(row: &TaskRow) -> String {
    let known = row.attempts.last().is_some_and(|a| a.ended.is_none()) || !row.ahead.is_empty();
    let ahead = u32::try_from(row.ahead.len()).unwrap_or(u32::MAX);
    if known {
        format!("{}/{}", row.rung, row.rung.saturating_add(ahead))
    } else {
        row.rung.to_string()
    }
}

/// The ladder of a task: the sizes of its attempts, the present one in brackets, then the next
/// sizes. Sizes omit their unit if all have the same.
pub(crate) fn ladder(row: &TaskRow) -> String {
    let mut steps: Vec<(Bytes, RungResult)> = row
        .attempts
        .iter()
        .map(|a| (a.profile.memory(), RungResult::of(a)))
        .collect();
    let waits = match row.state {
        TaskState::Pending | TaskState::Blocked => true,
        TaskState::Running | TaskState::Done | TaskState::Failed => false,
    };
    if waits {
        steps.push((row.profile.memory(), RungResult::Waiting));
    }
    let at = steps.len().saturating_sub(1);
    let texts: Vec<String> = steps
        .iter()
        .map(|(size, _)| *size)
        .chain(row.ahead.iter().copied())
        .map(short)
        .collect();
    let unit = |t: &String| t.chars().last().filter(char::is_ascii_alphabetic);
    let shared = texts
        .first()
        .and_then(unit)
        .filter(|u| texts.iter().all(|t| unit(t) == Some(*u)));
    let shown = |t: &String| {
        shared
            .map_or(t.as_str(), |u| t.trim_end_matches(u))
            .to_owned()
    };
    let cell = |(n, text): (usize, &String)| match steps.get(n) {
        Some((_, mark)) if n == at => format!("[{}{}]", shown(text), mark.glyph()),
        Some((_, mark)) => format!("{}{}", shown(text), mark.glyph()),
        None => shown(text),
    };
    texts
        .iter()
        .enumerate()
        .map(cell)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn every_attempt_is_a_step() {
        let app = fixture::app();
        let rows = &app.job.as_ref().expect("job").tasks;
        let all: Vec<String> = rows.iter().map(ladder).collect();
        assert_eq!(
            all,
            [
                "[2.4✓]",
                "2.4↻ [2.4▶] 4.8 9.6 15",
                "2.4✗ 4.4✗ [8.8▶] 15",
                "[2.4…]"
            ]
        );
        assert_eq!(
            rows.iter().map(rung).collect::<Vec<_>>(),
            ["1", "1/4", "3/4", "1"],
            "a finished task has no further steps"
        );
    }

    #[test]
    fn mixed_units_are_all_shown() {
        let mut row = fixture::escalated();
        row.attempts[0].profile.heap = Bytes::from_mib(512);
        row.attempts[0].profile.overhead = Bytes::ZERO;
        assert_eq!(ladder(&row), "512M✗ 4.4G✗ [8.8G▶] 15G");
    }
}

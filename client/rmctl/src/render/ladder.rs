//! The sizes a task was tried at, in one cell: `[64✗ 128✗ 192▶]`.

use headroom_types::{Bytes, Charge};
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};

use super::figures::short;

/// What became of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Killed,
    Failed,
    Again,
    Running,
    Done,
    Waiting,
}

impl Mark {
    fn of(attempt: &AttemptRow) -> Mark {
        match attempt.reason.map(|r| r.charge()) {
            None => Mark::Running,
            Some(Charge::Success) => Mark::Done,
            Some(Charge::Memory) => Mark::Killed,
            Some(Charge::Plain) => Mark::Failed,
            Some(Charge::Free) => Mark::Again,
        }
    }
    fn glyph(self) -> &'static str {
        match self {
            Mark::Killed => "✗",
            Mark::Failed => "!",
            Mark::Again => "↻",
            Mark::Running => "▶",
            Mark::Done => "✓",
            Mark::Waiting => "…",
        }
    }
}

/// The ladder of a task. Sizes lose their unit when all share it.
pub(crate) fn ladder(row: &TaskRow) -> String {
    let mut steps: Vec<(Bytes, Mark)> = row.attempts.iter().map(|a| (a.profile.memory(), Mark::of(a))).collect();
    let waits = match row.state {
        TaskState::Pending | TaskState::Blocked => true,
        TaskState::Running | TaskState::Done | TaskState::Failed => false,
    };
    if waits {
        steps.push((row.profile.memory(), Mark::Waiting));
    }
    let texts: Vec<String> = steps.iter().map(|(size, _)| short(*size)).collect();
    let unit = |t: &String| t.chars().last().filter(char::is_ascii_alphabetic);
    let shared = texts.first().and_then(unit).filter(|u| texts.iter().all(|t| unit(t) == Some(*u)));
    let shown = |t: &String| shared.map_or(t.as_str(), |u| t.trim_end_matches(u)).to_owned();
    let cells: Vec<String> = texts.iter().zip(&steps).map(|(t, (_, mark))| format!("{}{}", shown(t), mark.glyph())).collect();
    if cells.is_empty() { String::new() } else { format!("[{}]", cells.join(" ")) }
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
        assert_eq!(all, ["[2.4✓]", "[2.4↻ 2.4▶]", "[2.4✗ 4.4✗ 8.8▶]", "[2.4…]"]);
    }

    #[test]
    fn mixed_units_are_all_shown() {
        let mut row = fixture::escalated();
        row.attempts[0].profile.heap = Bytes::from_mib(512);
        row.attempts[0].profile.overhead = Bytes::ZERO;
        assert_eq!(ladder(&row), "[512M✗ 4.4G✗ 8.8G▶]");
    }
}

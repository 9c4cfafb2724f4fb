//! Tasks of a live job on screens: accepted ones and results.

use headroom_types::AppId;
use headroom_wire::v1::submission::{SubmittedTaskOutcome, SubmittedTaskResult};

use super::figures::short;
use super::{TextPainter, count};

/// The number of accepted tasks, and the next commands.
pub(crate) fn accepted(app: &AppId, keys: &[String]) -> String {
    let tasks = count(u32::try_from(keys.len()).unwrap_or(u32::MAX), "task");
    let key = match keys {
        [key] => format!(" (key {key})"),
        [] | [_, ..] => String::new(),
    };
    format!("{app}  {tasks} accepted{key}\nnext: rmctl ps {app} · rmctl job close {app}\n")
}

/// One line about the end of a task.
pub(crate) fn result_line(result: &SubmittedTaskResult, paint: TextPainter) -> String {
    let outcome = match result.outcome {
        SubmittedTaskOutcome::Succeeded => "succeeded",
        SubmittedTaskOutcome::Failed => "failed",
        SubmittedTaskOutcome::Cancelled => "cancelled",
    };
    let attempts = count(
        u32::try_from(result.attempts.len()).unwrap_or(u32::MAX),
        "attempt",
    );
    let size = result
        .attempts
        .last()
        .map(|attempt| format!(" · {}", short(attempt.profile.memory())))
        .unwrap_or_default();
    let rest = match (&result.value, result.message.as_str()) {
        (Some(value), _) => format!("  {}", first_line(value)),
        (None, "") => String::new(),
        (None, message) => format!("  {message}"),
    };
    let (key, task) = (&result.key, paint.dim(&result.task.to_string()));
    format!("{key}  {task}  {outcome} · {attempts}{size}{rest}")
}

/// The first line of a value, without control characters.
fn first_line(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default();
    let plain = line.chars().filter(|c| !c.is_control()).take(120);
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_line() {
        let mut result = SubmittedTaskResult {
            cursor: 1,
            key: "part-7".into(),
            task: "map/7".parse().expect("id"),
            outcome: SubmittedTaskOutcome::Succeeded,
            value: Some("42\u{1b}[0m\nmore".into()),
            value_too_large: None,
            reason: None,
            dimension: None,
            message: String::new(),
            log_tail: String::new(),
            attempts: vec![crate::render::fixture::killed()],
        };
        let line = |result: &SubmittedTaskResult| result_line(result, TextPainter::PLAIN);
        assert_eq!(
            line(&result),
            "part-7  map/7  succeeded · 1 attempt · 4.4G  42[0m"
        );
        result.outcome = SubmittedTaskOutcome::Failed;
        result.value = None;
        result.attempts.clear();
        result.message = "out of memory".into();
        assert_eq!(
            line(&result),
            "part-7  map/7  failed · 0 attempts  out of memory"
        );
    }

    #[test]
    fn accepted_tasks_are_counted() {
        let app = "word-count.7".parse().expect("id");
        let one = accepted(&app, &["k".to_owned()]);
        assert!(
            one.starts_with("word-count.7  1 task accepted (key k)\n"),
            "{one}"
        );
        let two = accepted(&app, &["k".to_owned(), "l".to_owned()]);
        assert!(two.starts_with("word-count.7  2 tasks accepted\n"), "{two}");
    }
}

//! Limits on the messages of clients of a live job. Pure functions.

use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::submission::{MAX_BATCH_TASKS, MAX_INPUT_BYTES, SubmittedTask};

/// Maximum length of a task's key. Characters.
const MAX_KEY_CHARS: usize = 128;
/// Maximum length of the name of a batch or of a client. Characters.
const MAX_NAME_CHARS: usize = 64;
/// Maximum number of keys in `after`.
const MAX_AFTER: usize = 1_000;
/// Maximum number of tags.
const MAX_TAGS: usize = 16;
/// Maximum size of the arguments, variables and tags of a task together. Bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The error of a client's name.
pub(crate) fn client_error(client: &str) -> Option<ProblemDetails> {
    name_error("client", client, MAX_NAME_CHARS).map(ProblemDetails::bad_request)
}

/// The error of a batch, apart from its tasks.
pub(crate) fn batch_error(batch: &str, tasks: usize) -> Option<ProblemDetails> {
    if tasks > MAX_BATCH_TASKS {
        let what = format!("a batch of {tasks} tasks; send at most {MAX_BATCH_TASKS}");
        return Some(ProblemDetails::too_large(what));
    }
    name_error("batch", batch, MAX_NAME_CHARS).map(ProblemDetails::bad_request)
}

/// The error of a submitted task.
pub(crate) fn task_error(task: &SubmittedTask) -> Option<ProblemDetails> {
    if let Some(wrong) = name_error("key", &task.key, MAX_KEY_CHARS) {
        return Some(ProblemDetails::bad_request(wrong));
    }
    let of_task = |what: String| format!("task {}: {what}", task.key);
    let too_large = |what: String| Some(ProblemDetails::too_large(of_task(what)));
    let wrong = |what: String| Some(ProblemDetails::bad_request(of_task(what)));
    let input = task.input.as_ref().map_or(0, String::len);
    if input > MAX_INPUT_BYTES {
        return too_large(format!(
            "an input of {input} bytes; pass at most {MAX_INPUT_BYTES}, or the name of a file"
        ));
    }
    let pairs = task.env.iter().chain(&task.tags);
    let texts = task.args.iter().map(String::len);
    let bytes: usize = texts.chain(pairs.map(|(k, v)| k.len() + v.len())).sum();
    if bytes > MAX_TEXT_BYTES {
        return too_large(format!(
            "arguments, variables and tags of {bytes} bytes; pass at most {MAX_TEXT_BYTES}, or use input"
        ));
    }
    if task.after.len() > MAX_AFTER {
        let count = task.after.len();
        return too_large(format!("it follows {count} tasks; at most {MAX_AFTER}"));
    }
    if task.tags.len() > MAX_TAGS {
        return too_large(format!("{} tags; at most {MAX_TAGS}", task.tags.len()));
    }
    let is_invalid = |name: &&String| {
        name.is_empty() || name.contains(['=', '\0']) || name.starts_with("HEADROOM_")
    };
    if let Some(name) = task.env.keys().find(is_invalid) {
        return wrong(format!("{name:?} is not a valid name of a variable"));
    }
    if task
        .args
        .iter()
        .chain(task.env.values())
        .any(|text| text.contains('\0'))
    {
        return wrong("an argument or a variable contains a NUL character".to_owned());
    }
    if task.memory.is_some_and(|memory| memory.get() == 0) {
        return wrong("memory is 0 bytes; leave it out for the size of the stage".to_owned());
    }
    None
}

fn name_error(what: &str, name: &str, most: usize) -> Option<String> {
    let count = name.chars().count();
    if count == 0 || count > most || name.chars().any(char::is_control) {
        let shown: String = name.chars().take(most).collect();
        Some(format!(
            "{what} {shown:?} is not a name of 1 to {most} characters without control characters"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;
    use headroom_wire::v1::error::ErrorCode;

    fn task(change: impl FnOnce(&mut SubmittedTask)) -> SubmittedTask {
        let mut task = SubmittedTask {
            key: "k".into(),
            ..SubmittedTask::default()
        };
        change(&mut task);
        task
    }

    #[test]
    fn a_task_within_the_limits_is_valid() {
        let largest = task(|t| {
            t.input = Some("x".repeat(MAX_INPUT_BYTES));
            t.args = vec!["y".repeat(MAX_TEXT_BYTES)];
        });
        assert_eq!(task_error(&largest), None);
    }

    #[test]
    fn each_limit_has_an_error_with_the_task_and_the_remedy() {
        let cases: [(SubmittedTask, ErrorCode, &str); 8] = [
            (task(|t| t.key.clear()), ErrorCode::HR0400, "key"),
            (task(|t| t.key = "k".repeat(129)), ErrorCode::HR0400, "128"),
            (
                task(|t| t.input = Some("x".repeat(MAX_INPUT_BYTES + 1))),
                ErrorCode::HR0413,
                "file",
            ),
            (
                task(|t| t.args = vec!["x".repeat(MAX_TEXT_BYTES + 1)]),
                ErrorCode::HR0413,
                "input",
            ),
            (
                task(|t| drop(t.env.insert("HEADROOM_X".into(), "1".into()))),
                ErrorCode::HR0400,
                "HEADROOM_X",
            ),
            (
                task(|t| t.args = vec!["a\0b".into()]),
                ErrorCode::HR0400,
                "NUL",
            ),
            (
                task(|t| t.memory = Some(Bytes::ZERO)),
                ErrorCode::HR0400,
                "memory",
            ),
            (
                task(|t| t.after = vec!["a".into(); MAX_AFTER + 1]),
                ErrorCode::HR0413,
                "follows",
            ),
        ];
        for (task, code, says) in cases {
            let error = task_error(&task).expect(says);
            assert!(
                error.code == code && error.detail.contains(says),
                "{says}: {error:?}"
            );
        }
    }
}

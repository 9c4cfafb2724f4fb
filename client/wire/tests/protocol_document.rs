//! Checks the pages about the task channel and the submission channel from the view of an author of
//! the other side: every example must be a valid message.

use std::collections::BTreeSet;

use headroom_wire::v1::submission::{self, FromSubmitter, ToSubmitter};
use headroom_wire::v1::task::{FromExecutor, MAX_LINE_BYTES, OLDEST_VERSION, ToExecutor, VERSION};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/executor-protocol.md");
const SUBMISSION_PAGE: &str = include_str!("../../../docs/submission-protocol.md");

/// The JSON blocks of a page, each with the number of its first line.
fn examples(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut open) = (Vec::new(), None);
    for (number, line) in (1..).zip(page.lines()) {
        match (line.trim(), &mut open) {
            ("```json", None) => open = Some((number + 1, String::new())),
            ("```", Some(_)) => found.extend(open.take()),
            (text, Some((_, block))) => *block = format!("{block}{text} "),
            (_, None) => {}
        }
    }
    assert!(open.is_none(), "a block of JSON is not closed");
    found
}

/// Serializes a message again, if the text is a message of this direction.
fn again<T: serde::Serialize, E: std::fmt::Display>(read: Result<T, E>) -> Result<Value, String> {
    read.map_err(|e| e.to_string())
        .and_then(|message| serde_json::to_value(&message).map_err(|e| e.to_string()))
}

/// Parses a text as one direction of a protocol and serializes it again. `None` for other kinds.
type PageDirection = fn(&str, &str) -> Option<Result<Value, String>>;

/// Checks that every example is a message with all its fields, and that each kind has an example.
fn check_examples(page: &str, directions: [(&[&str], PageDirection); 2]) {
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for (line, text) in examples(page) {
        assert!(text.len() < MAX_LINE_BYTES);
        let written: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("line {line}: {e}"));
        let kind = written["kind"]
            .as_str()
            .unwrap_or_else(|| panic!("line {line}: no kind"));
        let read = directions.map(|(_, direction)| direction(kind, &text));
        assert!(
            read.iter().any(Option::is_some),
            "line {line}: no peer sends {kind}"
        );
        for (read, seen) in read.into_iter().zip(&mut seen) {
            let Some(read) = read else { continue };
            assert_eq!(
                read.as_ref(),
                Ok(&written),
                "line {line}: the parsed {kind} differs from the page"
            );
            seen.insert(kind.to_owned());
        }
    }
    for ((kinds, _), seen) in directions.into_iter().zip(seen) {
        let all: BTreeSet<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        assert_eq!(seen, all, "each kind has an example");
    }
}

#[test]
fn every_example_is_a_message_with_all_its_fields() {
    let from: PageDirection = |kind, text| {
        let known = FromExecutor::KINDS.contains(&kind);
        known.then(|| again(FromExecutor::read(text)))
    };
    let to: PageDirection = |kind, text| {
        let known = ToExecutor::KINDS.contains(&kind);
        known.then(|| again(ToExecutor::read(text)))
    };
    check_examples(
        PAGE,
        [(&FromExecutor::KINDS, from), (&ToExecutor::KINDS, to)],
    );
}

#[test]
fn every_example_of_a_submission_is_a_message_with_all_its_fields() {
    let from: PageDirection = |kind, text| {
        let known = FromSubmitter::KINDS.contains(&kind);
        known.then(|| again(FromSubmitter::read(text)))
    };
    let to: PageDirection = |kind, text| {
        let known = ToSubmitter::KINDS.contains(&kind);
        known.then(|| again(ToSubmitter::read(text)))
    };
    check_examples(
        SUBMISSION_PAGE,
        [(&FromSubmitter::KINDS, from), (&ToSubmitter::KINDS, to)],
    );
}

#[test]
fn the_page_of_submissions_states_its_version_and_its_limits() {
    let page = SUBMISSION_PAGE;
    let version = submission::VERSION;
    assert!(page.contains(&format!("Version of this protocol: **{version}**")));
    assert!(page.contains(&format!("Upgrade: {}\n", submission::UPGRADE)));
    assert!(page.contains("1,048,576 bytes") && submission::MAX_LINE_BYTES == 1_048_576);
    assert!(page.contains("at most 1000\ntasks") && submission::MAX_BATCH_TASKS == 1000);
    assert!(page.contains("at most 65,536 bytes") && submission::MAX_INPUT_BYTES == 65_536);
    assert!(page.contains("at most 16,384 bytes |") && submission::MAX_VALUE_BYTES == 16_384);
}

/// The table of the page contains every field of a task.
#[test]
fn every_field_of_a_submitted_task_is_explained() {
    let tasks = examples(SUBMISSION_PAGE)
        .into_iter()
        .find(|(_, text)| text.contains("\"tasks\", \"batch\""))
        .expect("an example")
        .1;
    let tasks: Value = serde_json::from_str(&tasks).expect("JSON");
    let fields = tasks["items"][1].as_object().expect("a task");
    assert_eq!(fields.len(), 8, "the example has all fields");
    for field in fields.keys() {
        assert!(
            SUBMISSION_PAGE.contains(&format!("| `{field}` |")),
            "{field} has no row"
        );
    }
}

#[test]
fn the_page_states_this_version_and_its_limits() {
    assert!(PAGE.contains(&format!("Version of this protocol: **{VERSION}**")));
    assert!(PAGE.contains("1,048,576 bytes") && MAX_LINE_BYTES == 1_048_576);
    assert_eq!(OLDEST_VERSION, VERSION, "the page describes one version");
}

/// The table of the page contains every field of a start.
#[test]
fn every_field_of_a_start_is_explained() {
    let start = examples(PAGE)
        .into_iter()
        .find(|(_, text)| text.contains("\"start\""))
        .expect("an example")
        .1;
    let Value::Object(fields) = serde_json::from_str(&start).expect("JSON") else {
        panic!("{start}")
    };
    for field in fields.keys().filter(|f| *f != "kind") {
        assert!(
            PAGE.contains(&format!("| `{field}` |")),
            "{field} has no row"
        );
    }
}

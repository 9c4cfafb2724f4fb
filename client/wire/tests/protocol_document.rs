//! Checks the page about the task channel from the view of an executor's author: every example must
//! be a valid message.

use std::collections::BTreeSet;

use headroom_wire::v1::task::{FromExecutor, MAX_LINE_BYTES, OLDEST_VERSION, ToExecutor, VERSION};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/executor-protocol.md");

/// The JSON blocks of the page, each with the number of its first line.
fn examples() -> Vec<(usize, String)> {
    let (mut found, mut open) = (Vec::new(), None);
    for (number, line) in (1..).zip(PAGE.lines()) {
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

#[test]
fn every_example_is_a_message_with_all_its_fields() {
    let (mut from, mut to) = (BTreeSet::new(), BTreeSet::new());
    for (line, text) in examples() {
        assert!(text.len() < MAX_LINE_BYTES);
        let written: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("line {line}: {e}"));
        let kind = written["kind"]
            .as_str()
            .unwrap_or_else(|| panic!("line {line}: no kind"))
            .to_owned();
        let said = FromExecutor::KINDS
            .contains(&kind.as_str())
            .then(|| again(FromExecutor::read(&text)));
        let heard = ToExecutor::KINDS
            .contains(&kind.as_str())
            .then(|| again(ToExecutor::read(&text)));
        assert!(
            said.is_some() || heard.is_some(),
            "line {line}: no peer sends {kind}"
        );
        for read in said.iter().chain(&heard) {
            assert_eq!(
                read.as_ref(),
                Ok(&written),
                "line {line}: the parsed {kind} differs from the page"
            );
        }
        if said.is_some() {
            from.insert(kind.clone());
        }
        if heard.is_some() {
            to.insert(kind);
        }
    }
    let all = |kinds: &[&str]| {
        kinds
            .iter()
            .map(|k| (*k).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        from,
        all(&FromExecutor::KINDS),
        "each kind from the executor has an example"
    );
    assert_eq!(
        to,
        all(&ToExecutor::KINDS),
        "each kind to the executor has an example"
    );
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
    let start = examples()
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

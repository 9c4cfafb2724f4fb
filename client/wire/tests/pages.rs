//! The documentation pages that this crate generates are current.

#![allow(missing_docs)] // tests are read, not imported
#![allow(clippy::disallowed_methods)] // these tests read pages; only the library does no I/O

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::events::{EventTopic, Reason};
use headroom_wire::v1::explain::Explanation;

fn page(name: &str, made: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page exists");
    assert!(
        kept == made,
        "docs/{name} is out of date: run the tests once with HEADROOM_UPDATE_GOLDEN=1"
    );
}

#[test]
fn the_page_of_errors_is_current() {
    page("errors.md", &errors());
}

#[test]
fn the_page_of_events_is_current() {
    page("events.md", &events());
}

/// `docs/errors.md`: one section for each code.
fn errors() -> String {
    let mut text = String::from(
        "# Errors\n\nGenerated from `client/wire/src/v1/explain.rs`; a test keeps it current.\n\n\
         Every refusal is a problem document (RFC 9457, `application/problem+json`). Its `code` is stable and never gets a second\n\
         meaning; its `type` is the address of the code's page on the server that answered: `/v1/errors/CODE`. `detail`\n\
         describes this case, `hints` the possible fixes, `instance` has the id of the request in the log, and `retryable`\n\
         states whether the same call may succeed later. `rmctl explain CODE` shows a section of this page.\n",
    );
    for code in ErrorCode::ALL {
        let Explanation {
            title,
            status,
            retryable,
            cause,
            remedies,
            ..
        } = code.explanation();
        let again = if retryable {
            "may succeed later"
        } else {
            "does not succeed unchanged"
        };
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\n## {code}\n\n**{title}.** HTTP status {status}; the same call {again}.\n\n{cause}\n\n"
        );
        for remedy in remedies {
            let _ = writeln!(text, "- {remedy}");
        }
    }
    text
}

/// The page `docs/events.md`: every reason with its topic, level and trigger.
fn events() -> String {
    let mut text = String::from(ABOUT_EVENTS);
    for topic in EventTopic::ALL {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\n## {}\n\n| reason | level | when |\n| --- | --- | --- |\n",
            topic.as_str()
        );
        for reason in Reason::ALL.iter().filter(|r| r.topic() == topic) {
            let _ = writeln!(
                text,
                "| `{reason}` | {} | {} |",
                reason.weight().as_str(),
                reason.when()
            );
        }
    }
    text
}

const ABOUT_EVENTS: &str = "# Events

Generated from `client/types/src/reason.rs`; a test keeps it current.

Each entry of the event log has a number, time, level, reason, object, application, node, and a message. Numbers increase across
restarts and never repeat. `GET /v1/events` returns the kept events. `?follow=true` also streams new ones, as lines of JSON or as
server-sent events. `?cursor=N` (or `Last-Event-ID`) continues after this event. A cursor older than the oldest kept event is
refused (HR0411), so that a reader notices missing events.

An event must match all filters: `app`, `topic` (a heading below), `type=warning`, `reason`, `object` (an id, or the beginning of ids), `node`,
`since` (an age such as `1h`). The latest 100000 are kept in memory; the files `events-*.jsonl` in `log` of the state directory keep more, are
bounded by `events.segment` and `events.segments`, and are read again at the start. An event is written to the file at once, so it survives the end of the
resource manager. It survives the end of the host after the next sync to disk: after every 256 events, and one second after the
first unsynced event.
";

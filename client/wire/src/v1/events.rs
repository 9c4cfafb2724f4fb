//! The event log of the cluster, for operators.

use std::fmt::Write as _;

use headroom_types::{AppId, NodeId, UnixMillis};

pub use headroom_types::reason::{EventTopic, Reason, ReasonLevel};
use serde::{Deserialize, Serialize};

/// The level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventLevel {
    /// Expected operation.
    Normal,
    /// Needs attention.
    Warning,
}

/// `GET /v1/events?cursor=N&follow=true`: one JSON object per line (or SSE, with `Accept:
/// text/event-stream`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoggedEvent {
    /// Sequence number; the cursor to continue from.
    pub index: u64,
    /// Time of the event.
    pub time: UnixMillis,
    /// Level.
    pub level: EventLevel,
    /// A name of the closed list [`Reason`]: `JobSubmitted`, `OomKilled`, `Escalated` … A master of
    /// a later version may send other names.
    pub reason: String,
    /// Id of the subject.
    pub object: String,
    /// Application of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    /// Node of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Description, for users.
    pub message: String,
}

/// The page `docs/events.md`: every reason with its topic, level and trigger.
pub fn page() -> String {
    let mut text = String::from(ABOUT);
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

const ABOUT: &str = "# Events

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

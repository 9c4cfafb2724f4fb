//! The event log: what an operator would want to have seen.

use headroom_types::{AppId, NodeId, UnixMillis};
use serde::{Deserialize, Serialize};

/// How much attention an event wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventLevel {
    /// As planned.
    Normal,
    /// Worth a look.
    Warning,
}

/// `GET /v1/events?cursor=N&follow=true`: one line of JSON each (or SSE, by `Accept: text/event-stream`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Counts up; where to go on from.
    pub index: u64,
    /// When.
    pub time: UnixMillis,
    /// How much attention it wants.
    pub level: EventLevel,
    /// Closed word: `JobSubmitted`, `OomKilled`, `Escalated` …
    pub reason: String,
    /// What it is about: an id.
    pub object: String,
    /// The application it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    /// The node it happened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// For people.
    pub message: String,
}

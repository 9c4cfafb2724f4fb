//! The event log of the cluster, for operators.

use headroom_types::{AppId, NodeId, UnixMillis, word_enum};

pub use headroom_types::reason::{EventTopic, Reason, ReasonLevel};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

word_enum! {
    /// The level of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum EventLevel: "is not a level of events; use" {
        /// Expected operation.
        Normal = "normal",
        /// Needs attention.
        Warning = "warning",
    }
}

/// `GET /v1/events?cursor=N&follow=true`: one JSON object per line (or SSE, with `Accept:
/// text/event-stream`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    /// Node of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Description, for users.
    pub message: String,
}

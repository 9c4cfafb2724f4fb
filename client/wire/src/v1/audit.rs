//! Who changed what: one line for each call that changes something.

use headroom_types::UnixMillis;
use serde::{Deserialize, Serialize};

use super::error::Code;

/// One call that was to change something: `GET /v1/audit`, and a line of the files `audit-*.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditLine {
    /// Counts up, over restarts too; `?after=` takes it.
    pub index: u64,
    /// When it was answered.
    pub time: UnixMillis,
    /// Who, as far as it is known: the address it came from.
    pub who: String,
    /// From where: an address.
    pub from: String,
    /// What was done: the method and the last word of the address, such as `POST kill`.
    pub verb: String,
    /// To what: the address without `/v1`.
    pub object: String,
    /// The id of the request, as in the log and in the answer.
    pub request: String,
    /// The HTTP status it was answered with.
    pub outcome: u16,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// How it was, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// How it is since then, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

//! Audit log: one line per call that changes something.

use headroom_types::UnixMillis;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::ErrorCode;

/// One call of the audit log: `GET /v1/audit`, and a line of the files `audit-*.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// Sequence number, also over restarts; usable in `?after=`.
    pub index: u64,
    /// Time of the response.
    pub time: UnixMillis,
    /// Caller, as far as known; otherwise its address.
    pub who: String,
    /// Address of the caller.
    pub from: String,
    /// Method and last component of the path, such as `POST kill`.
    pub verb: String,
    /// Path without `/v1`.
    pub object: String,
    /// Id of the request, as in the log and in the response.
    pub request: String,
    /// HTTP status of the response.
    pub outcome: u16,
    /// Error code of a rejected call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// State before the call, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// State after the call, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

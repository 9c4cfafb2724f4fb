//! Errors as RFC 9457 problem documents with a stable code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::queues::QueueProblem;

/// Declares the codes. Each row has the HTTP status, the title, and whether the same call may
/// succeed later.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $code:ident: $status:literal, $title:literal, $retryable:literal;)+) => {
        /// Stable error codes. A code never gets a second meaning.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            ToSchema,
        )]
        pub enum ErrorCode {
            $($(#[$doc])* $code,)+
        }

        impl ErrorCode {
            /// All codes.
            pub const ALL: [ErrorCode; [$($status),+].len()] = [$(ErrorCode::$code),+];
            /// HTTP status of the code.
            pub fn status(self) -> u16 {
                match self {
                    $(ErrorCode::$code => $status,)+
                }
            }
            /// Title of the code.
            pub fn title(self) -> &'static str {
                match self {
                    $(ErrorCode::$code => $title,)+
                }
            }
            /// Whether the same call may succeed later.
            pub fn retryable(self) -> bool {
                match self {
                    $(ErrorCode::$code => $retryable,)+
                }
            }
        }
    };
}
error_codes! {
    /// The body or a parameter is invalid.
    HR0400: 400, "The request is not valid", false;
    /// The caller is not authenticated, and the call requires authentication.
    HR0401: 401, "Not authenticated", false;
    /// The caller is authenticated and lacks the right.
    HR0403: 403, "Not allowed", false;
    /// The application, node, container or request does not exist.
    HR0404: 404, "Not found", false;
    /// The state of the object does not allow the call, or a concurrent change was first.
    HR0409: 409, "Conflict with the current state", false;
    /// The sender uses an earlier epoch of the resource manager: register again.
    HR0410: 410, "Stale epoch", false;
    /// The cursor is older than the kept entries: start from a snapshot.
    HR0411: 410, "Cursor too old", false;
    /// The body, a count or a name is too large.
    HR0413: 413, "Too large", false;
    /// The requested range begins after the end.
    HR0416: 416, "Beyond the end of the log", true;
    /// The job is not live: it accepts no tasks while it runs.
    HR0418: 409, "Not a live job", false;
    /// The application has ended.
    HR0419: 410, "The application has ended", false;
    /// This resource manager is a standby, and the header `headroom-leader` names the leader.
    HR0421: 421, "Not the leader", true;
    /// Infeasible on every node or in the queue.
    HR0422: 422, "Can never be scheduled", false;
    /// The call needs another protocol on its connection, named by the header `Upgrade`.
    HR0426: 426, "Upgrade required", false;
    /// Too many concurrent calls: try again later.
    HR0429: 429, "Too many requests", true;
    /// Internal error.
    HR0500: 500, "Internal fault", true;
    /// Not ready, or a required part does not respond.
    HR0503: 503, "Not available", true;
    /// The store of uploaded files is full.
    // Space becomes free after hours, not after a short wait.
    HR0507: 507, "The upload store is full", false;
}

impl ErrorCode {
    /// Path of its page on the server.
    pub fn address(self) -> String {
        format!("/v1/errors/{self}")
    }
}
impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
impl std::str::FromStr for ErrorCode {
    type Err = String;
    /// Parses a code in any case, with or without letters: `HR0404`, `hr0404`, `404`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim().to_ascii_uppercase();
        let digits = digits.strip_prefix("HR").unwrap_or(&digits);
        let meant = ErrorCode::ALL
            .into_iter()
            .find(|code| code.to_string()[2..] == format!("{digits:0>4}"));
        meant.ok_or_else(|| format!("{text:?} is not an error code; write for example HR0404"))
    }
}

/// A result, or the reason why there is none.
pub type ProblemResult<T> = Result<T, ProblemDetails>;

/// An error, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// Type of the problem, and path of its page on the server: `/v1/errors/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title, the same for all problems of this type.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Description of this occurrence.
    pub detail: String,
    /// The stable code.
    pub code: ErrorCode,
    /// True if the same call may succeed later.
    pub retryable: bool,
    /// Remedies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Id of the request, as in the log of the resource manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Errors in a tree of queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<QueueProblem>,
    /// Lower bound, exclusive, for a number in the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
    /// The exact reason, for problems that programs treat differently from others of the same code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ProblemReason>,
}

/// The exact reason of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemReason {
    /// The node is decommissioned and cannot register before an undrain.
    NodeDecommissioned,
    /// The body of an upload has another SHA-256 than its address.
    DigestMismatch,
    /// A reason of a later version.
    #[serde(other)]
    Unknown,
}

impl ProblemDetails {
    /// A problem with the code `code` and the description `detail`.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        ProblemDetails {
            kind: code.address(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            retryable: code.retryable(),
            hints: Vec::new(),
            instance: None,
            problems: Vec::new(),
            above: None,
            reason: None,
        }
    }
    /// The body or a parameter is invalid: [`ErrorCode::HR0400`].
    pub fn bad_request(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0400, detail)
    }
    /// The caller is not authenticated: [`ErrorCode::HR0401`].
    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0401, detail)
    }
    /// The caller lacks a right: [`ErrorCode::HR0403`].
    pub fn forbidden(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0403, detail)
    }
    /// The object does not exist: [`ErrorCode::HR0404`].
    pub fn not_found(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0404, detail)
    }
    /// The state of the object does not allow the call: [`ErrorCode::HR0409`].
    pub fn conflict(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0409, detail)
    }
    /// The body, a count or a name is too large: [`ErrorCode::HR0413`].
    pub fn too_large(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0413, detail)
    }
    /// Internal error: [`ErrorCode::HR0500`].
    pub fn internal(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0500, detail)
    }
    /// Not ready, or a required part does not respond: [`ErrorCode::HR0503`].
    pub fn unavailable(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0503, detail)
    }
    /// The store of uploaded files is full: [`ErrorCode::HR0507`].
    pub fn uploads_full(detail: impl Into<String>) -> Self {
        ProblemDetails::new(ErrorCode::HR0507, detail)
    }
    /// Adds the exact reason.
    #[must_use]
    pub fn reason(mut self, reason: ProblemReason) -> Self {
        self.reason = Some(reason);
        self
    }
    /// Adds a remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}
impl std::fmt::Display for ProblemDetails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}
impl std::error::Error for ProblemDetails {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_later_version_is_unknown_and_none_is_left_out() {
        let plain = ProblemDetails::new(ErrorCode::HR0409, "no");
        let mut json = serde_json::to_value(&plain).expect("encodes");
        assert!(json.get("reason").is_none(), "{json}");
        let named = plain.reason(ProblemReason::NodeDecommissioned);
        let encoded = serde_json::to_value(&named).expect("encodes");
        assert_eq!(encoded["reason"], "node_decommissioned");
        json["reason"] = "node_on_the_moon".into();
        let later: ProblemDetails = serde_json::from_value(json).expect("decodes");
        assert_eq!(later.reason, Some(ProblemReason::Unknown));
    }
}

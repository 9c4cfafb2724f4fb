//! Errors as RFC 9457 problem documents with a stable code.

use serde::{Deserialize, Serialize};

use super::queues::QueueProblem;

/// Stable codes. A code is never given a second meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Code {
    /// The body or a parameter is not what the call takes.
    HR0400,
    /// Nobody knows who calls, and the call is not for everybody.
    HR0401,
    /// Who calls is known, and may not do this.
    HR0403,
    /// No such application, node, container or request.
    HR0404,
    /// The state of the thing does not allow it, or somebody else was first.
    HR0409,
    /// The sender speaks to an earlier life of the resource manager: register again.
    HR0410,
    /// The cursor is older than what is kept: start from a snapshot.
    HR0411,
    /// Too large: body, count or name.
    HR0413,
    /// The range that is asked for begins behind the end of what there is.
    HR0416,
    /// Can never fit on any node or in the queue.
    HR0422,
    /// Too many of them at once: try again later.
    HR0429,
    /// A fault inside.
    HR0500,
    /// Not ready, or a part that is needed does not answer.
    HR0503,
}

impl Code {
    /// All of them.
    pub const ALL: [Code; 13] = [
        Code::HR0400,
        Code::HR0401,
        Code::HR0403,
        Code::HR0404,
        Code::HR0409,
        Code::HR0410,
        Code::HR0411,
        Code::HR0413,
        Code::HR0416,
        Code::HR0422,
        Code::HR0429,
        Code::HR0500,
        Code::HR0503,
    ];
    /// The address of its page on the server that answered.
    pub fn address(self) -> String {
        format!("/v1/errors/{self}")
    }
    /// The HTTP status it travels with.
    pub fn status(self) -> u16 {
        match self {
            Code::HR0400 => 400,
            Code::HR0401 => 401,
            Code::HR0403 => 403,
            Code::HR0404 => 404,
            Code::HR0409 => 409,
            Code::HR0410 | Code::HR0411 => 410,
            Code::HR0413 => 413,
            Code::HR0416 => 416,
            Code::HR0422 => 422,
            Code::HR0429 => 429,
            Code::HR0500 => 500,
            Code::HR0503 => 503,
        }
    }
    /// The same title for every problem of this code.
    pub fn title(self) -> &'static str {
        match self {
            Code::HR0400 => "The request is not valid",
            Code::HR0401 => "Nobody knows who calls",
            Code::HR0403 => "Not allowed",
            Code::HR0404 => "There is no such thing",
            Code::HR0409 => "Its state does not allow that",
            Code::HR0410 => "Stale epoch",
            Code::HR0411 => "Cursor too old",
            Code::HR0413 => "Too large",
            Code::HR0416 => "Nothing there yet",
            Code::HR0422 => "Can never be scheduled",
            Code::HR0429 => "Too many at once",
            Code::HR0500 => "Internal fault",
            Code::HR0503 => "Not available",
        }
    }
    /// Whether the same call may succeed later.
    pub fn retryable(self) -> bool {
        match self {
            Code::HR0416 | Code::HR0429 | Code::HR0500 | Code::HR0503 => true,
            Code::HR0400
            | Code::HR0401
            | Code::HR0403
            | Code::HR0404
            | Code::HR0409
            | Code::HR0410
            | Code::HR0411
            | Code::HR0413
            | Code::HR0422 => false,
        }
    }
}
impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
impl std::str::FromStr for Code {
    type Err = String;
    /// In any case, and with or without its letters: `HR0404`, `hr0404`, `404`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim().to_ascii_uppercase();
        let digits = digits.strip_prefix("HR").unwrap_or(&digits);
        let meant = Code::ALL.into_iter().find(|code| code.to_string()[2..] == format!("{digits:0>4}"));
        meant.ok_or_else(|| format!("{text:?} is not an error code; they read like HR0404"))
    }
}

/// One error, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Identifies the kind of problem, and is the address of its page on the server that answered: `/v1/errors/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for every problem of this kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// The stable code.
    pub code: Code,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Which request it was: the id under which the log of the resource manager has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Everything that is wrong with a tree of queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<QueueProblem>,
    /// A number in the call has to be above this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
}

impl Problem {
    /// A problem of the kind `code` that happened as `detail` says.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem {
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
        }
    }
    /// The same with one more thing to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}
impl std::error::Error for Problem {}

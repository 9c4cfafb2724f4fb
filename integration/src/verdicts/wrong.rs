//! A wrong verdict with all data that is known about it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A wrong verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrongVerdict {
    /// The case.
    pub case: String,
    /// The round.
    pub round: u32,
    /// The right verdict.
    pub expected: String,
    /// The reported verdict.
    pub verdict: String,
    /// The difference.
    pub why: String,
    /// The evidence of the verdict.
    pub evidence: Value,
    /// The last lines of the program's standard error.
    pub log_tail: String,
    /// The agent's log lines about the container.
    pub agent: Vec<String>,
}

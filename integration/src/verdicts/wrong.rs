//! A verdict that was not right, with all that was known when it was given.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wrong {
    /// Which case.
    pub case: String,
    /// Which round of it.
    pub round: u32,
    /// What would have been right.
    pub expected: String,
    /// What was said.
    pub verdict: String,
    /// What is wrong with it.
    pub why: String,
    /// What it was decided from.
    pub evidence: Value,
    /// The end of the program's standard error.
    pub log_tail: String,
    /// What the agent logged about it.
    pub agent: Vec<String>,
}

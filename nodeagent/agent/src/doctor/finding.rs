//! A finding of the doctor: the result of one check, with the fix.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// As required.
    Ok,
    /// The agent works, but a feature is limited or missing.
    Warn,
    /// A node on this host takes no work, or cannot do its task.
    Fail,
}

/// One finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// Code of the check. Its meaning never changes.
    pub code: Cow<'static, str>,
    /// The result.
    pub state: CheckResult,
    /// The purpose of the checked feature.
    pub what: Cow<'static, str>,
    /// The state that was found.
    pub found: String,
    /// The fix. `None` if none is needed.
    pub fix: Option<String>,
}

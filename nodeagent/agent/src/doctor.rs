//! The doctor: checks which features this host offers to a node agent, and names a fix for each
//! problem.
//!
//! The checks change nothing: no cgroup, no process except `systemctl --version`, and no file except
//! one in the shared directory of journals, which they remove. They do not show that the enforcer works; the agent proves that at its start (`proof`). Blocking.

mod facts;
mod finding;
mod judge;

use headroom_config::NodeAgentConfig;

pub use self::finding::{CheckResult, DoctorFinding};
pub(crate) use self::judge::left_behind;

use self::facts::DoctorFacts;

/// Runs all checks for an agent of this configuration. Findings are in reading order. The state
/// directory need not exist.
pub fn examine(config: &NodeAgentConfig) -> Vec<DoctorFinding> {
    judge::all(&DoctorFacts::read(config), config)
}

/// The worst result of all findings.
pub fn worst(findings: &[DoctorFinding]) -> CheckResult {
    findings
        .iter()
        .map(|f| f.state)
        .max()
        .unwrap_or(CheckResult::Ok)
}

/// Logs the findings at the start of an agent.
pub(crate) fn log_findings(findings: &[DoctorFinding]) {
    for DoctorFinding {
        code,
        state,
        found,
        fix,
        ..
    } in findings
    {
        let fix = fix.as_deref().unwrap_or_default();
        let code = code.as_ref();
        match state {
            CheckResult::Ok => tracing::debug!(code, found, "this host"),
            CheckResult::Warn => {
                tracing::info!(code, found, fix, "a check of this host gives a warning")
            }
            CheckResult::Fail => tracing::warn!(code, found, fix, "a check of this host failed"),
        }
    }
}

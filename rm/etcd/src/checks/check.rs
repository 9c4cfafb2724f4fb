//! One check of an etcd.

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    /// As required.
    Ok,
    /// Resource managers work, but less reliably or more slowly than they could.
    Warn,
    /// Resource managers cannot lead.
    Fail,
}

/// A check of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdCheck {
    /// Code of the check. Its meaning never changes.
    pub code: &'static str,
    /// The result.
    pub state: CheckState,
    /// The reason for the check.
    pub what: &'static str,
    /// The state that was found.
    pub found: String,
    /// The fix. `None` if none is needed.
    pub fix: Option<String>,
}

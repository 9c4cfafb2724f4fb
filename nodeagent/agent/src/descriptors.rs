//! The open-file limit of the agent. It needs several descriptors per container, more than the
//! usual soft limit of 1024.
//!
//! The agent raises its soft limit to its hard limit. Its child processes get the original limit,
//! because programs that use `select` break above 1024.

use std::sync::OnceLock;

use headroom_node_exec::{RlimitKind, RlimitSetting};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The limit with which this process was started.
static ORIGINAL: OnceLock<RlimitSetting> = OnceLock::new();

/// Raises the soft limit to the hard limit. Best effort: with a lower limit the agent can hold
/// fewer containers.
pub(crate) fn raise() {
    let was = getrlimit(Resource::Nofile);
    let number = |n: Option<u64>| n.unwrap_or(u64::MAX);
    ORIGINAL.get_or_init(|| RlimitSetting {
        limit: RlimitKind::OpenFiles,
        soft: number(was.current),
        hard: number(was.maximum),
    });
    if let Err(error) = setrlimit(
        Resource::Nofile,
        rustix::process::Rlimit {
            current: was.maximum,
            ..was
        },
    ) {
        tracing::debug!(%error, "the limit of open files cannot be raised; the present limit applies");
    }
}

/// The limit for child processes. `None` before [`raise`].
pub(crate) fn of_children() -> Option<RlimitSetting> {
    ORIGINAL.get().copied()
}

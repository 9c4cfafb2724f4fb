//! How many files the agent may have open: a handful for each container, which is beyond the usual 1024 of a process.
//!
//! The agent takes all it may have. What it starts gets what the agent itself was started with, because programs that use `select`
//! break above 1024.

use std::sync::OnceLock;

use headroom_node_exec::{Limit, Rlimit};
use rustix::process::{Resource, getrlimit, setrlimit};

/// What this process was started with.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Takes all that this process may have. Best effort: with less it carries fewer containers.
pub(crate) fn raise() {
    let was = getrlimit(Resource::Nofile);
    let number = |n: Option<u64>| n.unwrap_or(u64::MAX);
    ORIGINAL.get_or_init(|| Rlimit { limit: Limit::OpenFiles, soft: number(was.current), hard: number(was.maximum) });
    if let Err(error) = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: was.maximum, ..was }) {
        tracing::debug!(%error, "the limit of open files cannot be raised, ignoring");
    }
}

/// The limit for what the agent starts; none when its own was not touched.
pub(crate) fn of_children() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}

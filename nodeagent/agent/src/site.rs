//! What every job of the agent needs to know about where it is.

use std::path::PathBuf;

use headroom_node_cgroup::Enforcer;
use headroom_types::{EnforcerKind, NodeId};

use crate::disk::Layout;

/// This node. Does not change while the agent runs.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its name.
    pub(crate) node: NodeId,
    /// Its files.
    pub(crate) layout: Layout,
    /// What holds its limits.
    pub(crate) enforcer: Enforcer,
    /// Where the sibling programs are.
    pub(crate) bin_dir: PathBuf,
    /// The resource manager's address, for the containers.
    pub(crate) rm: String,
}

impl Site {
    /// Which kind of enforcer.
    pub(crate) fn kind(&self) -> EnforcerKind {
        self.enforcer.kind()
    }
}

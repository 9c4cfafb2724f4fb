//! Arguments of `rmctl doctor`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;

use crate::complete;

/// Arguments of `rmctl doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Configuration file of the node agent; it sets the directories that are checked
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// State directory of the node agent or resource manager
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Cgroup directory of the node agent
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup_root: Option<PathBuf>,
    /// Configuration file of a resource manager: check its etcd and its own address instead of a node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "cgroup_root", "node"])]
    pub(crate) manager: Option<PathBuf>,
    /// Show the checks of this node's agent at its start, from its own address, instead of checking
    /// this host
    #[arg(long, value_name = "NODE", conflicts_with_all = ["config", "state", "cgroup_root"], add = Completer::new(complete::nodes))]
    pub(crate) node: Option<headroom_types::NodeId>,
}

//! The node context: the data about this node that every job of the agent needs.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use headroom_config::{IpcScope, Isolation, LogRetention};
use headroom_node_cgroup::Enforcer;
use headroom_node_exec::{Privilege, namespaces};
use headroom_transport::ReloadingKeys;
use headroom_types::{EnforcerKind, NodeId};

use crate::disk::StateLayout;
use crate::launcher::Launcher;
use crate::localize::Localizer;
use crate::unattributed::Leftovers;

/// The node context. It does not change while the agent runs, except for the limits of the logs.
#[derive(Debug)]
pub(crate) struct NodeContext {
    /// Node name.
    pub(crate) node: NodeId,
    /// Files of the agent.
    pub(crate) layout: StateLayout,
    /// Enforcer of the limits.
    pub(crate) enforcer: Enforcer,
    /// Directory of the sibling programs.
    pub(crate) bin_dir: PathBuf,
    /// URL of the resource manager, for the containers.
    pub(crate) rm: String,
    /// The certificate of this node and the authority that it trusts. `None` without TLS.
    pub(crate) keys: Option<Arc<ReloadingKeys>>,
    /// Listen address and host name of masters, so that other hosts can connect. `None` on
    /// loopback.
    pub(crate) for_masters: Option<(String, String)>,
    /// Isolation of the programs.
    pub(crate) isolation: Isolation,
    /// Limits of the program logs.
    pub(crate) logs: RwLock<LogRetention>,
    /// Fetches the files of launches.
    pub(crate) localizer: Localizer,
    /// Forks shims.
    pub(crate) launcher: Launcher,
    /// Privileges of this agent.
    pub(crate) rights: AgentPrivileges,
    /// Memory that ended containers left.
    pub(crate) leftovers: Leftovers,
}

/// Privileges of the agent process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentPrivileges {
    /// It can start programs as other users.
    pub(crate) root: bool,
    /// It can give programs their own file systems.
    pub(crate) mounts: bool,
    /// The way to give programs their own IPC namespaces. `None` if there is none.
    pub(crate) namespaces: Option<Privilege>,
    /// It can create a user namespace that maps user 0 to user 0.
    pub(crate) maps_root: bool,
    /// It can raise limits beyond its own.
    pub(crate) limits: bool,
}

/// Numbers of capabilities. Root inside a container may lack some of them.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SETFCAP: u32 = 31;

impl AgentPrivileges {
    /// The privileges of this process.
    pub(crate) fn own() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status
            .lines()
            .find_map(|l| l.strip_prefix("CapEff:"))
            .map(str::trim);
        let effective = effective
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .unwrap_or(0);
        let root = nix::unistd::geteuid().is_root();
        let has = |capability: u32| effective >> capability & 1 == 1;
        let mounts = root && has(CAP_SYS_ADMIN);
        // In a user namespace with one user, root could not start programs as other users.
        let privilege = if root {
            mounts.then_some(Privilege::SysAdmin)
        } else {
            Some(Privilege::UserNamespace)
        };
        let namespaces = privilege.filter(|privilege| match namespaces::probe(*privilege) {
            Ok(()) => true,
            Err(why) => {
                tracing::info!(why, "the agent cannot create IPC namespaces for programs");
                false
            }
        });
        AgentPrivileges {
            root,
            mounts,
            namespaces,
            maps_root: mounts && has(CAP_SETFCAP),
            limits: has(CAP_SYS_RESOURCE),
        }
    }
}

impl NodeContext {
    /// The limits of the program logs.
    pub(crate) fn logs(&self) -> LogRetention {
        // A poisoned lock is harmless: the value is written as a whole.
        *self.logs.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// Replaces the limits of the program logs.
    pub(crate) fn set_logs(&self, logs: LogRetention) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = logs;
    }
    /// The kind of the enforcer.
    pub(crate) fn kind(&self) -> EnforcerKind {
        self.enforcer.kind()
    }
    /// Whether the agent can start programs as other users.
    pub(crate) fn is_root(&self) -> bool {
        self.rights.root
    }
    /// The way containers get their own IPC namespace and `/dev/shm`. `None` if they share the
    /// host's.
    pub(crate) fn ipc_privilege(&self) -> Option<Privilege> {
        match self.isolation.ipc {
            IpcScope::Task | IpcScope::Container => self.rights.namespaces,
            IpcScope::Host => None,
        }
    }
    /// Whether an IPC namespace is configured but not available.
    pub(crate) fn lacks_ipc_namespace(&self) -> bool {
        self.isolation.ipc != IpcScope::Host && self.rights.namespaces.is_none()
    }
    /// Whether containers get their own `/tmp`. Otherwise only `TMPDIR` names one.
    pub(crate) fn has_private_tmp(&self) -> bool {
        self.isolation.private_tmp && self.rights.mounts
    }
}

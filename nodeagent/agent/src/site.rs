//! What every job of the agent needs to know about where it is.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use headroom_config::{IpcScope, Isolation, Logs};
use headroom_node_cgroup::Enforcer;
use headroom_node_exec::{Privilege, namespaces};
use headroom_transport::Keys;
use headroom_types::{EnforcerKind, NodeId};

use crate::disk::Layout;
use crate::launcher::Launcher;
use crate::localize::Localizer;
use crate::unattributed::Leftovers;

/// This node. Does not change while the agent runs, but for the bounds of its logs.
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
    /// What this node shows and who vouches for everybody, where that is asked.
    pub(crate) keys: Option<Arc<Keys>>,
    /// Where masters listen so that other hosts reach them, and by which name; on loopback when it is nothing.
    pub(crate) for_masters: Option<(String, String)>,
    /// What programs may do.
    pub(crate) isolation: Isolation,
    /// How much of what they say is kept.
    pub(crate) logs: RwLock<Logs>,
    /// Fetches what launches name.
    pub(crate) localizer: Localizer,
    /// Makes shims.
    pub(crate) launcher: Launcher,
    /// What this agent may do itself.
    pub(crate) rights: Rights,
    /// Memory that ended containers left behind.
    pub(crate) leftovers: Leftovers,
}

/// What the agent may do itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// It can start programs as other users.
    pub(crate) root: bool,
    /// It can give programs file systems of their own.
    pub(crate) mounts: bool,
    /// How it can give programs IPC namespaces of their own; `None` where it cannot.
    pub(crate) namespaces: Option<Privilege>,
    /// It can make a user namespace in which user 0 is itself.
    pub(crate) maps_root: bool,
    /// It can raise limits beyond its own.
    pub(crate) limits: bool,
}

/// Numbers of capabilities. Root in a container of somebody else's may have less than all.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SETFCAP: u32 = 31;

impl Rights {
    /// Those of this process.
    pub(crate) fn own() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:")).map(str::trim);
        let effective = effective.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let root = nix::unistd::geteuid().is_root();
        let has = |capability: u32| effective >> capability & 1 == 1;
        let mounts = root && has(CAP_SYS_ADMIN);
        // In a user namespace with one user root could not start programs as others.
        let privilege = if root { mounts.then_some(Privilege::SysAdmin) } else { Some(Privilege::UserNamespace) };
        let namespaces = privilege.filter(|privilege| match namespaces::probe(*privilege) {
            Ok(()) => true,
            Err(why) => {
                tracing::info!(why, "programs cannot be given IPC namespaces of their own");
                false
            }
        });
        Rights { root, mounts, namespaces, maps_root: mounts && has(CAP_SETFCAP), limits: has(CAP_SYS_RESOURCE) }
    }
}

impl Site {
    /// How much of what programs say is kept.
    pub(crate) fn logs(&self) -> Logs {
        // A copy is written whole.
        *self.logs.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// Other bounds from now on.
    pub(crate) fn set_logs(&self, logs: Logs) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = logs;
    }
    /// Which kind of enforcer.
    pub(crate) fn kind(&self) -> EnforcerKind {
        self.enforcer.kind()
    }
    /// Whether it can start programs as other users.
    pub(crate) fn is_root(&self) -> bool {
        self.rights.root
    }
    /// How containers get an IPC namespace and a `/dev/shm` of their own; `None` where they share the host's.
    pub(crate) fn ipc_privilege(&self) -> Option<Privilege> {
        match self.isolation.ipc {
            IpcScope::Task | IpcScope::Container => self.rights.namespaces,
            IpcScope::Host => None,
        }
    }
    /// Whether an IPC namespace was asked for and cannot be had.
    pub(crate) fn lacks_ipc_namespace(&self) -> bool {
        self.isolation.ipc != IpcScope::Host && self.rights.namespaces.is_none()
    }
    /// Whether containers get a `/tmp` of their own; otherwise only `TMPDIR` names one.
    pub(crate) fn has_private_tmp(&self) -> bool {
        self.isolation.private_tmp && self.rights.mounts
    }
}

//! The privileges of the agent process. Read once, at start.

use headroom_node_exec::{Privilege, effective_capabilities, probe_namespaces};

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
        let effective = effective_capabilities();
        let root = nix::unistd::geteuid().is_root();
        let has = |capability: u32| effective >> capability & 1 == 1;
        let mounts = root && has(CAP_SYS_ADMIN);
        // In a user namespace with one user, root could not start programs as other users.
        let privilege = if root {
            mounts.then_some(Privilege::SysAdmin)
        } else {
            Some(Privilege::UserNamespace)
        };
        let namespaces = privilege.filter(|privilege| match probe_namespaces(*privilege) {
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

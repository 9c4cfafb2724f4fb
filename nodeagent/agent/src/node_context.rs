//! The node context: the data about this node that every job of the agent needs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use headroom_config::{AuxServiceConfig, IpcScope, Isolation, JournalPlace, LogRetention};
use headroom_node_cgroup::Enforcer;
use headroom_node_exec::{Privilege, ProcessUser};
use headroom_transport::ReloadingKeys;
use headroom_types::{EnforcerKind, Name, NodeId};

use crate::container_user::{self, ContainerUser};
use crate::disk::StateLayout;
use crate::disk_checks::DiskChecks;
use crate::journals::SharedJournals;
use crate::launcher::ShimLauncher;
use crate::localize::Localizer;
use crate::outer_counters::OuterCounters;
use crate::privileges::AgentPrivileges;
use crate::shared_reading::SharedReading;
use crate::unattributed_memory::Leftovers;

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
    /// Place of the journals of masters. `None` for the directory of each application.
    pub(crate) journal_place: Option<JournalPlace>,
    /// Shared directory or object store of the journals of masters, if that is their place.
    pub(crate) journals: Option<SharedJournals>,
    /// Isolation of the programs.
    pub(crate) isolation: Isolation,
    /// Limits of the program logs.
    pub(crate) logs: RwLock<LogRetention>,
    /// Fetches the files of launches.
    pub(crate) localizer: Localizer,
    /// Forks shims.
    pub(crate) launcher: ShimLauncher,
    /// Privileges of this agent.
    pub(crate) rights: AgentPrivileges,
    /// Memory that ended containers left.
    pub(crate) leftovers: Leftovers,
    /// Counters of the levels around the containers, read once for ends at the same time.
    pub(crate) outer: SharedReading<OuterCounters>,
    /// Checks of the disk after failed launches.
    pub(crate) disk_checks: DiskChecks,
    /// Auxiliary services by name.
    pub(crate) aux_services: BTreeMap<Name, AuxServiceConfig>,
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
    /// The user of a program of `submitter` on this node.
    pub(crate) fn container_user(&self, submitter: Option<&str>) -> anyhow::Result<ContainerUser> {
        if !self.is_root() {
            return Ok(ContainerUser {
                user: None,
                name: None,
            });
        }
        container_user::choose(&self.isolation, submitter, ProcessUser::by_name)
    }
    /// The group that may read the directories of applications whose launches name `services`: the
    /// primary group of the first one's user. `None` without services, and if all programs run as
    /// the agent's user.
    pub(crate) fn aux_service_group(&self, services: &[Name]) -> anyhow::Result<Option<u32>> {
        let named = services.iter().find_map(|name| self.aux_services.get(name));
        let Some(service) = named.filter(|_| self.is_root()) else {
            return Ok(None);
        };
        let user = self.aux_service_user(service)?;
        Ok(Some(user.map_or_else(
            || rustix::process::getegid().as_raw(),
            |user| user.gid,
        )))
    }
    /// The user of an auxiliary service. `None` means the agent's own user.
    pub(crate) fn aux_service_user(
        &self,
        service: &AuxServiceConfig,
    ) -> anyhow::Result<Option<ProcessUser>> {
        let Some(name) = service.user.as_ref().filter(|_| self.is_root()) else {
            return Ok(None);
        };
        let user = ProcessUser::by_name(name)
            .with_context(|| format!("the user {name:?} cannot be looked up"))?;
        user.map(Some).with_context(|| {
            format!("the user {name:?} of an auxiliary service is not known on this node")
        })
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

//! Isolation of a container: the rights, limits, `/tmp` and IPC namespace of its programs.
//!
//! This module decides by the node's configuration; the shim applies the decisions between fork and
//! exec.

use std::path::Path;

use headroom_config::IpcScope;
use headroom_container_shim::record::{
    Privileges, ProgramSpec, ProgramUser as ShimUser, RlimitRecord, UserNamespace,
};
use headroom_node_exec::{Privilege, RlimitKind};
use headroom_types::Bytes;
use headroom_wire::v1::nodes::RunOrder;

use crate::container_user::ContainerUser;
use crate::disk::file;
use crate::environment;
use crate::node_context::NodeContext;

/// Adds the restrictions of a program to its specification.
pub(crate) fn restrain(
    site: &NodeContext,
    identity: &ContainerUser,
    order: &RunOrder,
    dir: &Path,
    app: &Path,
    spec: &mut ProgramSpec,
) {
    spec.user = identity.user.as_ref().map(|u| ShimUser {
        uid: u.uid,
        gid: u.gid,
        groups: u.groups.clone(),
    });
    spec.umask = Some(site.isolation.umask);
    spec.privileges = Privileges::Drop;
    spec.rlimits = rlimits(site);
    if site.has_private_tmp() {
        spec.private_tmp = Some(dir.join(file::TMP));
        spec.tmp_size = site
            .isolation
            .tmp_size
            .map(|size| size.min(order.resource.memory).get());
        spec.visible = vec![dir.to_owned(), app.to_owned(), site.bin_dir.clone()];
    }
    give_ipc_namespace(site, identity, order, spec);
}

/// The resource limits of each process: open files, and no core dumps.
pub(crate) fn rlimits(site: &NodeContext) -> Vec<RlimitRecord> {
    let no_core = RlimitRecord {
        resource: RlimitKind::Core.kernel_number(),
        soft: 0,
        hard: 0,
    };
    vec![open_files(site), no_core]
}

/// Size limit of the container's `/dev/shm`. Bytes.
fn shm_size(site: &NodeContext, order: &RunOrder) -> Bytes {
    let memory = order.resource.memory;
    site.isolation
        .shm_size
        .map_or(memory, |size| size.min(memory))
}

/// Gives the container its own IPC namespace and `/dev/shm`, and its executor the means to do the
/// same for each task.
fn give_ipc_namespace(
    site: &NodeContext,
    identity: &ContainerUser,
    order: &RunOrder,
    spec: &mut ProgramSpec,
) {
    let Some(privilege) = site.ipc_privilege() else {
        return;
    };
    let size = shm_size(site, order).get();
    let for_tasks = site.isolation.ipc == IpcScope::Task && order.launch.task_groups;
    // An agent that is not root cannot be user 0 of a container.
    let user_0 = identity
        .user
        .as_ref()
        .map_or(site.is_root(), |user| user.uid == 0);
    spec.shm_size = Some(size);
    spec.user_namespace = match privilege {
        // If user 0 cannot be mapped, its tasks share the container's namespaces.
        Privilege::SysAdmin if for_tasks && user_0 && site.rights.maps_root => {
            UserNamespace::Delegated
        }
        Privilege::SysAdmin => UserNamespace::Host,
        Privilege::UserNamespace => UserNamespace::Own,
    };
    if for_tasks {
        environment::set(
            &mut spec.env,
            "HEADROOM_TASK_SHM_BYTES",
            size.to_string().into(),
        );
    }
}

/// The limit of open files: at most the agent's own, unless the agent may raise limits.
fn open_files(site: &NodeContext) -> RlimitRecord {
    let wanted = u64::from(site.isolation.open_files);
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .maximum
        .unwrap_or(u64::MAX);
    let most = if site.rights.limits {
        wanted
    } else {
        wanted.min(own)
    };
    RlimitRecord {
        resource: RlimitKind::OpenFiles.kernel_number(),
        soft: most,
        hard: most,
    }
}

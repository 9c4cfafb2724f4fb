//! Adoption of the containers of an earlier agent: running containers, finished records,
//! undelivered reports.
//!
//! Runs once, before the loop. It launches nothing and loses no report. Groups without a container
//! are ended.

use std::fs;
use std::io;
use std::sync::Arc;

use headroom_container_shim::record::{self, ExitRecord, ProcessIdentity};
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::agent::AdoptedState;
use headroom_node_exec::WatchedProcess;
use headroom_types::ContainerId;
use headroom_wire::v1::nodes::RunOrder;

use crate::collect;
use crate::disk::OrderRecord;
use crate::exec;
use crate::node_context::NodeContext;
use crate::resize;

/// One adopted container.
#[derive(Debug)]
pub(crate) struct AdoptedContainer {
    /// The container id.
    pub(crate) id: ContainerId,
    /// The order. `None` if only a report is left.
    pub(crate) order: Option<RunOrder>,
    /// The state in which the container was found.
    pub(crate) found: AdoptedState,
    /// The group of the container, if the kernel still has it.
    pub(crate) group: Option<Arc<EnforcedGroup>>,
    /// The shim of the container, if it lives.
    pub(crate) shim: Option<WatchedProcess>,
}

/// Reads the state directory and the kernel's groups.
pub(crate) fn adopt(site: &NodeContext) -> io::Result<Vec<AdoptedContainer>> {
    let mut adopted = Vec::new();
    for id in site.layout.list()? {
        if !site.layout.is_forgotten(&id)
            && let Some(found) = look_at(site, id)
        {
            adopted.push(found);
        }
    }
    end_unknown_groups(site, &adopted);
    Ok(adopted)
}

fn look_at(site: &NodeContext, id: ContainerId) -> Option<AdoptedContainer> {
    site.layout.clear_temporary(&id);
    let group = open_group(site, &id);
    exec::clear(site, &id, group.as_deref());
    let mut record = site.layout.order(&id);
    if let Some(record) = &mut record {
        resize::finish_resize(site, record, group.as_deref());
    }
    let resumable = record.as_ref().is_some_and(OrderRecord::is_of_this_boot);
    let order = record.map(|record| record.order);
    if let Some(report) = site.layout.report(&id) {
        // The report is written before the group is removed. An agent that was killed in between
        // left the group.
        if let Some(group) = &group {
            collect::remove_group(site, &id, group);
        }
        return Some(AdoptedContainer {
            id,
            order,
            found: AdoptedState::Reported(Box::new(report)),
            group: None,
            shim: None,
        });
    }
    let untouched = site.layout.was_never_started(&id);
    if order.is_none() && untouched {
        // The agent was killed before it wrote the order. The container was never reported, so it
        // will be ordered again.
        if let Err(error) = fs::remove_dir_all(site.layout.container(&id)) {
            tracing::warn!(container_id = %id, %error, "a directory without an order cannot be removed, ignoring");
        }
        return None;
    }
    let asked = site.layout.stop(&id).map(|s| s.cause);
    let program = identity(site, &id, record::file::PID);
    let shim = shim(site, &id);
    let has_record = fs::read(site.layout.container(&id).join(record::file::EXIT))
        .is_ok_and(|r| ExitRecord::decode(&r).is_ok());
    let found = match (&shim, has_record) {
        (Some(_), false) => AdoptedState::Alive { asked },
        (Some(_) | None, true) => AdoptedState::Ended { asked },
        (None, false) if untouched && resumable => AdoptedState::Unstarted,
        // The shim was lost, before or after the start of the program, or the host rebooted. The
        // exit cannot be determined.
        (None, false) => AdoptedState::Ended { asked },
    };
    // Without the program's pid, the shim is the best known root of the process tree.
    let root = program
        .map(|p| p.pid)
        .or(shim.as_ref().map(WatchedProcess::pid));
    if let (Some(group), Some(root)) = (&group, root) {
        group.set_root_pid(root);
    }
    Some(AdoptedContainer {
        id,
        order,
        found,
        group,
        shim,
    })
}

fn open_group(site: &NodeContext, id: &ContainerId) -> Option<Arc<EnforcedGroup>> {
    match site.enforcer.open(&id.to_string()) {
        Ok(group) => group.map(Arc::new),
        Err(error) => {
            tracing::warn!(container_id = %id, %error, "the cgroup of the container cannot be opened");
            None
        }
    }
}

fn identity(site: &NodeContext, id: &ContainerId, name: &str) -> Option<ProcessIdentity> {
    ProcessIdentity::decode(&fs::read_to_string(site.layout.container(id).join(name)).ok()?)
}

/// The shim that a container's directory names, if it lives.
pub(crate) fn named_shim(site: &NodeContext, id: &ContainerId) -> Option<WatchedProcess> {
    let known = identity(site, id, record::file::SHIM_PID)?;
    WatchedProcess::open(known.pid, known.starttime)
        .ok()?
        .filter(WatchedProcess::is_alive)
}

/// The shim by its recorded identity. If the agent was killed between the start and the record, by
/// its command line.
fn shim(site: &NodeContext, id: &ContainerId) -> Option<WatchedProcess> {
    let known = identity(site, id, record::file::SHIM_PID).or_else(|| by_command_line(site, id))?;
    WatchedProcess::open(known.pid, known.starttime)
        .ok()?
        .filter(WatchedProcess::is_alive)
}

fn by_command_line(site: &NodeContext, id: &ContainerId) -> Option<ProcessIdentity> {
    let dir = site
        .layout
        .container(id)
        .into_os_string()
        .into_encoded_bytes();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let mut words = line.split(|b| *b == 0);
        let is_shim = words
            .next()
            .is_some_and(|program| program.ends_with(b"container-shim"));
        if is_shim && words.next() == Some(dir.as_slice()) {
            let starttime = headroom_node_exec::pidfd::starttime_of(pid).ok()??;
            return Some(ProcessIdentity { pid, starttime });
        }
    }
    None
}

/// Ends groups below the agent's root that belong to no known container. No other code would remove
/// them.
fn end_unknown_groups(site: &NodeContext, adopted: &[AdoptedContainer]) {
    let names = match site.enforcer.list() {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "the groups of an earlier agent cannot be listed");
            return;
        }
    };
    for name in names {
        if adopted.iter().any(|a| a.id.to_string() == name) {
            continue;
        }
        tracing::warn!(
            group = name,
            "a cgroup belongs to no container; its processes are killed and it is removed"
        );
        let gone = site.enforcer.open(&name).and_then(|group| match group {
            Some(group) => group
                .kill()
                .and_then(|()| group.remove(std::time::Duration::from_secs(5))),
            None => Ok(()),
        });
        if let Err(error) = gone {
            tracing::warn!(group = name, %error, "the cgroup cannot be removed, ignoring");
        }
    }
}

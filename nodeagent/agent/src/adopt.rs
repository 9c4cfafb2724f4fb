//! Adoption of the containers of an earlier agent: running containers, finished records,
//! undelivered reports, auxiliary services.
//!
//! Runs once, before the loop. It launches nothing and loses no report. Groups without a container
//! are ended.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;

use headroom_container_shim::record;
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::agent::AdoptedState;
use headroom_node_exec::WatchedProcess;
use headroom_types::{ContainerId, Name};
use headroom_wire::v1::nodes::RunOrder;

use crate::aux_service;
use crate::collect;
use crate::disk::OrderRecord;
use crate::exec;
use crate::node_context::NodeContext;
use crate::recorded_process;
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
///
/// Returns the containers, and the auxiliary services that run.
pub(crate) fn adopt(site: &NodeContext) -> io::Result<(Vec<AdoptedContainer>, Vec<Name>)> {
    let mut adopted = Vec::new();
    let services = aux_service::adopt(site);
    for id in site.layout.list()? {
        if !site.layout.is_forgotten(&id)
            && let Some(found) = look_at(site, id)
        {
            adopted.push(found);
        }
    }
    let known: BTreeSet<String> = adopted
        .iter()
        .map(|a| a.id.to_string())
        .chain(services.iter().map(aux_service::group_name))
        .collect();
    end_unknown_groups(site, &known);
    Ok((adopted, services))
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
    let dir = site.layout.container(&id);
    let program = recorded_process::identity(&dir, record::file::PID);
    let has_record = site.layout.has_exit_record(&id);
    // The shim of a container with a record may serve another one.
    let shim = (!has_record)
        .then(|| recorded_process::shim(&dir))
        .flatten();
    let found = match (&shim, has_record) {
        (Some(_), _) => AdoptedState::Alive { asked },
        (None, true) => AdoptedState::Ended { asked },
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

/// The shim that a container's directory names, if it lives.
pub(crate) fn named_shim(site: &NodeContext, id: &ContainerId) -> Option<WatchedProcess> {
    recorded_process::process(&site.layout.container(id), record::file::SHIM_PID)
        .filter(WatchedProcess::is_alive)
}

/// Ends groups below the agent's root that belong to no known container or service. No other code
/// would remove them.
fn end_unknown_groups(site: &NodeContext, known: &BTreeSet<String>) {
    let names = match site.enforcer.list() {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "the groups of an earlier agent cannot be listed");
            return;
        }
    };
    for name in names {
        if known.contains(&name) {
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

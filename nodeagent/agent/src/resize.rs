//! Changes the size of a running container: the limit in the kernel, and the record from which a
//! later agent reads it. Blocking; called as a job of the loop.
//!
//! The intended change is durable before the kernel changes, and the result is durable before it is
//! reported. An agent that is killed in between leaves a record with both sizes, and the kernel's
//! limit then selects one of them ([`finish_resize`]).
//!
//! The program receives no message: its environment and arguments keep the values of its launch.

use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::size::OrderedSize;
use headroom_types::{Bytes, ContainerId, Resource};

use crate::cpu_share::weight;
use crate::disk::{OrderRecord, ResizeInProgress};
use crate::node_context::NodeContext;

/// Gives `id` the size. On error the container keeps its old size. The error is a text for users.
pub(crate) fn resize(
    site: &NodeContext,
    id: &ContainerId,
    group: Option<&EnforcedGroup>,
    size: &OrderedSize,
) -> Result<(), String> {
    let group = group.ok_or("the node agent does not know the cgroup of the container")?;
    let mut record = site
        .layout
        .order(id)
        .ok_or("the node agent cannot read the order of the container")?;
    record.resizing = Some(ResizeInProgress {
        version: size.version,
        resource: size.resource.clone(),
    });
    site.layout
        .write_order(&record)
        .map_err(|e| format!("the node agent cannot record the change: {e}"))?;
    let result = change(group, &record.order.resource, &size.resource);
    conclude(site, &mut record, result.is_ok());
    result
}

/// After a restart: finishes a change that was in progress. The kernel's limit decides whether it
/// happened. Without a kernel limit the old size holds until the resource manager orders the new
/// one again.
pub(crate) fn finish_resize(
    site: &NodeContext,
    record: &mut OrderRecord,
    group: Option<&EnforcedGroup>,
) {
    let limit = group
        .and_then(|g| g.facts().ok())
        .and_then(|facts| facts.limit);
    if let Some(to) = record.resizing.clone() {
        let happened = limit.is_some_and(|limit| is(limit, to.resource.memory));
        if happened
            && let Some(Err(error)) = group.map(|g| g.set_cpu_weight(weight(to.resource.cpus)))
        {
            tracing::warn!(container_id = %record.container, %error, "the cpu weight of the container may be the old one");
        }
        conclude(site, record, happened);
    }
    let ordered = record.order.resource.memory;
    if let Some(limit) = limit.filter(|limit| !is(*limit, ordered)) {
        tracing::warn!(container_id = %record.container, %ordered, %limit, "the limit differs from the order and is reported");
        record.order.resource.memory = limit;
    }
}

fn change(group: &EnforcedGroup, from: &Resource, to: &Resource) -> Result<(), String> {
    group
        .set_memory(to.memory)
        .map_err(|error| format!("{error}; the container keeps {}", from.memory))?;
    group.set_cpu_weight(weight(to.cpus)).map_err(|error| {
        if let Err(error) = group.set_memory(from.memory) {
            tracing::error!(group = group.name(), %error, "the old limit cannot be restored");
        }
        format!("{error}; the container keeps {from}")
    })
}

fn conclude(site: &NodeContext, record: &mut OrderRecord, happened: bool) {
    if let Some(to) = record.resizing.take().filter(|_| happened) {
        (record.order.version, record.order.resource) = (to.version, to.resource);
    }
    if let Err(error) = site.layout.write_order(record) {
        tracing::error!(container_id = %record.container, %error, "the size cannot be recorded; a restart reads it from the kernel");
    }
}

/// Whether the kernel's limit is the desired one: the kernel rounds down to whole pages.
fn is(limit: Bytes, wanted: Bytes) -> bool {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    limit.get() == wanted.get() - wanted.get() % page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_compared_in_whole_pages() {
        assert!(
            is(Bytes::new(1 << 20), Bytes::new(1 << 20))
                && is(Bytes::new(1 << 20), Bytes::new((1 << 20) + 1))
        );
        assert!(!is(Bytes::new(1 << 20), Bytes::new(2 << 20)));
    }
}

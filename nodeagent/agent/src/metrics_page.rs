//! The page with all metrics of the loop, written from its state on each scrape.

use headroom_config::MetricsGranularity;
use headroom_node_core::container::LifecyclePhase;
use headroom_telemetry::MetricsPage;
use headroom_telemetry::names::*;
use headroom_types::{Bytes, ContainerId, RequestId};

use crate::agent_state::AgentState;
use crate::node_link_event::NodeMembership;
use crate::sample;

/// Memory use, in per cent of the limit, from which a container counts as near its limit.
const NEAR: u64 = 90;

/// A page with all metrics of the loop.
pub(crate) fn page(agent: &AgentState, membership: NodeMembership) -> MetricsPage {
    let mut page = MetricsPage::new();
    page.count(
        &NODE_BUILD_INFO,
        &[env!("CARGO_PKG_VERSION"), agent.facts.site.kind().as_str()],
        1,
    );
    page.count(
        &NODE_REGISTERED,
        &[],
        u64::from(membership == NodeMembership::Registered),
    );
    page.count(
        &NODE_MEMORY_ALLOCATABLE,
        &[],
        agent.facts.ready.offers.memory.get(),
    );
    page.count(&NODE_UNATTRIBUTED, &[], agent.unattributed.memory.get());
    for state in ["preparing", "starting", "running", "stopping", "exited"] {
        page.count(&NODE_CONTAINERS, &[state], 0);
    }
    let mut near = 0;
    for (id, c) in agent.core.containers() {
        if let Some(state) = state_label(&c.state) {
            page.count(&NODE_CONTAINERS, &[state], 1);
        }
        near += u64::from(put_memory(
            agent,
            &mut page,
            id,
            c.order.request.as_ref(),
            c.order.resource.memory,
        ));
    }
    page.count(&NODE_NEAR_LIMIT, &[], near);
    agent.counts.put(&mut page);
    page
}

/// Adds the memory of a running container. Returns whether it is near its limit.
fn put_memory(
    agent: &AgentState,
    page: &mut MetricsPage,
    id: &ContainerId,
    request: Option<&RequestId>,
    size: Bytes,
) -> bool {
    let meter = agent.live.get(id).and_then(|live| live.meter.as_ref());
    let Some(last) = meter.and_then(|meter| sample::locked(meter).last()) else {
        return false;
    };
    let app = id.app.to_string();
    let (job, task) = match agent.facts.cardinality {
        MetricsGranularity::Profile => ("", ""),
        MetricsGranularity::Job => (app.as_str(), ""),
        MetricsGranularity::Task => (app.as_str(), request.map_or("master", RequestId::as_str)),
    };
    let (anon, file) = (last.anon.unwrap_or_default(), last.file.unwrap_or_default());
    let other = last.current.saturating_sub(anon).saturating_sub(file);
    for (kind, bytes) in [("anon", anon), ("file", file), ("other", other)] {
        page.count(&NODE_MEMORY, &[job, task, kind], bytes.get());
    }
    let limit = last.limit.unwrap_or(size);
    page.count(&NODE_MEMORY_LIMIT, &[job, task], limit.get());
    last.current.saturating_sub(file) >= limit.mul_ratio(NEAR, 100)
}

/// The label of a phase. `None` if the container is not counted any more.
fn state_label(state: &LifecyclePhase) -> Option<&'static str> {
    Some(match state {
        LifecyclePhase::New | LifecyclePhase::Preparing { .. } => "preparing",
        LifecyclePhase::Starting { .. } => "starting",
        LifecyclePhase::Running => "running",
        LifecyclePhase::Stopping { .. } => "stopping",
        LifecyclePhase::Exited { .. } => "exited",
        LifecyclePhase::Acked => return None,
    })
}

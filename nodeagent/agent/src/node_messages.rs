//! Conversions between the core and the messages for the resource manager. No decisions are made
//! here.

use std::time::Duration;

use headroom_node_core::agent::{AgentContainer, AgentCore, DesiredListExtent, DesiredState};
use headroom_node_core::container::{ContainerOrder, LifecyclePhase};
use headroom_node_core::report_schedule::ReportScope;
use headroom_types::{Bytes, ContainerId, ExitReport};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredStateLine, NodeContainerPhase, ObservedContainer,
    RefusedSizeReport, RunOrder,
};

/// Time between SIGTERM and SIGKILL if the launch sets none.
const USUAL_GRACE: Duration = Duration::from_secs(2);
/// Maximum grace that a launch can request.
const LONGEST_GRACE: Duration = Duration::from_secs(600);
/// Maximum number of exit reports in one message; each may contain a timeline. The others follow in
/// later messages.
const ENDS_AT_ONCE: usize = 32;

/// Converts an order.
pub fn container_order(order: &RunOrder) -> ContainerOrder {
    let grace = order
        .launch
        .stop_grace_ms
        .map_or(USUAL_GRACE, Duration::from_millis)
        .min(LONGEST_GRACE);
    let (request, resource) = (order.request.clone(), order.resource.clone());
    ContainerOrder {
        request,
        attempt: order.attempt,
        resource,
        version: order.version,
        granted: order.granted,
        grace,
    }
}

/// Converts the desired state of one container.
pub fn desired_state(want: &ContainerDesiredState) -> DesiredState {
    match want {
        ContainerDesiredState::Run(order) => DesiredState::Run(container_order(order)),
        ContainerDesiredState::Stop { cause } => DesiredState::Stop(*cause),
        ContainerDesiredState::Forget => DesiredState::Forget,
    }
}

/// The extent of a list of desired states.
pub fn extent(desired: &DesiredStateLine) -> DesiredListExtent {
    if desired.full {
        DesiredListExtent::Full
    } else {
        DesiredListExtent::Changes
    }
}

/// Memory use of a container, as last measured. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredUse {
    /// All memory.
    pub current: Option<Bytes>,
    /// Anonymous memory.
    pub anon: Option<Bytes>,
}

/// A container as the resource manager sees it; `None` if nothing of it is left to report.
pub fn observed(
    id: &ContainerId,
    c: &AgentContainer,
    measured: MeasuredUse,
) -> Option<ObservedContainer> {
    Some(ObservedContainer {
        container: id.clone(),
        request: c.order.request.clone(),
        attempt: c.order.attempt,
        resource: c.order.resource.clone(),
        version: c.order.version,
        refused: c.sizing.refused.as_ref().map(|r| RefusedSizeReport {
            version: r.size.version,
            why: r.why.clone(),
        }),
        phase: container_phase(&c.state)?,
        used: measured.current,
        anon: measured.anon,
        granted: c.order.granted,
    })
}

/// The containers of a report, with their use as measured by `measure`.
pub fn observed_in(
    core: &AgentCore,
    scope: &ReportScope,
    measure: impl Fn(&ContainerId) -> MeasuredUse,
) -> Vec<ObservedContainer> {
    match scope {
        ReportScope::All => core
            .containers()
            .filter_map(|(id, c)| observed(id, c, measure(id)))
            .collect(),
        ReportScope::Changed(ids) => ids
            .iter()
            .filter_map(|id| observed(id, core.get(id)?, measure(id)))
            .collect(),
    }
}

/// The exit reports for a report: those that the resource manager has not received.
pub fn unreceived_exits(core: &AgentCore) -> Vec<ExitReport> {
    core.unreceived().take(ENDS_AT_ONCE).cloned().collect()
}

/// The exit reports for a registration: all that are still kept, for a peer that may know none of
/// them.
pub fn kept_exits(core: &AgentCore) -> Vec<ExitReport> {
    core.containers()
        .filter_map(|(_, c)| exit_report(&c.state))
        .take(ENDS_AT_ONCE)
        .cloned()
        .collect()
}

/// The exit report of a container that has ended.
pub fn exit_report(state: &LifecyclePhase) -> Option<&ExitReport> {
    match state {
        LifecyclePhase::Exited { report, .. } => Some(report),
        LifecyclePhase::New
        | LifecyclePhase::Preparing { .. }
        | LifecyclePhase::Starting { .. }
        | LifecyclePhase::Running => None,
        LifecyclePhase::Stopping { .. } | LifecyclePhase::Acked => None,
    }
}

/// The phase of a container in messages; `None` if nothing of it is left to report.
pub fn container_phase(state: &LifecyclePhase) -> Option<NodeContainerPhase> {
    Some(match state {
        LifecyclePhase::New | LifecyclePhase::Preparing { .. } => NodeContainerPhase::Preparing,
        LifecyclePhase::Starting { .. } => NodeContainerPhase::Starting,
        LifecyclePhase::Running => NodeContainerPhase::Running,
        LifecyclePhase::Stopping { .. } => NodeContainerPhase::Stopping,
        LifecyclePhase::Exited { .. } => NodeContainerPhase::Exited,
        LifecyclePhase::Acked => return None,
    })
}

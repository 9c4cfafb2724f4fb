//! Conversions between the types of the cores. Between the real daemons, messages do this.

use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core as rm;
use headroom_types::JobOrder;
use headroom_wire::v1::am;

pub(super) fn granted(granted: rm::GrantedContainer) -> am::ContainerGrant {
    let rm::GrantedContainer { container, request, node, resource, attempt } = granted;
    am::ContainerGrant { container, request, node, resource, attempt }
}

pub(super) fn update(what: rm::UpdateKind) -> am::ApplicationUpdateKind {
    match what {
        rm::UpdateKind::Allocated(grant) => am::ApplicationUpdateKind::Allocated(granted(grant)),
        rm::UpdateKind::Running { container } => am::ApplicationUpdateKind::Running { container },
        rm::UpdateKind::Resized { container, resource, version } => {
            am::ApplicationUpdateKind::Resized { container, resource, version }
        }
        rm::UpdateKind::ResizeFailed { container, resource, version, why } => {
            am::ApplicationUpdateKind::ResizeFailed { container, resource, version, why }
        }
        rm::UpdateKind::PreemptSoon { container, at, why } => am::ApplicationUpdateKind::PreemptSoon { container, at, why },
        rm::UpdateKind::NodeDraining { node, until } => am::ApplicationUpdateKind::NodeDraining { node, until },
        rm::UpdateKind::Order(JobOrder::Task(order)) => am::ApplicationUpdateKind::Order(order),
        rm::UpdateKind::Order(JobOrder::Scale(order)) => am::ApplicationUpdateKind::Scale(order),
        rm::UpdateKind::Expired { request, why } => am::ApplicationUpdateKind::Expired { request, why },
        rm::UpdateKind::Exited { request, report } => {
            am::ApplicationUpdateKind::Exited { request, report: Box::new((*report).clone()) }
        }
    }
}

pub(super) fn ask(ask: am::PlacementRequest) -> rm::ask::ContainerRequest {
    rm::ask::ContainerRequest {
        request: ask.request,
        resource: ask.resource,
        count: ask.count,
        settled: ask.settled,
        priority: ask.priority,
        place: rm::ask::PlacementRules { avoid_nodes: ask.avoid_nodes, nodes: ask.nodes, ..rm::ask::PlacementRules::default() },
        deadline: None,
        waited: Duration::ZERO,
        launch: Arc::new(launch(*ask.launch)),
    }
}

fn launch(launch: am::LaunchSpec) -> rm::ContainerLaunch {
    let am::LaunchSpec { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups } = launch;
    rm::ContainerLaunch { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups }
}

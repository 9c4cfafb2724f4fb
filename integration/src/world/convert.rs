//! Conversions between the types of the cores. Between the real daemons, messages do this.

use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core as rm;
use headroom_types::JobOrder;
use headroom_wire::v1::am;

pub(super) fn granted(granted: rm::Granted) -> am::Granted {
    let rm::Granted { container, request, node, resource, attempt } = granted;
    am::Granted { container, request, node, resource, attempt }
}

pub(super) fn update(what: rm::UpdateKind) -> am::UpdateKind {
    match what {
        rm::UpdateKind::Allocated(grant) => am::UpdateKind::Allocated(granted(grant)),
        rm::UpdateKind::Running { container } => am::UpdateKind::Running { container },
        rm::UpdateKind::Resized { container, resource, version } => am::UpdateKind::Resized { container, resource, version },
        rm::UpdateKind::ResizeFailed { container, resource, version, why } => {
            am::UpdateKind::ResizeFailed { container, resource, version, why }
        }
        rm::UpdateKind::PreemptSoon { container, at, why } => am::UpdateKind::PreemptSoon { container, at, why },
        rm::UpdateKind::NodeDraining { node, until } => am::UpdateKind::NodeDraining { node, until },
        rm::UpdateKind::Order(JobOrder::Task(order)) => am::UpdateKind::Order(order),
        rm::UpdateKind::Order(JobOrder::Scale(order)) => am::UpdateKind::Scale(order),
        rm::UpdateKind::Expired { request, why } => am::UpdateKind::Expired { request, why },
        rm::UpdateKind::Exited { request, report } => am::UpdateKind::Exited { request, report: Box::new((*report).clone()) },
    }
}

pub(super) fn ask(ask: am::Ask) -> rm::ask::Ask {
    rm::ask::Ask {
        request: ask.request,
        resource: ask.resource,
        count: ask.count,
        settled: ask.settled,
        priority: ask.priority,
        place: rm::ask::Placement { avoid_nodes: ask.avoid_nodes, nodes: ask.nodes, ..rm::ask::Placement::default() },
        deadline: None,
        waited: Duration::ZERO,
        launch: Arc::new(launch(*ask.launch)),
    }
}

fn launch(launch: am::LaunchSpec) -> rm::Launch {
    let am::LaunchSpec { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups } = launch;
    rm::Launch { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups }
}

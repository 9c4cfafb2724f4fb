//! Between the cores' own types: what the daemons do by way of messages.

use std::sync::Arc;

use headroom_rm_core as rm;
use headroom_wire::v1::am;

pub(super) fn granted(granted: rm::Granted) -> am::Granted {
    let rm::Granted { container, request, node, resource } = granted;
    am::Granted { container, request, node, resource }
}

pub(super) fn update(what: rm::UpdateKind) -> am::UpdateKind {
    match what {
        rm::UpdateKind::Allocated(grant) => am::UpdateKind::Allocated(granted(grant)),
        rm::UpdateKind::Running { container } => am::UpdateKind::Running { container },
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
        avoid: ask.avoid_nodes,
        only: ask.nodes,
        launch: Arc::new(launch(*ask.launch)),
    }
}

fn launch(launch: am::LaunchSpec) -> rm::Launch {
    let am::LaunchSpec { command, env, files, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups } = launch;
    rm::Launch { command, env, files, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups }
}

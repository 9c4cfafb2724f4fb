//! Conversions between the types of the cores. Between the real daemons, messages do this.

use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core as rm;
use headroom_types::JobOrder;
use headroom_wire::v1::application_master;

pub(super) fn granted(granted: rm::GrantedContainer) -> application_master::ContainerGrant {
    let rm::GrantedContainer {
        container,
        request,
        node,
        resource,
        attempt,
    } = granted;
    application_master::ContainerGrant {
        container,
        request,
        node,
        resource,
        attempt,
    }
}

pub(super) fn update(what: rm::UpdateKind) -> application_master::ApplicationUpdateKind {
    match what {
        rm::UpdateKind::Allocated(grant) => {
            application_master::ApplicationUpdateKind::Allocated(granted(grant))
        }
        rm::UpdateKind::Running { container } => {
            application_master::ApplicationUpdateKind::Running { container }
        }
        rm::UpdateKind::Resized {
            container,
            resource,
            version,
        } => application_master::ApplicationUpdateKind::Resized {
            container,
            resource,
            version,
        },
        rm::UpdateKind::ResizeFailed {
            container,
            resource,
            version,
            why,
        } => application_master::ApplicationUpdateKind::ResizeFailed {
            container,
            resource,
            version,
            why,
        },
        rm::UpdateKind::PreemptSoon { container, at, why } => {
            application_master::ApplicationUpdateKind::PreemptSoon { container, at, why }
        }
        rm::UpdateKind::NodeDraining { node, until } => {
            application_master::ApplicationUpdateKind::NodeDraining { node, until }
        }
        rm::UpdateKind::Order(JobOrder::Task(order)) => {
            application_master::ApplicationUpdateKind::Order(order)
        }
        rm::UpdateKind::Order(JobOrder::Scale(order)) => {
            application_master::ApplicationUpdateKind::Scale(order)
        }
        rm::UpdateKind::Expired { request, why } => {
            application_master::ApplicationUpdateKind::Expired { request, why }
        }
        rm::UpdateKind::Exited { request, report } => {
            application_master::ApplicationUpdateKind::Exited {
                request,
                report: Box::new((*report).clone()),
            }
        }
    }
}

pub(super) fn ask(ask: application_master::PlacementRequest) -> rm::request::ContainerRequest {
    rm::request::ContainerRequest {
        request: ask.request,
        resource: ask.resource,
        count: ask.count,
        settled: ask.settled,
        priority: ask.priority,
        place: rm::placement::PlacementRules {
            avoid_nodes: ask.avoid_nodes,
            nodes: ask.nodes,
            ..rm::placement::PlacementRules::default()
        },
        deadline: None,
        waited: Duration::ZERO,
        launch: Arc::from(ask.launch),
    }
}

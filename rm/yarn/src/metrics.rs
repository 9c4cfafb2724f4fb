//! Cluster metrics.

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{
    AppSelection, ApplicationReport, ClusterNodeReport, SharedCluster, rest, sum,
};
use headroom_types::Resource;
use serde::Serialize;

use crate::error::YarnResult;
use crate::field::{Field, field};
use crate::resource::{ResourceInfo, cores, mib, whole_percent};
use crate::state::{AppState, NodeState};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metrics {
    apps_submitted: usize,
    apps_completed: usize,
    apps_pending: usize,
    apps_running: usize,
    apps_failed: usize,
    apps_killed: usize,
    #[serde(rename = "reservedMB")]
    reserved_mb: u64,
    #[serde(rename = "availableMB")]
    available_mb: u64,
    #[serde(rename = "allocatedMB")]
    allocated_mb: u64,
    #[serde(rename = "pendingMB")]
    pending_mb: u64,
    reserved_virtual_cores: u64,
    available_virtual_cores: u64,
    allocated_virtual_cores: u64,
    pending_virtual_cores: u64,
    containers_allocated: u32,
    containers_reserved: usize,
    containers_pending: u32,
    #[serde(rename = "totalMB")]
    total_mb: u64,
    #[serde(rename = "utilizedMB")]
    utilized_mb: u64,
    total_virtual_cores: u64,
    utilized_virtual_cores: u64,
    #[serde(rename = "utilizedMBPercent")]
    utilized_mb_percent: u32,
    utilized_virtual_cores_percent: u32,
    rm_scheduler_busy_percent: u32,
    total_nodes: usize,
    lost_nodes: usize,
    unhealthy_nodes: usize,
    decommissioning_nodes: usize,
    decommissioned_nodes: usize,
    rebooted_nodes: usize,
    active_nodes: usize,
    shutdown_nodes: usize,
    container_assigned_per_second: u32,
    total_used_resources_across_partition: ResourceInfo,
    total_cluster_resources_across_partition: ResourceInfo,
    total_reserved_resources_across_partition: ResourceInfo,
    total_allocated_containers_across_partition: u32,
    cross_partition_metrics_available: bool,
    rm_event_queue_size: usize,
    scheduler_event_queue_size: usize,
}

/// `GET /ws/v1/cluster/metrics`.
pub(crate) async fn metrics(
    State(cluster): State<SharedCluster>,
) -> YarnResult<Json<Field<Metrics>>> {
    let (apps, nodes) = (
        cluster.applications(AppSelection::All).await?,
        cluster.nodes().await?,
    );
    let waiting = cluster.queued_inputs();
    let metrics = convert(&apps, &nodes, waiting);
    Ok(Json(field("clusterMetrics", metrics)))
}

/// Converts the reports. `waiting` is the number of inputs that wait for the main loop. The loop
/// also schedules, so there is no other queue.
fn convert(apps: &[ApplicationReport], nodes: &[ClusterNodeReport], waiting: usize) -> Metrics {
    let in_state = |state| {
        apps.iter()
            .filter(|app| AppState::of(app.state) == state)
            .count()
    };
    let nodes_in = |state| {
        nodes
            .iter()
            .filter(|node| NodeState::of(node) == state)
            .count()
    };
    let active: Vec<&ClusterNodeReport> = nodes
        .iter()
        .filter(|node| NodeState::of(node).is_active())
        .collect();
    let total = sum(active.iter().map(|node| &node.offers));
    let allocated = sum(nodes.iter().map(|node| &node.allocated));
    let available = rest(&total, &sum(active.iter().map(|node| &node.allocated)));
    let pending: Vec<Resource> = apps.iter().map(ApplicationReport::pending).collect();
    let pending = sum(pending.iter());
    let reserved = sum(apps.iter().flat_map(|app| &app.reserved));
    let used = nodes.iter().map(|node| node.host_used).fold(
        headroom_types::Bytes::ZERO,
        headroom_types::Bytes::saturating_add,
    );
    let containers = nodes
        .iter()
        .map(|node| node.containers)
        .fold(0, u32::saturating_add);
    Metrics {
        apps_submitted: apps.len(),
        apps_completed: in_state(AppState::Finished),
        apps_pending: in_state(AppState::Accepted),
        apps_running: in_state(AppState::Running),
        apps_failed: in_state(AppState::Failed),
        apps_killed: in_state(AppState::Killed),
        reserved_mb: mib(reserved.memory),
        available_mb: mib(available.memory),
        allocated_mb: mib(allocated.memory),
        pending_mb: mib(pending.memory),
        reserved_virtual_cores: cores(reserved.cpus),
        available_virtual_cores: cores(available.cpus),
        allocated_virtual_cores: cores(allocated.cpus),
        pending_virtual_cores: cores(pending.cpus),
        containers_allocated: containers,
        containers_reserved: apps.iter().map(|app| app.reserved.len()).sum(),
        containers_pending: apps
            .iter()
            .flat_map(|app| &app.waiting)
            .map(|w| w.count)
            .fold(0, u32::saturating_add),
        total_mb: mib(total.memory),
        utilized_mb: mib(used),
        total_virtual_cores: cores(total.cpus),
        utilized_virtual_cores: 0,
        utilized_mb_percent: whole_percent(used.get(), total.memory.get()),
        utilized_virtual_cores_percent: 0,
        rm_scheduler_busy_percent: 0,
        total_nodes: nodes.len(),
        lost_nodes: nodes_in(NodeState::Lost),
        unhealthy_nodes: nodes_in(NodeState::Unhealthy),
        decommissioning_nodes: nodes_in(NodeState::Decommissioning),
        decommissioned_nodes: nodes_in(NodeState::Decommissioned),
        rebooted_nodes: nodes_in(NodeState::Rebooted),
        active_nodes: nodes_in(NodeState::Running),
        shutdown_nodes: nodes_in(NodeState::Shutdown),
        container_assigned_per_second: apps
            .iter()
            .map(|app| app.granted_last_second)
            .fold(0, u32::saturating_add),
        total_used_resources_across_partition: ResourceInfo::of(&allocated),
        total_cluster_resources_across_partition: ResourceInfo::of(&total),
        total_reserved_resources_across_partition: ResourceInfo::of(&reserved),
        total_allocated_containers_across_partition: containers,
        cross_partition_metrics_available: true,
        rm_event_queue_size: waiting,
        scheduler_event_queue_size: 0,
    }
}

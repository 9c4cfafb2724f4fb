//! Queues in the format of YARN's capacity scheduler.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use headroom_rm_core::app;
use headroom_rm_core::queue::spec::{QueuePreemption, QueueState};
use headroom_rm_reports::{AppSelection, ApplicationReport, QueueReport, SharedCluster, sum};
use headroom_types::{Bytes, Cpus, QueuePath, Resource};
use serde::Serialize;

use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::resource::{ResourceInfo, percent};

/// Application limit of a queue without its own: that of the whole resource manager.
const MOST_APPS: u32 = 10_000;

#[derive(Debug, Serialize)]
pub(crate) struct Root {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    queue: Queue,
    health: Health,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Queue {
    capacity: f64,
    used_capacity: f64,
    max_capacity: f64,
    absolute_capacity: f64,
    absolute_max_capacity: f64,
    absolute_used_capacity: f64,
    weight: f64,
    num_applications: usize,
    max_parallel_apps: u32,
    queue_name: String,
    queue_path: String,
    state: &'static str,
    /// Queues of any depth. A leaf has an empty list, because readers stop with an error at a
    /// missing list.
    queues: Field<Vec<Queue>>,
    resources_used: ResourceInfo,
    allocated_containers: u32,
    reserved_containers: usize,
    pending_containers: u64,
    mode: &'static str,
    node_labels: [&'static str; 1],
    preemption_disabled: bool,
    default_priority: i32,
    /// Capacities by partition; there is one partition.
    capacities: Field<[PartitionCapacity; 1]>,
    resources: Field<[Usage; 1]>,
    #[serde(flatten)]
    leaf: Option<Leaf>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leaf {
    #[serde(rename = "type")]
    kind: &'static str,
    num_active_applications: usize,
    num_pending_applications: usize,
    num_containers: u32,
    max_applications: u32,
    max_applications_per_user: u32,
    user_limit: f64,
    user_limit_factor: f64,
    users: Field<Vec<User>>,
    ordering_policy_info: &'static str,
    #[serde(rename = "AMResourceLimit")]
    am_resource_limit: ResourceInfo,
    #[serde(rename = "usedAMResource")]
    used_am_resource: ResourceInfo,
    #[serde(rename = "userAMResourceLimit")]
    user_am_resource_limit: ResourceInfo,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User {
    username: String,
    resources_used: ResourceInfo,
    num_active_applications: usize,
    num_pending_applications: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionCapacity {
    partition_name: &'static str,
    capacity: f64,
    used_capacity: f64,
    max_capacity: f64,
    absolute_capacity: f64,
    absolute_used_capacity: f64,
    absolute_max_capacity: f64,
    #[serde(rename = "maxAMLimitPercentage")]
    max_am_limit_percentage: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    partition_name: &'static str,
    used: ResourceInfo,
    reserved: ResourceInfo,
    pending: ResourceInfo,
}

/// Always empty: `app-activities` reports the latest scheduling of each application.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    lastrun: u64,
    operations_info: Field<[u8; 0]>,
    last_run_details: Field<[u8; 0]>,
}

/// Applications that have not ended, by leaf queue.
type ByLeaf<'a> = BTreeMap<&'a QueuePath, Vec<&'a ApplicationReport>>;

/// `GET /ws/v1/cluster/scheduler`.
pub(crate) async fn scheduler(
    State(cluster): State<SharedCluster>,
) -> YarnResult<Json<Field<Field<Root>>>> {
    let root = cluster.queues().await?;
    let root = root.ok_or_else(|| YarnError::none("there are no queues"))?;
    let apps = cluster.applications(AppSelection::All).await?;
    let mut live = ByLeaf::new();
    for app in apps.iter().filter(|app| !app.state.is_over()) {
        live.entry(&app.queue).or_default().push(app);
    }
    let queue = convert(&root, &live, root.guaranteed, root.guaranteed);
    let health = Health {
        lastrun: cluster.time().unix_now().0,
        operations_info: field("entry", []),
        last_run_details: field("entry", []),
    };
    let root = Root {
        kind: "capacityScheduler",
        queue,
        health,
    };
    Ok(Json(field("scheduler", field("schedulerInfo", root))))
}

/// Converts a queue with the queues below it. Shares are shares of memory: of the parent queue, and
/// of the cluster.
fn convert(queue: &QueueReport, live: &ByLeaf<'_>, parent: Bytes, whole: Bytes) -> Queue {
    let capacity = capacity(queue, parent, whole);
    let inner = queue
        .children
        .iter()
        .map(|child| convert(child, live, queue.guaranteed, whole));
    let used = ResourceInfo::of(&queue.used);
    let inside = live
        .iter()
        .filter(|(leaf, _)| leaf.is_within(&queue.path))
        .flat_map(|(_, apps)| apps);
    let reserved: Vec<&Resource> = inside.flat_map(|app| &app.reserved).collect();
    let usage = Usage {
        partition_name: "",
        used: used.clone(),
        reserved: ResourceInfo::of(&sum(reserved.iter().copied())),
        pending: ResourceInfo::of(&queue.pending),
    };
    Queue {
        capacity: capacity.capacity,
        used_capacity: capacity.used_capacity,
        max_capacity: capacity.max_capacity,
        absolute_capacity: capacity.absolute_capacity,
        absolute_max_capacity: capacity.absolute_max_capacity,
        absolute_used_capacity: capacity.absolute_used_capacity,
        weight: f64::from(queue.spec.weight.unwrap_or(1)),
        num_applications: queue.apps,
        max_parallel_apps: queue.spec.max_running.unwrap_or(MOST_APPS),
        queue_name: queue.path.name().to_owned(),
        queue_path: queue.path.to_string(),
        state: yarn_state(queue.state),
        queues: field("queue", inner.collect()),
        resources_used: used,
        allocated_containers: queue.containers,
        reserved_containers: reserved.len(),
        pending_containers: queue.pending_containers,
        mode: "percentage",
        node_labels: ["*"],
        preemption_disabled: queue.spec.preemptable == QueuePreemption::No,
        default_priority: 0,
        capacities: field("queueCapacitiesByPartition", [capacity]),
        resources: field("resourceUsagesByPartition", [usage]),
        leaf: queue
            .children
            .is_empty()
            .then(|| leaf(queue, live.get(&queue.path).map_or(&[], Vec::as_slice))),
    }
}

fn capacity(queue: &QueueReport, parent: Bytes, whole: Bytes) -> PartitionCapacity {
    let of = |part: Bytes, whole: Bytes| percent(part.get(), whole.get());
    PartitionCapacity {
        partition_name: "",
        capacity: of(queue.guaranteed, parent),
        used_capacity: of(queue.used.memory, queue.guaranteed),
        max_capacity: of(queue.maximum.memory.min(parent), parent),
        absolute_capacity: of(queue.guaranteed, whole),
        absolute_used_capacity: of(queue.used.memory, whole),
        absolute_max_capacity: of(queue.maximum.memory.min(whole), whole),
        max_am_limit_percentage: percent(u64::from(queue.spec.master_share.unwrap_or(1000)), 1000),
    }
}

fn leaf(queue: &QueueReport, apps: &[&ApplicationReport]) -> Leaf {
    let share = u64::from(queue.spec.master_share.unwrap_or(1000));
    let cpus = u64::from(queue.maximum.cpus.milli()) * share / 1000;
    let cpus = Cpus::from_milli(u32::try_from(cpus).unwrap_or(u32::MAX));
    let limit = ResourceInfo::of(&Resource::new(
        queue.maximum.memory.mul_ratio(share, 1000),
        cpus,
    ));
    let most = queue.spec.max_apps.unwrap_or(MOST_APPS);
    Leaf {
        kind: "capacitySchedulerLeafQueueInfo",
        num_active_applications: active(apps),
        num_pending_applications: apps.len() - active(apps),
        num_containers: queue.containers,
        max_applications: most,
        max_applications_per_user: most,
        user_limit: percent(u64::from(queue.spec.user_limit.unwrap_or(1000)), 1000),
        user_limit_factor: 1.0,
        users: field("user", users(queue, apps)),
        ordering_policy_info: queue.spec.order.as_str(),
        am_resource_limit: limit.clone(),
        used_am_resource: ResourceInfo::of(&queue.masters),
        user_am_resource_limit: limit,
    }
}

/// Users with an application or a container in the queue.
fn users(queue: &QueueReport, apps: &[&ApplicationReport]) -> Vec<User> {
    let mut by_name: BTreeMap<&str, (Resource, Vec<&ApplicationReport>)> = queue
        .users
        .iter()
        .map(|(name, used)| (name.as_str(), (used.clone(), Vec::new())))
        .collect();
    for app in apps {
        by_name.entry(&app.user).or_default().1.push(app);
    }
    let user = |(name, (used, apps)): (&str, (Resource, Vec<&ApplicationReport>))| User {
        username: name.to_owned(),
        resources_used: ResourceInfo::of(&used),
        num_active_applications: active(&apps),
        num_pending_applications: apps.len() - active(&apps),
    };
    by_name.into_iter().map(user).collect()
}

/// Number of applications with a registered master, or at least a container.
fn active(apps: &[&ApplicationReport]) -> usize {
    apps.iter()
        .filter(|app| app.state != app::ApplicationState::Accepted || app.run.container().is_some())
        .count()
}

/// State of a queue. A paused queue still accepts applications, as `RUNNING` implies.
fn yarn_state(state: QueueState) -> &'static str {
    match state {
        QueueState::Running | QueueState::Paused => "RUNNING",
        QueueState::Draining => "DRAINING",
        QueueState::Stopped => "STOPPED",
    }
}

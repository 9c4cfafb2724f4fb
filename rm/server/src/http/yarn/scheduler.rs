//! The queues, in the shape of YARN's capacity scheduler.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use headroom_rm_core::app;
use headroom_rm_core::queue::spec::{Gate, Order, Preemptable};
use headroom_types::{Bytes, Resource};
use serde::Serialize;

use super::super::Web;
use super::error::Fault;
use super::facts;
use super::resource::{ResourceInfo, percent};
use crate::facts::{AppFacts, Life, Of, Question, QueueFacts};
use crate::input::{Input, Query};

/// Stands where a queue has no bound of its own: that of the whole resource manager.
const MOST_APPS: u32 = 10_000;

/// `{"scheduler":{"schedulerInfo":…}}`.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    scheduler: Scheduler,
}

#[derive(Debug, Serialize)]
struct Scheduler {
    #[serde(rename = "schedulerInfo")]
    info: Root,
}

#[derive(Debug, Serialize)]
struct Root {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    queue: Queue,
    health: Health,
}

/// Queues of any depth. A leaf has an empty list of queues, never none: a reader that misses the list stops there.
#[derive(Debug, Serialize)]
struct Queues {
    queue: Vec<Queue>,
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
    queues: Queues,
    resources_used: ResourceInfo,
    allocated_containers: u32,
    reserved_containers: u32,
    pending_containers: u32,
    mode: &'static str,
    node_labels: [&'static str; 1],
    preemption_disabled: bool,
    default_priority: i32,
    capacities: Capacities,
    resources: Usages,
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
    users: Users,
    ordering_policy_info: &'static str,
    #[serde(rename = "AMResourceLimit")]
    am_resource_limit: ResourceInfo,
    #[serde(rename = "usedAMResource")]
    used_am_resource: ResourceInfo,
    #[serde(rename = "userAMResourceLimit")]
    user_am_resource_limit: ResourceInfo,
}

#[derive(Debug, Serialize)]
struct Users {
    user: Vec<User>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User {
    username: String,
    resources_used: ResourceInfo,
    num_active_applications: usize,
    num_pending_applications: usize,
}

/// By partition; there is one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capacities {
    queue_capacities_by_partition: [PartitionCapacity; 1],
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
struct Usages {
    resource_usages_by_partition: [Usage; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    partition_name: &'static str,
    used: ResourceInfo,
    reserved: ResourceInfo,
    pending: ResourceInfo,
}

/// What the scheduler did last is told for each application by `app-activities`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    lastrun: u64,
    operations_info: Nothing,
    last_run_details: Nothing,
}

/// `{"entry":[]}`.
#[derive(Debug, Default, Serialize)]
struct Nothing {
    entry: [u8; 0],
}

/// `GET /ws/v1/cluster/scheduler`.
pub(crate) async fn scheduler(State(web): State<Web>) -> Result<Json<Answer>, Fault> {
    let root = web.handle.ask(|reply| Input::Query(Query::Facts(Question::Queues(reply)))).await?;
    let apps = facts(&web, Of::All).await?;
    let live: Vec<&AppFacts> = apps.iter().filter(|app| !app.state.is_over()).collect();
    let whole = root.guaranteed;
    let queue = convert(&root, &live, whole, whole);
    let health =
        Health { lastrun: web.clock.unix_now().0, operations_info: Nothing::default(), last_run_details: Nothing::default() };
    Ok(Json(Answer { scheduler: Scheduler { info: Root { kind: "capacityScheduler", queue, health } } }))
}

/// One queue with all in it. Shares are shares of memory, against the queue that holds it and against all there is.
fn convert(queue: &QueueFacts, live: &[&AppFacts], parent: Bytes, whole: Bytes) -> Queue {
    let below: Vec<&AppFacts> = live.iter().copied().filter(|app| app.queue.is_within(&queue.path)).collect();
    let used = sum(below.iter().map(|app| &app.allocated));
    let pending: Vec<Resource> = below.iter().map(|app| app.pending()).collect();
    let of = |part: Bytes, whole: Bytes| percent(part.get(), whole.get());
    let capacity = PartitionCapacity {
        partition_name: "",
        capacity: of(queue.guaranteed, parent),
        used_capacity: of(used.memory, queue.guaranteed),
        max_capacity: of(queue.maximum, parent),
        absolute_capacity: of(queue.guaranteed, whole),
        absolute_used_capacity: of(used.memory, whole),
        absolute_max_capacity: of(queue.maximum, whole),
        max_am_limit_percentage: percent(u64::from(queue.master_share), 1000),
    };
    let inner = queue.children.iter().map(|child| convert(child, &below, queue.guaranteed, whole));
    Queue {
        capacity: capacity.capacity,
        used_capacity: capacity.used_capacity,
        max_capacity: capacity.max_capacity,
        absolute_capacity: capacity.absolute_capacity,
        absolute_max_capacity: capacity.absolute_max_capacity,
        absolute_used_capacity: capacity.absolute_used_capacity,
        weight: f64::from(queue.weight),
        num_applications: below.len(),
        max_parallel_apps: queue.max_running.unwrap_or(MOST_APPS),
        queue_name: queue.path.name().to_owned(),
        queue_path: queue.path.to_string(),
        state: state(queue.gate),
        queues: Queues { queue: inner.collect() },
        resources_used: ResourceInfo::of(&used),
        allocated_containers: below.iter().map(|app| app.live).fold(0, u32::saturating_add),
        reserved_containers: 0,
        pending_containers: below.iter().flat_map(|app| &app.waiting).map(|w| w.count).fold(0, u32::saturating_add),
        mode: "percentage",
        node_labels: ["*"],
        preemption_disabled: queue.preemptable == Preemptable::No,
        default_priority: 0,
        capacities: Capacities { queue_capacities_by_partition: [capacity] },
        resources: Usages {
            resource_usages_by_partition: [Usage {
                partition_name: "",
                used: ResourceInfo::of(&used),
                reserved: ResourceInfo::of(&Resource::default()),
                pending: ResourceInfo::of(&sum(pending.iter())),
            }],
        },
        leaf: queue.children.is_empty().then(|| leaf(queue, &below)),
    }
}

fn leaf(queue: &QueueFacts, apps: &[&AppFacts]) -> Leaf {
    let masters = apps.iter().flat_map(|app| app.masters.values());
    let live = masters.filter(|c| match c.life {
        Life::Coming | Life::Running => true,
        Life::Over { .. } => false,
    });
    let limit = Resource::new(queue.maximum.mul_ratio(u64::from(queue.master_share), 1000), queue.cpus);
    let most = queue.max_apps.unwrap_or(MOST_APPS);
    Leaf {
        kind: "capacitySchedulerLeafQueueInfo",
        num_active_applications: apps.iter().filter(|app| is_active(app)).count(),
        num_pending_applications: apps.iter().filter(|app| !is_active(app)).count(),
        num_containers: apps.iter().map(|app| app.live).fold(0, u32::saturating_add),
        max_applications: most,
        max_applications_per_user: most,
        user_limit: percent(u64::from(queue.user_limit), 1000),
        user_limit_factor: 1.0,
        users: Users { user: users(apps) },
        ordering_policy_info: match queue.order {
            Order::Fifo => "fifo",
            Order::Fair => "fair",
        },
        am_resource_limit: ResourceInfo::of(&limit),
        used_am_resource: ResourceInfo::of(&sum(live.map(|c| &c.size))),
        user_am_resource_limit: ResourceInfo::of(&limit),
    }
}

fn users(apps: &[&AppFacts]) -> Vec<User> {
    let mut by_name: BTreeMap<&str, Vec<&AppFacts>> = BTreeMap::new();
    for app in apps {
        by_name.entry(&app.user).or_default().push(app);
    }
    let user = |(name, apps): (&str, Vec<&AppFacts>)| User {
        username: name.to_owned(),
        resources_used: ResourceInfo::of(&sum(apps.iter().map(|app| &app.allocated))),
        num_active_applications: apps.iter().filter(|app| is_active(app)).count(),
        num_pending_applications: apps.iter().filter(|app| !is_active(app)).count(),
    };
    by_name.into_iter().map(user).collect()
}

/// Its master has registered, or at least a container.
fn is_active(app: &AppFacts) -> bool {
    app.state != app::State::Accepted || app.run.container().is_some()
}

/// A queue that is paused still takes applications in, which is what `RUNNING` says.
fn state(gate: Gate) -> &'static str {
    match gate {
        Gate::Open | Gate::Paused => "RUNNING",
        Gate::Draining => "DRAINING",
        Gate::Closed => "STOPPED",
    }
}

fn sum<'a>(sizes: impl Iterator<Item = &'a Resource>) -> Resource {
    sizes.fold(Resource::default(), |sum, size| sum.checked_add(size).unwrap_or(sum))
}

//! Makes the reports for interfaces of other systems from the cluster.
//!
//! They are made between two batches, and change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_rm_core::app::ClusterApplication;
use headroom_rm_core::container::{self, Container};
use headroom_rm_core::{Cluster, EndedContainer, MasterKind, QueueSnapshot, attempt, node};
use headroom_rm_reports::{
    AppSelection, ApplicationReport, ClusterNodeReport, ContainerReport, ContainerStage, Preempted,
    QueueReport, Use, WaitingContainers,
};
use headroom_types::{AppId, Bytes, Cpus, ExitReason, QueuePath, Resource, Tick, UnixMillis};
use tokio::sync::oneshot;

use crate::view;

/// Length of the time whose grants are counted.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// Query for a report.
#[derive(Debug)]
pub(crate) enum ReportQuery {
    /// Applications, in order of submission.
    Apps {
        /// Selection.
        of: AppSelection,
        /// Current wall-clock time, up to which use is counted.
        wall: UnixMillis,
        /// Receives the reports.
        reply: oneshot::Sender<Vec<ApplicationReport>>,
    },
    /// Kept containers of one application, ended ones first.
    Containers(AppId, oneshot::Sender<Vec<ContainerReport>>),
    /// All nodes.
    Nodes(oneshot::Sender<Vec<ClusterNodeReport>>),
    /// The root queue with all queues below it.
    Queues(oneshot::Sender<Option<QueueReport>>),
}

/// Adds the use of one size during a time.
fn add_use(sum: &mut Use, size: &Resource, from: UnixMillis, to: UnixMillis) {
    let ms = to.since(from).as_millis();
    sum.memory = sum
        .memory
        .saturating_add(ms.saturating_mul(u128::from(size.memory.get())));
    sum.cpus = sum
        .cpus
        .saturating_add(ms.saturating_mul(u128::from(size.cpus.milli())));
}

/// Processes one query. The caller may have dropped its receiver.
pub(crate) fn answer(cluster: &Cluster, now: Tick, question: ReportQuery) {
    match question {
        ReportQuery::Apps { of, wall, reply } => drop(reply.send(apps(cluster, (now, wall), of))),
        ReportQuery::Containers(app, reply) => drop(reply.send(containers(cluster, &app))),
        ReportQuery::Nodes(reply) => drop(reply.send(nodes(cluster))),
        ReportQuery::Queues(reply) => drop(reply.send(queues(cluster))),
    }
}

fn apps(
    cluster: &Cluster,
    (now, wall): (Tick, UnixMillis),
    of: AppSelection,
) -> Vec<ApplicationReport> {
    let wanted = |id: &AppId| match of {
        AppSelection::All => true,
        AppSelection::Number(number) => id.seq() == number,
    };
    let mut apps: BTreeMap<&AppId, ApplicationReport> = cluster
        .apps()
        .filter(|app| wanted(&app.id))
        .map(|app| (&app.id, of_app(cluster, app, now)))
        .collect();
    if apps.is_empty() {
        return Vec::new();
    }
    for kept in cluster.reservations() {
        if let Some(app) = apps.get_mut(&kept.app) {
            app.reserved.push(kept.size.clone());
        }
    }
    for c in cluster.history().iter() {
        if let Some(app) = apps.get_mut(&c.container.app) {
            count(app, &over(cluster, c), wall);
        }
    }
    for c in cluster.containers() {
        if let Some(app) = apps.get_mut(&c.id.app) {
            count(app, &live(cluster, c), wall);
        }
    }
    apps.into_values().collect()
}

/// Adds one container to its application.
fn count(app: &mut ApplicationReport, c: &ContainerReport, now: UnixMillis) {
    let end = match c.life {
        ContainerStage::Coming | ContainerStage::Running => {
            app.live = app.live.saturating_add(1);
            app.allocated = app
                .allocated
                .checked_add(&c.size)
                .unwrap_or_else(|| app.allocated.clone());
            now
        }
        ContainerStage::Over { ended, .. } => ended,
    };
    add_use(&mut app.used, &c.size, c.granted, end);
    app.granted_last_second += u32::from(now.since(c.granted) <= LAST_SECOND);
    if let ContainerStage::Over {
        reason: ExitReason::Preempted,
        ..
    } = c.life
    {
        let preempted = &mut app.preempted;
        *(if c.request.is_none() {
            &mut preempted.masters
        } else {
            &mut preempted.others
        }) += 1;
        preempted.memory = preempted.memory.saturating_add(c.size.memory);
        preempted.cpus =
            Cpus::from_milli(preempted.cpus.milli().saturating_add(c.size.cpus.milli()));
        add_use(&mut preempted.used, &c.size, c.granted, end);
    }
    if c.request.is_none() {
        app.masters.insert(c.attempt, c.clone());
    }
}

fn of_app(cluster: &Cluster, app: &ClusterApplication, now: Tick) -> ApplicationReport {
    let environment = match &app.spec.master {
        MasterKind::Managed { launch, .. } => Some(launch.env.clone()),
        MasterKind::Unmanaged => None,
    };
    ApplicationReport {
        id: app.id.clone(),
        queue: app.queue.clone(),
        priority: app.priority,
        user: app.spec.user.clone(),
        state: app.state,
        diagnostics: cluster.application_sentence(app, now),
        submitted: app.submitted,
        ended: app.ended,
        until: app.until,
        environment,
        master_url: app.master_url.clone(),
        attempt: app.attempt,
        run: app.run.clone(),
        runs: app.runs.iter().cloned().collect(),
        masters: BTreeMap::new(),
        live: 0,
        granted_last_second: 0,
        allocated: Resource::default(),
        reserved: Vec::new(),
        waiting: waiting(app),
        used: Use::default(),
        preempted: Preempted::default(),
    }
}

fn waiting(app: &ClusterApplication) -> Vec<WaitingContainers> {
    let master = match (&app.run, &app.master) {
        (attempt::AttemptState::Scheduled, Some(size)) => Some(WaitingContainers {
            request: None,
            priority: app.priority,
            size: size.resource.clone(),
            count: 1,
        }),
        _ => None, // unmanaged, or its container is granted
    };
    let requests = app.requests.iter().map(|(id, request)| WaitingContainers {
        request: Some(id.clone()),
        priority: request.ask.priority,
        size: request.ask.resource.clone(),
        count: app.missing(id),
    });
    master
        .into_iter()
        .chain(requests.filter(|w| w.count > 0))
        .collect()
}

fn containers(cluster: &Cluster, app: &AppId) -> Vec<ContainerReport> {
    let over_first = cluster
        .history()
        .iter()
        .filter(|c| c.container.app == *app)
        .map(|c| over(cluster, c));
    let current = cluster.containers_of(app).map(|c| live(cluster, c));
    over_first.chain(current).collect()
}

fn over(cluster: &Cluster, c: &EndedContainer) -> ContainerReport {
    ContainerReport {
        id: c.container.clone(),
        attempt: c.attempt,
        node: c.node.clone(),
        node_url: cluster.node(&c.node).map(|n| n.url.clone()),
        request: c.request.clone(),
        size: c.resource.clone(),
        granted: c.granted,
        life: ContainerStage::Over {
            ended: c.ended,
            reason: c.reason,
            exit_code: c.exit_code,
            peak: c.peak,
        },
    }
}

fn live(cluster: &Cluster, c: &Container) -> ContainerReport {
    let life = match &c.state {
        container::ContainerState::Allocated | container::ContainerState::Launching => {
            ContainerStage::Coming
        }
        container::ContainerState::Running | container::ContainerState::Stopping { .. } => {
            ContainerStage::Running
        }
        container::ContainerState::Exited { report }
        | container::ContainerState::Done { report } => ContainerStage::Over {
            ended: report.ended,
            reason: report.reason,
            exit_code: report.evidence.exit_code,
            peak: report.evidence.own.peak,
        },
    };
    ContainerReport {
        id: c.id.clone(),
        attempt: c.attempt,
        node: c.node.clone(),
        node_url: cluster.node(&c.node).map(|n| n.url.clone()),
        request: c.request.clone(),
        size: c.resource.clone(),
        granted: c.granted,
        life,
    }
}

fn nodes(cluster: &Cluster) -> Vec<ClusterNodeReport> {
    cluster.nodes().map(|node| of_node(cluster, node)).collect()
}

fn of_node(cluster: &Cluster, node: &node::ClusterNode) -> ClusterNodeReport {
    let account = cluster.ledger().node(&node.id).cloned().unwrap_or_default();
    let (used, containers) = view::usage(cluster, node);
    let traits = cluster.node_table().traits(node);
    ClusterNodeReport {
        id: node.id.clone(),
        state: node.state.clone(),
        mark: cluster.node_table().mark(&node.id).cloned(),
        url: node.url.clone(),
        version: node.version.clone(),
        rack: traits.rack.clone(),
        labels: traits.labels.iter().cloned().collect(),
        attributes: traits
            .attributes
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        offers: account.offers,
        allocated: account.allocated,
        used,
        host_used: node.host_used,
        unattributed: account.unattributed,
        containers,
        heard: node.heard,
    }
}

fn queues(cluster: &Cluster) -> Option<QueueReport> {
    let offers = cluster
        .nodes()
        .filter(|node| node.state.is_member())
        .filter_map(|node| cluster.ledger().node(&node.id));
    let whole = offers
        .map(|account| account.offers.memory)
        .fold(Bytes::ZERO, Bytes::saturating_add);
    let all = cluster.queues();
    let by_path: BTreeMap<&QueuePath, &QueueSnapshot<'_>> =
        all.iter().map(|queue| (queue.path, queue)).collect();
    Some(of_queue(all.first()?, whole, &by_path))
}

fn of_queue(
    queue: &QueueSnapshot<'_>,
    guaranteed: Bytes,
    all: &BTreeMap<&QueuePath, &QueueSnapshot<'_>>,
) -> QueueReport {
    let children: Vec<&QueueSnapshot<'_>> = queue
        .children
        .iter()
        .filter_map(|path| all.get(path).copied())
        .collect();
    let parts = parts(&children, guaranteed);
    QueueReport {
        path: queue.path.clone(),
        guaranteed,
        maximum: queue.maximum.clone(),
        used: queue.used.clone(),
        masters: queue.masters.clone(),
        pending: queue.pending.clone(),
        pending_containers: queue.pending_containers,
        containers: queue.containers,
        apps: queue.apps,
        state: queue.state,
        spec: queue.spec.clone(),
        users: queue
            .users
            .iter()
            .map(|(user, used)| ((*user).to_owned(), (*used).clone()))
            .collect(),
        children: children
            .iter()
            .zip(parts)
            .map(|(child, part)| of_queue(child, part, all))
            .collect(),
    }
}

/// Guaranteed memory of each sibling: the configured guarantee. The others share the rest by
/// weight.
fn parts(siblings: &[&QueueSnapshot<'_>], whole: Bytes) -> Vec<Bytes> {
    let written = |queue: &QueueSnapshot<'_>| {
        queue
            .spec
            .guaranteed
            .memory
            .map(|_| queue.guaranteed.memory)
    };
    let weight = |queue: &QueueSnapshot<'_>| u64::from(queue.spec.weight.unwrap_or(1));
    let taken = siblings
        .iter()
        .filter_map(|queue| written(queue))
        .fold(Bytes::ZERO, Bytes::saturating_add);
    let others = siblings.iter().filter(|queue| written(queue).is_none());
    let weights = others
        .map(|queue| weight(queue))
        .fold(0, u64::saturating_add)
        .max(1);
    let rest = whole.saturating_sub(taken);
    siblings
        .iter()
        .map(|queue| written(queue).unwrap_or_else(|| rest.mul_ratio(weight(queue), weights)))
        .collect()
}

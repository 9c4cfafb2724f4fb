//! Reports for interfaces of other systems, with data that the published view lacks: use over time,
//! ends, waiting sizes.
//!
//! They are read from the cluster between two batches. They change nothing, and contain only this
//! project's own terms.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_rm_core::QueueView;
use headroom_rm_core::app::{self, App};
use headroom_rm_core::container::{self, Container};
use headroom_rm_core::queue::spec::{QueueSpec, QueueState};
use headroom_rm_core::{
    AttemptRecord, Cluster, EndedContainer, MasterKind, NodeMark, attempt, node,
};
use headroom_types::{
    AppId, Bytes, ContainerId, Cpus, ExitReason, Name, NodeId, QueuePath, RequestId, Resource,
    Tick, UnixMillis,
};
use tokio::sync::oneshot;

/// Containers granted within this time count as granted recently.
const RECENT_GRANTS: Duration = Duration::from_secs(1);

/// Selection of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppSelection {
    /// All kept applications.
    All,
    /// The application with this number.
    Number(u32),
}

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

/// Report about one application.
#[derive(Clone, Debug)]
pub(crate) struct ApplicationReport {
    pub(crate) id: AppId,
    pub(crate) queue: QueuePath,
    pub(crate) priority: i32,
    pub(crate) user: String,
    pub(crate) state: app::ApplicationState,
    pub(crate) diagnostics: String,
    pub(crate) submitted: UnixMillis,
    pub(crate) ended: Option<UnixMillis>,
    /// Deadline at which its lifetime ends.
    pub(crate) until: Option<UnixMillis>,
    /// Environment of a managed master; `None` for an unmanaged application.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    pub(crate) master_url: Option<String>,
    /// Number of the current application attempt.
    pub(crate) attempt: u32,
    /// State of the current application attempt.
    pub(crate) run: attempt::AttemptState,
    /// The latest application attempts, the current one last.
    pub(crate) runs: Vec<AttemptRecord>,
    /// Kept containers of its masters, by application attempt.
    pub(crate) masters: BTreeMap<u32, ContainerReport>,
    pub(crate) live: u32,
    /// Containers granted in the last second.
    pub(crate) granted_recently: u32,
    /// Resources of its live containers.
    pub(crate) allocated: Resource,
    /// Sizes of its reservations.
    pub(crate) reserved: Vec<Resource>,
    /// Waiting containers, including its master.
    pub(crate) waiting: Vec<WaitingContainers>,
    /// Use by kept containers.
    pub(crate) used: Use,
    /// The preempted part of the use.
    pub(crate) preempted: Preempted,
}

/// Containers of one size that are not yet granted.
#[derive(Clone, Debug)]
pub(crate) struct WaitingContainers {
    /// `None` for the master.
    pub(crate) request: Option<RequestId>,
    pub(crate) priority: i32,
    pub(crate) size: Resource,
    pub(crate) count: u32,
}

/// Use over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Byte-milliseconds.
    pub(crate) memory: u128,
    /// Thousandths of a processor × milliseconds.
    pub(crate) cpus: u128,
}

/// Preempted containers and their resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preempted {
    pub(crate) masters: u32,
    pub(crate) others: u32,
    pub(crate) memory: Bytes,
    pub(crate) cpus: Cpus,
    pub(crate) used: Use,
}

/// Report about one container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerReport {
    pub(crate) id: ContainerId,
    pub(crate) attempt: u32,
    pub(crate) node: NodeId,
    /// URL of its node; `None` if the node is no longer known.
    pub(crate) node_url: Option<String>,
    /// `None` for a master.
    pub(crate) request: Option<RequestId>,
    pub(crate) size: Resource,
    pub(crate) granted: UnixMillis,
    pub(crate) life: ContainerStage,
}

/// Phase of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContainerStage {
    /// Its program does not run yet.
    Coming,
    /// Its program runs.
    Running,
    /// It has ended.
    Over {
        ended: UnixMillis,
        reason: ExitReason,
        exit_code: Option<i32>,
        peak: Option<Bytes>,
    },
}

/// Report about one node.
#[derive(Clone, Debug)]
pub(crate) struct ClusterNodeReport {
    pub(crate) id: NodeId,
    pub(crate) state: node::ClusterNodeState,
    /// Mark of an operator: cordon or drain.
    pub(crate) mark: Option<NodeMark>,
    pub(crate) url: String,
    pub(crate) version: String,
    pub(crate) rack: Option<Name>,
    pub(crate) labels: Vec<Name>,
    pub(crate) attributes: Vec<(Name, String)>,
    pub(crate) offers: Resource,
    pub(crate) allocated: Resource,
    /// Memory used by its containers. Bytes.
    pub(crate) used: Bytes,
    pub(crate) host_used: Bytes,
    /// Memory that ended containers have left on it. Bytes.
    pub(crate) unattributed: Bytes,
    pub(crate) containers: u32,
    /// Time of its last heartbeat.
    pub(crate) heard: Tick,
}

/// Report about one queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueReport {
    pub(crate) path: QueuePath,
    /// Guaranteed memory. Without a configured guarantee, the share by weight of the memory that
    /// its siblings leave. Bytes.
    pub(crate) guaranteed: Bytes,
    /// Upper limit of its resources.
    pub(crate) maximum: Resource,
    pub(crate) used: Resource,
    /// The part of `used` that masters have.
    pub(crate) masters: Resource,
    /// Resources of its waiting containers.
    pub(crate) pending: Resource,
    pub(crate) pending_containers: u64,
    pub(crate) containers: u32,
    pub(crate) apps: usize,
    /// Effective state: its own, or that of a parent queue.
    pub(crate) state: QueueState,
    pub(crate) spec: QueueSpec,
    /// Resources by user, for leaf queues.
    pub(crate) users: Vec<(String, Resource)>,
    pub(crate) children: Vec<QueueReport>,
}

impl ClusterNodeReport {
    /// Resources that are not allocated.
    pub(crate) fn free(&self) -> Resource {
        let free = rest(&self.offers, &self.allocated);
        Resource {
            memory: free.memory.saturating_sub(self.unattributed),
            ..free
        }
    }
}

impl ApplicationReport {
    /// Sum of all waiting containers.
    pub(crate) fn pending(&self) -> Resource {
        let mut sum = Resource::default();
        for waiting in &self.waiting {
            let times = u64::from(waiting.count);
            let size = &waiting.size;
            let memory = size.memory.mul_ratio(times, 1);
            let cpus = u32::try_from(u64::from(size.cpus.milli()) * times).map_or(u32::MAX, |n| n);
            let extra = size
                .extra
                .iter()
                .map(|(name, n)| (name.clone(), n.saturating_mul(times)))
                .collect();
            sum = sum
                .checked_add(&Resource {
                    memory,
                    cpus: Cpus::from_milli(cpus),
                    extra,
                })
                .unwrap_or(sum);
        }
        sum
    }
}

/// Sum of sizes.
pub(crate) fn sum<'a>(sizes: impl IntoIterator<Item = &'a Resource>) -> Resource {
    sizes.into_iter().fold(Resource::default(), |sum, size| {
        sum.checked_add(size).unwrap_or(sum)
    })
}

/// Difference of two sizes; zero where `taken` exceeds `whole`.
pub(crate) fn rest(whole: &Resource, taken: &Resource) -> Resource {
    let left = |name: &Name, n: u64| n.saturating_sub(taken.extra.get(name).copied().unwrap_or(0));
    Resource {
        memory: whole.memory.saturating_sub(taken.memory),
        cpus: Cpus::from_milli(whole.cpus.milli().saturating_sub(taken.cpus.milli())),
        extra: whole
            .extra
            .iter()
            .map(|(name, n)| (name.clone(), left(name, *n)))
            .collect(),
    }
}

impl Use {
    fn add(&mut self, size: &Resource, from: UnixMillis, to: UnixMillis) {
        let ms = to.since(from).as_millis();
        self.memory = self
            .memory
            .saturating_add(ms.saturating_mul(u128::from(size.memory.get())));
        self.cpus = self
            .cpus
            .saturating_add(ms.saturating_mul(u128::from(size.cpus.milli())));
    }
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
    app.used.add(&c.size, c.granted, end);
    app.granted_recently += u32::from(now.since(c.granted) <= RECENT_GRANTS);
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
        preempted.used.add(&c.size, c.granted, end);
    }
    if c.request.is_none() {
        app.masters.insert(c.attempt, c.clone());
    }
}

fn of_app(cluster: &Cluster, app: &App, now: Tick) -> ApplicationReport {
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
        diagnostics: diagnostics(cluster, app, now),
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
        granted_recently: 0,
        allocated: Resource::default(),
        reserved: Vec::new(),
        waiting: waiting(app),
        used: Use::default(),
        preempted: Preempted::default(),
    }
}

fn diagnostics(cluster: &Cluster, app: &App, now: Tick) -> String {
    if !app.diagnostics.is_empty() {
        return app.diagnostics.clone();
    }
    cluster
        .master_sentence(app, now)
        .map(|why| format!("its master waits: {why}"))
        .unwrap_or_default()
}

fn waiting(app: &App) -> Vec<WaitingContainers> {
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
    let ids = cluster
        .app(app)
        .map(|app| app.containers.iter())
        .into_iter()
        .flatten();
    over_first
        .chain(
            ids.filter_map(|id| cluster.container(id))
                .map(|c| live(cluster, c)),
        )
        .collect()
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

fn of_node(cluster: &Cluster, node: &node::Node) -> ClusterNodeReport {
    let account = cluster.ledger().node(&node.id).cloned().unwrap_or_default();
    let alive = node
        .containers
        .iter()
        .filter_map(|id| cluster.container(id))
        .filter(|c| c.state.is_alive());
    let (mut used, mut containers) = (Bytes::ZERO, 0);
    for c in alive {
        used = used.saturating_add(c.used.unwrap_or_default());
        containers += 1;
    }
    let traits = cluster.traits(node);
    ClusterNodeReport {
        id: node.id.clone(),
        state: node.state.clone(),
        mark: cluster.mark(&node.id).cloned(),
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
    let by_path: BTreeMap<&QueuePath, &QueueView<'_>> =
        all.iter().map(|queue| (queue.path, queue)).collect();
    Some(of_queue(all.first()?, whole, &by_path))
}

fn of_queue(
    queue: &QueueView<'_>,
    guaranteed: Bytes,
    all: &BTreeMap<&QueuePath, &QueueView<'_>>,
) -> QueueReport {
    let children: Vec<&QueueView<'_>> = queue
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
fn parts(siblings: &[&QueueView<'_>], whole: Bytes) -> Vec<Bytes> {
    let written = |queue: &QueueView<'_>| {
        queue
            .spec
            .guaranteed
            .memory
            .map(|_| queue.guaranteed.memory)
    };
    let weight = |queue: &QueueView<'_>| u64::from(queue.spec.weight.unwrap_or(1));
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

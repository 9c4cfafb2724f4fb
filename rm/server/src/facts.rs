//! What interfaces made for other systems ask for and the published view does not have: use over time, ends, sizes that wait.
//!
//! Read from the cluster between two batches. Changes nothing, and knows nobody's words but ours.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_rm_core::QueueView;
use headroom_rm_core::app::{self, App};
use headroom_rm_core::container::{self, Container};
use headroom_rm_core::queue::spec::{Gate, QueueSpec};
use headroom_rm_core::{Cluster, Finished, Master, NodeMark, Run, attempt, node};
use headroom_types::{
    AppId, Bytes, ContainerId, Cpus, ExitReason, Name, NodeId, QueuePath, RequestId, Resource, Tick, UnixMillis,
};
use tokio::sync::oneshot;

/// What was granted no longer ago than this counts as granted lately.
const LATELY: Duration = Duration::from_secs(1);

/// Which applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// All that are kept.
    All,
    /// The one of this number.
    Number(u32),
}

/// What is asked.
#[derive(Debug)]
pub(crate) enum Question {
    /// Applications, in the order of submission.
    Apps {
        /// Which.
        of: Of,
        /// Now, on the wall clock: use is counted up to here.
        wall: UnixMillis,
        /// Gets them.
        reply: oneshot::Sender<Vec<AppFacts>>,
    },
    /// Containers of one application that are kept, those that are over first.
    Containers(AppId, oneshot::Sender<Vec<ContainerFacts>>),
    /// All nodes.
    Nodes(oneshot::Sender<Vec<NodeFacts>>),
    /// The root of the queues with all below it.
    Queues(oneshot::Sender<Option<QueueFacts>>),
}

/// One application.
#[derive(Clone, Debug)]
pub(crate) struct AppFacts {
    pub(crate) id: AppId,
    pub(crate) queue: QueuePath,
    pub(crate) priority: i32,
    pub(crate) user: String,
    pub(crate) state: app::State,
    pub(crate) diagnostics: String,
    pub(crate) submitted: UnixMillis,
    pub(crate) ended: Option<UnixMillis>,
    /// When its time is over.
    pub(crate) until: Option<UnixMillis>,
    /// Environment of a managed master; `None` when somebody else runs it.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    pub(crate) master_url: Option<String>,
    /// Number of the current run of its master.
    pub(crate) attempt: u32,
    /// Where that run is.
    pub(crate) run: attempt::State,
    /// The latest runs of its master, the current one last.
    pub(crate) runs: Vec<Run>,
    /// Containers of its masters that are kept, by run.
    pub(crate) masters: BTreeMap<u32, ContainerFacts>,
    pub(crate) live: u32,
    /// Containers granted in the last second.
    pub(crate) granted_lately: u32,
    /// What its containers have.
    pub(crate) allocated: Resource,
    /// Sizes for which a node is kept.
    pub(crate) reserved: Vec<Resource>,
    /// What waits, its master included.
    pub(crate) waiting: Vec<Waiting>,
    /// By containers that are kept.
    pub(crate) used: Use,
    /// The part of it that was taken for others.
    pub(crate) preempted: Preempted,
}

/// Containers of one size that are still to come.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
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

/// What was taken back for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preempted {
    pub(crate) masters: u32,
    pub(crate) others: u32,
    pub(crate) memory: Bytes,
    pub(crate) cpus: Cpus,
    pub(crate) used: Use,
}

/// One container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerFacts {
    pub(crate) id: ContainerId,
    pub(crate) attempt: u32,
    pub(crate) node: NodeId,
    /// Where its node answers; `None` when the node is not known any more.
    pub(crate) node_url: Option<String>,
    /// `None` for a master.
    pub(crate) request: Option<RequestId>,
    pub(crate) size: Resource,
    pub(crate) granted: UnixMillis,
    pub(crate) life: Life,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its program does not run yet.
    Coming,
    /// It does.
    Running,
    /// It is over.
    Over { ended: UnixMillis, reason: ExitReason, exit_code: Option<i32>, peak: Option<Bytes> },
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    pub(crate) id: NodeId,
    pub(crate) state: node::State,
    /// What an operator wants of it.
    pub(crate) mark: Option<NodeMark>,
    pub(crate) url: String,
    pub(crate) version: String,
    pub(crate) rack: Option<Name>,
    pub(crate) labels: Vec<Name>,
    pub(crate) attributes: Vec<(Name, String)>,
    pub(crate) offers: Resource,
    pub(crate) allocated: Resource,
    /// Memory of its containers. Bytes.
    pub(crate) used: Bytes,
    pub(crate) host_used: Bytes,
    /// What ended containers have left on it. Bytes.
    pub(crate) unattributed: Bytes,
    pub(crate) containers: u32,
    /// Its last sign of life.
    pub(crate) heard: Tick,
}

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueFacts {
    pub(crate) path: QueuePath,
    /// Memory it can count on; where nothing is written down, its part by weight of what its siblings leave. Bytes.
    pub(crate) guaranteed: Bytes,
    /// What it can never pass.
    pub(crate) maximum: Resource,
    pub(crate) used: Resource,
    /// Of that, by masters.
    pub(crate) masters: Resource,
    /// What waits in it.
    pub(crate) pending: Resource,
    pub(crate) pending_containers: u64,
    pub(crate) containers: u32,
    pub(crate) apps: usize,
    /// In effect: its own, or that of a queue that holds it.
    pub(crate) gate: Gate,
    pub(crate) spec: QueueSpec,
    /// What each user has in it; for leaves.
    pub(crate) users: Vec<(String, Resource)>,
    pub(crate) children: Vec<QueueFacts>,
}

impl NodeFacts {
    /// What can still be taken of it.
    pub(crate) fn free(&self) -> Resource {
        let free = rest(&self.offers, &self.allocated);
        Resource { memory: free.memory.saturating_sub(self.unattributed), ..free }
    }
}

impl AppFacts {
    /// All that waits.
    pub(crate) fn pending(&self) -> Resource {
        let mut sum = Resource::default();
        for waiting in &self.waiting {
            let times = u64::from(waiting.count);
            let size = &waiting.size;
            let memory = size.memory.mul_ratio(times, 1);
            let cpus = u32::try_from(u64::from(size.cpus.milli()) * times).map_or(u32::MAX, |n| n);
            let extra = size.extra.iter().map(|(name, n)| (name.clone(), n.saturating_mul(times))).collect();
            sum = sum.checked_add(&Resource { memory, cpus: Cpus::from_milli(cpus), extra }).unwrap_or(sum);
        }
        sum
    }
}

/// All of these together.
pub(crate) fn sum<'a>(sizes: impl IntoIterator<Item = &'a Resource>) -> Resource {
    sizes.into_iter().fold(Resource::default(), |sum, size| sum.checked_add(size).unwrap_or(sum))
}

/// What is left of one size when another is taken; of a part that is overdrawn, nothing.
pub(crate) fn rest(whole: &Resource, taken: &Resource) -> Resource {
    let left = |name: &Name, n: u64| n.saturating_sub(taken.extra.get(name).copied().unwrap_or(0));
    Resource {
        memory: whole.memory.saturating_sub(taken.memory),
        cpus: Cpus::from_milli(whole.cpus.milli().saturating_sub(taken.cpus.milli())),
        extra: whole.extra.iter().map(|(name, n)| (name.clone(), left(name, *n))).collect(),
    }
}

impl Use {
    fn add(&mut self, size: &Resource, from: UnixMillis, to: UnixMillis) {
        let ms = to.since(from).as_millis();
        self.memory = self.memory.saturating_add(ms.saturating_mul(u128::from(size.memory.get())));
        self.cpus = self.cpus.saturating_add(ms.saturating_mul(u128::from(size.cpus.milli())));
    }
}

/// Answers one question. Whoever asked may have gone.
pub(crate) fn answer(cluster: &Cluster, now: Tick, question: Question) {
    match question {
        Question::Apps { of, wall, reply } => drop(reply.send(apps(cluster, (now, wall), of))),
        Question::Containers(app, reply) => drop(reply.send(containers(cluster, &app))),
        Question::Nodes(reply) => drop(reply.send(nodes(cluster))),
        Question::Queues(reply) => drop(reply.send(queues(cluster))),
    }
}

fn apps(cluster: &Cluster, (now, wall): (Tick, UnixMillis), of: Of) -> Vec<AppFacts> {
    let wanted = |id: &AppId| match of {
        Of::All => true,
        Of::Number(number) => id.seq() == number,
    };
    let mut apps: BTreeMap<&AppId, AppFacts> =
        cluster.apps().filter(|app| wanted(&app.id)).map(|app| (&app.id, of_app(cluster, app, now))).collect();
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
fn count(app: &mut AppFacts, c: &ContainerFacts, now: UnixMillis) {
    let end = match c.life {
        Life::Coming | Life::Running => {
            app.live = app.live.saturating_add(1);
            app.allocated = app.allocated.checked_add(&c.size).unwrap_or_else(|| app.allocated.clone());
            now
        }
        Life::Over { ended, .. } => ended,
    };
    app.used.add(&c.size, c.granted, end);
    app.granted_lately += u32::from(now.since(c.granted) <= LATELY);
    if let Life::Over { reason: ExitReason::Preempted, .. } = c.life {
        let preempted = &mut app.preempted;
        *(if c.request.is_none() { &mut preempted.masters } else { &mut preempted.others }) += 1;
        preempted.memory = preempted.memory.saturating_add(c.size.memory);
        preempted.cpus = Cpus::from_milli(preempted.cpus.milli().saturating_add(c.size.cpus.milli()));
        preempted.used.add(&c.size, c.granted, end);
    }
    if c.request.is_none() {
        app.masters.insert(c.attempt, c.clone());
    }
}

fn of_app(cluster: &Cluster, app: &App, now: Tick) -> AppFacts {
    let environment = match &app.spec.master {
        Master::Managed { launch, .. } => Some(launch.env.clone()),
        Master::Unmanaged => None,
    };
    AppFacts {
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
        granted_lately: 0,
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
    cluster.master_sentence(app, now).map(|why| format!("its master waits: {why}")).unwrap_or_default()
}

fn waiting(app: &App) -> Vec<Waiting> {
    let master = match (&app.run, &app.master) {
        (attempt::State::Scheduled, Some(size)) => {
            Some(Waiting { request: None, priority: app.priority, size: size.resource.clone(), count: 1 })
        }
        _ => None, // an unmanaged one, or it has its container
    };
    let requests = app.requests.iter().map(|(id, request)| Waiting {
        request: Some(id.clone()),
        priority: request.ask.priority,
        size: request.ask.resource.clone(),
        count: app.missing(id),
    });
    master.into_iter().chain(requests.filter(|w| w.count > 0)).collect()
}

fn containers(cluster: &Cluster, app: &AppId) -> Vec<ContainerFacts> {
    let over_first = cluster.history().iter().filter(|c| c.container.app == *app).map(|c| over(cluster, c));
    let ids = cluster.app(app).map(|app| app.containers.iter()).into_iter().flatten();
    over_first.chain(ids.filter_map(|id| cluster.container(id)).map(|c| live(cluster, c))).collect()
}

fn over(cluster: &Cluster, c: &Finished) -> ContainerFacts {
    ContainerFacts {
        id: c.container.clone(),
        attempt: c.attempt,
        node: c.node.clone(),
        node_url: cluster.node(&c.node).map(|n| n.url.clone()),
        request: c.request.clone(),
        size: c.resource.clone(),
        granted: c.granted,
        life: Life::Over { ended: c.ended, reason: c.reason, exit_code: c.exit_code, peak: c.peak },
    }
}

fn live(cluster: &Cluster, c: &Container) -> ContainerFacts {
    let life = match &c.state {
        container::State::Allocated | container::State::Launching => Life::Coming,
        container::State::Running | container::State::Stopping { .. } => Life::Running,
        container::State::Exited { report } | container::State::Done { report } => Life::Over {
            ended: report.ended,
            reason: report.reason,
            exit_code: report.evidence.exit_code,
            peak: report.evidence.own.peak,
        },
    };
    ContainerFacts {
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

fn nodes(cluster: &Cluster) -> Vec<NodeFacts> {
    cluster.nodes().map(|node| of_node(cluster, node)).collect()
}

fn of_node(cluster: &Cluster, node: &node::Node) -> NodeFacts {
    let account = cluster.ledger().node(&node.id).cloned().unwrap_or_default();
    let alive = node.containers.iter().filter_map(|id| cluster.container(id)).filter(|c| c.state.is_alive());
    let (mut used, mut containers) = (Bytes::ZERO, 0);
    for c in alive {
        used = used.saturating_add(c.used.unwrap_or_default());
        containers += 1;
    }
    let traits = cluster.traits(node);
    NodeFacts {
        id: node.id.clone(),
        state: node.state.clone(),
        mark: cluster.mark(&node.id).cloned(),
        url: node.url.clone(),
        version: node.version.clone(),
        rack: traits.rack.clone(),
        labels: traits.labels.iter().cloned().collect(),
        attributes: traits.attributes.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        offers: account.offers,
        allocated: account.allocated,
        used,
        host_used: node.host_used,
        unattributed: account.unattributed,
        containers,
        heard: node.heard,
    }
}

fn queues(cluster: &Cluster) -> Option<QueueFacts> {
    let offers = cluster.nodes().filter(|node| node.state.is_member()).filter_map(|node| cluster.ledger().node(&node.id));
    let whole = offers.map(|account| account.offers.memory).fold(Bytes::ZERO, Bytes::saturating_add);
    let all = cluster.queues();
    let by_path: BTreeMap<&QueuePath, &QueueView<'_>> = all.iter().map(|queue| (queue.path, queue)).collect();
    Some(of_queue(all.first()?, whole, &by_path))
}

fn of_queue(queue: &QueueView<'_>, guaranteed: Bytes, all: &BTreeMap<&QueuePath, &QueueView<'_>>) -> QueueFacts {
    let children: Vec<&QueueView<'_>> = queue.children.iter().filter_map(|path| all.get(path).copied()).collect();
    let parts = parts(&children, guaranteed);
    QueueFacts {
        path: queue.path.clone(),
        guaranteed,
        maximum: queue.maximum.clone(),
        used: queue.used.clone(),
        masters: queue.masters.clone(),
        pending: queue.pending.clone(),
        pending_containers: queue.pending_containers,
        containers: queue.containers,
        apps: queue.apps,
        gate: queue.gate,
        spec: queue.spec.clone(),
        users: queue.users.iter().map(|(user, used)| ((*user).to_owned(), (*used).clone())).collect(),
        children: children.iter().zip(parts).map(|(child, part)| of_queue(child, part, all)).collect(),
    }
}

/// The memory each of some siblings can count on: what is written down, and of the rest each other one a part by its weight.
fn parts(siblings: &[&QueueView<'_>], whole: Bytes) -> Vec<Bytes> {
    let written = |queue: &QueueView<'_>| queue.spec.guaranteed.memory.map(|_| queue.guaranteed.memory);
    let weight = |queue: &QueueView<'_>| u64::from(queue.spec.weight.unwrap_or(1));
    let taken = siblings.iter().filter_map(|queue| written(queue)).fold(Bytes::ZERO, Bytes::saturating_add);
    let others = siblings.iter().filter(|queue| written(queue).is_none());
    let weights = others.map(|queue| weight(queue)).fold(0, u64::saturating_add).max(1);
    let rest = whole.saturating_sub(taken);
    siblings.iter().map(|queue| written(queue).unwrap_or_else(|| rest.mul_ratio(weight(queue), weights))).collect()
}

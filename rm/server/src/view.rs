//! Published view for readers: applications, nodes and statistics, made from the cluster between
//! two batches, and immutable.
//!
//! Readers fill in values that depend on the time of reading (time since the last heartbeat,
//! uptime).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use headroom_rm_core::app::ClusterApplication;
use headroom_rm_core::attempt;
use headroom_rm_core::{CallRefusal, Cluster, node};
use headroom_types::spelling::did_you_mean;
use headroom_types::{AppId, Bytes, Cpus, Epoch, NodeId, Tick, millis};
use headroom_wire::v1::apps::{AppView, ClusterView, MemoryFailureStats};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::nodes::NodeView;
use headroom_wire::v1::queues::QueuesView;

use crate::statistics::ClusterStatistics;
use crate::to_wire;

/// A part of the view that a reader may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewSection {
    /// Applications.
    Apps,
    /// Nodes, without measurements.
    Nodes,
    /// Containers.
    Containers,
    /// Queues.
    Queues,
    /// All parts.
    Status,
}

/// For each part, the batch of its latest change.
#[derive(Clone, Copy, Debug, Default)]
struct LastChangeBatches {
    apps: u64,
    nodes: u64,
    containers: u64,
    queues: u64,
}

/// The cluster at one moment.
#[derive(Debug)]
pub(crate) struct ClusterSnapshot {
    /// The batch after which the view was made.
    pub(crate) batch: u64,
    /// Epoch of the resource manager.
    epoch: Epoch,
    since: LastChangeBatches,
    /// Hash of all containers with their states and versions.
    containers: u64,
    /// Queues.
    pub(crate) queues: QueuesView,
    /// Applications, in order of submission.
    pub(crate) apps: BTreeMap<AppId, AppView>,
    /// Nodes, with the time of the last heartbeat.
    pub(crate) nodes: BTreeMap<NodeId, (NodeView, Tick)>,
    /// Cluster status.
    status: ClusterView,
    /// Statistics for metrics.
    pub(crate) figures: ClusterStatistics,
}

impl ClusterSnapshot {
    /// Makes a view of the cluster; `before` is the previous view of the same incarnation.
    pub(crate) fn of(
        cluster: &Cluster,
        now: Tick,
        batch: u64,
        before: Option<&ClusterSnapshot>,
    ) -> Self {
        let nodes: BTreeMap<_, _> = cluster
            .nodes()
            .map(|n| (n.id.clone(), (node_view(cluster, n), n.heard)))
            .collect();
        let apps: BTreeMap<_, _> = cluster
            .apps()
            .map(|a| (a.id.clone(), app_view(cluster, a, now)))
            .collect();
        let status = status(cluster, now, &nodes, &apps);
        let (epoch, containers, queues) = (
            cluster.epoch(),
            digest(cluster),
            crate::queues::view(cluster),
        );
        let (since, figures) = (
            LastChangeBatches::default(),
            ClusterStatistics::of(cluster, now),
        );
        let mut view = ClusterSnapshot {
            batch,
            epoch,
            since,
            containers,
            queues,
            apps,
            nodes,
            status,
            figures,
        };
        view.since = view.since(before);
        view
    }

    fn since(&self, before: Option<&ClusterSnapshot>) -> LastChangeBatches {
        let Some(before) = before else {
            return LastChangeBatches {
                apps: self.batch,
                nodes: self.batch,
                containers: self.batch,
                queues: self.batch,
            };
        };
        let pick = |same: bool, then: u64| if same { then } else { self.batch };
        let nodes = self.nodes.len() == before.nodes.len()
            && self
                .nodes
                .values()
                .zip(before.nodes.values())
                .all(|((a, _), (b, _))| is_same(a, b));
        LastChangeBatches {
            apps: pick(self.apps == before.apps, before.since.apps),
            nodes: pick(nodes, before.since.nodes),
            containers: pick(
                self.containers == before.containers,
                before.since.containers,
            ),
            queues: pick(self.queues == before.queues, before.since.queues),
        }
    }

    /// Index of the latest change of a part. It increases with every change, also across restarts.
    pub(crate) fn index(&self, part: ViewSection) -> u64 {
        let LastChangeBatches {
            apps,
            nodes,
            containers,
            queues,
        } = self.since;
        let batch = match part {
            ViewSection::Apps => apps,
            ViewSection::Nodes => nodes,
            ViewSection::Containers => containers,
            ViewSection::Queues => queues,
            ViewSection::Status => apps.max(nodes).max(containers).max(queues),
        };
        (u64::from(self.epoch.0) << 32) | (batch & u64::from(u32::MAX))
    }

    /// Cluster status at this moment.
    pub(crate) fn status(&self, now: Tick, hour: MemoryFailureStats) -> ClusterView {
        ClusterView {
            up_s: now.0 / 1000,
            oom_1h: hour.kills,
            memory_1h: Some(hour),
            ..self.status.clone()
        }
    }

    /// Status line for the service manager.
    pub(crate) fn line(&self) -> String {
        let ClusterView {
            epoch,
            nodes_ready,
            nodes,
            apps_live,
            containers,
            pending,
            ..
        } = &self.status;
        format!(
            "epoch {epoch}: {nodes_ready} of {nodes} nodes ready, {apps_live} applications, {containers} containers, {pending} wait"
        )
    }

    /// Adds the most similar name to a problem, if the refusal is about an object that does not
    /// exist.
    pub(crate) fn with_nearest(
        &self,
        refusal: &CallRefusal,
        problem: ProblemDetails,
    ) -> ProblemDetails {
        let near = if let CallRefusal::NoSuchApp(app) = refusal {
            did_you_mean(&app.to_string(), self.apps.keys().map(ToString::to_string))
        } else if let CallRefusal::NoSuchNode(node) = refusal {
            did_you_mean(node.as_str(), self.nodes.keys().map(|n| n.as_str()))
        } else if let CallRefusal::NoSuchQueue(queue) = refusal {
            let all: Vec<&str> = self
                .queues
                .root
                .walk()
                .into_iter()
                .map(|q| q.path.as_str())
                .collect();
            let near = did_you_mean(queue.as_str(), &all);
            Some(near.unwrap_or_else(|| "rmctl queue list shows all queues".to_owned()))
        } else {
            None
        };
        match near {
            Some(near) => problem.hint(near),
            None => problem,
        }
    }
}

/// A node without values that change by themselves.
pub(crate) fn steady(node: &NodeView) -> NodeView {
    NodeView {
        used: Bytes::ZERO,
        host_used: Bytes::ZERO,
        silent_ms: 0,
        peak_1h: None,
        ..node.clone()
    }
}

/// Whether two views of a node differ only in values that change by themselves. It compares in
/// place, because there can be ten thousand nodes.
fn is_same(a: &NodeView, b: &NodeView) -> bool {
    let NodeView {
        id,
        state,
        reason,
        enforcer,
        offers,
        allocated,
        allocated_heap,
        ..
    } = a;
    let NodeView {
        used: _,
        host_used: _,
        silent_ms: _,
        containers,
        url,
        version,
        traits,
        tags,
        mark,
        ..
    } = a;
    let NodeView {
        unattributed,
        left_by,
        ..
    } = a;
    (id, state, reason, enforcer) == (&b.id, &b.state, &b.reason, &b.enforcer)
        && (offers, allocated, allocated_heap, containers)
            == (&b.offers, &b.allocated, &b.allocated_heap, &b.containers)
        && (unattributed, left_by) == (&b.unattributed, &b.left_by)
        && (url, version, traits, tags, mark) == (&b.url, &b.version, &b.traits, &b.tags, &b.mark)
}

/// Hash of all containers.
fn digest(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    for c in cluster.containers() {
        (c.id.app.seq(), c.id.seq, c.state.as_str(), c.version).hash(&mut hasher);
    }
    hasher.finish()
}

/// A node with the time since its last heartbeat.
pub(crate) fn seen_at((view, heard): &(NodeView, Tick), now: Tick) -> NodeView {
    NodeView {
        silent_ms: millis(now.since(*heard)),
        ..view.clone()
    }
}

/// Memory that the live containers of a node use, and their number.
pub(crate) fn usage(cluster: &Cluster, node: &node::ClusterNode) -> (Bytes, u32) {
    let alive = cluster
        .containers_on(&node.id)
        .filter(|c| c.state.is_alive());
    alive.fold((Bytes::ZERO, 0), |(used, number), c| {
        (used.saturating_add(c.used.unwrap_or_default()), number + 1)
    })
}

/// View of one node.
pub(crate) fn node_view(cluster: &Cluster, node: &node::ClusterNode) -> NodeView {
    let account = cluster.ledger().node(&node.id).cloned().unwrap_or_default();
    let (used, containers) = usage(cluster, node);
    NodeView {
        id: node.id.clone(),
        state: cluster.node_table().displayed_state(node).to_owned(),
        reason: node.state.reason().map(str::to_owned),
        enforcer: node.enforcer,
        offers: account.offers,
        allocated: account.allocated,
        allocated_heap: account.heap,
        used,
        host_used: node.host_used,
        unattributed: account.unattributed,
        left_by: node.left_by.clone(),
        containers,
        url: node.url.clone(),
        version: node.version.clone(),
        traits: to_wire::traits(&cluster.node_table().traits(node)),
        tags: Box::new(
            cluster
                .node_table()
                .tags(&node.id)
                .map(to_wire::tags)
                .unwrap_or_default(),
        ),
        silent_ms: 0,
        mark: cluster.node_table().mark(&node.id).map(to_wire::mark),
        peak_1h: None,
    }
}

/// View of one application.
pub(crate) fn app_view(cluster: &Cluster, app: &ClusterApplication, now: Tick) -> AppView {
    let share = cluster.ledger().app(&app.id).cloned().unwrap_or_default();
    AppView {
        id: app.id.clone(),
        queue: app.queue.clone(),
        priority: app.priority,
        user: app.spec.user.clone(),
        state: to_wire::app_state(app.state),
        diagnostics: cluster.application_sentence(app, now),
        master_url: app.master_url.clone(),
        attempt: app.attempt,
        until: app.until,
        attempts: Vec::new(),
        managed: app.is_managed(),
        submitted: app.submitted,
        ended: app.ended,
        containers: share.containers,
        memory: share.used.memory,
        pending: pending(app),
        job: None,
    }
}

/// Number of containers not yet granted, including the master.
fn pending(app: &ClusterApplication) -> u32 {
    app.pending()
        .saturating_add(u32::from(app.run == attempt::AttemptState::Scheduled))
}

fn status(
    cluster: &Cluster,
    now: Tick,
    nodes: &BTreeMap<NodeId, (NodeView, Tick)>,
    apps: &BTreeMap<AppId, AppView>,
) -> ClusterView {
    let ready: Vec<&NodeView> = nodes
        .values()
        .map(|(view, _)| view)
        .filter(|n| n.state == "ready")
        .collect();
    let sum = |of: fn(&NodeView) -> Bytes| {
        nodes
            .values()
            .map(|(n, _)| of(n))
            .fold(Bytes::ZERO, Bytes::saturating_add)
    };
    let cpus = |all: &mut dyn Iterator<Item = Cpus>| {
        Cpus::from_milli(all.fold(0, |sum, c| sum.saturating_add(c.milli())))
    };
    let enforcers: BTreeSet<String> = nodes
        .values()
        .map(|(n, _)| n.enforcer.to_string())
        .collect();
    let live = apps.values().filter(|a| !a.state.is_final());
    ClusterView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: cluster.epoch(),
        up_s: 0,
        nodes_ready: count(ready.len()),
        nodes: count(nodes.len()),
        memory: ready
            .iter()
            .map(|n| n.offers.memory)
            .fold(Bytes::ZERO, Bytes::saturating_add),
        allocated: sum(|n| n.allocated.memory),
        used: sum(|n| n.used),
        cpus: cpus(&mut ready.iter().map(|n| n.offers.cpus)),
        cpus_allocated: cpus(&mut nodes.values().map(|(n, _)| n.allocated.cpus)),
        apps_live: count(live.clone().count()),
        containers: nodes
            .values()
            .map(|(n, _)| n.containers)
            .fold(0, u32::saturating_add),
        pending: live.map(|a| a.pending).fold(0, u32::saturating_add),
        oom_1h: 0,
        memory_1h: None,
        longest_wait: longest_wait(cluster, now),
        enforcers: enforcers.into_iter().collect(),
    }
}

fn longest_wait(cluster: &Cluster, now: Tick) -> Option<String> {
    let since = |app: &ClusterApplication, request| app.requests.get(request).map(|r| r.waiting);
    let (app, request) = cluster
        .waiting()
        .min_by_key(|(app, request)| since(app, request))?;
    let waited = now.since(since(app, request)?).as_secs();
    let sentence = cluster.sentence(app, request, now)?;
    Some(format!("{}/{request} for {waited} s: {sentence}", app.id))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The view before the first batch.
pub(crate) fn empty(epoch: Epoch) -> ClusterSnapshot {
    let cluster = Cluster::new(
        headroom_rm_core::ClusterSettings::default(),
        headroom_rm_core::RestoredCluster {
            epoch,
            ..headroom_rm_core::RestoredCluster::default()
        },
        Tick(0),
    );
    ClusterSnapshot::of(&cluster, Tick(0), 0, None)
}

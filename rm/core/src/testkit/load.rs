//! Simulated cluster under load, for measurements: nodes, queues, requests, and containers that
//! start and end.
//!
//! The caller owns it. It only creates events and processes effects; the caller runs and times the
//! steps between them. A node reports each container once when it runs and once when it has ended.
//! Masters acknowledge, and request as many containers again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, EnforcerKind, Epoch, Evidence, ExitReason,
    ExitReport, LaunchSpec, Name, NodeId, RequestId, Resource, Tick, UnixMillis,
};

use crate::event::{
    AppSubmission, CallAnswer, CallId, ClusterCall, ClusterEffect, ClusterEvent, ContainerCommand,
    ContainerPhase, MasterHeartbeat, MasterKind, MasterUpdate, NodeHealth, NodeHeartbeat,
    NodeProperties, NodeRegistration, ReportedContainer, UpdateKind,
};
use crate::placement::RequestPlacement;
use crate::queue::QueueTree;
use crate::queue::spec::QueueDefinition;
use crate::request::ContainerRequest;
use crate::settings::ClusterSettings;

/// Size of the simulated cluster.
#[derive(Clone, Copy, Debug)]
pub struct LoadShape {
    /// Nodes.
    pub nodes: u32,
    /// Leaf queues.
    pub queues: u32,
    /// Users of each queue, each with one application.
    pub users: u32,
    /// Requests of each application; all of them always wait for more containers.
    pub requests: u32,
    /// Containers that end between two heartbeats of a node.
    pub exits: usize,
}

/// Container on its node.
#[derive(Debug)]
struct LoadContainer {
    id: ContainerId,
    request: RequestId,
    resource: Resource,
    granted: UnixMillis,
    reported: bool,
}

#[derive(Debug)]
struct LoadApplication {
    attempt: AttemptId,
    heard: u64,
    acked: u64,
    wants: Vec<LoadRequest>,
    by_request: BTreeMap<RequestId, usize>,
    changed: Vec<usize>,
}

#[derive(Debug)]
struct LoadRequest {
    request: RequestId,
    size: Resource,
    count: u32,
    ended: u32,
    raised: bool,
}

/// Simulated cluster and its next events.
#[derive(Debug)]
pub struct ClusterLoad {
    shape: LoadShape,
    epoch: Epoch,
    names: Vec<NodeId>,
    held: Vec<Vec<LoadContainer>>,
    by_name: BTreeMap<NodeId, usize>,
    jobs: Vec<LoadApplication>,
    by_app: BTreeMap<AppId, usize>,
    due: Vec<usize>,
    launch: Arc<LaunchSpec>,
    calls: u64,
    turn: usize,
    turns: u64,
    random: u64,
    /// Granted containers.
    pub granted: u64,
}

/// Largest number of updates after which a master sends its heartbeat. With few requests, there are
/// never so many.
const MAX_SYNC_AFTER: u64 = 64;

impl ClusterLoad {
    /// Creates a load of this shape; the caller runs [`ClusterLoad::register_all`] first.
    pub fn new(shape: LoadShape, epoch: Epoch) -> ClusterLoad {
        let names: Vec<NodeId> = (0..shape.nodes)
            .filter_map(|n| format!("node-{n:05}").parse().ok())
            .collect();
        ClusterLoad {
            shape,
            epoch,
            held: names.iter().map(|_| Vec::new()).collect(),
            by_name: names.iter().cloned().zip(0..).collect(),
            names,
            jobs: Vec::new(),
            by_app: BTreeMap::new(),
            due: Vec::new(),
            launch: Arc::new(LaunchSpec {
                command: vec!["true".into()],
                ..LaunchSpec::default()
            }),
            calls: 0,
            turn: 0,
            turns: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            granted: 0,
        }
    }
    /// Settings for the load: leaf queues below the root. The history limits are those of the shipped
    /// configuration.
    pub fn settings(shape: LoadShape) -> ClusterSettings {
        let leaves =
            (0..shape.queues).filter_map(|n| Some((queue(n)?, QueueDefinition::default())));
        let tree = QueueTree::new(QueueDefinition {
            children: leaves.collect(),
            ..QueueDefinition::default()
        });
        ClusterSettings {
            queues: tree.unwrap_or_default(),
            ..ClusterSettings::default()
        }
    }
    /// Registers all nodes, submits all applications and sends their requests.
    pub fn register_all(&mut self, mut step: impl FnMut(ClusterEvent) -> Vec<ClusterEffect>) {
        for n in 0..self.names.len() {
            let Some(what) = self.registration(n) else {
                continue;
            };
            let event = self.event(what);
            let effects = step(event);
            self.take(effects);
        }
        for n in 0..self.shape.queues * self.shape.users {
            let Some(spec) = new_app(n % self.shape.queues, n) else {
                continue;
            };
            let event = self.event(ClusterCall::Submit(Box::new(spec)));
            for effect in step(event) {
                if let ClusterEffect::Answer {
                    answer: Ok(CallAnswer::Submitted { app, .. }),
                    ..
                } = effect
                {
                    self.job(app);
                }
            }
        }
        for n in 0..self.jobs.len() {
            let Some(attempt) = self.jobs.get(n).map(|job| job.attempt.clone()) else {
                continue;
            };
            let register = self.event(ClusterCall::RegisterMaster {
                attempt,
                url: None,
                nodes: None,
            });
            self.take(step(register));
            if let Some(ask) = self.sync(n) {
                self.take(step(ask));
            }
        }
    }
    /// Next event: the heartbeat of a master that is due, or else of the next node.
    pub fn next_event(&mut self) -> ClusterEvent {
        while let Some(job) = self.due.pop() {
            if let Some(sync) = self.sync(job) {
                return sync;
            }
        }
        let nodes = self.names.len().max(1);
        self.turn = (self.turn + 1) % nodes;
        self.turns += 1;
        // consecutive heartbeats come from nodes with distant names
        self.report(self.turn.wrapping_mul(7919) % nodes)
    }
    /// Processes the effects of an event.
    pub fn take(&mut self, effects: impl IntoIterator<Item = ClusterEffect>) {
        for effect in effects {
            match effect {
                ClusterEffect::SendCommand {
                    node,
                    container,
                    want: ContainerCommand::Run(order),
                } => {
                    self.granted += 1;
                    let held = self.by_name.get(&node).and_then(|n| self.held.get_mut(*n));
                    if let (Some(held), Some(request)) = (held, order.request) {
                        let (resource, granted) = (order.resource, order.granted);
                        held.push(LoadContainer {
                            id: container,
                            request,
                            resource,
                            granted,
                            reported: false,
                        });
                    }
                }
                ClusterEffect::Update { app, update } => self.update(&app, update),
                ClusterEffect::SendCommand {
                    want: ContainerCommand::Stop { .. } | ContainerCommand::Forget,
                    ..
                }
                | ClusterEffect::Save(_)
                | ClusterEffect::Answer { .. }
                | ClusterEffect::UpdatesEnd { .. }
                | ClusterEffect::Log(_)
                | ClusterEffect::Illegal { .. } => {}
            }
        }
    }
    /// Time of the next event: every node sends one heartbeat per second.
    pub fn now(&self) -> Tick {
        let turns = self.turns.saturating_mul(1000) / u64::from(self.shape.nodes.max(1));
        Tick(1 + turns)
    }
    /// Containers that run or are starting.
    pub fn live(&self) -> usize {
        self.held.iter().map(Vec::len).sum()
    }
    /// Waiting requests.
    pub fn pending(&self) -> u64 {
        let users = u64::from(self.shape.queues) * u64::from(self.shape.users);
        users * u64::from(self.shape.requests)
    }

    fn event(&mut self, what: ClusterCall) -> ClusterEvent {
        self.calls += 1;
        ClusterEvent::Call {
            call: CallId(self.calls),
            what,
        }
    }
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 33).unwrap_or(0) % below.max(1)
    }
    fn job(&mut self, app: AppId) {
        let entry = |n: u32| {
            let request: RequestId = format!("request-{n:03}").parse().ok()?;
            Some(LoadRequest {
                request,
                size: size(n),
                count: 2,
                ended: 0,
                raised: false,
            })
        };
        let wants: Vec<LoadRequest> = (0..self.shape.requests).filter_map(entry).collect();
        let by_request = wants
            .iter()
            .map(|entry| entry.request.clone())
            .zip(0..)
            .collect();
        let changed = (0..wants.len()).collect();
        self.by_app.insert(app.clone(), self.jobs.len());
        let attempt = AttemptId { app, attempt: 1 };
        self.jobs.push(LoadApplication {
            attempt,
            heard: 0,
            acked: 0,
            wants,
            by_request,
            changed,
        });
    }
    fn registration(&self, n: usize) -> Option<ClusterCall> {
        let offers = Resource::new(Bytes::from_gib(64), Cpus::from_cores(32));
        let facts = NodeRegistration {
            serial: 0,
            offers,
            enforcer: EnforcerKind::Cgroup2,
            url: "http://127.0.0.1:1".into(),
            version: "load".into(),
            traits: NodeProperties::default(),
            health: NodeHealth::Healthy,
            seen: vec![],
            exits: vec![],
            unattributed: Unattributed::default(),
        };
        Some(ClusterCall::RegisterNode {
            node: self.names.get(n)?.clone(),
            facts: Box::new(facts),
        })
    }
    fn sync(&mut self, n: usize) -> Option<ClusterEvent> {
        let (launch, epoch) = (self.launch.clone(), self.epoch);
        let job = self.jobs.get_mut(n)?;
        let mut asks = Vec::with_capacity(job.changed.len());
        for entry in std::mem::take(&mut job.changed) {
            let entry = job.wants.get_mut(entry)?;
            entry.raised = false;
            asks.push(ContainerRequest {
                request: entry.request.clone(),
                resource: entry.size.clone(),
                count: entry.count,
                ended: entry.ended,
                priority: 0,
                place: RequestPlacement::default(),
                deadline: None,
                waited: Duration::ZERO,
                launch: launch.clone(),
            });
        }
        job.acked = job.heard;
        let attempt = job.attempt.clone();
        let sync = MasterHeartbeat {
            attempt,
            epoch,
            ack: job.heard,
            asks,
            withdraw: vec![],
            release: vec![],
        };
        Some(self.event(ClusterCall::Sync(Box::new(sync))))
    }
    fn report(&mut self, n: usize) -> ClusterEvent {
        let node = self.names.get(n).cloned();
        let Some(node) = node else {
            return ClusterEvent::Time;
        };
        let mut ending = Vec::new();
        for _ in 0..self.shape.exits {
            let many = self.held.get(n).map_or(0, Vec::len);
            if many == 0 {
                break;
            }
            let which = self.random(many);
            ending.extend(self.held.get_mut(n).map(|held| held.swap_remove(which)));
        }
        let exits: Vec<Arc<ExitReport>> = ending
            .into_iter()
            .map(|held| Arc::new(exit(&node, held.id)))
            .collect();
        let fresh = self
            .held
            .get_mut(n)
            .into_iter()
            .flatten()
            .filter(|held| !held.reported);
        let seen = fresh.map(|held| {
            held.reported = true;
            seen(held)
        });
        let (seen, epoch) = (seen.collect(), self.epoch);
        let report = NodeHeartbeat {
            epoch,
            seen,
            exits,
            host_used: Bytes::ZERO,
            health: NodeHealth::Healthy,
            unattributed: Unattributed::default(),
        };
        self.event(ClusterCall::Report {
            node,
            report: Box::new(report),
        })
    }
    fn update(&mut self, app: &AppId, update: MasterUpdate) {
        let Some(n) = self.by_app.get(app).copied() else {
            return;
        };
        let Some(job) = self.jobs.get_mut(n) else {
            return;
        };
        job.heard = update.cursor;
        match update.what {
            UpdateKind::Allocated(granted) => {
                let entry = job.by_request.get(&granted.request).copied();
                job.raise(entry, |entry| entry.count += 1);
            }
            UpdateKind::Exited { request, .. } => {
                let entry = job.by_request.get(&request).copied();
                job.raise(entry, |entry| entry.ended += 1);
            }
            UpdateKind::Running { .. }
            | UpdateKind::Resized { .. }
            | UpdateKind::ResizeFailed { .. }
            | UpdateKind::PreemptSoon { .. }
            | UpdateKind::NodeDraining { .. }
            | UpdateKind::Expired { .. }
            | UpdateKind::Order(_) => {}
        }
        let sync_after = MAX_SYNC_AFTER.min(2 * u64::from(self.shape.requests));
        if job.heard == job.acked + sync_after {
            self.due.push(n);
        }
    }
}

impl LoadApplication {
    fn raise(&mut self, which: Option<usize>, what: impl FnOnce(&mut LoadRequest)) {
        let Some((n, entry)) = which.and_then(|n| Some((n, self.wants.get_mut(n)?))) else {
            return;
        };
        what(entry);
        if !std::mem::replace(&mut entry.raised, true) {
            self.changed.push(n);
        }
    }
}

fn queue(n: u32) -> Option<Name> {
    format!("queue-{n:04}").parse().ok()
}

fn new_app(in_queue: u32, user: u32) -> Option<AppSubmission> {
    Some(AppSubmission {
        name: "job".parse().ok()?,
        queue: queue(in_queue)?.to_string().parse().ok()?,
        priority: 0,
        user: format!("user-{user:04}"),
        lifetime: None,
        master: MasterKind::Unmanaged,
        key: None,
    })
}

/// Three sizes, like the executors of three jobs.
fn size(n: u32) -> Resource {
    match n % 3 {
        0 => Resource::new(Bytes::from_gib(2), Cpus::from_cores(1)),
        1 => Resource::new(Bytes::from_gib(4), Cpus::from_cores(2)),
        _ => Resource::new(Bytes::from_gib(6), Cpus::from_cores(4)),
    }
}

fn seen(held: &LoadContainer) -> ReportedContainer {
    ReportedContainer {
        container: held.id.clone(),
        request: Some(held.request.clone()),
        attempt: 1,
        resource: held.resource.clone(),
        version: 1,
        refused: None,
        phase: ContainerPhase::Running,
        used: None,
        granted: held.granted,
    }
}

fn exit(node: &NodeId, container: ContainerId) -> ExitReport {
    ExitReport {
        container,
        node: node.clone(),
        reason: ExitReason::Exit { code: 0 },
        evidence: Evidence::empty(EnforcerKind::Cgroup2),
        diagnosis: vec![],
        started: None,
        ended: UnixMillis(1),
        timeline: vec![],
        log_tail: String::new(),
        tasks: vec![],
    }
}

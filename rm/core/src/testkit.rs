//! Simulated cluster with fake nodes and masters, for scenario tests.
//!
//! Fake nodes hold containers and unacknowledged exit reports, and remove them on command. After a
//! restart, the fake store returns exactly the saved records. The invariants are checked after
//! every step. A [`ClusterScenario`] that is dropped without [`ClusterScenario::check`] panics, so
//! that no test omits the last check.

mod fake;
pub mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, Epoch, ExitReason, LaunchSpec, NodeId, Resource,
    Tick, UnixMillis,
};

pub use fake::{FakeContainer, FakeNode};

use crate::cluster::{Cluster, RestoredApp, RestoredCluster};
use crate::event::{
    AppSubmission, ApplicationOutcome, CallAnswer, CallId, CallRefusal, CallResult, ClusterCall,
    ClusterEffect, ClusterEvent, ContainerCommand, DryRun, EventLogLine, FinalRows,
    MasterHeartbeat, MasterKind, MasterUpdate, NodeHealth, NodeHeartbeat, RequestVerdict,
    UpdateKind,
};
use crate::history::EndedContainer;
use crate::node_tags::NodeTags;
use crate::queue::QueueTree;
use crate::request::ContainerRequest;
use crate::save::{DurableRecord, SavedDrainMark, SavedState};
use crate::settings::ClusterSettings;

/// Parses any id.
///
/// # Panics
/// When the text is not a valid id.
pub fn id<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("an id in a test")
}

/// The cluster, whose passes are compared with their reference.
fn compared(mut cluster: Cluster) -> Cluster {
    cluster.compare_passes();
    cluster
}

/// Size in GiB and cores.
pub fn size(gib: u64, cores: u32) -> Resource {
    Resource::new(Bytes::from_gib(gib), Cpus::from_cores(cores))
}

/// Store in memory.
#[derive(Clone, Debug, Default)]
pub struct FakeStore {
    apps: BTreeMap<AppId, (Arc<AppSubmission>, UnixMillis)>,
    states: BTreeMap<AppId, SavedState>,
    finished: Vec<EndedContainer>,
    nodes: BTreeSet<NodeId>,
    marks: BTreeMap<NodeId, SavedDrainMark>,
    tags: BTreeMap<NodeId, NodeTags>,
    queues: Option<(u64, QueueTree)>,
    last_app: u32,
}

impl FakeStore {
    fn save(&mut self, save: &DurableRecord) {
        match save.clone() {
            DurableRecord::App {
                app,
                spec,
                submitted,
            } => {
                self.last_app = self.last_app.max(app.seq());
                self.apps.insert(app, (spec, submitted));
            }
            DurableRecord::State { app, state } => {
                self.states.insert(app, *state);
            }
            DurableRecord::AppGone(app) => {
                self.apps.remove(&app);
                self.states.remove(&app);
            }
            DurableRecord::Container(finished) => {
                self.finished.push(Arc::unwrap_or_clone(finished))
            }
            DurableRecord::ContainerGone(id) => self.finished.retain(|f| f.container != id),
            DurableRecord::Node(node) => {
                self.nodes.insert(node);
            }
            DurableRecord::NodeGone(node) => {
                self.nodes.remove(&node);
            }
            DurableRecord::Queues { generation, tree } => self.queues = Some((generation, *tree)),
            DurableRecord::Mark { node, mark } => {
                self.marks.insert(node, mark);
            }
            DurableRecord::MarkGone(node) => {
                self.marks.remove(&node);
            }
            DurableRecord::Tags { node, tags } if tags.is_empty() => drop(self.tags.remove(&node)),
            DurableRecord::Tags { node, tags } => drop(self.tags.insert(node, *tags)),
        }
    }
    fn load(&self, epoch: Epoch) -> RestoredCluster {
        let apps = self.apps.iter().filter_map(|(id, (spec, submitted))| {
            let state = self.states.get(id)?.clone();
            Some(RestoredApp {
                id: id.clone(),
                spec: spec.clone(),
                submitted: *submitted,
                state,
            })
        });
        RestoredCluster {
            epoch,
            last_app: self.last_app,
            apps: apps.collect(),
            finished: self.finished.clone(),
            nodes: self.nodes.iter().cloned().collect(),
            marks: self.marks.clone().into_iter().collect(),
            tags: self.tags.clone().into_iter().collect(),
            queues: self.queues.clone(),
        }
    }
}

/// Cluster, fake nodes and fake store of one test.
#[derive(Debug)]
pub struct ClusterScenario {
    /// The cluster.
    pub cluster: Cluster,
    /// Fake nodes.
    pub nodes: BTreeMap<NodeId, FakeNode>,
    /// All lines of the event log.
    pub log: Vec<EventLogLine>,
    /// All updates by application, of all incarnations.
    pub updates: BTreeMap<AppId, Vec<(Epoch, MasterUpdate)>>,
    /// All containers that nodes were ordered to run.
    pub ordered: BTreeSet<ContainerId>,
    /// Current time.
    pub now: Tick,
    settings: ClusterSettings,
    store: FakeStore,
    epoch: Epoch,
    calls: u64,
    checked: bool,
}

impl Default for ClusterScenario {
    fn default() -> Self {
        ClusterScenario::new()
    }
}

impl ClusterScenario {
    /// Creates an empty cluster with default settings.
    pub fn new() -> Self {
        ClusterScenario::with(ClusterSettings {
            unix_at_zero: UnixMillis(1_000_000),
            ..ClusterSettings::default()
        })
    }
    /// Creates an empty cluster.
    pub fn with(settings: ClusterSettings) -> Self {
        let epoch = Epoch(1);
        let restored = RestoredCluster {
            epoch,
            ..RestoredCluster::default()
        };
        ClusterScenario {
            cluster: compared(Cluster::new(settings.clone(), restored, Tick(0))),
            nodes: BTreeMap::new(),
            log: Vec::new(),
            updates: BTreeMap::new(),
            ordered: BTreeSet::new(),
            now: Tick(0),
            settings,
            store: FakeStore::default(),
            epoch,
            calls: 0,
            checked: false,
        }
    }

    /// Restarts the resource manager. Nodes keep their containers and must register again.
    pub fn restart(&mut self) -> &mut Self {
        self.epoch = Epoch(self.epoch.0 + 1);
        let restored = self.store.load(self.epoch);
        self.cluster = compared(Cluster::new(self.settings.clone(), restored, self.now));
        for node in self.nodes.values_mut() {
            node.connected = false;
        }
        self.cluster.assert_invariants();
        self
    }

    /// Changes the settings; they apply after the next restart.
    pub fn reconfigure(&mut self, what: impl FnOnce(&mut ClusterSettings)) -> &mut Self {
        what(&mut self.settings);
        self
    }

    /// Changes the settings; they apply immediately.
    ///
    /// # Errors
    /// The refusal of the resource manager.
    pub fn configure(&mut self, what: impl FnOnce(&mut ClusterSettings)) -> CallResult {
        what(&mut self.settings);
        self.call(ClusterCall::Configure(Box::new(self.settings.clone())))
    }

    /// Processes one event, applies its effects to the store and the nodes, and checks the
    /// invariants.
    ///
    /// # Panics
    /// When an invariant does not hold or a state machine rejected an event.
    pub fn step(&mut self, event: ClusterEvent) -> Option<CallResult> {
        let mut out = Vec::new();
        self.cluster.step(self.now, event, &mut out);
        self.cluster.assert_invariants();
        let mut answer = None;
        for effect in out {
            match effect {
                ClusterEffect::Save(save) => self.store.save(&save),
                ClusterEffect::Answer { answer: a, .. } => {
                    assert!(answer.is_none(), "two answers to one call");
                    answer = Some(a);
                }
                ClusterEffect::SendCommand {
                    node,
                    container,
                    want,
                } => self.record_command(&node, container, want),
                ClusterEffect::Update { app, update } => self
                    .updates
                    .entry(app)
                    .or_default()
                    .push((self.epoch, update)),
                ClusterEffect::UpdatesEnd { .. } => {}
                ClusterEffect::Log(line) => self.log.push(line),
                ClusterEffect::Illegal { what: problem } => panic!("illegal: {problem}"),
            }
        }
        answer
    }

    fn record_command(&mut self, node: &NodeId, container: ContainerId, want: ContainerCommand) {
        match &want {
            // a later version is a resize order
            ContainerCommand::Run(order) if order.version > 1 => {
                assert!(
                    self.ordered.contains(&container),
                    "{container} is resized and was never granted"
                );
            }
            ContainerCommand::Run(_) => assert!(
                self.ordered.insert(container.clone()),
                "{container} was granted twice"
            ),
            ContainerCommand::Stop { .. } | ContainerCommand::Forget => {}
        }
        let Some(fake) = self.nodes.get_mut(node).filter(|n| n.connected) else {
            return;
        };
        fake.obey(container, want);
    }

    /// Makes a call and returns its answer.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn call(&mut self, what: ClusterCall) -> CallResult {
        self.calls += 1;
        self.step(ClusterEvent::Call {
            call: CallId(self.calls),
            what,
        })
        .expect("every call has an answer")
    }

    /// Advances the time; timers fire in order. Nodes send nothing.
    pub fn after(&mut self, by: Duration) -> &mut Self {
        let until = self.now.plus(by);
        while let Some(due) = self.cluster.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.step(ClusterEvent::Time);
        }
        self.now = until;
        self.step(ClusterEvent::Time);
        self
    }

    /// Advances the time; every connected node sends a heartbeat each second.
    pub fn alive_for(&mut self, by: Duration) -> &mut Self {
        let until = self.now.plus(by);
        while self.now < until {
            let left = until.since(self.now).min(Duration::from_secs(1));
            self.after(left);
            self.report_all();
        }
        self
    }

    /// Registers a node, which receives its desired containers.
    ///
    /// # Panics
    /// When the registration is refused.
    pub fn register(&mut self, node: &str) -> &mut Self {
        self.try_register(node)
            .unwrap_or_else(|refusal| panic!("{node} was refused: {refusal:?}"));
        self
    }
    /// Registers a node without containers, with this registration number.
    ///
    /// # Errors
    /// The refusal of the resource manager.
    pub fn register_empty(&mut self, node: &str, serial: u64) -> Result<CallAnswer, CallRefusal> {
        let node: NodeId = id(node);
        let facts = self
            .nodes
            .get(&node)
            .expect("a node of this scenario")
            .registration();
        let facts = Box::new(crate::NodeRegistration {
            seen: Vec::new(),
            exits: Vec::new(),
            serial,
            ..facts
        });
        self.call(ClusterCall::RegisterNode { node, facts })
    }
    /// Registers a node that may be refused.
    ///
    /// # Errors
    /// The refusal of the resource manager.
    ///
    /// # Panics
    /// When the answer belongs to another call.
    pub fn try_register(&mut self, node: &str) -> Result<(), CallRefusal> {
        let node: NodeId = id(node);
        let facts = self
            .nodes
            .get(&node)
            .expect("a node of this scenario")
            .registration();
        let answer = self.call(ClusterCall::RegisterNode {
            node: node.clone(),
            facts: Box::new(facts),
        })?;
        let CallAnswer::Node { acked } = answer else {
            panic!("{answer:?} to a registration")
        };
        let commands = self.cluster.commands_for(&node);
        let fake = self.nodes.get_mut(&node).expect("a node of this scenario");
        fake.connected = true;
        for container in acked {
            fake.forget(&container);
        }
        for (container, want) in commands {
            fake.obey(container, want);
        }
        Ok(())
    }
    /// Adds a node with these resources and registers it.
    pub fn node(&mut self, node: &str, offers: Resource) -> &mut Self {
        self.nodes.insert(
            id(node),
            FakeNode {
                offers,
                ..FakeNode::default()
            },
        );
        self.register(node)
    }

    /// Sends a heartbeat of a node with all its containers.
    pub fn report(&mut self, node: &str) -> CallResult {
        let node: NodeId = id(node);
        let fake = self.nodes.get(&node).expect("a node of this scenario");
        let report = NodeHeartbeat {
            epoch: self.epoch,
            seen: fake.seen(),
            exits: fake.exits.values().cloned().map(Arc::new).collect(),
            host_used: Bytes::ZERO,
            health: NodeHealth::Healthy,
            unattributed: fake.unattributed.clone(),
        };
        self.call(ClusterCall::Report {
            node,
            report: Box::new(report),
        })
    }
    /// Sends heartbeats of all connected nodes.
    pub fn report_all(&mut self) -> &mut Self {
        let names: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, n)| n.connected)
            .map(|(id, _)| id.to_string())
            .collect();
        for node in names {
            let _ = self.report(&node); // a lost node is refused, as expected
        }
        self
    }
    /// Starts and stops containers on all nodes as ordered, and reports it.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..3 {
            let wall = UnixMillis(self.settings.unix_at_zero.0 + self.now.0);
            for (name, node) in &mut self.nodes {
                node.go_on(name, wall);
            }
            self.report_all();
        }
        self
    }
    /// Ends a container's program; its node reports it.
    ///
    /// # Panics
    /// When no node has the container.
    pub fn exit(&mut self, container: &ContainerId, reason: ExitReason) -> &mut Self {
        let wall = UnixMillis(self.settings.unix_at_zero.0 + self.now.0);
        let (name, node) = self
            .nodes
            .iter_mut()
            .find(|(_, n)| n.has.contains_key(container))
            .expect("a node has the container");
        node.end(name, container, reason, wall);
        let name = name.to_string();
        let _ = self.report(&name);
        self
    }

    /// Submits an unmanaged application and registers its master.
    ///
    /// # Panics
    /// When a call is refused.
    pub fn app(&mut self, name: &str) -> AppId {
        let app = self.submit(name, 0, MasterKind::Unmanaged);
        let attempt = AttemptId {
            app: app.clone(),
            attempt: 1,
        };
        self.call(ClusterCall::RegisterMaster {
            attempt,
            url: None,
            nodes: None,
        })
        .expect("registers");
        app
    }
    /// Submits a managed application with this size of the master.
    pub fn managed(&mut self, name: &str, resource: Resource, max_attempts: u32) -> AppId {
        let launch = Arc::new(LaunchSpec {
            command: vec!["appmaster".into()],
            ..LaunchSpec::default()
        });
        self.submit(
            name,
            0,
            MasterKind::Managed {
                resource,
                launch,
                max_attempts,
                growth: None,
                start_timeout: None,
                first_request: None,
            },
        )
    }
    /// Submits an application.
    ///
    /// # Panics
    /// When the submission is refused.
    pub fn submit(&mut self, name: &str, priority: i32, master: MasterKind) -> AppId {
        let spec = AppSubmission {
            name: id(name),
            queue: id("default"),
            priority,
            user: "test".into(),
            lifetime: None,
            master,
            key: None,
        };
        match self.call(ClusterCall::Submit(Box::new(spec))) {
            Ok(CallAnswer::Submitted { app, .. }) => app,
            other => panic!("not submitted: {other:?}"),
        }
    }
    /// Id of the current attempt of an application.
    ///
    /// # Panics
    /// When the application does not exist.
    pub fn attempt(&self, app: &AppId) -> AttemptId {
        self.cluster
            .app(app)
            .expect("an application of this scenario")
            .attempt_id()
    }
    /// Registers the current master.
    ///
    /// # Errors
    /// The refusal of the resource manager.
    pub fn master(&mut self, app: &AppId) -> CallResult {
        let attempt = self.attempt(app);
        self.call(ClusterCall::RegisterMaster {
            attempt,
            url: None,
            nodes: None,
        })
    }

    /// Requests containers.
    pub fn ask(
        &mut self,
        app: &AppId,
        request: &str,
        count: u32,
        resource: Resource,
    ) -> CallResult {
        self.call(ClusterCall::Ask {
            app: app.clone(),
            ask: Box::new(ask(request, count, resource)),
            how: DryRun::Really,
        })
    }
    /// Requests containers and returns the reason of the wait.
    ///
    /// # Panics
    /// When the request does not wait.
    pub fn ask_waits(
        &mut self,
        app: &AppId,
        request: &str,
        count: u32,
        resource: Resource,
    ) -> String {
        match self.ask(app, request, count, resource) {
            Ok(CallAnswer::Asked {
                verdict: RequestVerdict::Waits { sentence },
            }) => sentence.to_string(),
            other => panic!("does not wait: {other:?}"),
        }
    }
    /// Sends a master's heartbeat that acknowledges all updates up to `ack`.
    pub fn sync(&mut self, app: &AppId, ack: u64, asks: Vec<ContainerRequest>) -> CallResult {
        let (attempt, epoch) = (self.attempt(app), self.epoch);
        self.call(ClusterCall::Sync(Box::new(MasterHeartbeat {
            attempt,
            epoch,
            ack,
            asks,
            withdraw: vec![],
            release: vec![],
        })))
    }
    /// Finishes an application.
    pub fn finish(&mut self, app: &AppId, outcome: ApplicationOutcome) -> CallResult {
        let attempt = self.attempt(app);
        self.call(ClusterCall::Finish {
            attempt,
            outcome,
            diagnostics: "done".into(),
            rows: FinalRows::All,
        })
    }

    /// Live containers of an application.
    pub fn alive(&self, app: &AppId) -> Vec<ContainerId> {
        let mine = self
            .cluster
            .containers()
            .filter(|c| c.id.app == *app && c.state.is_alive());
        mine.map(|c| c.id.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
    /// Unacknowledged ends that were sent to an application in this incarnation.
    pub fn unacked_exits(&self, app: &AppId) -> Vec<ContainerId> {
        let acked = self.cluster.app(app).map_or(0, |a| a.updates.acked());
        let updates = self.cluster.updates(app, acked).unwrap_or_default();
        let exits = updates.iter().filter_map(|u| match &u.what {
            UpdateKind::Exited { report, .. } => Some(report.container.clone()),
            UpdateKind::Allocated(_)
            | UpdateKind::Running { .. }
            | UpdateKind::Resized { .. }
            | UpdateKind::ResizeFailed { .. }
            | UpdateKind::PreemptSoon { .. }
            | UpdateKind::NodeDraining { .. }
            | UpdateKind::Expired { .. }
            | UpdateKind::Order(_) => None,
        });
        exits.collect()
    }
    /// State of an application.
    pub fn state(&self, app: &AppId) -> &'static str {
        self.cluster.app(app).map_or("gone", |a| a.state.as_str())
    }
    /// Number of log lines with this reason.
    pub fn logged(&self, reason: &str) -> usize {
        self.log
            .iter()
            .filter(|l| l.reason.as_str() == reason)
            .count()
    }
    /// Epoch of this incarnation of the resource manager.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Checks the invariants a last time and ends the scenario.
    pub fn check(mut self) {
        self.cluster.assert_invariants();
        self.checked = true;
    }
}

impl Drop for ClusterScenario {
    fn drop(&mut self) {
        assert!(
            self.checked || std::thread::panicking(),
            "the scenario does not end with check()"
        );
    }
}

/// Request without placement rules.
pub fn ask(request: &str, count: u32, resource: Resource) -> ContainerRequest {
    ContainerRequest {
        request: id(request),
        resource,
        count,
        ended: 0,
        priority: 0,
        place: crate::placement::RequestPlacement::default(),
        deadline: None,
        waited: Duration::ZERO,
        launch: Arc::new(LaunchSpec {
            command: vec!["true".into()],
            ..LaunchSpec::default()
        }),
    }
}

/// True when a call was refused as infeasible.
pub fn is_never(answer: &CallResult) -> bool {
    matches!(answer, Err(CallRefusal::NeverFits { .. }))
}

//! A fake node and a fake master without processes: the test controls them, one message at a time.
//!
//! Every wait has a timeout, and its error names the awaited condition.

#![allow(dead_code)] // each test file uses only a part

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use headroom_client::{Client, ClientError, JsonLineStream};
use headroom_rm_server::{ManagerOptions, RunningManager, start};
use headroom_types::{
    AppId, AttemptId, Bytes, Certainty, ContainerId, Cpus, Diagnosis, EnforcerKind, Epoch,
    Evidence, ExitReason, ExitReport, LaunchSpec, NodeId, Resource, StoreBackend, SubCause,
    UnixMillis,
};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, FinishApplicationRequest, MasterSync,
    PlacementRequest, PlacementResponse, RegisterMaster,
};
use headroom_wire::v1::apps::{
    AppState, AppView, ApplicationMaster, SubmissionResult, SubmitApplicationRequest,
};
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredStateLine, NodeContainerPhase, NodeHealthState, NodeReport,
    NodeTraits, ObservedContainer, RegisterNode, RunOrder,
};

/// Timeout for actions that take a moment, on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("timeout while waiting for {what}"))
}

/// Polls until the result exists.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    soon(what, async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    })
    .await
}

pub(crate) async fn resource_manager(state: &Path) -> (RunningManager, Client) {
    resource_manager_with(state, StoreBackend::default()).await
}

pub(crate) async fn resource_manager_with(
    state: &Path,
    store: StoreBackend,
) -> (RunningManager, Client) {
    let mut options =
        ManagerOptions::new("127.0.0.1:0".parse().expect("address"), state.to_owned());
    options.config.store = store;
    let running = start(options).await.expect("starts");
    let client = Client::new(&running.url).expect("address");
    (running, client)
}

/// The real daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    pub(crate) client: Client,
}

/// Path of the daemon, which cargo builds only for tests of its own package, `rm/daemon`. Tests of
/// other packages start the resource manager in their own process.
fn program() -> &'static str {
    let built: Option<&'static str> = option_env!("CARGO_BIN_EXE_resourcemanager");
    built.expect("the test belongs to the package of the daemon")
}

/// Free port below the range that the kernel uses for outgoing connections. Each process has its
/// own block, so that a restarted daemon finds its port free.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let row = 10_000 + u16::try_from(std::process::id() % 2_200).expect("small") * 10;
    let mut ports = (0..10).map(|_| row + GIVEN.fetch_add(1, Ordering::Relaxed) % 10);
    ports
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

impl Daemon {
    pub(crate) async fn start(state: &Path, port: u16) -> Daemon {
        Daemon::start_with(state, port, StoreBackend::default()).await
    }
    pub(crate) async fn start_with(state: &Path, port: u16, store: StoreBackend) -> Daemon {
        let child = Command::new(program())
            .args([
                "--listen",
                &format!("127.0.0.1:{port}"),
                "--store",
                store.as_str(),
                "--state",
            ])
            .arg(state)
            .env("HEADROOM_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .expect("starts");
        let client = Client::new(&format!("http://127.0.0.1:{port}")).expect("address");
        until("the daemon to answer", || async {
            client.get_text("/readyz").await.ok()
        })
        .await;
        Daemon { child, client }
    }
    /// Ends the daemon with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails if the daemon has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("an id")
}

pub(crate) fn mib(n: u64) -> Resource {
    Resource::new(Bytes::from_mib(n), Cpus::from_milli(100))
}

pub(crate) fn launch() -> LaunchSpec {
    LaunchSpec {
        command: vec!["work".into()],
        ..LaunchSpec::default()
    }
}

pub(crate) fn unmanaged(name: &str) -> SubmitApplicationRequest {
    let master = ApplicationMaster::Unmanaged;
    let user = Some("test".into());
    SubmitApplicationRequest {
        name: id(name),
        queue: None,
        priority: 0,
        user,
        lifetime_ms: None,
        master,
        idempotency_key: None,
        access: Default::default(),
    }
}

pub(crate) fn managed(
    name: &str,
    resource: Resource,
    max_attempts: u32,
) -> SubmitApplicationRequest {
    let launch = Box::new(LaunchSpec {
        command: vec!["master".into()],
        heap: Some(Bytes::from_mib(64)),
        ..LaunchSpec::default()
    });
    SubmitApplicationRequest {
        master: ApplicationMaster::Managed {
            resource,
            launch,
            max_attempts,
            growth: None,
            start_timeout_ms: None,
            first_request: None,
        },
        ..unmanaged(name)
    }
}

pub(crate) async fn app_state(client: &Client, app: &AppId, state: AppState) -> AppView {
    until(&format!("{app} to be {}", state.as_str()), || async {
        client
            .app(app)
            .await
            .ok()
            .filter(|view| view.state == state)
    })
    .await
}

/// A node agent without processes.
#[derive(Debug)]
pub(crate) struct FakeNode {
    pub(crate) client: Client,
    pub(crate) id: NodeId,
    pub(crate) offers: Resource,
    pub(crate) url: String,
    pub(crate) epoch: Epoch,
    pub(crate) has: BTreeMap<ContainerId, ObservedContainer>,
    pub(crate) exits: BTreeMap<ContainerId, ExitReport>,
    /// All orders to run a container, also of ended containers.
    pub(crate) orders: BTreeMap<ContainerId, RunOrder>,
    pub(crate) line: Option<JsonLineStream<DesiredStateLine>>,
}

impl FakeNode {
    pub(crate) async fn join(client: &Client, name: &str, memory_mib: u64) -> FakeNode {
        let mut node = FakeNode {
            client: client.clone(),
            id: id(name),
            offers: Resource::new(Bytes::from_mib(memory_mib), Cpus::from_cores(64)),
            url: "http://127.0.0.1:9".into(),
            epoch: Epoch(0),
            has: BTreeMap::new(),
            exits: BTreeMap::new(),
            orders: BTreeMap::new(),
            line: None,
        };
        node.register().await;
        node
    }

    /// Registers with all containers, and opens the stream.
    pub(crate) async fn register(&mut self) {
        let body = self.registration(0);
        let answer = self.client.register_node(&self.id, &body).await;
        let answer = answer.expect("registers");
        self.epoch = answer.epoch;
        for container in answer.acked {
            self.forget(&container);
        }
        self.line = Some(
            self.client
                .desired(&self.id, self.epoch)
                .await
                .expect("listens"),
        );
        let first = self.next_line().await;
        assert_eq!(first.epoch, self.epoch);
        self.obey(first);
    }

    /// A registration with all containers, and this sequence number.
    pub(crate) fn registration(&self, serial: u64) -> RegisterNode {
        RegisterNode {
            serial,
            offers: self.offers.clone(),
            enforcer: EnforcerKind::Poll,
            url: self.url.clone(),
            health: NodeHealthState::Healthy,
            version: "test".into(),
            traits: NodeTraits::default(),
            containers: self.has.values().cloned().collect(),
            exits: self.exits.values().cloned().collect(),
            key: Some("a word".into()),
            unattributed: Bytes::ZERO,
            left_by: Vec::new(),
        }
    }

    fn forget(&mut self, container: &ContainerId) {
        self.has.remove(container);
        self.exits.remove(container);
    }

    async fn next_line(&mut self) -> DesiredStateLine {
        let line = self.line.as_mut().expect("listens");
        soon("a message for the node", line.next())
            .await
            .expect("the stream is open")
            .expect("a message")
    }

    /// Applies the orders of a message, without processes.
    fn obey(&mut self, line: DesiredStateLine) {
        for desired in line.containers {
            let container = desired.container;
            match desired.want {
                ContainerDesiredState::Run(order) => {
                    if !self.has.contains_key(&container) {
                        let observed = ObservedContainer {
                            container: container.clone(),
                            request: order.request.clone(),
                            attempt: order.attempt,
                            resource: order.resource.clone(),
                            version: order.version,
                            refused: None,
                            phase: NodeContainerPhase::Preparing,
                            used: None,
                            anon: None,
                            granted: order.granted,
                        };
                        self.has.insert(container.clone(), observed);
                        self.orders.insert(container, *order);
                    }
                }
                ContainerDesiredState::Stop { .. } => {
                    if self
                        .has
                        .get(&container)
                        .is_some_and(|c| c.phase != NodeContainerPhase::Exited)
                    {
                        self.end(&container, ExitReason::Stopped);
                    }
                }
                ContainerDesiredState::Forget => self.forget(&container),
            }
        }
    }

    /// Reads messages until the condition is met.
    pub(crate) async fn until<T>(&mut self, what: &str, see: impl Fn(&FakeNode) -> Option<T>) -> T {
        soon(what, async {
            loop {
                if let Some(seen) = see(self) {
                    return seen;
                }
                let line = self.next_line().await;
                self.obey(line);
            }
        })
        .await
    }

    /// Waits until `n` orders have arrived in total.
    pub(crate) async fn until_orders(&mut self, n: usize) -> Vec<ContainerId> {
        self.until(&format!("{n} orders"), |node| {
            (node.orders.len() >= n).then(|| node.orders.keys().cloned().collect())
        })
        .await
    }

    pub(crate) async fn run_all(&mut self) {
        for container in self
            .has
            .values_mut()
            .filter(|c| c.phase == NodeContainerPhase::Preparing)
        {
            container.phase = NodeContainerPhase::Running;
            container.used = Some(Bytes::from_mib(7));
        }
        self.report().await.expect("reports");
    }

    /// Ends a container; the next report contains the exit.
    pub(crate) fn end(&mut self, container: &ContainerId, reason: ExitReason) {
        let Some(observed) = self.has.get_mut(container) else {
            return;
        };
        observed.phase = NodeContainerPhase::Exited;
        let report = ExitReport {
            container: container.clone(),
            node: self.id.clone(),
            reason,
            evidence: Evidence::empty(EnforcerKind::Poll),
            diagnosis: Vec::new(),
            started: Some(UnixMillis(1)),
            ended: UnixMillis(2),
            timeline: Vec::new(),
            log_tail: "the end".into(),
            tasks: Vec::new(),
        };
        self.exits.insert(container.clone(), report);
    }

    /// Ends a container whose program was not started, for this reason; the next report contains it.
    pub(crate) fn end_not_started(&mut self, container: &ContainerId, cause: &str) {
        self.end(container, ExitReason::LaunchFailed);
        if let Some(report) = self.exits.get_mut(container) {
            let diagnosis =
                Diagnosis::new(SubCause::NotStarted, Certainty::Certain, cause, "its fix");
            report.diagnosis.push(diagnosis);
            report.started = None;
        }
    }

    /// Sends a heartbeat with all containers. Exits are repeated until the resource manager
    /// acknowledges them.
    pub(crate) async fn report(&mut self) -> Result<(), ClientError> {
        let body = NodeReport {
            epoch: self.epoch,
            containers: self.has.values().cloned().collect(),
            exits: self.exits.values().cloned().collect(),
            host_used: Bytes::from_mib(100),
            health: NodeHealthState::Healthy,
            reload: None,
            unattributed: Bytes::ZERO,
            left_by: Vec::new(),
        };
        self.client.report(&self.id, &body).await.map(|_| ())
    }
}

/// A cluster with one node of 512 MiB and one container of 64 MiB. The container is granted to an
/// application `job`, and its node has the order.
pub(crate) async fn one_granted(client: &Client) -> (FakeNode, FakeMaster, ContainerId) {
    let mut node = FakeNode::join(client, "n1", 512).await;
    let master = FakeMaster::submit(client, "job").await;
    master
        .sync(vec![master.ask("main", mib(64), 1)])
        .await
        .expect("asks");
    let container = node.until_orders(1).await.remove(0);
    (node, master, container)
}

/// A master without a job.
#[derive(Debug)]
pub(crate) struct FakeMaster {
    pub(crate) client: Client,
    pub(crate) attempt: AttemptId,
    pub(crate) epoch: Epoch,
    pub(crate) cursor: u64,
    pub(crate) granted: BTreeSet<ContainerId>,
    pub(crate) running: BTreeSet<ContainerId>,
    pub(crate) ended: BTreeMap<ContainerId, ExitReport>,
    pub(crate) line: Option<JsonLineStream<ApplicationUpdate>>,
}

impl FakeMaster {
    pub(crate) async fn submit(client: &Client, name: &str) -> FakeMaster {
        let submitted: SubmissionResult = client.submit(&unmanaged(name)).await.expect("submits");
        let mut master = FakeMaster::of(client, submitted.attempt);
        master.register().await;
        master
    }

    pub(crate) fn of(client: &Client, attempt: AttemptId) -> FakeMaster {
        FakeMaster {
            client: client.clone(),
            attempt,
            epoch: Epoch(0),
            cursor: 0,
            granted: BTreeSet::new(),
            running: BTreeSet::new(),
            ended: BTreeMap::new(),
            line: None,
        }
    }

    pub(crate) fn app(&self) -> &AppId {
        &self.attempt.app
    }

    pub(crate) async fn register(&mut self) {
        let body = RegisterMaster {
            master_url: Some("tcp://127.0.0.1:4711".into()),
            ..RegisterMaster::new(self.attempt.clone())
        };
        let answer = until("the master to register", || async {
            match self.client.register_master(&self.attempt.app, &body).await {
                Ok(answer) => Some(answer),
                Err(e) if e.retryable() => None,
                Err(e) => panic!("{e}"),
            }
        })
        .await;
        (self.epoch, self.cursor) = (answer.epoch, answer.cursor);
        self.granted
            .extend(answer.containers.into_iter().map(|g| g.container));
        self.line = Some(
            self.client
                .updates(&self.attempt.app, self.epoch, self.cursor)
                .await
                .expect("listens"),
        );
    }

    pub(crate) fn ask(&self, request: &str, resource: Resource, count: u32) -> PlacementRequest {
        PlacementRequest {
            count,
            ended: u32::try_from(self.ended.len()).expect("few"),
            ..PlacementRequest::new(id(request), resource, launch())
        }
    }

    pub(crate) async fn sync(
        &self,
        asks: Vec<PlacementRequest>,
    ) -> Result<Vec<PlacementResponse>, ClientError> {
        self.sync_with(asks, None).await
    }

    pub(crate) async fn sync_with(
        &self,
        asks: Vec<PlacementRequest>,
        job: Option<JobViewPatch>,
    ) -> Result<Vec<PlacementResponse>, ClientError> {
        let body = MasterSync {
            attempt: self.attempt.clone(),
            epoch: self.epoch,
            ack: self.cursor,
            asks,
            drop: Vec::new(),
            release: Vec::new(),
            job,
        };
        self.client
            .sync_master(self.app(), &body)
            .await
            .map(|reply| reply.verdicts)
    }

    pub(crate) async fn finish(&self, job: Option<JobViewPatch>) -> AppView {
        self.try_finish(job).await.expect("finishes")
    }

    pub(crate) async fn try_finish(
        &self,
        job: Option<JobViewPatch>,
    ) -> Result<AppView, ClientError> {
        let body = FinishApplicationRequest {
            attempt: self.attempt.clone(),
            succeeded: true,
            diagnostics: "done".into(),
            job,
        };
        self.client.finish(self.app(), &body).await
    }

    /// Reads updates until the condition is met.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        see: impl Fn(&FakeMaster) -> Option<T>,
    ) -> T {
        soon(what, async {
            loop {
                if let Some(seen) = see(self) {
                    return seen;
                }
                let line = self.line.as_mut().expect("listens");
                let update = line
                    .next()
                    .await
                    .expect("the stream is open")
                    .expect("an update");
                self.take(update);
            }
        })
        .await
    }

    fn take(&mut self, update: ApplicationUpdate) {
        if update.what == ApplicationUpdateKind::Alive {
            return;
        }
        assert_eq!(
            update.cursor,
            self.cursor + 1,
            "the cursors of updates are consecutive"
        );
        self.cursor = update.cursor;
        match update.what {
            ApplicationUpdateKind::Allocated(granted) => {
                self.granted.insert(granted.container);
            }
            ApplicationUpdateKind::Running { container } => {
                self.running.insert(container);
            }
            ApplicationUpdateKind::Exited { report, .. } => {
                self.ended.insert(report.container.clone(), *report);
            }
            ApplicationUpdateKind::Resized { .. }
            | ApplicationUpdateKind::ResizeFailed { .. }
            | ApplicationUpdateKind::PreemptSoon { .. }
            | ApplicationUpdateKind::NodeDraining { .. }
            | ApplicationUpdateKind::Expired { .. }
            | ApplicationUpdateKind::Order(_)
            | ApplicationUpdateKind::Scale(_)
            | ApplicationUpdateKind::Alive => {}
        }
    }
}

/// A task of 64 MiB without attempts.
pub(crate) fn row(
    task: &str,
    state: headroom_wire::v1::job::TaskState,
) -> headroom_wire::v1::job::TaskRow {
    let profile = headroom_types::Profile {
        heap: headroom_types::Bytes::from_mib(64),
        overhead: headroom_types::Bytes::ZERO,
        cpus: headroom_types::Cpus::from_cores(1),
    };
    headroom_wire::v1::job::TaskRow {
        task: id(task),
        state,
        profile,
        rung: 1,
        note: String::new(),
        attempts: Vec::new(),
        frozen: None,
        ahead: Vec::new(),
        priority: 0,
        tags: Default::default(),
    }
}

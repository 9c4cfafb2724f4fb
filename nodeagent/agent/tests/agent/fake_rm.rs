//! A fake resource manager: it sends the desired state of the test, and records the reports of the
//! node.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_types::{
    Bytes as Size, ContainerId, Cpus, Epoch, ExitReport, LaunchSpec, Resource, StopCause,
    UnixMillis,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemReason};
use headroom_wire::v1::nodes::{
    ConfigReload, ContainerDesiredState, DesiredContainer, DesiredStateLine, NodeContainerPhase,
    NodeHealthState, NodeRegistered, NodeReport, NodeReportReply, ObservedContainer, RegisterNode,
    RunOrder,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// Timeout of every wait in the tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Interval of checks on conditions without notification.
const LOOK: Duration = Duration::from_millis(20);

/// The resource manager.
#[derive(Clone, Debug)]
pub(crate) struct FakeRm {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    book: Mutex<FakeRmState>,
    /// Signals that the record changed.
    changed: Notify,
    /// Counts changes of the desired state.
    wanted: watch::Sender<u64>,
}

/// The desired state, and the record of the node's reports.
#[derive(Debug, Default)]
pub(crate) struct FakeRmState {
    pub(crate) epoch: u32,
    wants: BTreeMap<ContainerId, ContainerDesiredState>,
    pub(crate) registrations: Vec<RegisterNode>,
    pub(crate) seen: BTreeMap<ContainerId, ObservedContainer>,
    pub(crate) exits: BTreeMap<ContainerId, ExitReport>,
    /// Number of reports of each end.
    pub(crate) told: BTreeMap<ContainerId, u32>,
    /// While set, reports are not acknowledged.
    pub(crate) deaf: bool,
    /// While set, the resource manager does not answer.
    pub(crate) gone: bool,
    /// While set, registrations are refused.
    pub(crate) decommissioned: bool,
    /// Registrations need a serial number above this.
    pub(crate) above: u64,
    /// Number of registration attempts.
    pub(crate) asked: u32,
    /// Results of configuration reloads.
    pub(crate) reloads: Vec<ConfigReload>,
    /// The last reported health.
    pub(crate) health: Option<NodeHealthState>,
    running: BTreeSet<ContainerId>,
}

impl FakeRm {
    /// Starts a fake resource manager on a free port.
    pub(crate) async fn start() -> FakeRm {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let shared = Arc::new(Shared::default());
        shared.book.lock().expect("lock").epoch = 1;
        let router = Router::new()
            .route("/v1/nodes/{node}/register", post(register))
            .route("/v1/nodes/{node}/report", post(report))
            .route("/v1/nodes/{node}/desired", get(desired))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        FakeRm { url, shared }
    }

    /// Orders a container.
    pub(crate) fn run(&self, n: u64, memory_mib: u64, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, memory_mib, launch, None, Some("main"))
    }

    /// Orders the container of an application master.
    pub(crate) fn run_master(&self, n: u64, memory_mib: u64, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, memory_mib, launch, None, None)
    }

    fn run_as(
        &self,
        n: u64,
        memory_mib: u64,
        launch: LaunchSpec,
        user: Option<String>,
        request: Option<&str>,
    ) -> ContainerId {
        let id: ContainerId = format!("test.1.e1.c{n}").parse().expect("id");
        let order = RunOrder {
            app: id.app.clone(),
            request: request.map(|name| name.parse().expect("request")),
            attempt: 1,
            resource: Resource::new(Size::from_mib(memory_mib), Cpus::from_cores(1)),
            version: 1,
            launch,
            user,
            granted: UnixMillis(1),
            token: None,
        };
        self.want(&id, ContainerDesiredState::Run(Box::new(order)));
        id
    }

    /// Orders a container of that user.
    pub(crate) fn run_by(&self, n: u64, user: Option<&str>, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, 64, launch, user.map(str::to_owned), Some("main"))
    }

    /// Orders another size of a container.
    pub(crate) fn resize(&self, id: &ContainerId, version: u32, memory_mib: u64) {
        let mut want = self
            .with(|book| book.wants.get(id).cloned())
            .expect("an ordered container");
        if let ContainerDesiredState::Run(order) = &mut want {
            (order.version, order.resource) = (
                version,
                Resource::new(Size::from_mib(memory_mib), Cpus::from_cores(2)),
            );
        }
        self.want(id, want);
    }

    /// Makes the resource manager unreachable, or reachable again.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.with(|book| book.gone = gone);
        self.shared.wanted.send_modify(|n| *n += 1);
    }

    /// Orders the end of a container.
    pub(crate) fn stop(&self, id: &ContainerId, cause: StopCause) {
        self.want(id, ContainerDesiredState::Stop { cause });
    }

    /// Orders the node to forget a container.
    pub(crate) fn forget(&self, id: &ContainerId) {
        self.want(id, ContainerDesiredState::Forget);
    }

    fn want(&self, id: &ContainerId, want: ContainerDesiredState) {
        self.with(|book| book.wants.insert(id.clone(), want));
        self.shared.wanted.send_modify(|n| *n += 1);
    }

    /// Starts another incarnation: the record is dropped, the desired state is kept.
    pub(crate) fn restart(&self) {
        self.with(|book| {
            book.epoch += 1;
            book.exits.clear();
            book.seen.clear();
        });
        self.shared.wanted.send_modify(|n| *n += 1);
    }

    /// Reads or changes the record.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut FakeRmState) -> T) -> T {
        f(&mut self.shared.book.lock().expect("lock"))
    }

    /// Waits until `f` returns a value from the record.
    pub(crate) async fn until<T>(
        &self,
        event: &str,
        mut f: impl FnMut(&mut FakeRmState) -> Option<T>,
    ) -> T {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(found) = self.with(&mut f) {
                    return found;
                }
                // Some conditions concern files, which send no notification.
                tokio::time::timeout(LOOK, changed).await.ok();
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => panic!(
                "timeout while waiting for {event}: {:#?}",
                self.with(|b| format!("{b:#?}"))
            ),
        }
    }

    /// Waits for the report on a container.
    pub(crate) async fn exit(&self, id: &ContainerId) -> ExitReport {
        self.until(&format!("the end of {id}"), |b| b.exits.get(id).cloned())
            .await
    }

    /// Waits until a container runs.
    pub(crate) async fn running(&self, id: &ContainerId) {
        self.until(&format!("{id} to run"), |b| {
            b.running.contains(id).then_some(())
        })
        .await;
    }
}

impl FakeRmState {
    fn observe(&mut self, containers: Vec<ObservedContainer>, exits: Vec<ExitReport>) {
        for o in containers {
            if o.phase == NodeContainerPhase::Running {
                self.running.insert(o.container.clone());
            }
            self.seen.insert(o.container.clone(), o);
        }
        if self.deaf {
            return;
        }
        for report in exits {
            *self.told.entry(report.container.clone()).or_default() += 1;
            self.exits.insert(report.container.clone(), report);
        }
    }

    fn all(&self) -> DesiredStateLine {
        let of = |(container, want): (&ContainerId, &ContainerDesiredState)| DesiredContainer {
            container: container.clone(),
            want: want.clone(),
        };
        DesiredStateLine {
            epoch: Epoch(self.epoch),
            full: true,
            containers: self.wants.iter().map(of).collect(),
        }
    }
}

fn absent() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(ProblemDetails::new(ErrorCode::HR0503, "no service")),
    )
        .into_response()
}

fn stale() -> Response {
    let problem = ProblemDetails::new(ErrorCode::HR0410, "another epoch");
    (StatusCode::GONE, Json(problem)).into_response()
}

async fn register(State(shared): State<Arc<Shared>>, Json(body): Json<RegisterNode>) -> Response {
    let epoch = {
        let mut book = shared.book.lock().expect("lock");
        book.asked += 1;
        if book.gone {
            return absent();
        }
        if book.decommissioned {
            let problem = ProblemDetails::new(ErrorCode::HR0409, "node test is decommissioned")
                .reason(ProblemReason::NodeDecommissioned);
            return (StatusCode::CONFLICT, Json(problem)).into_response();
        }
        if body.serial <= book.above {
            let problem = ProblemDetails {
                above: Some(book.above),
                ..ProblemDetails::new(ErrorCode::HR0409, "a later agent exists")
            };
            return (StatusCode::CONFLICT, Json(problem)).into_response();
        }
        book.above = body.serial;
        book.observe(body.containers.clone(), body.exits.clone());
        book.registrations.push(body);
        Epoch(book.epoch)
    };
    shared.changed.notify_waiters();
    Json(NodeRegistered {
        epoch,
        acked: vec![],
    })
    .into_response()
}

async fn report(State(shared): State<Arc<Shared>>, Json(body): Json<NodeReport>) -> Response {
    let received = {
        let mut book = shared.book.lock().expect("lock");
        if book.gone {
            return absent();
        }
        if body.epoch != Epoch(book.epoch) {
            return stale();
        }
        let received = if book.deaf {
            vec![]
        } else {
            body.exits.iter().map(|r| r.container.clone()).collect()
        };
        book.health = Some(body.health);
        if let Some(reload) = body
            .reload
            .filter(|reload| book.reloads.last() != Some(reload))
        {
            book.reloads.push(reload);
        }
        book.observe(body.containers, body.exits);
        received
    };
    shared.changed.notify_waiters();
    Json(NodeReportReply { received }).into_response()
}

/// Streams the desired state. Every message contains all containers, which a level-triggered node
/// must accept.
async fn desired(
    State(shared): State<Arc<Shared>>,
    Path(_): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let epoch = shared.book.lock().expect("lock").epoch;
    if query.get("epoch") != Some(&epoch.to_string()) {
        return stale();
    }
    if shared.book.lock().expect("lock").gone {
        return absent();
    }
    let mut wanted = shared.wanted.subscribe();
    wanted.mark_changed();
    let lines =
        futures_util::stream::unfold((shared, wanted), move |(shared, mut wanted)| async move {
            wanted.changed().await.ok()?;
            let line = {
                let book = shared.book.lock().expect("lock");
                // A restarted resource manager has lost its connections.
                if book.epoch != epoch || book.gone {
                    return None;
                }
                let mut line = serde_json::to_vec(&book.all()).expect("json");
                line.push(b'\n');
                line
            };
            Some((Ok::<_, Infallible>(Bytes::from(line)), (shared, wanted)))
        });
    Body::from_stream(lines).into_response()
}

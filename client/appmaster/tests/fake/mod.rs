//! A fake resource manager and its executors, in this process and over real sockets. They follow
//! the protocols: requests are granted, executors run tasks by the clock, and every message is
//! repeated until it is acknowledged.

#![allow(dead_code, unreachable_pub)] // each test uses a part of it

pub mod journals;
mod options;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use headroom_types::exit::TaskReport;
use headroom_types::{
    Bytes, ContainerId, Cpus, Dimension, EnforcerKind, Epoch, Evidence, ExitReason, ExitReport,
    RequestId, Resource, TaskAttemptId, UnixMillis,
};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, ContainerGrant, FinishApplicationRequest,
    MasterRegistered, MasterSync, MasterSyncReply, PlacementRequest, PlacementResponse,
    PlacementVerdict, RegisterMaster,
};
use headroom_wire::v1::apps::{SubmissionResult, SubmitApplicationRequest};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::job::{JobEvent, JobTotals, JobViewPatch, TaskRow};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor, VERSION};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

pub use options::{options, run_job, submit_job};

pub const JOB: &str = r#"
version = 1
name = "fake"
[profiles.exec]
memory = "288MiB"
cpus = 4
[executors.main]
profile = "exec"
count = 2
slots = 2
reserve = "160MiB"
[[stage]]
name = "map"
count = 6
command = ["prog", "--part={index}"]
[[stage]]
name = "reduce"
after = ["map"]
command = ["prog"]
"#;

/// Slots of all executors of [`JOB`].
pub const SLOTS: u32 = 4;
/// Run time of a task.
const RUNS: Duration = Duration::from_millis(150);

#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub rows: BTreeMap<String, TaskRow>,
    pub totals: JobTotals,
    pub events: Vec<JobEvent>,
    pub finished: Option<bool>,
    pub registrations: u32,
    pub started: u32,
    pub environment: BTreeMap<String, String>,
    pub command: Vec<String>,
    /// Number of hellos from the executor of each container.
    pub hellos: BTreeMap<ContainerId, u32>,
    /// Appends to the journal that a silent resource manager did not take.
    pub silent_appends: u32,
    /// Whether that journal has moved to the node of its master.
    pub journal_moved: bool,
    /// Preferred nodes of the containers of each request.
    pub preferred: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Inner {
    epoch: u32,
    seen: Seen,
    asks: BTreeMap<RequestId, PlacementRequest>,
    granted: BTreeMap<RequestId, u32>,
    live: BTreeMap<ContainerId, (ContainerGrant, Arc<Executor>)>,
    exits: Vec<(RequestId, ExitReport)>,
    updates: Vec<ApplicationUpdate>,
    next_container: u64,
    master_url: Option<String>,
    submission_token: Option<String>,
    killed: bool,
    journal: journals::FakeJournal,
}

#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
    url: String,
}

/// Shared with the executor's own tasks.
struct Executor {
    container: ContainerId,
    token: String,
    slots: u32,
    state: Mutex<ExecutorState>,
    say: mpsc::Sender<FromExecutor>,
}

#[derive(Default)]
struct ExecutorState {
    running: BTreeMap<TaskAttemptId, TaskStart>,
    unacked: BTreeMap<TaskAttemptId, TaskReport>,
    leaving: bool,
}

impl Executor {
    fn hello(&self) -> FromExecutor {
        let state = self.state.lock().expect("not poisoned");
        FromExecutor::Hello {
            version: VERSION,
            container: self.container.clone(),
            token: self.token.clone(),
            slots: self.slots,
            task_groups: true,
            inputs: true,
            fork_servers: true,
            running: state.running.keys().cloned().collect(),
            unacked: state.unacked.values().cloned().collect(),
        }
    }
}

impl Cluster {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let inner = Arc::new(Mutex::new(Inner {
            epoch: 1,
            ..Inner::default()
        }));
        let cluster = Cluster {
            inner,
            changed: watch::Sender::new(0),
            url,
        };
        let router = axum::Router::new()
            .route("/v1/apps", post(submit))
            .route("/v1/apps/{app}/register", post(register))
            .route("/v1/apps/{app}/sync", post(sync))
            .route("/v1/apps/{app}/finish", post(finish))
            .route(
                "/v1/apps/{app}/journal",
                get(journals::read).post(journals::append),
            )
            .route("/v1/apps/{app}/updates", get(updates))
            .with_state(cluster.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        cluster
    }
    pub fn url(&self) -> String {
        self.url.clone()
    }
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.inner.lock().expect("not poisoned"));
        self.changed.send_modify(|n| *n += 1);
        result
    }
    /// A second connection to the master with the hello of a container's executor, and that
    /// container.
    pub async fn twin(&self) -> (TcpStream, ContainerId) {
        let (url, executor) = {
            let inner = self.inner.lock().expect("not poisoned");
            let (_, executor) = inner.live.values().next().expect("a container");
            (
                inner.master_url.clone().expect("a master"),
                Arc::clone(executor),
            )
        };
        let mut stream = TcpStream::connect(url.trim_start_matches("tcp://"))
            .await
            .expect("connects");
        let line = format!(
            "{}\n",
            serde_json::to_string(&executor.hello()).expect("writes")
        );
        stream.write_all(line.as_bytes()).await.expect("sends");
        (stream, executor.container.clone())
    }
    pub fn seen(&self) -> Seen {
        self.inner.lock().expect("not poisoned").seen.clone()
    }
    /// Address and secret of the submission channel of the present master.
    pub fn submission_address(&self) -> Option<(String, String)> {
        let inner = self.inner.lock().expect("not poisoned");
        Some((inner.master_url.clone()?, inner.submission_token.clone()?))
    }
    /// The journal that the resource manager keeps.
    pub fn journal(&self) -> journals::FakeJournal {
        let inner = self.inner.lock().expect("not poisoned");
        inner.journal.clone()
    }
    /// Changes that journal, or what goes wrong with it.
    pub fn change_journal(&self, change: impl FnOnce(&mut journals::FakeJournal)) {
        self.with(|i| change(&mut i.journal));
    }
    /// Forgets the address of a master that has ended.
    pub fn forget_master(&self) {
        self.with(|i| (i.master_url, i.submission_token) = (None, None));
    }
    pub fn kill(&self) {
        self.with(|i| i.killed = true);
    }
    /// Forgets the end of the master, as if its report had been lost.
    pub fn forget_the_end(&self) {
        self.with(|i| {
            i.seen.finished = None;
            i.seen.rows.clear();
        });
    }
    /// Starts a new epoch and forgets the state in memory: requests and the stream. The nodes
    /// report theirs again.
    pub fn begin_new_life(&self) {
        self.with(|i| {
            i.epoch += 1;
            i.asks.clear();
            i.updates.clear();
            for (request, report) in i.exits.clone() {
                push(
                    i,
                    ApplicationUpdateKind::Exited {
                        request,
                        report: Box::new(report),
                    },
                );
            }
        });
    }
    pub async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !holds(&self.seen()) {
                changes.changed().await.expect("the cluster runs");
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .unwrap_or_else(|_| panic!("until {what}: {:?}", self.seen().totals));
    }

    fn take_patch(i: &mut Inner, patch: Option<JobViewPatch>) {
        let Some(patch) = patch else { return };
        if patch.full {
            i.seen.rows.clear();
        }
        i.seen.rows.extend(
            patch
                .tasks
                .into_iter()
                .map(|row| (row.task.to_string(), row)),
        );
        for folded in &patch.folded {
            i.seen.rows.remove(&folded.to_string());
        }
        i.seen.events.extend(patch.events);
        i.seen.totals = patch.totals;
    }

    fn grant_all(&self, i: &mut Inner) {
        for ask in i.asks.values().cloned().collect::<Vec<PlacementRequest>>() {
            let granted = i.granted.entry(ask.request.clone()).or_default();
            let missing = ask.count.saturating_sub(*granted);
            *granted += missing;
            for _ in 0..missing {
                self.grant(i, &ask);
            }
        }
    }

    fn grant(&self, i: &mut Inner, ask: &PlacementRequest) {
        i.next_container += 1;
        let container: ContainerId = format!("fake.1.e{}.c{}", i.epoch, i.next_container)
            .parse()
            .expect("id");
        let near = ask.placement.prefer_nodes.first().cloned();
        let node = near.unwrap_or_else(|| "node-1".parse().expect("node"));
        let (request, resource) = (ask.request.clone(), ask.resource.clone());
        let granted = ContainerGrant {
            container: container.clone(),
            request,
            node,
            resource,
            attempt: 0,
            running: false,
        };
        let (say, words) = mpsc::channel(64);
        let executor = Arc::new(Executor {
            container: container.clone(),
            token: ask.launch.env["HEADROOM_APP_TOKEN"].clone(),
            slots: ask.launch.env["HEADROOM_SLOTS"].parse().expect("slots"),
            state: Mutex::default(),
            say,
        });
        i.live
            .insert(container, (granted.clone(), Arc::clone(&executor)));
        push(i, ApplicationUpdateKind::Allocated(granted));
        tokio::spawn(run_executor(self.clone(), executor, words));
    }

    fn container_ends(&self, container: &ContainerId, reason: ExitReason) {
        self.with(|i| {
            let Some((granted, _)) = i.live.remove(container) else {
                return;
            };
            let report = ExitReport {
                container: container.clone(),
                node: granted.node,
                reason,
                evidence: Evidence::empty(EnforcerKind::Cgroup2),
                diagnosis: Vec::new(),
                started: None,
                ended: now(),
                timeline: Vec::new(),
                log_tail: String::new(),
                tasks: Vec::new(),
            };
            i.exits.push((granted.request.clone(), report.clone()));
            push(
                i,
                ApplicationUpdateKind::Exited {
                    request: granted.request,
                    report: Box::new(report),
                },
            );
        });
    }
}

fn now() -> UnixMillis {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    UnixMillis(u64::try_from(since.as_millis()).expect("small"))
}

fn push(i: &mut Inner, what: ApplicationUpdateKind) {
    let cursor = i.updates.last().map_or(0, |u| u.cursor) + 1;
    i.updates.push(ApplicationUpdate { cursor, what });
}

fn refuse(code: ErrorCode, detail: &str) -> Response {
    let status = StatusCode::from_u16(code.status()).expect("a status");
    (status, Json(ProblemDetails::new(code, detail))).into_response()
}

async fn submit(
    State(cluster): State<Cluster>,
    Json(app): Json<SubmitApplicationRequest>,
) -> Response {
    let id = headroom_types::AppId::new(app.name, 1);
    let epoch = Epoch(cluster.with(|i| i.epoch));
    Json(SubmissionResult {
        app: id.clone(),
        attempt: headroom_types::AttemptId {
            app: id,
            attempt: 1,
        },
        epoch,
    })
    .into_response()
}

async fn register(State(cluster): State<Cluster>, Json(body): Json<RegisterMaster>) -> Response {
    let registered = cluster.with(|i| {
        i.seen.registrations += 1;
        (i.master_url, i.submission_token) = (body.master_url, body.submission_token);
        MasterRegistered {
            epoch: Epoch(i.epoch),
            largest: Resource::new(Bytes::from_gib(4), Cpus::from_cores(8)),
            containers: i.live.values().map(|(g, _)| g.clone()).collect(),
            confirmed: Vec::new(),
            cursor: 0,
            known: None,
            traces: None,
        }
    });
    Json(registered).into_response()
}

async fn sync(State(cluster): State<Cluster>, Json(body): Json<MasterSync>) -> Response {
    let reply = cluster.with(|i| {
        if body.epoch.0 != i.epoch {
            return None;
        }
        Cluster::take_patch(i, body.job);
        let verdicts = body
            .asks
            .iter()
            .map(|a| PlacementResponse {
                request: a.request.clone(),
                verdict: PlacementVerdict::Fits,
            })
            .collect();
        for ask in &body.asks {
            let near = ask
                .placement
                .prefer_nodes
                .iter()
                .map(ToString::to_string)
                .collect();
            i.seen.preferred.insert(ask.request.to_string(), near);
        }
        i.asks
            .extend(body.asks.into_iter().map(|a| (a.request.clone(), a)));
        body.drop.iter().for_each(|r| {
            i.asks.remove(r);
        });
        let acked: Vec<ContainerId> = i
            .updates
            .iter()
            .filter(|u| u.cursor <= body.ack)
            .filter_map(ended)
            .collect();
        i.exits
            .retain(|(_, report)| !acked.contains(&report.container));
        cluster.grant_all(i);
        Some(MasterSyncReply {
            verdicts,
            stop: i.killed,
        })
    });
    for container in &body.release {
        cluster.container_ends(container, ExitReason::Stopped);
    }
    reply.map_or_else(
        || refuse(ErrorCode::HR0410, "another life"),
        |reply| Json(reply).into_response(),
    )
}

fn ended(update: &ApplicationUpdate) -> Option<ContainerId> {
    match &update.what {
        ApplicationUpdateKind::Exited { report, .. } => Some(report.container.clone()),
        ApplicationUpdateKind::Allocated(_)
        | ApplicationUpdateKind::Running { .. }
        | ApplicationUpdateKind::Resized { .. }
        | ApplicationUpdateKind::ResizeFailed { .. }
        | ApplicationUpdateKind::PreemptSoon { .. }
        | ApplicationUpdateKind::NodeDraining { .. }
        | ApplicationUpdateKind::Expired { .. }
        | ApplicationUpdateKind::Order(_)
        | ApplicationUpdateKind::Scale(_)
        | ApplicationUpdateKind::Alive => None,
    }
}

async fn finish(
    State(cluster): State<Cluster>,
    Json(body): Json<FinishApplicationRequest>,
) -> Response {
    cluster.with(|i| {
        Cluster::take_patch(i, body.job);
        i.seen.finished = Some(body.succeeded);
    });
    // The answer is a view; the master checks only its type.
    let view = serde_json::json!({
        "id": "fake.1", "queue": "default", "priority": 0, "user": "", "state": "finishing", "diagnostics": "", "master_url": null,
        "attempt": 1, "managed": false, "submitted": 0, "ended": null, "containers": 0, "memory": 0, "pending": 0
    });
    Json(view).into_response()
}

async fn updates(
    State(cluster): State<Cluster>,
    Path(_): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let epoch: u32 = query["epoch"].parse().expect("epoch");
    let mut cursor: u64 = query["cursor"].parse().expect("cursor");
    let mut changes = cluster.changed.subscribe();
    if cluster.inner.lock().expect("not poisoned").epoch != epoch {
        return refuse(ErrorCode::HR0410, "another life");
    }
    let (lines, stream) = mpsc::channel::<Result<String, std::io::Error>>(64);
    tokio::spawn(async move {
        loop {
            let (over, fresh) = {
                let inner = cluster.inner.lock().expect("not poisoned");
                (
                    inner.epoch != epoch,
                    inner
                        .updates
                        .iter()
                        .filter(|u| u.cursor > cursor)
                        .cloned()
                        .collect::<Vec<_>>(),
                )
            };
            if over {
                return;
            }
            for update in fresh {
                cursor = update.cursor;
                let line = format!("{}\n", serde_json::to_string(&update).expect("writes"));
                if lines.send(Ok(line)).await.is_err() {
                    return;
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    });
    let stream = futures_util::stream::unfold(stream, |mut s| async move {
        s.recv().await.map(|line| (line, s))
    });
    Body::from_stream(stream).into_response()
}

/// Connects to the current master, sends a hello, and follows its messages.
async fn run_executor(
    cluster: Cluster,
    executor: Arc<Executor>,
    mut words: mpsc::Receiver<FromExecutor>,
) {
    loop {
        let url = cluster
            .inner
            .lock()
            .expect("not poisoned")
            .master_url
            .clone()
            .unwrap_or_default();
        let Ok(stream) = TcpStream::connect(url.trim_start_matches("tcp://")).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let hello = executor.hello();
        cluster.with(|i| *i.seen.hellos.entry(executor.container.clone()).or_default() += 1);
        let mut out = vec![hello];
        loop {
            for message in out.drain(..) {
                let line = format!("{}\n", serde_json::to_string(&message).expect("writes"));
                if write.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) => hear(&cluster, &executor, serde_json::from_str(&line).expect("parses")),
                    Ok(None) | Err(_) => break,
                },
                Some(message) = words.recv() => out.push(message),
            }
        }
        let leaving = {
            let state = executor.state.lock().expect("not poisoned");
            state.leaving && state.running.is_empty()
        };
        if leaving
            || !cluster
                .inner
                .lock()
                .expect("not poisoned")
                .live
                .contains_key(&executor.container)
        {
            cluster.container_ends(&executor.container, ExitReason::Exit { code: 0 });
            return;
        }
    }
}

fn hear(cluster: &Cluster, executor: &Arc<Executor>, message: ToExecutor) {
    let mut state = executor.state.lock().expect("not poisoned");
    match message {
        ToExecutor::Start(start) => {
            if state.running.contains_key(&start.attempt)
                || state.unacked.contains_key(&start.attempt)
            {
                return;
            }
            assert!(
                state.running.values().map(|s| s.slots).sum::<u32>() + start.slots
                    <= executor.slots
            );
            state
                .running
                .insert(start.attempt.clone(), (*start).clone());
            cluster.with(|i| {
                i.seen.started += 1;
                if start.attempt.to_string() == "map/2@3" {
                    (i.seen.environment, i.seen.command) =
                        (start.env.clone(), start.command.clone());
                }
            });
            tokio::spawn(run_task(Arc::clone(executor), *start));
        }
        ToExecutor::Ack { attempt } => {
            state.unacked.remove(&attempt);
        }
        ToExecutor::Stop { attempt } => {
            state.running.remove(&attempt);
        }
        ToExecutor::Shutdown => {
            state.leaving = true;
            let (cluster, container) = (cluster.clone(), executor.container.clone());
            tokio::spawn(async move {
                cluster.container_ends(&container, ExitReason::Exit { code: 0 })
            });
        }
        ToExecutor::Resize { .. }
        | ToExecutor::Unfreeze { .. }
        | ToExecutor::Refused { .. }
        | ToExecutor::Alive => {}
    }
}

/// Runs a task. The third task of `map` needs 190 MiB, the others little.
async fn run_task(executor: Arc<Executor>, start: TaskStart) {
    tokio::time::sleep(RUNS).await;
    let need = Bytes::from_mib(if start.attempt.task.to_string() == "map/2" {
        190
    } else {
        20
    });
    let killed = start.limit.is_some_and(|limit| need > limit);
    let mut evidence = Evidence::empty(EnforcerKind::Cgroup2);
    evidence.own.peak = Some(start.limit.map_or(need, |l| l.min(need)));
    let report = TaskReport {
        attempt: start.attempt.clone(),
        container: executor.container.clone(),
        reason: if killed {
            ExitReason::TaskOom
        } else {
            ExitReason::Exit { code: 0 }
        },
        dimension: killed.then_some(Dimension::Native),
        evidence,
        diagnosis: Vec::new(),
        started: Some(now()),
        ended: now(),
        timeline: Vec::new(),
        log_tail: String::new(),
        read: Some(need.mul_ratio(8, 1)),
        value: None,
        value_too_large: None,
        silent: false,
    };
    {
        let mut state = executor.state.lock().expect("not poisoned");
        if state.running.remove(&start.attempt).is_none() {
            return;
        }
        state.unacked.insert(start.attempt, report.clone());
    }
    let _ = executor
        .say
        .send(FromExecutor::Ended {
            report: Box::new(report),
        })
        .await; // repeated with the next hello
}

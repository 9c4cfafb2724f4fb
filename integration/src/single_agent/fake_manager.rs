//! A fake resource manager: it orders the containers that its owner names, and records the node's
//! messages with their times.
//!
//! It answers on loopback from its own thread. The desired state is level-triggered: the first line
//! of a stream contains everything, later lines contain changes, and a reconnected node receives
//! everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_types::{ContainerId, Epoch, ExitReport, StopCause};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredContainer, DesiredStateLine, NodeContainerPhase, NodeRegistered,
    NodeReport, NodeReportReply, ObservedContainer, RegisterNode, RunOrder,
};
use tokio::sync::{oneshot, watch};

/// The only epoch of this manager.
const EPOCH: Epoch = Epoch(1);
/// Largest accepted message. Bytes.
const LARGEST: usize = 64 << 20;

/// A fake resource manager.
#[derive(Debug)]
pub struct FakeManager {
    url: String,
    shared: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<ReceivedReports>,
    news: Condvar,
    /// Number of changes of the desired state.
    wanted: watch::Sender<usize>,
}

/// The reports on one end.
#[derive(Clone, Debug)]
pub struct ReportedEnd {
    /// The first report.
    pub report: ExitReport,
    /// Time of the first report.
    pub at: Instant,
    /// Number of reports.
    pub told: u32,
    /// Reports with a reason that differs from the first.
    pub contradicted: u32,
}

/// The desired state and the received messages.
#[derive(Debug, Default)]
pub struct ReceivedReports {
    wants: BTreeMap<ContainerId, ContainerDesiredState>,
    changes: Vec<DesiredContainer>,
    /// Time of the first report of each container as running.
    pub running: BTreeMap<ContainerId, Instant>,
    /// Reported ends.
    pub ends: BTreeMap<ContainerId, ReportedEnd>,
    /// Containers in the node's last registration.
    pub shown: BTreeSet<ContainerId>,
    /// Number of registrations.
    pub registrations: u32,
    /// Number of messages of all kinds.
    pub messages: u64,
}

impl FakeManager {
    /// Starts it on a free port.
    pub fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            book: Mutex::default(),
            news: Condvar::new(),
            wanted: watch::Sender::new(0),
        });
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("fake-manager".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        _ = axum::serve(listener, router(state)) => {}
                        _ = ended => {}
                    }
                });
            })?;
        Ok(FakeManager {
            url,
            shared,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Orders containers to run, all in one line.
    pub fn run(&self, orders: impl IntoIterator<Item = (ContainerId, RunOrder)>) {
        self.want(
            orders
                .into_iter()
                .map(|(id, order)| (id, ContainerDesiredState::Run(Box::new(order)))),
        );
    }

    /// Orders a container to stop.
    pub fn stop(&self, id: &ContainerId, cause: StopCause) {
        self.want([(id.clone(), ContainerDesiredState::Stop { cause })]);
    }

    /// Acknowledges the reports of these containers.
    pub fn forget(&self, ids: impl IntoIterator<Item = ContainerId>) {
        self.want(
            ids.into_iter()
                .map(|id| (id, ContainerDesiredState::Forget)),
        );
    }

    /// Removes these containers from the desired state.
    pub fn drop_wants(&self, ids: &[ContainerId]) {
        let mut book = self.book();
        for id in ids {
            book.wants.remove(id);
        }
    }

    fn want(&self, wants: impl IntoIterator<Item = (ContainerId, ContainerDesiredState)>) {
        let count = {
            let mut book = self.book();
            for (container, want) in wants {
                book.wants.insert(container.clone(), want.clone());
                book.changes.push(DesiredContainer { container, want });
            }
            book.changes.len()
        };
        self.shared.wanted.send_replace(count);
    }

    /// Locks the record.
    pub fn book(&self) -> MutexGuard<'_, ReceivedReports> {
        self.shared.book()
    }

    /// Waits for a condition on the record. It checks after each message and at least every 20 ms.
    pub fn until<T>(
        &self,
        what: &str,
        time: Duration,
        mut see: impl FnMut(&ReceivedReports) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + time;
        let mut book = self.book();
        loop {
            if let Some(seen) = see(&book) {
                return Ok(seen);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("timed out after {} s waiting for {what}", time.as_secs());
            }
            let wait = left.min(Duration::from_millis(20));
            (book, _) = self
                .shared
                .news
                .wait_timeout(book, wait)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for FakeManager {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            // The thread may have ended already.
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, ReceivedReports> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReceivedReports {
    /// Whether the node was ordered to forget this container.
    pub fn is_forgotten(&self, id: &ContainerId) -> bool {
        matches!(self.wants.get(id), Some(ContainerDesiredState::Forget))
    }

    fn observe(&mut self, containers: &[ObservedContainer], exits: Vec<ExitReport>, now: Instant) {
        self.messages += 1;
        for c in containers
            .iter()
            .filter(|c| c.phase == NodeContainerPhase::Running)
        {
            self.running.entry(c.container.clone()).or_insert(now);
        }
        for report in exits {
            let new = ReportedEnd {
                report: report.clone(),
                at: now,
                told: 0,
                contradicted: 0,
            };
            let end = self.ends.entry(report.container.clone()).or_insert(new);
            end.told += 1;
            end.contradicted += u32::from(end.report.reason != report.reason);
        }
    }

    fn all(&self) -> DesiredStateLine {
        let containers = self.wants.iter().map(|(id, want)| DesiredContainer {
            container: id.clone(),
            want: want.clone(),
        });
        DesiredStateLine {
            epoch: EPOCH,
            full: true,
            containers: containers.collect(),
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/nodes/{node}/register", post(register))
        .route("/v1/nodes/{node}/report", post(report))
        .route("/v1/nodes/{node}/desired", get(desired))
        .layer(axum::extract::DefaultBodyLimit::max(LARGEST))
        .with_state(shared)
}

async fn register(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let now = Instant::now();
    let Ok(body) = serde_json::from_slice::<RegisterNode>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut book = shared.book();
    book.registrations += 1;
    book.shown = body
        .containers
        .iter()
        .map(|c| c.container.clone())
        .collect();
    book.observe(&body.containers, body.exits, now);
    drop(book);
    shared.news.notify_all();
    Json(NodeRegistered {
        epoch: EPOCH,
        acked: Vec::new(),
    })
    .into_response()
}

async fn report(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let now = Instant::now();
    let Ok(body) = serde_json::from_slice::<NodeReport>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let received = body.exits.iter().map(|r| r.container.clone()).collect();
    shared.book().observe(&body.containers, body.exits, now);
    shared.news.notify_all();
    Json(NodeReportReply { received }).into_response()
}

async fn desired(State(shared): State<Arc<Shared>>) -> Response {
    let wanted = shared.wanted.subscribe();
    let lines = futures_util::stream::unfold(
        (shared, wanted, None),
        |(shared, mut wanted, told)| async move {
            let (line, told) = match told {
                None => {
                    let book = shared.book();
                    (book.all(), book.changes.len())
                }
                Some(told) => {
                    wanted.wait_for(|count| *count > told).await.ok()?;
                    let book = shared.book();
                    let containers = book.changes.get(told..).unwrap_or_default().to_vec();
                    (
                        DesiredStateLine {
                            epoch: EPOCH,
                            full: false,
                            containers,
                        },
                        book.changes.len(),
                    )
                }
            };
            let mut text = serde_json::to_vec(&line).ok()?;
            text.push(b'\n');
            Some((
                Ok::<_, Infallible>(Bytes::from(text)),
                (shared, wanted, Some(told)),
            ))
        },
    );
    Body::from_stream(lines).into_response()
}

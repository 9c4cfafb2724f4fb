//! A fake resource manager for one agent: it orders the containers of the matrix and returns the
//! exit reports.
//!
//! It serves `/v1` over a real socket, so the agent under test is the shipped one. It acknowledges
//! reports at once and orders the agent to forget the container. It records contradictory
//! repetitions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes as Line};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_types::{
    Bytes, ContainerId, Cpus, Epoch, ExitReport, LaunchSpec, Resource, StopCause, UnixMillis,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredContainer, DesiredStateLine, NodeHealthState, NodeRegistered,
    NodeReport, NodeReportReply, RegisterNode, RunOrder,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// The only epoch of this manager.
const EPOCH: Epoch = Epoch(1);
/// Capacity of the queue of changes for the agent.
const CHANGES: usize = 4096;

/// A received exit report.
#[derive(Debug)]
pub(super) struct ReceivedReport {
    /// The report.
    pub(super) report: Box<ExitReport>,
    /// Time of receipt.
    pub(super) at: UnixMillis,
}

/// A fake resource manager.
#[derive(Clone, Debug)]
pub(super) struct MatrixManager {
    /// Its base URL.
    pub(super) url: String,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    wants: BTreeMap<ContainerId, ContainerDesiredState>,
    /// Changes for the connected agent.
    line: Option<mpsc::Sender<DesiredContainer>>,
    waiting: BTreeMap<ContainerId, oneshot::Sender<ReceivedReport>>,
    /// Ends that were reported again with another verdict after the acknowledgement.
    contradicted: Vec<ContainerId>,
    told: BTreeMap<ContainerId, String>,
    health: Option<NodeHealthState>,
}

impl MatrixManager {
    /// Starts one on a free port, within the caller's runtime.
    pub(super) async fn start() -> Result<MatrixManager> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("a free port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let book = Arc::new(Mutex::new(Book::default()));
        let router = Router::new()
            .route("/v1/nodes/{node}/register", post(register))
            .route("/v1/nodes/{node}/report", post(report))
            .route("/v1/nodes/{node}/desired", get(desired))
            .with_state(Arc::clone(&book));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(MatrixManager { url, book })
    }

    /// Orders a container to run. Its report arrives after its end.
    pub(super) fn run(
        &self,
        memory: Bytes,
        launch: LaunchSpec,
    ) -> Result<(ContainerId, oneshot::Receiver<ReceivedReport>)> {
        let (ended, end) = oneshot::channel();
        let mut book = locked(&self.book);
        book.next += 1;
        let id: ContainerId = format!("matrix.1.e1.c{}", book.next)
            .parse()
            .context("a container's id")?;
        let order = RunOrder {
            app: id.app.clone(),
            request: Some("case".parse().context("a request's id")?),
            attempt: 1,
            resource: Resource::new(memory, Cpus::from_milli(500)),
            version: 1,
            launch,
            user: None,
            granted: UnixMillis(1),
            token: None,
        };
        book.waiting.insert(id.clone(), ended);
        book.want(&id, ContainerDesiredState::Run(Box::new(order)));
        Ok((id, end))
    }

    /// Orders a container to stop.
    pub(super) fn stop(&self, id: &ContainerId) {
        let mut book = locked(&self.book);
        // A container that ended meanwhile is forgotten; there is nothing to stop.
        if book.wants.contains_key(id) {
            book.want(
                id,
                ContainerDesiredState::Stop {
                    cause: StopCause::Asked,
                },
            );
        }
    }

    /// The order for a container; `None` if the agent is to forget it.
    pub(super) fn wanted(&self, id: &ContainerId) -> String {
        format!("{:?}", locked(&self.book).wants.get(id))
    }

    /// The health in the agent's registration; `None` before it.
    pub(super) fn health(&self) -> Option<NodeHealthState> {
        locked(&self.book).health.clone()
    }

    /// Containers whose end was reported a second time with another reason.
    pub(super) fn contradicted(&self) -> Vec<ContainerId> {
        locked(&self.book).contradicted.clone()
    }
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // A handler that panicked left no partial change: each does one insertion at a time.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn want(&mut self, id: &ContainerId, want: ContainerDesiredState) {
        let change = DesiredContainer {
            container: id.clone(),
            want: want.clone(),
        };
        match want {
            ContainerDesiredState::Forget => drop(self.wants.remove(id)),
            ContainerDesiredState::Run(_) | ContainerDesiredState::Stop { .. } => {
                drop(self.wants.insert(id.clone(), want))
            }
        }
        // An agent that is gone or too slow reconnects and receives the full state.
        if self
            .line
            .as_ref()
            .is_some_and(|line| line.try_send(change).is_err())
        {
            self.line = None;
        }
    }

    fn take_in(&mut self, exits: Vec<ExitReport>) -> Vec<ContainerId> {
        let at = UnixMillis(
            u64::try_from(crate::clock::realtime_nanos() / 1_000_000).unwrap_or(u64::MAX),
        );
        let ids: Vec<ContainerId> = exits.iter().map(|r| r.container.clone()).collect();
        for report in exits {
            let id = report.container.clone();
            let reason = report.reason.to_string();
            let before = self.told.insert(id.clone(), reason.clone());
            if before.is_some_and(|before| before != reason) {
                self.contradicted.push(id.clone());
            }
            if let Some(waiting) = self.waiting.remove(&id) {
                // The receiver may have given up.
                let _ = waiting.send(ReceivedReport {
                    report: Box::new(report),
                    at,
                });
            }
            self.want(&id, ContainerDesiredState::Forget);
        }
        ids
    }
}

async fn register(
    State(book): State<Arc<Mutex<Book>>>,
    Json(body): Json<RegisterNode>,
) -> Response {
    let mut book = locked(&book);
    book.health = Some(body.health);
    let acked = book.take_in(body.exits);
    Json(NodeRegistered {
        epoch: EPOCH,
        acked,
    })
    .into_response()
}

async fn report(State(book): State<Arc<Mutex<Book>>>, Json(body): Json<NodeReport>) -> Response {
    if body.epoch != EPOCH {
        return (
            StatusCode::GONE,
            Json(ProblemDetails::new(ErrorCode::HR0410, "another epoch")),
        )
            .into_response();
    }
    Json(NodeReportReply {
        received: locked(&book).take_in(body.exits),
    })
    .into_response()
}

/// The full state first, then changes.
async fn desired(State(book): State<Arc<Mutex<Book>>>) -> Response {
    let (line, changes) = mpsc::channel(CHANGES);
    let all = {
        let mut book = locked(&book);
        book.line = Some(line);
        let of = |(id, want): (&ContainerId, &ContainerDesiredState)| DesiredContainer {
            container: id.clone(),
            want: want.clone(),
        };
        book.wants.iter().map(of).collect()
    };
    let first = DesiredStateLine {
        epoch: EPOCH,
        full: true,
        containers: all,
    };
    let lines =
        futures_util::stream::unfold((Some(first), changes), |(first, mut changes)| async move {
            let next = match first {
                Some(first) => first,
                None => {
                    let mut some = vec![changes.recv().await?];
                    while let Ok(more) = changes.try_recv() {
                        some.push(more);
                    }
                    DesiredStateLine {
                        epoch: EPOCH,
                        full: false,
                        containers: some,
                    }
                }
            };
            let mut text = serde_json::to_vec(&next).ok()?;
            text.push(b'\n');
            Some((Ok::<_, Infallible>(Line::from(text)), (None, changes)))
        });
    Body::from_stream(lines).into_response()
}

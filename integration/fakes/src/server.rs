//! The node interface of a fake resource manager, on its own thread.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_types::Sha256;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemReason};
use headroom_wire::v1::nodes::{NodeRegistered, NodeReport, NodeReportReply, RegisterNode};
use tokio::sync::oneshot;

use crate::state::Shared;

/// Largest accepted message. Bytes.
const MAX_BODY: usize = 64 << 20;

/// The serving thread. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct ServerThread {
    /// Base URL of the server.
    pub(crate) url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Starts it on a free port of this host.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let router = router(Arc::clone(shared));
        let thread = std::thread::Builder::new()
            .name("fake-manager".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        _ = axum::serve(listener, router) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(ServerThread {
            url,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/nodes/{node}/register", post(register))
        .route("/v1/nodes/{node}/report", post(report))
        .route("/v1/nodes/{node}/desired", get(desired))
        .route("/v1/uploads/{sha256}", get(uploaded))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(shared)
}

fn problem(status: StatusCode, details: ProblemDetails) -> Response {
    (status, Json(details)).into_response()
}

fn unavailable() -> Response {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        ProblemDetails::new(ErrorCode::HR0503, "no service"),
    )
}

fn other_epoch() -> Response {
    problem(
        StatusCode::GONE,
        ProblemDetails::new(ErrorCode::HR0410, "another epoch"),
    )
}

async fn register(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let now = Instant::now();
    let Ok(body) = serde_json::from_slice::<RegisterNode>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let registered = {
        let mut state = shared.lock();
        state.received.registration_attempts += 1;
        if state.faults.unavailable {
            return unavailable();
        }
        if state.faults.decommissioned {
            let details = ProblemDetails::new(ErrorCode::HR0409, "node test is decommissioned")
                .reason(ProblemReason::NodeDecommissioned);
            return problem(StatusCode::CONFLICT, details);
        }
        if body.serial <= state.highest_serial {
            let details = ProblemDetails {
                above: Some(state.highest_serial),
                ..ProblemDetails::new(ErrorCode::HR0409, "a later agent exists")
            };
            return problem(StatusCode::CONFLICT, details);
        }
        state.highest_serial = body.serial;
        state.received.last_message = Some(now);
        state.received.health = Some(body.health.clone());
        state.received.add_containers(body.containers.clone(), now);
        let ends = state.add_ends(body.exits.clone(), now);
        state.received.registrations.push(body);
        NodeRegistered {
            epoch: state.epoch,
            acked: state.acknowledged_at_registration(ends),
            heartbeat_ms: None,
        }
    };
    shared.notify();
    Json(registered).into_response()
}

async fn report(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let now = Instant::now();
    let Ok(body) = serde_json::from_slice::<NodeReport>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let received = {
        let mut state = shared.lock();
        if state.faults.unavailable {
            return unavailable();
        }
        if body.epoch != state.epoch {
            return other_epoch();
        }
        state.received.last_message = Some(now);
        state.received.health = Some(body.health);
        state.received.add_reload(body.reload);
        state.received.add_containers(body.containers, now);
        state.add_ends(body.exits, now)
    };
    shared.notify();
    Json(NodeReportReply {
        received,
        heartbeat_ms: None,
    })
    .into_response()
}

async fn desired(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let (epoch, first, changes) = {
        let mut state = shared.lock();
        let epoch = state.epoch;
        if query.get("epoch") != Some(&epoch.0.to_string()) {
            return other_epoch();
        }
        if state.faults.unavailable {
            return unavailable();
        }
        let (first, changes) = state.open_stream();
        (epoch, first, changes)
    };
    let lines = futures_util::stream::unfold(
        (Some(first), shared, changes),
        move |(first, shared, mut changes)| async move {
            let line = match first {
                Some(line) => line,
                None => {
                    let mut orders = changes.recv().await?;
                    while let Ok(more) = changes.try_recv() {
                        orders.extend(more);
                    }
                    shared.lock().next_line(epoch, orders)?
                }
            };
            let mut text = serde_json::to_vec(&line).ok()?;
            text.push(b'\n');
            Some((
                Ok::<_, Infallible>(Bytes::from(text)),
                (None, shared, changes),
            ))
        },
    );
    Body::from_stream(lines).into_response()
}

async fn uploaded(State(shared): State<Arc<Shared>>, Path(sha256): Path<Sha256>) -> Response {
    let mut state = shared.lock();
    let Some((content, requests)) = state.uploads.get_mut(&sha256) else {
        let details = ProblemDetails::not_found("there is no uploaded file");
        return problem(StatusCode::NOT_FOUND, details);
    };
    *requests += 1;
    if *requests == 1 {
        return unavailable();
    }
    content.clone().into_response()
}

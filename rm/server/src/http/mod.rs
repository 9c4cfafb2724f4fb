//! The interface: addresses and what they lead to. No logic: messages become calls of the core, answers become messages.

pub(crate) mod am;
pub(crate) mod apps;
pub(crate) mod containers;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod listen;
pub(crate) mod nodes;
pub(crate) mod origin;
pub(crate) mod parse;
pub(crate) mod stream;
pub(crate) mod yarn;

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use headroom_rm_store::Documents;
use headroom_types::Epoch;
use headroom_wire::v1::apps::ClusterView;
use headroom_wire::v1::error::{Code, Problem};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyDeadlineLayer;

use crate::clock::Clock;
use crate::input::Handle;
use crate::run::Shared;
use error::Failure;

/// Largest body of most calls. Bytes.
const BODY: usize = 1 << 20;
/// Largest body of calls that carry rows of a job, or all that a node has. Bytes.
const LARGE_BODY: usize = 16 << 20;
/// A body has to be there by then.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// What handlers have.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    pub(crate) handle: Handle,
    pub(crate) shared: Shared,
    pub(crate) documents: Documents,
    pub(crate) epoch: Epoch,
    pub(crate) clock: Clock,
    pub(crate) http: reqwest::Client,
    pub(crate) closing: CancellationToken,
}

/// Every address, answered at `listen`.
pub(crate) fn router(web: Web, listen: SocketAddr) -> Router {
    let large = Router::new()
        .route("/v1/apps/{app}/sync", post(am::sync))
        .route("/v1/apps/{app}/finish", post(am::finish))
        .route("/v1/nodes/{node}/register", post(nodes::register))
        .route("/v1/nodes/{node}/report", post(nodes::report))
        .layer(DefaultBodyLimit::max(LARGE_BODY));
    Router::new()
        .route("/v1/apps", post(apps::submit).get(apps::list))
        .route("/v1/apps/{app}", get(apps::one))
        .route("/v1/apps/{app}/kill", post(apps::kill))
        .route("/v1/apps/{app}/why", get(apps::why))
        .route("/v1/apps/{app}/register", post(am::register))
        .route("/v1/apps/{app}/requests", post(am::ask).get(apps::requests))
        .route("/v1/apps/{app}/requests/{request}", delete(am::withdraw))
        .route("/v1/apps/{app}/updates", get(am::updates))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{node}", get(nodes::one))
        .route("/v1/nodes/{node}/desired", get(nodes::desired))
        .route("/v1/containers", get(containers::list))
        .route("/v1/containers/{id}", get(containers::one))
        .route("/v1/containers/{id}/stop", post(containers::stop))
        .route("/v1/containers/{id}/logs/{file}", get(containers::log))
        .route("/v1/events", get(events::events))
        .route("/v1/status", get(status))
        .route("/v1/version", get(version))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(BODY))
        .merge(large)
        .merge(yarn::router())
        .method_not_allowed_fallback(error::no_method)
        .fallback(error::no_route)
        .layer(axum::middleware::from_fn_with_state(listen, origin::guard))
        .layer(RequestBodyDeadlineLayer::new(BODY_DEADLINE))
        .layer(CatchPanicLayer::custom(error::panicked))
        .with_state(web)
}

/// `GET /v1/status`.
async fn status(State(web): State<Web>) -> Result<Json<ClusterView>, Failure> {
    let ooms = web.shared.events.ooms_in_last_hour(web.clock.unix_now());
    Ok(Json(web.handle.view().await?.status(web.clock.now(), ooms)))
}

/// What `GET /v1/version` answers.
#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    api: &'static str,
    epoch: Epoch,
}

async fn version(State(web): State<Web>) -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION"), api: "v1", epoch: web.epoch })
}

/// `GET /readyz`: the loop turns.
async fn ready(State(web): State<Web>) -> Result<&'static str, Failure> {
    web.handle.view().await?;
    Ok("ok\n")
}

/// The core gave another kind of answer than the call asks for. Every handler knows its own, so this is a fault of ours.
pub(crate) fn unexpected() -> Failure {
    tracing::error!("the core gave an answer of another kind than the call asks for; the caller was told, going on");
    Problem::new(Code::HR0500, "a fault inside the resource manager; its log says more").into()
}

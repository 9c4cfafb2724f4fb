//! `/ws/v1/cluster`: REST interface for programs written for YARN's resource manager, in YARN's
//! formats.
//!
//! It is a second interface to the same cluster. Data comes from reports, and actions are calls of
//! [`ClusterService`](headroom_rm_reports::ClusterService); this crate knows nothing else of the
//! resource manager. JSON only. Callers need the permissions of the same call under `/v1`. For
//! unauthenticated callers, `user.name` is the user who submits or kills, as on a YARN cluster
//! without security.

#![forbid(unsafe_code)]

mod activities;
mod app_kind;
mod application;
mod apps;
mod attempts;
mod change;
mod containers;
mod error;
mod field;
mod filter;
mod info;
mod kill;
mod metrics;
mod nodes;
mod request;
mod resource;
mod scheduler;
mod state;
mod submit;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use headroom_rm_reports::SharedCluster;
use headroom_wire::yarn::accept;

/// All routes of this interface. The server that merges them authenticates and authorizes the
/// callers, with [`Principal`](headroom_identity::Principal) and
/// [`RequestScheme`](headroom_rm_reports::RequestScheme) as extensions of each request.
pub fn routes(cluster: SharedCluster) -> Router {
    Router::new()
        .route("/ws/v1/cluster", get(info::info))
        .route("/ws/v1/cluster/", get(info::info))
        .route("/ws/v1/cluster/info", get(info::info))
        .route("/ws/v1/cluster/metrics", get(metrics::metrics))
        .route("/ws/v1/cluster/scheduler", get(scheduler::scheduler))
        .route(
            "/ws/v1/cluster/scheduler/app-activities/{app}",
            get(activities::of_app),
        )
        .route("/ws/v1/cluster/nodes", get(nodes::list))
        .route("/ws/v1/cluster/nodes/{node}", get(nodes::one))
        .route("/ws/v1/cluster/apps", get(apps::list).post(submit::submit))
        .route(
            "/ws/v1/cluster/apps/new-application",
            post(submit::new_application),
        )
        .route("/ws/v1/cluster/apps/{app}", get(apps::one))
        .route(
            "/ws/v1/cluster/apps/{app}/state",
            get(kill::state).put(kill::kill),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/queue",
            get(change::queue).put(change::move_to),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/priority",
            get(change::priority).put(change::prioritise),
        )
        .route("/ws/v1/cluster/apps/{app}/timeouts", get(change::timeouts))
        .route(
            "/ws/v1/cluster/apps/{app}/timeouts/{kind}",
            get(change::timeout),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/timeout",
            axum::routing::put(change::expire),
        )
        .route("/ws/v1/cluster/apps/{app}/appattempts", get(attempts::list))
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}",
            get(attempts::one),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}/containers",
            get(containers::list),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}/containers/{container}",
            get(containers::one),
        )
        .route("/ws/v1/cluster/appstatistics", get(apps::statistics))
        .route(
            "/ws/v1/cluster/containers/{container}/signal/{command}",
            post(containers::signal),
        )
        .route("/ws/{*rest}", any(error::no_route))
        .route("/cluster", get(info::front))
        .route("/jmx", get(info::jmx))
        .method_not_allowed_fallback(error::no_method)
        .layer(axum::middleware::from_fn(json_only))
        .with_state(cluster)
}

/// Middleware that refuses callers that accept only XML, before anything is done.
async fn json_only(request: Request, next: Next) -> Response {
    if takes_json(request.headers()) {
        next.run(request).await
    } else {
        error::not_acceptable().into_response()
    }
}

fn takes_json(headers: &HeaderMap) -> bool {
    accept::accepts_json(
        headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok()),
    )
}

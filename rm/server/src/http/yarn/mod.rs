//! `/ws/v1/cluster`: REST interface for programs written for YARN's resource manager, in YARN's
//! formats.
//!
//! It is a second interface to the same cluster: data comes from the reports and the view, and
//! actions are calls of the core. JSON only. Callers need the permissions of the same call under
//! `/v1`. For unauthenticated callers, `user.name` is the user who submits or kills, as on a YARN
//! cluster without security.

pub(crate) mod activities;
pub(crate) mod app_kind;
pub(crate) mod application;
pub(crate) mod apps;
pub(crate) mod attempts;
pub(crate) mod change;
pub(crate) mod containers;
pub(crate) mod error;
pub(crate) mod filter;
pub(crate) mod info;
pub(crate) mod kill;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod request;
pub(crate) mod resource;
pub(crate) mod scheduler;
pub(crate) mod state;
pub(crate) mod submit;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use headroom_wire::yarn::accept;

use super::web::Web;

/// All routes of this interface.
pub(crate) fn router() -> Router<Web> {
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

//! Cluster status, versions, health, and the API description.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use headroom_types::Epoch;
use headroom_wire::v1::apps::ClusterView;
use headroom_wire::v1::error::ProblemDetails;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::INDEX;
use super::describe::{self, Bad, TooMany};
use super::error::HandlerResult;
use super::parse::{EmptyQuery, QueryParams};
use super::wait::{self, LongPollParams};
use super::web::WebHandlerState;
use crate::view::ViewSection;

/// Shows the status of the cluster.
#[utoipa::path(get, path = "/v1/status", tag = "cluster", params(LongPollParams), responses((status = 200, body = ClusterView, headers(
    ("X-Headroom-Index", description = "The index of the latest change; changes of measurements are not counted."),
)), Bad, TooMany))]
pub(crate) async fn status(
    State(web): State<WebHandlerState>,
    QueryParams(long_poll): QueryParams<LongPollParams>,
) -> HandlerResult<Response> {
    use axum::response::IntoResponse as _;
    let view = wait::view(&web, ViewSection::Status, long_poll).await?;
    let now = web.reader.clock.unix_now();
    let hour = web.reader.shared.memory_hour(now).await;
    let index = [(INDEX, view.index(ViewSection::Status).to_string())];
    Ok((index, Json(view.status(web.reader.clock.now(), hour))).into_response())
}

/// Versions of the resource manager and its interface.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionInfo {
    /// Version of the resource manager.
    version: &'static str,
    /// Version of the interface: `v1`.
    api: &'static str,
    /// Epoch of the resource manager.
    epoch: Epoch,
}

/// Shows versions.
#[utoipa::path(get, path = "/v1/version", tag = "cluster", responses((status = 200, body = VersionInfo), Bad))]
pub(crate) async fn version(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<VersionInfo> {
    Json(VersionInfo {
        version: env!("CARGO_PKG_VERSION"),
        api: "v1",
        epoch: web.reader.epoch,
    })
}

/// Returns this API description.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "cluster", responses((status = 200, body = serde_json::Value), Bad))]
pub(crate) async fn description(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Response {
    describe::answer(web.description)
}

/// Reports that the process runs.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Reports whether the resource manager accepts calls.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 503, body = ProblemDetails, content_type = "application/problem+json",
        description = "The resource manager accepts no calls."),
))]
pub(crate) async fn ready(State(web): State<WebHandlerState>) -> HandlerResult<&'static str> {
    web.reader.handle.turns().await?;
    Ok("ok\n")
}

//! `/ws/v1/node`: the API of YARN's node manager, for programs written for it.
//!
//! Read-only. It shows the same containers: those of the loop, and forgotten ones as long as their
//! directories are kept for their logs.

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use headroom_types::{ContainerId, UnixMillis};
use headroom_wire::v1::nodes::NodeHealthState;
use headroom_wire::yarn::accept;
use headroom_wire::yarn::error::{RemoteError, YarnErrorKind};
use headroom_wire::yarn::ids::{YarnApplicationId, YarnContainerId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::handler_state::{AgentHandlerState, ask};
use super::refusal::RefusedRequest;
use super::yarn_container::ShownContainer;
use super::yarn_json::{
    self, NodeApplicationResponse, NodeApplicationsResponse, NodeContainersResponse, OneContainer,
};
use crate::agent_query::AgentQuery;
use crate::clock;
use crate::disk::StateLayout;
use crate::logs;

/// The routes of this interface.
pub(super) fn router() -> Router<AgentHandlerState> {
    let routes = Router::new()
        .route("/ws/v1/node", get(info))
        .route("/ws/v1/node/", get(info))
        .route("/ws/v1/node/info", get(info))
        .route("/ws/v1/node/apps", get(apps))
        .route("/ws/v1/node/apps/{app}", get(app))
        .route("/ws/v1/node/containers", get(containers))
        .route("/ws/v1/node/containers/{container}", get(container))
        .route("/ws/v1/node/containers/{container}/logs", get(log_files))
        .route("/ws/v1/node/auxiliaryservices", get(auxiliary_services))
        .layer(axum::middleware::from_fn(json_only));
    Router::new()
        .route("/ws/v1/node/containers/{container}/logs/{file}", get(log))
        .route("/ws/v1/node/containerlogs/{container}/{file}", get(log))
        .route("/ws/{*rest}", any(no_route))
        .merge(routes)
        .method_not_allowed_fallback(no_method)
}

/// A failed call.
#[derive(Debug)]
struct YarnProblem(YarnErrorKind, String);

impl IntoResponse for YarnProblem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(RemoteError::new(self.0, &self.1))).into_response()
    }
}

impl From<RefusedRequest> for YarnProblem {
    fn from(RefusedRequest(problem): RefusedRequest) -> Self {
        YarnProblem(
            if problem.retryable {
                YarnErrorKind::Unavailable
            } else {
                YarnErrorKind::Internal
            },
            problem.detail,
        )
    }
}

async fn no_route(uri: axum::http::Uri) -> YarnProblem {
    YarnProblem(
        YarnErrorKind::NotFound,
        format!("there is nothing at {}", uri.path()),
    )
}

async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> YarnProblem {
    YarnProblem(
        YarnErrorKind::NotAllowed,
        format!("{} does not support {method}", uri.path()),
    )
}

async fn json_only(request: Request, next: Next) -> Response {
    let accepted = request.headers().get_all(header::ACCEPT);
    if accept::accepts_json(accepted.iter().filter_map(|value| value.to_str().ok())) {
        return next.run(request).await;
    }
    YarnProblem(
        YarnErrorKind::NotAcceptable,
        "the response is application/json; omit Accept, or accept application/json".into(),
    )
    .into_response()
}

/// The containers of the loop, then those whose directories remain.
async fn held(shared: &AgentHandlerState) -> Result<Vec<ShownContainer>, YarnProblem> {
    let mut all: Vec<ShownContainer> = ask(shared, AgentQuery::Details)
        .await?
        .into_iter()
        .map(ShownContainer::of)
        .collect();
    let layout = shared.layout.clone();
    let left = tokio::task::spawn_blocking(move || left(&layout)).await;
    let left = left.map_err(|_| {
        YarnProblem(
            YarnErrorKind::Internal,
            "the directories of containers cannot be read".into(),
        )
    })?;
    let known = |id: &ContainerId, all: &[ShownContainer]| all.iter().any(|held| held.id == *id);
    let left: Vec<ShownContainer> = left
        .into_iter()
        .filter(|held| !known(&held.id, &all))
        .collect();
    all.extend(left);
    Ok(all)
}

/// The forgotten containers. A directory without a complete order and report is skipped.
fn left(layout: &StateLayout) -> Vec<ShownContainer> {
    let ids = layout
        .list()
        .unwrap_or_default()
        .into_iter()
        .filter(|id| layout.is_forgotten(id));
    ids.filter_map(|id| {
        Some(ShownContainer::forgotten(
            id.clone(),
            layout.order(&id)?.order,
            layout.report(&id)?,
        ))
    })
    .collect()
}

async fn find(
    shared: &AgentHandlerState,
    name: YarnContainerId,
) -> Result<ShownContainer, YarnProblem> {
    let found = held(shared)
        .await?
        .into_iter()
        .find(|held| name.identifies(&held.id));
    found.ok_or_else(|| {
        YarnProblem(
            YarnErrorKind::NotFound,
            format!("container {name} is not on this node, or is no longer kept"),
        )
    })
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, YarnProblem> {
    text.parse()
        .map_err(|e| YarnProblem(YarnErrorKind::BadRequest, format!("the address: {e}")))
}

/// `GET /ws/v1/node/info`.
async fn info(State(shared): State<AgentHandlerState>) -> Result<Json<Value>, YarnProblem> {
    let diagnosis = ask(&shared, AgentQuery::Doctor).await?;
    let (healthy, report) = match diagnosis.health {
        NodeHealthState::Healthy => (true, String::new()),
        NodeHealthState::Unhealthy { reason } => (false, reason),
    };
    Ok(Json(yarn_json::info(
        &shared.about,
        (healthy, report),
        &diagnosis.enforcer,
        clock::unix_now(),
    )))
}

/// Parameters of the list of applications.
#[derive(Debug, Deserialize)]
struct ApplicationListQuery {
    state: Option<String>,
    user: Option<String>,
}

/// `GET /ws/v1/node/apps`.
async fn apps(
    State(shared): State<AgentHandlerState>,
    Query(wanted): Query<ApplicationListQuery>,
) -> Result<Json<NodeApplicationsResponse>, YarnProblem> {
    let state = wanted
        .state
        .filter(|s| !s.is_empty())
        .map(|name| yarn_json::app_state(&name))
        .transpose();
    let state = state.map_err(|what| YarnProblem(YarnErrorKind::BadRequest, what))?;
    let user = wanted.user.filter(|user| !user.is_empty());
    Ok(Json(NodeApplicationsResponse::of(
        &held(&shared).await?,
        |app| {
            state.is_none_or(|state| app.state == state)
                && user.as_ref().is_none_or(|user| *user == app.user)
        },
    )))
}

/// `GET /ws/v1/node/apps/{app}`.
async fn app(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
) -> Result<Json<NodeApplicationResponse>, YarnProblem> {
    let id: YarnApplicationId = parse(&id)?;
    let found = yarn_json::apps(&held(&shared).await?)
        .into_iter()
        .find(|app| app.id == id);
    let none = || {
        YarnProblem(
            YarnErrorKind::NotFound,
            format!("{id} has no container on this node, or none is kept"),
        )
    };
    found
        .map(|app| Json(NodeApplicationResponse { app }))
        .ok_or_else(none)
}

/// `GET /ws/v1/node/containers`.
async fn containers(
    State(shared): State<AgentHandlerState>,
) -> Result<Json<NodeContainersResponse>, YarnProblem> {
    let all = held(&shared).await?;
    Ok(Json(NodeContainersResponse::of(all.iter().map(|held| {
        yarn_json::container(held, &shared.about, files(&shared, &held.id))
    }))))
}

/// `GET /ws/v1/node/containers/{container}`.
async fn container(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
) -> Result<Json<OneContainer>, YarnProblem> {
    let found = find(&shared, parse(&id)?).await?;
    let container = yarn_json::container(&found, &shared.about, files(&shared, &found.id));
    Ok(Json(OneContainer { container }))
}

/// Names of the logs that a container has.
fn files(shared: &AgentHandlerState, id: &ContainerId) -> Vec<String> {
    logs::names(&shared.layout.container(id))
}

/// `GET /ws/v1/node/containers/{container}/logs`.
async fn log_files(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, YarnProblem> {
    let found = find(&shared, parse(&id)?).await?;
    let dir = shared.layout.container(&found.id);
    let about = |name: &String| {
        let facts = logs::place(name).and_then(|place| dir.join(place).symlink_metadata().ok());
        let changed = facts
            .as_ref()
            .and_then(|facts| facts.modified().ok())
            .map(UnixMillis::from)
            .unwrap_or_default();
        yarn_json::log_file(name, facts.map_or(0, |facts| facts.len()), changed)
    };
    let files: Vec<Value> = logs::names(&dir).iter().map(about).collect();
    let name = YarnContainerId::of(&found.id, found.attempt);
    Ok(Json(json!({"containerLogsInfo": {
        "logAggregationType": "LOCAL", "containerId": name, "nodeId": yarn_json::node_id(&shared.about), "containerLogInfo": files,
    }})))
}

/// The requested part of a log.
#[derive(Debug, Deserialize)]
struct LogPartQuery {
    /// Number of bytes from the beginning, or, if negative, from the end.
    size: Option<i64>,
    /// `text` or `octet-stream`.
    format: Option<String>,
}

/// `GET /ws/v1/node/containers/{container}/logs/{file}`, and its older path.
async fn log(
    State(shared): State<AgentHandlerState>,
    Path((id, file)): Path<(String, String)>,
    Query(part): Query<LogPartQuery>,
) -> Result<Response, YarnProblem> {
    let kind = match part.format.as_deref() {
        None | Some("" | "text") => "text/plain; charset=utf-8",
        Some("octet-stream") => "application/octet-stream",
        Some(other) => {
            return Err(YarnProblem(
                YarnErrorKind::BadRequest,
                format!("format is text or octet-stream, not {other:?}"),
            ));
        }
    };
    let found = find(&shared, parse(&id)?).await?;
    let none = || {
        YarnProblem(
            YarnErrorKind::NotFound,
            format!("container {id} has no log {file} on this node"),
        )
    };
    logs::place(&file).ok_or_else(none)?;
    let (dir, name) = (shared.layout.container(&found.id), file.clone());
    let read = tokio::task::spawn_blocking(move || logs::part(&dir, &name, part.size)).await;
    match read {
        Ok(Ok(bytes)) => Ok(([(header::CONTENT_TYPE, kind)], Body::from(bytes)).into_response()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(none()),
        Ok(Err(_)) | Err(_) => Err(YarnProblem(
            YarnErrorKind::Internal,
            format!("the log {file} of {id} cannot be read"),
        )),
    }
}

/// `GET /ws/v1/node/auxiliaryservices`: always empty.
async fn auxiliary_services() -> Json<Value> {
    Json(json!({"services": {"services": []}}))
}

//! The node's HTTP interface: containers, logs, metrics, liveness. It parses requests, queries the
//! loop and answers; it contains no logic.

mod container_access;
mod handler_state;
pub(crate) mod listener;
mod logs;
mod refusal;
mod yarn;
mod yarn_container;
mod yarn_json;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_telemetry::{ExpositionFormat, process};
use headroom_wire::v1::apps::ContainerTimeline;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::nodes::ObservedContainer;
use tokio::sync::mpsc;
use tower_http::timeout::RequestBodyDeadlineLayer;

use self::handler_state::{AgentHandlerState, ask, parse};
use self::refusal::{RefusedRequest, refuse};
use crate::agent_input::AgentInput;
use crate::agent_query::{AgentQuery, ContainerDetail, DoctorReport};
use crate::metrics;
use crate::node_context::NodeContext;
use crate::node_link_event::NodeMembership;

pub(crate) use handler_state::NodeSummary;

/// Time limit for a complete request body.
const BODY: Duration = Duration::from_secs(10);

/// The routes of the interface.
pub(crate) fn router(
    site: Arc<NodeContext>,
    key: &str,
    inputs: mpsc::Sender<AgentInput>,
    about: NodeSummary,
    refusals: &Arc<listener::RefusalCounts>,
) -> Router {
    let shared = AgentHandlerState {
        layout: site.layout.clone(),
        site,
        key: key.into(),
        inputs,
        about,
        followers: logs::followers(),
        readers: container_access::room(container_access::READ),
        execs: container_access::room(crate::exec::AT_ONCE),
        refusals: Arc::clone(refusals),
    };
    Router::new()
        .route("/livez", get(alive))
        .route("/metrics", get(scrape))
        .route("/v1/doctor", get(doctor))
        .route("/v1/containers", get(containers))
        .route("/v1/containers/{id}", get(container))
        .route("/v1/containers/{id}/timeline", get(timeline))
        .route("/v1/containers/{id}/logs/{file}", get(logs::log))
        .route("/v1/containers/{id}/signal", post(container_access::signal))
        .route("/v1/containers/{id}/files", get(container_access::list))
        .route(
            "/v1/containers/{id}/files/content",
            get(container_access::content),
        )
        .route("/v1/containers/{id}/exec", post(container_access::run))
        .merge(yarn::router())
        .layer(RequestBodyDeadlineLayer::new(BODY))
        .layer(axum::middleware::from_fn(listener::guard))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(refusals),
            listener::count,
        ))
        .with_state(shared)
}

/// Answers through the loop, so that an agent whose loop hangs is not reported as alive.
async fn alive(State(shared): State<AgentHandlerState>) -> Result<&'static str, RefusedRequest> {
    let diagnosis = ask(&shared, AgentQuery::Doctor).await?;
    Ok(match diagnosis.resource_manager {
        NodeMembership::Registered | NodeMembership::Searching => "ok\n",
        NodeMembership::Decommissioned => {
            "ok\nthis node is decommissioned: `rmctl node undrain` takes it back\n"
        }
    })
}

/// Metrics, in the format that the scraper accepts.
async fn scrape(
    State(shared): State<AgentHandlerState>,
    headers: HeaderMap,
) -> Result<Response, RefusedRequest> {
    let format =
        ExpositionFormat::wanted(headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()));
    let mut page = ask(&shared, AgentQuery::Metrics).await?;
    let (started, refusals) = (
        Duration::from_millis(shared.about.started.0).as_secs_f64(),
        shared.refusals,
    );
    let whole = move || {
        metrics::put_host(&mut page);
        refusals.put(&mut page);
        process::add_process_metrics(&mut page, started);
        page.write(format)
    };
    let text = tokio::task::spawn_blocking(whole)
        .await
        .map_err(|_| refuse(ErrorCode::HR0500, "the page could not be written"))?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn doctor(
    State(shared): State<AgentHandlerState>,
) -> Result<Json<DoctorReport>, RefusedRequest> {
    ask(&shared, AgentQuery::Doctor).await.map(Json)
}

async fn containers(
    State(shared): State<AgentHandlerState>,
) -> Result<Json<Vec<ObservedContainer>>, RefusedRequest> {
    ask(&shared, AgentQuery::Containers).await.map(Json)
}

async fn container(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
) -> Result<Json<Box<ContainerDetail>>, RefusedRequest> {
    let id = parse(&id)?;
    let detail = ask(&shared, |reply| AgentQuery::Container(id.clone(), reply)).await?;
    detail.map(Json).ok_or_else(|| {
        refuse(
            ErrorCode::HR0404,
            format!("container {id} is not on this node"),
        )
    })
}

/// The timeline of a known container, or of one whose report is still on disk.
async fn timeline(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
) -> Result<Json<ContainerTimeline>, RefusedRequest> {
    let id = parse(&id)?;
    let detail = ask(&shared, |reply| AgentQuery::Container(id.clone(), reply)).await?;
    let (reason, samples) = match detail {
        Some(detail) => (
            detail.report.as_ref().map(|report| report.reason),
            detail.timeline,
        ),
        None => {
            let (layout, of) = (shared.layout.clone(), id.clone());
            let report = tokio::task::spawn_blocking(move || layout.report(&of))
                .await
                .ok()
                .flatten();
            let report = report.ok_or_else(|| {
                refuse(
                    ErrorCode::HR0404,
                    format!("container {id} is not on this node"),
                )
            })?;
            (Some(report.reason), report.timeline)
        }
    };
    Ok(Json(ContainerTimeline {
        container: id,
        node: shared.about.node.clone(),
        reason,
        samples,
    }))
}

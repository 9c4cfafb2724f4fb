//! The node's HTTP interface: containers, logs, metrics, liveness. It parses requests, queries the
//! loop and answers; it contains no logic.

mod container_access;
pub(crate) mod listener;
mod logs;
mod yarn;
mod yarn_json;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headroom_node_cgroup::Group;
use headroom_telemetry::{Format, MetricsPage, process};
use headroom_types::exit::MemorySample;
use headroom_types::{ContainerId, ExitReport, NodeId, Resource, UnixMillis};
use headroom_wire::v1::apps::ContainerTimeline;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::nodes::{
    NodeContainerPhase, NodeHealthState, NodeTraits, ObservedContainer, RunOrder,
};
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower_http::timeout::RequestBodyDeadlineLayer;

use crate::agent_loop::AgentInput;
use crate::disk::StateLayout;
use crate::doctor::DoctorFinding;
use crate::metrics;
use crate::node_context::NodeContext;
use crate::rm_link::NodeMembership;

pub(crate) use container_access::key;

/// Time limit for a complete request body.
const BODY: Duration = Duration::from_secs(10);

/// A query of a handler to the loop.
#[derive(Debug)]
pub(crate) enum AgentQuery {
    /// All containers.
    Containers(oneshot::Sender<Vec<ObservedContainer>>),
    /// All containers with their details.
    Details(oneshot::Sender<Vec<Detail>>),
    /// One container.
    Container(ContainerId, oneshot::Sender<Option<Box<Detail>>>),
    /// The enforcer, and how it was chosen.
    Doctor(oneshot::Sender<Diagnosis>),
    /// The data for access to one container.
    Inside(ContainerId, oneshot::Sender<Option<Box<AccessTarget>>>),
    /// The metrics of the loop.
    Metrics(oneshot::Sender<MetricsPage>),
}

/// `GET /v1/containers/{id}`.
#[derive(Debug, Serialize)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) observed: ObservedContainer,
    /// Memory since the start.
    pub(crate) timeline: Vec<MemorySample>,
    /// The exit report, after the end.
    pub(crate) report: Option<ExitReport>,
}

/// The data for access to a container.
#[derive(Debug)]
pub(crate) struct AccessTarget {
    pub(crate) phase: NodeContainerPhase,
    pub(crate) order: Option<RunOrder>,
    pub(crate) group: Option<Arc<Group>>,
}

/// `GET /v1/doctor`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Diagnosis {
    /// The enforcer of the limits.
    pub(crate) enforcer: String,
    /// Directory of its groups.
    pub(crate) root: Option<PathBuf>,
    /// Whether the enforcer passed its proof.
    pub(crate) health: NodeHealthState,
    /// Membership of the node in the cluster.
    pub(crate) resource_manager: NodeMembership,
    /// Rack, labels and attributes of the node.
    pub(crate) traits: NodeTraits,
    /// Why this enforcer was chosen, and which features better ones lacked.
    pub(crate) notes: Vec<String>,
    /// Findings about the host at the start of the agent. Unattributed memory is current.
    pub(crate) host: Vec<DoctorFinding>,
}

/// Data of this node that does not change while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct NodeSummary {
    /// Node name.
    pub(crate) node: NodeId,
    /// URL of the agent.
    pub(crate) url: String,
    /// Resources that the node offers.
    pub(crate) offers: Resource,
    /// Start of the agent.
    pub(crate) started: UnixMillis,
}

#[derive(Clone, Debug)]
struct Shared {
    layout: StateLayout,
    site: Arc<NodeContext>,
    /// The key that permits container access.
    key: Arc<str>,
    inputs: mpsc::Sender<AgentInput>,
    about: NodeSummary,
    followers: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    execs: Arc<Semaphore>,
    refusals: Arc<listener::RefusalCounts>,
}

/// The routes of the interface.
pub(crate) fn router(
    site: Arc<NodeContext>,
    key: &str,
    inputs: mpsc::Sender<AgentInput>,
    about: NodeSummary,
    refusals: &Arc<listener::RefusalCounts>,
) -> Router {
    let shared = Shared {
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

struct Refused(Box<ProblemDetails>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (
            status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            Json(self.0),
        )
            .into_response()
    }
}

fn refuse(code: ErrorCode, detail: impl Into<String>) -> Refused {
    Refused(Box::new(ProblemDetails::new(code, detail)))
}

async fn ask<T>(
    shared: &Shared,
    question: impl FnOnce(oneshot::Sender<T>) -> AgentQuery,
) -> Result<T, Refused> {
    let gone = || refuse(ErrorCode::HR0503, "the node agent is shutting down");
    let (reply, answer) = oneshot::channel();
    shared
        .inputs
        .send(AgentInput::Question(question(reply)))
        .await
        .map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

/// Answers through the loop, so that an agent whose loop hangs is not reported as alive.
async fn alive(State(shared): State<Shared>) -> Result<&'static str, Refused> {
    let diagnosis = ask(&shared, AgentQuery::Doctor).await?;
    Ok(match diagnosis.resource_manager {
        NodeMembership::Registered | NodeMembership::Searching => "ok\n",
        NodeMembership::Decommissioned => {
            "ok\nthis node is decommissioned: `rmctl node undrain` takes it back\n"
        }
    })
}

/// Metrics, in the format that the scraper accepts.
async fn scrape(State(shared): State<Shared>, headers: HeaderMap) -> Result<Response, Refused> {
    let format = Format::wanted(headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()));
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

async fn doctor(State(shared): State<Shared>) -> Result<Json<Diagnosis>, Refused> {
    ask(&shared, AgentQuery::Doctor).await.map(Json)
}

async fn containers(State(shared): State<Shared>) -> Result<Json<Vec<ObservedContainer>>, Refused> {
    ask(&shared, AgentQuery::Containers).await.map(Json)
}

async fn container(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Box<Detail>>, Refused> {
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
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<ContainerTimeline>, Refused> {
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

fn parse(id: &str) -> Result<ContainerId, Refused> {
    id.parse()
        .map_err(|error: headroom_types::ids::ParseIdError| {
            refuse(ErrorCode::HR0400, error.to_string())
        })
}

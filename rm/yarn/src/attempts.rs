//! Application attempts.

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{ApplicationReport, ContainerReport, ContainerStage, SharedCluster};
use headroom_types::UnixMillis;
use headroom_wire::yarn::ids::{YarnApplicationId, YarnAttemptId, YarnContainerId};
use serde::Serialize;

use crate::application::app;
use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::nodes::{Address, address};
use crate::request::YarnPathParams;
use crate::{apps, state};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    id: u32,
    start_time: u64,
    finished_time: u64,
    container_id: String,
    node_http_address: String,
    node_id: String,
    logs_link: String,
    blacklisted_nodes: &'static str,
    nodes_blacklisted_by_system: &'static str,
    app_attempt_id: YarnAttemptId,
    app_attempt_state: &'static str,
    export_ports: &'static str,
}

/// `GET /ws/v1/cluster/apps/{app}/appattempts`.
pub(crate) async fn list(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Json<Field<Field<Vec<Attempt>>>>> {
    let app = app(&cluster, id).await?;
    let all = (1..=app.attempt)
        .map(|number| convert(&app, number))
        .collect();
    Ok(Json(field("appAttempts", field("appAttempt", all))))
}

/// `GET /ws/v1/cluster/apps/{app}/appattempts/{attempt}`.
pub(crate) async fn one(
    State(cluster): State<SharedCluster>,
    YarnPathParams((id, attempt)): YarnPathParams<(YarnApplicationId, YarnAttemptId)>,
) -> YarnResult<Json<Field<Attempt>>> {
    let app = run_of(&cluster, id, attempt).await?;
    Ok(Json(field("appAttempt", convert(&app, attempt.attempt))))
}

/// Returns the application of an existing application attempt.
pub(crate) async fn run_of(
    cluster: &SharedCluster,
    id: YarnApplicationId,
    attempt: YarnAttemptId,
) -> YarnResult<ApplicationReport> {
    let app = app(cluster, id).await?;
    if attempt.app != id || !(1..=app.attempt).contains(&attempt.attempt) {
        return Err(YarnError::none(format!(
            "{attempt} is not an attempt of {id}, whose latest attempt is {}",
            app.attempt
        )));
    }
    Ok(app)
}

/// Converts an application attempt. Its data comes from its own record if that is kept, otherwise
/// from its master's container. Without both, only its number is shown.
fn convert(app: &ApplicationReport, number: u32) -> Attempt {
    let run = app.runs.iter().find(|run| run.number == number);
    let master = app.masters.get(&number);
    let container = run
        .and_then(|run| run.container.clone())
        .or_else(|| master.map(|c| c.id.clone()));
    let node = run
        .and_then(|run| run.node.clone())
        .or_else(|| master.map(|c| c.node.clone()));
    let url = master.and_then(|c| c.node_url.as_deref());
    let Address { id: node_id, http } = node.map(|node| address(&node, url)).unwrap_or_default();
    let started = run
        .and_then(|run| run.started)
        .or_else(|| master.map(|c| c.granted));
    let finished = run.and_then(|run| run.ended).or_else(|| ended(master?));
    Attempt {
        id: number,
        start_time: started.map_or(0, |at| at.0),
        finished_time: finished.map_or(0, |at| at.0),
        container_id: container
            .map(|id| YarnContainerId::of(&id, number).to_string())
            .unwrap_or_default(),
        node_http_address: http,
        node_id,
        logs_link: master.map(apps::logs).unwrap_or_default(),
        blacklisted_nodes: "",
        nodes_blacklisted_by_system: "",
        app_attempt_id: YarnAttemptId {
            app: YarnApplicationId::of(&app.id),
            attempt: number,
        },
        app_attempt_state: state::attempt(app, number),
        export_ports: "",
    }
}

fn ended(c: &ContainerReport) -> Option<UnixMillis> {
    match c.life {
        ContainerStage::Over { ended, .. } => Some(ended),
        ContainerStage::Coming | ContainerStage::Running => None,
    }
}

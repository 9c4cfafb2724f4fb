//! `app-activities`: the reasons why an application waits.

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{ApplicationReport, SharedCluster};
use headroom_types::UnixMillis;
use headroom_wire::v1::apps::{NodeFitExplanation, PendingExplanation as Why};
use headroom_wire::yarn::ids::YarnApplicationId;
use headroom_wire::yarn::time;
use serde::Serialize;

use crate::application::app;
use crate::error::YarnResult;
use crate::field::{Field, field};
use crate::request::YarnPathParams;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Activities {
    application_id: YarnApplicationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostic: Option<&'static str>,
    timestamp: u64,
    date_time: String,
    allocations: Vec<Allocation>,
}

/// The latest scheduling attempt for all waiting requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    queue_name: String,
    app_priority: String,
    timestamp: u64,
    date_time: String,
    allocation_state: &'static str,
    diagnostic: String,
    request_allocation: Vec<Request>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    request_priority: i32,
    allocation_request_id: i64,
    allocation_state: &'static str,
    diagnostic: String,
    children: Vec<Child>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Child {
    name: String,
    node_id: String,
    allocation_state: &'static str,
    diagnostic: String,
}

/// `GET /ws/v1/cluster/scheduler/app-activities/{app}`.
pub(crate) async fn of_app(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Json<Field<Activities>>> {
    let app = app(&cluster, id).await?;
    let why = cluster.pending(app.id.clone()).await?;
    let activities = convert(&app, why, cluster.time().unix_now());
    Ok(Json(field("appActivities", activities)))
}

/// Converts the reasons. If no request waits, the list of allocations is empty.
fn convert(app: &ApplicationReport, why: Vec<Why>, now: UnixMillis) -> Activities {
    let allocation = || Allocation {
        queue_name: app.queue.to_string(),
        app_priority: app.priority.to_string(),
        timestamp: now.0,
        date_time: time::format_timestamp(now),
        allocation_state: "SKIPPED",
        diagnostic: why.first().map(|w| w.sentence.clone()).unwrap_or_default(),
        request_allocation: why
            .iter()
            .zip(0..)
            .map(|(why, place)| request(app, why, place))
            .collect(),
    };
    let waits = !why.is_empty();
    Activities {
        application_id: YarnApplicationId::of(&app.id),
        diagnostic: (!waits).then_some("no request of the application waits"),
        timestamp: now.0,
        date_time: time::format_timestamp(now),
        allocations: waits.then(allocation).into_iter().collect(),
    }
}

fn request(app: &ApplicationReport, why: &Why, place: i64) -> Request {
    let child = |node: &NodeFitExplanation| Child {
        name: node.node.to_string(),
        node_id: node.node.to_string(),
        allocation_state: "SKIPPED",
        diagnostic: node.verdict.clone(),
    };
    let asked = app
        .waiting
        .iter()
        .find(|w| w.request.as_ref() == Some(&why.request));
    Request {
        request_priority: asked.map_or(app.priority, |w| w.priority),
        allocation_request_id: place,
        allocation_state: "SKIPPED",
        diagnostic: format!("{}: {}", why.request, why.sentence),
        children: why.nodes.iter().map(child).collect(),
    }
}

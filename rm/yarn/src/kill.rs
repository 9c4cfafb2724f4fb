//! State of an application, and its only possible change: to `KILLED`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headroom_rm_reports::{ApplicationChange, SharedCluster};
use headroom_wire::yarn::ids::YarnApplicationId;
use serde::Deserialize;

use crate::application::{Tagged, app, tagged, to_change};
use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::request::{RequestBaseUrl, YarnJsonBody, YarnPathParams, YarnQueryParams};
use crate::state::AppState;

/// Requested state.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedState {
    state: String,
}

/// `GET /ws/v1/cluster/apps/{app}/state`.
pub(crate) async fn state(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Tagged<Field<AppState>>> {
    let found = app(&cluster, id).await?;
    let state = field("state", AppState::of(found.state));
    Ok(tagged(&cluster, &found, state))
}

/// `PUT /ws/v1/cluster/apps/{app}/state`: 200 when the application has ended, 202 while it ends.
pub(crate) async fn kill(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
    asked: YarnQueryParams,
    RequestBaseUrl(here): RequestBaseUrl,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<RequestedState>,
) -> YarnResult<Response> {
    if wanted.state != "KILLED" {
        return Err(YarnError::bad(format!(
            "the state of an application can only be set to KILLED, not to {:?}",
            wanted.state
        )));
    }
    let mut locked = to_change(&cluster, &headers, id).await?;
    if !locked.report.state.is_over() {
        let reason = asked.user().map(|user| format!("killed by {user}"));
        let kill = ApplicationChange::Kill(reason);
        cluster.change(locked.report.id.clone(), kill).await?;
        locked.report = app(&cluster, id).await?;
    }
    let state = locked.report.state;
    drop(locked);
    let shown = Json(field("state", AppState::of(state)));
    if state.is_over() {
        return Ok(shown.into_response());
    }
    let place = format!("{here}/ws/v1/cluster/apps/{id}/state");
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], shown).into_response())
}

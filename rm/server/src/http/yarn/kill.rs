//! State of an application, and its only possible change: to `KILLED`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headroom_rm_core::ClusterCall;
use headroom_wire::yarn::ids::YarnApp;
use serde::{Deserialize, Serialize};

use super::super::web::Web;
use super::application::{Tagged, app, tagged, to_change};
use super::error::YarnError;
use super::request::{RequestBaseUrl, YarnJsonBody, YarnPathParams, YarnQueryParams};
use super::state::AppState;

/// `{"state":…}`.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    state: AppState,
}

/// Requested state.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    state: String,
}

/// `GET /ws/v1/cluster/apps/{app}/state`.
pub(crate) async fn state(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
) -> Result<Tagged<Shown>, YarnError> {
    let found = app(&web, id).await?;
    Ok(tagged(
        &found,
        Shown {
            state: AppState::of(found.state),
        },
    ))
}

/// `PUT /ws/v1/cluster/apps/{app}/state`: 200 when the application has ended, 202 while it ends.
pub(crate) async fn kill(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
    asked: YarnQueryParams,
    RequestBaseUrl(here): RequestBaseUrl,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Wanted>,
) -> Result<Response, YarnError> {
    if wanted.state != "KILLED" {
        return Err(YarnError::bad(format!(
            "the state of an application can only be set to KILLED, not to {:?}",
            wanted.state
        )));
    }
    let (turn, mut found) = to_change(&web, &headers, id).await?;
    if !found.state.is_over() {
        let reason = asked.user().map(|user| format!("killed by {user}"));
        web.reader
            .handle
            .call(ClusterCall::Kill {
                app: found.id,
                reason,
            })
            .await?;
        found = app(&web, id).await?;
    }
    drop(turn);
    let shown = Json(Shown {
        state: AppState::of(found.state),
    });
    if found.state.is_over() {
        return Ok(shown.into_response());
    }
    let place = format!("{here}/ws/v1/cluster/apps/{id}/state");
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], shown).into_response())
}

//! `/v1/suggestions`: what tasks should begin with, from what those of earlier jobs have needed.

use axum::Json;
use axum::extract::State;
use headroom_types::Name;
use headroom_wire::v1::suggestions::Suggestion;
use serde::Deserialize;
use utoipa::IntoParams;

use super::describe::{Bad, TooMany};
use super::error::Failure;
use super::parse::Params;
use super::{Web, unexpected};

/// Of which jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Of {
    /// Who submitted them; of all users when left out.
    user: Option<String>,
    /// What they are called; of all jobs when left out.
    job: Option<Name>,
}

/// A size for each stage of the job families that are remembered, by user, name and stage.
#[utoipa::path(get, path = "/v1/suggestions", tag = "families", params(Of), responses((status = 200, body = Vec<Suggestion>), Bad, TooMany))]
pub(crate) async fn list(State(web): State<Web>, Params(Of { user, job }): Params<Of>) -> Result<Json<Vec<Suggestion>>, Failure> {
    let families = web.shared.families.clone();
    // What was never asked for is worked out now, and that takes milliseconds for each stage.
    let found = tokio::task::spawn_blocking(move || families.suggestions(user.as_deref(), job.as_ref())).await;
    Ok(Json(found.map_err(|_| unexpected())?))
}

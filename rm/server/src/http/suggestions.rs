//! `/v1/suggestions`: initial task sizes, from the needs of earlier jobs.

use axum::Json;
use axum::extract::State;
use headroom_types::Name;
use headroom_wire::v1::suggestions::Suggestion;
use serde::Deserialize;
use utoipa::IntoParams;

use super::describe::{Bad, TooMany};
use super::error::{HandlerResult, unexpected};
use super::parse::QueryParams;
use super::web::WebHandlerState;

/// Selection of jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SuggestionQuery {
    /// User who submitted them; without it, all users.
    user: Option<String>,
    /// Name of the jobs; without it, all jobs.
    job: Option<Name>,
}

/// Suggests a size for each stage in the usage history, by user, name and stage.
#[utoipa::path(get, path = "/v1/suggestions", tag = "families", params(SuggestionQuery), responses((status = 200, body = Vec<Suggestion>), Bad, TooMany))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(SuggestionQuery { user, job }): QueryParams<SuggestionQuery>,
) -> HandlerResult<Json<Vec<Suggestion>>> {
    let families = web.reader.shared.families.clone();
    // A suggestion that is not cached is computed now, which takes milliseconds for each stage.
    let found =
        tokio::task::spawn_blocking(move || families.suggestions(user.as_deref(), job.as_ref()))
            .await;
    Ok(Json(found.map_err(|_| unexpected())?))
}

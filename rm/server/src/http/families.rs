//! `/v1/families`: usage history, by user and job name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use headroom_types::Name;
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::job_history::{JobHistory, JobHistoryRow};
use serde::Deserialize;
use utoipa::IntoParams;

use super::describe::{Bad, Missing, TooMany};
use super::error::HandlerResult;
use super::parse::{PathId, QueryParams};
use super::web::WebHandlerState;

/// Selection by user.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// User who submitted the jobs. Without it, a list has all users, and a single family is that
    /// of the unnamed user.
    user: Option<String>,
}

/// Lists the families of the usage history, by user and name.
#[utoipa::path(get, path = "/v1/families", tag = "families", params(HistoryQuery), responses((status = 200, body = Vec<JobHistoryRow>), Bad, TooMany))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(HistoryQuery { user }): QueryParams<HistoryQuery>,
) -> HandlerResult<Json<Vec<JobHistoryRow>>> {
    Ok(Json(web.reader.shared.families.list(user.as_deref())))
}

/// Shows one family of the usage history.
///
/// For each stage it contains the needs of the latest tasks that succeeded.
#[utoipa::path(get, path = "/v1/families/{name}", tag = "families", params(("name" = Name, Path), HistoryQuery),
    responses((status = 200, body = JobHistory), Bad, Missing, TooMany))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(name): PathId<Name>,
    QueryParams(HistoryQuery { user }): QueryParams<HistoryQuery>,
) -> HandlerResult<Json<JobHistory>> {
    let user = user.unwrap_or_default();
    let found = web
        .reader
        .shared
        .families
        .get(&user, &name)
        .map(Arc::unwrap_or_clone);
    Ok(Json(found.ok_or_else(|| no_such_family(&user, &name))?))
}

fn no_such_family(user: &str, name: &Name) -> ProblemDetails {
    let whose = if user.is_empty() {
        "an unknown user".to_owned()
    } else {
        format!("user {user}")
    };
    ProblemDetails::not_found(format!(
        "there is no usage history of jobs {name} of {whose}"
    ))
    .hint("GET /v1/families lists all job histories; ?user= selects those of another user")
}

//! `/v1/families`: what earlier jobs of one user and one name have needed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use headroom_types::Name;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::families::{Family, FamilyRow};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Web;
use super::describe::{Bad, Missing, TooMany};
use super::error::Failure;
use super::parse::{Id, Params};

/// Whose families.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// Who submitted the jobs; all users when left out of a list, the user without a name when left out for one family.
    user: Option<String>,
}

/// The families that are remembered, by user and name.
#[utoipa::path(get, path = "/v1/families", tag = "families", params(Whose), responses((status = 200, body = Vec<FamilyRow>), Bad, TooMany))]
pub(crate) async fn list(State(web): State<Web>, Params(Whose { user }): Params<Whose>) -> Result<Json<Vec<FamilyRow>>, Failure> {
    Ok(Json(web.shared.families.list(user.as_deref())))
}

/// All that is remembered of one family: for each stage what its latest tasks needed that ended well.
#[utoipa::path(get, path = "/v1/families/{name}", tag = "families", params(("name" = Name, Path), Whose),
    responses((status = 200, body = Family), Bad, Missing, TooMany))]
pub(crate) async fn one(
    State(web): State<Web>,
    Id(name): Id<Name>,
    Params(Whose { user }): Params<Whose>,
) -> Result<Json<Family>, Failure> {
    let user = user.unwrap_or_default();
    let found = web.shared.families.get(&user, &name).map(Arc::unwrap_or_clone);
    Ok(Json(found.ok_or_else(|| no_such_family(&user, &name))?))
}

fn no_such_family(user: &str, name: &Name) -> Problem {
    let whose = if user.is_empty() { "nobody".to_owned() } else { format!("user {user}") };
    Problem::new(Code::HR0404, format!("no job called {name} of {whose} has taught anything yet"))
        .hint("GET /v1/families lists those that have; another user's are named with ?user=")
}

//! `/v1/operator`: reload of the configuration, and the log level.

use axum::extract::State;
use axum::{Extension, Json};
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::operator::{LogView, Reloaded, SetLog};

use super::Web;
use super::describe::{Bad, Conflict, TooLarge, TooMany};
use super::error::Failure;
use super::parse::{Body, Nothing, Params};
use crate::audit::Changed;
use crate::operator::{Operator, Wish};
use crate::reload::words;

/// Reloads the configuration.
///
/// All keys that can change in a running daemon take effect. A file with an error changes nothing.
#[utoipa::path(post, path = "/v1/operator/reload", tag = "operator",
    responses((status = 200, description = "What holds now, and what waits.", body = Reloaded), Bad, Conflict, TooMany))]
pub(crate) async fn reload(
    State(web): State<Web>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<(Extension<Changed>, Json<Reloaded>), Failure> {
    let reloaded = operator(&web)?.ask(Wish::Reload).await?;
    let reloaded = reloaded.map_err(|why| {
        let problem = Problem::new(Code::HR0400, format!("nothing has changed: {why}"));
        problem.hint("resourcemanager --check-config says all that is wrong with the file")
    })?;
    Ok((Extension(Changed { before: String::new(), after: words(&reloaded) }), Json(reloaded)))
}

/// Shows the log level of the daemon.
#[utoipa::path(get, path = "/v1/operator/log", tag = "operator", responses((status = 200, body = LogView), Bad, Conflict, TooMany))]
pub(crate) async fn log(State(web): State<Web>, Params(Nothing {}): Params<Nothing>) -> Result<Json<LogView>, Failure> {
    Ok(Json(operator(&web)?.ask(|reply| Wish::Log(None, reply)).await?))
}

/// Sets the log level of the daemon, until its next reload or restart.
#[utoipa::path(put, path = "/v1/operator/log", tag = "operator", request_body = SetLog,
    responses((status = 200, body = LogView), Bad, Conflict, TooLarge, TooMany))]
pub(crate) async fn set_log(
    State(web): State<Web>,
    Params(Nothing {}): Params<Nothing>,
    Body(body): Body<SetLog>,
) -> Result<(Extension<Changed>, Json<LogView>), Failure> {
    let operator = operator(&web)?;
    let before = operator.ask(|reply| Wish::Log(None, reply)).await?;
    if before.by_environment {
        let problem = Problem::new(Code::HR0409, "HEADROOM_LOG in the daemon's environment says how much is in its log");
        return Err(problem.hint("take it out of the unit and start the daemon again").into());
    }
    let after = operator.ask(|reply| Wish::Log(Some(body.level), reply)).await?;
    Ok((Extension(Changed { before: before.level.to_string(), after: after.level.to_string() }), Json(after)))
}

fn operator(web: &Web) -> Result<&Operator, Problem> {
    let inside = || {
        let problem = Problem::new(Code::HR0409, "this resource manager runs inside another program, which has no file for it");
        problem.hint("start it as resourcemanager --config FILE")
    };
    web.operator.as_ref().ok_or_else(inside)
}

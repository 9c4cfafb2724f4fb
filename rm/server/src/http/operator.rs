//! `/v1/operator`: reload of the configuration, and the log level.

use axum::Json;
use axum::extract::State;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::operator::{LogLevelView, ReloadResult, SetLogLevelRequest};

use super::answer::{Audited, audited};
use super::describe::{Bad, Conflict, TooLarge, TooMany};
use super::error::HandlerResult;
use super::parse::{EmptyQuery, JsonBody, QueryParams};
use super::web::WebHandlerState;
use crate::operator::{OperatorHandle, OperatorRequest, reload_summary};

/// Reloads the configuration.
///
/// All keys that can change in a running daemon take effect. A file with an error changes nothing.
#[utoipa::path(post, path = "/v1/operator/reload", tag = "operator",
    responses((status = 200, description = "The keys that took effect, and those that need a restart.", body = ReloadResult),
        Bad, Conflict, TooMany))]
pub(crate) async fn reload(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Audited<Json<ReloadResult>>> {
    let reloaded = operator(&web)?.ask(OperatorRequest::Reload).await?;
    let reloaded = reloaded.map_err(|why| {
        let problem = ProblemDetails::bad_request(format!("nothing has changed: {why}"));
        problem.hint("resourcemanager --check-config lists all errors of the file")
    })?;
    Ok(audited("", reload_summary(&reloaded), Json(reloaded)))
}

/// Shows the log level of the daemon.
#[utoipa::path(get, path = "/v1/operator/log", tag = "operator", responses((status = 200, body = LogLevelView), Bad, Conflict, TooMany))]
pub(crate) async fn log(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<LogLevelView>> {
    Ok(Json(
        operator(&web)?
            .ask(|reply| OperatorRequest::Log(None, reply))
            .await?,
    ))
}

/// Sets the log level of the daemon, until its next reload or restart.
#[utoipa::path(put, path = "/v1/operator/log", tag = "operator", request_body = SetLogLevelRequest,
    responses((status = 200, body = LogLevelView), Bad, Conflict, TooLarge, TooMany))]
pub(crate) async fn set_log(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<SetLogLevelRequest>,
) -> HandlerResult<Audited<Json<LogLevelView>>> {
    let operator = operator(&web)?;
    let before = operator
        .ask(|reply| OperatorRequest::Log(None, reply))
        .await?;
    if before.by_environment {
        let problem =
            ProblemDetails::conflict("HEADROOM_LOG in the daemon's environment sets the log level");
        return Err(problem
            .hint("remove it from the unit, and restart the daemon")
            .into());
    }
    let after = operator
        .ask(|reply| OperatorRequest::Log(Some(body.level), reply))
        .await?;
    Ok(audited(
        before.level.to_string(),
        after.level.to_string(),
        Json(after),
    ))
}

fn operator(web: &WebHandlerState) -> ProblemResult<&OperatorHandle> {
    let inside = || {
        let problem = ProblemDetails::conflict(
            "this resource manager runs in another program, without a configuration file",
        );
        problem.hint("start it as resourcemanager --config FILE")
    };
    web.operator.as_ref().ok_or_else(inside)
}

//! `/v1/audit`: the audit log.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headroom_wire::v1::audit::AuditLine;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer;
use super::describe::Bad;
use super::error::HandlerResult;
use super::pages;
use super::parse::{PastTimeSpan, QueryParams};
use super::web::WebHandlerState;
use crate::audit::AuditFilter;

/// Selection of calls.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditListQuery {
    /// Only calls of this caller.
    who: Option<String>,
    /// Only calls whose verb contains this text: `kill`, `PATCH` …
    verb: Option<String>,
    /// Only calls whose object contains this text: `apps/job.1`, `queues` …
    object: Option<String>,
    /// `true` for refused calls only, `false` for all others.
    refused: Option<bool>,
    /// Only calls of the last time span, such as `1h`.
    #[param(value_type = Option<String>)]
    since: Option<PastTimeSpan>,
    /// Maximum number of rows, 1 to 1000; without it, all rows.
    limit: Option<usize>,
    /// Only calls after this number; the header Link has the address of the next page.
    after: Option<u64>,
}

/// Lists changing calls, also refused ones, oldest first.
///
/// The latest 10000 are kept in memory, more on disk.
#[utoipa::path(get, path = "/v1/audit", tag = "cluster", params(AuditListQuery), responses(
    (status = 200, body = Vec<AuditLine>, headers(
        ("Link", description = "The address of the next page, if there is one."),
        ("X-Headroom-Index", description = "The number of the last call in the list."),
    )), Bad,
))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(asked): QueryParams<AuditListQuery>,
    uri: Uri,
) -> HandlerResult<Response> {
    let since = asked
        .since
        .map(|age| age.before(web.reader.clock.unix_now()));
    let filter = AuditFilter {
        who: asked.who,
        verb: asked.verb,
        object: asked.object,
        refused: asked.refused,
        since,
    };
    let after = asked.after.unwrap_or(0);
    let all = web.audit.read(after, &filter).into_iter();
    let (rows, next) = pages::piece(all, |line| &line.index, None, pages::limit(asked.limit)?);
    let last = rows.last().map_or(after, |line| line.index);
    let rows: Vec<&AuditLine> = rows.iter().map(|line| &**line).collect();
    answer::list(&uri, last, &rows, next)
}

//! Reports about applications, for the handlers of this interface, and the lock for a change.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, header};
use headroom_types::AppId;
use headroom_wire::yarn::ids::YarnApp;
use tokio::sync::MutexGuard;

use super::super::apps::version_of;
use super::super::web::Web;
use super::error::YarnError;
use crate::if_match::IfMatch;
use crate::input::{ClusterQuery, LoopInput};
use crate::reports::{AppSelection, ApplicationReport, ReportQuery};

/// Reports about applications.
pub(crate) async fn facts(
    web: &Web,
    of: AppSelection,
) -> Result<Vec<ApplicationReport>, YarnError> {
    let wall = web.reader.clock.unix_now();
    Ok(web
        .reader
        .handle
        .ask(|reply| LoopInput::Query(ClusterQuery::Facts(ReportQuery::Apps { of, wall, reply })))
        .await?)
}

/// Report about one application.
pub(crate) async fn app(web: &Web, app: YarnApp) -> Result<ApplicationReport, YarnError> {
    facts(web, AppSelection::Number(app.0))
        .await?
        .pop()
        .ok_or_else(|| YarnError::none(format!("there is no application {app}")))
}

/// A response about an application, with the ETag of its changeable fields: that of
/// `/v1/apps/{app}` up to its dot.
pub(crate) type Tagged<T> = ([(HeaderName, String); 1], Json<T>);

pub(crate) fn tagged<T>(app: &ApplicationReport, shown: T) -> Tagged<T> {
    (
        [(header::ETAG, format!("\"{}\"", version(app)))],
        Json(shown),
    )
}

fn version(app: &ApplicationReport) -> String {
    version_of(&app.queue, app.priority, app.until)
}

/// Locks changes and returns an application that is to be changed, if `If-Match` names its version.
/// No other caller can change an application while the guard is held.
pub(crate) async fn to_change<'a>(
    web: &'a Web,
    headers: &HeaderMap,
    of: YarnApp,
) -> Result<(MutexGuard<'a, ()>, ApplicationReport), YarnError> {
    let matched = IfMatch::of(headers)?;
    let turn = web.changes.lock().await;
    let found = app(web, of).await?;
    matched.check(&format!("application {of}"), &version(&found))?;
    Ok((turn, found))
}

/// Id of an application in this resource manager.
pub(crate) async fn id(web: &Web, of: YarnApp) -> Result<AppId, YarnError> {
    Ok(app(web, of).await?.id)
}

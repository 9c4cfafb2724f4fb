//! Report about one application, for the handlers of this interface, and the lock for a change.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, header};
use headroom_rm_reports::{
    AppSelection, ApplicationReport, IfMatch, LockedApplication, SharedCluster,
};
use headroom_types::AppId;
use headroom_wire::yarn::ids::YarnApplicationId;

use crate::error::{YarnError, YarnResult};

/// Report about one application.
pub(crate) async fn app(
    cluster: &SharedCluster,
    app: YarnApplicationId,
) -> YarnResult<ApplicationReport> {
    let found = cluster.applications(AppSelection::Number(app.0)).await?;
    found.into_iter().next().ok_or_else(|| unknown(app))
}

fn unknown(app: YarnApplicationId) -> YarnError {
    YarnError::none(format!("there is no application {app}"))
}

/// A response about an application, with the ETag of its changeable fields: that of
/// `/v1/apps/{app}` up to its dot.
pub(crate) type Tagged<T> = ([(HeaderName, String); 1], Json<T>);

pub(crate) fn tagged<T>(cluster: &SharedCluster, app: &ApplicationReport, shown: T) -> Tagged<T> {
    let tag = format!("\"{}\"", cluster.version(app));
    ([(header::ETAG, tag)], Json(shown))
}

/// Locks changes and returns an application that is to be changed, if `If-Match` names its version.
/// No other caller can change an application before the result is dropped.
pub(crate) async fn to_change(
    cluster: &SharedCluster,
    headers: &HeaderMap,
    of: YarnApplicationId,
) -> YarnResult<LockedApplication> {
    let values = headers.get_all(header::IF_MATCH);
    let matched = IfMatch::of(values.iter().map(|value| value.to_str().ok()))?;
    let locked = cluster.lock_application(of.0).await?;
    let locked = locked.ok_or_else(|| unknown(of))?;
    matched.check(
        &format!("application {of}"),
        &cluster.version(&locked.report),
    )?;
    Ok(locked)
}

/// Id of an application in this resource manager.
pub(crate) async fn id(cluster: &SharedCluster, of: YarnApplicationId) -> YarnResult<AppId> {
    Ok(app(cluster, of).await?.id)
}

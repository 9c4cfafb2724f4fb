//! `/ws/v1/cluster`: REST interface for programs written for YARN's resource manager, in YARN's
//! formats.
//!
//! It is a second interface to the same cluster: data comes from the reports and the view, and
//! actions are calls of the core. JSON only. Callers need the permissions of the same call under
//! `/v1`. For unauthenticated callers, `user.name` is the user who submits or kills, as on a YARN
//! cluster without security.

pub(crate) mod activities;
pub(crate) mod apps;
pub(crate) mod attempts;
pub(crate) mod change;
pub(crate) mod containers;
pub(crate) mod error;
pub(crate) mod filter;
pub(crate) mod info;
pub(crate) mod kill;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod resource;
pub(crate) mod scheduler;
pub(crate) mod state;
pub(crate) mod submit;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use headroom_types::AppId;
use headroom_wire::yarn::accept;
use headroom_wire::yarn::ids::YarnApp;
use serde::de::DeserializeOwned;
use tokio::sync::MutexGuard;

use super::Web;
use super::answer::IfMatch;
use crate::http::callers::Scheme;
use crate::input::{ClusterQuery as Ask, LoopInput};
use crate::reports::{AppSelection, ApplicationReport, ReportQuery};
use error::YarnError;

/// All routes of this interface.
pub(crate) fn router() -> Router<Web> {
    Router::new()
        .route("/ws/v1/cluster", get(info::info))
        .route("/ws/v1/cluster/", get(info::info))
        .route("/ws/v1/cluster/info", get(info::info))
        .route("/ws/v1/cluster/metrics", get(metrics::metrics))
        .route("/ws/v1/cluster/scheduler", get(scheduler::scheduler))
        .route(
            "/ws/v1/cluster/scheduler/app-activities/{app}",
            get(activities::of_app),
        )
        .route("/ws/v1/cluster/nodes", get(nodes::list))
        .route("/ws/v1/cluster/nodes/{node}", get(nodes::one))
        .route("/ws/v1/cluster/apps", get(apps::list).post(submit::submit))
        .route(
            "/ws/v1/cluster/apps/new-application",
            post(submit::new_application),
        )
        .route("/ws/v1/cluster/apps/{app}", get(apps::one))
        .route(
            "/ws/v1/cluster/apps/{app}/state",
            get(kill::state).put(kill::kill),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/queue",
            get(change::queue).put(change::move_to),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/priority",
            get(change::priority).put(change::prioritise),
        )
        .route("/ws/v1/cluster/apps/{app}/timeouts", get(change::timeouts))
        .route(
            "/ws/v1/cluster/apps/{app}/timeouts/{kind}",
            get(change::timeout),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/timeout",
            axum::routing::put(change::expire),
        )
        .route("/ws/v1/cluster/apps/{app}/appattempts", get(attempts::list))
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}",
            get(attempts::one),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}/containers",
            get(containers::list),
        )
        .route(
            "/ws/v1/cluster/apps/{app}/appattempts/{attempt}/containers/{container}",
            get(containers::one),
        )
        .route("/ws/v1/cluster/appstatistics", get(apps::statistics))
        .route(
            "/ws/v1/cluster/containers/{container}/signal/{command}",
            post(containers::signal),
        )
        .route("/ws/{*rest}", any(error::no_route))
        .route("/cluster", get(info::front))
        .route("/jmx", get(info::jmx))
        .method_not_allowed_fallback(error::no_method)
        .layer(axum::middleware::from_fn(json_only))
}

/// Middleware that refuses callers that accept only XML, before anything is done.
async fn json_only(request: Request, next: Next) -> Response {
    if takes_json(request.headers()) {
        next.run(request).await
    } else {
        error::not_acceptable().into_response()
    }
}

fn takes_json(headers: &HeaderMap) -> bool {
    accept::accepts_json(
        headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok()),
    )
}

/// Path segments, as ids or text.
#[derive(Debug)]
pub(crate) struct YarnPathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for YarnPathParams<T> {
    type Rejection = YarnError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, YarnError> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(t)| YarnPathParams(t))
            .map_err(|e| YarnError::bad(format!("the address: {}", e.body_text())))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct YarnJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for YarnJsonBody<T> {
    type Rejection = YarnError;

    async fn from_request(request: Request, state: &S) -> Result<Self, YarnError> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes
            .map_err(|e| YarnError::bad(format!("the body did not arrive: {}", e.body_text())))?;
        serde_json::from_slice(&bytes)
            .map(YarnJsonBody)
            .map_err(|e| YarnError::bad(format!("the body is invalid: {e}")))
    }
}

/// Query parameters. A name may occur more than once.
#[derive(Debug, Default)]
pub(crate) struct YarnQueryParams(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for YarnQueryParams {
    type Rejection = YarnError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, YarnError> {
        let read = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        read.map(|Query(pairs)| YarnQueryParams(pairs))
            .map_err(|e| YarnError::bad(format!("the parameters: {}", e.body_text())))
    }
}

impl YarnQueryParams {
    /// Value of one parameter, unless it is empty.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }
    /// Values of a parameter that accepts several: repeated, or joined by commas.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let given = self
            .0
            .iter()
            .filter(|(key, _)| key == name)
            .flat_map(|(_, value)| value.split(','));
        given
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect()
    }
    /// User name that the caller claims.
    pub(crate) fn user(&self) -> Option<&str> {
        self.one("user.name").or_else(|| self.one("doAs"))
    }
}

/// Base URL under which the caller reached this server, for links.
#[derive(Debug)]
pub(crate) struct RequestBaseUrl(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for RequestBaseUrl {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let host = parts
            .headers
            .get(header::HOST)
            .and_then(|v| v.to_str().ok())
            .unwrap_or("localhost");
        let Scheme(scheme) = parts
            .extensions
            .get::<Scheme>()
            .copied()
            .unwrap_or(Scheme("http"));
        Ok(RequestBaseUrl(format!("{scheme}://{host}")))
    }
}

/// Reports about applications.
pub(crate) async fn facts(
    web: &Web,
    of: AppSelection,
) -> Result<Vec<ApplicationReport>, YarnError> {
    let wall = web.clock.unix_now();
    Ok(web
        .handle
        .ask(|reply| LoopInput::Query(Ask::Facts(ReportQuery::Apps { of, wall, reply })))
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
    super::apps::version_of(&app.queue, app.priority, app.until)
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

/// The core returned another kind of result than the call expects.
pub(crate) fn unexpected() -> YarnError {
    let super::error::ProblemResponse(problem) = super::unexpected();
    problem.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_may_be_repeated_or_comma_separated() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let asked = YarnQueryParams(vec![
            pair("states", "NEW, RUNNING"),
            pair("states", "FAILED"),
            pair("user", ""),
        ]);
        assert_eq!(asked.all("states"), ["NEW", "RUNNING", "FAILED"]);
        assert_eq!((asked.one("user"), asked.one("limit")), (None, None));
    }
}

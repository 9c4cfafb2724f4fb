//! `/v1/apps`: submit, list, look at, kill, and why something waits.

use axum::Json;
use axum::extract::State;
use headroom_rm_core::{Answer, Call};
use headroom_types::{AppId, AttemptId};
use headroom_wire::v1::am::Ask;
use headroom_wire::v1::apps::{AppView, KillApp, SubmitApp, Submitted, WhyPending};
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::job::JobView;

use super::error::Failure;
use super::parse::{Body, Id};
use super::{Web, unexpected};
use crate::incoming::{self, cut};
use crate::input::{Input, Query};
use crate::outgoing;

/// `POST /v1/apps`.
pub(crate) async fn submit(State(web): State<Web>, Body(body): Body<SubmitApp>) -> Result<Json<Submitted>, Failure> {
    let Answer::Submitted { app, attempt } = web.handle.call(incoming::submit(body)?).await? else {
        return Err(unexpected());
    };
    let attempt = AttemptId { app: app.clone(), attempt };
    Ok(Json(Submitted { app, attempt, epoch: web.epoch }))
}

/// `GET /v1/apps`.
pub(crate) async fn list(State(web): State<Web>) -> Result<Json<Vec<AppView>>, Failure> {
    Ok(Json(web.handle.view().await?.apps.values().cloned().collect()))
}

/// `GET /v1/apps/{app}`.
pub(crate) async fn one(State(web): State<Web>, Id(app): Id<AppId>) -> Result<Json<AppView>, Failure> {
    let mut view = without_job(&web, &app).await?;
    view.job = job(&web, &app).await;
    Ok(Json(view))
}

/// An application without its tasks.
pub(crate) async fn without_job(web: &Web, app: &AppId) -> Result<AppView, Failure> {
    web.handle.view().await?.apps.get(app).cloned().ok_or_else(|| no_such_app(app))
}

fn no_such_app(app: &AppId) -> Failure {
    outgoing::problem(&headroom_rm_core::Refusal::NoSuchApp(app.clone())).into()
}

/// From memory while it lives, from the store when it is over.
async fn job(web: &Web, app: &AppId) -> Option<JobView> {
    if let Some(snapshot) = web.shared.jobs.snapshot(app) {
        return Some(snapshot.view());
    }
    let (documents, id) = (web.documents.clone(), app.clone());
    let read = tokio::task::spawn_blocking(move || documents.get(&id)).await.ok()?;
    match read {
        Ok(document) => serde_json::from_slice(&document?).ok(),
        Err(error) => {
            tracing::warn!(%app, error = &error as &dyn std::error::Error, "the view of a job cannot be read, going on without");
            None
        }
    }
}

/// `POST /v1/apps/{app}/kill`.
pub(crate) async fn kill(
    State(web): State<Web>,
    Id(app): Id<AppId>,
    Body(body): Body<KillApp>,
) -> Result<Json<AppView>, Failure> {
    let reason = body.reason.map(|r| cut(r, 4096));
    web.handle.call(Call::Kill { app: app.clone(), reason }).await?;
    Ok(Json(without_job(&web, &app).await?))
}

/// `GET /v1/apps/{app}/why`.
pub(crate) async fn why(State(web): State<Web>, Id(app): Id<AppId>) -> Result<Json<Vec<WhyPending>>, Failure> {
    let rows = web.handle.ask(|reply| Input::Query(Query::Why(app.clone(), reply))).await?;
    let rows = rows.ok_or_else(|| no_such_app(&app))?;
    Ok(Json(rows.into_iter().map(outgoing::why).collect()))
}

/// `GET /v1/apps/{app}/requests`.
pub(crate) async fn requests(State(web): State<Web>, Id(app): Id<AppId>) -> Result<Json<Vec<Ask>>, Failure> {
    let asks = web.handle.ask(|reply| Input::Query(Query::Requests(app.clone(), reply))).await?;
    asks.map(Json).ok_or_else(|| Problem::new(Code::HR0404, format!("there is no application {app}")).into())
}

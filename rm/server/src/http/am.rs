//! What application masters call: register, sync, ask, listen, finish.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use headroom_rm_core::{Answer, Call, How};
use headroom_types::{AppId, Epoch, RequestId};
use headroom_wire::v1::am::{Ask, AskAnswer, FinishApp, MasterSync, MasterSyncReply, RegisterMaster, Registered};
use headroom_wire::v1::apps::AppView;
use serde::Deserialize;

use super::error::Failure;
use super::parse::{Body, Id, Ids, Params};
use super::{Web, apps, stream, unexpected};
use crate::input::Input;
use crate::{incoming, outgoing};

/// `POST /v1/apps/{app}/register`.
pub(crate) async fn register(
    State(web): State<Web>,
    Id(app): Id<AppId>,
    Body(body): Body<RegisterMaster>,
) -> Result<Json<Registered>, Failure> {
    let Answer::Master { largest, containers, cursor } = web.handle.call(incoming::register_master(&app, body)?).await? else {
        return Err(unexpected());
    };
    let containers = containers.into_iter().map(outgoing::granted).collect();
    Ok(Json(Registered { epoch: web.epoch, largest, containers, cursor }))
}

/// `POST /v1/apps/{app}/sync`.
pub(crate) async fn sync(
    State(web): State<Web>,
    Id(app): Id<AppId>,
    Body(mut body): Body<MasterSync>,
) -> Result<Json<MasterSyncReply>, Failure> {
    let job = body.job.take().map(|patch| (app.clone(), patch));
    let Answer::Synced { verdicts, stop } = web.handle.call_with(incoming::sync(&app, body)?, job).await? else {
        return Err(unexpected());
    };
    let verdicts = verdicts.into_iter().map(|(request, verdict)| outgoing::ask_answer(request, verdict)).collect();
    Ok(Json(MasterSyncReply { verdicts, stop }))
}

/// `POST /v1/apps/{app}/finish`.
pub(crate) async fn finish(
    State(web): State<Web>,
    Id(app): Id<AppId>,
    Body(mut body): Body<FinishApp>,
) -> Result<Json<AppView>, Failure> {
    let job = body.job.take().map(|patch| (app.clone(), patch));
    web.handle.call_with(incoming::finish(&app, body)?, job).await?;
    Ok(Json(apps::without_job(&web, &app).await?))
}

/// Body of `POST /v1/apps/{app}/requests`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneAsk {
    /// The request.
    ask: Ask,
}

/// `POST /v1/apps/{app}/requests`.
pub(crate) async fn ask(
    State(web): State<Web>,
    Id(app): Id<AppId>,
    Body(body): Body<OneAsk>,
) -> Result<Json<AskAnswer>, Failure> {
    let ask = Box::new(incoming::ask(body.ask)?);
    let request = ask.request.clone();
    let Answer::Asked { verdict } = web.handle.call(Call::Ask { app, ask, how: How::Really }).await? else {
        return Err(unexpected());
    };
    Ok(Json(outgoing::ask_answer(request, verdict)))
}

/// `DELETE /v1/apps/{app}/requests/{request}`.
pub(crate) async fn withdraw(State(web): State<Web>, Ids(app, request): Ids<AppId, RequestId>) -> Result<Json<AppView>, Failure> {
    web.handle.call(Call::Withdraw { app: app.clone(), request }).await?;
    Ok(Json(apps::without_job(&web, &app).await?))
}

/// Parameters of the updates.
#[derive(Debug, Deserialize)]
pub(crate) struct From {
    epoch: Epoch,
    #[serde(default)]
    cursor: u64,
}

/// `GET /v1/apps/{app}/updates`.
pub(crate) async fn updates(State(web): State<Web>, Id(app): Id<AppId>, Params(from): Params<From>) -> Result<Response, Failure> {
    let From { epoch, cursor } = from;
    let mailbox = web.handle.ask(|reply| Input::WatchApp { app, epoch, cursor, reply }).await??;
    Ok(stream::updates(cursor, mailbox))
}

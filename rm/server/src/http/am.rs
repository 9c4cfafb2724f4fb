//! Endpoints for application masters: register, sync, request containers, receive updates, finish.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use headroom_rm_core::ClusterCall;
use headroom_rm_store::JournalGroup;
use headroom_types::{AppId, AttemptId, Epoch, RequestId};
use headroom_wire::v1::application_master::{
    AppendToJournal, ApplicationUpdate, FinishApplicationRequest, JournalAppended,
    MasterRegistered, MasterSync, MasterSyncReply, PlacementRequest, PlacementResponse,
    RegisterMaster, StoredJournal,
};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::describe::{Bad, Conflict, Missing, Never, Stale, StaleOrTooOld, TooLarge, TooMany};
use super::error::HandlerResult;
use super::parse::{DryRunQuery, JsonBody, PathId, PathIdPair, QueryParams};
use super::stream;
use super::web::WebHandlerState;
use crate::call_reply::{Asked, Done, Master, Synced};
use crate::input::{JournalCall, LoopInput};
use crate::{from_wire, to_wire};

/// Registers a master.
#[utoipa::path(post, path = "/v1/apps/{app}/register", tag = "application masters", params(("app" = AppId, Path)),
    request_body = RegisterMaster, responses((status = 200, body = MasterRegistered), Bad, Missing, Conflict, Stale))]
pub(crate) async fn register(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    JsonBody(mut body): JsonBody<RegisterMaster>,
) -> HandlerResult<Json<MasterRegistered>> {
    let token = checked_token(body.submission_token.take())?;
    let run = body.attempt.attempt;
    let (call, named) = from_wire::register_master(&app, body)?;
    let Master {
        largest,
        containers,
        cursor,
    } = web.reader.handle.register_master(call).await?;
    web.masters
        .registered(&app, run, token, &web.reader.handle.last());
    let (containers, confirmed) = to_wire::live_containers(containers, &named);
    let user = web.reader.app(&app).await?.user;
    let known = web
        .reader
        .shared
        .families
        .get(&user, app.name())
        .map(|family| Box::new(Arc::unwrap_or_clone(family)));
    let traces = web.traces.as_deref().map(str::to_owned);
    Ok(Json(MasterRegistered {
        epoch: web.reader.epoch,
        largest,
        containers,
        confirmed,
        cursor,
        known,
        traces,
    }))
}

/// Maximum length of the secret of a submission channel. Bytes.
const MAX_TOKEN_BYTES: usize = 256;

/// Checks the secret of a submission channel.
fn checked_token(token: Option<String>) -> ProblemResult<Option<String>> {
    let is_valid = |token: &String| {
        (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic())
    };
    if token.as_ref().is_none_or(is_valid) {
        return Ok(token);
    }
    Err(ProblemDetails::bad_request(format!(
        "submission_token must have 1 to {MAX_TOKEN_BYTES} plain characters"
    )))
}

/// Maximum size of the records in one append to a journal. Bytes.
const MAX_JOURNAL_GROUP: usize = 1 << 20;

/// Query parameters of a journal.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JournalQuery {
    /// The attempt that continues the journal; the current one.
    attempt: u32,
}

/// Reads the journal of the earlier attempts of an application.
#[utoipa::path(get, path = "/v1/apps/{app}/journal", tag = "application masters", params(("app" = AppId, Path), JournalQuery),
    responses((status = 200, body = StoredJournal), Bad, Missing, Conflict))]
pub(crate) async fn journal(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(JournalQuery { attempt }): QueryParams<JournalQuery>,
) -> HandlerResult<Json<StoredJournal>> {
    let attempt = AttemptId {
        app: app.clone(),
        attempt,
    };
    let call = |reply| LoopInput::Journal(JournalCall::TakeOver { attempt, reply });
    let extent = web.reader.handle.ask(call).await??;
    // From now on, no attempt changes the part that is read.
    let documents = web.reader.documents.clone();
    let read = tokio::task::spawn_blocking(move || documents.master_journal(&app)).await;
    let records = match read {
        Ok(Ok(records)) => String::from_utf8(records).map_err(|e| e.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let records = records.map_err(|error| {
        tracing::error!(error, "cannot read the journal of a master");
        ProblemDetails::internal(
            "the journal cannot be read; the log of the resource manager has the reason",
        )
    })?;
    // The end of the application removes the journal, possibly while it is read.
    if u64::try_from(records.len()).ok() != Some(extent.length) {
        let changed = "the journal has changed while it was read";
        return Err(ProblemDetails::unavailable(changed).into());
    }
    Ok(Json(StoredJournal {
        records,
        moved: extent.moved,
        limit: extent.limit,
    }))
}

/// Appends a group of records to the journal of an application.
///
/// The response follows when the group is durable. A repeated call changes nothing.
#[utoipa::path(post, path = "/v1/apps/{app}/journal", tag = "application masters", params(("app" = AppId, Path)),
    request_body = AppendToJournal, responses((status = 200, body = JournalAppended), Bad, Missing, Conflict, TooLarge))]
pub(crate) async fn append_to_journal(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    JsonBody(body): JsonBody<AppendToJournal>,
) -> HandlerResult<Json<JournalAppended>> {
    let records = from_wire::journal_records(&app, &body, MAX_JOURNAL_GROUP)?;
    let (attempt, offset) = (body.attempt.attempt, body.offset);
    let group = if body.moved {
        JournalGroup::moved(attempt, offset)
    } else {
        JournalGroup::new(attempt, offset, records)
    };
    let records = body.records.into_bytes();
    let call = |reply| {
        LoopInput::Journal(JournalCall::Append {
            app,
            group,
            records,
            reply,
        })
    };
    web.reader.handle.ask(call).await??;
    Ok(Json(JournalAppended { end: group.end }))
}

/// Heartbeat of a master: requests, releases and acknowledgement in one call.
#[utoipa::path(post, path = "/v1/apps/{app}/sync", tag = "application masters", params(("app" = AppId, Path)),
    request_body = MasterSync, responses((status = 200, body = MasterSyncReply), Bad, Missing, Conflict, Stale, TooLarge, TooMany))]
pub(crate) async fn sync(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    JsonBody(mut body): JsonBody<MasterSync>,
) -> HandlerResult<Json<MasterSyncReply>> {
    let job = body.job.take().map(|patch| (app.clone(), patch));
    let Synced { verdicts, stop } = web
        .reader
        .handle
        .call_with(from_wire::sync(&app, body)?, job)
        .await?;
    let verdicts = verdicts
        .into_iter()
        .map(|(request, verdict)| to_wire::ask_answer(request, verdict))
        .collect();
    Ok(Json(MasterSyncReply { verdicts, stop }))
}

/// Finishes an application.
#[utoipa::path(post, path = "/v1/apps/{app}/finish", tag = "application masters", params(("app" = AppId, Path)),
    request_body = FinishApplicationRequest, responses((status = 200, body = AppView), Bad, Missing, Conflict, Stale, TooLarge))]
pub(crate) async fn finish(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    JsonBody(body): JsonBody<FinishApplicationRequest>,
) -> HandlerResult<Json<AppView>> {
    let (call, rows) = from_wire::finish(&app, body)?;
    let job = rows.map(|patch| (app.clone(), patch));
    web.reader.handle.call_with::<Done>(call, job).await?;
    Ok(Json(web.reader.app(&app).await?))
}

/// Body of `POST /v1/apps/{app}/requests`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementRequestBody {
    /// The request.
    ask: PlacementRequest,
}

/// Adds one container request.
///
/// The response reports at once whether it fits, waits or is infeasible.
#[utoipa::path(post, path = "/v1/apps/{app}/requests", tag = "application masters", params(("app" = AppId, Path), DryRunQuery),
    request_body = PlacementRequestBody, responses((status = 200, body = PlacementResponse), Bad, Missing, Conflict, TooLarge, Never, TooMany))]
pub(crate) async fn ask(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(change): QueryParams<DryRunQuery>,
    JsonBody(body): JsonBody<PlacementRequestBody>,
) -> HandlerResult<Json<PlacementResponse>> {
    let ask = Box::new(from_wire::ask(body.ask)?);
    let request = ask.request.clone();
    let Asked { verdict } = web
        .call(ClusterCall::Ask {
            app,
            ask,
            how: change.mode(),
        })
        .await?;
    Ok(Json(to_wire::ask_answer(request, verdict)))
}

/// Withdraws a container request.
#[utoipa::path(delete, path = "/v1/apps/{app}/requests/{request}", tag = "application masters",
    params(("app" = AppId, Path), ("request" = RequestId, Path)),
    responses((status = 200, body = AppView), Bad, Missing, Conflict, TooMany))]
pub(crate) async fn withdraw(
    State(web): State<WebHandlerState>,
    PathIdPair(app, request): PathIdPair<AppId, RequestId>,
) -> HandlerResult<Json<AppView>> {
    web.call::<Done>(ClusterCall::Withdraw {
        app: app.clone(),
        request,
    })
    .await?;
    Ok(Json(web.reader.app(&app).await?))
}

/// Query parameters of the updates.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UpdatesQuery {
    /// Epoch of the resource manager with which the master registered.
    epoch: Epoch,
    /// Return only updates after this cursor; the header `Last-Event-ID` overrides it.
    #[serde(default)]
    cursor: u64,
}

/// Streams the updates of an application's containers.
///
/// Each update is one line of JSON or one server-sent event. The stream lasts as long as the caller
/// reads it.
#[utoipa::path(get, path = "/v1/apps/{app}/updates", tag = "application masters", params(
    ("app" = AppId, Path), UpdatesQuery,
    ("Accept" = Option<String>, Header, description = "`text/event-stream` for server-sent events."),
    ("Last-Event-ID" = Option<u64>, Header, description = "The cursor of the last update that the caller received."),
), responses(
    (status = 200, content((ApplicationUpdate = "application/x-ndjson"), (ApplicationUpdate = "text/event-stream"))),
    Bad, Missing, Conflict, StaleOrTooOld,
))]
pub(crate) async fn updates(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(from): QueryParams<UpdatesQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let (epoch, cursor) = (
        from.epoch,
        stream::last_seen(&headers).unwrap_or(from.cursor),
    );
    let mailbox = web
        .reader
        .handle
        .ask(|reply| LoopInput::WatchApp {
            app,
            epoch,
            cursor,
            reply,
        })
        .await??;
    Ok(stream::updates(
        stream::StreamEncoding::wanted(&headers),
        cursor,
        mailbox,
    ))
}

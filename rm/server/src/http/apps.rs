//! `/v1/apps`: submit, list, show, change and kill applications, and explain why their requests
//! wait.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use headroom_identity::Principal;
use headroom_rm_core::{ApplicationLifetime, ClusterCall};
use headroom_types::{AppId, AttemptId, JobOrder, QueuePath, ScaleOrder, UnixMillis};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{
    AppState, AppView, ApplicationMaster, ChangeApplicationRequest, KillApplicationRequest,
    PendingExplanation, ScaleExecutorsRequest, SubmissionResult, SubmitApplicationRequest,
};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::job::JobView;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{self, Audited, audited, single};
use super::describe::{Bad, Conflict, Missing, Never, TooLarge, TooMany};
use super::error::HandlerResult;
use super::parse::{DryRunQuery, EmptyQuery, JsonBody, PathId, QueryParams, if_match};
use super::rows::{self, TaskRowSelection};
use super::visibility::AppVisibility;
use super::wait::{self, LongPollParams, WaitDuration};
use super::web::WebHandlerState;
use super::{guard, idempotency, pages, uploads};
use crate::access::{self, AccessChange};
use crate::call_reply::{Done, Submitted};
use crate::from_wire::{self, cut};
use crate::input::ClusterQuery;
use crate::view::ViewSection;

/// Limit on users and groups in each access list of an application.
const MOST_NAMED: usize = 32;
/// Limit on executors of one set, as in job files.
const MOST_EXECUTORS: u32 = 10_000;

/// Submits an application.
///
/// The response arrives when the submission is durable.
#[utoipa::path(post, path = "/v1/apps", tag = "applications", request_body = SubmitApplicationRequest,
    responses((status = 200, body = SubmissionResult), Bad, Missing, Conflict, TooLarge, Never, TooMany))]
pub(crate) async fn submit(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    principal: Option<Extension<Principal>>,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody<SubmitApplicationRequest>,
) -> HandlerResult<Json<SubmissionResult>> {
    if let Some(Extension(principal)) = principal {
        body.user = guard::submits(&principal, body.user)?;
        guard::queue(&principal, body.queue.as_ref())?;
    }
    // A key in the header is equal to a key in the body. The journal keeps it, so that it is valid
    // across a restart.
    checked_access(&body.access)?;
    let access = std::mem::take(&mut body.access);
    let key = headers.get(idempotency::KEY).and_then(|k| k.to_str().ok());
    body.idempotency_key = body.idempotency_key.or(key.map(str::to_owned));
    if let ApplicationMaster::Managed {
        launch,
        first_request,
        ..
    } = &body.master
    {
        uploads::check(&web, launch).await?;
        if let Some(request) = first_request {
            uploads::check(&web, &request.launch).await?;
        }
    }
    let call = ClusterCall::Submit(from_wire::submit(body)?);
    let Submitted { app, attempt } = web.call(call).await?;
    // A caller without a response sends the call again with the same key; the access lists are then
    // stored again.
    if !access.is_empty() {
        let change = AccessChange::Share {
            app: app.clone(),
            access,
        };
        web.reader.handle.change_access(change).await?;
    }
    let attempt = AttemptId {
        app: app.clone(),
        attempt,
    };
    Ok(Json(SubmissionResult {
        app,
        attempt,
        epoch: web.reader.epoch,
    }))
}

/// Selection of applications.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppListQuery {
    /// Only applications in this state.
    state: Option<AppState>,
    /// Only applications in this queue or in a queue below it.
    queue: Option<QueuePath>,
    /// Only applications of this user.
    user: Option<String>,
    /// Only applications whose name starts with this text.
    name: Option<String>,
    /// Maximum number of rows, 1 to 1000; without it, all rows.
    limit: Option<usize>,
    /// Only applications after this one; the header Link has the address of the next page.
    after: Option<AppId>,
    /// Respond only when something has changed since `index`, or after this time, such as `30s`; at
    /// most `60s`.
    #[param(value_type = Option<String>)]
    wait: Option<WaitDuration>,
    /// X-Headroom-Index of the previous response.
    index: Option<u64>,
}

/// Lists the kept applications in order of submission.
///
/// Tasks and application attempts are left out.
#[utoipa::path(get, path = "/v1/apps", tag = "applications", params(AppListQuery), responses(
    (status = 200, body = Vec<AppView>, headers(
        ("Link", description = "The address of the next page, if there is one."),
        ("X-Headroom-Index", description = "The index of the latest change."),
    )), Bad, TooMany,
))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(asked): QueryParams<AppListQuery>,
    uri: Uri,
) -> HandlerResult<Response> {
    let sight = AppVisibility::of(&web.reader, &principal);
    let long_poll = LongPollParams {
        wait: asked.wait,
        index: asked.index,
    };
    let view = wait::view(&web, ViewSection::Apps, long_poll).await?;
    let wanted = |a: &&AppView| {
        asked.state.is_none_or(|s| s == a.state)
            && asked.queue.as_ref().is_none_or(|q| a.queue.is_within(q))
            && asked.user.as_ref().is_none_or(|u| *u == a.user)
            && asked
                .name
                .as_ref()
                .is_none_or(|n| a.id.name().as_str().starts_with(n))
            && sight.as_ref().is_none_or(|sight| sight.sees(a))
    };
    let all = view.apps.values().filter(wanted);
    let (rows, next) = pages::piece(
        all,
        |a| &a.id,
        asked.after.as_ref(),
        pages::limit(asked.limit)?,
    );
    answer::list(&uri, view.index(ViewSection::Apps), &rows, next)
}

/// Shows one application with its tasks and application attempts.
#[utoipa::path(get, path = "/v1/apps/{app}", tag = "applications", params(("app" = AppId, Path), rows::AppDetailQuery), responses(
    (status = 200, body = AppView, headers(
        ("ETag", description = "The version of the fields that PATCH can change, and a hash of the response."),
        ("Link", description = "The address of the next page of tasks, if there is one."),
        ("X-Headroom-Index", description = "The index of the latest change of an application, or of the tasks of this one."),
    )),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, Missing, TooMany,
))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(asked): QueryParams<rows::AppDetailQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let long_poll = asked.long_poll();
    // The index is read first, so that the next wait sees every later change.
    let index = wait::app_index(&web, &app, long_poll).await?;
    let mut found = web.reader.app(&app).await?;
    found.attempts = web
        .reader
        .query(|reply| ClusterQuery::Attempts(app.clone(), reply))
        .await?;
    let (job, next) = job_with(&web, &app, asked.tasks).await;
    found.job = job;
    let mut answer = single(&headers, Some(&version(&found)), index, &found, &found)?;
    if let Some(next) = next {
        answer::link(&mut answer, &format!("/v1/apps/{app}?tasks={next}"));
    }
    Ok(answer)
}

/// The selected task rows, and the number of the next page.
async fn job_with(
    web: &WebHandlerState,
    app: &AppId,
    tasks: TaskRowSelection,
) -> (Option<JobView>, Option<usize>) {
    if let Some(snapshot) = web.reader.shared.jobs.snapshot(app) {
        let rows = tasks
            .of(snapshot.rows(), |row| row)
            .into_iter()
            .cloned()
            .collect();
        return (
            Some(JobView {
                totals: snapshot.totals().clone(),
                tasks: rows,
            }),
            tasks.next(snapshot.len()),
        );
    }
    let Some(JobView { totals, tasks: all }) = web.reader.job(app).await else {
        return (None, None);
    };
    let next = tasks.next(all.len());
    (
        Some(JobView {
            totals,
            tasks: tasks.of(all.into_iter(), |row| row),
        }),
        next,
    )
}

fn version(app: &AppView) -> String {
    version_of(&app.queue, app.priority, app.until)
}

/// Version of all fields of an application that can be changed.
pub(crate) fn version_of(queue: &QueuePath, priority: i32, until: Option<UnixMillis>) -> String {
    format!(
        "{:08x}",
        answer::digest(format!("{queue} {priority} {until:?}").as_bytes()) >> 32
    )
}

/// Changes the queue, priority or lifetime of an application.
#[utoipa::path(patch, path = "/v1/apps/{app}", tag = "applications", params(
    ("app" = AppId, Path),
    ("If-Match" = Option<String>, Header, description = "ETag of the expected version; without it, any version matches."),
), request_body = ChangeApplicationRequest, responses((status = 200, body = AppView), Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn change(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    principal: Option<Extension<Principal>>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ChangeApplicationRequest>,
) -> HandlerResult<Audited<Json<AppView>>> {
    let matched = if_match(&headers)?;
    if let (Some(Extension(principal)), Some(queue)) = (&principal, &body.queue) {
        guard::queue(principal, Some(queue))?;
    }
    let lifetime = body.lifetime_ms.map(|ms| match ms {
        0 => ApplicationLifetime::Unbounded,
        ms => ApplicationLifetime::AtMost(Duration::from_millis(ms)),
    });
    // The lock keeps other changes out between the comparison and the change.
    let _turn = web.changes.lock().await;
    let before = web.reader.app(&app).await?;
    matched.check(&format!("application {app}"), &version(&before))?;
    web.call::<Done>(ClusterCall::ChangeApp {
        app: app.clone(),
        queue: body.queue,
        priority: body.priority,
        lifetime,
    })
    .await?;
    let now = web.reader.app(&app).await?;
    Ok(audited(settings(&before), settings(&now), Json(now)))
}

/// Fields of an application that can be changed, for the audit log.
fn settings(app: &AppView) -> String {
    let until = app
        .until
        .map_or_else(|| "none".to_owned(), |until| until.0.to_string());
    format!(
        "queue {}, priority {}, until {until}",
        app.queue, app.priority
    )
}

/// Kills an application and all its containers.
#[utoipa::path(post, path = "/v1/apps/{app}/kill", tag = "applications", params(("app" = AppId, Path)), request_body = KillApplicationRequest,
    responses((status = 200, body = AppView), Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn kill(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<KillApplicationRequest>,
) -> HandlerResult<Json<AppView>> {
    let reason = body.reason.map(|r| cut(r, 4096));
    web.call::<Done>(ClusterCall::Kill {
        app: app.clone(),
        reason,
    })
    .await?;
    Ok(Json(web.reader.app(&app).await?))
}

/// Sets the number of executors in a set of an application.
///
/// The master decides, and reports the result in an event `JobScaled`. For a larger number it
/// requests executors when there is work for them. For a smaller number, the newest executors start
/// no new tasks and end after their running tasks.
#[utoipa::path(post, path = "/v1/apps/{app}/scale", tag = "applications", params(("app" = AppId, Path)), request_body = ScaleExecutorsRequest,
    responses((status = 202, description = "The command is sent to the master.", body = AppView),
        Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn scale(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<ScaleExecutorsRequest>,
) -> HandlerResult<(StatusCode, Json<AppView>)> {
    let ScaleExecutorsRequest {
        executors,
        count,
        reason,
    } = body;
    if !(1..=MOST_EXECUTORS).contains(&count) {
        return Err(ProblemDetails::bad_request(format!(
            "count is {count}; it must be from 1 to {MOST_EXECUTORS}"
        ))
        .into());
    }
    let reason = reason
        .map(|reason| cut(reason, 1024))
        .filter(|reason| !reason.trim().is_empty());
    let order = JobOrder::Scale(ScaleOrder {
        executors,
        count,
        reason,
    });
    web.call::<Done>(ClusterCall::Order {
        app: app.clone(),
        order,
    })
    .await?;
    Ok((StatusCode::ACCEPTED, Json(web.reader.app(&app).await?)))
}

/// Forgets an application that has ended, with its tasks and containers.
///
/// The usage history, its events and the audit log stay. The response contains the application as
/// it was.
#[utoipa::path(delete, path = "/v1/apps/{app}", tag = "applications", params(("app" = AppId, Path), DryRunQuery), responses(
    (status = 200, description = "The application is deleted.", body = AppView),
    (status = 202, description = "With dry_run: the application can be deleted.", body = AppView),
    Bad, Missing, Conflict, TooMany,
))]
pub(crate) async fn purge(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(only): QueryParams<DryRunQuery>,
) -> HandlerResult<Audited<Response>> {
    let was = web.reader.app(&app).await?;
    let how = only.mode();
    web.call::<Done>(ClusterCall::Purge { app, how }).await?;
    Ok(audited(
        format!("{}, of {}", was.state.as_str(), was.user),
        "",
        (only.status(), Json(was)).into_response(),
    ))
}

/// Shows the users and groups that may view or change an application.
#[utoipa::path(get, path = "/v1/apps/{app}/access", tag = "applications", params(("app" = AppId, Path)),
    responses((status = 200, body = AppAccess), Bad, Missing, TooMany))]
pub(crate) async fn shared(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<AppAccess>> {
    web.reader.app(&app).await?;
    Ok(Json(web.reader.shared.access.borrow().shared(&app)))
}

/// Checks that the lists contain only users and groups, and not too many of them.
fn checked_access(access: &AppAccess) -> ProblemResult<()> {
    for list in [&access.view, &access.change] {
        if list.len() > MOST_NAMED {
            let problem = ProblemDetails::too_large(format!(
                "{} users and groups are named; at most {MOST_NAMED} are allowed",
                list.len()
            ));
            return Err(problem.hint("name a group of the manager's host: @etl"));
        }
        list.iter()
            .try_for_each(|subject| access::subject(subject).map(|_| ()))?;
    }
    Ok(())
}

/// Replaces the users and groups that may view or change an application.
///
/// The lists do not restrict users whose rights already include applications of other users.
#[utoipa::path(put, path = "/v1/apps/{app}/access", tag = "applications", params(("app" = AppId, Path)), request_body = AppAccess,
    responses((status = 200, body = AppAccess), Bad, Missing, TooLarge, TooMany))]
pub(crate) async fn share(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<AppAccess>,
) -> HandlerResult<Audited<Json<AppAccess>>> {
    web.reader.app(&app).await?;
    checked_access(&body)?;
    let words = |access: &AppAccess| {
        format!(
            "view {}; change {}",
            access.view.join(","),
            access.change.join(",")
        )
    };
    let before = words(&web.reader.shared.access.borrow().shared(&app));
    let change = AccessChange::Share {
        app,
        access: body.clone(),
    };
    web.reader.handle.change_access(change).await?;
    Ok(audited(before, words(&body), Json(body)))
}

/// Explains why requests of an application wait: one row for each waiting request.
#[utoipa::path(get, path = "/v1/apps/{app}/why", tag = "applications", params(("app" = AppId, Path)),
    responses((status = 200, body = Vec<PendingExplanation>), Bad, Missing))]
pub(crate) async fn why(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<Vec<PendingExplanation>>> {
    Ok(Json(web.reader.query_app(&app, ClusterQuery::Why).await?))
}

/// Lists the container requests of an application, as its master sent them.
#[utoipa::path(get, path = "/v1/apps/{app}/requests", tag = "applications", params(("app" = AppId, Path)),
    responses((status = 200, body = Vec<PlacementRequest>), Bad, Missing))]
pub(crate) async fn requests(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<Vec<PlacementRequest>>> {
    Ok(Json(
        web.reader.query_app(&app, ClusterQuery::Requests).await?,
    ))
}

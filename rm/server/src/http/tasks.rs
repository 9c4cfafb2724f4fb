//! `/v1/apps/{app}/tasks/{stage}/{index}`: kill, retry, resize or reprioritize one task of a
//! running job.
//!
//! The resource manager passes the order on to the master, which decides; the result is visible in
//! the task's row. A restart of the resource manager loses an order that the master had not
//! acknowledged. The order can be sent again: a repeated order changes nothing.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use headroom_rm_core::{CallRefusal, ClusterCall};
use headroom_types::{AppId, Bytes, JobOrder, Name, TaskId, TaskOrder, TaskOrderAction};
use headroom_wire::v1::apps::{PrioritizeTask, ResizeTaskRequest, TaskOrderRequest};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::job::{TaskRow, TaskState};

use super::describe::{Bad, Conflict, Missing, TooLarge, TooMany};
use super::error::{HandlerResult, ProblemResponse};
use super::parse::{EmptyQuery, JsonBody, QueryParams, TaskPath};
use super::web::WebHandlerState;
use crate::call_reply::Done;
use crate::from_wire::cut;

/// Minimum memory of a task. Bytes.
const LEAST: Bytes = Bytes::from_mib(1);

/// Valid task priorities.
const PRIORITIES: std::ops::RangeInclusive<i32> = -1000..=1000;

type TaskOrderResult = HandlerResult<(StatusCode, Json<TaskRow>)>;

/// Shows one task with all its attempts.
#[utoipa::path(get, path = "/v1/apps/{app}/tasks/{stage}/{index}", tag = "tasks",
    params(("app" = AppId, Path), ("stage" = Name, Path), ("index" = u32, Path)),
    responses((status = 200, body = TaskRow), Bad, Missing, TooMany))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    TaskPath(app, task): TaskPath,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<TaskRow>> {
    find(&web, &app, &task).await.map(Json)
}

/// Kills a task for good.
///
/// The other tasks of the job continue, and the job fails when they have ended. The response
/// contains the row before the change.
#[utoipa::path(post, path = "/v1/apps/{app}/tasks/{stage}/{index}/kill", tag = "tasks",
    params(("app" = AppId, Path), ("stage" = Name, Path), ("index" = u32, Path)), request_body = TaskOrderRequest,
    responses((status = 202, description = "The command is sent to the master.", body = TaskRow),
        Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn kill(
    State(web): State<WebHandlerState>,
    TaskPath(app, task): TaskPath,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<TaskOrderRequest>,
) -> TaskOrderResult {
    order(&web, app, task, body.reason, |_| TaskOrderAction::Cancel).await
}

/// Ends the running attempt and starts another one, which is charged to no budget.
///
/// The response contains the row before the change.
#[utoipa::path(post, path = "/v1/apps/{app}/tasks/{stage}/{index}/retry", tag = "tasks",
    params(("app" = AppId, Path), ("stage" = Name, Path), ("index" = u32, Path)), request_body = TaskOrderRequest,
    responses((status = 202, description = "The command is sent to the master.", body = TaskRow),
        Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn retry(
    State(web): State<WebHandlerState>,
    TaskPath(app, task): TaskPath,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<TaskOrderRequest>,
) -> TaskOrderResult {
    // The attempt that the row shows: a repeated order does not end the next attempt.
    let attempt = |row: &TaskRow| u32::try_from(row.attempts.len()).unwrap_or(u32::MAX);
    order(&web, app, task, body.reason, |row| TaskOrderAction::Retry {
        attempt: attempt(row),
    })
    .await
}

/// Sets the size of a waiting task for its next attempt, up to the largest rung.
///
/// The response contains the row before the change.
#[utoipa::path(post, path = "/v1/apps/{app}/tasks/{stage}/{index}/resize", tag = "tasks",
    params(("app" = AppId, Path), ("stage" = Name, Path), ("index" = u32, Path)), request_body = ResizeTaskRequest,
    responses((status = 202, description = "The command is sent to the master.", body = TaskRow),
        Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn resize(
    State(web): State<WebHandlerState>,
    TaskPath(app, task): TaskPath,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<ResizeTaskRequest>,
) -> TaskOrderResult {
    if body.memory < LEAST {
        let problem = ProblemDetails::bad_request(format!(
            "memory: {} is too small for a process",
            body.memory
        ));
        return Err(problem.hint(format!("request {LEAST} or more")).into());
    }
    order(&web, app, task, body.reason, |_| TaskOrderAction::Resize {
        memory: body.memory,
    })
    .await
}

/// Sets the priority of a task within its job: tasks with a higher priority start first.
///
/// The response contains the row before the change.
#[utoipa::path(post, path = "/v1/apps/{app}/tasks/{stage}/{index}/priority", tag = "tasks",
    params(("app" = AppId, Path), ("stage" = Name, Path), ("index" = u32, Path)), request_body = PrioritizeTask,
    responses((status = 202, description = "The command is sent to the master.", body = TaskRow),
        Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn rank(
    State(web): State<WebHandlerState>,
    TaskPath(app, task): TaskPath,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<PrioritizeTask>,
) -> TaskOrderResult {
    if !PRIORITIES.contains(&body.priority) {
        let problem = ProblemDetails::bad_request(format!(
            "priority: {} is not between -1000 and 1000",
            body.priority
        ));
        return Err(problem
            .hint("0 is the default, and higher priorities start first")
            .into());
    }
    order(&web, app, task, body.reason, |_| TaskOrderAction::Rank {
        priority: body.priority,
    })
    .await
}

/// Sends an order about a task in its current state to the master.
async fn order(
    web: &WebHandlerState,
    app: AppId,
    task: TaskId,
    reason: Option<String>,
    action: impl FnOnce(&TaskRow) -> TaskOrderAction,
) -> TaskOrderResult {
    let row = find(web, &app, &task).await?;
    let action = action(&row);
    if let Some(problem) = not_now(&app, &row, action) {
        return Err(problem.into());
    }
    let reason = reason
        .map(|reason| cut(reason, 1024))
        .filter(|reason| !reason.trim().is_empty());
    web.call::<Done>(ClusterCall::Order {
        app,
        order: JobOrder::Task(TaskOrder {
            task,
            action,
            reason,
        }),
    })
    .await?;
    Ok((StatusCode::ACCEPTED, Json(row)))
}

async fn find(web: &WebHandlerState, app: &AppId, task: &TaskId) -> HandlerResult<TaskRow> {
    let live = web
        .reader
        .shared
        .jobs
        .snapshot(app)
        .and_then(|job| job.rows().find(|row| row.task == *task).cloned());
    if let Some(row) = live {
        return Ok(row);
    }
    // The job may have ended, with its rows in the store, or the application may not exist.
    web.reader.app(app).await?;
    let kept = web
        .reader
        .job(app)
        .await
        .and_then(|job| job.tasks.into_iter().find(|row| row.task == *task));
    kept.ok_or_else(|| {
        outgoing(&CallRefusal::NoSuchTask {
            app: app.clone(),
            task: task.clone(),
        })
    })
}

fn outgoing(refusal: &CallRefusal) -> ProblemResponse {
    crate::to_wire::problem(refusal).into()
}

/// Problem for an order that the state of the task does not allow.
fn not_now(app: &AppId, row: &TaskRow, action: TaskOrderAction) -> Option<ProblemDetails> {
    let says = |why: &str, fix: String| {
        Some(ProblemDetails::conflict(format!("{app}/{} {why}", row.task)).hint(fix))
    };
    match (row.state, action) {
        (TaskState::Done, _) => says("is done", format!("rmctl task show {app}/{}", row.task)),
        (TaskState::Failed, _) => {
            says("was given up", format!("rmctl diagnose {app}/{}", row.task))
        }
        (TaskState::Blocked | TaskState::Pending, TaskOrderAction::Retry { .. }) => {
            says("does not run yet", format!("rmctl why {app}"))
        }
        (TaskState::Running, TaskOrderAction::Resize { .. }) => says(
            "runs, so its size cannot change",
            format!(
                "rmctl task retry {app}/{0}, or rmctl container resize",
                row.task
            ),
        ),
        (
            TaskState::Blocked | TaskState::Pending | TaskState::Running,
            TaskOrderAction::Cancel | TaskOrderAction::Rank { .. },
        )
        | (TaskState::Running, TaskOrderAction::Retry { .. })
        | (TaskState::Blocked | TaskState::Pending, TaskOrderAction::Resize { .. }) => None,
    }
}

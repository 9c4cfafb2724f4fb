//! `/v1/containers/{id}/signal`, `files` and `exec`: container access through the node.
//!
//! The resource manager records the caller, in the audit log and as an event. The node carries out
//! the call, and authenticates the resource manager by the key that it sent at its registration. A
//! refusal of the node is passed on unchanged.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use headroom_types::{ContainerId, NodeId, Reason};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::container_access::{
    ContainerFileEntry, ExecContainer, ExecOutputLine, NODE_KEY_HEADER, SignalContainer,
    SignalDelivered,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::audited;
use super::containers::{address, find, unanswered};
use super::describe::{Bad, Beyond, Conflict, Missing, TooLarge, TooMany};
use super::error::{HandlerResult, ProblemResponse};
use super::limits;
use super::parse::{EmptyQuery, JsonBody, PathId, QueryParams};
use super::passing::pass_on;
use super::web::WebHandlerState;
use crate::eventlog;
use crate::from_wire::cut;

/// Maximum length of a reason that is kept. Bytes.
const LONGEST_REASON: usize = 1024;
/// Maximum length of a command in events and in the audit log. Bytes.
const LONGEST_COMMAND: usize = 200;

/// Sends a signal to the program of a running container.
///
/// SIGKILL ends the container like a stop without a grace period.
#[utoipa::path(post, path = "/v1/containers/{id}/signal", tag = "containers", params(("id" = ContainerId, Path)),
    request_body = SignalContainer, responses((status = 200, body = SignalDelivered), Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn signal(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(mut body): JsonBody<SignalContainer>,
) -> HandlerResult<Response> {
    let view = running(&web, &id).await?;
    body.reason = body
        .reason
        .map(|reason| cut(reason, LONGEST_REASON))
        .filter(|reason| !reason.trim().is_empty());
    let node = NodeAccess::of(&web, &view.node).await?;
    let url = node.url(&id, "signal");
    let answer = node.send(web.nodes.usual().post(url).json(&body)).await?;
    let done: SignalDelivered = success(answer)
        .await?
        .json()
        .await
        .map_err(|error| node.unanswered(&error))?;
    let to = if body.all {
        format!("all {} of its processes", done.processes)
    } else {
        "its program".to_owned()
    };
    let why = body
        .reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    record_event(
        &web,
        &view,
        Reason::ContainerSignalled,
        format!("{} to {to}{why}", done.signal),
    );
    Ok(audited(view.state, format!("{} to {to}", done.signal), Json(done)).into_response())
}

/// Query parameters with a path in a container.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilePathQuery {
    /// Path below the container's directory, such as `work/part-0`; without it, the directory
    /// itself.
    #[serde(default)]
    path: String,
}

impl FilePathQuery {
    /// URL on the node with this path as a parameter, percent-encoded.
    fn below(&self, address: &str) -> HandlerResult<reqwest::Url> {
        let odd = |_| {
            ProblemResponse(ProblemDetails::unavailable(format!(
                "the node registered an invalid address: {address}"
            )))
        };
        reqwest::Url::parse_with_params(address, [("path", &self.path)]).map_err(odd)
    }
}

/// Lists a directory of a container: its `work`, `tmp` and `tasks`, and its two logs.
///
/// The entries are in order of their names, at most 10000.
#[utoipa::path(get, path = "/v1/containers/{id}/files", tag = "containers", params(("id" = ContainerId, Path), FilePathQuery),
    responses((status = 200, body = Vec<ContainerFileEntry>), Bad, Missing, TooLarge, TooMany))]
pub(crate) async fn files(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(at): QueryParams<FilePathQuery>,
) -> HandlerResult<Response> {
    let node = find(&web, &id).await?.node;
    let node = NodeAccess::of(&web, &node).await?;
    let url = at.below(&node.url(&id, "files"))?;
    let answer = node.send(web.nodes.usual().get(url)).await?;
    pass_on(&web, success(answer).await?, &PASSED_ON, None)
}

/// Returns a file of a container, or a range of it, read from its node.
///
/// Also for an ended container, while its node keeps it.
#[utoipa::path(get, path = "/v1/containers/{id}/files/content", tag = "containers", params(
    ("id" = ContainerId, Path), FilePathQuery,
    ("Range" = Option<String>, Header, description = "bytes=FROM-, bytes=FROM-TO or bytes=-LAST"),
), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
    (status = 206, body = Vec<u8>, content_type = "application/octet-stream", description = "The requested range."),
    Bad, Missing, Beyond, TooMany,
))]
pub(crate) async fn content(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(at): QueryParams<FilePathQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let seat = limits::place(&web.streams)?;
    let node = find(&web, &id).await?.node;
    let node = NodeAccess::of(&web, &node).await?;
    let url = at.below(&node.url(&id, "files/content"))?;
    let mut request = web.nodes.usual().get(url);
    if let Some(range) = headers.get(header::RANGE) {
        request = request.header(header::RANGE, range);
    }
    let answer = node.send(request).await?;
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        let problem = ProblemDetails::new(
            ErrorCode::HR0416,
            format!("the range begins after the end of {}", at.path),
        );
        return Err(problem
            .hint("rmctl container files ls shows its size")
            .into());
    }
    pass_on(&web, success(answer).await?, &PASSED_ON, Some(seat))
}

/// Runs a program in a running container, next to its main program.
///
/// It runs in the same cgroup, as the same user, with the same environment and directory. Its
/// memory counts towards the container's limit, which may end both programs. Each line of the
/// response is an `ExecOutputLine`; the last one contains the exit status.
#[utoipa::path(post, path = "/v1/containers/{id}/exec", tag = "containers", params(("id" = ContainerId, Path)),
    request_body = ExecContainer, responses(
        (status = 200, body = ExecOutputLine, content_type = "application/x-ndjson",
            description = "One line for each piece of output, then the exit status."),
        Bad, Missing, Conflict, TooLarge, TooMany,
))]
pub(crate) async fn exec(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<ExecContainer>,
) -> HandlerResult<Response> {
    let seat = limits::place(&web.streams)?;
    let view = running(&web, &id).await?;
    let node = NodeAccess::of(&web, &view.node).await?;
    let request = web.nodes.patient().post(node.url(&id, "exec"));
    let answer = success(node.send(request.json(&body)).await?).await?;
    let command = cut(body.command.join(" "), LONGEST_COMMAND);
    record_event(&web, &view, Reason::ContainerExecStarted, command.clone());
    Ok(audited(
        view.state,
        command,
        pass_on(&web, answer, &PASSED_ON, Some(seat))?,
    )
    .into_response())
}

/// Returns a container whose program runs, according to the last report of its node.
async fn running(web: &WebHandlerState, id: &ContainerId) -> HandlerResult<ContainerView> {
    let view = find(web, id).await?;
    if view.state == "running" || view.state == "stopping" {
        return Ok(view);
    }
    let problem =
        ProblemDetails::conflict(format!("container {id} does not run: it is {}", view.state));
    Err(problem.hint(format!("rmctl container show {id}")).into())
}

/// URL of a node, and its key for container access.
struct NodeAccess<'a> {
    node: &'a NodeId,
    base: String,
    key: String,
}

impl<'a> NodeAccess<'a> {
    async fn of(web: &WebHandlerState, node: &'a NodeId) -> HandlerResult<Self> {
        let base = address(web, node).await?;
        let closed = || {
            let problem = ProblemDetails::unavailable(format!(
                "node {node} has not registered its key for container access"
            ));
            ProblemResponse(problem.hint("its agent may be an earlier release, or about to register again: try again in a moment"))
        };
        let key = web.keys.of(node).ok_or_else(closed)?;
        Ok(NodeAccess { node, base, key })
    }

    fn url(&self, id: &ContainerId, action: &str) -> String {
        format!("{}/v1/containers/{id}/{action}", self.base)
    }

    /// Sends a request with the key.
    async fn send(&self, request: reqwest::RequestBuilder) -> HandlerResult<reqwest::Response> {
        let sent = request.header(NODE_KEY_HEADER, &self.key).send().await;
        sent.map_err(|error| self.unanswered(&error))
    }

    fn unanswered(&self, error: &reqwest::Error) -> ProblemResponse {
        unanswered(self.node, &self.base, error)
    }
}

/// Turns a refusal of the node into a failure with the same problem.
async fn success(answer: reqwest::Response) -> HandlerResult<reqwest::Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let text = answer.text().await.unwrap_or_default();
    let odd = |what: String| ProblemDetails::unavailable(what).hint("try again in a moment");
    let said = serde_json::from_str::<ProblemDetails>(&text)
        .unwrap_or_else(|_| odd(format!("the node answered with status {status}")));
    // The node refuses the resource manager, not its caller: the node has restarted and has a new
    // key.
    let ours = said.code == ErrorCode::HR0403;
    Err(if ours {
        odd("the node refused the key of the resource manager; its agent is about to register again".into())
    } else {
        said
    }
    .into())
}

/// Headers of a node's response that are passed on.
const PASSED_ON: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::CONTENT_LENGTH,
];

fn record_event(web: &WebHandlerState, view: &ContainerView, reason: Reason, message: String) {
    let (now, object) = (web.reader.clock.unix_now(), view.id.to_string());
    web.reader.shared.events.push([LoggedEvent {
        app: Some(view.id.app.clone()),
        node: Some(view.node.clone()),
        ..eventlog::event(now, EventLevel::Normal, reason, object, message)
    }]);
}

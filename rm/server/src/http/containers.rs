//! `/v1/containers`: list, show, stop and resize containers, and fetch their logs through their
//! nodes.

use std::str::FromStr;

use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::{Extension, Json};
use headroom_identity::Principal;
use headroom_rm_core::{CallRefusal, ClusterCall, ContainerSize};
use headroom_types::{AppId, ContainerId, NodeId, QueuePath};
use headroom_wire::v1::apps::{
    AppView, ContainerTimeline, ContainerView, ResizeAccepted, ResizeContainer,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{self, single};
use super::describe::{Bad, Beyond, Conflict, Missing, Never, TooMany};
use super::error::{HandlerResult, ProblemResponse};
use super::parse::{DryRunQuery, EmptyQuery, JsonBody, PathId, PathIdPair, QueryParams, if_match};
use super::passing::pass_on;
use super::visibility::AppVisibility;
use super::wait::{self, LongPollParams, WaitDuration};
use super::web::WebHandlerState;
use super::{limits, pages};
use crate::call_reply::{Done, Resizing};
use crate::input::{ClusterQuery, ContainerFilter};
use crate::to_wire;
use crate::view::ViewSection;

/// Selection of containers.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContainerListQuery {
    /// Only containers of this application.
    app: Option<AppId>,
    /// Only containers on this node.
    node: Option<NodeId>,
    /// Only containers in this state: `allocated`, `launching`, `running`, `stopping` or `exited`.
    state: Option<String>,
    /// Only containers of applications in this queue or in a queue below it.
    queue: Option<QueuePath>,
    /// Only containers of applications of this user.
    user: Option<String>,
    /// Maximum number of rows, 1 to 1000; without it, all rows.
    limit: Option<usize>,
    /// Only containers after this one; the header Link has the address of the next page.
    after: Option<ContainerId>,
    /// Respond only when something has changed since `index`, or after this time, such as `30s`; at
    /// most `60s`.
    #[param(value_type = Option<String>)]
    wait: Option<WaitDuration>,
    /// X-Headroom-Index of the previous response.
    index: Option<u64>,
}

/// Lists containers by id, including ended containers that are kept.
#[utoipa::path(get, path = "/v1/containers", tag = "containers", params(ContainerListQuery), responses(
    (status = 200, body = Vec<ContainerView>, headers(
        ("Link", description = "The address of the next page, if there is one."),
        ("X-Headroom-Index", description = "The index of the latest change; changes of measurements are not counted."),
    )), Bad, TooMany,
))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(of): QueryParams<ContainerListQuery>,
    uri: Uri,
) -> HandlerResult<Response> {
    let sight = AppVisibility::of(&web.reader, &principal);
    let limit = pages::limit(of.limit)?;
    let long_poll = LongPollParams {
        wait: of.wait,
        index: of.index,
    };
    let view = wait::view(&web, ViewSection::Containers, long_poll).await?;
    let apps = (of.queue.is_some() || of.user.is_some() || sight.is_some()).then(|| {
        let within = |a: &&AppView| of.queue.as_ref().is_none_or(|q| a.queue.is_within(q));
        let owned = |a: &&AppView| of.user.as_ref().is_none_or(|u| *u == a.user);
        let seen = |a: &&AppView| sight.as_ref().is_none_or(|sight| sight.sees(a));
        view.apps
            .values()
            .filter(within)
            .filter(owned)
            .filter(seen)
            .map(|a| a.id.clone())
            .collect()
    });
    let index = view.index(ViewSection::Containers);
    let wanted = ContainerFilter {
        app: of.app,
        node: of.node,
        state: of.state,
        apps,
        after: of.after,
        most: limit.saturating_add(1),
    };
    let rows = web
        .reader
        .query(|reply| ClusterQuery::Containers(Box::new(wanted), reply))
        .await?;
    let (rows, next) = pages::piece(rows.into_iter(), |c| &c.id, None, limit);
    answer::list(&uri, index, &rows, next)
}

/// Shows one container.
#[utoipa::path(get, path = "/v1/containers/{id}", tag = "containers", params(("id" = ContainerId, Path)), responses(
    (status = 200, body = ContainerView, headers(
        ("ETag", description = "The version of its size, and a hash of all fields except its use."),
    )),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, Missing,
))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let index = web.reader.handle.last().index(ViewSection::Containers);
    let found = find(&web, &id).await?;
    let (version, steady) = (
        found.version.to_string(),
        ContainerView {
            used: None,
            ..found.clone()
        },
    );
    single(&headers, Some(&version), index, &found, &steady)
}

pub(super) async fn find(web: &WebHandlerState, id: &ContainerId) -> HandlerResult<ContainerView> {
    let found = web
        .reader
        .query(|reply| ClusterQuery::Container(id.clone(), reply))
        .await?;
    found.ok_or_else(|| to_wire::problem(&CallRefusal::NoSuchContainer(id.clone())).into())
}

/// Stops a container.
#[utoipa::path(post, path = "/v1/containers/{id}/stop", tag = "containers", params(("id" = ContainerId, Path)),
    responses((status = 200, body = ContainerView), Bad, Missing, Conflict, TooMany))]
pub(crate) async fn stop(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<ContainerView>> {
    web.call::<Done>(ClusterCall::Stop {
        container: id.clone(),
    })
    .await?;
    find(&web, &id).await.map(Json)
}

/// Resizes a running container.
///
/// The new size is in effect when an update or the view of the container has the version of this
/// response.
#[utoipa::path(post, path = "/v1/containers/{id}/resize", tag = "containers", params(
    ("id" = ContainerId, Path), DryRunQuery,
    ("If-Match" = Option<String>, Header, description = "ETag of the expected version; the same as `version` in the body."),
), request_body = ResizeContainer, responses((status = 200, body = ResizeAccepted), Bad, Missing, Conflict, Never, TooMany))]
pub(crate) async fn resize(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(change): QueryParams<DryRunQuery>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ResizeContainer>,
) -> HandlerResult<Json<ResizeAccepted>> {
    let matched: Option<u32> = if_match(&headers)?.number()?;
    if matched.is_some() && body.version.is_some() && matched != body.version {
        return Err(
            ProblemDetails::bad_request("If-Match and version name different versions")
                .hint("send only one of them")
                .into(),
        );
    }
    let (version, size) = (
        body.version.or(matched),
        ContainerSize {
            resource: body.resource,
            heap: body.heap,
        },
    );
    let Resizing { version } = web
        .call(ClusterCall::Resize {
            container: id,
            version,
            size,
            how: change.mode(),
        })
        .await?;
    Ok(Json(ResizeAccepted { version }))
}

/// Name of a log file: one plain path component.
#[derive(Debug)]
pub(crate) struct LogFileName(String);

impl FromStr for LogFileName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if text.is_empty() || text.len() > 200 || text.starts_with('.') || !text.chars().all(plain)
        {
            return Err(format!(
                "{text:?} is not a log; use stdout, stderr, TASK.out or TASK.err"
            ));
        }
        Ok(LogFileName(text.to_owned()))
    }
}

/// Query parameters of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContainerLogQuery {
    /// Only the last bytes, this many.
    tail: Option<u64>,
    /// Also stream bytes that are written later, until the container has ended.
    #[serde(default)]
    follow: bool,
}

/// Headers of a node's response that are passed on: the type, and the range.
const PASSED_ON: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    HeaderName::from_static("headroom-log-start"),
    HeaderName::from_static("headroom-log-end"),
];

/// Returns a log of a container, read from its node.
#[utoipa::path(get, path = "/v1/containers/{id}/logs/{file}", tag = "containers", params(
    ("id" = ContainerId, Path), ("file" = String, Path, description = "stdout, stderr, TASK.out or TASK.err"), ContainerLogQuery,
    ("Range" = Option<String>, Header, description = "bytes=FROM-, bytes=FROM-TO or bytes=-LAST. Positions count all \
        bytes that were ever written; with `follow`, the start position."),
), responses(
    (status = 200, body = String, content_type = "text/plain", headers(
        ("Headroom-Log-Start", description = "Position of the first byte that is still kept."),
        ("Headroom-Log-End", description = "Position after the last byte."),
    )),
    (status = 206, body = String, content_type = "text/plain", description = "The requested range."),
    Bad, Missing, Beyond, TooMany,
))]
pub(crate) async fn log(
    State(web): State<WebHandlerState>,
    PathIdPair(id, file): PathIdPair<ContainerId, LogFileName>,
    QueryParams(end): QueryParams<ContainerLogQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let seat = if end.follow {
        Some(limits::place(&web.streams)?)
    } else {
        None
    };
    let tail = end.tail.map(|n| format!("tail={n}"));
    let query: Vec<String> = tail
        .into_iter()
        .chain(end.follow.then(|| "follow=true".to_owned()))
        .collect();
    let path = format!("/v1/containers/{id}/logs/{}?{}", file.0, query.join("&"));
    let answer = of_its_node(
        &web,
        &id,
        path.trim_end_matches('?'),
        headers.get(header::RANGE),
        end.follow,
    )
    .await?;
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        let end = answer
            .headers()
            .get("headroom-log-end")
            .and_then(|end| end.to_str().ok())
            .unwrap_or("unknown");
        return Err(
            ProblemDetails::new(ErrorCode::HR0416, format!("the log ends at byte {end}"))
                .hint("follow the log, or try again later")
                .into(),
        );
    }
    pass_on(&web, answer, &PASSED_ON, seat)
}

/// Sends a request to the node of a container.
async fn of_its_node(
    web: &WebHandlerState,
    id: &ContainerId,
    path: &str,
    range: Option<&HeaderValue>,
    follow: bool,
) -> HandlerResult<reqwest::Response> {
    let node = find(web, id).await?.node;
    let base = address(web, &node).await?;
    let url = format!("{base}{path}");
    // No read timeout: a followed log may not grow for minutes.
    let mut request = if follow {
        web.nodes.patient().get(&url)
    } else {
        web.nodes.usual().get(&url)
    };
    if let Some(range) = range {
        request = request.header(header::RANGE, range);
    }
    request
        .send()
        .await
        .map_err(|error| unanswered(&node, &base, &error))
}

/// URL of a node.
pub(super) async fn address(web: &WebHandlerState, node: &NodeId) -> HandlerResult<String> {
    match web.reader.handle.node(node).await? {
        Some((view, _)) => Ok(view.url.trim_end_matches('/').to_owned()),
        None => Err(silent(format!("node {node} has not registered"))),
    }
}

/// Error for a node that did not respond.
pub(super) fn unanswered(node: &NodeId, base: &str, error: &reqwest::Error) -> ProblemResponse {
    tracing::debug!(
        base,
        error = error as &dyn std::error::Error,
        "a node does not answer"
    );
    silent(format!("node {node} does not answer at {base}"))
}

fn silent(what: String) -> ProblemResponse {
    ProblemDetails::unavailable(what)
        .hint("the files of its containers are on the disk of that node")
        .into()
}

/// Shows the memory of a container over time, as measured by its node.
///
/// The node keeps it for a while after the end of the container.
#[utoipa::path(get, path = "/v1/containers/{id}/timeline", tag = "containers", params(("id" = ContainerId, Path)),
    responses((status = 200, body = ContainerTimeline), Bad, Missing))]
pub(crate) async fn timeline(
    State(web): State<WebHandlerState>,
    PathId(id): PathId<ContainerId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Response> {
    let answer = of_its_node(
        &web,
        &id,
        &format!("/v1/containers/{id}/timeline"),
        None,
        false,
    )
    .await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(kind) = answer.headers().get(header::CONTENT_TYPE) {
        response = response.header(header::CONTENT_TYPE, kind);
    }
    let passed_on = response.body(Bytes::from_stream(answer.bytes_stream()));
    passed_on.map_err(|_| {
        ProblemDetails::internal("the response of the node cannot be passed on").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cannot_leave_its_directory() {
        for name in ["stdout", "stderr", "map-7-2.out"] {
            assert!(name.parse::<LogFileName>().is_ok(), "{name}");
        }
        for name in ["", "..", "../x", "a/b", "a?b", "a b", ".hidden"] {
            assert!(name.parse::<LogFileName>().is_err(), "{name}");
        }
    }
}

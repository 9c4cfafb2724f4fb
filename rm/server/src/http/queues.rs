//! `/v1/queues`: show or replace the tree, change one queue, set its state.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::{CallRefusal, ClusterCall};
use headroom_rm_reports::IfMatch;
use headroom_types::QueuePath;
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::queue_tree;
use headroom_wire::v1::queues::{QueueSpec, QueueTreeCheck, QueueView, QueuesView, SetQueueState};
use serde_json::Value;

use super::answer::{Audited, audited, single};
use super::describe::{Bad, Conflict, Missing, TooLarge, TooMany};
use super::error::{HandlerResult, unexpected};
use super::parse::{DryRunQuery, EmptyQuery, JsonBody, PathId, QueryParams, if_match};
use super::wait::{self, LongPollParams};
use super::web::WebHandlerState;
use crate::call_reply::Queues;
use crate::view::{ClusterSnapshot, ViewSection};
use crate::{queues, to_wire};

/// Shows the tree of queues with their use.
#[utoipa::path(get, path = "/v1/queues", tag = "queues", params(LongPollParams), responses(
    (status = 200, body = QueuesView, headers(("ETag", description = "The generation of the tree, and a hash of the queues."))),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, TooMany,
))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(long_poll): QueryParams<LongPollParams>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let view = wait::view(&web, ViewSection::Queues, long_poll).await?;
    let generation = view.queues.generation.to_string();
    single(
        &headers,
        Some(&generation),
        view.index(ViewSection::Queues),
        &view.queues,
        &view.queues,
    )
}

/// Shows one queue with the queues below it.
#[utoipa::path(get, path = "/v1/queues/{path}", tag = "queues", params(("path" = QueuePath, Path), LongPollParams), responses(
    (status = 200, body = QueueView, headers(("ETag", description = "The generation of the tree, and a hash of the queue."))),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, Missing, TooMany,
))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(path): PathId<QueuePath>,
    QueryParams(long_poll): QueryParams<LongPollParams>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let view = wait::view(&web, ViewSection::Queues, long_poll).await?;
    let queue = view
        .queues
        .root
        .find(&path)
        .ok_or_else(|| no_such_queue(&view, &path))?;
    let generation = view.queues.generation.to_string();
    single(
        &headers,
        Some(&generation),
        view.index(ViewSection::Queues),
        queue,
        queue,
    )
}

fn no_such_queue(view: &ClusterSnapshot, path: &QueuePath) -> ProblemDetails {
    let refusal = CallRefusal::NoSuchQueue(path.clone());
    view.with_nearest(&refusal, to_wire::problem(&refusal))
}

/// Replaces the whole tree of queues, or changes nothing.
#[utoipa::path(put, path = "/v1/queues", tag = "queues", params(
    DryRunQuery, ("If-Match" = String, Header, description = "ETag of the expected version, or `*` for any version."),
), request_body = QueueSpec, responses(
    (status = 200, description = "The tree is in effect.", body = QueuesView),
    (status = 202, description = "With dry_run: the tree is valid.", body = QueueTreeCheck),
    Bad, Conflict, TooLarge, TooMany,
))]
pub(crate) async fn put(
    State(web): State<WebHandlerState>,
    QueryParams(change): QueryParams<DryRunQuery>,
    headers: HeaderMap,
    JsonBody(tree): JsonBody<Value>,
) -> HandlerResult<Response> {
    let matched = if_match(&headers)?;
    if matched == IfMatch::Absent {
        let problem = ProblemDetails::bad_request(
            "If-Match is missing: read the tree of queues before you replace it",
        );
        return Err(problem
            .hint("send the ETag of GET /v1/queues, or * for any version")
            .into());
    }
    set(&web, &tree, matched.number()?, change).await
}

/// Changes some keys of one queue, as a JSON merge patch (RFC 7396): null removes a key.
#[utoipa::path(patch, path = "/v1/queues/{path}", tag = "queues", params(
    ("path" = QueuePath, Path), DryRunQuery,
    ("If-Match" = Option<String>, Header, description = "ETag of the expected version; without it, any version matches."),
), request_body = QueueSpec, responses(
    (status = 200, description = "The tree is in effect.", body = QueuesView),
    (status = 202, description = "With dry_run: the tree is valid.", body = QueueTreeCheck),
    Bad, Missing, Conflict, TooLarge, TooMany,
))]
pub(crate) async fn patch(
    State(web): State<WebHandlerState>,
    PathId(path): PathId<QueuePath>,
    QueryParams(change): QueryParams<DryRunQuery>,
    headers: HeaderMap,
    JsonBody(keys): JsonBody<Value>,
) -> HandlerResult<Response> {
    let given = if_match(&headers)?.number()?;
    // The lock keeps other changes out between the read and the merge.
    let _turn = web.changes.lock().await;
    let view = web.reader.handle.view().await?;
    let mut tree = written(&view);
    let place = queues::place(&mut tree, &path).ok_or_else(|| no_such_queue(&view, &path))?;
    let mut value = serde_json::to_value(&*place).map_err(|_| unexpected())?;
    queue_tree::apply_merge_patch(&mut value, &keys);
    let mut whole = serde_json::to_value(&tree).map_err(|_| unexpected())?;
    let below = path.as_str().split('.').skip(1);
    let spot = below.fold(&mut whole, |at, word| &mut at["queues"][word]);
    *spot = value;
    set(
        &web,
        &whole,
        Some(given.unwrap_or(view.queues.generation)),
        change,
    )
    .await
}

/// Specification of the tree that is in effect.
fn written(view: &ClusterSnapshot) -> QueueSpec {
    fn spec(queue: &QueueView) -> QueueSpec {
        let below = queue
            .queues
            .iter()
            .filter_map(|q| Some((q.path.name().parse().ok()?, spec(q))));
        QueueSpec {
            queues: below.collect(),
            ..queue.spec.clone()
        }
    }
    spec(&view.queues.root)
}

async fn set(
    web: &WebHandlerState,
    tree: &Value,
    generation: Option<u64>,
    change: DryRunQuery,
) -> HandlerResult<Response> {
    let (spec, mut problems) = queue_tree::parse_queue_tree(tree);
    let checked = QueueTree::new(queues::tree(spec.clone()));
    let tree = match checked {
        Ok(tree) if problems.is_empty() => tree,
        Ok(_) => return Err(queues::problem(problems).into()),
        Err(found) => {
            problems.extend(found.iter().map(queues::found));
            return Err(queues::problem(problems).into());
        }
    };
    let call = ClusterCall::SetQueues {
        tree: Box::new(tree),
        generation,
        how: change.mode(),
    };
    let Queues { generation } = web.call(call).await?;
    if change.dry_run {
        return Ok((
            axum::http::StatusCode::ACCEPTED,
            Json(QueueTreeCheck {
                generation,
                tree: spec,
            }),
        )
            .into_response());
    }
    let view = web.reader.handle.view().await?;
    let mut response = Json(&view.queues).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{generation}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Sets the state of a queue: whether it accepts applications, and whether it grants containers.
#[utoipa::path(post, path = "/v1/queues/{path}/state", tag = "queues", params(("path" = QueuePath, Path)), request_body = SetQueueState,
    responses((status = 200, body = QueueView), Bad, Missing, Conflict, TooMany))]
pub(crate) async fn set_state(
    State(web): State<WebHandlerState>,
    PathId(path): PathId<QueuePath>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<SetQueueState>,
) -> HandlerResult<Audited<Json<QueueView>>> {
    let before = web
        .reader
        .handle
        .view()
        .await?
        .queues
        .root
        .find(&path)
        .map(|queue| queue.state.as_str().to_owned());
    web.call::<Queues>(ClusterCall::SetQueueState {
        queue: path.clone(),
        state: queues::state_from_wire(body.state),
    })
    .await?;
    let view = web.reader.handle.view().await?;
    let queue = view
        .queues
        .root
        .find(&path)
        .cloned()
        .ok_or_else(|| no_such_queue(&view, &path))?;
    Ok(audited(
        before.unwrap_or_default(),
        queue.state.as_str().to_owned(),
        Json(queue),
    ))
}

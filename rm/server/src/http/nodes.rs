//! `/v1/nodes`: calls of node agents, and the view and actions for users.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use headroom_rm_core::{AfterDrain, CallRefusal, ClusterCall, NodeTags, TagChangeResult};
use headroom_types::{Epoch, Name, NodeId};
use headroom_wire::v1::node_channel::NODE_CHANNEL_PROTOCOL;
use headroom_wire::v1::node_groups::NodeGroup;
use headroom_wire::v1::nodes::{
    DesiredStateLine, DrainNodeRequest, NodeRegistered, NodeReport, NodeReportReply, NodeView,
    RegisterNode, TagNodeRequest,
};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::answer::{self, Audited, audited, single};
use super::describe::{Bad, Conflict, Missing, Stale, TooLarge, TooMany};
use super::error::HandlerResult;
use super::limits::ConnectionSlot;
use super::node_channel::NodeChannel;
use super::parse::{DryRunQuery, EmptyQuery, JsonBody, PathId, QueryParams};
use super::stream::DesiredStateSource;
use super::stream_authorization::CallerAuthorization;
use super::wait::{self, LongPollParams, WaitDuration};
use super::web::WebHandlerState;
use super::{node_reports, pages, stream, upgrade};
use crate::call_reply::{Done, Node};
use crate::from_wire::cut;
use crate::input::LoopInput;
use crate::view::{self, ViewSection};
use crate::{from_wire, to_wire};

/// Selection of nodes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct NodeListQuery {
    /// Only nodes in this state: `ready`, `cordoned`, `draining`, `lost` …
    state: Option<String>,
    /// Only nodes whose name starts with this text.
    name: Option<String>,
    /// Only nodes with this label.
    label: Option<String>,
    /// Only nodes in this rack.
    rack: Option<String>,
    /// Maximum number of rows, 1 to 1000; without it, all rows.
    limit: Option<usize>,
    /// Only nodes after this one; the header Link has the address of the next page.
    after: Option<NodeId>,
    /// Respond only when something has changed since `index`, or after this time, such as `30s`; at
    /// most `60s`.
    #[param(value_type = Option<String>)]
    wait: Option<WaitDuration>,
    /// X-Headroom-Index of the previous response.
    index: Option<u64>,
}

/// Lists all nodes, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", params(NodeListQuery), responses((status = 200, body = Vec<NodeView>, headers(
    ("Link", description = "The address of the next page, if there is one."),
    ("X-Headroom-Index", description = "The index of the latest change; changes of measurements are not counted."),
)), Bad, TooMany))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(asked): QueryParams<NodeListQuery>,
    uri: Uri,
) -> HandlerResult<Response> {
    let long_poll = LongPollParams {
        wait: asked.wait,
        index: asked.index,
    };
    let view = wait::view(&web, ViewSection::Nodes, long_poll).await?;
    let now = web.reader.clock.now();
    let wanted = |n: &NodeView| {
        asked.state.as_ref().is_none_or(|s| *s == n.state)
            && asked
                .name
                .as_ref()
                .is_none_or(|name| n.id.as_str().starts_with(name))
            && asked
                .label
                .as_ref()
                .is_none_or(|l| n.traits.labels.iter().any(|label| label.as_str() == l))
            && asked.rack.as_ref().is_none_or(|r| {
                n.traits
                    .rack
                    .as_ref()
                    .is_some_and(|rack| rack.as_str() == r)
            })
    };
    let unix = web.reader.clock.unix_now();
    let seen = |node| web.peaks.with_peak(view::seen_at(node, now), unix);
    let all = view.nodes.values().filter(|(n, _)| wanted(n)).map(seen);
    let (rows, next) = pages::piece(
        all,
        |n| &n.id,
        asked.after.as_ref(),
        pages::limit(asked.limit)?,
    );
    answer::list(&uri, view.index(ViewSection::Nodes), &rows, next)
}

/// Groups all nodes that are not lost by what decides placement.
#[utoipa::path(get, path = "/v1/node-groups", tag = "nodes", responses((status = 200, body = Vec<NodeGroup>), Bad, TooMany))]
pub(crate) async fn groups(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<Vec<NodeGroup>>> {
    let view = web.reader.handle.view().await?;
    let groups = NodeGroup::group(view.nodes.values().map(|(node, _)| node));
    Ok(Json(groups))
}

/// Shows one node.
#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = NodeId, Path), LongPollParams), responses(
    (status = 200, body = NodeView, headers(("ETag", description = "A hash of all fields except measurements."))),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, Missing, TooMany,
))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    QueryParams(long_poll): QueryParams<LongPollParams>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    // The index is read first, so that the next wait sees every later change.
    let index = wait::index(&web, ViewSection::Nodes, long_poll).await?;
    let found = as_it_is(&web, &node).await?.0;
    single(&headers, None, index, &found, &view::steady(&found))
}

/// Registers a node agent, with all its containers.
///
/// With `Upgrade: headroom-node/1`, the response 101 changes the protocol of the connection:
/// afterwards both sides send lines, the resource manager its answer and the desired state, and the
/// agent its reports.
#[utoipa::path(post, path = "/v1/nodes/{node}/register", tag = "node agents", params(("node" = NodeId, Path),
    ("Upgrade" = Option<String>, Header, description = "`headroom-node/1`, with `Connection: Upgrade`"),
), request_body = RegisterNode, responses(
    (status = 101, description = "The connection now has the protocol headroom-node/1."),
    (status = 200, body = NodeRegistered),
    Bad, Conflict, TooLarge,
))]
pub(crate) async fn register(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    Extension(caller): Extension<CallerAuthorization>,
    slot: Option<Extension<ConnectionSlot>>,
    mut request: Request,
) -> HandlerResult<Response> {
    let opens = upgrade::is_asked_for(request.headers(), NODE_CHANNEL_PROTOCOL);
    let upgrade = hyper::upgrade::on(&mut request);
    let JsonBody(mut body) = JsonBody::<RegisterNode>::from_request(request, &web).await?;
    let key = body.key.take();
    let call = from_wire::register_node(node.clone(), body)?;
    let registered = |acked| NodeRegistered {
        epoch: web.reader.epoch,
        acked,
        heartbeat_ms: web.reader.shared.heartbeat_ms(),
    };
    if !opens {
        let Node { acked } = web.call(call).await?;
        web.keys.set_key(node, key);
        return Ok(Json(registered(acked)).into_response());
    }
    let (Node { acked }, mailbox) = web.reader.handle.join_node(node.clone(), call).await?;
    web.keys.set_key(node.clone(), key);
    let channel = NodeChannel {
        registered: Some(registered(acked)),
        desired: desired_state(&web, mailbox),
        web,
        node,
        caller,
        slot: slot.map(|Extension(slot)| slot),
    };
    Ok(channel.open(upgrade))
}

/// The lines of a node's desired state, from its mailbox.
fn desired_state(
    web: &WebHandlerState,
    mailbox: mpsc::Receiver<DesiredStateLine>,
) -> DesiredStateSource {
    DesiredStateSource {
        epoch: web.reader.epoch,
        mailbox,
        tokens: web.asks.then(|| web.reader.shared.access.subscribe()),
        heartbeat: web.reader.shared.heartbeat.clone(),
    }
}

/// Heartbeat of a node agent.
#[utoipa::path(post, path = "/v1/nodes/{node}/report", tag = "node agents", params(("node" = NodeId, Path)),
    request_body = NodeReport, responses((status = 200, body = NodeReportReply), Bad, Stale, TooLarge))]
pub(crate) async fn report(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    JsonBody(body): JsonBody<NodeReport>,
) -> HandlerResult<Json<NodeReportReply>> {
    Ok(Json(node_reports::accept(&web, &node, body).await?))
}

/// Query parameters of the desired state.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DesiredQuery {
    /// Epoch of the resource manager with which the agent registered.
    epoch: Epoch,
}

/// Streams the desired state of a node to its agent.
///
/// Each message is one line of JSON. The stream lasts as long as the agent reads it. With
/// `Upgrade: headroom-node/1`, the response 101 changes the protocol of the connection: afterwards
/// both sides send lines, the agent its reports.
#[utoipa::path(get, path = "/v1/nodes/{node}/desired", tag = "node agents", params(("node" = NodeId, Path), DesiredQuery,
    ("Upgrade" = Option<String>, Header, description = "`headroom-node/1`, with `Connection: Upgrade`"),
), responses(
    (status = 101, description = "The connection now has the protocol headroom-node/1."),
    (status = 200, body = DesiredStateLine, content_type = "application/x-ndjson"),
    Bad, Stale,
))]
pub(crate) async fn desired(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    QueryParams(life): QueryParams<DesiredQuery>,
    Extension(caller): Extension<CallerAuthorization>,
    slot: Option<Extension<ConnectionSlot>>,
    mut request: Request,
) -> HandlerResult<Response> {
    let mailbox = web
        .reader
        .handle
        .ask(|reply| LoopInput::WatchNode {
            node: node.clone(),
            epoch: life.epoch,
            reply,
        })
        .await?;
    let mailbox = mailbox.map_err(|refusal| to_wire::problem(&refusal))?;
    let source = desired_state(&web, mailbox);
    if !upgrade::is_asked_for(request.headers(), NODE_CHANNEL_PROTOCOL) {
        return Ok(stream::desired(source));
    }
    let channel = NodeChannel {
        registered: None,
        web,
        node,
        desired: source,
        caller,
        slot: slot.map(|Extension(slot)| slot),
    };
    Ok(channel.open(hyper::upgrade::on(&mut request)))
}

/// Drains a node.
///
/// It receives no new containers, and running ones may end by themselves until the deadline.
#[utoipa::path(post, path = "/v1/nodes/{node}/drain", tag = "nodes", params(("node" = NodeId, Path)), request_body = DrainNodeRequest,
    responses((status = 200, body = NodeView), Bad, Missing, Conflict, TooMany))]
pub(crate) async fn drain(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<DrainNodeRequest>,
) -> HandlerResult<Json<NodeView>> {
    let then = if body.decommission {
        AfterDrain::Decommission
    } else {
        AfterDrain::Stay
    };
    let (within, reason) = (
        body.deadline_s.map(Duration::from_secs),
        cut(body.reason, 1024),
    );
    web.call::<Done>(ClusterCall::Drain {
        node: node.clone(),
        within,
        reason,
        then,
    })
    .await?;
    as_it_is(&web, &node).await
}

/// Ends the drain of a node, which then receives containers again.
#[utoipa::path(post, path = "/v1/nodes/{node}/undrain", tag = "nodes", params(("node" = NodeId, Path)),
    responses((status = 200, body = NodeView), Bad, Missing, Conflict, TooMany))]
pub(crate) async fn undrain(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<NodeView>> {
    web.call::<Done>(ClusterCall::Undrain { node: node.clone() })
        .await?;
    as_it_is(&web, &node).await
}

/// Sets the cordon, labels, attributes and taints of a node.
///
/// They add to those that its agent reports. Keys that are absent do not change, so that changes of
/// other operators are kept. The settings survive restarts and registrations, and do not move
/// running containers.
#[utoipa::path(patch, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = NodeId, Path), DryRunQuery), request_body = TagNodeRequest,
    responses(
        (status = 200, description = "The node has these settings.", body = NodeView),
        (status = 202, description = "With dry_run: the node as the change would leave it.", body = NodeView),
        Bad, Missing, TooLarge, TooMany,
    ))]
pub(crate) async fn tag(
    State(web): State<WebHandlerState>,
    PathId(node): PathId<NodeId>,
    QueryParams(only): QueryParams<DryRunQuery>,
    JsonBody(body): JsonBody<TagNodeRequest>,
) -> HandlerResult<Audited<Response>> {
    let change = Box::new(from_wire::tag(body)?);
    let tagged: Box<TagChangeResult> = web
        .call(ClusterCall::Tag {
            node: node.clone(),
            change,
            how: only.mode(),
        })
        .await?;
    let Json(mut view) = as_it_is(&web, &node).await?;
    if only.dry_run {
        view.tags = Box::new(to_wire::tags(&tagged.after));
        view.traits = tagged
            .traits
            .as_ref()
            .map(to_wire::traits)
            .unwrap_or(view.traits);
        view.state = tagged.standing.map(str::to_owned).unwrap_or(view.state);
    }
    Ok(audited(
        words(&tagged.before),
        words(&tagged.after),
        (only.status(), Json(view)).into_response(),
    ))
}

/// Text for the audit log.
fn words(tags: &NodeTags) -> String {
    let named = |what: &str, all: &BTreeMap<Name, String>| -> Vec<String> {
        all.iter()
            .map(|(name, value)| format!("{what} {name}={value}"))
            .collect()
    };
    let cordon = tags
        .cordon
        .iter()
        .map(|reason| format!("cordoned: {reason}"));
    let labels = tags.labels.iter().map(|label| format!("label {label}"));
    let all = cordon
        .chain(labels)
        .chain(named("attribute", &tags.attributes))
        .chain(named("taint", &tags.taints));
    all.collect::<Vec<_>>().join(", ")
}

async fn as_it_is(web: &WebHandlerState, node: &NodeId) -> HandlerResult<Json<NodeView>> {
    match web.reader.handle.node(node).await? {
        Some(found) => Ok(Json(web.peaks.with_peak(
            view::seen_at(&found, web.reader.clock.now()),
            web.reader.clock.unix_now(),
        ))),
        None => Err(web
            .reader
            .handle
            .refused(&CallRefusal::NoSuchNode(node.clone()))
            .await
            .into()),
    }
}

//! `/v1/nodes`: what node agents call, and what others see of them.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use headroom_rm_core::Answer;
use headroom_types::{Epoch, NodeId};
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::nodes::{NodeRegistered, NodeReport, NodeReportReply, NodeView, RegisterNode};
use serde::Deserialize;

use super::error::Failure;
use super::parse::{Body, Id, Params};
use super::{Web, stream, unexpected};
use crate::input::Input;
use crate::{incoming, outgoing};

/// `GET /v1/nodes`.
pub(crate) async fn list(State(web): State<Web>) -> Result<Json<Vec<NodeView>>, Failure> {
    Ok(Json(web.handle.view().await?.nodes(web.clock.now())))
}

/// `GET /v1/nodes/{node}`.
pub(crate) async fn one(State(web): State<Web>, Id(node): Id<NodeId>) -> Result<Json<NodeView>, Failure> {
    let view = web.handle.view().await?.node(&node, web.clock.now());
    view.map(Json).ok_or_else(|| Problem::new(Code::HR0404, format!("there is no node {node}")).into())
}

/// `POST /v1/nodes/{node}/register`.
pub(crate) async fn register(
    State(web): State<Web>,
    Id(node): Id<NodeId>,
    Body(body): Body<RegisterNode>,
) -> Result<Json<NodeRegistered>, Failure> {
    let Answer::Node { acked } = web.handle.call(incoming::register_node(node, body)?).await? else {
        return Err(unexpected());
    };
    Ok(Json(NodeRegistered { epoch: web.epoch, acked }))
}

/// `POST /v1/nodes/{node}/report`.
pub(crate) async fn report(
    State(web): State<Web>,
    Id(node): Id<NodeId>,
    Body(body): Body<NodeReport>,
) -> Result<Json<NodeReportReply>, Failure> {
    let Answer::Received { received } = web.handle.call(incoming::report(node, body)?).await? else {
        return Err(unexpected());
    };
    Ok(Json(NodeReportReply { received }))
}

/// Parameters of what is wanted.
#[derive(Debug, Deserialize)]
pub(crate) struct Life {
    epoch: Epoch,
}

/// `GET /v1/nodes/{node}/desired`.
pub(crate) async fn desired(
    State(web): State<Web>,
    Id(node): Id<NodeId>,
    Params(life): Params<Life>,
) -> Result<Response, Failure> {
    let mailbox = web.handle.ask(|reply| Input::WatchNode { node, epoch: life.epoch, reply }).await?;
    let mailbox = mailbox.map_err(|refusal| outgoing::problem(&refusal))?;
    Ok(stream::desired(web.epoch, mailbox))
}

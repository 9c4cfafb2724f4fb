//! The state that all handlers share, and their queries to the loop.

use std::sync::Arc;

use headroom_types::{ContainerId, NodeId, Resource, UnixMillis};
use headroom_wire::v1::error::ErrorCode;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::listener::RefusalCounts;
use super::refusal::{RefusedRequest, refuse};
use crate::agent_input::AgentInput;
use crate::agent_query::AgentQuery;
use crate::disk::StateLayout;
use crate::node_context::NodeContext;

/// Data of this node that does not change while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct NodeSummary {
    /// Node name.
    pub(crate) node: NodeId,
    /// URL of the agent.
    pub(crate) url: String,
    /// Resources that the node offers.
    pub(crate) offers: Resource,
    /// Start of the agent.
    pub(crate) started: UnixMillis,
}

/// State that the handlers share.
#[derive(Clone, Debug)]
pub(super) struct AgentHandlerState {
    pub(super) layout: StateLayout,
    pub(super) site: Arc<NodeContext>,
    /// The key that permits container access.
    pub(super) key: Arc<str>,
    pub(super) inputs: mpsc::Sender<AgentInput>,
    pub(super) about: NodeSummary,
    pub(super) followers: Arc<Semaphore>,
    pub(super) readers: Arc<Semaphore>,
    pub(super) execs: Arc<Semaphore>,
    pub(super) refusals: Arc<RefusalCounts>,
}

pub(super) async fn ask<T>(
    shared: &AgentHandlerState,
    question: impl FnOnce(oneshot::Sender<T>) -> AgentQuery,
) -> Result<T, RefusedRequest> {
    let gone = || refuse(ErrorCode::HR0503, "the node agent is shutting down");
    let (reply, answer) = oneshot::channel();
    shared
        .inputs
        .send(AgentInput::Question(question(reply)))
        .await
        .map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

pub(super) fn parse(id: &str) -> Result<ContainerId, RefusedRequest> {
    id.parse()
        .map_err(|error: headroom_types::ids::ParseIdError| {
            refuse(ErrorCode::HR0400, error.to_string())
        })
}

//! What a call is refused with: each names the thing, and most the next step.
//!
//! Plain data. A refused call has changed nothing.

use headroom_types::{AppId, AttemptId, ContainerId, Epoch, NodeId, QueuePath, RequestId, Resource, TaskId};

use crate::queue::spec::QueueProblem;

/// A call was refused, and nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Unknown application.
    #[error("there is no application {0}")]
    NoSuchApp(AppId),
    /// Never given out in this life, or used up.
    #[error("number {0} is not reserved for an application")]
    NotReserved(u32),
    /// Unknown container.
    #[error("there is no container {0}")]
    NoSuchContainer(ContainerId),
    /// Unknown request.
    #[error("application {app} has no request {request}")]
    NoSuchRequest {
        /// Whose.
        app: AppId,
        /// Which.
        request: RequestId,
    },
    /// Unknown task.
    #[error("application {app} has no task {task}")]
    NoSuchTask {
        /// Whose.
        app: AppId,
        /// Which.
        task: TaskId,
    },
    /// The sender speaks to an earlier life of the resource manager.
    #[error("the message is for life {given} of the resource manager; this is life {current}")]
    StaleEpoch {
        /// In the message.
        given: Epoch,
        /// Now.
        current: Epoch,
    },
    /// The node was given up, or never came.
    #[error("node {0} is not registered")]
    NodeNotRegistered(NodeId),
    /// A registration that a later one of the same node has overtaken.
    #[error("registration {given} of node {node} comes after its registration {latest}")]
    Overtaken {
        /// Which.
        node: NodeId,
        /// In the message.
        given: u64,
        /// The one that holds.
        latest: u64,
    },
    /// The master has not registered in this life of the resource manager.
    #[error("the master of {0} is not registered")]
    MasterNotRegistered(AppId),
    /// Another attempt has taken over.
    #[error("{given} is not the current attempt; that is attempt {current}")]
    StaleAttempt {
        /// In the message.
        given: AttemptId,
        /// Now.
        current: u32,
    },
    /// After a restart: which containers an application still has is not known yet.
    #[error("{0}")]
    Recovering(String),
    /// That run of the master has not been launched.
    #[error("{0} has not been launched")]
    NotLaunched(AttemptId),
    /// The application is over or about to be.
    #[error("application {app} is {state}")]
    AppEnding {
        /// Which.
        app: AppId,
        /// Its state.
        state: &'static str,
    },
    /// The application has not ended.
    #[error("application {app} is {state}, and only what has ended can be forgotten")]
    NotOver {
        /// Which.
        app: AppId,
        /// Its state.
        state: &'static str,
    },
    /// No node could ever give it.
    #[error("{sentence}")]
    NeverFits {
        /// Names the largest node.
        sentence: String,
        /// The largest container any node could ever give.
        largest: Resource,
    },
    /// Unknown node.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// Unknown queue.
    #[error("there is no queue {0}")]
    NoSuchQueue(QueuePath),
    /// Applications go to leaves.
    #[error("{queue} holds other queues; choose one of them, such as {leaf}")]
    NotALeaf {
        /// As named.
        queue: QueuePath,
        /// One that would do.
        leaf: QueuePath,
    },
    /// A queue takes nothing in now.
    #[error("queue {queue} is {gate}")]
    QueueClosed {
        /// Which.
        queue: QueuePath,
        /// In a word.
        gate: &'static str,
    },
    /// The tree of queues is wrong; nothing of it was taken over.
    #[error("{} problems in the queues, first {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    BadQueues(Vec<QueueProblem>),
    /// Somebody else was first.
    #[error("{what} is at version {current}, and the call is for version {given}")]
    Conflict {
        /// Of what.
        what: String,
        /// In the call.
        given: u64,
        /// Now.
        current: u64,
    },
    /// A container's state does not allow another size.
    #[error("{container} cannot be resized: {why}")]
    NotResizable {
        /// Which.
        container: ContainerId,
        /// Why.
        why: String,
    },
    /// There is no room to grow.
    #[error("{sentence}")]
    NoRoom {
        /// What is short, and where.
        sentence: String,
    },
    /// The node was decommissioned.
    #[error("node {0} is decommissioned")]
    Decommissioned(NodeId),
    /// More is said of a node than anybody needs.
    #[error("{node} would have more than {most} labels, attributes and taints from operators")]
    TooManyTags {
        /// Which.
        node: NodeId,
        /// How many may be.
        most: usize,
    },
    /// A bound of the resource manager.
    #[error("{what}: at most {most}")]
    TooMany {
        /// Of what.
        what: String,
        /// How many may be.
        most: usize,
    },
}

//! Errors of calls: each names the object, and most name the next step.
//!
//! Plain data. A refused call changes nothing.

use headroom_types::{
    AppId, AttemptId, ContainerId, Epoch, NodeId, QueuePath, RequestId, Resource, TaskId,
};

use crate::queue::spec::QueueDefinitionError;

/// Error of a call; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    /// Unknown application.
    #[error("there is no application {0}")]
    NoSuchApp(AppId),
    /// The idempotency key of the user belongs to another submission.
    #[error("the idempotency key was used for another submission, which is application {0}")]
    KeyTaken(AppId),
    /// The number was not reserved in this incarnation, or is used.
    #[error("number {0} is not reserved for an application")]
    NotReserved(u32),
    /// Unknown container.
    #[error("there is no container {0}")]
    NoSuchContainer(ContainerId),
    /// Unknown request.
    #[error("application {app} has no request {request}")]
    NoSuchRequest {
        /// The application.
        app: AppId,
        /// The request.
        request: RequestId,
    },
    /// Unknown task.
    #[error("application {app} has no task {task}")]
    NoSuchTask {
        /// The application.
        app: AppId,
        /// The task.
        task: TaskId,
    },
    /// The message is for an earlier incarnation of the resource manager.
    #[error(
        "the message is for epoch {given} of the resource manager; the current epoch is {current}"
    )]
    StaleEpoch {
        /// Epoch in the message.
        given: Epoch,
        /// Current epoch.
        current: Epoch,
    },
    /// The node is lost or has never registered.
    #[error("node {0} is not registered")]
    NodeNotRegistered(NodeId),
    /// A later registration of the same node was already processed.
    #[error("registration {given} of node {node} is not newer than its registration {latest}")]
    Overtaken {
        /// The node.
        node: NodeId,
        /// Number in the message.
        given: u64,
        /// Number of the latest registration.
        latest: u64,
    },
    /// The master has not registered in this incarnation of the resource manager.
    #[error("the master of {0} is not registered")]
    MasterNotRegistered(AppId),
    /// A later attempt has replaced this one.
    #[error("{given} is not the current attempt; the current one is attempt {current}")]
    StaleAttempt {
        /// Attempt in the message.
        given: AttemptId,
        /// Current attempt.
        current: u32,
    },
    /// After a restart: the containers of the application are not yet known.
    #[error("{0}")]
    Recovering(String),
    /// The attempt has not been launched.
    #[error("{0} has not been launched")]
    NotLaunched(AttemptId),
    /// The application has ended or is finishing.
    #[error("application {app} is {state}")]
    AppEnding {
        /// The application.
        app: AppId,
        /// Its state.
        state: &'static str,
    },
    /// The application has not ended.
    #[error("application {app} is {state}; only an ended application can be purged")]
    NotOver {
        /// The application.
        app: AppId,
        /// Its state.
        state: &'static str,
    },
    /// Infeasible: no node could ever hold it.
    #[error("{sentence}")]
    NeverFits {
        /// Reason, with the largest node.
        sentence: String,
        /// Largest container that any node could ever hold.
        largest: Resource,
    },
    /// Unknown node.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// Unknown queue.
    #[error("there is no queue {0}")]
    NoSuchQueue(QueuePath),
    /// The queue has child queues; applications belong to leaves.
    #[error("queue {queue} has child queues; choose a leaf queue, such as {leaf}")]
    NotALeaf {
        /// Queue in the call.
        queue: QueuePath,
        /// A leaf below it.
        leaf: QueuePath,
    },
    /// The queue accepts no applications.
    #[error("queue {queue} is {state}")]
    QueueNotAdmitting {
        /// The queue.
        queue: QueuePath,
        /// State of the queue.
        state: &'static str,
    },
    /// The queue tree is not valid; nothing of it was applied.
    #[error("{} problems in the queue tree; the first is {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    BadQueues(Vec<QueueDefinitionError>),
    /// The object has changed since the caller read it.
    #[error("{what} is at version {current}, and the call is for version {given}")]
    Conflict {
        /// The object.
        what: String,
        /// Version in the call.
        given: u64,
        /// Current version.
        current: u64,
    },
    /// The container's state does not allow a resize.
    #[error("{container} cannot be resized: {why}")]
    NotResizable {
        /// The container.
        container: ContainerId,
        /// Reason.
        why: String,
    },
    /// The container cannot grow, because its node or queue has no free capacity.
    #[error("{sentence}")]
    NoRoom {
        /// Missing resource and its place.
        sentence: String,
    },
    /// The node was decommissioned.
    #[error("node {0} is decommissioned")]
    Decommissioned(NodeId),
    /// The node would have too many labels, attributes and taints.
    #[error("{node} would have more than {most} labels, attributes and taints from operators")]
    TooManyTags {
        /// The node.
        node: NodeId,
        /// Largest number.
        most: usize,
    },
    /// A limit of the resource manager is reached.
    #[error("{what}: at most {most}")]
    TooMany {
        /// Limited objects.
        what: String,
        /// Largest number.
        most: usize,
    },
}

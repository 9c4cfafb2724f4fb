//! Input of the core: calls and the passing of time.
//!
//! Plain data. The daemon creates the calls from messages; the cluster answers each of them exactly
//! once.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{
    AppId, AttemptId, ContainerId, Epoch, JobOrder, NodeId, QueuePath, RequestId,
};

use super::{
    AfterDrain, AppSubmission, ApplicationLifetime, ApplicationOutcome, CallId, ContainerSize,
    DryRun, FinalRows, NodeHeartbeat, NodeRegistration, TagChange,
};
use crate::queue::QueueTree;
use crate::queue::spec::QueueState;
use crate::request::ContainerRequest;
use crate::settings::ClusterSettings;

/// Input of the core.
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A call; exactly one [`ClusterEffect::Answer`](super::ClusterEffect::Answer) with the same
    /// `call` follows.
    Call {
        /// Number of the call.
        call: CallId,
        /// The call.
        what: ClusterCall,
    },
    /// Time has passed: due deadlines take effect.
    Time,
    /// The event loop stood still for this long (a suspended machine, a slow disk). Silence in that
    /// time proves nothing.
    Stalled(Duration),
    /// These nodes hold their stream of desired state open. The event loop reports this at least
    /// once per second while [`Cluster::counts_streams`](crate::Cluster::counts_streams).
    StreamsOpen(Vec<NodeId>),
    /// The streams of these nodes ended, and no others replaced them.
    StreamsEnded(Vec<NodeId>),
}

/// A call to the core.
#[derive(Clone, Debug)]
pub enum ClusterCall {
    /// Submits an application.
    Submit(Box<AppSubmission>),
    /// Reserves an application number for a later submission.
    Reserve,
    /// Submits an application under a reserved number.
    SubmitAs {
        /// The number.
        number: u32,
        /// The application.
        app: Box<AppSubmission>,
    },
    /// Ends an application.
    Kill {
        /// The application.
        app: AppId,
        /// Reason for its diagnostics.
        reason: Option<String>,
    },
    /// Removes the records of an ended application before its retention time is over.
    Purge {
        /// The application.
        app: AppId,
        /// Whether the call is a dry run.
        how: DryRun,
    },
    /// Registers a master.
    RegisterMaster {
        /// Attempt of the application.
        attempt: AttemptId,
        /// URL where it listens for executors.
        url: Option<String>,
        /// Nodes of the live containers that the master knows; `None` if it does not say.
        nodes: Option<BTreeSet<NodeId>>,
    },
    /// Heartbeat of a master, with all its changes.
    Sync(Box<MasterHeartbeat>),
    /// Adds or changes one container request.
    Ask {
        /// The application.
        app: AppId,
        /// The request.
        ask: Box<ContainerRequest>,
        /// Whether the call is a dry run.
        how: DryRun,
    },
    /// Withdraws a request.
    Withdraw {
        /// The application.
        app: AppId,
        /// The request.
        request: RequestId,
    },
    /// Ends an application on its master's order.
    Finish {
        /// Attempt of the application.
        attempt: AttemptId,
        /// Outcome of the application.
        outcome: ApplicationOutcome,
        /// Message for users.
        diagnostics: String,
        /// The rows of the job that the call carries.
        rows: FinalRows,
    },
    /// Stops one container.
    Stop {
        /// The container.
        container: ContainerId,
    },
    /// Registers a node with all its containers.
    RegisterNode {
        /// The node.
        node: NodeId,
        /// Report of the node.
        facts: Box<NodeRegistration>,
    },
    /// Heartbeat of a node.
    Report {
        /// The node.
        node: NodeId,
        /// Report of the node.
        report: Box<NodeHeartbeat>,
    },
    /// Resizes a container.
    Resize {
        /// The container.
        container: ContainerId,
        /// Version that the caller expects; another one is a conflict. `None` for any version.
        version: Option<u32>,
        /// Desired size.
        size: ContainerSize,
        /// Whether the call is a dry run.
        how: DryRun,
    },
    /// Replaces the queue tree. The call fails as a whole or takes effect immediately.
    SetQueues {
        /// The tree.
        tree: Box<QueueTree>,
        /// Generation that the caller expects; another one is a conflict. `None` for any
        /// generation.
        generation: Option<u64>,
        /// Whether the call is a dry run.
        how: DryRun,
    },
    /// Sets the state of a queue: running, paused, draining or stopped.
    SetQueueState {
        /// The queue.
        queue: QueuePath,
        /// New state.
        state: QueueState,
    },
    /// Changes the queue, priority or lifetime of an application.
    ChangeApp {
        /// The application.
        app: AppId,
        /// New leaf queue.
        queue: Option<QueuePath>,
        /// New priority; higher goes first.
        priority: Option<i32>,
        /// New lifetime, counted from the submission.
        lifetime: Option<ApplicationLifetime>,
    },
    /// Sends an order about an application or one of its tasks to the master.
    Order {
        /// The application.
        app: AppId,
        /// The order.
        order: JobOrder,
    },
    /// Drains a node: it gets no new containers, and its containers are stopped at the deadline.
    Drain {
        /// The node.
        node: NodeId,
        /// Time that its containers have. `None`: no deadline.
        within: Option<Duration>,
        /// Reason for users.
        reason: String,
        /// State of the node after the drain.
        then: AfterDrain,
    },
    /// Cancels a drain or decommission.
    Undrain {
        /// The node.
        node: NodeId,
    },
    /// Changes an operator's cordon, labels, attributes and taints of a node.
    Tag {
        /// The node.
        node: NodeId,
        /// Changes; everything else stays.
        change: Box<TagChange>,
        /// Whether the call is a dry run.
        how: DryRun,
    },
    /// Applies new settings, as far as a running cluster can change them.
    Configure(Box<ClusterSettings>),
}

/// Heartbeat of a master.
#[derive(Clone, Debug)]
pub struct MasterHeartbeat {
    /// Attempt of the application.
    pub attempt: AttemptId,
    /// Incarnation of the resource manager to which the master is connected.
    pub epoch: Epoch,
    /// Cursor of the latest update that the master has processed.
    pub ack: u64,
    /// New or changed requests.
    pub asks: Vec<ContainerRequest>,
    /// Requests to withdraw.
    pub withdraw: Vec<RequestId>,
    /// Containers to stop.
    pub release: Vec<ContainerId>,
}

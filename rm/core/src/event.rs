//! Events and effects: the input and output of the core.
//!
//! Plain data. These are the core's own types; the daemon converts them from and to messages and
//! records.

mod log;
mod refusal;
mod report;
mod traits;
mod update;

use std::sync::Arc;
use std::time::Duration;

use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Epoch, JobOrder, LaunchSpec, Name, NodeId, QueuePath,
    RequestId, Resource, StopCause, UnixMillis,
};

pub use log::{LogLine, LogMessage, LogObject, LogSeverity};
pub use refusal::CallRefusal;
pub use report::{
    ContainerPhase, NodeHealth, NodeHeartbeat, NodeRegistration, RefusedSize, ReportedContainer,
};
pub use traits::{Cordon, Exclusive, NodeProperties, TagChange};
pub use update::{GrantedContainer, MasterUpdate, UpdateKind};

use crate::cluster::Settings;
use crate::queue::spec::{QueueState, QueueTree};
use crate::request::ContainerRequest;
use crate::save::DurableRecord;
use crate::tags::Tagged;

/// Number of a call; its answer carries the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Input of the core.
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A call; exactly one [`Effect::Answer`] with the same `call` follows.
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
        outcome: Outcome,
        /// Message for users.
        diagnostics: String,
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
    /// Sets the state of a queue: open, paused, draining or closed.
    SetGate {
        /// The queue.
        queue: QueuePath,
        /// New state.
        gate: QueueState,
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
        lifetime: Option<Lifetime>,
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
    Configure(Box<Settings>),
}

/// Whether a call changes anything or only returns the result of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// The call takes effect.
    #[default]
    Really,
    /// The call only returns an answer.
    DryRun,
}

/// A size with its heap budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSize {
    /// The whole size.
    pub resource: Resource,
    /// Heap budget within it; `None` keeps the current one. Bytes.
    pub heap: Option<Bytes>,
}

/// Limit of an application's lifetime, counted from its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// No limit.
    Unbounded,
    /// At most this long.
    AtMost(Duration),
}

/// State of a node after its drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AfterDrain {
    /// It stays a member, without work.
    Stay,
    /// It leaves the cluster: its agent is ordered to end and cannot register until the node is
    /// undrained.
    Decommission,
}

/// Application as submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSubmission {
    /// Name for users.
    pub name: Name,
    /// Leaf queue.
    pub queue: QueuePath,
    /// Priority; higher goes first.
    pub priority: i32,
    /// User who submitted it.
    pub user: String,
    /// Longest lifetime.
    pub lifetime: Option<Duration>,
    /// Kind of master.
    pub master: MasterKind,
    /// Idempotency key: a submission with a known key returns the known application.
    pub key: Option<String>,
}

/// Kind of an application's master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKind {
    /// The resource manager runs the master in a container.
    Managed {
        /// Its size.
        resource: Resource,
        /// Command, environment and files.
        launch: Arc<LaunchSpec>,
        /// Charged attempts after which the application fails.
        max_attempts: u32,
    },
    /// The master runs outside of the cluster's containers.
    Unmanaged,
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

/// Outcome of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It reached its goal.
    Succeeded,
    /// It did not reach its goal.
    Failed,
    /// A user or an operator killed it.
    Killed,
}

/// Output of the core. The daemon carries effects out in order, after all [`Effect::Save`]s of the
/// batch are durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A record that must be durable before any later effect is carried out.
    Save(Box<DurableRecord>),
    /// The answer to a call.
    Answer {
        /// Number of the call.
        call: CallId,
        /// The answer.
        answer: CallResult,
    },
    /// Command for a node about one container.
    Tell {
        /// The node.
        node: NodeId,
        /// The container.
        container: ContainerId,
        /// The command.
        want: ContainerCommand,
    },
    /// Update for a master.
    Update {
        /// The application.
        app: AppId,
        /// The update.
        update: MasterUpdate,
    },
    /// End of the updates of an application.
    UpdatesEnd {
        /// The application.
        app: AppId,
    },
    /// Line for the event log.
    Log(LogLine),
    /// A state machine rejected an event; nothing was changed.
    Illegal {
        /// Object and event.
        what: String,
    },
}

/// Result of a call.
pub type CallResult = Result<CallAnswer, CallRefusal>;

/// Answer to an accepted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The application exists.
    Submitted {
        /// Its id.
        app: AppId,
        /// Its current attempt.
        attempt: u32,
    },
    /// The number is reserved for the caller.
    Reserved {
        /// The number.
        number: u32,
    },
    /// The requested state holds.
    Done,
    /// The master is registered.
    Master {
        /// Largest container that any node could ever hold.
        largest: Resource,
        /// Live containers, without the master's own.
        containers: Vec<GrantedContainer>,
        /// Cursor before the first update that follows.
        cursor: u64,
    },
    /// The heartbeat was processed.
    Synced {
        /// One verdict per request of the heartbeat.
        verdicts: Vec<(RequestId, RequestVerdict)>,
        /// True when the application must stop.
        stop: bool,
    },
    /// The request was accepted.
    Asked {
        /// Verdict on the request.
        verdict: RequestVerdict,
    },
    /// The size was ordered from the node, or is already in effect.
    Resizing {
        /// Version that will confirm the size.
        version: u32,
    },
    /// The queue tree is in effect, or would be after a dry run.
    Queues {
        /// Generation of the tree.
        generation: u64,
    },
    /// The settings are in effect.
    Configured {
        /// Source of the queue tree in effect.
        queues: QueuesFrom,
    },
    /// The tags of the node are set, or would be after a dry run.
    Tagged(Box<Tagged>),
    /// The node is registered.
    Node {
        /// Ended containers that the node may remove.
        acked: Vec<ContainerId>,
    },
    /// The heartbeat was processed.
    Received {
        /// Ended containers whose reports were processed.
        received: Vec<ContainerId>,
    },
}

/// Source of the queue tree in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuesFrom {
    /// The settings.
    Settings,
    /// A tree that an operator set at run time; it overrides the settings.
    Operator,
}

/// Verdict on a container request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestVerdict {
    /// All containers are granted.
    Fits,
    /// Some containers wait.
    Waits {
        /// Reason.
        sentence: Arc<str>,
    },
    /// Infeasible: no node could ever hold it; the request was not accepted.
    Never {
        /// Reason, with the largest node.
        sentence: String,
        /// Largest container that any node could ever hold.
        largest: Resource,
    },
}

/// Desired state of a container on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCommand {
    /// The container must run.
    Run(Box<RunOrder>),
    /// The container must end.
    Stop {
        /// Cause.
        cause: StopCause,
    },
    /// The node may remove the container's report.
    Forget,
}

/// Order to run a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrder {
    /// The application.
    pub app: AppId,
    /// The request; `None` for a master.
    pub request: Option<RequestId>,
    /// Attempt of its master for which it was granted; 1 for the first.
    pub attempt: u32,
    /// Size.
    pub resource: Resource,
    /// Version of the size: a node that has the container with an earlier version resizes it.
    pub version: u32,
    /// Command, environment and files; empty for a container that was granted in an earlier
    /// incarnation.
    pub launch: Arc<LaunchSpec>,
    /// User who submitted the application.
    pub user: Arc<str>,
    /// Time of the grant.
    pub granted: UnixMillis,
}

//! Inputs of the main loop: a closed enum of calls, changes and queries, with the types of their
//! parameters and results.
//!
//! Each input contains the channel for its reply. The module sends and processes nothing.

use std::collections::BTreeSet;

use headroom_rm_core::{CallAnswer, CallRefusal, CallResult, ClusterCall, MasterUpdate};
use headroom_rm_store::{JournalGroup, SavedResponse};
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Epoch, NodeId, QueuePath, RequestId, Resource, Sha256,
    Tick,
};
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{AppView, AttemptView, ContainerView, PendingExplanation};
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::nodes::{DesiredStateLine, NodeView};
use tokio::sync::{mpsc, oneshot};

use crate::access::{AccessChange, AccessChangeResult};
use crate::journal_table::JournalExtent;
use crate::profiles::{ProfileChange, ProfileChangeResult};
use crate::reports;

/// The answer to a registration with the stream of the node, or a refusal.
pub(crate) type NodeJoinResult =
    Result<(CallAnswer, mpsc::Receiver<DesiredStateLine>), CallRefusal>;

/// Inputs of the main loop.
#[derive(Debug)]
pub(crate) enum LoopInput {
    /// A call of the core, with rows of a job.
    Call {
        /// The call.
        what: Box<ClusterCall>,
        /// Merged when the core accepts the call.
        job: Option<Box<(AppId, JobViewPatch)>>,
        /// Receives the result, once it is durable.
        reply: oneshot::Sender<CallResult>,
    },
    /// A node registers, and opens the stream of its desired state if it is accepted.
    JoinNode {
        /// The node.
        node: NodeId,
        /// The registration.
        what: Box<ClusterCall>,
        /// Receives the answer with the stream.
        reply: oneshot::Sender<NodeJoinResult>,
    },
    /// The second half of [`LoopInput::JoinNode`], with the durable result of the registration.
    WatchJoinedNode {
        /// The node.
        node: NodeId,
        /// The result.
        result: oneshot::Receiver<CallResult>,
        /// Receives the answer with the stream.
        reply: oneshot::Sender<NodeJoinResult>,
    },
    /// A node opens the stream of its desired state.
    WatchNode {
        /// The node.
        node: NodeId,
        /// Epoch with which the node registered.
        epoch: Epoch,
        /// Receives the stream.
        reply: oneshot::Sender<Result<mpsc::Receiver<DesiredStateLine>, CallRefusal>>,
    },
    /// A master opens its stream of updates.
    WatchApp {
        /// The application.
        app: AppId,
        /// Epoch with which the master registered.
        epoch: Epoch,
        /// Cursor of the last update that the master has.
        cursor: u64,
        /// Receives the stream.
        reply: oneshot::Sender<ProblemResult<mpsc::Receiver<Vec<MasterUpdate>>>>,
    },
    /// Changes a document that is saved beside the records of the core.
    Document(DocumentChange),
    /// A master reads its journal or appends to it.
    Journal(JournalCall),
    /// A query.
    Query(ClusterQuery),
    /// Saves the state, closes all streams and ends.
    Stop,
}

/// Changes of documents. The result of each is sent once it is durable.
#[derive(Debug)]
pub(crate) enum DocumentChange {
    /// Stores the response to a call with an idempotency key, and removes unused keys.
    Response {
        /// Response, stored before the caller receives it.
        answer: Box<SavedResponse>,
        /// Keys to remove.
        gone: Vec<String>,
        /// Notified when the change is durable.
        reply: oneshot::Sender<()>,
    },
    /// Changes or deletes a profile of the cluster.
    Profile {
        /// The change.
        change: Box<ProfileChange>,
        /// Receives the result.
        reply: oneshot::Sender<ProfileChangeResult>,
    },
    /// Changes tokens, policies or shares.
    Access {
        /// The change.
        change: Box<AccessChange>,
        /// Receives the result.
        reply: oneshot::Sender<AccessChangeResult>,
    },
}

/// Calls of a master about its journal. The result of each is sent when it is durable.
#[derive(Debug)]
pub(crate) enum JournalCall {
    /// Reads the journal of the earlier attempts.
    TakeOver {
        /// The attempt that continues it.
        attempt: AttemptId,
        /// Receives the extent of the journal; no attempt appends to the earlier part afterwards.
        reply: oneshot::Sender<ProblemResult<JournalExtent>>,
    },
    /// Appends a group.
    Append {
        /// The application.
        app: AppId,
        /// The group; its attempt must be the current one.
        group: JournalGroup,
        /// Its records.
        records: Vec<u8>,
        /// Receives the result.
        reply: oneshot::Sender<ProblemResult<()>>,
    },
}

impl JournalCall {
    /// The application, and the number of the attempt.
    pub(crate) fn attempt(&self) -> (&AppId, u32) {
        match self {
            JournalCall::TakeOver { attempt, .. } => (&attempt.app, attempt.attempt),
            JournalCall::Append { app, group, .. } => (app, group.attempt),
        }
    }
}

/// Queries about the cluster in its state after the batch.
#[derive(Debug)]
pub(crate) enum ClusterQuery {
    /// Publishes a new view.
    Refresh,
    /// Checks only that the main loop runs.
    Turn(oneshot::Sender<()>),
    /// One node with the time of its last heartbeat, without a new view.
    Node(NodeId, oneshot::Sender<Option<(NodeView, Tick)>>),
    /// One application, without a new view.
    App(AppId, oneshot::Sender<Option<AppView>>),
    /// A report with data that the view lacks.
    Facts(reports::ReportQuery),
    /// Reasons why requests wait.
    Why(AppId, oneshot::Sender<Option<Vec<PendingExplanation>>>),
    /// The requests of an application.
    Requests(AppId, oneshot::Sender<Option<Vec<PlacementRequest>>>),
    /// Containers, including ended ones.
    Containers(Box<ContainerFilter>, oneshot::Sender<Vec<ContainerView>>),
    /// Application attempts.
    Attempts(AppId, oneshot::Sender<Vec<AttemptView>>),
    /// One container.
    Container(ContainerId, oneshot::Sender<Option<ContainerView>>),
    /// Containers on these nodes, at most [`HELD`] for each.
    Held(
        Vec<NodeId>,
        oneshot::Sender<Vec<(NodeId, Vec<HeldContainer>)>>,
    ),
    /// Waiting requests of one application or of all, longest wait first, up to a maximum number.
    Waits(Option<AppId>, usize, oneshot::Sender<Vec<WaitingRequest>>),
    /// Uploads that applications name which have not ended.
    NeededUploads(oneshot::Sender<BTreeSet<Sha256>>),
}

/// Maximum number of containers for each node.
pub(crate) const HELD: usize = 256;

/// A container on its node.
#[derive(Clone, Debug)]
pub(crate) struct HeldContainer {
    /// View of the container.
    pub(crate) view: ContainerView,
    /// Heap budget, if declared. Bytes.
    pub(crate) heap: Option<Bytes>,
}

/// A waiting request.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRequest {
    /// The application.
    pub(crate) app: AppId,
    /// The request.
    pub(crate) request: RequestId,
    /// Its queue.
    pub(crate) queue: QueuePath,
    /// Start of the wait.
    pub(crate) since: Tick,
    /// Number of containers not yet granted.
    pub(crate) missing: u32,
    /// Size of one container.
    pub(crate) asks: Resource,
    /// Reason of the wait, as a sentence.
    pub(crate) sentence: String,
}

/// Selection of containers.
#[derive(Debug, Default)]
pub(crate) struct ContainerFilter {
    /// Application.
    pub(crate) app: Option<AppId>,
    /// Node.
    pub(crate) node: Option<NodeId>,
    /// State.
    pub(crate) state: Option<String>,
    /// Set of applications.
    pub(crate) apps: Option<BTreeSet<AppId>>,
    /// Lower bound of the id, exclusive.
    pub(crate) after: Option<ContainerId>,
    /// Maximum number.
    pub(crate) most: usize,
}

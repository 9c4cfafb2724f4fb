//! Durable records of the resource manager: plain values that the store writes before any later
//! effect is carried out.

use std::sync::Arc;

use headroom_types::{AppId, Bytes, ContainerId, NodeId, QueuePath, Resource, UnixMillis};

use crate::event::{AfterDrain, AppSubmission, ApplicationOutcome};
use crate::history::EndedContainer;
use crate::node_tags::NodeTags;
use crate::queue::QueueTree;
use crate::runs::AttemptRecord;

/// A durable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableRecord {
    /// A new application.
    App {
        /// Id of the application.
        app: AppId,
        /// Application as submitted.
        spec: Arc<AppSubmission>,
        /// Submission time.
        submitted: UnixMillis,
    },
    /// New state of an application.
    State {
        /// The application.
        app: AppId,
        /// State. Boxed, because records of ended containers are far more frequent.
        state: Box<SavedState>,
    },
    /// An ended application was removed from the history.
    AppGone(AppId),
    /// A container ended, and its application has acknowledged the end.
    Container(Arc<EndedContainer>),
    /// A container was removed from the history.
    ContainerGone(ContainerId),
    /// A node became a member: grants wait for it after a restart.
    Node(NodeId),
    /// A node left the members: grants do not wait for it after a restart.
    NodeGone(NodeId),
    /// An operator set the queue tree; it overrides the configured one.
    Queues {
        /// Generation; counts up with every change.
        generation: u64,
        /// The whole tree.
        tree: Box<QueueTree>,
    },
    /// A node has a drain mark.
    Mark {
        /// The node.
        node: NodeId,
        /// The mark.
        mark: SavedDrainMark,
    },
    /// The drain mark of a node was removed.
    MarkGone(NodeId),
    /// Tags of a node; removed when they are empty.
    Tags {
        /// The node.
        node: NodeId,
        /// All tags.
        tags: Box<NodeTags>,
    },
}

/// Drain mark of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedDrainMark {
    /// Reason for users.
    pub reason: String,
    /// Time when the remaining containers are stopped, on the wall clock.
    pub until: Option<UnixMillis>,
    /// State of the node after the drain.
    pub then: AfterDrain,
    /// True when the node is drained.
    pub drained: bool,
}

/// State of an application that cannot be rebuilt from its nodes and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    /// Stage.
    pub stage: SavedStage,
    /// Diagnostics for users.
    pub diagnostics: String,
    /// Number of the current attempt.
    pub attempt: u32,
    /// Failed attempts that count against `max_attempts`.
    pub charged: u32,
    /// Failed attempts that are not charged.
    pub uncharged: u32,
    /// The container of the current attempt.
    pub master: Option<ContainerId>,
    /// Node of the latest attempt.
    pub master_node: Option<NodeId>,
    /// Current size of the master; it grows after a memory failure.
    pub master_size: Option<Resource>,
    /// Current heap budget of the master. Bytes.
    pub master_heap: Option<Bytes>,
    /// Time of its end.
    pub ended: Option<UnixMillis>,
    /// Leaf, once it differs from the one of the submission.
    pub queue: Option<QueuePath>,
    /// Priority, once it differs from the one of the submission.
    pub priority: Option<i32>,
    /// End of its lifetime, on the wall clock.
    pub until: Option<UnixMillis>,
    /// Latest attempts, the current one last.
    pub runs: Vec<AttemptRecord>,
}

/// Saved stage of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedStage {
    /// Its master has not registered.
    Accepted,
    /// Its master has registered.
    Running,
    /// Its containers are being stopped.
    Finishing(ApplicationOutcome),
    /// It has ended.
    Ended(ApplicationOutcome),
}

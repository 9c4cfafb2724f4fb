//! What must survive a crash of the resource manager: plain values, written by the store before any later effect leaves.

use std::sync::Arc;

use headroom_types::{AppId, Bytes, ContainerId, NodeId, QueuePath, Resource, UnixMillis};

use crate::event::{AfterDrain, NewApp, Outcome};
use crate::history::Finished;
use crate::queue::spec::Tree;
use crate::runs::Run;
use crate::tags::NodeTags;

/// What must survive a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Save {
    /// A new application.
    App {
        /// Its id.
        app: AppId,
        /// As submitted.
        spec: Arc<NewApp>,
        /// When.
        submitted: UnixMillis,
    },
    /// Where an application is now.
    State {
        /// Which.
        app: AppId,
        /// Its state.
        state: SavedState,
    },
    /// An ended application leaves the history.
    AppGone(AppId),
    /// A container ended and its application knows.
    Container(Arc<Finished>),
    /// A container leaves the history.
    ContainerGone(ContainerId),
    /// A node has come: wait for it after a restart.
    Node(NodeId),
    /// A node was given up: do not wait for it.
    NodeGone(NodeId),
    /// The tree of queues that was set at run time takes the place of the configured one.
    Queues {
        /// Counts up with every change.
        generation: u64,
        /// The whole tree.
        tree: Box<Tree>,
    },
    /// A node is to be empty, or gone.
    Mark {
        /// Which.
        node: NodeId,
        /// How.
        mark: NodeMark,
    },
    /// A node takes work again.
    MarkGone(NodeId),
    /// What an operator says of a node; nothing any more when it is empty.
    Tags {
        /// Which.
        node: NodeId,
        /// All of it.
        tags: NodeTags,
    },
}

/// What an operator decided about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMark {
    /// For people.
    pub reason: String,
    /// When what is left on it is stopped, on the wall clock.
    pub until: Option<UnixMillis>,
    /// What it is to be in the end.
    pub then: AfterDrain,
    /// Whether it is empty.
    pub drained: bool,
}

/// Where an application is, as far as it cannot be rebuilt from its nodes and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    /// Its stage.
    pub stage: SavedStage,
    /// For people.
    pub diagnostics: String,
    /// Its current attempt.
    pub attempt: u32,
    /// Attempts that failed by their own fault.
    pub charged: u32,
    /// Attempts that were lost through no fault of theirs.
    pub uncharged: u32,
    /// The container of the current attempt.
    pub master: Option<ContainerId>,
    /// Where the latest attempt ran.
    pub master_node: Option<NodeId>,
    /// The master's size now; it grows when the master runs out of memory.
    pub master_size: Option<Resource>,
    /// The master's heap budget now. Bytes.
    pub master_heap: Option<Bytes>,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// Its leaf, once it was moved from the one it was submitted to.
    pub queue: Option<QueuePath>,
    /// Its priority, once it was changed.
    pub priority: Option<i32>,
    /// When its time is over, on the wall clock.
    pub until: Option<UnixMillis>,
    /// The latest runs of its master, the current one last.
    pub runs: Vec<Run>,
}

/// An application's stage as saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedStage {
    /// Its master has not registered.
    Accepted,
    /// Its master has registered.
    Running,
    /// Its containers are being stopped.
    Finishing(Outcome),
    /// Over.
    Ended(Outcome),
}

//! Numbered updates for a master; the numbers prevent lost and repeated updates.
//!
//! Plain data.

use std::sync::Arc;

use headroom_types::{ContainerId, ExitReport, JobOrder, NodeId, RequestId, Resource, UnixMillis};

/// Granted container in an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedContainer {
    /// Its id.
    pub container: ContainerId,
    /// The request.
    pub request: RequestId,
    /// The node.
    pub node: NodeId,
    /// Size.
    pub resource: Resource,
    /// Attempt of the master to which it was granted.
    pub attempt: u32,
    /// True if its program runs.
    pub running: bool,
}

/// Numbered update for a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterUpdate {
    /// Cursor; counts up from 1 without gaps within one application and epoch.
    pub cursor: u64,
    /// Content.
    pub what: UpdateKind,
}

/// Content of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// A container was granted.
    Allocated(GrantedContainer),
    /// The program of a container runs.
    Running {
        /// The container.
        container: ContainerId,
    },
    /// A container ended.
    Exited {
        /// Its request.
        request: RequestId,
        /// Exit report with the verdict.
        report: Arc<ExitReport>,
    },
    /// A node has resized a container.
    Resized {
        /// The container.
        container: ContainerId,
        /// Current size.
        resource: Resource,
        /// Version of that size.
        version: u32,
    },
    /// A node could not resize a container, which keeps its current size.
    ResizeFailed {
        /// The container.
        container: ContainerId,
        /// Current size.
        resource: Resource,
        /// Version of that size.
        version: u32,
        /// Reason for users.
        why: String,
    },
    /// A container will be preempted. The master avoids that if it releases this container, or
    /// another one of the same size.
    PreemptSoon {
        /// The container.
        container: ContainerId,
        /// Time of the preemption, on the wall clock.
        at: UnixMillis,
        /// Reason for users, with the application that gets the resources.
        why: String,
    },
    /// A node drains: its containers should end by themselves before the deadline.
    NodeDraining {
        /// The node.
        node: NodeId,
        /// Time when remaining containers are stopped, on the wall clock.
        until: Option<UnixMillis>,
    },
    /// The deadline of a request has passed; missing containers will not be granted.
    Expired {
        /// The request.
        request: RequestId,
        /// Reason of the wait, for users.
        why: String,
    },
    /// Order from a user about the application or a task.
    Order(JobOrder),
}

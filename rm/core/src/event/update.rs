//! What a master is told, numbered, so that nothing is missed and nothing is taken in twice.
//!
//! Plain data.

use std::sync::Arc;

use headroom_types::{ContainerId, ExitReport, JobOrder, NodeId, RequestId, Resource, UnixMillis};

/// A container as its master is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its id.
    pub container: ContainerId,
    /// The request.
    pub request: RequestId,
    /// Where.
    pub node: NodeId,
    /// Its size.
    pub resource: Resource,
    /// The run of the master that it was granted to.
    pub attempt: u32,
}

/// One numbered message to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Counts up without gaps from 1 within one application and epoch.
    pub cursor: u64,
    /// What happened.
    pub what: UpdateKind,
}

/// What an update tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// Granted.
    Allocated(Granted),
    /// Its program runs.
    Running {
        /// Which.
        container: ContainerId,
    },
    /// It ended.
    Exited {
        /// Its request.
        request: RequestId,
        /// The verdict.
        report: Arc<ExitReport>,
    },
    /// Its node has given it another size.
    Resized {
        /// Which.
        container: ContainerId,
        /// The size it has now.
        resource: Resource,
        /// The version of that size.
        version: u32,
    },
    /// Its node could not give it the size; it has the one before.
    ResizeFailed {
        /// Which.
        container: ContainerId,
        /// The size it has.
        resource: Resource,
        /// The version of that size.
        version: u32,
        /// Why, for people.
        why: String,
    },
    /// It will be taken for somebody with a better claim. Releasing it, or another one of the same size, avoids that.
    PreemptSoon {
        /// Which.
        container: ContainerId,
        /// When, on the wall clock.
        at: UnixMillis,
        /// For whom, for people.
        why: String,
    },
    /// Its node is being emptied: it should end by itself by then.
    NodeDraining {
        /// The node.
        node: NodeId,
        /// When what is left is stopped, on the wall clock.
        until: Option<UnixMillis>,
    },
    /// Its time is over; what was missing of it will not come.
    Expired {
        /// Which request.
        request: RequestId,
        /// Why it had to wait, for people.
        why: String,
    },
    /// Somebody wants something done with it.
    Order(JobOrder),
}

//! Registration and heartbeat of a node.
//!
//! Plain data.

use std::sync::Arc;

use headroom_types::exit::Unattributed;
use headroom_types::{
    Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, RequestId, Resource, UnixMillis,
};

use super::NodeProperties;

/// Registration of a node.
#[derive(Clone, Debug)]
pub struct NodeRegistration {
    /// Offered resources.
    pub offers: Resource,
    /// Mechanism that enforces container limits.
    pub enforcer: EnforcerKind,
    /// URL of its agent.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Rack, labels, attributes and taints.
    pub traits: NodeProperties,
    /// Health of the node.
    pub health: NodeHealth,
    /// All containers on the node.
    pub seen: Vec<ReportedContainer>,
    /// Exit reports that are not acknowledged.
    pub exits: Vec<Arc<ExitReport>>,
    /// Registration number, higher than that of each earlier registration; 0 when the node sends
    /// none.
    pub serial: u64,
    /// Memory that ended containers left charged on the node.
    pub unattributed: Unattributed,
}

/// Heartbeat of a node.
#[derive(Clone, Debug)]
pub struct NodeHeartbeat {
    /// Incarnation of the resource manager to which the node is connected.
    pub epoch: Epoch,
    /// Containers with their memory use.
    pub seen: Vec<ReportedContainer>,
    /// Exit reports that are not acknowledged.
    pub exits: Vec<Arc<ExitReport>>,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Health of the node.
    pub health: NodeHealth,
    /// Memory that ended containers left charged on the node.
    pub unattributed: Unattributed,
}

/// Health of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// It can take work.
    Healthy,
    /// It cannot take work.
    Unhealthy {
        /// Reason.
        reason: String,
    },
}

/// Container as its node reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedContainer {
    /// The container.
    pub container: ContainerId,
    /// The request it was granted for; `None` for a master.
    pub request: Option<RequestId>,
    /// Attempt of its master for which it was granted; 1 for the first.
    pub attempt: u32,
    /// Size.
    pub resource: Resource,
    /// Version of the size; 1 for the size of the grant.
    pub version: u32,
    /// A later size that the node could not apply.
    pub refused: Option<RefusedResize>,
    /// Phase on the node.
    pub phase: ContainerPhase,
    /// Charged memory. Bytes.
    pub used: Option<Bytes>,
    /// Time of the grant.
    pub granted: UnixMillis,
}

/// Size that a node could not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedResize {
    /// Version of the order.
    pub version: u32,
    /// Reason for users.
    pub why: String,
}

/// Phase of a container on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerPhase {
    /// The node prepares it.
    Preparing,
    /// The node starts it.
    Starting,
    /// Its program runs.
    Running,
    /// The node stops it.
    Stopping,
    /// It ended.
    Exited,
}

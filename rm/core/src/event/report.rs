//! What a node says: when it comes, and with every sign of life.
//!
//! Plain data.

use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, RequestId, Resource, UnixMillis};

use super::Traits;

/// What a node says when it comes.
#[derive(Clone, Debug)]
pub struct Registration {
    /// What it offers.
    pub offers: Resource,
    /// What holds its containers to their limits.
    pub enforcer: EnforcerKind,
    /// Where its own interface listens.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Where it stands and what it is.
    pub traits: Traits,
    /// Whether it can take work.
    pub health: Health,
    /// Every container it has.
    pub seen: Vec<Seen>,
    /// Ends that nobody has acknowledged.
    pub exits: Vec<ExitReport>,
    /// Above that of every registration it sent before; 0 when it does not say.
    pub serial: u64,
    /// What ended containers have left on it.
    pub unattributed: Unattributed,
}

/// A node's sign of life.
#[derive(Clone, Debug)]
pub struct Report {
    /// The life of the resource manager it speaks to.
    pub epoch: Epoch,
    /// Containers, with their use.
    pub seen: Vec<Seen>,
    /// Ends that nobody has acknowledged.
    pub exits: Vec<ExitReport>,
    /// In use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Whether it can take work.
    pub health: Health,
    /// What ended containers have left on it.
    pub unattributed: Unattributed,
}

/// Whether a node can take work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot.
    Unhealthy {
        /// Why.
        reason: String,
    },
}

/// A container as its node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which.
    pub container: ContainerId,
    /// The request it was granted for; `None` for a master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// The version of that size; 1 for the one it was granted with.
    pub version: u32,
    /// A later size it could not be given.
    pub refused: Option<RefusedSize>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Memory charged to it. Bytes.
    pub used: Option<Bytes>,
    /// When it was granted.
    pub granted: UnixMillis,
}

/// A size that a node could not give a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSize {
    /// The version of the order.
    pub version: u32,
    /// Why, for people.
    pub why: String,
}

/// Where a container is in its life on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Being made.
    Preparing,
    /// Being started.
    Starting,
    /// Its program runs.
    Running,
    /// It was told to end.
    Stopping,
    /// It ended.
    Exited,
}

//! Between node agents and the resource manager: one level-triggered sync.
//!
//! Down goes what the node should have ([`Desired`], pushed over one long answer); up goes what it has ([`NodeReport`], sent at
//! once when something changes, and every second as a sign of life). Both may be repeated without harm.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::exit::LeftBy;
use headroom_types::{
    AppId, Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, Name, NodeId, RequestId, Resource, StopCause, UnixMillis,
};
use serde::{Deserialize, Serialize};

use super::acl::Secret;
use super::am::LaunchSpec;

/// `POST /v1/nodes/{node}/register`. Answer: [`NodeRegistered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterNode {
    /// What it offers.
    pub offers: Resource,
    /// What holds its containers to their limits.
    pub enforcer: EnforcerKind,
    /// Where its own HTTP interface listens: `http://127.0.0.1:7072`.
    pub url: String,
    /// Whether its enforcer proved itself; the reason when not.
    pub health: Health,
    /// Version of the agent.
    pub version: String,
    /// Where it stands and what it is.
    #[serde(default)]
    pub traits: NodeTraits,
    /// Every container it has, running or ended and not yet acknowledged.
    pub containers: Vec<Observed>,
    /// Reports of ends that no resource manager has acknowledged.
    pub exits: Vec<ExitReport>,
    /// The word by which it knows whoever it has registered with, when that wants to reach into a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Above that of every registration this node sent before, so that one that was overtaken on its way is known. The agent counts on from
    /// the time, in milliseconds; one that is refused is told in `above` what to count on from. 0 when it does not say.
    #[serde(default)]
    pub serial: u64,
    /// Memory that ended containers left behind, as in [`NodeReport`]. Bytes.
    #[serde(default, skip_serializing_if = "nothing")]
    pub unattributed: Bytes,
    /// Who left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftBy>,
}

/// An agent that has nothing to report of it says nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn nothing(bytes: &Bytes) -> bool {
    bytes.is_zero()
}

/// Where a node stands and what it is, for placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeTraits {
    /// Nodes of one rack fail together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Name>,
    /// Words a request can insist on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Only requests that insist on one of its labels come here.
    #[serde(default)]
    pub exclusive: bool,
    /// Named values a request can compare.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Only requests that tolerate every one of these come here, by name; the value may be empty. What runs stays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

/// Whether a node can take work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot.
    Unhealthy {
        /// Why.
        reason: String,
    },
}

/// The node is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeRegistered {
    /// Put this into every message.
    pub epoch: Epoch,
    /// Ends that the resource manager has taken in: forget them.
    pub acked: Vec<ContainerId>,
}

/// A container as the node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Observed {
    /// Its id.
    pub container: ContainerId,
    /// The request it was granted for; `None` for an application master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// The version of that size; 1 for the one it was granted with.
    #[serde(default = "first")]
    pub version: u32,
    /// A later size it could not be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSize>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Memory charged to it now. Bytes.
    #[serde(default)]
    pub used: Option<Bytes>,
    /// Anonymous memory of it. Bytes.
    #[serde(default)]
    pub anon: Option<Bytes>,
    /// When it was granted, as the resource manager said.
    pub granted: UnixMillis,
}

fn first() -> u32 {
    1
}

/// A size that a node could not give a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedSize {
    /// The version of the order.
    pub version: u32,
    /// Why, for people.
    pub why: String,
}

/// Where a container is in its life on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Directory, files and cgroup are being made.
    Preparing,
    /// Its shim was started.
    Starting,
    /// Its program runs.
    Running,
    /// It was told to end.
    Stopping,
    /// It ended; its report waits for an acknowledgement.
    Exited,
}

/// `GET /v1/nodes/{node}/desired?epoch=E`: one line of JSON each, for as long as the node listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Desired {
    /// The life of the resource manager.
    pub epoch: Epoch,
    /// True for the first line: what is not named in it is not wanted. Later lines name changes only.
    pub full: bool,
    /// What the node should have. An empty line of this kind is a sign of life.
    pub containers: Vec<DesiredContainer>,
}

/// What should become of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DesiredContainer {
    /// Which one.
    pub container: ContainerId,
    /// What is wanted.
    #[serde(flatten)]
    pub want: Want,
}

/// What is wanted of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "want", rename_all = "snake_case")]
pub enum Want {
    /// It should run, with this size. A node that has it already, with an earlier version of the size, gives it this one.
    Run(Box<RunOrder>),
    /// It should end.
    Stop {
        /// Why, for its exit report.
        cause: StopCause,
    },
    /// Its report has been taken in: forget it.
    Forget,
}

/// A grant with its launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunOrder {
    /// Whose it is.
    pub app: AppId,
    /// The request; `None` for an application master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size: the limit.
    pub resource: Resource,
    /// The version of that size.
    #[serde(default = "first")]
    pub version: u32,
    /// What to run.
    pub launch: LaunchSpec,
    /// Who submitted the application; the node decides whom that makes it run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was granted.
    pub granted: UnixMillis,
    /// By which it proves to the resource manager whose it is. Written into a file for it, and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

/// `POST /v1/nodes/{node}/report`. Answer: [`NodeReportReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// The life of the resource manager it speaks to. Another one answers HR0410: register again.
    pub epoch: Epoch,
    /// Containers that changed since the last report; on a sign of life all of them, with their use.
    pub containers: Vec<Observed>,
    /// Ends not yet acknowledged; repeated until they are.
    pub exits: Vec<ExitReport>,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Whether it can take work.
    pub health: Health,
    /// What became of its configuration when it was last read again; repeated until a report with it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Reload>,
    /// Memory charged to the node's containers together that no running container holds and that cannot be reclaimed: files on a tmpfs of
    /// the host, shared memory. A lower bound; 0 below a hundredth of what the node offers. Bytes.
    #[serde(default, skip_serializing_if = "nothing")]
    pub unattributed: Bytes,
    /// The containers that left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftBy>,
}

/// A node's configuration was read again while it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reload {
    /// When, by the clock of the node: tells one from another.
    pub at: UnixMillis,
    /// It has mistakes, and nothing has changed.
    pub refused: bool,
    /// Which keys hold now, and which wait for a restart; or the first mistake.
    pub message: String,
}

/// Answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeReportReply {
    /// Ends that the resource manager has taken in: it will say `forget` once the application has them too.
    pub received: Vec<ContainerId>,
}

/// `GET /v1/nodes`, `GET /v1/nodes/{node}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeView {
    /// Its name.
    pub id: NodeId,
    /// `ready`, `cordoned`, `unhealthy`, `suspect`, `unreachable`, `lost`, `draining`, `drained` or `decommissioned`.
    pub state: String,
    /// Why it is not ready.
    pub reason: Option<String>,
    /// What holds its containers to their limits.
    pub enforcer: EnforcerKind,
    /// What it offers.
    pub offers: Resource,
    /// What is granted on it.
    pub allocated: Resource,
    /// Heap budgets of the containers on it, where declared. Bytes.
    pub allocated_heap: Bytes,
    /// In use by its containers. Bytes.
    pub used: Bytes,
    /// In use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Memory that ended containers left behind and no running container holds. It counts as taken. Bytes.
    #[serde(default)]
    pub unattributed: Bytes,
    /// The containers that left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftBy>,
    /// Containers on it.
    pub containers: u32,
    /// Where its own HTTP interface listens.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Where it stands and what it is, by its agent and its operators together.
    #[serde(default)]
    pub traits: NodeTraits,
    /// What of that, and what else, operators said of it.
    #[serde(default, skip_serializing_if = "NodeTags::is_empty")]
    pub tags: Box<NodeTags>,
    /// Its last sign of life, milliseconds ago.
    pub silent_ms: u64,
    /// What an operator decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<NodeMark>,
    /// The most that its containers had at once in the last hour, as it was reported. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_1h: Option<Bytes>,
}

impl NodeView {
    /// Memory that containers can still have there. Bytes.
    pub fn free_memory(&self) -> Bytes {
        self.offers.memory.saturating_sub(self.unattributed).saturating_sub(self.allocated.memory)
    }
    /// What ended containers have left there, in words; `None` when that is nothing.
    pub fn left_words(&self) -> Option<String> {
        (!self.unattributed.is_zero()).then(|| format!("{} left behind by ended containers", self.unattributed))
    }
    /// Why it takes no work: what it says of itself, or what an operator decided.
    pub fn because(&self) -> Option<&str> {
        let decided = || self.mark.as_ref().map(|mark| mark.reason.as_str()).or(self.tags.cordon.as_deref());
        self.reason.as_deref().or_else(decided).filter(|reason| !reason.is_empty())
    }
    /// The verb of `rmctl node` by which it takes work again, where an operator decided that it does not.
    pub fn way_back(&self) -> Option<&'static str> {
        match (&self.mark, &self.tags.cordon) {
            (Some(_), _) => Some("undrain"),
            (None, Some(_)) => Some("uncordon"),
            (None, None) => None,
        }
    }
}

/// What operators say of a node, whether or not it is here. Its agent's own words stay beneath.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeTags {
    /// It gets no new containers, for this reason; those it has stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// Words a request can insist on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Named values a request can compare; they go before those of its agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Only requests that tolerate every one of these come here. The value may be empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

impl NodeTags {
    /// Nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == NodeTags::default()
    }
}

/// `PATCH /v1/nodes/{node}`: what operators say of a node. What is not named stays as it is. Answer: [`NodeView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TagNode {
    /// True: it gets no new containers, and those it has stay. False: it gets some again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<bool>,
    /// Why it is cordoned, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Labels: true for one that it has from now on, false for one that is taken back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Name, bool>,
    /// Attributes: a value, or null for one that is taken back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, Option<String>>,
    /// Taints: a value, which may be empty, or null for one that is taken back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, Option<String>>,
}

/// A node is to be empty, or gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeMark {
    /// For people.
    pub reason: String,
    /// When what is left on it is stopped.
    pub until: Option<UnixMillis>,
    /// Whether it leaves the cluster once it is empty.
    pub decommission: bool,
    /// Whether it is empty.
    pub drained: bool,
}

/// `POST /v1/nodes/{node}/drain`: no new work; what is on it may end by itself until the deadline. Answer: [`NodeView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainNode {
    /// How long its containers have. Seconds; for ever when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// For people.
    pub reason: String,
    /// It leaves the cluster once it is empty, and cannot come back until it is undrained.
    #[serde(default)]
    pub decommission: bool,
}

//! Protocol between node agents and the resource manager: one level-triggered sync.
//!
//! The resource manager sends the desired containers ([`DesiredStateLine`]) in one long response.
//! The node sends its observed containers ([`NodeReport`]) at once after a change, and every second
//! as a heartbeat. Both messages may be repeated.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::exit::LeftoverOwner;
use headroom_types::{
    AppId, Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, LaunchSpec, Name, NodeId,
    RequestId, Resource, StopCause, UnixMillis,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::acl::SecretText;

/// `POST /v1/nodes/{node}/register`. Response: [`NodeRegistered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterNode {
    /// Resources of the node.
    pub offers: Resource,
    /// Enforcer of container limits.
    pub enforcer: EnforcerKind,
    /// URL of its own HTTP interface: `http://127.0.0.1:7072`.
    pub url: String,
    /// Result of the enforcer's self-test, with the reason of a failure.
    pub health: NodeHealthState,
    /// Version of the agent.
    pub version: String,
    /// Rack, labels, attributes and taints.
    #[serde(default)]
    pub traits: NodeTraits,
    /// All its containers: running, or ended and not yet acknowledged.
    pub containers: Vec<ObservedContainer>,
    /// Exit reports that no resource manager has acknowledged.
    pub exits: Vec<ExitReport>,
    /// Secret by which the node authenticates its resource manager for container access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Sequence number of the registration, larger than in every earlier registration of the node.
    /// It detects delayed registrations. The agent starts from the time in milliseconds; a rejected
    /// agent continues above the value in `above`. 0 if not sent.
    #[serde(default)]
    pub serial: u64,
    /// Memory that ended containers left behind, as in [`NodeReport`]. Bytes.
    #[serde(default, skip_serializing_if = "nothing")]
    pub unattributed: Bytes,
    /// Containers that left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftoverOwner>,
}

/// True for a zero amount, which an agent does not serialize.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn nothing(bytes: &Bytes) -> bool {
    bytes.is_zero()
}

/// Location and properties of a node, for placement.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(deny_unknown_fields)]
pub struct NodeTraits {
    /// Rack; nodes of one rack fail together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<Name>,
    /// Labels that a request can require.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Accept only requests that require one of its labels.
    #[serde(default)]
    pub exclusive: bool,
    /// Named values that a request can compare.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Taints by name; the value may be empty. Only requests that tolerate every taint are placed
    /// here. Running containers stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

/// Health of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum NodeHealthState {
    /// The node can take work.
    Healthy,
    /// The node cannot take work.
    Unhealthy {
        /// The reason.
        reason: String,
    },
}

/// The response to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRegistered {
    /// Epoch that every later message must carry.
    pub epoch: Epoch,
    /// Container ends that the resource manager has recorded; the node forgets them.
    pub acked: Vec<ContainerId>,
    /// Interval between heartbeats of the node. Milliseconds. Earlier resource managers send none,
    /// and expect 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
}

/// A container, as observed by the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObservedContainer {
    /// Its id.
    pub container: ContainerId,
    /// The request it was granted for; `None` for an application master.
    pub request: Option<RequestId>,
    /// Run of its master in which it was granted, from 1.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// Version of that size; 1 for the granted size.
    #[serde(default = "first")]
    pub version: u32,
    /// A later size that the node could not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSizeReport>,
    /// Phase of the container.
    pub phase: NodeContainerPhase,
    /// Memory charged to it now. Bytes.
    pub used: Option<Bytes>,
    /// Anonymous memory. Bytes.
    pub anon: Option<Bytes>,
    /// Time of the grant, as sent by the resource manager.
    pub granted: UnixMillis,
}

fn first() -> u32 {
    1
}

/// A size that a node could not apply to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedSizeReport {
    /// The version of the order.
    pub version: u32,
    /// The reason, for users.
    pub why: String,
}

/// Phase of a container on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeContainerPhase {
    /// The agent creates its directory, files and cgroup.
    Preparing,
    /// Its shim has started.
    Starting,
    /// Its program runs.
    Running,
    /// The agent has signalled it to end.
    Stopping,
    /// Ended; its exit report awaits an acknowledgement.
    Exited,
}

/// `GET /v1/nodes/{node}/desired?epoch=E`: one JSON object per line, for as long as the node reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredStateLine {
    /// Epoch of the resource manager.
    pub epoch: Epoch,
    /// True when containers that the line does not name are not desired; the first line of a resource
    /// manager of an earlier version. Otherwise the node keeps them as they are: the first line has
    /// what the resource manager wants beyond the node's latest reports, and the others are changes.
    pub full: bool,
    /// Desired containers. A line without containers is a heartbeat.
    pub containers: Vec<DesiredContainer>,
}

/// The desired state of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredContainer {
    /// The container.
    pub container: ContainerId,
    /// The desired state.
    #[serde(flatten)]
    pub want: ContainerDesiredState,
}

/// The desired state of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "want", rename_all = "snake_case")]
pub enum ContainerDesiredState {
    /// Run with this size. A node that runs it with an earlier version of the size applies this
    /// size.
    Run(Box<RunOrder>),
    /// Stop.
    Stop {
        /// Cause, for its exit report.
        cause: StopCause,
    },
    /// Forget it; its exit report is recorded.
    Forget,
}

/// A grant with its launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunOrder {
    /// Application that owns the container.
    pub app: AppId,
    /// The request; `None` for an application master.
    pub request: Option<RequestId>,
    /// Run of its master in which it was granted, from 1.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size; the memory is the limit.
    pub resource: Resource,
    /// The version of that size.
    #[serde(default = "first")]
    pub version: u32,
    /// Command, environment and files.
    pub launch: LaunchSpec,
    /// User that submitted the application. The node maps it to a local account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time of the grant.
    pub granted: UnixMillis,
    /// Token that authenticates the application at the resource manager. The node writes it into
    /// one file for the container and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretText>,
}

/// `POST /v1/nodes/{node}/report`. Response: [`NodeReportReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Epoch of the resource manager. Another epoch is answered with HR0410: register again.
    pub epoch: Epoch,
    /// Containers that changed since the last report; in a heartbeat all containers, with their
    /// use.
    pub containers: Vec<ObservedContainer>,
    /// Exit reports that are not yet acknowledged; repeated until they are.
    pub exits: Vec<ExitReport>,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Health of the node.
    pub health: NodeHealthState,
    /// Result of the last configuration reload; repeated until a report with it is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<ConfigReload>,
    /// Memory charged to the node's containers together that no running container holds and that
    /// cannot be reclaimed: files on a tmpfs of the host, shared memory. A lower bound; 0 below 1 %
    /// of the node's memory. Bytes.
    #[serde(default, skip_serializing_if = "nothing")]
    pub unattributed: Bytes,
    /// The containers that left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftoverOwner>,
}

/// A configuration reload of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigReload {
    /// Time on the clock of the node; identifies the reload.
    pub at: UnixMillis,
    /// True if the configuration has errors; then nothing changed.
    pub refused: bool,
    /// Keys in force and keys that wait for a restart; or the first error.
    pub message: String,
}

/// The response to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeReportReply {
    /// Container ends that the resource manager has recorded. It orders `forget` after the
    /// application has recorded them too.
    pub received: Vec<ContainerId>,
    /// Interval between heartbeats of the node from now on, as in the response to its registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
}

/// `GET /v1/nodes`, `GET /v1/nodes/{node}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub id: NodeId,
    /// `ready`, `cordoned`, `unhealthy`, `suspect`, `unreachable`, `lost`, `draining`, `drained` or
    /// `decommissioned`.
    pub state: String,
    /// Reason that it is not ready.
    pub reason: Option<String>,
    /// Enforcer of container limits.
    pub enforcer: EnforcerKind,
    /// Resources of the node.
    pub offers: Resource,
    /// Granted resources.
    pub allocated: Resource,
    /// Heap budgets of the containers on it, where declared. Bytes.
    pub allocated_heap: Bytes,
    /// Memory in use by its containers. Bytes.
    pub used: Bytes,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Memory that ended containers left behind and no running container holds. It counts as used.
    /// Bytes.
    #[serde(default)]
    pub unattributed: Bytes,
    /// The containers that left it, largest first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftoverOwner>,
    /// Containers on it.
    pub containers: u32,
    /// URL of its own HTTP interface.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Rack, labels, attributes and taints, of its agent and its operators combined.
    #[serde(default)]
    pub traits: NodeTraits,
    /// Settings of operators for the node.
    #[serde(default, skip_serializing_if = "OperatorTags::is_empty")]
    pub tags: Box<OperatorTags>,
    /// Time since the last heartbeat. Milliseconds.
    pub silent_ms: u64,
    /// Drain or decommission of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<NodeDrainMark>,
    /// Largest reported memory use of its containers in the last hour. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_1h: Option<Bytes>,
}

impl NodeView {
    /// Memory that is free for containers. Bytes.
    pub fn free_memory(&self) -> Bytes {
        self.offers
            .memory
            .saturating_sub(self.unattributed)
            .saturating_sub(self.allocated.memory)
    }
    /// Memory that ended containers left behind, in words; `None` for zero.
    pub fn leftover_text(&self) -> Option<String> {
        (!self.unattributed.is_zero())
            .then(|| format!("{} left behind by ended containers", self.unattributed))
    }
    /// Reason that it takes no work: reported by the node, or set by an operator.
    pub fn not_ready_reason(&self) -> Option<&str> {
        let decided = || {
            self.mark
                .as_ref()
                .map(|mark| mark.reason.as_str())
                .or(self.tags.cordon.as_deref())
        };
        self.reason
            .as_deref()
            .or_else(decided)
            .filter(|reason| !reason.is_empty())
    }
    /// The `rmctl node` verb that undoes an operator's mark, if there is one.
    pub fn undo_verb(&self) -> Option<&'static str> {
        match (&self.mark, &self.tags.cordon) {
            (Some(_), _) => Some("undrain"),
            (None, Some(_)) => Some("uncordon"),
            (None, None) => None,
        }
    }
}

/// Settings of operators for a node, known or not yet registered. They extend the settings of its
/// agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorTags {
    /// Reason of the cordon; with one, the node gets no new containers and keeps its running ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// Labels that a request can require.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Named values that a request can compare; they override those of the agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Taints by name; the value may be empty. Only requests that tolerate every taint are placed
    /// here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

impl OperatorTags {
    /// True without any setting.
    pub fn is_empty(&self) -> bool {
        *self == OperatorTags::default()
    }
}

/// `PATCH /v1/nodes/{node}`: change the settings of operators. Omitted fields stay unchanged.
/// Response: [`NodeView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TagNodeRequest {
    /// True: no new containers; running containers stay. False: new containers again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<bool>,
    /// Reason of the cordon, for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Labels: true adds one, false removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Name, bool>,
    /// Attributes: a value sets one, null removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, Option<String>>,
    /// Taints: a value, which may be empty, sets one; null removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, Option<String>>,
}

/// Drain or decommission of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrainMark {
    /// Reason, for users.
    pub reason: String,
    /// Time at which the remaining containers are stopped.
    pub until: Option<UnixMillis>,
    /// True if the node leaves the cluster when it is empty.
    pub decommission: bool,
    /// True if it is empty.
    pub drained: bool,
}

/// `POST /v1/nodes/{node}/drain`: no new work; running containers may end until the deadline.
/// Response: [`NodeView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainNodeRequest {
    /// Time for running containers to end; unlimited if omitted. Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// Reason, for users.
    pub reason: String,
    /// Decommission: the node leaves the cluster when it is empty and cannot register until it is
    /// undrained.
    #[serde(default)]
    pub decommission: bool,
}

//! Protocol between an application master and the resource manager.
//!
//! Requests are absolute: `count` is the total number of containers of a request over the life of
//! the application. Sending a request again changes nothing. A master requests a replacement of a
//! lost container with a larger `count`.

use std::collections::{BTreeMap, BTreeSet};

pub use headroom_types::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, RelaxationPolicy,
};
use headroom_types::{
    AttemptId, Bytes, ContainerId, Epoch, ExitReport, LaunchSpec, Name, NodeId, RequestId,
    Resource, ScaleOrder, TaskOrder, UnixMillis,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::known_containers::{ConfirmedContainers, ContainerNumbers};

/// `POST /v1/apps/{app}/register`: register a master. Response: [`MasterRegistered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterMaster {
    /// The application attempt.
    pub attempt: AttemptId,
    /// Address at which it listens for executors: `tcp://127.0.0.1:4711`.
    pub master_url: Option<String>,
    /// Secret of the submission channel at that address; `None` without a live job. The resource
    /// manager adds it to the first line of each forwarded channel, and shows it nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_token: Option<String>,
    /// Nodes of the containers that are live as far as the master knows. A resource manager that
    /// has started accepts the registration when these nodes have registered; without this list,
    /// when all nodes have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<BTreeSet<NodeId>>,
    /// Containers that the master knows with their nodes and requests. The answer confirms those
    /// that are live, instead of listing their grants.
    #[serde(default, skip_serializing_if = "ContainerNumbers::is_empty")]
    pub containers: ContainerNumbers,
}

impl RegisterMaster {
    /// The registration of a master that listens nowhere and knows no container.
    pub fn new(attempt: AttemptId) -> Self {
        RegisterMaster {
            attempt,
            master_url: None,
            submission_token: None,
            nodes: None,
            containers: ContainerNumbers::default(),
        }
    }
}

/// The response to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MasterRegistered {
    /// Epoch that every later message must carry.
    pub epoch: Epoch,
    /// The largest container that any node and the queue could ever grant.
    pub largest: Resource,
    /// Live containers of the application, without the master's own and without the confirmed ones.
    pub containers: Vec<ContainerGrant>,
    /// Live containers that the master has named in its registration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<ConfirmedContainers>,
    /// Current cursor of the update stream.
    pub cursor: u64,
    /// Usage history of earlier jobs with its user and name; `None` without earlier jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<super::job_history::JobHistory>>,
    /// OTLP/HTTP address for traces of jobs, to which `/v1/traces` is appended. `None` without a
    /// collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces: Option<String>,
}

/// What the entry of one group counts in the size of a journal, besides its records. Bytes.
pub const JOURNAL_GROUP_OVERHEAD: u64 = 256;

/// `GET /v1/apps/{app}/journal?attempt=N`: the journal that the resource manager keeps for the
/// masters of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredJournal {
    /// Records of all earlier attempts, as lines in the order in which they were appended.
    pub records: String,
    /// True if the journal continues on the node of an earlier master.
    pub moved: bool,
    /// Maximum size of the journal. Each group counts its records and
    /// [`JOURNAL_GROUP_OVERHEAD`]. Bytes.
    pub limit: Bytes,
}

/// `POST /v1/apps/{app}/journal`: append a group of records. Response: [`JournalAppended`], when
/// the group is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendToJournal {
    /// The current attempt.
    pub attempt: AttemptId,
    /// Offset of the group among the bytes that this attempt has appended. The same group at the
    /// same offset is acknowledged again; any other group that does not follow the last one is a
    /// conflict.
    pub offset: u64,
    /// Records as lines, at most 1 MiB.
    pub records: String,
    /// True if the journal continues on the node of this master: the resource manager removes its
    /// records. `records` is empty then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

/// The response to an append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalAppended {
    /// Offset after the group.
    pub end: u64,
}

/// A granted container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerGrant {
    /// Its id.
    pub container: ContainerId,
    /// Its request.
    pub request: RequestId,
    /// Its node.
    pub node: NodeId,
    /// Its size.
    pub resource: Resource,
    /// Run of the master to which it was granted; 0 if not reported.
    #[serde(default)]
    pub attempt: u32,
    /// True if its program runs. The answer to a registration lists containers of both kinds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
}

/// One container request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// Request id, chosen by the application.
    pub request: RequestId,
    /// Size of each container.
    pub resource: Resource,
    /// Total number of containers: live, ended, and still to be granted.
    pub count: u32,
    /// Containers whose end the master has recorded. A restarted resource manager needs it to count
    /// correctly.
    #[serde(default)]
    pub ended: u32,
    /// Priority within the application; higher values go first.
    #[serde(default)]
    pub priority: i32,
    /// Nodes to avoid while another node fits.
    #[serde(default)]
    pub avoid_nodes: Vec<NodeId>,
    /// Allowed nodes; empty for any.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
    /// Constraints and preferences of placement.
    #[serde(default, skip_serializing_if = "Placement::is_any")]
    pub placement: Box<Placement>,
    /// Maximum waiting time, from the first reception of the request. Missing containers expire
    /// then. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Waiting time so far. Used if the request is new to the resource manager, such as after its
    /// restart; the deadline continues from there. Milliseconds.
    #[serde(default, skip_serializing_if = "none_yet")]
    pub waited_ms: u64,
    /// Launch of each container. Boxed, because it is much larger than the other fields.
    pub launch: Box<LaunchSpec>,
}

impl PlacementRequest {
    /// One container on any node, with the default priority and without a deadline.
    pub fn new(request: RequestId, resource: Resource, launch: LaunchSpec) -> Self {
        PlacementRequest {
            request,
            resource,
            count: 1,
            ended: 0,
            priority: 0,
            avoid_nodes: Vec::new(),
            nodes: Vec::new(),
            placement: Box::default(),
            deadline_ms: None,
            waited_ms: 0,
            launch: Box::new(launch),
        }
    }
}

fn none_yet(ms: &u64) -> bool {
    *ms == 0
}

/// Constraints and preferences of placement. Empty for any node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Allowed racks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<Name>,
    /// Racks to avoid while another rack fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_racks: Vec<Name>,
    /// Preferred nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer_nodes: Vec<NodeId>,
    /// Preferred racks, used after the preferred nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer_racks: Vec<Name>,
    /// Relaxation of the preference when the preferred nodes and racks are full.
    pub relax: RelaxationPolicy,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Conditions on attributes of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, AttributeMatch>,
    /// Tolerated taints by name: with this value, or with any value if null.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tolerate: BTreeMap<Name, Option<String>>,
    /// Anti-affinity to other requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<AntiAffinityRule>,
    /// Spread evenly over nodes or racks instead of packing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<PlacementLevel>,
}

impl Placement {
    /// True without constraints and preferences.
    pub fn is_any(&self) -> bool {
        *self == Placement::default()
    }
}

/// The immediate verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum PlacementVerdict {
    /// It fits now, or all its containers are granted.
    Fits,
    /// It waits.
    Waits {
        /// The reason in one sentence.
        sentence: String,
    },
    /// Infeasible: no node can ever satisfy it.
    Never {
        /// The reason in one sentence that names the largest node.
        sentence: String,
        /// The largest container that any node could ever grant.
        largest: Resource,
    },
}

/// `POST /v1/apps/{app}/requests` takes one [`PlacementRequest`] under `ask`. Response:
/// [`PlacementResponse`]. Instead of `never` the response is the error HR0422.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementResponse {
    /// The request.
    pub request: RequestId,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: PlacementVerdict,
}

/// `POST /v1/apps/{app}/sync`: heartbeat, requests, releases and acknowledgement in one. Response:
/// [`MasterSyncReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MasterSync {
    /// The application attempt.
    pub attempt: AttemptId,
    /// Epoch of the resource manager. Another epoch is answered with HR0410: register again.
    pub epoch: Epoch,
    /// Cursor up to which all updates are recorded.
    #[serde(default)]
    pub ack: u64,
    /// New or changed requests; other requests stay unchanged.
    #[serde(default)]
    pub asks: Vec<PlacementRequest>,
    /// Requests to withdraw.
    #[serde(default)]
    pub drop: Vec<RequestId>,
    /// Containers to stop.
    #[serde(default)]
    pub release: Vec<ContainerId>,
    /// Changed rows of the job view.
    pub job: Option<super::job::JobViewPatch>,
}

/// The response to a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MasterSyncReply {
    /// One verdict per request, in the same order.
    pub verdicts: Vec<PlacementResponse>,
    /// True if the application was killed: the master must stop.
    pub stop: bool,
}

/// `POST /v1/apps/{app}/finish`: the end of the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishApplicationRequest {
    /// The application attempt.
    pub attempt: AttemptId,
    /// True for success.
    pub succeeded: bool,
    /// Reason of a failure, or result.
    #[serde(default)]
    pub diagnostics: String,
    /// The rows of the job that changed since the previous report, or all of them.
    pub job: Option<super::job::JobViewPatch>,
}

/// `GET /v1/apps/{app}/updates?cursor=N`: one JSON object per line, from after cursor N, for as
/// long as the caller reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplicationUpdate {
    /// Sequence number without gaps within one application and epoch.
    pub cursor: u64,
    /// The content.
    #[serde(flatten)]
    pub what: ApplicationUpdateKind,
}

/// The content of an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApplicationUpdateKind {
    /// A container is granted and on its way to the node.
    Allocated(ContainerGrant),
    /// The program of a container runs.
    Running {
        /// The container.
        container: ContainerId,
    },
    /// A container ended. Repeated until acknowledged; the handler must be idempotent.
    Exited {
        /// The request of the container.
        request: RequestId,
        /// The verdict of the node.
        report: Box<ExitReport>,
    },
    /// The node of a container applied another size.
    Resized {
        /// The container.
        container: ContainerId,
        /// Its size now.
        resource: Resource,
        /// Version of that size.
        version: u32,
    },
    /// The node of a container could not apply the requested size; the previous size stays.
    ResizeFailed {
        /// The container.
        container: ContainerId,
        /// Its size.
        resource: Resource,
        /// Version of that size.
        version: u32,
        /// Reason, for users.
        why: String,
    },
    /// A container will be preempted for a queue below its guarantee, unless it is released before.
    PreemptSoon {
        /// The container.
        container: ContainerId,
        /// Time of the preemption.
        at: UnixMillis,
        /// Beneficiary, for users.
        why: String,
    },
    /// A node is being drained; its containers should end by themselves.
    NodeDraining {
        /// The node.
        node: NodeId,
        /// Time at which the remaining containers are stopped.
        until: Option<UnixMillis>,
    },
    /// The deadline of a request passed; its missing containers expire.
    Expired {
        /// The request.
        request: RequestId,
        /// Reason of the wait, for users.
        why: String,
    },
    /// A command about one task. A master without this task ignores it.
    Order(TaskOrder),
    /// A command about the number of executors. A master without this set reports an event.
    Scale(ScaleOrder),
    /// Heartbeat of the stream, every few seconds; its cursor is that of the last update.
    Alive,
}

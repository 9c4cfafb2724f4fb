//! Applications: submit, list, show, kill.

use headroom_types::exit::MemorySample;
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, Epoch, ExitReason, LaunchSpec, MasterGrowth, Name,
    NodeId, QueuePath, RequestId, Resource, UnixMillis, word_enum,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::acl::AppAccess;
use super::application_master::PlacementRequest;
use super::job::JobView;

/// `POST /v1/apps`: submit an application. Response: [`SubmissionResult`], after the application is
/// durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitApplicationRequest {
    /// Name of the application.
    pub name: Name,
    /// Queue of the application.
    pub queue: Option<QueuePath>,
    /// Priority within its queue; higher values go first.
    #[serde(default)]
    pub priority: i32,
    /// Submitting user, for screens and history.
    pub user: Option<String>,
    /// Maximum lifetime from submission, after which the application is killed. The queue may have
    /// a lower maximum. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<u64>,
    /// Kind of application master.
    pub master: ApplicationMaster,
    /// Idempotency key, at most 64 characters. A repeated submission with the same key returns the
    /// existing application.
    pub idempotency_key: Option<String>,
    /// Users and groups that may view or change the application; `PUT /v1/apps/{app}/access`
    /// changes them.
    #[serde(default, skip_serializing_if = "AppAccess::is_empty")]
    pub access: AppAccess,
}

/// Kind of application master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ApplicationMaster {
    /// The resource manager launches the master in a container, and again after a failure.
    Managed {
        /// Size of its container.
        resource: Resource,
        /// Command and files of the master. Boxed, because it is much larger than the other
        /// variant.
        launch: Box<LaunchSpec>,
        /// Maximum number of runs. Failures of the platform do not count.
        #[serde(default = "two")]
        max_attempts: u32,
        /// Larger sizes after memory failures, which then do not count. Without it, every size
        /// after a memory failure is twice the one before, and every run counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        growth: Option<MasterGrowth>,
        /// Maximum time from the start of its container to its registration; the heartbeat timeout
        /// of masters if omitted. Milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        start_timeout_ms: Option<u64>,
        /// First request of the master. Its containers start along with the first run of the master,
        /// which takes the request over by sending it with the same id. A submission whose first
        /// request can never be granted is refused. Boxed, like the launch.
        #[serde(skip_serializing_if = "Option::is_none")]
        first_request: Option<Box<PlacementRequest>>,
    },
    /// The master runs outside of the cluster's containers and registers by itself.
    Unmanaged,
}

fn two() -> u32 {
    2
}

/// `GET /v1/apps/{app}/master`: the state of an application, and the address of its master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MasterAddressView {
    /// State of the application.
    pub state: AppState,
    /// Address of its master: `tcp://HOST:PORT` or `tls://HOST:PORT#PIN`; `None` before the current
    /// attempt has registered, and for a master that listens nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_url: Option<String>,
}

/// A submitted application, which survives any restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmissionResult {
    /// Its id.
    pub app: AppId,
    /// The attempt with which an unmanaged master registers.
    pub attempt: AttemptId,
    /// Epoch of the resource manager.
    pub epoch: Epoch,
}

word_enum! {
    /// State of an application.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum AppState: "is not a state of an application; use" {
        /// Durable; its master has not registered yet.
        Accepted = "accepted",
        /// Its master has registered.
        Running = "running",
        /// Its master reported the end; its containers are being stopped.
        Finishing = "finishing",
        /// Ended with success.
        Finished = "finished",
        /// Ended with failure.
        Failed = "failed",
        /// Ended on request.
        Killed = "killed",
    }
}

impl AppState {
    /// True for an ended application.
    pub fn is_final(self) -> bool {
        match self {
            AppState::Finished | AppState::Failed | AppState::Killed => true,
            AppState::Accepted | AppState::Running | AppState::Finishing => false,
        }
    }
}

/// `GET /v1/apps` returns a list of these; `GET /v1/apps/{app}` returns one, with `job`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppView {
    /// Its id.
    pub id: AppId,
    /// Its queue.
    pub queue: QueuePath,
    /// Priority; higher values go first.
    pub priority: i32,
    /// Submitting user.
    pub user: String,
    /// State.
    pub state: AppState,
    /// Reason of the end; empty while it runs.
    pub diagnostics: String,
    /// Address at which its master listens for executors.
    pub master_url: Option<String>,
    /// Number of the current run of its master.
    pub attempt: u32,
    /// Time at which its lifetime ends and it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
    /// Runs of its master, the latest last. Omitted in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    /// Whether the resource manager launches its master.
    pub managed: bool,
    /// Time of submission.
    pub submitted: UnixMillis,
    /// Time of the end.
    pub ended: Option<UnixMillis>,
    /// Current number of containers.
    pub containers: u32,
    /// Memory of those containers. Bytes.
    pub memory: Bytes,
    /// Requested containers that are not granted yet.
    pub pending: u32,
    /// Job view, as reported by its master. Omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
}

/// One run of an application master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Application attempt.
    pub id: AttemptId,
    /// `scheduled`, `launched`, `awaited`, `registered` or `recovering`; then `succeeded`,
    /// `failed`, `killed` or `over`.
    pub state: String,
    /// Its container; `None` for an unmanaged master.
    pub container: Option<ContainerId>,
    /// Its node.
    pub node: Option<NodeId>,
    /// Size of its container.
    pub resource: Option<Resource>,
    /// Start of the run.
    pub started: Option<UnixMillis>,
    /// End of the run.
    pub ended: Option<UnixMillis>,
    /// Exit reason of its container.
    pub reason: Option<ExitReason>,
    /// Whether its end counts against `max_attempts`.
    #[serde(default)]
    pub charged: bool,
    /// Reason of the failure, for users.
    #[serde(default)]
    pub diagnostics: String,
}

/// `PATCH /v1/apps/{app}`: change queue, priority or lifetime. Omitted fields stay unchanged.
/// Response: [`AppView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeApplicationRequest {
    /// New leaf queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePath>,
    /// Priority within its queue; higher values go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Maximum lifetime from submission; 0 for unlimited. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<u64>,
}

/// `POST /v1/apps/{app}/kill`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KillApplicationRequest {
    /// Reason; appears in the diagnostics of the application.
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/kill` and `…/retry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskOrderRequest {
    /// Reason, for users; recorded with the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTaskRequest {
    /// Heap and overhead together; their ratio stays unchanged. Bytes.
    pub memory: Bytes,
    /// Reason, for users; recorded with the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/priority`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrioritizeTask {
    /// Priority from -1000 to 1000; tasks with higher values start first. The default is 0.
    pub priority: i32,
    /// Reason, for users; appears in the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/scale`: set the maximum number of executors of a set. Response:
/// [`AppView`], after the master has received the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleExecutorsRequest {
    /// Executor set, as named in the job file. Optional if the job has only one set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executors: Option<Name>,
    /// Maximum number of executors at the same time; 1 to 10000.
    pub count: u32,
    /// Reason, for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/apps/{app}/why` returns a list with one entry per waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingExplanation {
    /// The waiting request.
    pub request: RequestId,
    /// Size of one container.
    pub asks: Resource,
    /// Containers that are not granted yet.
    pub missing: u32,
    /// Waiting time. Milliseconds.
    pub waiting_ms: u64,
    /// Requests ahead of it.
    pub ahead: u32,
    /// The complete reason in one sentence.
    pub sentence: String,
    /// The node that is reserved for it until enough memory is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<NodeReservation>,
    /// All nodes, the closest fit first.
    pub nodes: Vec<NodeFitExplanation>,
}

/// A node that is reserved for a request which would otherwise never find a node with enough free
/// memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeReservation {
    /// The node.
    pub node: NodeId,
    /// Free resources of the node now.
    pub free: Resource,
    /// Duration of the reservation so far. Milliseconds.
    pub for_ms: u64,
}

/// The reason that a node cannot take a container of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeFitExplanation {
    /// The node.
    pub node: NodeId,
    /// Free resources of the node.
    pub free: Resource,
    /// Total resources of the node.
    pub offers: Resource,
    /// The reason, for users.
    pub verdict: String,
    /// True if no container end on the node can help: it takes no work, or does not match the
    /// request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out: bool,
}

/// `GET /v1/containers`, `GET /v1/containers/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContainerView {
    /// Container id.
    pub id: ContainerId,
    /// Its node.
    pub node: NodeId,
    /// The request for which it was granted; `None` for an application master.
    pub request: Option<RequestId>,
    /// Its size.
    pub resource: Resource,
    /// `allocated`, `launching`, `running`, `stopping` or `exited`.
    pub state: String,
    /// Memory in use, as last reported by its node. Bytes.
    pub used: Option<Bytes>,
    /// Time of the grant.
    pub granted: UnixMillis,
    /// Exit reason.
    pub reason: Option<ExitReason>,
    /// Version of its size; 1 for the granted size.
    #[serde(default = "one")]
    pub version: u32,
    /// Run of its master in which it was granted, from 1.
    #[serde(default = "one")]
    pub attempt: u32,
    /// Time of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<UnixMillis>,
    /// Exit code of its program, if it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Largest memory use. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<Bytes>,
    /// Requested size that its node has not confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<DesiredSize>,
}

fn one() -> u32 {
    1
}

/// `GET /v1/containers/{id}/timeline`, at the resource manager and at the node agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContainerTimeline {
    /// Container id.
    pub container: ContainerId,
    /// Its current or last node.
    pub node: NodeId,
    /// Exit reason; `None` while it runs.
    pub reason: Option<ExitReason>,
    /// Memory from the start, oldest first; thinned as the list grows.
    pub samples: Vec<MemorySample>,
}

/// A requested size that the node of the container has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredSize {
    /// The requested size.
    pub resource: Resource,
    /// The version that confirms it.
    pub version: u32,
}

/// `POST /v1/containers/{id}/resize`. Response: [`ResizeAccepted`]. The size is in force when an
/// update or the container view has the same version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeContainer {
    /// Expected current version; a different version is rejected with HR0409. Omit to resize any
    /// version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// New size in full.
    pub resource: Resource,
    /// Heap budget within the new size; unchanged if omitted. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<Bytes>,
}

/// A resize that is on its way to the node, or already in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResizeAccepted {
    /// The version that confirms the size.
    pub version: u32,
}

/// `GET /v1/status`: summary of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// Version of the resource manager.
    pub version: String,
    /// Epoch of the resource manager.
    pub epoch: Epoch,
    /// Uptime. Seconds.
    pub up_s: u64,
    /// Nodes that accept work.
    pub nodes_ready: u32,
    /// All known nodes.
    pub nodes: u32,
    /// Memory of ready nodes. Bytes.
    pub memory: Bytes,
    /// Granted memory. Bytes.
    pub allocated: Bytes,
    /// Memory in use, as reported by the nodes. Bytes.
    pub used: Bytes,
    /// Processors of ready nodes.
    pub cpus: Cpus,
    /// Granted processors.
    pub cpus_allocated: Cpus,
    /// Applications that have not ended.
    pub apps_live: u32,
    /// Live containers.
    pub containers: u32,
    /// Requested containers that are not granted yet.
    pub pending: u32,
    /// Memory kills reported in the last hour.
    pub oom_1h: u32,
    /// Outcome of these kills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_1h: Option<MemoryFailureStats>,
    /// The longest waiting request, with its reason.
    pub longest_wait: Option<String>,
    /// Distinct enforcers of the nodes.
    pub enforcers: Vec<String>,
}

/// Outcome of memory failures in the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryFailureStats {
    /// Memory kills.
    pub kills: u32,
    /// Tasks that received more memory after a kill.
    pub escalated: u32,
    /// Escalated tasks that succeeded.
    pub recovered: u32,
    /// Escalated tasks that run or wait.
    pub going_on: u32,
    /// Tasks without a larger size.
    pub exhausted: u32,
    /// Memory × time of attempts that did not succeed, for any reason, in this epoch of the
    /// resource manager. Byte-seconds.
    pub wasted_byte_s: u64,
}

//! Applications: submit, list, look at, kill.

use headroom_types::exit::Sample;
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, Epoch, ExitReason, Name, NodeId, QueuePath, RequestId, Resource, UnixMillis,
};
use serde::{Deserialize, Serialize};

use super::acl::AppAccess;
use super::am::LaunchSpec;
use super::job::JobView;

/// `POST /v1/apps`: submit an application. Answer: [`Submitted`], after it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitApp {
    /// The name people will know it by.
    pub name: Name,
    /// The queue it goes to.
    #[serde(default)]
    pub queue: Option<QueuePath>,
    /// Higher goes first within its queue.
    #[serde(default)]
    pub priority: i32,
    /// Who submits, for screens and history.
    #[serde(default)]
    pub user: Option<String>,
    /// How long it may live, counted from now; it is killed then. Milliseconds. The queue may allow less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<u64>,
    /// Who runs the application master.
    pub master: Master,
    /// Sent again with the same key, the same application is answered instead of a second one made. At most 64 characters.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Whom its owner lets come near it from the beginning; `PUT /v1/apps/{app}/access` changes it.
    #[serde(default, skip_serializing_if = "AppAccess::is_nobody")]
    pub access: AppAccess,
}

/// Who runs the application master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Master {
    /// The resource manager launches it in a container, and again when it fails.
    Managed {
        /// Its container.
        resource: Resource,
        /// What to run in it. Boxed: it is much larger than the other kind.
        launch: Box<LaunchSpec>,
        /// How many runs it may have; failures of the platform are not counted.
        #[serde(default = "two")]
        max_attempts: u32,
    },
    /// Runs beside the user and registers by itself.
    Unmanaged,
}

fn two() -> u32 {
    2
}

/// The application exists and survives any restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Submitted {
    /// Its id.
    pub app: AppId,
    /// The attempt an unmanaged master registers as.
    pub attempt: AttemptId,
    /// The resource manager's life.
    pub epoch: Epoch,
}

/// Where an application is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AppState {
    /// Durable; its master has not registered.
    Accepted,
    /// Its master has registered.
    Running,
    /// Its master said that it is done; containers are being stopped.
    Finishing,
    /// Done, and it succeeded.
    Finished,
    /// Done, and it failed.
    Failed,
    /// Ended on request.
    Killed,
}

impl AppState {
    /// True when nothing will happen any more.
    pub fn is_final(self) -> bool {
        match self {
            AppState::Finished | AppState::Failed | AppState::Killed => true,
            AppState::Accepted | AppState::Running | AppState::Finishing => false,
        }
    }
    /// The name in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            AppState::Accepted => "accepted",
            AppState::Running => "running",
            AppState::Finishing => "finishing",
            AppState::Finished => "finished",
            AppState::Failed => "failed",
            AppState::Killed => "killed",
        }
    }
}

/// `GET /v1/apps` answers a list of these, `GET /v1/apps/{app}` one, with `job`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppView {
    /// Its id.
    pub id: AppId,
    /// Its queue.
    pub queue: QueuePath,
    /// Higher goes first.
    pub priority: i32,
    /// Who submitted it.
    pub user: String,
    /// Where it is in its life.
    pub state: AppState,
    /// Why it ended as it did; empty while it runs.
    pub diagnostics: String,
    /// Where its master listens for executors.
    pub master_url: Option<String>,
    /// The current run of its master.
    pub attempt: u32,
    /// When its time is over and it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
    /// The runs of its master, the latest last. Left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    /// Whether the resource manager launches its master.
    pub managed: bool,
    /// When it was accepted.
    pub submitted: UnixMillis,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// Containers it has now.
    pub containers: u32,
    /// Memory of those containers. Bytes.
    pub memory: Bytes,
    /// Containers asked for and not yet granted.
    pub pending: u32,
    /// What its master tells of its tasks. Left out of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
}

/// One run of an application's master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptView {
    /// Which.
    pub id: AttemptId,
    /// `scheduled`, `launched`, `awaited`, `registered` or `recovering`; then `succeeded`, `failed`, `killed` or `over`.
    pub state: String,
    /// Its container; `None` for a master that runs beside its user.
    pub container: Option<ContainerId>,
    /// Where it ran.
    pub node: Option<NodeId>,
    /// Size of its container.
    pub resource: Option<Resource>,
    /// When it began.
    pub started: Option<UnixMillis>,
    /// When it was over.
    pub ended: Option<UnixMillis>,
    /// How its container ended.
    pub reason: Option<ExitReason>,
    /// Whether its end counts against `max_attempts`.
    #[serde(default)]
    pub charged: bool,
    /// How it failed, for people.
    #[serde(default)]
    pub diagnostics: String,
}

/// `PATCH /v1/apps/{app}`: another queue, another priority, another end of its time. What is left out stays. Answer: [`AppView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeApp {
    /// The leaf it goes on in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePath>,
    /// Higher goes first within its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// How long it may live, counted from its submission; 0 for as long as it likes. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<u64>,
}

/// `POST /v1/apps/{app}/kill`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KillApp {
    /// Kept in its diagnostics.
    #[serde(default)]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/kill` and `…/retry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OrderTask {
    /// Why, for people: kept with the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeTask {
    /// Heap and overhead together, parted as they are now. Bytes.
    pub memory: Bytes,
    /// Why, for people: kept with the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/tasks/{stage}/{index}/priority`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RankTask {
    /// Tasks with a higher one begin first; 0 is the usual. From -1000 to 1000.
    pub priority: i32,
    /// Why, for people: told in the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/apps/{app}/scale`: how many executors of a set it may have at once from now on. Answer: [`AppView`], once its master is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScaleApp {
    /// Which set, as the job file calls it; the only one there is when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executors: Option<Name>,
    /// So many at most; 1 to 10000.
    pub count: u32,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/apps/{app}/why` answers a list: one for each request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyPending {
    /// The request that waits.
    pub request: RequestId,
    /// Size of one of its containers.
    pub asks: Resource,
    /// How many are still to come.
    pub missing: u32,
    /// How long it has waited. Milliseconds.
    pub waiting_ms: u64,
    /// Requests that go before it.
    pub ahead: u32,
    /// The whole reason in one sentence.
    pub sentence: String,
    /// The node that is kept free for it until it has enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// Each node, closest first.
    pub nodes: Vec<WhyNode>,
}

/// A node that is kept for a request which would otherwise never find one with enough room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reserved {
    /// The node.
    pub node: NodeId,
    /// What is free on it now.
    pub free: Resource,
    /// Since when it is kept. Milliseconds ago.
    pub for_ms: u64,
}

/// Why not on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyNode {
    /// The node.
    pub node: NodeId,
    /// What is free on it.
    pub free: Resource,
    /// What it offers in all.
    pub offers: Resource,
    /// The reason, for people.
    pub verdict: String,
    /// No end of a container there would help: it takes no work, or is none that was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out: bool,
}

/// `GET /v1/containers`, `GET /v1/containers/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContainerView {
    /// Its id.
    pub id: ContainerId,
    /// Where it is.
    pub node: NodeId,
    /// Which request it was granted for; `None` for an application master.
    pub request: Option<RequestId>,
    /// Its size.
    pub resource: Resource,
    /// `allocated`, `launching`, `running`, `stopping` or `exited`.
    pub state: String,
    /// Memory in use, as last told by its node. Bytes.
    pub used: Option<Bytes>,
    /// When it was granted.
    pub granted: UnixMillis,
    /// How it ended.
    pub reason: Option<ExitReason>,
    /// The version of its size; 1 for the one it was granted with.
    #[serde(default = "one")]
    pub version: u32,
    /// The run of its master that it was granted in; 1 for the first.
    #[serde(default = "one")]
    pub attempt: u32,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UnixMillis>,
    /// Its program's exit code, when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The most memory it had at once. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Bytes>,
    /// The size that is on its way to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedSize>,
}

fn one() -> u32 {
    1
}

/// `GET /v1/containers/{id}/timeline`, at the resource manager and at the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContainerTimeline {
    /// Its id.
    pub container: ContainerId,
    /// Where it is or was.
    pub node: NodeId,
    /// How it ended; `None` while it lives.
    pub reason: Option<ExitReason>,
    /// Memory from its birth on, oldest first; thinned out as it gets long.
    pub samples: Vec<Sample>,
}

/// A size that a container should have, and that its node has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WantedSize {
    /// The size.
    pub resource: Resource,
    /// The version that will confirm it.
    pub version: u32,
}

/// `POST /v1/containers/{id}/resize`. Answer: [`Resizing`]; the size is there when an update or the container's view has that
/// version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeContainer {
    /// The version the caller knows; another one is refused with HR0409. Left out: whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The whole size it should have.
    pub resource: Resource,
    /// The heap budget in it; stays as it is when left out. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<Bytes>,
}

/// The size is on its way to the node, or it is so already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resizing {
    /// The version that will confirm it.
    pub version: u32,
}

/// `GET /v1/status`: the cluster on one screen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterView {
    /// Version of the resource manager.
    pub version: String,
    /// Its life.
    pub epoch: Epoch,
    /// How long it has been up. Seconds.
    pub up_s: u64,
    /// Nodes that take work.
    pub nodes_ready: u32,
    /// All nodes known.
    pub nodes: u32,
    /// Memory offered by ready nodes. Bytes.
    pub memory: Bytes,
    /// Memory granted. Bytes.
    pub allocated: Bytes,
    /// Memory in use as told by the nodes. Bytes.
    pub used: Bytes,
    /// Processors offered.
    pub cpus: Cpus,
    /// Processors granted.
    pub cpus_allocated: Cpus,
    /// Applications not yet ended.
    pub apps_live: u32,
    /// Containers alive.
    pub containers: u32,
    /// Containers asked for and not yet granted.
    pub pending: u32,
    /// Memory kills told in the last hour.
    pub oom_1h: u32,
    /// What became of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_1h: Option<MemoryHour>,
    /// The request that has waited longest, with its sentence.
    pub longest_wait: Option<String>,
    /// Enforcers of the nodes, each once.
    pub enforcers: Vec<String>,
}

/// What memory failures came to in the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryHour {
    /// Memory kills.
    pub kills: u32,
    /// Tasks that were given more for it.
    pub escalated: u32,
    /// Of the tasks that were given more, those that ended well.
    pub recovered: u32,
    /// Of them, those that run or wait to.
    pub going_on: u32,
    /// Tasks for which there was no larger size.
    pub exhausted: u32,
    /// Memory × time of attempts that did not end well, whatever the reason; of this life of the resource manager. Byte-seconds.
    pub wasted_byte_s: u64,
}

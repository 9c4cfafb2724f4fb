//! Reports about applications, containers, nodes and queues.
//!
//! They contain data that the published view lacks: use over time, ends, waiting sizes. Their terms
//! are those of this project; each interface converts them to its own.

use std::collections::BTreeMap;

use headroom_rm_core::app::ApplicationState;
use headroom_rm_core::attempt::AttemptState;
use headroom_rm_core::node::ClusterNodeState;
use headroom_rm_core::queue::spec::{QueueDefinition, QueueState};
use headroom_rm_core::{AttemptRecord, SavedDrainMark};
use headroom_types::{
    AppId, Bytes, ContainerId, Cpus, ExitReason, Name, NodeId, QueuePath, RequestId, Resource,
    Tick, UnixMillis,
};

/// Report about one application.
#[derive(Clone, Debug)]
pub struct ApplicationReport {
    /// Its id.
    pub id: AppId,
    /// Its leaf queue.
    pub queue: QueuePath,
    /// Its priority; higher values go first.
    pub priority: i32,
    /// The user who submitted it.
    pub user: String,
    /// Its state.
    pub state: ApplicationState,
    /// Reason of its end, or of the wait of its master; empty if there is none.
    pub diagnostics: String,
    /// Time of its submission.
    pub submitted: UnixMillis,
    /// Time of its end.
    pub ended: Option<UnixMillis>,
    /// Deadline at which its lifetime ends.
    pub until: Option<UnixMillis>,
    /// Environment of a managed master; `None` for an unmanaged application.
    pub environment: Option<BTreeMap<String, String>>,
    /// URL of the registered master.
    pub master_url: Option<String>,
    /// Number of the current application attempt.
    pub attempt: u32,
    /// State of the current application attempt.
    pub run: AttemptState,
    /// The latest application attempts, the current one last.
    pub runs: Vec<AttemptRecord>,
    /// Kept containers of its masters, by application attempt.
    pub masters: BTreeMap<u32, ContainerReport>,
    /// Number of its containers that have not ended.
    pub live: u32,
    /// Containers granted in the last second.
    pub granted_last_second: u32,
    /// Resources of its live containers.
    pub allocated: Resource,
    /// Sizes of its reservations.
    pub reserved: Vec<Resource>,
    /// Waiting containers, including its master.
    pub waiting: Vec<WaitingContainers>,
    /// Use by kept containers.
    pub used: Use,
    /// The preempted part of the use.
    pub preempted: Preempted,
}

/// Containers of one size that are not yet granted.
#[derive(Clone, Debug)]
pub struct WaitingContainers {
    /// Their request; `None` for the master.
    pub request: Option<RequestId>,
    /// Priority of the request.
    pub priority: i32,
    /// Size of one container.
    pub size: Resource,
    /// Number of containers.
    pub count: u32,
}

/// Use over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Byte-milliseconds.
    pub memory: u128,
    /// Thousandths of a processor × milliseconds.
    pub cpus: u128,
}

/// Preempted containers and their resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preempted {
    /// Number of preempted masters.
    pub masters: u32,
    /// Number of preempted containers that are not masters.
    pub others: u32,
    /// Sum of their memory. Bytes.
    pub memory: Bytes,
    /// Sum of their processors.
    pub cpus: Cpus,
    /// Their use until they ended.
    pub used: Use,
}

/// Report about one container.
#[derive(Clone, Debug)]
pub struct ContainerReport {
    /// Its id.
    pub id: ContainerId,
    /// Number of the application attempt that it belongs to.
    pub attempt: u32,
    /// Its node.
    pub node: NodeId,
    /// URL of its node; `None` if the node is no longer known.
    pub node_url: Option<String>,
    /// The request that it satisfies; `None` for a master.
    pub request: Option<RequestId>,
    /// Its size.
    pub size: Resource,
    /// Time at which it was granted.
    pub granted: UnixMillis,
    /// Its phase.
    pub life: ContainerStage,
}

/// Phase of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerStage {
    /// Its program does not run yet.
    Coming,
    /// Its program runs.
    Running,
    /// It has ended.
    Over {
        /// Time of the end.
        ended: UnixMillis,
        /// Reason of the end.
        reason: ExitReason,
        /// Exit code of its program, if the program exited.
        exit_code: Option<i32>,
        /// Peak of its memory use, if it was measured. Bytes.
        peak: Option<Bytes>,
    },
}

/// Report about one node.
#[derive(Clone, Debug)]
pub struct ClusterNodeReport {
    /// Its id.
    pub id: NodeId,
    /// Its state.
    pub state: ClusterNodeState,
    /// Mark of an operator: cordon or drain.
    pub mark: Option<SavedDrainMark>,
    /// URL of its agent.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Its rack.
    pub rack: Option<Name>,
    /// Its labels.
    pub labels: Vec<Name>,
    /// Its attributes: names and values.
    pub attributes: Vec<(Name, String)>,
    /// Resources that it offers to containers.
    pub offers: Resource,
    /// The part of the offered resources that is allocated.
    pub allocated: Resource,
    /// Memory used by its containers. Bytes.
    pub used: Bytes,
    /// Memory used on the host, inside and outside of containers. Bytes.
    pub host_used: Bytes,
    /// Memory that ended containers have left on it. Bytes.
    pub unattributed: Bytes,
    /// Number of its containers that have not ended.
    pub containers: u32,
    /// Time of its last heartbeat.
    pub heard: Tick,
}

/// Report about one queue.
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Its path.
    pub path: QueuePath,
    /// Guaranteed memory. Without a configured guarantee, the share by weight of the memory that
    /// its siblings leave. Bytes.
    pub guaranteed: Bytes,
    /// Upper limit of its resources.
    pub maximum: Resource,
    /// Allocated resources.
    pub used: Resource,
    /// The part of `used` that masters have.
    pub masters: Resource,
    /// Resources of its waiting containers.
    pub pending: Resource,
    /// Number of its waiting containers.
    pub pending_containers: u64,
    /// Number of its containers that have not ended.
    pub containers: u32,
    /// Number of its applications that have not ended.
    pub apps: usize,
    /// Effective state: its own, or that of a parent queue.
    pub state: QueueState,
    /// Its configuration.
    pub spec: QueueDefinition,
    /// Resources by user, for leaf queues.
    pub users: Vec<(String, Resource)>,
    /// Queues directly below it.
    pub children: Vec<QueueReport>,
}

impl ClusterNodeReport {
    /// Resources that are not allocated.
    pub fn free(&self) -> Resource {
        let free = rest(&self.offers, &self.allocated);
        Resource {
            memory: free.memory.saturating_sub(self.unattributed),
            ..free
        }
    }
}

impl ApplicationReport {
    /// Sum of all waiting containers.
    pub fn pending(&self) -> Resource {
        let mut sum = Resource::default();
        for waiting in &self.waiting {
            let times = u64::from(waiting.count);
            let size = &waiting.size;
            let memory = size.memory.mul_ratio(times, 1);
            let cpus = u32::try_from(u64::from(size.cpus.milli()) * times).map_or(u32::MAX, |n| n);
            let extra = size
                .extra
                .iter()
                .map(|(name, n)| (name.clone(), n.saturating_mul(times)))
                .collect();
            sum = sum
                .checked_add(&Resource {
                    memory,
                    cpus: Cpus::from_milli(cpus),
                    extra,
                })
                .unwrap_or(sum);
        }
        sum
    }
}

/// Sum of sizes. A size whose addition would overflow is left out.
pub fn sum<'a>(sizes: impl IntoIterator<Item = &'a Resource>) -> Resource {
    sizes.into_iter().fold(Resource::default(), |sum, size| {
        sum.checked_add(size).unwrap_or(sum)
    })
}

/// Difference of two sizes; zero where `taken` exceeds `whole`.
pub fn rest(whole: &Resource, taken: &Resource) -> Resource {
    let left = |name: &Name, n: u64| n.saturating_sub(taken.extra.get(name).copied().unwrap_or(0));
    Resource {
        memory: whole.memory.saturating_sub(taken.memory),
        cpus: Cpus::from_milli(whole.cpus.milli().saturating_sub(taken.cpus.milli())),
        extra: whole
            .extra
            .iter()
            .map(|(name, n)| (name.clone(), left(name, *n)))
            .collect(),
    }
}

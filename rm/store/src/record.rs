//! The records as they lie on disk, and their conversion from and to the core's types.
//!
//! Versioned by their kind: a field may be added with a default; anything else is a new kind beside the old one. Never read by
//! anything but `replay`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::event::AfterDrain;
use headroom_rm_core::{Finished, Launch, Master, NewApp, NodeMark, NodeTags, Outcome, SavedStage, SavedState};
use headroom_types::{
    AppId, Bytes, ContainerId, Epoch, ExitReason, FetchedFile, Name, NodeId, QueuePath, RequestId, Resource, UnixMillis,
};
use serde::{Deserialize, Serialize};

/// Key of the one [`Meta`] record.
pub const META: &str = "meta";
/// Key of the one [`crate::queues::Queues`] record.
pub const QUEUES: &str = "queues";
/// Keys of documents begin so.
pub const DOCUMENTS: &str = "job/";

/// Key of an application's [`App`].
pub fn app_key(app: &AppId) -> String {
    format!("app/{:010}", app.seq())
}
/// Key of an application's [`State`].
pub fn state_key(app: &AppId) -> String {
    format!("state/{:010}", app.seq())
}
/// Key of an application's document.
pub fn document_key(app: &AppId) -> String {
    format!("{DOCUMENTS}{:010}", app.seq())
}
/// Key of an ended container's [`Ended`].
pub fn container_key(container: &ContainerId) -> String {
    format!("done/{container}")
}
/// Key of a [`Node`].
pub fn node_key(node: &NodeId) -> String {
    format!("node/{node}")
}
/// Key of a [`Mark`].
pub fn mark_key(node: &NodeId) -> String {
    format!("mark/{node}")
}

/// Key of a [`Tags`].
pub fn tags_key(node: &NodeId) -> String {
    format!("tags/{node}")
}

/// Numbers that must never be used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The latest life.
    pub epoch: Epoch,
    /// The latest application.
    pub last_app: u32,
}

/// An application as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Its id.
    pub id: AppId,
    /// When it was accepted.
    pub submitted: UnixMillis,
    /// Its queue.
    pub queue: QueuePath,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Who submitted it.
    #[serde(default)]
    pub user: String,
    /// How long it may live. Milliseconds.
    #[serde(default)]
    pub lifetime_ms: Option<u64>,
    /// The key under which it may be sent again.
    #[serde(default)]
    pub key: Option<String>,
    /// Its master's container; `None` when somebody else runs it.
    #[serde(default)]
    pub master: Option<ManagedMaster>,
}

/// A master that the resource manager launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedMaster {
    /// Its size.
    pub resource: Resource,
    /// Runs that may fail.
    pub max_attempts: u32,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Small files.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Files that the node fetches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<FetchedFile>,
    /// Heap budget. Bytes.
    #[serde(default)]
    pub heap: Option<Bytes>,
    /// Exit codes that mean a full heap.
    #[serde(default)]
    pub heap_exit_codes: Vec<i32>,
    /// Time between SIGTERM and SIGKILL. Milliseconds.
    #[serde(default)]
    pub stop_grace_ms: Option<u64>,
    /// Most processes.
    #[serde(default)]
    pub max_processes: Option<u32>,
    /// The program makes cgroups for tasks.
    #[serde(default)]
    pub task_groups: bool,
}

/// Where an application is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its stage.
    pub stage: Stage,
    /// For people.
    #[serde(default)]
    pub diagnostics: String,
    /// Its current attempt.
    pub attempt: u32,
    /// Attempts that failed by their own fault.
    #[serde(default)]
    pub charged: u32,
    /// Attempts lost otherwise.
    #[serde(default)]
    pub uncharged: u32,
    /// Container of the current attempt.
    #[serde(default)]
    pub master: Option<ContainerId>,
    /// Where the latest attempt ran.
    #[serde(default)]
    pub master_node: Option<NodeId>,
    /// The master's size now.
    #[serde(default)]
    pub master_size: Option<Resource>,
    /// The master's heap budget now. Bytes.
    #[serde(default)]
    pub master_heap: Option<Bytes>,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<UnixMillis>,
    /// Its leaf, once it was moved.
    #[serde(default)]
    pub queue: Option<QueuePath>,
    /// Its priority, once it was changed.
    #[serde(default)]
    pub priority: Option<i32>,
    /// When its time is over.
    #[serde(default)]
    pub until: Option<UnixMillis>,
    /// The latest runs of its master, the current one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

/// One run of an application's master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Counts up from 1.
    pub number: u32,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// Where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Size of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<UnixMillis>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UnixMillis>,
    /// What it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_to: Option<CameTo>,
    /// How its container ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExitReason>,
    /// Its end counts against the attempts its application may have.
    #[serde(default)]
    pub charged: bool,
    /// How it failed, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CameTo {
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// Somebody ended it.
    Killed,
}

/// The stage of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its master has not registered.
    Accepted,
    /// Its master has registered.
    Running,
    /// On its way to success.
    FinishingSucceeded,
    /// On its way to failure.
    FinishingFailed,
    /// On its way out on request.
    FinishingKilled,
    /// Over, and well.
    Succeeded,
    /// Over, and not well.
    Failed,
    /// Over on request.
    Killed,
}

/// A container that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its id.
    pub container: ContainerId,
    /// Where it was.
    pub node: NodeId,
    /// Its request; `None` for a master.
    #[serde(default)]
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// When it was granted.
    pub granted: UnixMillis,
    /// When it ended.
    pub ended: UnixMillis,
    /// How.
    pub reason: ExitReason,
    /// Its program's exit code.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The most memory it had at once. Bytes.
    #[serde(default)]
    pub peak: Option<Bytes>,
    /// More than the reason says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

fn first() -> u32 {
    1
}

/// A node to wait for after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
}

/// What an operator decided about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Which.
    pub node: NodeId,
    /// For people.
    #[serde(default)]
    pub reason: String,
    /// When what is left on it is stopped.
    #[serde(default)]
    pub until: Option<UnixMillis>,
    /// What it is to be in the end.
    pub then: Then,
    /// Whether it is empty.
    #[serde(default)]
    pub drained: bool,
}

/// What an operator says of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// Which.
    pub node: NodeId,
    /// It gets no new containers, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// Words.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Named values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Only asks that tolerate them come.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

/// What a node is once it has been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// A member without work.
    Stay,
    /// No member.
    Decommission,
}

impl App {
    /// For the disk.
    pub fn of(id: &AppId, spec: &NewApp, submitted: UnixMillis) -> Self {
        let master = match &spec.master {
            Master::Unmanaged => None,
            Master::Managed { resource, launch, max_attempts } => Some(ManagedMaster::of(resource, launch, *max_attempts)),
        };
        App {
            id: id.clone(),
            submitted,
            queue: spec.queue.clone(),
            priority: spec.priority,
            user: spec.user.clone(),
            lifetime_ms: spec.lifetime.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            key: spec.key.clone(),
            master,
        }
    }
    /// For the core.
    pub fn spec(self) -> NewApp {
        NewApp {
            name: self.id.name().clone(),
            queue: self.queue,
            priority: self.priority,
            user: self.user,
            lifetime: self.lifetime_ms.map(Duration::from_millis),
            key: self.key,
            master: self.master.map_or(Master::Unmanaged, ManagedMaster::master),
        }
    }
}

impl ManagedMaster {
    fn of(resource: &Resource, launch: &Launch, max_attempts: u32) -> Self {
        let Launch { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups } =
            launch.clone();
        ManagedMaster {
            resource: resource.clone(),
            max_attempts,
            command,
            env,
            files,
            fetch,
            heap,
            heap_exit_codes,
            stop_grace_ms,
            max_processes,
            task_groups,
        }
    }
    fn master(self) -> Master {
        let ManagedMaster { resource, max_attempts, command, env, files, fetch, heap, .. } = self;
        let (heap_exit_codes, stop_grace_ms) = (self.heap_exit_codes, self.stop_grace_ms);
        let (max_processes, task_groups) = (self.max_processes, self.task_groups);
        let launch = Launch { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups };
        Master::Managed { resource, launch: Arc::new(launch), max_attempts }
    }
}

impl State {
    /// For the disk.
    pub fn of(saved: &SavedState) -> Self {
        let SavedState { stage, diagnostics, attempt, charged, uncharged, master, master_node, master_size, .. } = saved.clone();
        let SavedState { master_heap, ended, queue, priority, until, runs, .. } = saved.clone();
        let stage = Stage::of(stage);
        State {
            stage,
            diagnostics,
            attempt,
            charged,
            uncharged,
            master,
            master_node,
            master_size,
            master_heap,
            ended,
            queue,
            priority,
            until,
            runs: runs.into_iter().map(Run::of).collect(),
        }
    }
    /// For the core.
    pub fn saved(self) -> SavedState {
        SavedState {
            stage: self.stage.saved(),
            diagnostics: self.diagnostics,
            attempt: self.attempt,
            charged: self.charged,
            uncharged: self.uncharged,
            master: self.master,
            master_node: self.master_node,
            master_size: self.master_size,
            master_heap: self.master_heap,
            ended: self.ended,
            queue: self.queue,
            priority: self.priority,
            until: self.until,
            runs: self.runs.into_iter().map(Run::saved).collect(),
        }
    }
}

impl Run {
    fn of(run: headroom_rm_core::Run) -> Self {
        let headroom_rm_core::Run { number, container, node, resource, started, ended, outcome, reason, charged, why } = run;
        let came_to = outcome.map(|outcome| match outcome {
            Outcome::Succeeded => CameTo::Succeeded,
            Outcome::Failed => CameTo::Failed,
            Outcome::Killed => CameTo::Killed,
        });
        Run { number, container, node, resource, started, ended, came_to, reason, charged, why }
    }
    fn saved(self) -> headroom_rm_core::Run {
        let Run { number, container, node, resource, started, ended, came_to, reason, charged, why } = self;
        let outcome = came_to.map(|came_to| match came_to {
            CameTo::Succeeded => Outcome::Succeeded,
            CameTo::Failed => Outcome::Failed,
            CameTo::Killed => Outcome::Killed,
        });
        headroom_rm_core::Run { number, container, node, resource, started, ended, outcome, reason, charged, why }
    }
}

impl Stage {
    fn of(stage: SavedStage) -> Self {
        match stage {
            SavedStage::Accepted => Stage::Accepted,
            SavedStage::Running => Stage::Running,
            SavedStage::Finishing(Outcome::Succeeded) => Stage::FinishingSucceeded,
            SavedStage::Finishing(Outcome::Failed) => Stage::FinishingFailed,
            SavedStage::Finishing(Outcome::Killed) => Stage::FinishingKilled,
            SavedStage::Ended(Outcome::Succeeded) => Stage::Succeeded,
            SavedStage::Ended(Outcome::Failed) => Stage::Failed,
            SavedStage::Ended(Outcome::Killed) => Stage::Killed,
        }
    }
    fn saved(self) -> SavedStage {
        match self {
            Stage::Accepted => SavedStage::Accepted,
            Stage::Running => SavedStage::Running,
            Stage::FinishingSucceeded => SavedStage::Finishing(Outcome::Succeeded),
            Stage::FinishingFailed => SavedStage::Finishing(Outcome::Failed),
            Stage::FinishingKilled => SavedStage::Finishing(Outcome::Killed),
            Stage::Succeeded => SavedStage::Ended(Outcome::Succeeded),
            Stage::Failed => SavedStage::Ended(Outcome::Failed),
            Stage::Killed => SavedStage::Ended(Outcome::Killed),
        }
    }
}

impl Ended {
    /// For the disk.
    pub fn of(finished: &Finished) -> Self {
        let Finished { container, node, request, attempt, resource, granted, ended, reason, exit_code, peak, why } =
            finished.clone();
        Ended { container, node, request, attempt, resource, granted, ended, reason, exit_code, peak, why }
    }
    /// For the core.
    pub fn finished(self) -> Finished {
        let Ended { container, node, request, attempt, resource, granted, ended, reason, exit_code, peak, why } = self;
        Finished { container, node, request, attempt, resource, granted, ended, reason, exit_code, peak, why }
    }
}

impl Mark {
    /// For the disk.
    pub fn of(node: &NodeId, mark: &NodeMark) -> Self {
        let NodeMark { reason, until, then, drained } = mark.clone();
        let then = match then {
            AfterDrain::Stay => Then::Stay,
            AfterDrain::Decommission => Then::Decommission,
        };
        Mark { node: node.clone(), reason, until, then, drained }
    }
    /// For the core.
    pub fn mark(self) -> (NodeId, NodeMark) {
        let Mark { node, reason, until, then, drained } = self;
        let then = match then {
            Then::Stay => AfterDrain::Stay,
            Then::Decommission => AfterDrain::Decommission,
        };
        (node, NodeMark { reason, until, then, drained })
    }
}

impl Tags {
    /// For the disk.
    pub fn of(node: &NodeId, tags: &NodeTags) -> Self {
        let NodeTags { cordon, labels, attributes, taints } = tags.clone();
        Tags { node: node.clone(), cordon, labels, attributes, taints }
    }
    /// For the core.
    pub fn tags(self) -> (NodeId, NodeTags) {
        let Tags { node, cordon, labels, attributes, taints } = self;
        (node, NodeTags { cordon, labels, attributes, taints })
    }
}

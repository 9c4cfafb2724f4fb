//! The records on disk, and their conversion from and to the core's types.
//!
//! The version is part of the kind: a field can be added with a default; any other change needs a
//! new kind next to the old one. Only `replay` reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::event::AfterDrain;
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, AttemptRecord, EndedContainer, MasterKind, NodeTags,
    SavedDrainMark, SavedStage, SavedState,
};
use headroom_types::{
    AppId, Bytes, ContainerId, Epoch, ExitReason, LaunchSpec, MasterGrowth, Name, NodeId,
    QueuePath, RequestId, Resource, UnixMillis,
};
use serde::{Deserialize, Serialize};

/// Key of the one [`MetaRecord`] record.
pub const META: &str = "meta";
/// Key of the one [`crate::queues::StoredQueueTree`] record.
pub const QUEUES: &str = "queues";
/// Prefix of the keys of documents.
pub const DOCUMENTS: &str = "job/";

/// Key of an application's [`AppRecord`].
pub fn app_key(app: &AppId) -> String {
    format!("app/{:010}", app.seq())
}
/// Key of an application's [`StateRecord`].
pub fn state_key(app: &AppId) -> String {
    format!("state/{:010}", app.seq())
}
/// Key of an application's document.
pub fn document_key(app: &AppId) -> String {
    format!("{DOCUMENTS}{:010}", app.seq())
}
/// Key of an ended container's [`ContainerEndRecord`].
pub fn container_key(container: &ContainerId) -> String {
    format!("done/{container}")
}
/// Key of a [`ExpectedNode`].
pub fn node_key(node: &NodeId) -> String {
    format!("node/{node}")
}
/// Key of a [`DrainRecord`].
pub fn mark_key(node: &NodeId) -> String {
    format!("mark/{node}")
}

/// Key of a [`TagsRecord`].
pub fn tags_key(node: &NodeId) -> String {
    format!("tags/{node}")
}

/// Numbers that must never be used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaRecord {
    /// The latest epoch.
    pub epoch: Epoch,
    /// The number of the latest application.
    pub last_app: u32,
}

/// An application as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRecord {
    /// Its id.
    pub id: AppId,
    /// When it was accepted.
    pub submitted: UnixMillis,
    /// Its queue.
    pub queue: QueuePath,
    /// Priority; a higher value comes first.
    #[serde(default)]
    pub priority: i32,
    /// The user that submitted it.
    #[serde(default)]
    pub user: String,
    /// Maximum lifetime. In milliseconds.
    pub lifetime_ms: Option<u64>,
    /// The idempotency key of its submission.
    pub key: Option<String>,
    /// The container of its master; `None` for an unmanaged application.
    pub master: Option<ManagedMaster>,
}

/// A master that the resource manager launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedMaster {
    /// Its size.
    pub resource: Resource,
    /// Maximum number of failed attempts.
    pub max_attempts: u32,
    /// Larger sizes after memory failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<MasterGrowth>,
    /// Longest time from the start of its container to its registration. In milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// Command, environment and files. Its fields are stored beside the others.
    #[serde(flatten)]
    pub launch: LaunchSpec,
}

/// The state of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    /// Its stage.
    pub stage: StageRecord,
    /// A message for the user.
    #[serde(default)]
    pub diagnostics: String,
    /// The number of its current attempt.
    pub attempt: u32,
    /// Failed attempts that were charged to the application.
    #[serde(default)]
    pub charged: u32,
    /// Other lost attempts.
    #[serde(default)]
    pub uncharged: u32,
    /// The container of the current attempt.
    pub master: Option<ContainerId>,
    /// The node of the latest attempt.
    pub master_node: Option<NodeId>,
    /// The present size of the master.
    pub master_size: Option<Resource>,
    /// The present heap budget of the master. In bytes.
    pub master_heap: Option<Bytes>,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// Its leaf queue, after a move.
    pub queue: Option<QueuePath>,
    /// Its priority, after a change.
    pub priority: Option<i32>,
    /// The end of its lifetime.
    pub until: Option<UnixMillis>,
    /// The latest attempts of its master, the current one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<SavedAttempt>,
}

/// One attempt of an application's master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAttempt {
    /// The number of the attempt; counts from 1.
    pub number: u32,
    /// Its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Size of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// Its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<UnixMillis>,
    /// Its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<UnixMillis>,
    /// Its outcome.
    #[serde(rename = "came_to", skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// The exit reason of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExitReason>,
    /// Whether it counts against the allowed attempts of the application.
    #[serde(default)]
    pub charged: bool,
    /// The reason of its failure, for the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was killed on request.
    Killed,
}

/// The stage of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageRecord {
    /// Its master has not registered.
    Accepted,
    /// Its master has registered.
    Running,
    /// The master reports success and is ending.
    FinishingSucceeded,
    /// The master reports failure and is ending.
    FinishingFailed,
    /// The application is being killed on request.
    FinishingKilled,
    /// It has ended successfully.
    Succeeded,
    /// It has ended with a failure.
    Failed,
    /// It was killed on request.
    Killed,
}

/// An ended container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEndRecord {
    /// Its id.
    pub container: ContainerId,
    /// Its node.
    pub node: NodeId,
    /// Its request; `None` for a master.
    pub request: Option<RequestId>,
    /// The attempt of the master in which it was granted.
    #[serde(default = "first")]
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// When it was granted.
    pub granted: UnixMillis,
    /// When it ended.
    pub ended: UnixMillis,
    /// Its exit reason.
    pub reason: ExitReason,
    /// The exit code of its program.
    pub exit_code: Option<i32>,
    /// Its peak memory. In bytes.
    pub peak: Option<Bytes>,
    /// Details of the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

fn first() -> u32 {
    1
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A node that the resource manager expects after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedNode {
    /// Its name.
    pub id: NodeId,
}

/// An operator's decision to drain a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRecord {
    /// The node.
    pub node: NodeId,
    /// A reason for the user.
    #[serde(default)]
    pub reason: String,
    /// The time at which its remaining containers are stopped.
    pub until: Option<UnixMillis>,
    /// Its state after the drain.
    pub then: AfterDrainRecord,
    /// Whether its containers have ended.
    #[serde(default)]
    pub drained: bool,
}

/// An operator's tags of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagsRecord {
    /// The node.
    pub node: NodeId,
    /// The reason of its cordon: it gets no new containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// Attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// Taints: only requests that tolerate them are placed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<Name, String>,
}

/// The state of a node after a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDrainRecord {
    /// It stays in the cluster without containers.
    Stay,
    /// It leaves the cluster.
    Decommission,
}

impl AppRecord {
    /// Converts it from the core's types.
    pub fn of(id: &AppId, spec: &AppSubmission, submitted: UnixMillis) -> Self {
        let master = match &spec.master {
            MasterKind::Unmanaged => None,
            MasterKind::Managed {
                resource,
                launch,
                max_attempts,
                growth,
                start_timeout,
                first_request: _,
            } => Some(ManagedMaster {
                resource: resource.clone(),
                launch: LaunchSpec::clone(launch),
                max_attempts: *max_attempts,
                growth: *growth,
                start_timeout_ms: start_timeout.map(milliseconds),
            }),
        };
        AppRecord {
            id: id.clone(),
            submitted,
            queue: spec.queue.clone(),
            priority: spec.priority,
            user: spec.user.clone(),
            lifetime_ms: spec.lifetime.map(milliseconds),
            key: spec.key.clone(),
            master,
        }
    }
    /// Converts it to the core's type.
    pub fn spec(self) -> AppSubmission {
        AppSubmission {
            name: self.id.name().clone(),
            queue: self.queue,
            priority: self.priority,
            user: self.user,
            lifetime: self.lifetime_ms.map(Duration::from_millis),
            key: self.key,
            master: match self.master {
                None => MasterKind::Unmanaged,
                Some(master) => MasterKind::Managed {
                    resource: master.resource,
                    launch: Arc::new(master.launch),
                    max_attempts: master.max_attempts,
                    growth: master.growth,
                    start_timeout: master.start_timeout_ms.map(Duration::from_millis),
                    first_request: None,
                },
            },
        }
    }
}

mirror_struct!(StateRecord, SavedState, of, saved, {
    stage(StageRecord::of, StageRecord::saved),
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
    runs(
        |runs: Vec<AttemptRecord>| runs.iter().map(SavedAttempt::of).collect(),
        |runs: Vec<SavedAttempt>| runs.into_iter().map(SavedAttempt::saved).collect()
    ),
});

mirror_struct!(SavedAttempt, AttemptRecord, of, saved, {
    number,
    container,
    node,
    resource,
    started,
    ended,
    outcome(
        |outcome: Option<_>| outcome.map(AttemptOutcome::of),
        |outcome: Option<_>| outcome.map(AttemptOutcome::saved)
    ),
    reason,
    charged,
    why,
});

mirror_enum!(AttemptOutcome, ApplicationOutcome, {
    Succeeded,
    Failed,
    Killed,
});

impl StageRecord {
    fn of(stage: SavedStage) -> Self {
        match stage {
            SavedStage::Accepted => StageRecord::Accepted,
            SavedStage::Running => StageRecord::Running,
            SavedStage::Finishing(ApplicationOutcome::Succeeded) => StageRecord::FinishingSucceeded,
            SavedStage::Finishing(ApplicationOutcome::Failed) => StageRecord::FinishingFailed,
            SavedStage::Finishing(ApplicationOutcome::Killed) => StageRecord::FinishingKilled,
            SavedStage::Ended(ApplicationOutcome::Succeeded) => StageRecord::Succeeded,
            SavedStage::Ended(ApplicationOutcome::Failed) => StageRecord::Failed,
            SavedStage::Ended(ApplicationOutcome::Killed) => StageRecord::Killed,
        }
    }
    fn saved(self) -> SavedStage {
        match self {
            StageRecord::Accepted => SavedStage::Accepted,
            StageRecord::Running => SavedStage::Running,
            StageRecord::FinishingSucceeded => SavedStage::Finishing(ApplicationOutcome::Succeeded),
            StageRecord::FinishingFailed => SavedStage::Finishing(ApplicationOutcome::Failed),
            StageRecord::FinishingKilled => SavedStage::Finishing(ApplicationOutcome::Killed),
            StageRecord::Succeeded => SavedStage::Ended(ApplicationOutcome::Succeeded),
            StageRecord::Failed => SavedStage::Ended(ApplicationOutcome::Failed),
            StageRecord::Killed => SavedStage::Ended(ApplicationOutcome::Killed),
        }
    }
}

mirror_struct!(ContainerEndRecord, EndedContainer, of, finished, {
    container,
    node,
    request,
    attempt,
    resource,
    granted,
    ended,
    reason,
    exit_code,
    peak,
    why,
});

mirror_struct!(DrainRecord, SavedDrainMark, of, mark, node: NodeId, {
    reason,
    until,
    then(AfterDrainRecord::of, AfterDrainRecord::saved),
    drained,
});

mirror_enum!(AfterDrainRecord, AfterDrain, {
    Stay,
    Decommission,
});

mirror_struct!(TagsRecord, NodeTags, of, tags, node: NodeId, {
    cordon,
    labels,
    attributes,
    taints,
});

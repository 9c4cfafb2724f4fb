//! What an application master says to the resource manager, and what it is told.
//!
//! Asks are absolute: `count` is how many containers a request is worth over the whole life of the application, so sending an
//! ask again changes nothing, and a replacement for a lost container is asked for by raising `count`.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{
    AttemptId, Bytes, ContainerId, Epoch, ExitReport, FetchedFile, Name, NodeId, RequestId, Resource, ScaleOrder, TaskOrder,
    UnixMillis,
};
use serde::{Deserialize, Serialize};

/// What to run in a container. Travels with the ask; grant and launch are one trip to the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Program and arguments. `{memory}` `{heap}` `{container}` `{node}` in an argument or value are replaced by the node agent;
    /// a program named without a slash is looked for beside the node agent, then on its PATH.
    pub command: Vec<String>,
    /// Added to a minimal environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Small files written into the working directory before the start. Name, which cannot leave the directory, and text.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Larger files and archives that the node fetches into the working directory before the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<FetchedFile>,
    /// Heap budget of the runtime in it; `None` where no runtime is declared. Bytes.
    #[serde(default)]
    pub heap: Option<Bytes>,
    /// Exit codes by which the runtime says that its heap is full.
    #[serde(default)]
    pub heap_exit_codes: Vec<i32>,
    /// Time between SIGTERM and SIGKILL. Milliseconds; 2000 when left out.
    #[serde(default)]
    pub stop_grace_ms: Option<u64>,
    /// Most processes at once; the node's default when left out.
    #[serde(default)]
    pub max_processes: Option<u32>,
    /// The program makes cgroups of its own for tasks below its container's.
    #[serde(default)]
    pub task_groups: bool,
}

/// `POST /v1/apps/{app}/register`: a master is there. Answer: [`Registered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterMaster {
    /// Which run of it.
    pub attempt: AttemptId,
    /// Where it listens for executors: `tcp://127.0.0.1:4711`.
    #[serde(default)]
    pub master_url: Option<String>,
}

/// The master is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// Put this into every message.
    pub epoch: Epoch,
    /// The largest container that any node and the queue could ever give.
    pub largest: Resource,
    /// Containers of this application that are alive, its master's own left out.
    pub containers: Vec<Granted>,
    /// Where the stream of updates stands.
    pub cursor: u64,
    /// What earlier jobs of its user and name have needed; `None` when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<super::families::Family>>,
    /// Where traces of jobs are sent in this cluster, by OTLP over HTTP; the address goes before `/v1/traces`. `None` where nobody
    /// collects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<String>,
}

/// A container that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Granted {
    /// Its id.
    pub container: ContainerId,
    /// Which request it belongs to.
    pub request: RequestId,
    /// Where.
    pub node: NodeId,
    /// Its size.
    pub resource: Resource,
    /// The run of the master that it was granted to; 0 where that is not told.
    #[serde(default)]
    pub attempt: u32,
}

/// One container request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Named by the application.
    pub request: RequestId,
    /// Size of each container.
    pub resource: Resource,
    /// How many containers this request is worth in all: live, ended, and still to come.
    pub count: u32,
    /// How many of them the master has seen end. Lets a restarted resource manager count right.
    #[serde(default)]
    pub settled: u32,
    /// Higher goes first within the application.
    #[serde(default)]
    pub priority: i32,
    /// Not on these nodes while another fits.
    #[serde(default)]
    pub avoid_nodes: Vec<NodeId>,
    /// Only on these nodes; empty for any.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
    /// Where else it may go and would rather go.
    #[serde(default, skip_serializing_if = "Placement::is_any")]
    pub placement: Box<Placement>,
    /// How long it may wait, counted from when it was first taken in; what is missing then will not come. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// How long the master has wanted it already. Heeded where the request is new to the resource manager, which after a restart of
    /// its own counts the deadline on from there. Milliseconds.
    #[serde(default, skip_serializing_if = "none_yet")]
    pub waited_ms: u64,
    /// What to run in each. Boxed: it is much larger than the rest.
    pub launch: Box<LaunchSpec>,
}

fn none_yet(ms: &u64) -> bool {
    *ms == 0
}

/// Where containers of a request may go, and where they would rather go. Empty means anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Only in these racks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<Name>,
    /// Not in these racks while another fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_racks: Vec<Name>,
    /// Rather on these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer_nodes: Vec<NodeId>,
    /// Rather in these racks; asked after the preferred nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer_racks: Vec<Name>,
    /// What becomes of the preference when there is no room where it points.
    pub relax: Relax,
    /// The node has all of these labels.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Name>,
    /// The node's attributes compare so.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, Match>,
    /// Taints of nodes that do not keep it away, by name: with this value, or with any where it is null.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tolerate: BTreeMap<Name, Option<String>>,
    /// Never beside certain others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// Evenly over nodes or racks, rather than tightly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Level>,
}

impl Placement {
    /// Anywhere will do.
    pub fn is_any(&self) -> bool {
        *self == Placement::default()
    }
}

/// When a preference gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "when", rename_all = "snake_case", deny_unknown_fields)]
pub enum Relax {
    /// At once.
    #[default]
    AtOnce,
    /// When a container has waited so long: first from node to rack, after as long again to anywhere.
    After {
        /// Milliseconds.
        ms: u64,
    },
    /// Never: the preference is a must.
    Never,
}

/// How an attribute of a node compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Match {
    /// It is there, with any value.
    Exists,
    /// It is not there.
    Absent,
    /// It is one of these.
    OneOf(BTreeSet<String>),
    /// It is not there, or none of these.
    NoneOf(BTreeSet<String>),
}

/// What counts as the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// One node.
    Node,
    /// One rack; a node without one is a rack by itself.
    Rack,
}

/// Never in one place with containers of these requests of the same application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Apart {
    /// Which requests; empty for its own.
    #[serde(default)]
    pub from: Vec<RequestId>,
    /// What counts as one place.
    pub level: Level,
}

/// The immediate answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum AskVerdict {
    /// There is room now, or it has all it asked for.
    Fits,
    /// It waits, and this is why.
    Waits {
        /// In one sentence.
        sentence: String,
    },
    /// No node could ever give it.
    Never {
        /// In one sentence that names the largest node.
        sentence: String,
        /// The largest container any node could ever give.
        largest: Resource,
    },
}

/// `POST /v1/apps/{app}/requests` takes one [`Ask`] under `ask`; answer: [`AskAnswer`]. `never` is an error HR0422 instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AskAnswer {
    /// The request.
    pub request: RequestId,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: AskVerdict,
}

/// `POST /v1/apps/{app}/sync`: heartbeat, asks, releases and acknowledgement in one. Answer: [`MasterSyncReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MasterSync {
    /// Which run of the master.
    pub attempt: AttemptId,
    /// The life of the resource manager it speaks to. Another one answers HR0410: register again.
    pub epoch: Epoch,
    /// Every update up to here has been taken in.
    #[serde(default)]
    pub ack: u64,
    /// New or changed requests; others stay as they are.
    #[serde(default)]
    pub asks: Vec<Ask>,
    /// Requests that are worth nothing any more.
    #[serde(default)]
    pub drop: Vec<RequestId>,
    /// Containers to stop.
    #[serde(default)]
    pub release: Vec<ContainerId>,
    /// Changed rows of the job's view.
    #[serde(default)]
    pub job: Option<super::job::JobPatch>,
}

/// Answer to a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MasterSyncReply {
    /// One for each ask, in their order.
    pub verdicts: Vec<AskAnswer>,
    /// The application was killed: stop.
    pub stop: bool,
}

/// `POST /v1/apps/{app}/finish`: the master is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishApp {
    /// Which run of the master.
    pub attempt: AttemptId,
    /// Whether the application did what it should.
    pub succeeded: bool,
    /// Why not, or what it did.
    #[serde(default)]
    pub diagnostics: String,
    /// The whole view of the job, for the history.
    #[serde(default)]
    pub job: Option<super::job::JobPatch>,
}

/// `GET /v1/apps/{app}/updates?cursor=N`: one line of JSON each, from after cursor N, for as long as the caller listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Update {
    /// Counts up without gaps within one application and epoch.
    pub cursor: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: UpdateKind,
}

/// What an update tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UpdateKind {
    /// Granted, and on its way to the node.
    Allocated(Granted),
    /// Its program runs.
    Running {
        /// Which container.
        container: ContainerId,
    },
    /// It ended. Repeated until acknowledged, so handling it twice must change nothing.
    Exited {
        /// Which request it belonged to.
        request: RequestId,
        /// The node's verdict.
        report: Box<ExitReport>,
    },
    /// Its node has given it another size.
    Resized {
        /// Which container.
        container: ContainerId,
        /// The size it has now.
        resource: Resource,
        /// The version of that size.
        version: u32,
    },
    /// Its node could not give it the size that was asked; it has the one before.
    ResizeFailed {
        /// Which container.
        container: ContainerId,
        /// The size it has.
        resource: Resource,
        /// The version of that size.
        version: u32,
        /// Why, for people.
        why: String,
    },
    /// It will be taken for somebody with a better claim, unless it is released before.
    PreemptSoon {
        /// Which container.
        container: ContainerId,
        /// When.
        at: UnixMillis,
        /// For whom, for people.
        why: String,
    },
    /// Its node is being emptied: what is on it should end by itself by then.
    NodeDraining {
        /// The node.
        node: NodeId,
        /// When what is left is stopped.
        until: Option<UnixMillis>,
    },
    /// Its time is over; what was missing of it will not come.
    Expired {
        /// Which request.
        request: RequestId,
        /// Why it had to wait, for people.
        why: String,
    },
    /// Somebody wants something done with one of its tasks. A master that has no such task forgets it.
    Order(TaskOrder),
    /// Somebody wants another number of executors. A master without such a set says so in an event.
    Scale(ScaleOrder),
    /// The stream lives. Sent every few seconds; its cursor is that of the last update.
    Alive,
}

//! What goes into the core and what comes out: two closed enums and the values in them.
//!
//! Owned by nobody: plain data. These are the core's own types; the daemon converts from and to messages and records.

mod log;
mod refusal;
mod report;
mod traits;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Epoch, FetchedFile, JobOrder, Name, NodeId, QueuePath, RequestId, Resource, StopCause,
    UnixMillis,
};

pub use log::{Level, LogLine, Object, Words};
pub use refusal::Refusal;
pub use report::{Health, Phase, RefusedSize, Registration, Report, Seen};
pub use traits::{Cordon, Exclusive, TagChange, Traits};
pub use update::{Granted, Update, UpdateKind};

use crate::ask::Ask;
use crate::cluster::Settings;
use crate::queue::spec::{Gate, Tree};
use crate::save::Save;
use crate::tags::Tagged;

/// Names one call, so that its answer finds the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Everything that can happen to a cluster.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody asks for something; exactly one [`Effect::Answer`] with the same `call` comes out.
    Call {
        /// Which call.
        call: CallId,
        /// What is asked.
        what: Call,
    },
    /// Time has passed: deadlines that are due take effect.
    Time,
    /// The loop itself stood still for so long (a suspended machine, a slow disk). Silence in that time proves nothing.
    Stalled(Duration),
}

/// Everything that can be asked.
#[derive(Clone, Debug)]
pub enum Call {
    /// A new application.
    Submit(Box<NewApp>),
    /// A number for an application that will be submitted under it.
    Reserve,
    /// A new application, under a number that was reserved for it.
    SubmitAs {
        /// The number.
        number: u32,
        /// The application.
        app: Box<NewApp>,
    },
    /// End an application.
    Kill {
        /// Which.
        app: AppId,
        /// Why, for its diagnostics.
        reason: Option<String>,
    },
    /// Nothing is kept of an application that has ended, before its time.
    Purge {
        /// Which.
        app: AppId,
        /// Whether it counts.
        how: How,
    },
    /// A master is there.
    RegisterMaster {
        /// Which run of it.
        attempt: AttemptId,
        /// Where it listens for executors.
        url: Option<String>,
    },
    /// A master's heartbeat with all it has to say.
    Sync(Box<Sync>),
    /// One container request.
    Ask {
        /// Whose.
        app: AppId,
        /// The request.
        ask: Box<Ask>,
        /// Whether it counts.
        how: How,
    },
    /// A request is worth nothing any more.
    Withdraw {
        /// Whose.
        app: AppId,
        /// Which.
        request: RequestId,
    },
    /// A master is done.
    Finish {
        /// Which run of it.
        attempt: AttemptId,
        /// How it went.
        outcome: Outcome,
        /// For people.
        diagnostics: String,
    },
    /// Stop one container.
    Stop {
        /// Which.
        container: ContainerId,
    },
    /// A node is there, with all it has.
    RegisterNode {
        /// Its name.
        node: NodeId,
        /// What it says of itself.
        facts: Box<Registration>,
    },
    /// A node's sign of life.
    Report {
        /// Its name.
        node: NodeId,
        /// What it says.
        report: Box<Report>,
    },
    /// Another size for a container that runs.
    Resize {
        /// Which.
        container: ContainerId,
        /// The version the caller knows; another one is a conflict. `None`: whatever it is.
        version: Option<u32>,
        /// The size it should have.
        size: Size,
        /// Whether it counts.
        how: How,
    },
    /// Another tree of queues in place of the one there is. Refused as a whole, or it is so from now on.
    SetQueues {
        /// The tree.
        tree: Box<Tree>,
        /// The generation the caller knows; another one is a conflict. `None`: whatever it is.
        generation: Option<u64>,
        /// Whether it counts.
        how: How,
    },
    /// What one queue takes in and gives out.
    SetGate {
        /// Which.
        queue: QueuePath,
        /// From now on.
        gate: Gate,
    },
    /// An application goes on in another queue, with another priority, with another end of its time.
    ChangeApp {
        /// Which.
        app: AppId,
        /// Its leaf.
        queue: Option<QueuePath>,
        /// Higher goes first.
        priority: Option<i32>,
        /// How long it may live, counted from its submission.
        lifetime: Option<Lifetime>,
    },
    /// Somebody wants something done with an application or a task of it: its master is told.
    Order {
        /// Whose.
        app: AppId,
        /// What.
        order: JobOrder,
    },
    /// A node gets no new work; what is on it may end by itself until the time is over, and is stopped then.
    Drain {
        /// Which.
        node: NodeId,
        /// How long its containers have. `None`: for ever.
        within: Option<Duration>,
        /// For people.
        reason: String,
        /// What it is to be in the end.
        then: AfterDrain,
    },
    /// A node takes work again.
    Undrain {
        /// Which.
        node: NodeId,
    },
    /// What an operator says of a node is another: whether it is cordoned, its labels, attributes and taints.
    Tag {
        /// Which.
        node: NodeId,
        /// What changes; the rest stays.
        change: Box<TagChange>,
        /// Whether it counts.
        how: How,
    },
    /// Other settings, as far as a cluster that runs takes them.
    Configure(Box<Settings>),
}

/// Whether a call changes anything, or only says what it would change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// It counts.
    #[default]
    Really,
    /// It is only answered.
    DryRun,
}

/// A size with its heap budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// All of it.
    pub resource: Resource,
    /// The heap budget in it; `None` keeps the one there is. Bytes.
    pub heap: Option<Bytes>,
}

/// How long an application may live, counted from its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as it likes.
    Unbounded,
    /// So long.
    AtMost(Duration),
}

/// What a node is once it has been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AfterDrain {
    /// Still a member, without work.
    Stay,
    /// No member any more: its agent is told to leave, and cannot come back until it is undrained.
    Decommission,
}

/// An application as submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApp {
    /// The name people know it by.
    pub name: Name,
    /// Its queue.
    pub queue: QueuePath,
    /// Higher goes first.
    pub priority: i32,
    /// Who submitted it.
    pub user: String,
    /// How long it may live.
    pub lifetime: Option<Duration>,
    /// Who runs its master.
    pub master: Master,
    /// The same key again means the same application.
    pub key: Option<String>,
}

/// Who runs an application's master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// The resource manager, in a container.
    Managed {
        /// Its size.
        resource: Resource,
        /// What to run.
        launch: Arc<Launch>,
        /// Runs that may fail by their own fault.
        max_attempts: u32,
    },
    /// Somebody else.
    Unmanaged,
}

/// What to run in a container. The core reads only `heap`; the rest travels through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Small files.
    pub files: BTreeMap<String, String>,
    /// Files that the node fetches.
    pub fetch: Vec<FetchedFile>,
    /// Heap budget. Bytes.
    pub heap: Option<Bytes>,
    /// Exit codes that mean a full heap.
    pub heap_exit_codes: Vec<i32>,
    /// Time between SIGTERM and SIGKILL. Milliseconds.
    pub stop_grace_ms: Option<u64>,
    /// Most processes.
    pub max_processes: Option<u32>,
    /// The program makes cgroups for tasks.
    pub task_groups: bool,
}

/// A master's heartbeat.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Which run of the master.
    pub attempt: AttemptId,
    /// The life of the resource manager it speaks to.
    pub epoch: Epoch,
    /// Every update up to here has been taken in.
    pub ack: u64,
    /// New or changed requests.
    pub asks: Vec<Ask>,
    /// Requests worth nothing any more.
    pub withdraw: Vec<RequestId>,
    /// Containers to stop.
    pub release: Vec<ContainerId>,
}

/// How an application ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// Somebody ended it.
    Killed,
}

/// Everything that can follow from an event. The daemon carries them out in order, after all [`Effect::Save`]s of the batch are
/// durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Must survive a crash before any later effect leaves.
    Save(Box<Save>),
    /// The answer to a call.
    Answer {
        /// Which call.
        call: CallId,
        /// What to say.
        answer: Answered,
    },
    /// What a node should do about one container.
    Tell {
        /// The node.
        node: NodeId,
        /// The container.
        container: ContainerId,
        /// What is wanted.
        want: Want,
    },
    /// One more update for a master.
    Update {
        /// Whose.
        app: AppId,
        /// The update.
        update: Update,
    },
    /// No more updates will come for this application.
    UpdatesEnd {
        /// Whose.
        app: AppId,
    },
    /// For the event log.
    Log(LogLine),
    /// A machine was given an event it has no answer to; nothing was changed.
    Illegal {
        /// What, where.
        what: String,
    },
}

/// The answer to a call.
pub type Answered = Result<Answer, Refusal>;

/// A call was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The application exists.
    Submitted {
        /// Its id.
        app: AppId,
        /// Its current attempt.
        attempt: u32,
    },
    /// Nobody else will get this number.
    Reserved {
        /// The number.
        number: u32,
    },
    /// It is so, now or already.
    Done,
    /// The master is known.
    Master {
        /// The largest container any node could ever give.
        largest: Resource,
        /// Containers alive, the master's own left out.
        containers: Vec<Granted>,
        /// Updates after this one will come.
        cursor: u64,
    },
    /// The sync was taken in.
    Synced {
        /// One for each ask.
        verdicts: Vec<(RequestId, Verdict)>,
        /// The application is to stop.
        stop: bool,
    },
    /// The request was taken in.
    Asked {
        /// What becomes of it.
        verdict: Verdict,
    },
    /// The size is on its way to the node, or it is so already.
    Resizing {
        /// The version that will confirm it.
        version: u32,
    },
    /// The tree is in force, or would be.
    Queues {
        /// Its generation.
        generation: u64,
    },
    /// The settings hold.
    Configured {
        /// Whose tree of queues is in force.
        queues: QueuesFrom,
    },
    /// It is said of the node, or would be.
    Tagged(Box<Tagged>),
    /// The node is known.
    Node {
        /// Ends the node may forget.
        acked: Vec<ContainerId>,
    },
    /// The report was taken in.
    Received {
        /// Ends taken in.
        received: Vec<ContainerId>,
    },
}

/// Whose tree of queues is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuesFrom {
    /// That of the settings.
    Settings,
    /// One that was set at run time; it goes before that of the settings.
    Operator,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is granted.
    Fits,
    /// Some of it waits.
    Waits {
        /// Why.
        sentence: Arc<str>,
    },
    /// No node could ever give it; it was not taken in.
    Never {
        /// Why; names the largest node.
        sentence: String,
        /// The largest container any node could ever give.
        largest: Resource,
    },
}

/// What is wanted of a container on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// It should run.
    Run(Box<RunOrder>),
    /// It should end.
    Stop {
        /// Why.
        cause: StopCause,
    },
    /// Its report may go.
    Forget,
}

/// A grant with its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrder {
    /// Whose.
    pub app: AppId,
    /// The request; `None` for a master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// The version of that size: a node that has the container with an earlier one gives it this one.
    pub version: u32,
    /// What to run; empty for a container that was taken over from an earlier life of the resource manager.
    pub launch: Arc<Launch>,
    /// Who submitted the application.
    pub user: Arc<str>,
    /// When it was granted.
    pub granted: UnixMillis,
}

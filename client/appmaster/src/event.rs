//! What the core is told, and what it wants done.

use headroom_types::exit::{TaskReport, Unattributed};
use headroom_types::{Bytes, ContainerId, Epoch, RequestId, Resource, TaskAttemptId, Tick, UnixMillis};
use headroom_wire::v1::am::{Granted, UpdateKind};
use headroom_wire::v1::families::Family;
use headroom_wire::v1::task::{TaskUsage, ToExecutor};

use crate::output::Commit;
use crate::record::Record;
use crate::taskset::TaskKey;

/// The moment of an event, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub tick: Tick,
    /// For records and screens.
    pub unix: UnixMillis,
}

/// Why a container keeps its size, in words, by who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeRefusal {
    /// The resource manager: there is no room, or not just now.
    Manager(String),
    /// The node could not.
    Node(String),
    /// Nobody: there was no answer.
    NoAnswer(String),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The resource manager knows this master.
    Registered {
        /// Its life.
        epoch: Epoch,
        /// The largest container there could be.
        largest: Resource,
        /// Containers of the application that live.
        containers: Vec<Granted>,
        /// Where its stream of updates stands.
        cursor: u64,
    },
    /// The resource manager tells of a container. May come twice.
    Update {
        /// Its place in the stream.
        cursor: u64,
        /// What it tells.
        what: UpdateKind,
    },
    /// The resource manager says that a request can never be served.
    Refused {
        /// Which.
        request: RequestId,
        /// Why, naming the largest node.
        sentence: String,
        /// The largest container there could be.
        largest: Resource,
    },
    /// An executor has connected.
    Hello(Hello),
    /// An attempt's process runs.
    Started {
        /// Where.
        container: ContainerId,
        /// Which.
        attempt: TaskAttemptId,
    },
    /// What running attempts use.
    Usage {
        /// Where.
        container: ContainerId,
        /// One for each.
        tasks: Vec<TaskUsage>,
    },
    /// An attempt has ended. May come twice.
    Ended {
        /// Where.
        container: ContainerId,
        /// The executor's verdict.
        report: Box<TaskReport>,
    },
    /// The output of a task is in its place, or cannot be put there.
    Committed {
        /// Which task.
        task: TaskKey,
        /// Whose output.
        attempt: TaskAttemptId,
        /// Why it is not there, for people.
        error: Option<String>,
    },
    /// A task is held near its limit. May come twice.
    Pressure {
        /// Where.
        container: ContainerId,
        /// Which.
        attempt: TaskAttemptId,
        /// The limit it has. Bytes.
        limit: Bytes,
    },
    /// Ended tasks have left memory in a container, or it is gone. May come twice.
    Leftover {
        /// Where.
        container: ContainerId,
        /// How much, and by whom.
        left: Unattributed,
    },
    /// An executor has given a task another limit, or could not.
    LimitSet {
        /// Where.
        container: ContainerId,
        /// What became of it.
        set: Box<LimitSet>,
    },
    /// The resource manager, or the node, does not give a container the size that was asked.
    ResizeRefused {
        /// Which.
        container: ContainerId,
        /// Who says so.
        refusal: SizeRefusal,
    },
    /// What earlier jobs of the same user and name have needed. Said before the first registration is answered.
    Known(Box<Family>),
    /// The inputs of a stage's tasks were measured.
    Inputs {
        /// The stage's place in the job file.
        stage: usize,
        /// One for each task; `None` for what could not be measured. Bytes.
        sizes: Vec<Option<Bytes>>,
    },
    /// The connection to an executor was lost.
    LineDown {
        /// Which.
        container: ContainerId,
    },
    /// The application was killed, or this master was told to end.
    Stop,
    /// A deadline may have passed.
    Timer,
}

/// The first words of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The container it runs in.
    pub container: ContainerId,
    /// Its slots.
    pub slots: u32,
    /// Whether each of its tasks has a cgroup of its own. Without one no limit can be raised.
    pub task_groups: bool,
    /// Attempts that run in it.
    pub running: Vec<TaskAttemptId>,
    /// Ends that were not acknowledged.
    pub unacked: Vec<TaskReport>,
}

/// What became of another limit for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSet {
    /// Which task.
    pub attempt: TaskAttemptId,
    /// The limit it has. Bytes.
    pub limit: Bytes,
    /// From the sign of pressure to the new limit. Microseconds.
    pub held_us: Option<u64>,
    /// Why it does not have the one that was wanted.
    pub error: Option<String>,
}

/// What is to be done. In this order: everything after a record waits until the record is durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this down.
    Record(Box<Record>),
    /// Tell an executor; dropped when it is not connected, since its next hello sets everything right.
    Send {
        /// Which.
        container: ContainerId,
        /// What.
        message: Box<ToExecutor>,
    },
    /// Put the output of an attempt in its task's place, and tell by [`Event::Committed`] what became of it.
    Commit {
        /// Which task.
        task: TaskKey,
        /// Whose output.
        attempt: TaskAttemptId,
        /// From where to where.
        commit: Commit,
    },
    /// Ask the resource manager for another size of a container that runs; it answers by an update, or refuses.
    Resize {
        /// Which.
        container: ContainerId,
        /// The whole size.
        resource: Resource,
    },
    /// Measure the inputs of a stage's tasks, and tell. Nothing waits for it.
    Measure {
        /// The stage's place in the job file.
        stage: usize,
    },
    /// Requests or releases have changed: sync with the resource manager at once.
    Sync,
    /// Everything is decided.
    Finish(Outcome),
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What kind of end.
    pub ending: Ending,
    /// For people.
    pub diagnostics: String,
}

/// What kind of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Every task is done.
    Succeeded,
    /// Tasks were given up.
    Failed,
    /// Tasks were given up, some of them killed for memory at the largest size they could have.
    MemoryExhausted,
    /// It was told to end.
    Stopped,
}

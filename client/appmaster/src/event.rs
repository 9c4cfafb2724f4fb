//! Events that the core processes, and effects that it requests.

use headroom_types::exit::{TaskReport, Unattributed};
use headroom_types::{
    Bytes, ContainerId, Epoch, RequestId, Resource, TaskAttemptId, Tick, UnixMillis,
};
use headroom_wire::v1::application_master::{ApplicationUpdateKind, ContainerGrant};
use headroom_wire::v1::job_history::JobHistory;
use headroom_wire::v1::submission::{FromSubmitter, ToSubmitter};
use headroom_wire::v1::task::{TaskUsage, ToExecutor};

use crate::output::OutputCommit;
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;

/// The time of an event, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTimestamp {
    /// Monotonic time, for deadlines.
    pub tick: Tick,
    /// Wall-clock time, for records and displays.
    pub unix: UnixMillis,
}

/// The reason why a container keeps its size, by the component that refused the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeRefusal {
    /// Refused by the resource manager: no free memory, or no change at this moment.
    Manager(String),
    /// Refused by the node.
    Node(String),
    /// No answer arrived.
    NoAnswer(String),
}

/// An event that the core processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterEvent {
    /// The resource manager accepted this master's registration.
    Registered {
        /// Its epoch.
        epoch: Epoch,
        /// The largest possible container.
        largest: Resource,
        /// Live containers of the application.
        containers: Vec<ContainerGrant>,
        /// The current cursor of its stream of updates.
        cursor: u64,
    },
    /// An update of the resource manager. May arrive twice.
    Update {
        /// The position in the stream.
        cursor: u64,
        /// The update.
        what: ApplicationUpdateKind,
    },
    /// The resource manager reports a request as infeasible.
    Refused {
        /// The request.
        request: RequestId,
        /// The reason; contains the largest node.
        sentence: String,
        /// The largest possible container.
        largest: Resource,
    },
    /// An executor has connected.
    Hello(ExecutorHello),
    /// The process of an attempt runs.
    Started {
        /// Its container.
        container: ContainerId,
        /// The attempt.
        attempt: TaskAttemptId,
    },
    /// Current memory use of running attempts.
    Usage {
        /// Their container.
        container: ContainerId,
        /// One entry for each attempt.
        tasks: Vec<TaskUsage>,
    },
    /// An attempt has ended. May arrive twice.
    Ended {
        /// Its container.
        container: ContainerId,
        /// The executor's verdict.
        report: Box<TaskReport>,
    },
    /// The commit of a task's output succeeded or failed.
    Committed {
        /// The task.
        task: TaskPosition,
        /// The attempt that wrote the output.
        attempt: TaskAttemptId,
        /// The reason of a failure, for display.
        error: Option<String>,
    },
    /// A task is frozen near its limit. May arrive twice.
    Pressure {
        /// Its container.
        container: ContainerId,
        /// The attempt.
        attempt: TaskAttemptId,
        /// Its current limit. Bytes.
        limit: Bytes,
    },
    /// The memory that ended tasks left in a container has changed. May arrive twice.
    Leftover {
        /// The container.
        container: ContainerId,
        /// Amount, and the tasks that left it.
        left: Unattributed,
    },
    /// An executor has changed the limit of a task, or failed to.
    LimitSet {
        /// Its container.
        container: ContainerId,
        /// The result.
        set: Box<TaskLimitResult>,
    },
    /// The resource manager, or the node, refused the requested size of a container.
    ResizeRefused {
        /// The container.
        container: ContainerId,
        /// The refusal.
        refusal: SizeRefusal,
    },
    /// The usage history of earlier jobs of the same user and name. Arrives before
    /// [`MasterEvent::Registered`].
    Known(Box<JobHistory>),
    /// The inputs of a stage's tasks were measured.
    Inputs {
        /// The stage's index in the job file.
        stage: usize,
        /// One for each task; `None` if it could not be measured. Bytes.
        sizes: Vec<Option<Bytes>>,
    },
    /// The connection to an executor was lost.
    LineDown {
        /// Its container.
        container: ContainerId,
    },
    /// A client of a live job has connected.
    SubmitterJoined {
        /// The connection.
        connection: SubmitterConnection,
        /// The client's name for itself.
        client: String,
        /// Cursor of the last result that it has processed.
        after: u64,
    },
    /// A client of a live job has sent a message.
    Submission {
        /// The connection.
        connection: SubmitterConnection,
        /// The message.
        message: Box<FromSubmitter>,
    },
    /// The connection to a client of a live job was lost.
    SubmitterLeft {
        /// The connection.
        connection: SubmitterConnection,
    },
    /// The application was killed, or this master was ordered to stop the job.
    Stop,
    /// A deadline may have passed.
    Timer,
}

/// The number of a connection of a client of a live job; unique in one run of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubmitterConnection(pub u64);

/// The first message of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorHello {
    /// The container in which it runs.
    pub container: ContainerId,
    /// Its slots.
    pub slots: u32,
    /// True if each of its tasks has its own cgroup. Without one, no limit can be raised.
    pub task_groups: bool,
    /// Attempts that run in it.
    pub running: Vec<TaskAttemptId>,
    /// Reports of ended attempts that were not acknowledged.
    pub unacked: Vec<TaskReport>,
}

/// The result of a limit change of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLimitResult {
    /// The attempt.
    pub attempt: TaskAttemptId,
    /// Its current limit. Bytes.
    pub limit: Bytes,
    /// Time from the pressure message to the new limit. Microseconds.
    pub frozen_us: Option<u64>,
    /// The reason why it does not have the requested limit.
    pub error: Option<String>,
}

/// An action for the driver. The order is binding: everything after a record waits until that
/// record is durable.
#[derive(Clone, Debug, PartialEq)]
pub enum MasterEffect {
    /// Append this record to the journal.
    Record(Box<JournalRecord>),
    /// Send a message to an executor. It is dropped if the executor is not connected, because the
    /// next hello restores a consistent state.
    Send {
        /// The executor's container.
        container: ContainerId,
        /// The message.
        message: Box<ToExecutor>,
    },
    /// Commit the output of an attempt and report the result with [`MasterEvent::Committed`].
    Commit {
        /// The task.
        task: TaskPosition,
        /// The attempt that wrote the output.
        attempt: TaskAttemptId,
        /// Source and target of the commit.
        commit: OutputCommit,
    },
    /// Request another size of a running container. The answer is an update or a refusal.
    Resize {
        /// The container.
        container: ContainerId,
        /// The complete new size.
        resource: Resource,
    },
    /// Measure the inputs of a stage's tasks and report them with [`MasterEvent::Inputs`]. No task
    /// waits for it.
    Measure {
        /// The stage's index in the job file.
        stage: usize,
    },
    /// Send a message to a client of a live job. It is dropped if the client is not connected,
    /// because the client repeats what was not answered. A refusal without a subject closes the
    /// connection.
    Answer {
        /// The connection.
        connection: SubmitterConnection,
        /// The message.
        message: Box<ToSubmitter>,
    },
    /// Requests or releases have changed: synchronise with the resource manager at once.
    Sync,
    /// The job has ended with this outcome.
    Finish(JobOutcome),
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// The kind of end.
    pub ending: JobEndKind,
    /// The reason, for display.
    pub diagnostics: String,
}

/// The kind of a job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEndKind {
    /// Every task is done.
    Succeeded,
    /// Tasks were given up.
    Failed,
    /// Tasks were given up, some of them killed for memory at the largest size they could have.
    MemoryExhausted,
    /// The master was ordered to stop the job.
    Stopped,
}

//! The task channel between an application master and its executors: version 1.
//!
//! One TCP connection from executor to master, one JSON object a line each way, at most [`MAX_LINE`] bytes a line. The executor
//! speaks first. A result is repeated on every new connection until the master has acknowledged it, so nothing is lost when
//! either side is restarted; a start that the executor already knows is ignored.

use std::collections::BTreeMap;

use headroom_types::exit::TaskReport;
use headroom_types::{Bytes, ContainerId, TaskAttemptId, UnixMillis};
use serde::{Deserialize, Serialize};

/// Version of this protocol.
pub const VERSION: u32 = 1;
/// Longest line either side accepts. Bytes.
pub const MAX_LINE: usize = 1 << 20;

/// From the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromExecutor {
    /// The first line of a connection.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The container it runs in.
        container: ContainerId,
        /// The secret from `HEADROOM_APP_TOKEN`.
        token: String,
        /// How many slots it was given.
        slots: u32,
        /// Whether each task has a cgroup of its own.
        task_groups: bool,
        /// Tasks that run in it.
        running: Vec<TaskAttemptId>,
        /// Results that no master has acknowledged.
        unacked: Vec<TaskReport>,
    },
    /// The task's process runs in its cgroup.
    Started {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// When.
        at: UnixMillis,
    },
    /// What the running tasks use. About once a second, and at once when a task passes 90 % of its limit.
    Usage {
        /// One for each running task.
        tasks: Vec<TaskUsage>,
    },
    /// A task ended. Repeated until acknowledged.
    Ended {
        /// The executor's verdict.
        report: Box<TaskReport>,
    },
    /// The line lives.
    Alive,
}

/// What one task uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// Which attempt.
    pub attempt: TaskAttemptId,
    /// Charged to it now. Bytes.
    pub current: Bytes,
    /// Largest so far. Bytes.
    pub peak: Bytes,
    /// Heap in use, told by its runtime. Bytes.
    pub heap: Option<Bytes>,
}

/// To the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToExecutor {
    /// Run this.
    Start(Box<TaskStart>),
    /// End this: SIGTERM, then SIGKILL.
    Stop {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// The result has been taken in: forget it.
    Ack {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// End as soon as no task runs.
    Shutdown,
    /// The line lives.
    Alive,
}

/// One task to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStart {
    /// Which attempt.
    pub attempt: TaskAttemptId,
    /// Program and arguments, templates filled in.
    pub command: Vec<String>,
    /// Added to the executor's minimal environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; the container's when left out.
    pub cwd: Option<String>,
    /// How many slots it takes.
    pub slots: u32,
    /// Limit of its cgroup; `None` leaves it to the executor's own. Bytes.
    pub limit: Option<Bytes>,
    /// Heap budget of its runtime; `None` where no runtime is declared. Bytes.
    pub heap: Option<Bytes>,
    /// Exit codes by which its runtime says that the heap is full.
    pub heap_exit_codes: Vec<i32>,
    /// Longest it may run. Milliseconds.
    pub timeout_ms: Option<u64>,
}

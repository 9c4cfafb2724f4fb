//! Job history: memory needs of earlier jobs of one user and name by stage, for first sizes and for
//! users.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Name, UnixMillis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A job history in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobHistoryRow {
    /// Submitting user of its jobs.
    pub user: String,
    /// Common name of its jobs.
    pub name: Name,
    /// Jobs with learned sizes.
    pub runs: u32,
    /// Tasks in the history.
    pub tasks: u32,
    /// End of the latest job.
    pub last: UnixMillis,
}

/// `GET /v1/families/{name}`: the history of one user and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobHistory {
    /// Submitting user of its jobs.
    pub user: String,
    /// Common name of its jobs.
    pub name: Name,
    /// Jobs with learned sizes.
    pub runs: u32,
    /// End of the latest job.
    pub last: UnixMillis,
    /// Its kinds of tasks, sorted by name.
    pub kinds: Vec<TaskKindHistory>,
    /// Sizes of single tasks that needed more memory than configured, as their masters reported
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enlarged: Vec<EnlargedTask>,
}

/// Size with which one task succeeded after it ran out of memory, for the same task of the next job
/// with its user and name. Only masters whose tasks have stable names report it, such as the driver
/// of Apache Spark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnlargedTask {
    /// Name of the task in every run, chosen by the master. At most
    /// [`EnlargedTask::MAX_NAME`] bytes.
    pub name: String,
    /// Rung on which it succeeded; 1 is the configured size.
    pub rung: u32,
    /// Processors that it took.
    pub cpus: u32,
    /// Memory by part, in the words of the master: `heap`, `off_heap`, `overhead`. At most
    /// [`EnlargedTask::MAX_PARTS`] parts. Bytes.
    pub memory: BTreeMap<Name, Bytes>,
}

impl EnlargedTask {
    /// Limit on the length of the name. Bytes.
    pub const MAX_NAME: usize = 300;
    /// Limit on the number of parts.
    pub const MAX_PARTS: usize = 8;

    /// True if the name and the number of parts are within their limits.
    pub fn is_bounded(&self) -> bool {
        !self.name.is_empty()
            && self.name.len() <= EnlargedTask::MAX_NAME
            && self.memory.len() <= EnlargedTask::MAX_PARTS
    }
}

/// Tasks of one stage, over all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskKindHistory {
    /// Name of the stage.
    pub name: String,
    /// Latest successful tasks, oldest first.
    pub tasks: Vec<TaskMemoryNeed>,
}

/// Memory need of one successful task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskMemoryNeed {
    /// Largest memory use. Bytes.
    pub peak: Bytes,
    /// Memory of its first attempt. Bytes.
    pub first: Bytes,
    /// Memory of the successful attempt. Bytes.
    pub last: Bytes,
    /// Attempts that failed for memory.
    pub kills: u32,
    /// Run time of the successful attempt. Milliseconds.
    pub runtime_ms: u64,
}

//! Job history: memory needs of earlier jobs of one user and name by stage, for first sizes and for
//! users.

use headroom_types::{Bytes, Name, UnixMillis};
use serde::{Deserialize, Serialize};

/// A job history in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
}

/// Tasks of one stage, over all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskKindHistory {
    /// Name of the stage.
    pub name: String,
    /// Latest successful tasks, oldest first.
    pub tasks: Vec<TaskMemoryNeed>,
}

/// Memory need of one successful task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

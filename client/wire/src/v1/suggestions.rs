//! Sizes suggested from the usage of earlier jobs: size, savings and reason.

use headroom_types::{Bytes, Name};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Suggested size for the tasks of one stage of a job history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Suggestion {
    /// Submitting user of the jobs.
    pub user: String,
    /// The common name of the jobs.
    pub job: Name,
    /// The stage.
    pub kind: String,
    /// Tasks in the history.
    pub tasks: u32,
    /// Latest initial size of its tasks. Bytes.
    pub asked: Bytes,
    /// Median of the needed memory. Bytes.
    pub p50: Bytes,
    /// 95th percentile of the needed memory. Bytes.
    pub p95: Bytes,
    /// Maximum of the needed memory. Bytes.
    pub max: Bytes,
    /// Attempts of these tasks that failed for memory.
    pub kills: u64,
    /// Cheapest initial size with learned sizes; `None` with too little history. Bytes.
    pub suggested: Option<Bytes>,
    /// Next size of a task that fails at the suggested size; `None` if none would fail. Bytes.
    pub then: Option<Bytes>,
    /// Size to state in a job file: the suggested size, but at least the 95th percentile. Bytes.
    pub stated: Option<Bytes>,
    /// Tasks that would have failed for memory once at the suggested size.
    pub would_fail: u32,
    /// Memory × time that the tasks needed. GiB·hours.
    pub needed_gib_h: f64,
    /// Memory × time of the successful attempts. GiB·hours.
    pub allocated_gib_h: f64,
    /// Memory × time with the suggested size; failing tasks count twice. GiB·hours.
    pub would_allocate_gib_h: f64,
    /// Memory × time with one size for all tasks that holds the largest. GiB·hours.
    pub one_size_gib_h: f64,
    /// The suggestion in words.
    pub why: String,
}

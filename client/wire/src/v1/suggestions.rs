//! Sizes that follow from what earlier jobs needed, for people: what to ask for, what it would spare, and why.

use headroom_types::{Bytes, Name};
use serde::{Deserialize, Serialize};

/// What the tasks of one stage of a job family should begin with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Suggestion {
    /// Who submitted the jobs.
    pub user: String,
    /// The name that the jobs have in common.
    pub job: Name,
    /// The stage.
    pub kind: String,
    /// Tasks that are remembered.
    pub tasks: u32,
    /// What its tasks began with last. Bytes.
    pub asked: Bytes,
    /// Half of them needed no more. Bytes.
    pub p50: Bytes,
    /// Nineteen of twenty needed no more. Bytes.
    pub p95: Bytes,
    /// The most that one needed. Bytes.
    pub max: Bytes,
    /// Attempts of them that failed for memory.
    pub kills: u64,
    /// What costs least to begin with where sizes are learned; `None` while too little is known. Bytes.
    pub suggested: Option<Bytes>,
    /// What a task is given that fails at the suggested size; `None` when none of them would. Bytes.
    pub then: Option<Bytes>,
    /// What to write where sizes are stated: as suggested, and never below what nineteen of twenty need. Bytes.
    pub stated: Option<Bytes>,
    /// How many would have failed for memory once at the suggested size.
    pub would_fail: u32,
    /// Memory × time that they needed. GiB·hours.
    pub needed_gib_h: f64,
    /// Memory × time of the attempts that ended well. GiB·hours.
    pub allocated_gib_h: f64,
    /// The same with the suggested size, those that fail counted twice. GiB·hours.
    pub would_allocate_gib_h: f64,
    /// The same with one size for all that holds the largest. GiB·hours.
    pub one_size_gib_h: f64,
    /// The suggestion in words.
    pub why: String,
}

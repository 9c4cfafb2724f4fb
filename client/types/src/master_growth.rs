//! Larger sizes of a managed application master after memory failures.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Growth of a managed master. After a memory failure, its next run gets twice the quantity that
/// ran out: heap or overhead, or all of its memory without a declared heap. Such a failure does not
/// count against the maximum number of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MasterGrowth {
    /// Largest memory of its container. The largest node and the queue also limit it. Bytes.
    pub max_memory: Bytes,
}

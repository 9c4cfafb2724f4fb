//! One point of a memory timeline, and the marks on it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// One point of a memory timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemorySample {
    /// Milliseconds after the start.
    pub at_ms: u64,
    /// All charged memory. Bytes.
    pub current: Bytes,
    /// Anonymous memory. Bytes.
    pub anon: Option<Bytes>,
    /// Page cache. Bytes.
    pub file: Option<Bytes>,
    /// Heap in use, as reported by the runtime. Bytes.
    pub heap: Option<Bytes>,
    /// The limit at that moment. Bytes.
    pub limit: Option<Bytes>,
    /// An event at this point or, after thinning, near it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<TimelineMark>,
}

impl MemorySample {
    /// The point with the larger use, with the marks of both. For equal use, the later point.
    pub fn merge_larger(self, later: MemorySample) -> MemorySample {
        let kept = if later.current >= self.current {
            later
        } else {
            self
        };
        MemorySample {
            mark: self.mark.max(later.mark),
            ..kept
        }
    }

    /// Thins to at most `most` points, and to at least one if there is any. Keeps the largest point
    /// of each stretch and the later mark in it.
    pub fn thin(points: &[MemorySample], most: usize) -> Vec<MemorySample> {
        let stretch = points.len().div_ceil(most.max(1)).max(1);
        points
            .chunks(stretch)
            .filter_map(|few| few.iter().copied().reduce(MemorySample::merge_larger))
            .collect()
    }
}

word_enum! {
    /// An event at a point. When two events fall on one point, the later one in this order remains.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum TimelineMark: "is not a mark; use" {
        /// The runtime began to spend more than a fifth of its time in garbage collection.
        HeapStarved = "heap starved",
        /// The limit was lowered.
        LimitLowered = "limit lowered",
        /// The limit was raised.
        LimitRaised = "limit raised",
        /// It ended without a memory kill.
        Ended = "ended",
        /// Headroom ended it: above its limit without kernel enforcement, stalled at its limit, or on
        /// request.
        Stopped = "stopped",
        /// The kernel killed it for memory.
        Killed = "killed",
    }
}

//! One point of a memory timeline, and what may have happened at it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// One point of a memory timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sample {
    /// Milliseconds after the start.
    pub at_ms: u64,
    /// All that is charged. Bytes.
    pub current: Bytes,
    /// Anonymous memory. Bytes.
    pub anon: Option<Bytes>,
    /// Page cache. Bytes.
    pub file: Option<Bytes>,
    /// Heap in use, told by the runtime. Bytes.
    pub heap: Option<Bytes>,
    /// The limit at that moment. Bytes.
    pub limit: Option<Bytes>,
    /// What happened at it or, after thinning, near it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
}

impl Sample {
    /// The larger of two neighbours, with what happened at either. The later one of two equals.
    pub fn larger(self, later: Sample) -> Sample {
        let kept = if later.current >= self.current { later } else { self };
        Sample { mark: self.mark.max(later.mark), ..kept }
    }

    /// At most `most` points, and at least one where there is one: the largest of each stretch, with every mark.
    pub fn thinned(points: &[Sample], most: usize) -> Vec<Sample> {
        let stretch = points.len().div_ceil(most.max(1)).max(1);
        points.chunks(stretch).filter_map(|few| few.iter().copied().reduce(Sample::larger)).collect()
    }
}

/// What happened at a point. The later one in this order stays when two of them fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The runtime began to spend more than a fifth of its time collecting.
    HeapStarved,
    /// The limit was lowered.
    LimitLowered,
    /// The limit was raised.
    LimitRaised,
    /// It ended without being killed for memory.
    Ended,
    /// Ended by us: over its limit where no kernel holds it, stuck at it, or on request.
    Stopped,
    /// Killed by the kernel for memory.
    Killed,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mark::HeapStarved => "heap starved",
            Mark::LimitLowered => "limit lowered",
            Mark::LimitRaised => "limit raised",
            Mark::Ended => "ended",
            Mark::Stopped => "stopped",
            Mark::Killed => "killed",
        })
    }
}

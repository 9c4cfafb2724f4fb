//! What a runtime told about its own heap and about collecting it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// What a runtime said about its own heap. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeapFacts {
    /// In use.
    pub used: Bytes,
    /// Taken from the system.
    pub committed: Bytes,
    /// The most it may take (`-Xmx`).
    pub max: Bytes,
    /// Old generation in use: after a full collection, what is really live.
    pub old_used: Option<Bytes>,
    /// The most that the old generation may hold, where it is a part of its own; regions (G1) have no such border.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_max: Option<Bytes>,
    /// What the program said that it keeps as a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Bytes>,
    /// Class metadata.
    pub metaspace: Option<Bytes>,
    /// Live threads.
    pub threads: Option<u64>,
    /// Newest objects (eden).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eden: Option<Bytes>,
    /// Objects that survived a collection or a few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<Bytes>,
    /// Code compiled since the start; some of it may be gone again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<Bytes>,
    /// Its collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc: Option<GcFacts>,
}

/// What a runtime said about collecting its heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GcFacts {
    /// Which collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// Collections since the start; a count.
    pub collections: u64,
    /// How many of them were of the whole heap; a count.
    pub full: u64,
    /// Time spent in them since the start, milliseconds.
    pub spent_ms: u64,
    /// Share of the last seconds spent in them, per cent; `None` before there were two measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent_percent: Option<u8>,
    /// What the last one was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<GcCause>,
    /// Size of a region, from the collector's log. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Bytes>,
    /// Regions that hold one large object each after the last collection, from the collector's log; a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub humongous: Option<u64>,
}

/// Collectors of HotSpot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Collector {
    /// One thread, two generations.
    Serial,
    /// Several threads, two generations.
    Parallel,
    /// Regions.
    G1,
    /// Concurrent, coloured pointers.
    Z,
    /// Concurrent, forwarding pointers.
    Shenandoah,
    /// Another one.
    #[serde(other)]
    Other,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Collector::Serial => "serial",
            Collector::Parallel => "parallel",
            Collector::G1 => "G1",
            Collector::Z => "Z",
            Collector::Shenandoah => "Shenandoah",
            Collector::Other => "unknown",
        })
    }
}

/// What a collection was for, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GcCause {
    /// No room for a new object.
    Allocation,
    /// No room for one object of more than half a region.
    Humongous,
    /// Class metadata came to its threshold.
    Metadata,
    /// Compiled code came to its threshold.
    CodeCache,
    /// The program asked for it, or its direct buffers did.
    Asked,
    /// Something else.
    #[serde(other)]
    Other,
}

//! Heap and garbage collection, as reported by a runtime.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// The heap of a runtime, as reported by it. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeapReport {
    /// Process id of the runtime on its node; `None` if the author of the report did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// In use.
    pub used: Bytes,
    /// Committed: obtained from the system.
    pub committed: Bytes,
    /// Maximum (`-Xmx`).
    pub max: Bytes,
    /// Used part of the old generation; after a full collection, the live data.
    pub old_used: Option<Bytes>,
    /// Maximum of the old generation, if it is a separate area. G1 regions have no such border.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_max: Option<Bytes>,
    /// Cache size, as reported by the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<Bytes>,
    /// Class metadata.
    pub metaspace: Option<Bytes>,
    /// Live threads.
    pub threads: Option<u64>,
    /// Newest objects (eden).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eden: Option<Bytes>,
    /// Objects that survived one or a few collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survivor: Option<Bytes>,
    /// Code compiled since the start; some of it may have been freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled: Option<Bytes>,
    /// Its garbage collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc: Option<CollectionReport>,
}

/// Garbage collection, as reported by the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectionReport {
    /// The collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<GarbageCollector>,
    /// Collections since the start; a count.
    pub collections: u64,
    /// Full collections; a count.
    pub full: u64,
    /// Time spent in collections since the start, milliseconds.
    pub spent_ms: u64,
    /// Share of the last seconds spent in collections, per cent; `None` before the second
    /// measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_percent: Option<u8>,
    /// The cause of the last collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<GcCause>,
    /// Region size, from the log of the collector. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Bytes>,
    /// Regions with one large object each after the last collection, from the log of the collector;
    /// a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub humongous: Option<u64>,
}

word_enum! {
    /// A garbage collector of HotSpot.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum GarbageCollector: "is not a garbage collector; use" {
        /// One thread, two generations.
        Serial = "serial",
        /// Several threads, two generations.
        Parallel = "parallel",
        /// Region-based.
        G1 = "G1",
        /// Concurrent, coloured pointers.
        Z = "Z",
        /// Concurrent, forwarding pointers.
        Shenandoah = "Shenandoah";
        /// Another collector.
        #[serde(other)]
        Other = "unknown",
    }
}

/// The cause of a collection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GcCause {
    /// No free memory for a new object.
    Allocation,
    /// No free memory for one object of more than half a region.
    Humongous,
    /// Class metadata reached its threshold.
    Metadata,
    /// Compiled code reached its threshold.
    CodeCache,
    /// Requested by the program or by its direct buffers.
    Asked,
    /// Another cause.
    #[serde(other)]
    Other,
}

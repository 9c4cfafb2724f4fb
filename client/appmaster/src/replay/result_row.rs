//! The results of a replay as rows, one for each dataset and mode. The replay fills them, and
//! `rmctl` renders them; they contain no rule.

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;
use serde::Serialize;

use super::parts::MemorySplitResults;
use super::shared_results::SharedResults;

/// The dataset name of rows that sum up all datasets of a replay.
pub const TOTAL: &str = "total";

/// Results of a replay. Memory over time in GiB·h.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayResultRow {
    /// The dataset; [`TOTAL`] for the sum.
    pub dataset: String,
    /// The mode.
    pub mode: MemoryFailureMode,
    /// True if sizes grew in place.
    pub growth: bool,
    /// Memory used divided by memory allocated.
    pub maq: f64,
    /// Kills per thousand tasks.
    pub kills_per_1000: f64,
    /// Tasks that were given up.
    pub lost: u64,
    /// Given-up tasks that some host could have held.
    pub lost_avoidable: u64,
    /// Time until the last task ended, divided by that of a run with known needs.
    pub makespan_ratio: f64,
    /// Allocated memory over time.
    pub allocated_gib_h: f64,
    /// Allocated and unused memory over time.
    pub wasted_gib_h: f64,
    /// Tasks.
    pub tasks: u64,
    /// Growth steps of running tasks.
    pub grown: u64,
    /// Results with shared executors: four slots share 16 GiB.
    pub shared: SharedResults,
    /// Results with shared executors that are so small that one task in ten does not fit its share.
    pub tight: SharedResults,
    /// Results with separate heap and overhead, and with one knob for both; only in rows of mode
    /// `headroom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<MemorySplitResults>,
    /// Requirements of the project; only in the row of all datasets in mode `headroom`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Requirement>,
    /// Kills.
    pub kills: u64,
    /// Attempts that did not start directly after their submission or after the end of the previous
    /// attempt.
    pub waits: u64,
    /// Total time of these waits. Seconds.
    pub wait_s: f64,
    /// 99th percentile of the waits of all attempts. Seconds.
    pub wait_p99_s: f64,
    /// Attempts that were frozen near their limit because their node had no free memory.
    pub frozen: u64,
    /// Total time of freezes. Seconds.
    pub frozen_s: f64,
    /// Attempts that were evicted for a frozen one and ran again elsewhere.
    pub evictions: u64,
    /// Time until the last task ended; the sum in the row of all datasets. Seconds.
    pub makespan_s: f64,
    /// Needed memory divided by the memory of all nodes until the last task ended.
    pub utilization: f64,
    /// The target utilisation of a paced submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// Number of nodes; 0 in the row of all datasets if the numbers differ.
    pub nodes: usize,
    /// Memory of each node; 0 if it differs. Bytes.
    pub node_memory: Bytes,
    /// Processors of each node.
    pub node_cpus: u32,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requirement {
    /// `G1` to `G5`.
    pub name: &'static str,
    /// The requirement, for display.
    pub asks: &'static str,
    /// True if it is met.
    pub met: bool,
    /// The measured values, for display.
    pub says: String,
}

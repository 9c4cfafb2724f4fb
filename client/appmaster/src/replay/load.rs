//! The load of a replay: submission times of tasks, and the number of nodes.

use headroom_types::Bytes;

use super::cluster_shape::ClusterShape;
use super::ticks::ticks;
use super::trace::RecordedTask;

/// Minimum duration of a trace in multiples of its longest task, so that the utilisation between
/// its first and last tasks dominates.
const LONGEST_RUNS: f64 = 10.0;
/// Default memory of a node, in multiples of the largest task.
const LARGEST_TASKS: u64 = 8;

/// Nodes and submission times of one run.
#[derive(Clone, Debug)]
pub(super) struct TraceLoad {
    /// The nodes.
    pub(super) cluster: ClusterShape,
    /// Submission time of each task. Ticks; empty if all are submitted at the start.
    pub(super) submitted: Vec<u64>,
}

/// The properties of the nodes that the caller stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedNodes {
    /// Number and memory.
    Nodes,
    /// Memory.
    Memory,
    /// None.
    Nothing,
}

impl TraceLoad {
    /// A load that submits all tasks at the start.
    pub(super) fn at_once(cluster: ClusterShape) -> TraceLoad {
        TraceLoad {
            cluster,
            submitted: Vec::new(),
        }
    }

    /// A load that submits tasks at a constant rate, at which their need is this part of the nodes'
    /// memory.
    pub(super) fn paced(
        tasks: &[RecordedTask],
        utilization: f64,
        cluster: ClusterShape,
        stated: StatedNodes,
    ) -> TraceLoad {
        let work: f64 = tasks.iter().map(need_over_time).sum();
        let longest = tasks.iter().map(|task| task.runtime_s).fold(0.0, f64::max);
        let memory = match stated {
            StatedNodes::Nodes | StatedNodes::Memory => cluster.memory,
            StatedNodes::Nothing => usual_memory(tasks).min(cluster.memory),
        };
        let of_one = utilization * memory.as_gib_f64();
        let nodes = match stated {
            StatedNodes::Nodes => cluster.nodes,
            StatedNodes::Memory | StatedNodes::Nothing => {
                whole(work / (longest * LONGEST_RUNS * of_one)).max(1)
            }
        };
        #[allow(clippy::cast_precision_loss)] // a count of nodes
        let span = work / (nodes as f64 * of_one);
        let mut before = 0.0;
        let submitted = tasks
            .iter()
            .map(|task| {
                let at = ticks(before / work * span);
                before += need_over_time(task);
                at
            })
            .collect();
        TraceLoad {
            cluster: ClusterShape {
                nodes,
                memory,
                ..cluster
            },
            submitted,
        }
    }
}

/// Memory need of a task over its run time. GiB·s.
fn need_over_time(task: &RecordedTask) -> f64 {
    task.peak.as_gib_f64() * task.runtime_s
}

/// The default memory of a node: a power of two, in GiB.
fn usual_memory(tasks: &[RecordedTask]) -> Bytes {
    let largest = tasks
        .iter()
        .map(|task| task.peak)
        .max()
        .unwrap_or(Bytes::ZERO)
        .mul_ratio(LARGEST_TASKS, 1);
    let gib = largest.div_ceil(Bytes::from_gib(1)).max(1);
    Bytes::from_gib(gib.next_power_of_two())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
fn whole(count: f64) -> usize {
    if count.is_finite() {
        count.clamp(0.0, 100_000.0) as usize
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(count: usize, mib: u64, runtime_s: f64) -> Vec<RecordedTask> {
        let peak = Bytes::from_mib(mib);
        vec![
            RecordedTask {
                kind: "sort".into(),
                input: None,
                peak,
                runtime_s,
                request: None,
                cpus: 1
            };
            count
        ]
    }

    #[test]
    fn the_submission_rate_follows_from_the_utilization() {
        let cluster = ClusterShape {
            nodes: 4,
            cpus: 32,
            memory: Bytes::from_gib(10),
        };
        // 1000 GiB·s on 40 GiB, half of them used: 50 s
        let load = TraceLoad::paced(&tasks(100, 1024, 10.0), 0.5, cluster, StatedNodes::Nodes);
        assert_eq!(load.cluster.nodes, 4);
        assert_eq!(load.submitted.get(50).copied(), Some(25_000_000));
    }

    #[test]
    fn the_trace_determines_an_unstated_number_of_nodes() {
        let load = TraceLoad::paced(
            &tasks(4000, 1024, 10.0),
            0.5,
            ClusterShape::default(),
            StatedNodes::Nothing,
        );
        assert_eq!(load.cluster.memory, Bytes::from_gib(8));
        assert_eq!(
            load.cluster.nodes, 100,
            "40,000 GiB·s in 100 s need 400 GiB, half of 800"
        );
        let few = TraceLoad::paced(
            &tasks(4, 1024, 10.0),
            0.5,
            ClusterShape::default(),
            StatedNodes::Nothing,
        );
        assert_eq!(few.cluster.nodes, 1);
    }
}

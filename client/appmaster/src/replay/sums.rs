//! The counters of one replay, and their sum over datasets.

use headroom_wire::v1::job::MemoryFailureMode;

use super::cluster_shape::ClusterShape;
use super::result_row::ReplayResultRow;
use super::shared_results::SharedResults;
use crate::policy::grow;

/// Counts and times of one replay.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayCounters {
    pub(super) tasks: u64,
    pub(super) kills: u64,
    pub(super) lost: u64,
    pub(super) lost_avoidable: u64,
    pub(super) grown: u64,
    pub(super) evictions: u64,
    /// Attempts that were frozen because their node had no free memory.
    pub(super) frozen: u64,
    /// Total time of freezes. Seconds.
    pub(super) frozen_s: f64,
    /// Wait of each attempt that did not start at once. Seconds.
    pub(super) waits: Vec<f64>,
    /// Attempts.
    pub(super) attempts: u64,
    /// Needed memory over time. GiB·s.
    pub(super) used: f64,
    /// Allocated memory over time. GiB·s.
    pub(super) allocated: f64,
    /// Memory of the nodes until the last task ended. GiB·s.
    pub(super) capacity: f64,
    /// Time until the last task ended. Seconds.
    pub(super) makespan: f64,
    /// The same time with known needs. Seconds.
    pub(super) ideal: f64,
}

impl ReplayCounters {
    pub(super) fn add(&mut self, other: &ReplayCounters) {
        self.tasks += other.tasks;
        self.kills += other.kills;
        self.lost += other.lost;
        self.lost_avoidable += other.lost_avoidable;
        self.grown += other.grown;
        self.evictions += other.evictions;
        self.frozen += other.frozen;
        self.frozen_s += other.frozen_s;
        self.waits.extend(&other.waits);
        self.attempts += other.attempts;
        self.used += other.used;
        self.allocated += other.allocated;
        self.capacity += other.capacity;
        self.makespan += other.makespan;
        self.ideal += other.ideal;
    }

    /// The row of these counters, without shared executors. The nodes of a total come from the
    /// caller.
    #[allow(clippy::cast_precision_loss)] // counts of tasks
    pub(super) fn row(
        &self,
        dataset: &str,
        mode: MemoryFailureMode,
        growth: bool,
        cluster: ClusterShape,
    ) -> ReplayResultRow {
        let ratio = |a: f64, b: f64| if b > 0.0 { thousandths(a / b) } else { 0.0 };
        ReplayResultRow {
            dataset: dataset.to_owned(),
            mode,
            growth: growth && grow::mode_allows_growth(mode),
            maq: ratio(self.used, self.allocated),
            kills_per_1000: ratio(self.kills as f64 * 1000.0, self.tasks as f64),
            lost: self.lost,
            lost_avoidable: self.lost_avoidable,
            makespan_ratio: ratio(self.makespan, self.ideal),
            allocated_gib_h: thousandths(self.allocated / 3600.0),
            wasted_gib_h: thousandths((self.allocated - self.used) / 3600.0),
            tasks: self.tasks,
            grown: self.grown,
            shared: SharedResults::default(),
            tight: SharedResults::default(),
            parts: None,
            gates: Vec::new(),
            kills: self.kills,
            waits: u64::try_from(self.waits.len()).unwrap_or(u64::MAX),
            wait_s: thousandths(self.waits.iter().sum()),
            wait_p99_s: thousandths(self.wait_p99()),
            frozen: self.frozen,
            frozen_s: thousandths(self.frozen_s),
            evictions: self.evictions,
            makespan_s: thousandths(self.makespan),
            utilization: ratio(self.used, self.capacity),
            target_utilization: None,
            nodes: cluster.nodes,
            node_memory: cluster.memory,
            node_cpus: cluster.cpus,
        }
    }

    /// 99th percentile of the waits of all attempts. Seconds.
    fn wait_p99(&self) -> f64 {
        let longer = usize::try_from(self.attempts / 100).unwrap_or(usize::MAX);
        let mut waits = self.waits.clone();
        waits.sort_by(|a, b| b.total_cmp(a));
        waits.get(longer).copied().unwrap_or(0.0)
    }
}

fn thousandths(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hundredth_part_of_the_attempts_waits_longer() {
        let waits: Vec<f64> = (1..=10).map(f64::from).collect();
        let sums = |attempts| ReplayCounters {
            waits: waits.clone(),
            attempts,
            ..ReplayCounters::default()
        };
        assert!((sums(10).wait_p99() - 10.0).abs() < 1e-9);
        assert!((sums(300).wait_p99() - 7.0).abs() < 1e-9);
        assert!(sums(5000).wait_p99().abs() < 1e-9, "most started at once");
    }
}

//! The results of tasks in shared executors, and their sum over datasets. The replay in
//! [`super::executors`] counts them.

use serde::Serialize;

/// Results of the tasks in shared executors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SharedResults {
    /// Killed attempts: of tasks beyond their size, and of tasks in the same executor.
    pub kills: u64,
    /// Killed attempts of tasks that stayed within their size.
    pub collateral_kills: u64,
    /// Attempts within their size that were charged nevertheless.
    pub collateral_charged: u64,
    /// Executors that died.
    pub deaths: u64,
    /// Tasks that were given up.
    pub lost: u64,
    /// Given-up tasks that some host could have held.
    pub lost_avoidable: u64,
    /// Memory used divided by memory allocated.
    pub maq: f64,
    /// Memory that successful tasks needed. GiB·h.
    pub used_gib_h: f64,
    /// Memory of executors and containers. GiB·h.
    pub allocated_gib_h: f64,
    /// Growth steps of running attempts.
    pub grown: u64,
    /// Attempts that were frozen because neither their executor nor its node had free memory.
    pub frozen: u64,
    /// Total time of freezes. Seconds.
    pub frozen_s: f64,
    /// Attempts that were evicted for a frozen one and ran again elsewhere.
    pub evictions: u64,
}

impl SharedResults {
    /// Adds the results of another dataset.
    pub(super) fn add(&mut self, other: &SharedResults) {
        self.kills += other.kills;
        self.collateral_kills += other.collateral_kills;
        self.collateral_charged += other.collateral_charged;
        self.deaths += other.deaths;
        self.lost += other.lost;
        self.lost_avoidable += other.lost_avoidable;
        self.used_gib_h += other.used_gib_h;
        self.allocated_gib_h += other.allocated_gib_h;
        self.grown += other.grown;
        self.frozen += other.frozen;
        self.frozen_s += other.frozen_s;
        self.evictions += other.evictions;
        self.share_out();
    }
    /// Computes the used part of the allocated memory.
    pub(super) fn share_out(&mut self) {
        self.maq = if self.allocated_gib_h > 0.0 {
            (self.used_gib_h / self.allocated_gib_h * 1000.0).round() / 1000.0
        } else {
            0.0
        };
    }
}

//! Several resource managers with their state in etcd: their number, lease and clocks, and faults of
//! managers and of etcd.

use std::time::Duration;

use headroom_rm_etcd::certain_until;

use super::{EVERYBODY_IS_THERE, Scenario};
use crate::fault;
use crate::simulation::random_source::RandomSource;

/// Separates the random numbers of managers from those of jobs.
const MANAGERS: u64 = 0x3a4a_6e25;
/// Scenarios with several managers, of 100.
const SEVERAL: u64 = 35;

/// The resource managers of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSetup {
    /// Lease of the leader. Milliseconds.
    pub lease_ms: u64,
    /// Longest usual delay between a manager and etcd, in each direction. Milliseconds.
    pub etcd_delay_ms: u64,
    /// For each manager, the time of its clock in 1000 milliseconds of etcd's.
    pub rates: Vec<u64>,
}

impl ManagerSetup {
    /// One manager with a state of its own.
    pub fn one() -> Self {
        ManagerSetup {
            lease_ms: 0,
            etcd_delay_ms: 0,
            rates: vec![1_000],
        }
    }

    /// Number of managers.
    pub fn count(&self) -> usize {
        self.rates.len()
    }

    /// Two or three managers, whose clocks differ from each other as far as the lease allows.
    fn several(chance: &mut RandomSource) -> Self {
        let lease_ms = chance.pick(&[1_000, 3_000, 3_000, 10_000]).unwrap_or(3_000);
        // A leader stops earlier by this part of the lease than the fastest standby replaces it.
        let certain = certain_until(0, Duration::from_millis(lease_ms)) * 1_000 / lease_ms;
        let slowest = 1_000 - (1_000 - certain) / 2;
        let fastest = slowest * 1_000 / certain;
        let count = chance.between(2, 3);
        let rate = |chance: &mut RandomSource| match chance.below(4) {
            0 => slowest,
            1 => fastest,
            _ => chance.between(slowest, fastest),
        };
        ManagerSetup {
            lease_ms,
            // A lease must outlast several calls.
            etcd_delay_ms: chance
                .pick(&[4, 8, 8, 50, 400])
                .unwrap_or(8)
                .min(lease_ms / 10),
            rates: (0..count).map(|_| rate(chance)).collect(),
        }
    }
}

impl Scenario {
    /// Replaces the manager by several ones in some scenarios, and adds their faults.
    pub(super) fn draw_managers(&mut self, seed: u64) {
        if RandomSource::new(seed ^ MANAGERS).percent(SEVERAL) {
            self.have_managers(seed);
        }
    }

    fn have_managers(&mut self, seed: u64) {
        let mut chance = RandomSource::new(seed ^ MANAGERS).split();
        self.managers = ManagerSetup::several(&mut chance);
        let faults = fault::of_managers(&mut chance, (EVERYBODY_IS_THERE, self.calm_ms));
        self.faults.extend(faults);
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// The scenario of a seed with several managers.
    pub fn several_managers(seed: u64) -> Self {
        let mut scenario = Scenario::one_manager(seed);
        scenario.have_managers(seed);
        scenario
    }
}

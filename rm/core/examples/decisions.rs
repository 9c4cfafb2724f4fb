//! The load of `measure rm-core` for a fixed number of decisions, to count instructions:
//!
//! ```sh
//! cargo build --release -p headroom-rm-core --example decisions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured_step*' \
//!     target/release/examples/decisions 1000 20000 5000
//! ```
//!
//! The arguments are the nodes, the decisions before the measurement, the measured decisions, and
//! `1` for a fingerprint of all effects: it is equal for two revisions of the core that decide the
//! same.

#![allow(clippy::print_stdout)] // a program for developers

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use headroom_rm_core::testkit::load::{ClusterLoad, LoadShape};
use headroom_rm_core::{Cluster, ClusterEffect, ClusterEvent, RestoredCluster};
use headroom_types::{Epoch, Tick};

struct Run {
    cluster: Cluster,
    load: ClusterLoad,
    out: Vec<ClusterEffect>,
    effects: DefaultHasher,
    is_checked: bool,
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let mut next = |default: u64| arguments.next().unwrap_or(default);
    let nodes = u32::try_from(next(1000)).unwrap_or(u32::MAX);
    let (before, measured) = (next(20_000), next(5000));
    let mut run = Run::new(nodes);
    run.is_checked = next(0) == 1;
    run.grant(before, Cluster::step);
    let spent = run.grant(measured, measured_step);
    let each = spent.as_nanos() / u128::from(measured.max(1));
    let effects = run.effects.finish();
    println!("{nodes} nodes, {measured} decisions, {each} ns each, effects {effects:016x}");
}

/// A step of the measured part, under a name that callgrind recognizes.
#[inline(never)]
fn measured_step(
    cluster: &mut Cluster,
    now: Tick,
    event: ClusterEvent,
    out: &mut Vec<ClusterEffect>,
) {
    cluster.step(now, event, out);
}

impl Run {
    fn new(nodes: u32) -> Run {
        let shape = LoadShape {
            nodes,
            queues: (nodes / 10).max(1),
            users: 1,
            requests: 100,
            exits: 4,
        };
        let epoch = Epoch(1);
        let restored = RestoredCluster {
            epoch,
            ..RestoredCluster::default()
        };
        let mut cluster = Cluster::new(ClusterLoad::settings(shape), restored, Tick(0));
        let mut load = ClusterLoad::new(shape, epoch);
        load.register_all(|event| {
            let mut out = Vec::new();
            cluster.step(Tick(1), event, &mut out);
            out
        });
        Run {
            cluster,
            load,
            out: Vec::new(),
            effects: DefaultHasher::new(),
            is_checked: false,
        }
    }

    /// Runs steps until `count` more containers are granted; returns the time spent in steps.
    #[allow(clippy::disallowed_methods)] // the program reads the clock, not the core
    fn grant(
        &mut self,
        count: u64,
        step: fn(&mut Cluster, Tick, ClusterEvent, &mut Vec<ClusterEffect>),
    ) -> Duration {
        let enough = self.load.granted + count;
        let mut spent = Duration::ZERO;
        while self.load.granted < enough {
            let (event, now) = (self.load.next_event(), self.load.now());
            let begin = Instant::now();
            if self.cluster.next_deadline().is_some_and(|due| due <= now) {
                step(&mut self.cluster, now, ClusterEvent::Time, &mut self.out);
            }
            step(&mut self.cluster, now, event, &mut self.out);
            spent += begin.elapsed();
            for effect in self.out.iter().filter(|_| self.is_checked) {
                format!("{effect:?}").hash(&mut self.effects);
            }
            self.load.take(self.out.drain(..));
        }
        spent
    }
}

//! Benchmark of the core per event in a busy cluster: `cargo bench -p headroom-rm-core --bench
//! step`.
//!
//! The load of `measure rm-core` at a tenth of its size: 1000 nodes, 100 queues and 10,000 waiting
//! requests. The time of the simulated nodes and masters is not counted.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headroom_rm_core::testkit::load::{ClusterLoad, LoadShape};
use headroom_rm_core::{Cluster, ClusterEffect, ClusterEvent, RestoredCluster};
use headroom_types::{Epoch, Tick};

const SHAPE: LoadShape = LoadShape {
    nodes: 1000,
    queues: 100,
    users: 1,
    requests: 100,
    exits: 4,
};

struct Site {
    cluster: Cluster,
    load: ClusterLoad,
    out: Vec<ClusterEffect>,
}

impl Site {
    /// Creates a cluster in which every node is full and all containers were replaced several
    /// times.
    fn new() -> Site {
        let epoch = Epoch(1);
        let mut cluster = Cluster::new(
            ClusterLoad::settings(SHAPE),
            RestoredCluster {
                epoch,
                ..RestoredCluster::default()
            },
            Tick(0),
        );
        let mut load = ClusterLoad::new(SHAPE, epoch);
        load.register_all(|event| {
            let mut out = Vec::new();
            cluster.step(Tick(1), event, &mut out);
            out
        });
        let mut site = Site {
            cluster,
            load,
            out: Vec::new(),
        };
        site.grant(20 * u64::from(SHAPE.nodes));
        site
    }

    /// Runs steps until `count` more containers are granted; returns the time spent in steps.
    #[allow(clippy::disallowed_methods)] // the benchmark reads the clock, not the core
    fn grant(&mut self, count: u64) -> Duration {
        let enough = self.load.granted + count;
        let mut spent = Duration::ZERO;
        while self.load.granted < enough {
            let (event, now) = (self.load.next_event(), self.load.now());
            let begin = Instant::now();
            if self.cluster.next_deadline().is_some_and(|due| due <= now) {
                self.cluster.step(now, ClusterEvent::Time, &mut self.out);
            }
            self.cluster.step(now, event, &mut self.out);
            spent += begin.elapsed();
            self.load.take(self.out.drain(..));
        }
        spent
    }
}

fn steps(c: &mut Criterion) {
    let mut site = Site::new();
    let mut group = c.benchmark_group("step");
    group.throughput(Throughput::Elements(1));
    group.bench_function("a container's whole life", |b| {
        b.iter_custom(|times| site.grant(times))
    });
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);

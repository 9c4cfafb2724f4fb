//! Benchmark of the index with 10,000 nodes: `cargo bench -p headroom-rm-core --bench index`.
//!
//! The nodes have random free memory and processors, as in a busy cluster: most of them are nearly
//! full.

use criterion::{Criterion, criterion_group, criterion_main};
use headroom_rm_core::NodeProperties;
use headroom_rm_core::placement::{LocalityLevel, PlacementLevel, PlacementRules};
use headroom_rm_core::sched::fit::{self, PlacementNeed};
use headroom_rm_core::sched::index::FreeIndex;
use headroom_rm_core::sched::node_ix::NodeNumber;
use headroom_rm_core::testkit::{id, size};
use headroom_types::{Bytes, Cpus, Resource};

const NODES: u64 = 10_000;
const RACK: u64 = 40;

/// Random numbers with a fixed seed, so that every run measures the same operations.
struct Random(u64);

impl Random {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
    fn room(&mut self) -> Resource {
        let nearly_full = self.roll(4) > 0;
        let mib = self.roll(if nearly_full { 4 * 1024 } else { 128 * 1024 });
        let milli = u32::try_from(self.roll(if nearly_full { 4000 } else { 32_000 })).unwrap_or(0);
        Resource::new(Bytes::from_mib(mib), Cpus::from_milli(milli))
    }
}

fn cluster(random: &mut Random) -> (FreeIndex, Vec<NodeNumber>) {
    let mut index = FreeIndex::default();
    let nodes = (0..NODES).map(|n| {
        let mut traits = NodeProperties {
            rack: Some(id(&format!("r{}", n / RACK))),
            ..NodeProperties::default()
        };
        if n % 3333 == 0 {
            traits.labels.insert(id("rare"));
        }
        if n % 2 == 0 {
            traits.labels.insert(id("even"));
            traits.attributes.insert(id("zone"), format!("z{}", n % 8));
        }
        let (mut offers, mut room) = (size(128, 32), random.room());
        if n % 100 == 0 {
            offers.extra.insert(id("gpu"), 8);
            room.extra.insert(id("gpu"), random.roll(9));
        }
        let ix = index.enter(&id(&format!("worker-{n:05}")), &traits, &offers);
        index.put(ix, room);
        ix
    });
    let nodes = nodes.collect();
    (index, nodes)
}

/// Named placement rules, from none to a spread.
fn places() -> [(&'static str, PlacementRules); 8] {
    let with = |change: fn(&mut PlacementRules)| {
        let mut place = PlacementRules::default();
        change(&mut place);
        place
    };
    [
        ("anywhere", with(|_| ())),
        (
            "a label on 4 nodes",
            with(|p| p.labels = [id("rare")].into()),
        ),
        (
            "a label on half the nodes",
            with(|p| p.labels = [id("even")].into()),
        ),
        ("one rack", with(|p| p.racks = vec![id("r7")])),
        (
            "three named nodes",
            with(|p| p.nodes = vec![id("worker-00001"), id("worker-00002"), id("worker-00003")]),
        ),
        (
            "not in 2 racks while another fits",
            with(|p| p.avoid_racks = vec![id("r1"), id("r2")]),
        ),
        (
            "near a node",
            with(|p| p.prefer_nodes = vec![id("worker-00100")]),
        ),
        (
            "spread over racks",
            with(|p| p.spread = Some(PlacementLevel::Rack)),
        ),
    ]
}

fn questions(c: &mut Criterion) {
    let mut random = Random(1);
    let (index, nodes) = cluster(&mut random);
    let sizes: Vec<Resource> = (0..1024)
        .map(|_| {
            Resource::new(
                Bytes::from_mib(256 + random.roll(16_384)),
                Cpus::from_milli(1000),
            )
        })
        .collect();
    let mut at = 0;
    let mut next = move || {
        at = (at + 1) % 1024;
        at
    };
    for (name, place) in &places() {
        c.bench_function(&format!("place: {name}"), |b| {
            b.iter(|| {
                let size = &sizes[next()];
                let (avoid, prefer) = (&place.avoid_nodes, &place.prefer_nodes);
                fit::choose(
                    &index,
                    PlacementNeed {
                        size,
                        place,
                        avoid,
                        prefer,
                        reach: LocalityLevel::Anywhere,
                        of: None,
                    },
                )
            });
        });
    }
    let gpus: Vec<Resource> = sizes
        .iter()
        .map(|s| Resource {
            extra: [(id("gpu"), 2)].into(),
            ..s.clone()
        })
        .collect();
    c.bench_function("place: two gpus", |b| {
        b.iter(|| index.best_fit(&gpus[next()]))
    });
    let huge = size(127, 32);
    c.bench_function("place: nowhere", |b| b.iter(|| index.best_fit(&huge)));
    let mut index = index.clone();
    let rooms: Vec<Resource> = (0..1024).map(|_| random.room()).collect();
    let mut turn = 0;
    c.bench_function("move a node", |b| {
        b.iter(|| {
            turn += 1;
            index.put(nodes[turn * 7 % nodes.len()], rooms[turn % 1024].clone());
        });
    });
}

criterion_group!(benches, questions);
criterion_main!(benches);

//! Cost of one task for the learner: one observation, and the size queries of waiting tasks. The
//! kind has 250 observations with inputs.
#![allow(missing_docs, unreachable_pub)] // the macros of criterion generate such items

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use headroom_sizes::learn::ladder::KillPrices;
use headroom_sizes::learn::{SizeLearner, SizeRequest};
use headroom_types::Bytes;

fn asks(n: u64) -> SizeRequest<'static> {
    SizeRequest {
        kind: "sort",
        input: Some(Bytes::from_mib(1 + n * 7919 % 3000)),
        request: Some(Bytes::from_gib(4)),
    }
}

fn end(learner: &mut SizeLearner, n: u64) {
    learner.record_success(
        &asks(n),
        n,
        Bytes::from_mib(200 + n * 7919 % 3000 / 4 + n * 31 % 97),
        60.0,
    );
}

fn learner(c: &mut Criterion) {
    let mut group = c.benchmark_group("learner");
    for waiting in [1u64, 16, 256] {
        let mut learner = SizeLearner::new(Bytes::from_gib(4), KillPrices::default());
        let mut n = 0;
        (0..500).for_each(|n| end(&mut learner, n));
        group.bench_function(BenchmarkId::new("one ends, so many ask", waiting), |b| {
            b.iter(|| {
                n += 1;
                end(&mut learner, n);
                for other in 0..waiting {
                    black_box(learner.first(&asks(n + other)));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, learner);
criterion_main!(benches);

//! The two shipped JVM examples: one exhausts the heap, one the memory beside it. Only the
//! exhausted part grows.

#![allow(missing_docs)] // a test binary has no public API

use std::path::Path;
use std::time::Duration;

use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::AttemptRow;
use integration::cluster::Cluster;
use integration::guest::Guest;
use integration::on_host_and_in_guest;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_mib(1536))
        .timeout(Duration::from_secs(280))
}

/// Runs an example to its end. All tasks must succeed.
fn run_example(name: &str) -> AppView {
    let cluster = Cluster::of_one().expect("a cluster");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../config/examples")
        .join(name);
    let app = cluster.submit_file(&file).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    end
}

/// First and last attempt of each task. All first attempts must have failed with `reason` in
/// `dimension`.
fn first_and_last(
    app: &AppView,
    reason: ExitReason,
    dimension: Dimension,
) -> Vec<(AttemptRow, AttemptRow)> {
    let tasks = &app.job.as_ref().expect("a job").tasks;
    let ends = tasks.iter().map(|t| {
        (
            t.attempts.first().cloned().expect("one"),
            t.attempts.last().cloned().expect("one"),
        )
    });
    let ends: Vec<_> = ends.collect();
    for (first, last) in &ends {
        assert_eq!(
            (first.reason, first.dimension),
            (Some(reason), Some(dimension)),
            "{}: {}",
            first.attempt,
            first.log_tail
        );
        assert_eq!(last.reason, Some(ExitReason::Exit { code: 0 }));
    }
    ends
}

fn a_full_heap_grows_the_heap() {
    let app = run_example("jvm-heap.toml");
    for (first, last) in first_and_last(&app, ExitReason::HeapOom, Dimension::Heap) {
        assert!(
            last.profile.heap >= first.profile.heap.mul_ratio(2, 1),
            "{} after {}",
            last.profile,
            first.profile
        );
        assert_eq!(
            last.profile.overhead, first.profile.overhead,
            "the other quantity keeps its size"
        );
        let evidence = first.evidence.expect("evidence");
        assert_eq!(
            (evidence.exit_code, evidence.own.events.oom_kill),
            (Some(3), 0),
            "the JVM ended itself"
        );
    }
}
on_host_and_in_guest!(heap, guest(), a_full_heap_grows_the_heap);

fn off_heap_growth_grows_the_overhead() {
    let app = run_example("jvm-overhead.toml");
    for (first, last) in first_and_last(&app, ExitReason::OverheadOom, Dimension::Overhead) {
        assert_eq!(
            last.profile.heap, first.profile.heap,
            "the other quantity keeps its size"
        );
        assert!(
            last.profile.overhead > first.profile.overhead,
            "{} after {}",
            last.profile,
            first.profile
        );
        let evidence = first.evidence.expect("evidence");
        assert_eq!(evidence.signal, Some(9), "the kernel killed it");
        let heap = evidence.heap.expect("the JVM's own counters were read");
        assert!(
            heap.used < evidence.heap_budget.expect("a budget"),
            "{heap:?}"
        );
    }
}
on_host_and_in_guest!(overhead, guest(), off_heap_growth_grows_the_overhead);

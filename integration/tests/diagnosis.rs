//! Each sub-cause of the diagnosis, provoked by a real program in a real cgroup of this host.
//!
//! The table is the same as in `measure diagnosis`. Each group of programs has its own test, so
//! that a failure names the group.

#![allow(missing_docs, clippy::print_stdout)] // no public API; skipped programs are printed

use std::path::Path;

use headroom_types::exit::TimelineMark;
use headroom_types::{Bytes, ExitCharge, SubCause, TaskReport};
use integration::provoke::{DiagnosisBench, DiagnosisCase, DiagnosisRow, Needs, cases};

/// Runs all cases that `wanted` selects, checks their diagnoses, and returns the reports.
fn named_right(
    name: &str,
    wanted: impl Fn(&DiagnosisCase) -> bool,
) -> Vec<(DiagnosisCase, TaskReport)> {
    let bench =
        DiagnosisBench::new(name, Path::new(env!("CARGO_BIN_EXE_provoke"))).expect("a bench");
    let mut reports = Vec::new();
    for case in cases().into_iter().filter(wanted) {
        if let Some(missing) = case.needs.missing() {
            println!(
                "SKIPPED {}: there is no {missing} on the PATH",
                case.program
            );
            continue;
        }
        let report = bench.run(&case).expect("a finished run");
        let row = DiagnosisRow::of(&case, &report);
        println!(
            "{} on {}: {} ({:?})",
            row.program,
            bench.kind(),
            row.named,
            row.certainty
        );
        assert!(
            row.right,
            "{}: expected {}\n{:#?}\n{:#?}",
            row.program, row.expected, report.diagnosis, report.evidence
        );
        // A refusal far below the limit is not a memory failure. A full heap, or a full part beside
        // it, at a limit set by hand is one.
        let refused = row.named == SubCause::OwnLimit && report.evidence.heap_budget.is_none();
        let charge = if refused {
            ExitCharge::Plain
        } else {
            ExitCharge::Memory
        };
        assert_eq!(report.reason.charge(), charge, "{}", row.program);
        whole_life(&case, &report);
        reports.push((case, report));
    }
    reports
}

/// Checks that the timeline continues until the end, contains the peak, and has the right last
/// mark. Its start depends on the machine.
fn whole_life(case: &DiagnosisCase, report: &TaskReport) {
    let points = &report.timeline;
    let last = points.last().expect("points");
    let lived = report.started.map_or(0, |start| {
        u64::try_from(report.ended.since(start).as_millis()).unwrap_or(0)
    });
    assert!(
        points.is_sorted_by_key(|point| point.at_ms),
        "{}: {points:?}",
        case.program
    );
    // The last point is read after the end, on the same time base. The clock of the report may have
    // been adjusted meanwhile.
    assert!(
        last.at_ms + 1000 >= lived,
        "{}: ends at {} of {lived} ms",
        case.program,
        last.at_ms
    );
    let e = &report.evidence;
    let mark = match (e.stop_asked, e.signal, &e.heap_marker) {
        // A JVM without resident pages of its code can be detected as stalled before the kernel
        // finds nothing left to reclaim.
        (Some(_), _, _) => TimelineMark::Stopped,
        (None, Some(9), None) => TimelineMark::Killed,
        (None, _, _) => TimelineMark::Ended,
    };
    assert_eq!(last.mark, Some(mark), "{}", case.program);
    assert!(points.len() <= headroom_node_core::timeline::POINTS);
    let most = points.iter().map(|s| s.current).max();
    assert_eq!(
        most, report.evidence.own.peak,
        "{}: the timeline contains the peak",
        case.program
    );
}

fn is(names: &'static [&'static str]) -> impl Fn(&DiagnosisCase) -> bool {
    move |case| names.contains(&case.program)
}

#[test]
fn too_small_heaps_are_diagnosed() {
    named_right(
        "heap",
        is(&[
            "live-heap",
            "cache",
            "gc-bound",
            "gc-overhead-limit",
            "budget-not-passed",
        ]),
    );
}

#[test]
fn fragmented_heaps_are_diagnosed() {
    let reports = named_right("pieces", is(&["humongous", "humongous-gc-log"]));
    let logged = reports
        .iter()
        .find(|(case, _)| case.program == "humongous-gc-log");
    if let Some((_, report)) = logged {
        let gc = report
            .evidence
            .heap
            .and_then(|h| h.gc)
            .expect("a collection report");
        assert!(
            gc.region.is_some() && gc.humongous.is_some_and(|n| n > 8),
            "from the log: {gc:?}"
        );
    }
}

#[test]
fn memory_outside_the_heap_of_a_jvm_is_diagnosed() {
    let names = &[
        "direct-buffers",
        "direct-buffers-capped",
        "thread-stacks",
        "metaspace",
        "metaspace-capped",
        "code-cache",
    ];
    for (case, report) in named_right("beside", is(names)) {
        let heap = report.evidence.heap.expect("counters");
        assert!(
            heap.gc.is_some() && heap.eden.is_some(),
            "{}: {heap:?}",
            case.program
        );
        parts_add_up(&case, &report);
    }
}

/// Checks that the sum of the parts is close to the charged memory at the fullest sample.
fn parts_add_up(case: &DiagnosisCase, report: &TaskReport) {
    let e = &report.evidence;
    if e.inside.is_none() || e.signal != Some(9) {
        return;
    }
    let sum = e
        .memory_parts()
        .iter()
        .fold(Bytes::ZERO, |sum, share| sum.saturating_add(share.bytes));
    let (least, most) = (case.limit.mul_ratio(1, 2), case.limit.mul_ratio(5, 4));
    assert!(
        least <= sum && sum <= most,
        "{}: {sum} of {}: {:?}",
        case.program,
        case.limit,
        e.memory_parts()
    );
}

#[test]
fn native_programs_are_diagnosed() {
    let names = &[
        "own-data",
        "native-arenas",
        "child-processes",
        "native-threads",
        "tmpfs",
        "sockets",
    ];
    for (case, report) in named_right("native", is(names)) {
        let row = report.diagnosis.first().expect("one");
        if row.name == SubCause::ChildProcesses || row.name == SubCause::Tmpfs {
            assert!(
                row.would_fit.is_some_and(|fits| fits < case.limit),
                "{}: {row:?}",
                case.program
            );
        }
    }
}

#[test]
fn other_runtimes_are_diagnosed() {
    named_right("runtimes", |case| {
        matches!(case.needs, Needs::Python | Needs::Node)
    });
}

/// The heap of a Go program consists of pieces of 64 MiB, like the arenas of glibc.
#[test]
fn go_programs_are_diagnosed() {
    for (case, report) in named_right("go", |case| case.needs == Needs::Go) {
        let arenas = report
            .evidence
            .inside
            .map(|inside| inside.arena_count)
            .unwrap_or_default();
        assert_eq!(arenas, 0, "{}: it has no allocator of glibc", case.program);
    }
}

//! Truncation of a report to a maximum size: pure. The largest and least needed parts are cut
//! first.
//!
//! Reason, dimension, counters, heap and marker are never cut, because the master decides on them.
//! The value is never cut either, because it is the result of the program.

use headroom_types::TaskReport;
use headroom_types::exit::MemorySample;

/// Number of timeline points after the first cut.
const FEW_POINTS: usize = 48;
/// Bytes of the log after the second cut.
const SHORT_TAIL: usize = 512;
/// Bytes of each note after the last cut.
const SHORT_NOTE: usize = 120;

/// The report in at most `most` bytes of JSON, or in the smallest possible form.
pub fn truncate_report(report: &TaskReport, most: usize) -> TaskReport {
    let mut cut = report.clone();
    for step in [thin_timeline, short_log, only_facts] {
        if size(&cut) <= most {
            break;
        }
        step(&mut cut);
    }
    cut
}

fn size(report: &TaskReport) -> usize {
    serde_json::to_vec(report).map_or(0, |json| json.len())
}

fn thin_timeline(report: &mut TaskReport) {
    report.timeline = MemorySample::thin(&report.timeline, FEW_POINTS);
}

fn short_log(report: &mut TaskReport) {
    report.timeline.clear();
    let from = report.log_tail.len().saturating_sub(SHORT_TAIL);
    report
        .log_tail
        .drain(..report.log_tail.ceil_char_boundary(from));
}

fn only_facts(report: &mut TaskReport) {
    report.log_tail.clear();
    report.diagnosis.clear();
    report.evidence.inside = None;
    report.evidence.victims.truncate(1);
    report.evidence.missing.truncate(2);
    for note in report
        .evidence
        .missing
        .iter_mut()
        .chain(report.evidence.heap_marker.iter_mut())
    {
        note.truncate(note.floor_char_boundary(SHORT_NOTE));
    }
}

/// Sample reports for tests.
#[cfg(test)]
pub(crate) mod samples {
    use headroom_types::exit::{
        CgroupStats, CollectionReport, GarbageCollector, GcCause, HeapReport, LeftoverOwner,
        MemoryEvents, MemorySample, MemoryStat, OuterLevel, ProcessMemory, SubCause, TimelineMark,
        Unattributed, VictimProcess,
    };

    use crate::taskgroup::MAX_OWNER_NAME_BYTES;
    use headroom_types::{
        Bytes, Certainty, Diagnosis, Dimension, EnforcerKind, Evidence, ExitReason, TaskReport,
        UnixMillis,
    };

    /// The smallest report: the task `map/INDEX` succeeded.
    pub(crate) fn report(index: u32) -> TaskReport {
        TaskReport {
            attempt: format!("map/{index}@1").parse().expect("id"),
            container: "job.1.e1.c1".parse().expect("id"),
            reason: ExitReason::Exit { code: 0 },
            dimension: None,
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            diagnosis: Vec::new(),
            started: Some(UnixMillis(1)),
            ended: UnixMillis(2),
            timeline: Vec::new(),
            log_tail: String::new(),
            read: None,
            value: None,
            value_too_large: None,
            silent: false,
        }
    }

    fn facts() -> CgroupStats {
        let n = Some(Bytes::MAX);
        CgroupStats {
            limit: n,
            current: Bytes::MAX,
            peak: n,
            stat: MemoryStat {
                anon: n,
                file: n,
                file_mapped: n,
                shmem: n,
                kernel: n,
                kernel_stack: n,
                slab_unreclaimable: n,
                sock: n,
                workingset_refault_file: Some(u64::MAX),
            },
            events: events(),
            local: events(),
        }
    }

    fn inside() -> ProcessMemory {
        let (bytes, count) = (Bytes::MAX, u32::MAX);
        ProcessMemory {
            pid: i32::MAX,
            current: bytes,
            arena_count: count,
            arenas: bytes,
            brk: bytes,
            stack_count: count,
            stacks: bytes,
            code: bytes,
            other: bytes,
            file: bytes,
            shmem: bytes,
            sockets: count,
            pipes: count,
        }
    }

    fn events() -> MemoryEvents {
        MemoryEvents {
            high: u64::MAX,
            max: u64::MAX,
            oom: u64::MAX,
            oom_kill: u64::MAX,
            oom_group_kill: u64::MAX,
        }
    }

    fn level_with_leftovers(level: &str, local: MemoryEvents) -> OuterLevel {
        let left_by = vec![LeftoverOwner {
            name: "n".repeat(MAX_OWNER_NAME_BYTES),
            memory: Bytes::MAX,
        }];
        let unattributed = Unattributed {
            memory: Bytes::MAX,
            left_by,
        };
        OuterLevel {
            unattributed: Some(unattributed),
            ..OuterLevel::counted(level, Some(Bytes::MAX), local)
        }
    }

    /// The largest possible report.
    pub(crate) fn large_report(index: u32) -> TaskReport {
        let mut large = report(index);
        large.reason = ExitReason::HeapOom;
        large.dimension = Some(Dimension::Heap);
        large.read = Some(Bytes::MAX);
        let n = Some(Bytes::MAX);
        large.evidence.own = facts();
        large.evidence.outer = vec![
            level_with_leftovers("container", events()),
            OuterLevel::counted("host", n, events()),
        ];
        large.evidence.heap = Some(HeapReport {
            pid: Some(i32::MIN),
            used: Bytes::MAX,
            committed: Bytes::MAX,
            max: Bytes::MAX,
            old_used: n,
            old_max: n,
            cached: n,
            metaspace: n,
            threads: Some(u64::MAX),
            eden: n,
            survivor: n,
            compiled: n,
            gc: Some(CollectionReport {
                collector: Some(GarbageCollector::Shenandoah),
                collections: u64::MAX,
                full: u64::MAX,
                spent_ms: u64::MAX,
                recent_percent: Some(100),
                cause: Some(GcCause::Allocation),
                region: n,
                humongous: Some(u64::MAX),
            }),
        });
        large.evidence.inside = Some(inside());
        large.evidence.heap_marker = Some("\u{1}".repeat(300));
        large.evidence.victims = vec![
            VictimProcess {
                pid: i32::MAX,
                name: "x".repeat(15),
                rss: Bytes::MAX
            };
            8
        ];
        large.evidence.missing = vec!["y".repeat(400); 8];
        let text = "z".repeat(300);
        let row = Diagnosis::new(
            SubCause::BudgetNotPassed,
            Certainty::Certain,
            text.clone(),
            text.clone(),
        )
        .with_trade_off(text);
        let row = row.with_would_fit(Bytes::MAX);
        large.diagnosis = vec![row; 8];
        let point = MemorySample {
            at_ms: u64::MAX,
            current: Bytes::MAX,
            anon: n,
            file: n,
            heap: n,
            limit: n,
            mark: Some(TimelineMark::LimitLowered),
        };
        large.timeline = vec![point; 512];
        large.log_tail = "\u{1}".repeat(4096);
        large
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{large_report, report};
    use super::*;
    use headroom_types::Bytes;

    #[test]
    fn a_report_that_fits_is_unchanged() {
        assert_eq!(truncate_report(&report(1), 1 << 20), report(1));
        assert_eq!(truncate_report(&large_report(1), 1 << 20), large_report(1));
    }

    #[test]
    fn the_verdict_and_its_counters_survive_truncation() {
        let large = large_report(7);
        let cut = truncate_report(&large, 0);
        assert_eq!(
            (cut.reason, cut.dimension, &cut.evidence.own),
            (large.reason, large.dimension, &large.evidence.own)
        );
        assert_eq!(
            (&cut.evidence.outer, cut.evidence.heap),
            (&large.evidence.outer, large.evidence.heap)
        );
        assert!(cut.evidence.heap_marker.is_some());
        assert!(size(&cut) <= 4500, "{} bytes", size(&cut));
    }

    #[test]
    fn a_value_survives_truncation() {
        let mut large = large_report(1);
        large.value = Some("v".repeat(16 << 10));
        assert_eq!(truncate_report(&large, 0).value, large.value);
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let mut large = large_report(1);
        for (i, point) in (0u64..).zip(large.timeline.iter_mut()) {
            point.current = Bytes::new(if i == 333 { 1 << 40 } else { i });
        }
        thin_timeline(&mut large);
        assert!(large.timeline.len() <= FEW_POINTS);
        assert_eq!(
            large.timeline.iter().map(|s| s.current.get()).max(),
            Some(1 << 40)
        );
    }

    #[test]
    fn the_end_of_a_log_is_kept() {
        let mut long = report(1);
        long.log_tail = format!("{}ä the end", "x".repeat(5000));
        short_log(&mut long);
        assert!(long.log_tail.len() <= SHORT_TAIL && long.log_tail.ends_with("ä the end"));
    }
}

//! Diagnoses of a runtime whose child processes share its limit.

use super::*;

/// Measured evidence of a PySpark executor: the JVM is small, and its Python worker filled the
/// container.
fn jvm_with_python(worker: u64, workers: i32) -> Evidence {
    let mut e = killed_at(1280);
    e.heap_budget = Some(MIB(512));
    e.heap = Some(HeapReport {
        pid: Some(70),
        used: MIB(40),
        committed: MIB(65),
        max: MIB(512),
        metaspace: Some(MIB(48)),
        ..HeapReport::default()
    });
    e.own.stat.anon = Some(MIB(1100));
    let process = |pid, name: &str, rss| VictimProcess {
        pid,
        name: name.into(),
        rss: MIB(rss),
    };
    e.victims = (0..workers)
        .map(|n| process(81 + n, "python", worker))
        .chain([process(70, "java", 187)])
        .collect();
    e.victims.sort_by_key(|v| std::cmp::Reverse(v.rss));
    e.inside = Some(ProcessMemory {
        pid: e.victims[0].pid,
        current: MIB(1275),
        other: MIB(919),
        ..ProcessMemory::default()
    });
    e
}

#[test]
fn a_python_worker_that_fills_the_container_of_a_jvm_is_a_child_process() {
    let mut e = jvm_with_python(920, 1);
    for known in ["by its heap report", "by its name"] {
        let rows = diagnoses(&e, VerdictScope::Container);
        let first = &rows[0];
        assert_eq!(
            (first.name, first.certainty, first.would_fit),
            (SubCause::ChildProcesses, Certainty::Likely, None),
            "{known}: {rows:#?}"
        );
        assert!(
            first.cause.contains("2 processes")
                && first.cause.contains("python (81), held 920 MiB"),
            "{first:#?}"
        );
        for words in [
            "the child process python",
            "fewer tasks at once",
            "overhead 1.8 GiB instead of 768 MiB",
            "spark.executor.pyspark.memory",
        ] {
            assert!(first.fix.contains(words), "{words}: {first:#?}");
        }
        assert!(
            !rows.iter().any(|row| row.name == SubCause::DirectBuffers),
            "the blocks are not those of the JVM: {rows:#?}"
        );
        e.heap = e.heap.map(|heap| HeapReport { pid: None, ..heap });
    }
    e.inside = None;
    assert_eq!(named(&e), SubCause::ChildProcesses, "without mappings");
    e.victims.clear();
    assert_ne!(named(&e), SubCause::ChildProcesses, "without processes");
    e.heap = e.heap.map(|heap| HeapReport {
        pid: Some(70),
        ..heap
    });
    e.victims = vec![VictimProcess {
        pid: 0,
        name: "java".into(),
        rss: MIB(1200),
    }];
    assert_ne!(
        named(&e),
        SubCause::ChildProcesses,
        "the main process, not sampled"
    );
}

#[test]
fn several_workers_of_a_jvm_are_added_up() {
    let e = jvm_with_python(250, 4);
    let first = &diagnoses(&e, VerdictScope::Container)[0];
    assert_eq!(
        (first.name, first.would_fit),
        (SubCause::ChildProcesses, Some(MIB(530))),
        "{first:#?}"
    );
    assert!(first.cause.starts_with("5 processes"), "{first:#?}");
    let e = jvm_with_python(180, 4);
    let first = &diagnoses(&e, VerdictScope::Container)[0];
    assert!(
        first
            .cause
            .contains("the largest child process, python (81), held 180 MiB"),
        "{first:#?}"
    );
}

#[test]
fn native_blocks_of_a_jvm_with_a_small_child_are_its_own() {
    let mut e = jvm_with_python(60, 1);
    e.victims[0].rss = MIB(1150);
    assert_eq!(
        (e.victims[0].name.as_str(), named(&e)),
        ("java", SubCause::DirectBuffers),
        "{:#?}",
        diagnoses(&e, VerdictScope::Container)
    );
    e.inside = e.inside.map(|inside| ProcessMemory {
        pid: 81,
        code: MIB(400),
        ..inside
    });
    let rows = diagnoses(&e, VerdictScope::Container);
    assert!(
        !rows
            .iter()
            .any(|row| matches!(row.name, SubCause::DirectBuffers | SubCause::CodeCache)),
        "the inspected process is the child: {rows:#?}"
    );
}

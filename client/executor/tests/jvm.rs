//! Real JVMs: their counters while they run, and the two shipped examples on their first and second
//! rung.

mod world;

use std::path::{Path, PathBuf};

use headroom_config::Placeholder;
use headroom_config::job::{JobSpec, TaskRuntime, compile};
use headroom_types::{Bytes, Dimension, ExitReason, Profile};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use world::{ExecutorHarness, HarnessSetup, task};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/examples")
}

/// Reason that no JVM can be tested here; `None` if it can.
fn skipped() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join("java").exists());
    (!found).then_some("SKIPPED: there is no java on the PATH")
}

fn example(name: &str) -> JobSpec {
    let text = std::fs::read_to_string(examples().join(name)).expect("an example");
    compile(&text, name).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The start of the example's first task on `rung` with this size.
fn start_of(job: &JobSpec, rung: u32, size: &Profile) -> TaskStart {
    let stage = &job.stages[0];
    assert_eq!(stage.runtime, TaskRuntime::Jvm);
    let fill = |place: Placeholder| match place {
        Placeholder::Heap => format!("{}m", size.heap.whole_mib()),
        Placeholder::Index
        | Placeholder::Attempt
        | Placeholder::Rung
        | Placeholder::HeapMib
        | Placeholder::Memory
        | Placeholder::MemoryMib
        | Placeholder::Overhead
        | Placeholder::Slots
        | Placeholder::Stage
        | Placeholder::Job
        | Placeholder::Output => panic!("the examples do not use {place:?}"),
    };
    let words: Vec<String> = stage.command.iter().map(|word| word.fill(fill)).collect();
    let mut start = task(
        &format!("{}/0@{rung}", stage.name),
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    start.cwd = Some(examples().to_string_lossy().into_owned());
    start.limit = Some(size.memory());
    start.heap = Some(size.heap);
    start.heap_exit_codes.clone_from(&stage.heap_exit_codes);
    start
}

#[test]
fn every_example_compiles() {
    for name in [
        "hello.toml",
        "group-by.toml",
        "jvm-heap.toml",
        "jvm-overhead.toml",
    ] {
        let job = example(name);
        assert_eq!(format!("{}.toml", job.name), name);
        let most = job
            .executors
            .iter()
            .map(|e| e.profile.memory().mul_ratio(u64::from(e.count), 1).get())
            .sum::<u64>();
        assert!(
            most <= Bytes::from_mib(600).get(),
            "{name} needs more memory than a laptop has"
        );
    }
}

#[test]
fn the_counters_of_a_running_jvm_are_read() {
    if let Some(why) = skipped() {
        println!("{why}");
        return;
    }
    let world = ExecutorHarness::with(
        "hsperf",
        &HarnessSetup {
            memory: Bytes::from_mib(512),
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    let job = example("jvm-heap.toml");
    let size = Profile {
        heap: Bytes::from_mib(96),
        ..job.stages[0].profile.clone()
    };
    let mut start = start_of(&job, 1, &size);
    start.env.insert("HOG_HOLD_MS".into(), "100000".into());
    let attempt = start.attempt.clone();
    master.start(start);
    let usage = master.wait("64 MiB in the heap", |line| match line {
        FromExecutor::Usage { tasks } => tasks
            .iter()
            .find(|t| t.heap.is_some_and(|h| h >= Bytes::from_mib(64)))
            .cloned(),
        FromExecutor::Hello { .. }
        | FromExecutor::Started { .. }
        | FromExecutor::Ended { .. }
        | FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Leftover { .. }
        | FromExecutor::Alive => None,
    });
    assert!(
        usage.current >= usage.heap.expect("a heap size"),
        "the heap is charged: {usage:?}"
    );
    master.send(&ToExecutor::Stop { attempt });
    let report = master.result("fill/0@1");
    assert_eq!(report.reason, ExitReason::Stopped);
    let heap = report.evidence.heap.expect("a heap report");
    assert!(
        heap.max >= Bytes::from_mib(90) && heap.max <= Bytes::from_mib(96),
        "-Xmx96m: {heap:?}"
    );
    assert!(
        heap.used <= heap.committed && heap.committed <= heap.max,
        "{heap:?}"
    );
    assert!(
        heap.old_used.is_some_and(|old| old >= Bytes::from_mib(30)),
        "live data is in the old generation: {heap:?}"
    );
    assert!(
        heap.metaspace.is_some_and(|m| m > Bytes::from_mib(1))
            && heap.threads.is_some_and(|t| t >= 5),
        "{heap:?}"
    );
    assert!(
        report.timeline.iter().any(|s| s.heap.is_some()),
        "the timeline contains the heap"
    );
}

#[test]
fn a_full_heap_is_reported_by_the_jvm_and_cured_by_a_larger_heap() {
    if let Some(why) = skipped() {
        println!("{why}");
        return;
    }
    let world = ExecutorHarness::with(
        "heap",
        &HarnessSetup {
            memory: Bytes::from_mib(400),
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    let job = example("jvm-heap.toml");
    let size = job.stages[0].profile.clone();
    master.start(start_of(&job, 1, &size));
    let report = master.result("fill/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::HeapOom, Some(Dimension::Heap)),
        "{report:?}"
    );
    assert_eq!(
        (
            report.evidence.exit_code,
            report.evidence.own.events.oom_kill
        ),
        (Some(3), 0)
    );
    assert!(
        report
            .evidence
            .heap_marker
            .as_ref()
            .is_some_and(|line| line.contains("Java heap space")),
        "{report:?}"
    );
    let grown = Profile {
        heap: size.heap.mul_ratio(2, 1),
        ..size
    };
    master.start(start_of(&job, 2, &grown));
    let report = master.result("fill/0@2");
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:?}");
}

#[test]
fn direct_buffers_are_overhead_and_cured_by_a_larger_overhead() {
    if let Some(why) = skipped() {
        println!("{why}");
        return;
    }
    let world = ExecutorHarness::with(
        "overhead",
        &HarnessSetup {
            memory: Bytes::from_mib(400),
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    let job = example("jvm-overhead.toml");
    let size = job.stages[0].profile.clone();
    master.start(start_of(&job, 1, &size));
    let report = master.result("buffer/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::OverheadOom, Some(Dimension::Overhead)),
        "{report:?}"
    );
    assert_eq!(
        (report.evidence.exit_code, report.evidence.signal),
        (None, Some(9))
    );
    let heap = report
        .evidence
        .heap
        .expect("a heap report from before the kill");
    assert!(heap.used < size.heap && heap.max <= size.heap, "{heap:?}");
    assert!(
        report
            .evidence
            .own
            .peak
            .is_some_and(|peak| peak >= size.memory().saturating_sub(Bytes::from_mib(2))),
        "{report:?}"
    );
    let grown = Profile {
        overhead: size.overhead.mul_ratio(2, 1),
        ..size
    };
    master.start(start_of(&job, 2, &grown));
    let report = master.result("buffer/0@2");
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:?}");
}

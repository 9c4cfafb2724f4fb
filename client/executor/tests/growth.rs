//! Tasks that may grow, in real cgroups: frozen near their limit, raised, released, stopped.

mod world;

use std::time::{Duration, Instant};

use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use world::{ExecutorHarness, Master, task};

/// Writes 96 MiB of anonymous memory, step by step, in user mode.
const NEEDS_96_MIB: [&str; 3] = [
    "perl",
    "-e",
    "my @a; for (1..96) { my $s = 'a' x (1 << 20); $s .= $_; push @a, $s } exit 0",
];
const LIMIT: Bytes = Bytes::from_mib(32);

fn growing(id: &str, freeze_timeout_ms: u64) -> TaskStart {
    TaskStart {
        limit: Some(LIMIT),
        freeze_timeout_ms: Some(freeze_timeout_ms),
        ..task(id, &NEEDS_96_MIB)
    }
}

/// Waits until the task is frozen; returns its limit.
fn pressed(master: &mut Master, id: &str) -> Bytes {
    master.wait("a pressure message", |line| match line {
        FromExecutor::Pressure {
            attempt,
            limit,
            current,
        } if attempt.to_string() == id => {
            assert!(*current <= *limit, "{current} of {limit}");
            Some(*limit)
        }
        FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Ended { .. } => None,
        FromExecutor::Hello { .. }
        | FromExecutor::Started { .. }
        | FromExecutor::Usage { .. }
        | FromExecutor::Alive => None,
        FromExecutor::Leftover { .. } => None,
    })
}

fn raise(master: &mut Master, id: &str, to: Bytes) -> Option<u64> {
    master.send(&ToExecutor::Resize {
        attempt: id.parse().expect("id"),
        limit: to,
    });
    master.wait("the new limit", |line| match line {
        FromExecutor::Resized {
            limit,
            frozen_us,
            error,
            ..
        } => {
            assert_eq!((limit, error), (&to, &None));
            Some(*frozen_us)
        }
        FromExecutor::Hello { .. }
        | FromExecutor::Started { .. }
        | FromExecutor::Usage { .. }
        | FromExecutor::Alive => None,
        FromExecutor::Pressure { .. } | FromExecutor::Ended { .. } => None,
        FromExecutor::Leftover { .. } => None,
    })
}

#[test]
fn a_task_whose_limit_is_raised_step_by_step_is_never_killed() {
    let world = ExecutorHarness::new("raised");
    let (mut master, _) = world.accept();
    master.start(growing("a/0@1", 60_000));
    for to in [48, 80, 160].map(Bytes::from_mib) {
        let limit = pressed(&mut master, "a/0@1");
        assert!(limit < to);
        assert!(
            raise(&mut master, "a/0@1", to).is_some(),
            "the task was frozen until then"
        );
    }
    let report = master.result("a/0@1");
    assert_eq!(
        report.reason,
        ExitReason::Exit { code: 0 },
        "{:?} {}",
        report.evidence,
        report.log_tail
    );
    assert_eq!(
        (
            report.evidence.own.limit,
            report.evidence.own.events.oom_kill
        ),
        (Some(Bytes::from_mib(160)), 0)
    );
    let limits: Vec<Option<Bytes>> = report.timeline.iter().map(|s| s.limit).collect();
    assert!(
        limits.contains(&Some(LIMIT)) && limits.contains(&Some(Bytes::from_mib(160))),
        "timeline: {limits:?}"
    );
}

#[test]
fn without_an_answer_the_task_is_released_after_the_freeze_timeout() {
    let world = ExecutorHarness::new("hold-over");
    let (mut master, _) = world.accept();
    master.start(growing("a/0@1", 1_500));
    pressed(&mut master, "a/0@1");
    let from = Instant::now();
    let report = master.result("a/0@1");
    assert!(
        from.elapsed() >= Duration::from_millis(1_400),
        "the task was frozen: {:?}",
        from.elapsed()
    );
    assert_eq!(report.reason, ExitReason::TaskOom, "{:?}", report.evidence);
    assert!(
        report.evidence.own.local.oom >= 1,
        "the kernel killed at the task's limit: {:?}",
        report.evidence.own
    );
}

#[test]
fn a_frozen_task_is_reported_to_a_new_master_and_killed_on_release() {
    let world = ExecutorHarness::new("let-go");
    let (mut master, _) = world.accept();
    master.start(growing("a/0@1", 60_000));
    pressed(&mut master, "a/0@1");
    drop(master);
    let (mut master, hello) = world.accept();
    assert_eq!(hello.running.len(), 1);
    assert_eq!(
        pressed(&mut master, "a/0@1"),
        LIMIT,
        "the pressure is sent again on the new connection"
    );
    master.send(&ToExecutor::Unfreeze {
        attempt: "a/0@1".parse().expect("id"),
    });
    assert_eq!(master.result("a/0@1").reason, ExitReason::TaskOom);
}

#[test]
fn a_frozen_task_can_be_stopped() {
    let world = ExecutorHarness::new("held-stop");
    let (mut master, _) = world.accept();
    master.start(growing("a/0@1", 60_000));
    pressed(&mut master, "a/0@1");
    master.send(&ToExecutor::Stop {
        attempt: "a/0@1".parse().expect("id"),
    });
    assert_eq!(master.result("a/0@1").reason, ExitReason::Stopped);
}

#[test]
fn a_task_that_fills_its_limit_with_page_cache_is_not_frozen() {
    let world = ExecutorHarness::new("files");
    if world.files_are_memory() {
        println!("SKIPPED: the temporary directory is in memory, so its pages cannot be reclaimed");
        return;
    }
    let (mut master, _) = world.accept();
    let script = "dd if=/dev/zero of=big bs=1M count=96 2>/dev/null && sync big && cat big > /dev/null && rm big";
    let start = TaskStart {
        limit: Some(LIMIT),
        freeze_timeout_ms: Some(60_000),
        ..task("a/0@1", &["sh", "-c", script])
    };
    master.start(start);
    let report = master.wait("the end of the task", |line| match line {
        FromExecutor::Pressure { attempt, .. } => {
            panic!("{attempt} is frozen for page cache");
        }
        FromExecutor::Ended { report } => Some((**report).clone()),
        FromExecutor::Hello { .. } | FromExecutor::Started { .. } | FromExecutor::Usage { .. } => {
            None
        }
        FromExecutor::Resized { .. } | FromExecutor::Alive => None,
        FromExecutor::Leftover { .. } => None,
    });
    assert_eq!(
        report.reason,
        ExitReason::Exit { code: 0 },
        "{}",
        report.log_tail
    );
}

//! Ends of attempts that are easily classified wrongly.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_types::exit::{MemorySample, TaskReport};
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::job::TaskState;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("cases", "288MiB", 4, 2, 4),
    r#"[[stage]]
grow = false
name = "map"
count = 8
command = ["prog"]
"#
);

fn learning() -> String {
    JOB.replace("name = \"cases\"", "name = \"cases\"\nsizes = \"learned\"")
        .replace("count = 8", "count = 40")
}

fn figures(world: &SimulatedCluster) -> (u32, u32, u32) {
    let totals = world.core.totals();
    (totals.done, totals.failed, totals.memory_kills)
}

/// Samples that were all taken before, or after, the task was large.
fn small_samples(report: &mut TaskReport) {
    let sample = |at_ms| MemorySample {
        at_ms,
        current: Bytes::from_mib(5),
        anon: Some(Bytes::from_mib(4)),
        file: Some(Bytes::from_mib(1)),
        heap: None,
        limit: None,
        mark: None,
    };
    report.timeline = (0..3).map(|n| sample(n * 500)).collect();
}

/// The kernel charges in batches, so that a peak can lie a little above the limit.
fn slack(report: &mut TaskReport) {
    let above = |peak: Bytes| peak.saturating_add(Bytes::new(64 << 10));
    report.evidence.own.peak = report.evidence.own.limit.map(above);
}

fn page_cache(report: &mut TaskReport) {
    report.timeline = vec![MemorySample {
        at_ms: 500,
        current: Bytes::from_mib(1000),
        anon: Some(Bytes::from_mib(200)),
        file: Some(Bytes::from_mib(800)),
        heap: None,
        limit: None,
        mark: None,
    }];
}

#[test]
fn of_two_racing_attempts_only_the_known_attempt_counts() {
    // An executor is disconnected for longer than the timeout of the master. Its tasks end
    // meanwhile, and it returns with them while they run again elsewhere.
    let fault = InjectedFault::Partitioned {
        at_ms: 500,
        nth: 0,
        for_ms: 70_000,
    };
    let world = MasterScenario::of(JOB)
        .usual(TaskBehaviour::native(50, 30_000))
        .fault(fault)
        .run();
    assert_eq!(figures(&world), (8, 0, 0));
    let lost: Vec<_> = world
        .rows
        .values()
        .filter(|row| row.attempts.len() == 2)
        .collect();
    assert_eq!(lost.len(), 4, "the tasks of one executor");
    for row in lost {
        assert_eq!(row.attempts[0].reason, Some(ExitReason::NodeLost));
        assert_ne!(row.attempts[0].container, row.attempts[1].container);
    }
    assert_eq!(
        world.words("TaskFinished").len(),
        8,
        "each task is reported as done once"
    );
}

#[test]
fn a_kill_after_a_successful_end_has_no_effect() {
    let killed_later = |report: &mut TaskReport| {
        (
            report.evidence.own.local.oom_kill,
            report.evidence.own.local.oom,
        ) = (1, 1);
        report.evidence.own.events.oom_kill = 1;
    };
    let world = MasterScenario::of(JOB)
        .usual(TaskBehaviour::native(50, 1000).telling(killed_later))
        .run();
    assert_eq!(figures(&world), (8, 0, 0));
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Succeeded)
    );
}

#[test]
fn a_peak_a_little_above_the_limit_is_a_kill_like_any_other_and_no_size() {
    let world = MasterScenario::of(JOB)
        .habit("map/3", TaskBehaviour::native(100, 1000).telling(slack))
        .run();
    assert_eq!(
        (figures(&world), world.sizes("map/3")),
        ((8, 0, 1), vec![64, 128])
    );
    let peak = world.row("map/3").attempts[0].peak.expect("a peak");
    assert!(
        peak > Bytes::from_mib(64),
        "the measured peak is reported: {peak}"
    );
    // The learner takes the peak as the need: no later task gets less.
    let world = MasterScenario::of(&learning())
        .usual(TaskBehaviour::native(100, 1000).telling(slack))
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (40, 0)
    );
    assert_eq!(world.row("map/39").attempts.len(), 1);
}

#[test]
fn memory_of_an_ended_child_is_in_the_peak_not_in_the_samples() {
    let storm = || TaskBehaviour::native(190, 1000).telling(small_samples);
    let world = MasterScenario::of(JOB).habit("map/3", storm()).run();
    assert_eq!(
        (figures(&world), world.sizes("map/3")),
        ((8, 0, 2), vec![64, 128, 192]),
        "no cache, no spike: a kill"
    );
    let world = MasterScenario::of(&learning()).usual(storm()).run();
    let last = world.sizes("map/39");
    assert!(
        last.len() == 1 && last[0] >= 190,
        "learned from the peak: {last:?}"
    );
}

#[test]
fn page_cache_is_not_learned_as_need() {
    let job = learning()
        .replace("288MiB", "1056MiB")
        .replace("slots = 4", "slots = 1");
    let reader = TaskBehaviour::native(1000, 20_000).telling(page_cache);
    let shadow = MasterScenario::of(&job.replace("learned", "shadow"))
        .nodes(&[16 * 1024])
        .usual(reader)
        .run();
    let size = shadow.row("map/39").attempts[0]
        .shadow
        .as_ref()
        .map(|s| s.profile.memory().whole_mib());
    assert!(
        size.is_some_and(|mib| (200..400).contains(&mib)),
        "{size:?}"
    );
}

#[test]
fn large_containers_run_on_large_nodes() {
    let world = MasterScenario::of(JOB)
        .nodes(&[700, 4096, 700])
        .habit("map/3", TaskBehaviour::native(3000, 1000))
        .run();
    assert_eq!(figures(&world).0, 8);
    let last = world.row("map/3").attempts.last().expect("attempts");
    assert_eq!(last.node.as_str(), "n1");
    assert!(last.profile.memory() <= Bytes::from_mib(4096 - 32));
    let world = MasterScenario::of(JOB)
        .nodes(&[700, 2048, 700])
        .habit("map/3", TaskBehaviour::native(3000, 1000))
        .run();
    assert_eq!(world.row("map/3").state, TaskState::Failed);
    assert_eq!(
        world.sizes("map/3").last(),
        Some(&(2048 - 32)),
        "the largest node was tried"
    );
    assert!(
        world.row("map/3").note.contains("use a larger node"),
        "{}",
        world.row("map/3").note
    );
}

#[test]
fn a_lost_container_cancels_its_requested_resize() {
    let grow = JOB
        .replace("grow = false", "grow = true")
        .replace("count = 8", "count = 1");
    // In its first second, a frozen task requests more memory every few milliseconds.
    for at_ms in 20..60 {
        let fault = InjectedFault::ContainerEnds {
            at_ms,
            nth: 0,
            reason: ExitReason::NodeLost,
        };
        let world = MasterScenario::of(&grow)
            .nodes(&[2048])
            .habit("map/0", TaskBehaviour::native(1000, 1000))
            .fault(fault)
            .run();
        assert_eq!(figures(&world), (1, 0, 0), "lost at {at_ms} ms");
        assert!(
            world.core.fleet().growing.is_empty(),
            "lost at {at_ms} ms: {:?}",
            world.core.fleet().growing
        );
        let live: Bytes = world
            .core
            .fleet()
            .executors
            .values()
            .filter(|e| e.may_run_tasks())
            .map(|e| e.needs())
            .fold(Bytes::ZERO, |a, b| a.saturating_add(b));
        assert!(live <= Bytes::from_mib(2048), "lost at {at_ms} ms: {live}");
    }
}

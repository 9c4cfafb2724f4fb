//! Fenced stages: each task has exactly one output, that of the attempt that counts, for any number
//! of runs and faults.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_types::ExitReason;
use headroom_wire::v1::job::TaskState;
use proptest::prelude::*;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("outputs", "288MiB", 4, 2, 2),
    r#"[[stage]]
grow = false
name = "map"
count = 6
idempotent = "fenced"
output = "/out"
command = ["prog", "--out={output}"]
[[stage]]
grow = false
name = "reduce"
after = ["map"]
command = ["prog"]
[retry]
cap = "1GiB"
"#
);

fn job() -> MasterScenario {
    MasterScenario::of(JOB)
        .files(40, &[])
        .habit("map/1", TaskBehaviour::native(190, 1000))
        .habit(
            "map/3",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }]),
        )
}

/// Every task is done, and its output is that of its last attempt.
fn each_has_its_own_output(world: &SimulatedCluster) {
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Succeeded),
        "{:?}",
        world.core.totals()
    );
    assert_eq!(world.files.places.len(), 6, "{:?}", world.files.places);
    for n in 0..6 {
        let last = world
            .row(&format!("map/{n}"))
            .attempts
            .last()
            .expect("an attempt")
            .attempt
            .file_name();
        assert_eq!(
            world.files.attempt(&format!("/out/map-{n}")),
            Some(last.as_str())
        );
    }
}

#[test]
fn a_failed_attempt_leaves_no_output() {
    let world = job().run();
    each_has_its_own_output(&world);
    assert_eq!(
        (
            world.files.attempt("/out/map-1"),
            world.files.attempt("/out/map-3")
        ),
        (Some("map-1-2"), Some("map-3-2"))
    );
    assert_eq!(
        world.core.totals().memory_kills,
        1,
        "a fenced task escalates like other tasks"
    );
}

#[test]
fn a_master_may_die_after_any_record() {
    let whole = job().run();
    for n in 1..=whole.records.len() {
        let world = job().fault(InjectedFault::MasterDiesAfter(n)).run();
        each_has_its_own_output(&world);
        assert_eq!(
            world.result(),
            whole.result(),
            "died after record {n}: {:?}",
            whole.records[n - 1]
        );
        assert_eq!(
            world.core.totals().transient,
            0,
            "died after record {n}: no task ran again"
        );
    }
}

#[test]
fn a_master_may_die_between_an_output_and_its_record() {
    for n in 1..=6 {
        let world = job().fault(InjectedFault::MasterDiesAfterCommit(n)).run();
        each_has_its_own_output(&world);
        assert_eq!(
            world.core.totals().transient,
            0,
            "died after output {n}: the output was found"
        );
    }
}

#[test]
fn repeated_messages_have_no_effect() {
    each_has_its_own_output(&job().fault(InjectedFault::Twice).run());
}

/// An attempt runs on without a connection. Its end is reported before or after the end of the next
/// attempt.
#[test]
fn the_later_of_two_racing_attempts_loses() {
    for for_ms in [70_000, 75_000, 90_000, 130_000] {
        let slow = MasterScenario::of(JOB)
            .files(40, &[])
            .usual(TaskBehaviour::native(1, 20_000));
        let world = slow
            .fault(InjectedFault::Partitioned {
                at_ms: 5_000,
                nth: 0,
                for_ms,
            })
            .run();
        each_has_its_own_output(&world);
        let twice = (0..6)
            .filter(|n| world.row(&format!("map/{n}")).attempts.len() == 2)
            .count();
        assert_eq!(twice, 2, "both tasks of the executor restarted elsewhere");
        assert!(
            world
                .files
                .places
                .values()
                .filter(|from| from.to_string_lossy().ends_with("-2"))
                .count()
                == 2
        );
    }
}

#[test]
fn an_executor_may_die_once_its_task_has_ended() {
    // All attempts of the first wave end at the same time; their outputs are committed half a
    // second later.
    let slow = || {
        MasterScenario::of(JOB)
            .files(500, &[])
            .habit("map/1", TaskBehaviour::native(1, 1000))
    };
    let ended = slow().run().row("map/0").attempts[0].ended.expect("ended");
    let world = slow().run();
    assert_eq!(
        world.row("map/0").attempts[0].ended,
        Some(ended),
        "the end time stays the same"
    );
    let at_ms = ended.0 - 1_700_000_000_000 - 1000 + 100;
    let killed = slow()
        .fault(InjectedFault::ContainerEnds {
            at_ms,
            nth: 0,
            reason: ExitReason::NodeLost,
        })
        .run();
    each_has_its_own_output(&killed);
    assert_eq!(
        killed.row("map/0").attempts.len(),
        1,
        "its end was recorded and not lost"
    );
}

#[test]
fn an_existing_output_is_never_replaced() {
    let world = MasterScenario::of(JOB).files(40, &["/out/map-2"]).run();
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Failed)
    );
    assert_eq!(world.files.attempt("/out/map-2"), Some("another owner"));
    let row = world.row("map/2");
    assert_eq!(
        (row.state, row.attempts.len()),
        (TaskState::Failed, 1),
        "running it again would not help"
    );
    assert!(
        row.note.contains("has no output: it existed before"),
        "{}",
        row.note
    );
    assert_eq!(world.files.places.len(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Safety: a task never has two outputs, nor one of an attempt that does not count (checked by
    /// the files and at the end). Liveness: every task gets its output.
    #[test]
    fn every_task_has_one_output_under_any_fault(
        record in 1usize..60, commit in 1usize..7, lost_at in 1u64..8000, nth in 0usize..2,
        cut_at in 1u64..8000, cut_for in 1u64..150_000, rename_ms in 1u64..2000, twice in any::<bool>(), manager_at in 1u64..8000,
    ) {
        let mut s = job().files(rename_ms, &[]).fault(InjectedFault::MasterDiesAfter(record)).fault(InjectedFault::MasterDiesAfterCommit(commit));
        s = s.fault(InjectedFault::ContainerEnds { at_ms: lost_at, nth, reason: ExitReason::KilledExternally });
        s = s.fault(InjectedFault::Partitioned { at_ms: cut_at, nth, for_ms: cut_for }).fault(InjectedFault::ManagerRestarts { at_ms: manager_at });
        if twice {
            s = s.fault(InjectedFault::Twice);
        }
        each_has_its_own_output(&s.run());
    }
}

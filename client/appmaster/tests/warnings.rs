//! Warnings of the resource manager: tasks that can end in time do, the others move, and no task is
//! charged.

#[macro_use]
mod world;

use headroom_types::ExitReason;
use headroom_wire::v1::job::TaskState;
use world::{InjectedFault, MasterScenario, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("warned", "160MiB", 2, 2, 2),
    r#"[retry]
transient = 1
[[stage]]
name = "map"
array = "0-7"
command = ["prog", "{index}"]
"#
);

fn job(runs_ms: u64) -> MasterScenario {
    MasterScenario::of(JOB)
        .nodes(&[1024, 1024])
        .usual(TaskBehaviour::native(10, runs_ms))
}

#[test]
fn before_a_preemption_tasks_finish_and_no_task_starts() {
    let world = job(1000)
        .fault(InjectedFault::Preempted {
            at_ms: 500,
            nth: 0,
            warning_ms: 5_000,
        })
        .run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.transient, totals.memory_kills),
        (8, 0, 0),
        "no attempt was lost"
    );
    assert!(world.rows.values().all(|row| row.attempts.len() == 1));
    let first = &world.row("map/0").attempts[0].container;
    let there = world
        .rows
        .values()
        .filter(|row| row.attempts[0].container == *first)
        .count();
    assert_eq!(there, 2, "only tasks that ran at the time of the warning");
    assert_eq!(
        world.granted.values().sum::<u32>(),
        3,
        "a replacement was requested"
    );
    assert!(
        world.words("PreemptionWarning")[0].contains("queue b is owed its share"),
        "{:?}",
        world.words("PreemptionWarning")
    );
}

#[test]
fn a_preempted_task_keeps_its_size_and_is_not_charged() {
    // Three preemptions in a row, with a budget for losses of one.
    let faults = [500, 2_500, 4_500].map(|at_ms| InjectedFault::Preempted {
        at_ms,
        nth: 0,
        warning_ms: 1_000,
    });
    let small = JOB.replace("count = 2", "count = 1").replace("0-7", "0-1");
    let job = MasterScenario::of(&small)
        .nodes(&[1024, 1024])
        .usual(TaskBehaviour::native(10, 20_000));
    let world = faults.into_iter().fold(job, MasterScenario::fault).run();
    let totals = world.core.totals();
    assert_eq!(
        (
            totals.done,
            totals.failed,
            totals.escalated,
            totals.memory_kills
        ),
        (2, 0, 0, 0)
    );
    assert_eq!(totals.transient, 6, "{totals:?}");
    assert_eq!(
        world.row("map/0").attempts.len(),
        4,
        "more attempts than the budget for losses allows"
    );
    for row in world.rows.values() {
        assert_eq!(row.state, TaskState::Done);
        let sizes: Vec<_> = row.attempts.iter().map(|a| a.profile.memory()).collect();
        assert!(sizes.windows(2).all(|w| w[0] == w[1]), "{sizes:?}");
        let (_, lost) = row.attempts.split_last().expect("attempts");
        assert!(
            lost.iter()
                .all(|a| a.reason == Some(ExitReason::Preempted)
                    && a.decision.contains("not charged")),
            "{row:?}"
        );
    }
}

#[test]
fn a_draining_node_is_left_as_its_tasks_end() {
    let world = job(3_000)
        .fault(InjectedFault::Drained { at_ms: 200 })
        .run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.transient),
        (8, 0),
        "no attempt was lost"
    );
    let late = world
        .rows
        .values()
        .flat_map(|row| &row.attempts)
        .filter(|a| a.started.0 > 1_700_000_001_400);
    let nodes: Vec<&str> = late.map(|a| a.node.as_str()).collect();
    assert!(
        !nodes.is_empty() && nodes.iter().all(|n| *n == "n1"),
        "{nodes:?}"
    );
    assert!(
        world
            .words("ContainerDraining")
            .iter()
            .all(|w| w.contains("n0 must be empty")),
        "{:?}",
        world.words("ContainerDraining")
    );
}

#[test]
fn a_preemption_that_does_not_happen_is_forgotten() {
    // The container is warned with a time far beyond the end of the job's first tasks and stays
    // alive: the job ends nevertheless.
    let world = job(30_000)
        .fault(InjectedFault::Preempted {
            at_ms: 500,
            nth: 0,
            warning_ms: 10_000_000,
        })
        .run();
    assert_eq!(world.core.totals().done, 8);
    assert!(world.rows.values().all(|row| row.attempts.len() == 1));
}

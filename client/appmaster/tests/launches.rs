//! Launches that fail at once: the node is excluded for a while, and the task runs elsewhere
//! without charge. If there is no other node, the job ends after its attempts, with waits between
//! them.

#[macro_use]
mod world;

use headroom_appmaster::record::JournalRecord;
use headroom_types::ExitReason;
use headroom_wire::v1::job::{AttemptRow, TaskState};
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// A job that fails at one charged failure.
const STRICT: &str = concat!(
    job_head!("launches", "160MiB", 2, 3, 2),
    r#"[retry]
transient = 0
[[stage]]
name = "map"
count = 12
command = ["prog"]
"#
);

/// The broken node is the larger one, so executors start there first.
fn strict() -> MasterScenario {
    MasterScenario::of(STRICT)
        .nodes(&[4096, 1024])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(InjectedFault::NoTasks { node: 0 })
}

fn failed(world: &SimulatedCluster) -> Vec<&AttemptRow> {
    let all = world.rows.values().flat_map(|row| &row.attempts);
    all.filter(|a| a.reason == Some(ExitReason::LaunchFailed))
        .collect()
}

fn all_done_elsewhere(world: &SimulatedCluster) {
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (world.core.totals().tasks, 0)
    );
    let failed = failed(world);
    assert!(
        !failed.is_empty()
            && failed
                .iter()
                .all(|a| a.node.as_str() == "n0" && a.decision.contains("not charged")),
        "{failed:?}"
    );
    for row in world.rows.values() {
        let last = row.attempts.last().expect("an attempt");
        assert!(
            row.attempts.len() <= 2 && last.node.as_str() == "n1",
            "{row:?}"
        );
    }
}

#[test]
fn a_node_with_failing_launches_costs_no_attempt_beside_a_healthy_node() {
    let world = strict().run();
    all_done_elsewhere(&world);
    assert_eq!(
        failed(&world).len(),
        6,
        "only the first tasks of its executors failed"
    );
    let messages = world.words("NodeExcluded");
    assert!(
        messages.len() == 1
            && messages[0].contains("n0")
            && messages[0].contains("no task starts there for 1 s"),
        "{messages:?}"
    );
}

#[test]
fn the_only_executor_is_replaced_on_another_node() {
    let world = MasterScenario::of(&STRICT.replace("count = 3", "count = 1"))
        .nodes(&[4096, 1024])
        .fault(InjectedFault::NoTasks { node: 0 })
        .run();
    all_done_elsewhere(&world);
    assert_eq!(failed(&world).len(), 2);
}

/// Executors run on both nodes, and the tasks that failed on one wait until the other has a free
/// slot.
#[test]
fn a_task_waits_for_a_full_node_instead_of_a_broken_node() {
    let s = MasterScenario::of(STRICT)
        .nodes(&[4096, 200])
        .usual(TaskBehaviour::native(10, 60_000))
        .fault(InjectedFault::NoTasks { node: 0 });
    let world = s.run();
    all_done_elsewhere(&world);
    assert!(
        world
            .notes
            .contains("map/0: its node could not start it: same size on another node, not charged; no task starts on n0 for 1 s")
    );
    let messages = world.words("NodeExcluded");
    assert!(
        messages.iter().any(|words| words.contains("for 4 s")),
        "other tasks retry the node after the wait: {messages:?}"
    );
}

#[test]
fn a_task_with_its_own_container_gets_a_container_on_another_node() {
    let job = STRICT.replace("count = 12", "count = 2");
    let s = MasterScenario::of(&job)
        .nodes(&[4096, 2048])
        .usual(TaskBehaviour::native(300, 5_000))
        .fault(InjectedFault::NoTasks { node: 0 });
    let world = s.run();
    assert_eq!(world.core.totals().done, 2);
    assert!(
        failed(&world)
            .iter()
            .all(|a| a.decision.contains("not charged"))
    );
}

/// Milliseconds from the start of one attempt of a task to the start of the next.
fn gaps(world: &SimulatedCluster, task: &str) -> Vec<u64> {
    world
        .row(task)
        .attempts
        .windows(2)
        .map(|pair| pair[1].started.0 - pair[0].started.0)
        .collect()
}

#[test]
fn on_the_only_node_attempts_are_repeated_with_growing_waits() {
    let job = STRICT.replace("transient = 0", "transient = 3");
    let world = MasterScenario::of(&job)
        .nodes(&[4096])
        .fault(InjectedFault::NoTasks { node: 0 })
        .run();
    assert_eq!(world.core.totals().failed, 12);
    let gaps = gaps(&world, "map/0");
    assert!(
        gaps.len() == 4
            && gaps
                .iter()
                .zip([1_000, 2_000, 4_000, 8_000])
                .all(|(gap, least)| *gap >= least),
        "{gaps:?}"
    );
    let row = world.row("map/0");
    assert!(
        row.state == TaskState::Failed && row.note.contains("was lost 4 times"),
        "{}",
        row.note
    );
    assert!(
        row.note
            .contains("every node needs the directory of the job file"),
        "{}",
        row.note
    );
    assert!(
        world.words("NodeExcluded").len() >= 4,
        "{:?}",
        world.words("NodeExcluded")
    );
}

#[test]
fn on_two_nodes_that_are_both_broken_the_job_ends_too() {
    let s = MasterScenario::of(STRICT).nodes(&[1024, 1024]);
    let world = s
        .fault(InjectedFault::NoTasks { node: 0 })
        .fault(InjectedFault::NoTasks { node: 1 })
        .run();
    assert_eq!(world.core.totals().failed, 12);
    assert!(
        world.rows.values().all(|row| row.attempts.len() <= 3),
        "one failed launch per node is not charged"
    );
}

#[test]
fn a_restart_after_any_record_charges_no_task() {
    let whole = strict().run();
    for n in 1..=whole.records.len() {
        let world = strict().fault(InjectedFault::MasterDiesAfter(n)).run();
        assert_eq!(world.result(), whole.result(), "died after record {n}");
    }
}

/// All eight executors fail together on one node, and count as one failure.
#[test]
fn executors_that_fail_on_a_node_start_on_another() {
    let job = STRICT.replace("count = 3", "count = 8");
    let world = MasterScenario::of(&job)
        .nodes(&[4096, 2048])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(InjectedFault::NoContainers { node: 0 })
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().transient),
        (12, 0)
    );
    assert!(
        world.granted.values().sum::<u32>() <= 16,
        "{:?}",
        world.granted
    );
    let messages = world.words("NodeExcluded");
    assert!(
        messages.len() == 1 && messages[0].contains("n0: an executor of set-main was not ready"),
        "{messages:?}"
    );
}

/// Some of the executors never start, and the others are enough.
#[test]
fn executors_that_start_run_tasks_while_others_fail() {
    let job = STRICT.replace("count = 3", "count = 8");
    let s = MasterScenario::of(&job)
        .nodes(&[4096, 200])
        .usual(TaskBehaviour::native(10, 60_000))
        .fault(InjectedFault::NoContainers { node: 0 });
    let world = s.run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (12, 0)
    );
}

#[test]
fn executors_that_start_nowhere_end_the_job_after_growing_waits() {
    let job = STRICT.replace("count = 3", "count = 8");
    let world = MasterScenario::of(&job)
        .nodes(&[4096])
        .fault(InjectedFault::NothingStarts)
        .run();
    assert_eq!(world.core.totals().failed, 12);
    assert!(
        world.now_ms >= 16_000,
        "1, 2, 4 and 8 seconds: {}",
        world.now_ms
    );
    assert!(
        world.row("map/0").note.contains("5 times in a row")
            && world.row("map/0").note.contains("on n0")
    );
    assert!(
        world.granted.values().sum::<u32>() <= 40,
        "{:?}",
        world.granted
    );
}

#[test]
fn executors_that_never_connect_end_the_job_after_five_rounds() {
    let world = MasterScenario::of(STRICT)
        .nodes(&[4096])
        .fault(InjectedFault::NothingConnects)
        .run();
    assert_eq!(world.core.totals().failed, 12);
    let note = &world.row("map/0").note;
    assert!(note.contains("5 times in a row"), "{note}");
    assert!(
        world.now_ms >= 300_000,
        "five waits of a minute: {}",
        world.now_ms
    );
    assert_eq!(
        world.granted.values().sum::<u32>(),
        15,
        "three executors in each round"
    );
    let unused =
        |record: &&JournalRecord| matches!(record, JournalRecord::Gone { unused: true, .. });
    let recorded = world.records.iter().filter(unused).count();
    assert!(recorded > 12, "every round is recorded: {recorded}");
}

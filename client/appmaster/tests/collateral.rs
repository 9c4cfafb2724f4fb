//! Kills for an outer limit: the task waits and runs on another node. A node with repeated kills is
//! excluded. No task is given up for such kills while there is another node.

#[macro_use]
mod world;

use headroom_types::ExitReason;
use headroom_wire::v1::job::{AttemptRow, TaskState};
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// A job that fails at one charged loss.
const STRICT: &str = concat!(
    job_head!("collateral", "160MiB", 2, 3, 2),
    r#"[retry]
transient = 0
[[stage]]
name = "map"
count = 12
command = ["prog"]
"#
);

/// The node with the kills is the larger one, so executors start there first.
fn strict() -> MasterScenario {
    MasterScenario::of(STRICT)
        .nodes(&[4096, 1024])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(InjectedFault::OuterKills { node: 0 })
}

fn killed(world: &SimulatedCluster) -> Vec<&AttemptRow> {
    let all = world.rows.values().flat_map(|row| &row.attempts);
    all.filter(|a| a.reason == Some(ExitReason::AncestorOom))
        .collect()
}

/// Milliseconds from the end of one attempt of a task to the next.
fn gaps(world: &SimulatedCluster, task: &str) -> Vec<u64> {
    world
        .row(task)
        .attempts
        .windows(2)
        .map(|pair| pair[1].started.0 - pair[0].ended.expect("ended").0)
        .collect()
}

#[test]
fn no_task_is_given_up_while_another_node_is_healthy() {
    let world = strict().run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (12, 0),
        "transient = 0 charges nothing here"
    );
    assert!(
        !killed(&world).is_empty()
            && killed(&world)
                .iter()
                .all(|a| a.node.as_str() == "n0" && a.decision.contains("not charged"))
    );
    let last = |row: &headroom_wire::v1::job::TaskRow| {
        row.attempts.last().expect("an attempt").node.as_str() == "n1"
    };
    assert!(world.rows.values().all(last));
}

#[test]
fn three_outer_kills_exclude_the_node_and_add_one_event() {
    let job = STRICT.replace("count = 12", "count = 60");
    let world = MasterScenario::of(&job)
        .nodes(&[4096, 200])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(InjectedFault::OuterKills { node: 0 })
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (60, 0)
    );
    let messages = world.words("NodeExcluded");
    assert!(
        messages.len() == 1 && messages[0].contains("n0") && messages[0].contains("3 times"),
        "{messages:?}"
    );
    let at = |a: &&AttemptRow| a.ended.expect("ended").0;
    let kills = killed(&world);
    let (first, last) = (
        kills.iter().map(at).min().expect("one"),
        kills.iter().map(at).max().expect("one"),
    );
    assert!(
        last - first < 60_000,
        "no task starts there after the exclusion: {} ms",
        last - first
    );
}

#[test]
fn on_the_only_node_waits_grow_and_retries_are_bounded() {
    let job = STRICT
        .replace("transient = 0", "transient = 2")
        .replace("count = 12", "count = 1");
    let world = MasterScenario::of(&job)
        .nodes(&[4096])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(InjectedFault::OuterKills { node: 0 })
        .run();
    let row = world.row("map/0");
    assert_eq!(
        row.state,
        TaskState::Failed,
        "three kills until the node is excluded, and three that are charged"
    );
    let gaps = gaps(&world, "map/0");
    assert!(
        gaps.len() == 5
            && gaps
                .iter()
                .zip([1_000, 2_000, 4_000])
                .all(|(gap, least)| *gap >= least),
        "{gaps:?}"
    );
    assert!(
        row.note.contains("was lost 3 times") && row.note.contains("outer limit"),
        "{}",
        row.note
    );
}

#[test]
fn a_restart_after_any_record_keeps_the_outcome() {
    let whole = strict().run();
    for n in 1..=whole.records.len() {
        let world = strict().fault(InjectedFault::MasterDiesAfter(n)).run();
        assert_eq!(
            (world.core.totals().done, world.core.totals().failed),
            (12, 0),
            "died after record {n}"
        );
    }
}

//! Containers in which ended tasks left memory: they end only when the next task would not have
//! enough memory.

#[macro_use]
mod world;

use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// Two slots of 64 MiB in each of two executors, and 32 MiB for the executor itself.
const JOB: &str = concat!(
    job_head!("leaky", "160MiB", 2, 2, 2),
    r#"[[stage]]
name = "map"
array = "0-15"
command = ["prog", "{index}"]
grow = false
"#
);

fn with_leftovers(mib: u64) -> SimulatedCluster {
    let fault = InjectedFault::LeftBehind {
        at_ms: 500,
        nth: 0,
        mib,
    };
    MasterScenario::of(JOB)
        .nodes(&[1024, 1024])
        .usual(TaskBehaviour::native(10, 1000))
        .fault(fault)
        .run()
}

#[test]
fn a_container_too_full_for_its_next_task_is_replaced() {
    let world = with_leftovers(40);
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.transient, totals.memory_kills),
        (16, 0, 0),
        "no work is lost"
    );
    let first = &world.row("map/0").attempts[0].container;
    let there = world
        .rows
        .values()
        .flat_map(|row| &row.attempts)
        .filter(|a| a.container == *first)
        .count();
    assert_eq!(there, 2, "only tasks that ran at the time of the report");
    assert_eq!(
        world.granted.values().sum::<u32>(),
        3,
        "a replacement was requested"
    );
    let words = world.words("ContainerDraining");
    assert_eq!(words.len(), 1, "{words:?}");
    for part in [
        "ends when idle: ended tasks left 40 MiB in it (left by map-9-1 (40 MiB))",
        "needs 64 MiB",
    ] {
        assert!(words[0].contains(part), "{part}: {words:?}");
    }
}

#[test]
fn a_container_with_small_or_freed_leftovers_stays() {
    let world = with_leftovers(0);
    assert_eq!(
        (
            world.core.totals().done,
            world.granted.values().sum::<u32>()
        ),
        (16, 2)
    );
    assert!(
        world.words("ContainerDraining").is_empty(),
        "{:?}",
        world.words("ContainerDraining")
    );
}

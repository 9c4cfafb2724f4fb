//! The number of a job's executors: by demand, idle time and minimum; and no start of tasks while a
//! heap in the executor is starved.

mod world;

use world::{MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = r#"
version = 1
name = "supply"
[profiles.exec]
memory = "160MiB"
cpus = 2
[executors.main]
profile = "exec"
count = 2
slots = 2
[[stage]]
name = "map"
array = "0-3"
command = ["prog", "{index}"]
"#;

/// Four tasks on two executors of two slots, one of which runs a minute longer than the others.
fn with(keys: &str) -> SimulatedCluster {
    let job = JOB.replace("count = 2", &format!("count = 2\n{keys}"));
    let world = MasterScenario::of(&job)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 1_000))
        .habit("map/3", TaskBehaviour::native(10, 61_000))
        .run();
    assert_eq!(world.core.totals().done, 4, "{keys}");
    assert_eq!(world.granted.values().sum::<u32>(), 2, "{keys}");
    world
}

/// Seconds from the end of its tasks until the first executor ended, or until the job ended.
fn kept(world: &SimulatedCluster) -> u64 {
    (world.ended.first().unwrap_or(&world.now_ms) - 2_000) / 1000
}

#[test]
fn an_idle_executor_is_ended_at_once() {
    assert!(kept(&with("")) < 3);
}

#[test]
fn an_idle_executor_is_ended_after_the_idle_time() {
    let kept = kept(&with("idle = \"30s\""));
    assert!((30..35).contains(&kept), "{kept}");
}

#[test]
fn the_minimum_of_executors_stays_to_the_end() {
    let world = with("min = 2");
    assert!(kept(&world) >= 58, "{:?}", world.ended);
    assert!(
        kept(&with("min = 1")) < 3,
        "the other executor is not needed"
    );
}

/// Both exist for the one task, and no third one follows when it is done.
#[test]
fn the_minimum_of_executors_starts_before_there_is_work() {
    let narrow = JOB
        .replace("count = 2", "count = 2\nmin = 2")
        .replace("0-3", "0-0");
    let world = MasterScenario::of(&narrow).nodes(&[1024]).run();
    assert_eq!(world.granted.values().sum::<u32>(), 2);
}

/// The wide task needs its own container, and all memory of the only node is occupied by idle
/// executors.
#[test]
fn an_idle_executor_is_ended_for_a_waiting_container() {
    let job = JOB.replace("count = 2", "count = 2\nmin = 2\nidle = \"1h\"");
    let world = MasterScenario::of(&job)
        .nodes(&[340])
        .usual(TaskBehaviour::native(10, 1_000))
        .habit("map/3", TaskBehaviour::native(200, 1_000))
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (4, 0)
    );
}

#[test]
fn no_task_starts_beside_a_starved_heap() {
    let job = JOB.replace("count = 2", "count = 1").replace("0-3", "0-2");
    let beside = |first: TaskBehaviour| {
        let s = MasterScenario::of(&job)
            .nodes(&[1024])
            .usual(TaskBehaviour::native(10, 1_000));
        let world = s.habit("map/0", first).run();
        let row = |id: &str| world.row(id).attempts[0].clone();
        assert_eq!(world.core.totals().done, 3);
        let end = row("map/0").ended.expect("it ended");
        row("map/2").started >= end
    };
    let long = TaskBehaviour::native(10, 30_000);
    assert!(
        !beside(long.clone()),
        "the second slot is free after a second"
    );
    assert!(
        beside(long.starved()),
        "one task at a time until the end of map/0"
    );
}

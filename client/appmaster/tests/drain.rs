//! Executors of a job make room for the containers of its own escalated tasks.

#[macro_use]
mod world;

use std::time::Duration;

use headroom_appmaster::record::JournalRecord;
use headroom_types::{Bytes, ContainerId, ExitReason};
use headroom_wire::v1::job::AttemptRow;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// Executors of one slot, so that an escalated task gets a container of its own.
const JOB: &str = concat!(
    job_head!("full-cluster", "288MiB", 1, 2, 1),
    r#"[[stage]]
name = "map"
array = "0-59"
command = ["prog", "{index}"]
grow = false
"#
);
/// Run time of a task. Milliseconds.
const TASK_MS: u64 = 1_000;

fn full_cluster() -> MasterScenario {
    MasterScenario::of(JOB)
        .nodes(&[870])
        .usual(TaskBehaviour::native(10, TASK_MS))
}

fn rows<'w>(world: &'w SimulatedCluster, id: &str) -> &'w [AttemptRow] {
    &world.row(id).attempts
}

/// Time from the kill of the first attempt to the start of the second one.
fn waited(world: &SimulatedCluster, id: &str) -> Duration {
    let rows = rows(world, id);
    rows[1].started.since(rows[0].ended.expect("has ended"))
}

/// Containers that were drained for a task, in order.
fn drained(world: &SimulatedCluster) -> Vec<&str> {
    world.words("ContainerDraining")
}

fn attempts(world: &SimulatedCluster) -> usize {
    world.rows.values().map(|row| row.attempts.len()).sum()
}

fn makespan(world: &SimulatedCluster) -> Duration {
    let all = || world.rows.values().flat_map(|row| &row.attempts);
    let (first, last) = (
        all().map(|a| a.started).min(),
        all().filter_map(|a| a.ended).max(),
    );
    last.expect("an end").since(first.expect("a start"))
}

#[test]
fn an_escalated_task_starts_within_two_task_times_on_a_full_node() {
    let world = full_cluster()
        .habit("map/0", TaskBehaviour::native(400, TASK_MS))
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().memory_kills),
        (60, 1)
    );
    assert_eq!(attempts(&world), 61, "no work of other tasks is lost");
    let waited = waited(&world, "map/0");
    assert!(waited <= Duration::from_millis(2 * TASK_MS), "{waited:?}");
    assert!(
        drained(&world)[0].contains("for map/0"),
        "{:?}",
        drained(&world)
    );
    let says = |words: &str| {
        world
            .notes
            .iter()
            .any(|n| n.starts_with("map/0: ") && n.contains(words))
    };
    assert!(
        says("the job drains an executor for it"),
        "before the drain: {:?}",
        world.notes
    );
    assert!(
        says("waits for an executor of its job to drain: "),
        "{:?}",
        world.notes
    );
    let without = full_cluster().run();
    let (with, without) = (makespan(&world), makespan(&without));
    // The task itself occupies two executors during its run, and has run once before.
    assert!(
        with <= without + Duration::from_millis(4 * TASK_MS),
        "{with:?} against {without:?}"
    );
}

#[test]
fn the_memory_of_a_drained_executor_is_not_used_by_a_new_executor() {
    let world = full_cluster()
        .habit("map/0", TaskBehaviour::native(400, TASK_MS))
        .run();
    let own = &rows(&world, "map/0")[1];
    let gained = world.records.iter().filter_map(|record| {
        let JournalRecord::Gained {
            container, request, ..
        } = record
        else {
            return None;
        };
        request.as_str().starts_with("set-").then_some(container)
    });
    let after_two: Vec<&ContainerId> = gained.skip(2).collect();
    let began = |container: &ContainerId| {
        let all = world.rows.values().flat_map(|row| &row.attempts);
        all.filter(|a| a.container == *container)
            .map(|a| a.started)
            .min()
    };
    assert!(!after_two.is_empty(), "executors return");
    assert!(
        after_two
            .iter()
            .filter_map(|c| began(c))
            .all(|at| at >= own.ended.expect("has ended")),
        "after the task's end"
    );
}

#[test]
fn a_second_executor_of_the_node_is_drained_if_needed() {
    let world = full_cluster()
        .nodes(&[640])
        .habit("map/0", TaskBehaviour::native(400, TASK_MS))
        .run();
    assert_eq!((world.core.totals().done, drained(&world).len()), (60, 2));
    let waited = waited(&world, "map/0");
    assert!(waited <= Duration::from_millis(3 * TASK_MS), "{waited:?}");
}

#[test]
fn a_drained_executor_starts_no_tasks_after_a_cancelled_drain_of_its_node() {
    let world = full_cluster()
        .usual(TaskBehaviour::native(10, 40_000))
        .habit("map/0", TaskBehaviour::native(400, TASK_MS))
        .fault(InjectedFault::DrainCancelled {
            at_ms: 5_000,
            within_ms: 1_000,
        })
        .run();
    assert_eq!((world.core.totals().done, drained(&world).len()), (60, 2));
}

#[test]
fn escalated_tasks_wait_in_turn_on_a_small_node() {
    let hungry = TaskBehaviour::native(400, TASK_MS);
    let three = ["map/0", "map/5", "map/11"];
    let world = three
        .iter()
        .fold(full_cluster(), |s, id| s.habit(id, hungry.clone()))
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().memory_kills),
        (60, 3)
    );
    assert_eq!(attempts(&world), 63, "no work of other tasks is lost");
    let mut starts: Vec<_> = three
        .iter()
        .map(|id| (rows(&world, id)[0].ended, rows(&world, id)[1].started))
        .collect();
    starts.sort();
    assert!(
        starts.windows(2).all(|pair| pair[0].1 <= pair[1].1),
        "the oldest first: {starts:?}"
    );
    for id in three {
        // The tasks before it, each for its run, and the drains of the executors that returned
        // between them.
        assert!(
            waited(&world, id) <= Duration::from_millis(6 * TASK_MS),
            "{id}: {:?}",
            waited(&world, id)
        );
    }
}

#[test]
fn tasks_killed_together_get_containers_together_on_a_large_node() {
    let hungry = TaskBehaviour::native(400, TASK_MS);
    let world = full_cluster()
        .nodes(&[1100])
        .habit("map/0", hungry.clone())
        .habit("map/1", hungry)
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().memory_kills),
        (60, 2)
    );
    assert_eq!(
        (attempts(&world), drained(&world).len()),
        (62, 2),
        "no work of other tasks is lost"
    );
    for id in ["map/0", "map/1"] {
        assert!(
            waited(&world, id) <= Duration::from_millis(2 * TASK_MS),
            "{id}: {:?}",
            waited(&world, id)
        );
    }
}

/// Executors of four slots on one node, and tasks that free one slot at a time.
fn staggered(executors: u32) -> MasterScenario {
    let text = JOB.replace("cpus = 1", "cpus = 4").replace(
        "count = 2\nslots = 1",
        &format!("count = {executors}\nslots = 4"),
    );
    let scenario = MasterScenario::of(&text.replace("0-59", "0-199"))
        .nodes(&[670])
        .usual(TaskBehaviour::native(10, TASK_MS));
    (1..8).fold(scenario, |s, i| {
        s.habit(&format!("map/{i}"), TaskBehaviour::native(10, 125 * i))
    })
}

#[test]
fn a_task_of_two_slots_is_not_overtaken_by_tasks_of_one() {
    let world = staggered(2)
        .habit("map/0", TaskBehaviour::native(100, 300))
        .run();
    assert_eq!(
        (rows(&world, "map/0")[1].slots, world.core.totals().done),
        (2, 200)
    );
    assert!(
        waited(&world, "map/0") <= Duration::from_millis(TASK_MS),
        "{:?}",
        waited(&world, "map/0")
    );
    assert_eq!(drained(&world), [""; 0]);
}

#[test]
fn tasks_of_two_slots_use_one_executor_in_turn() {
    let wide = ["map/0", "map/4", "map/6"];
    let world = wide
        .iter()
        .fold(staggered(1), |s, id| {
            s.habit(id, TaskBehaviour::native(100, 300))
        })
        .run();
    assert_eq!(world.core.totals().done, 200);
    for id in wide {
        assert_eq!(rows(&world, id)[1].slots, 2, "{id}");
        assert!(
            waited(&world, id) <= Duration::from_millis(3 * TASK_MS),
            "{id}: {:?}",
            waited(&world, id)
        );
    }
}

#[test]
fn an_executor_reserved_for_a_task_is_not_drained_for_another() {
    let world = staggered(2)
        .habit("map/0", TaskBehaviour::native(100, 300))
        .habit("map/5", TaskBehaviour::native(400, 300))
        .run();
    assert_eq!(world.core.totals().done, 200);
    assert!(
        waited(&world, "map/0") <= Duration::from_millis(2 * TASK_MS),
        "{:?}",
        waited(&world, "map/0")
    );
    let last = rows(&world, "map/5").last().expect("attempts");
    assert_eq!(
        (last.slots, last.profile.memory() >= Bytes::from_mib(400)),
        (1, true)
    );
}

#[test]
fn tasks_that_fit_another_node_drain_no_executor() {
    let world = full_cluster()
        .nodes(&[640, 640, 640])
        .habit("map/0", TaskBehaviour::native(400, TASK_MS))
        .run();
    assert_eq!(world.core.totals().done, 60);
    assert_eq!(drained(&world), [""; 0]);
}

#[test]
fn drain_after_delays_drains_up_to_half_a_task_time() {
    let long = full_cluster()
        .usual(TaskBehaviour::native(10, 20_000))
        .habit("map/5", TaskBehaviour::native(400, 20_000))
        .run();
    assert!(
        waited(&long, "map/5") <= Duration::from_millis(40_000),
        "{:?}",
        waited(&long, "map/5")
    );
    let never = format!("{JOB}\n[retry]\ndrain_after = \"1h\"\n");
    let half = MasterScenario::of(&never)
        .nodes(&[640])
        .usual(TaskBehaviour::native(10, TASK_MS))
        .habit("map/30", TaskBehaviour::native(400, TASK_MS));
    let world = half.run();
    assert!(
        waited(&world, "map/30") <= Duration::from_millis(3 * TASK_MS),
        "half a task time bounds it"
    );
}

#[test]
fn a_restart_after_any_record_completes_the_drain() {
    let short = JOB.replace("0-59", "0-11");
    let job = || {
        MasterScenario::of(&short)
            .nodes(&[640])
            .usual(TaskBehaviour::native(10, TASK_MS))
            .habit("map/2", TaskBehaviour::native(400, TASK_MS))
    };
    let whole = job().run();
    for n in 1..whole.records.len() {
        let world = job().fault(InjectedFault::MasterDiesAfter(n)).run();
        let totals = world.core.totals();
        assert_eq!(
            (totals.done, totals.failed, totals.memory_kills),
            (12, 0, 1),
            "after record {n}"
        );
    }
}

#[test]
fn an_executor_to_be_preempted_is_not_drained() {
    let fault = InjectedFault::Preempted {
        at_ms: 1_500,
        nth: 0,
        warning_ms: 5_000,
    };
    let world = full_cluster()
        .habit("map/3", TaskBehaviour::native(400, TASK_MS))
        .fault(fault)
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (60, 0)
    );
    let lost = |row: &&AttemptRow| row.reason == Some(ExitReason::Preempted);
    assert!(
        world
            .rows
            .values()
            .flat_map(|row| &row.attempts)
            .filter(lost)
            .count()
            <= 1
    );
}

#[test]
fn an_escalated_task_requests_the_processors_of_the_job_file() {
    let few = format!("{JOB}\n[retry]\ncpus = 0.25\n");
    let job = headroom_config::job::compile(&few, "few.toml").expect("compiles");
    let (set, stage) = (&job.executors[0], &job.stages[0]);
    let asked = |rung| {
        headroom_appmaster::spec::own_resource(&job.retry, set, stage, (Bytes::from_mib(400), rung))
            .cpus
            .milli()
    };
    assert_eq!((asked(1), asked(2)), (1_000, 250));
}

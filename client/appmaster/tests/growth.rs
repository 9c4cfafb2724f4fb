//! Growth of running tasks: the source of the memory, its bounds, and the state after a restart in
//! the middle.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::job::MemoryFailureMode;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// Two executors of two slots with 64 MiB each.
const JOB: &str = concat!(
    job_head!("growing", "160MiB", 2, 2, 2),
    r#"[[stage]]
name = "map"
array = "0-3"
grow = true
command = ["prog", "{index}"]
"#
);

fn job() -> MasterScenario {
    MasterScenario::of(JOB)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 1000))
}

fn limits(world: &SimulatedCluster, id: &str) -> Vec<u64> {
    let row = &world.row(id).attempts[0];
    let first = row.grown.first().map_or(row.profile.memory(), |g| g.from);
    std::iter::once(first)
        .chain(row.grown.iter().map(|g| g.to))
        .map(Bytes::whole_mib)
        .collect()
}

#[test]
fn a_task_that_needs_three_times_its_size_is_never_killed() {
    let world = job().habit("map/1", TaskBehaviour::native(190, 1000)).run();
    let totals = world.core.totals();
    assert_eq!(
        (
            totals.done,
            totals.memory_kills,
            totals.escalated,
            totals.grown
        ),
        (4, 0, 0, 3)
    );
    assert_eq!(limits(&world, "map/1"), [64, 96, 144, 216]);
    assert_eq!(world.row("map/1").attempts.len(), 1);
    assert_eq!(
        world.row("map/1").profile.memory().whole_mib(),
        216,
        "the view shows the grown size"
    );
    assert!(
        world.row("map/1").attempts[0]
            .grown
            .iter()
            .all(|g| g.frozen_us == Some(1500)),
        "and the time for which it was frozen"
    );
    assert!(
        world.words("TaskGrown")[0].contains("64 → 96 MiB"),
        "{:?}",
        world.words("TaskGrown")
    );
}

#[test]
fn growth_uses_free_slots_before_a_temporary_resize() {
    // One task alone: the other slot of its executor is free.
    let alone = JOB.replace("0-3", "0-0");
    let world = MasterScenario::of(&alone)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(120, 1000))
        .run();
    assert_eq!(
        (world.resizes, limits(&world, "map/0")),
        (1, vec![64, 96, 144]),
        "96 fit into two slots, 144 do not"
    );
    let spent = world.core.totals().allocated_byte_ms;
    assert!(
        spent < 144 * (1 << 20) * 1200,
        "each size counts for its own time: {spent}"
    );
    // Another task runs in the same executor afterwards: the container has its initial size again.
    let two = format!(
        "{}\n[[stage]]\nname = \"then\"\nafter = [\"map\"]\ncount = 4\ncommand = [\"prog\"]\n",
        alone
    );
    let world = MasterScenario::of(&two)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 1000))
        .habit("map/0", TaskBehaviour::native(120, 1000))
        .run();
    assert_eq!(
        (world.core.totals().done, world.resizes),
        (5, 2),
        "one resize up and one down"
    );
}

#[test]
fn slots_without_memory_get_no_task() {
    // Both tasks of the first wave need the memory of 1.5 slots: their executor has no free memory
    // until they end.
    let one = JOB
        .replace("count = 2", "count = 1")
        .replace("slots = 2", "slots = 4")
        .replace("160MiB", "288MiB")
        .replace("0-3", "0-9");
    let world = MasterScenario::of(&one)
        .nodes(&[320])
        .usual(TaskBehaviour::native(90, 1000))
        .run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.failed),
        (10, 0),
        "every task succeeds on a node without free memory"
    );
    assert!(totals.grown > 0 && totals.memory_kills < 10, "{totals:?}");
}

#[test]
fn on_a_full_node_an_executor_is_drained_for_a_frozen_task() {
    let two = TIGHT.replace(
        "array = \"0-1\"\ncommand = [\"prog\", \"{index}\"]\n\n",
        "array = \"0-3\"\ncommand = [\"prog\"]\n\n",
    );
    let tasks = MasterScenario::of(&two)
        .nodes(&[192])
        .usual(TaskBehaviour::native(10, 1000));
    let world = tasks
        .habit("map/0", TaskBehaviour::native(10, 1500))
        .habit("map/1", TaskBehaviour::native(140, 1000))
        .run();
    let totals = world.core.totals();
    assert_eq!(
        (
            totals.done,
            totals.memory_kills,
            totals.evicted,
            totals.transient
        ),
        (6, 0, 0, 0),
        "{totals:?}"
    );
    assert_eq!(
        world.row("map/1").attempts.len(),
        1,
        "the task grew in place"
    );
    assert!(
        world.words("TaskFrozen")[0].contains("map/1@1 is frozen for "),
        "{:?}",
        world.words("TaskFrozen")
    );
    assert!(
        world.words("ContainerDraining")[0].contains("more for map/1@1"),
        "{:?}",
        world.words("ContainerDraining")
    );
}

#[test]
fn without_free_memory_in_time_the_task_is_killed_and_escalates() {
    // The other task on the node runs long and may not be evicted.
    let once = TIGHT.replace("array = ", "idempotent = \"no\"\narray = ");
    let tasks = MasterScenario::of(&once)
        .nodes(&[192])
        .usual(TaskBehaviour::native(10, 1000))
        .habit("map/0", TaskBehaviour::native(10, 100_000));
    let world = tasks.habit("map/1", TaskBehaviour::native(140, 1000)).run();
    assert_eq!(world.core.totals().evicted, 0, "{:?}", world.core.totals());
    let row = &world.row("map/1").attempts[0];
    assert_eq!(row.reason, Some(ExitReason::TaskOom));
    assert!(
        row.ended.expect("an end").since(row.started).as_secs() >= 29,
        "{row:?}"
    );
    assert!(
        world.words("GrowthRefused")[0].contains("no free memory for 32 MiB more in "),
        "{:?}",
        world.words("GrowthRefused")
    );
}

/// Two executors of one slot fill the node; both exist when the tasks start that need more memory.
const TIGHT: &str = concat!(
    job_head!("tight", "96MiB", 1, 2, 1),
    r#"[[stage]]
name = "warm"
array = "0-1"
command = ["prog", "{index}"]

[[stage]]
name = "map"
after = ["warm"]
array = "0-1"
command = ["prog", "{index}"]
"#
);

fn tight() -> MasterScenario {
    let tasks = MasterScenario::of(TIGHT)
        .nodes(&[192])
        .usual(TaskBehaviour::native(10, 1000));
    tasks
        .habit("map/0", TaskBehaviour::native(140, 4000))
        .habit("map/1", TaskBehaviour::native(140, 4000))
}

#[test]
fn one_of_two_mutually_blocked_tasks_is_evicted() {
    let world = tight().run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.memory_kills, totals.evicted),
        (4, 0, 1),
        "{totals:?}"
    );
    assert_eq!(
        totals.rerun_byte_ms > 0,
        totals.evicted > 0,
        "lost work is counted: {totals:?}"
    );
    let attempts: Vec<usize> = ["map/0", "map/1"]
        .iter()
        .map(|id| world.row(id).attempts.len())
        .collect();
    assert_eq!(
        attempts.iter().sum::<usize>(),
        3,
        "one task ran twice: {attempts:?}"
    );
    let again = ["map/0", "map/1"]
        .iter()
        .map(|id| world.row(id))
        .find(|row| row.attempts.len() == 2)
        .expect("one was evicted");
    assert_eq!(again.attempts[0].reason, Some(ExitReason::Stopped));
    assert!(
        again.attempts[1].profile.memory() > again.attempts[0].profile.memory(),
        "it restarts at the requested step"
    );
    assert!(
        world.words("TaskEvicted")[0].contains("is evicted on n0"),
        "{:?}",
        world.words("TaskEvicted")
    );
}

#[test]
fn a_task_is_evicted_once_despite_restarts_of_the_master() {
    let whole = tight().run();
    for n in 1..whole.records.len() {
        let world = tight().fault(InjectedFault::MasterDiesAfter(n)).run();
        let totals = world.core.totals();
        assert_eq!(
            (totals.done, totals.failed, totals.memory_kills),
            (4, 0, 0),
            "after record {n}: {totals:?}"
        );
        for id in ["map/0", "map/1"] {
            let stopped = world
                .row(id)
                .attempts
                .iter()
                .filter(|row| row.reason == Some(ExitReason::Stopped))
                .count();
            assert!(
                stopped <= 1,
                "after record {n}: {id} was evicted {stopped} times"
            );
        }
    }
}

#[test]
fn cap_and_mode_limit_growth() {
    let capped = format!("{JOB}\n[retry]\ncap = \"100MiB\"\n");
    let world = MasterScenario::of(&capped)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 1000))
        .habit("map/1", TaskBehaviour::native(190, 1000))
        .run();
    assert_eq!(limits(&world, "map/1"), [64, 96, 100]);
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::MemoryExhausted)
    );
    let world = job()
        .mode(MemoryFailureMode::Pinterest)
        .habit("map/1", TaskBehaviour::native(190, 1000))
        .run();
    assert_eq!(
        (world.core.totals().grown, world.core.totals().done),
        (0, 4),
        "others kill"
    );
}

#[test]
fn a_jvm_grows_outside_its_heap_only() {
    let jvm = JOB.replace(
        "grow = true",
        "grow = true\nruntime = \"jvm\"\nprofile = \"task\"",
    ) + "\n[profiles.task]\nheap = \"40MiB\"\noverhead = \"24MiB\"\n";
    let world = MasterScenario::of(&jvm)
        .nodes(&[1024])
        .usual(TaskBehaviour::jvm(30, 10))
        .habit("map/2", TaskBehaviour::jvm(30, 50))
        .run();
    let row = world.row("map/2");
    assert_eq!(
        (world.core.totals().memory_kills, row.attempts.len()),
        (0, 1)
    );
    let profile = &row.attempts[0].profile;
    assert!(
        profile.heap == Bytes::from_mib(40) && profile.overhead >= Bytes::from_mib(50),
        "{profile}"
    );
}

#[test]
fn a_restarted_master_continues_a_growth() {
    let whole = job()
        .habit("map/1", TaskBehaviour::native(190, 1000))
        .habit("map/2", TaskBehaviour::native(300, 1000))
        .run();
    let count = whole.records.len();
    for n in 1..count {
        let fault = InjectedFault::MasterDiesAfter(n);
        let world = job()
            .habit("map/1", TaskBehaviour::native(190, 1000))
            .habit("map/2", TaskBehaviour::native(300, 1000))
            .fault(fault)
            .run();
        let totals = world.core.totals();
        assert_eq!(
            (totals.done, totals.failed, totals.memory_kills),
            (4, 0, 0),
            "after record {n}"
        );
        assert!(
            world.rows.values().all(|row| row.attempts.len() == 1),
            "after record {n}: a task ran twice"
        );
    }
}

#[test]
fn a_lost_task_runs_again_at_its_grown_size() {
    let fault = InjectedFault::ContainerEnds {
        at_ms: 600,
        nth: 0,
        reason: ExitReason::NodeLost,
    };
    let world = job()
        .habit("map/0", TaskBehaviour::native(190, 1000))
        .fault(fault)
        .run();
    let row = world.row("map/0");
    assert_eq!((world.core.totals().done, row.attempts.len()), (4, 2));
    assert_eq!(
        row.attempts[1].profile, row.attempts[0].profile,
        "a grown size survives the loss of its node"
    );
    assert_eq!(world.core.totals().memory_kills, 0);
}

#[test]
fn a_task_that_must_not_run_twice_does_not_protect_its_executor() {
    let job = concat!(
        job_head!("beside", "224MiB", 3, 1, 3),
        "[[stage]]\nname = \"once\"\nidempotent = \"no\"\ncommand = [\"prog\"]\ncount = 1\n",
        "[[stage]]\nname = \"map\"\ncommand = [\"prog\"]\ncount = 2\n"
    );
    let tasks = MasterScenario::of(job)
        .nodes(&[224])
        .usual(TaskBehaviour::native(10, 60_000));
    let world = tasks.habit("map/0", TaskBehaviour::native(90, 4000)).run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.memory_kills, totals.evicted),
        (3, 0, 1),
        "{totals:?}"
    );
    assert_eq!(
        [world.row("once/0"), world.row("map/0")].map(|row| row.attempts.len()),
        [1, 1]
    );
    let lost = world.words("AttemptLost");
    assert!(
        lost[0].contains("evicted to free memory for a frozen task"),
        "{lost:?}"
    );
}

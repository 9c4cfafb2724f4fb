//! Scenarios of whole jobs: the policy in all its modes, restarts, losses and late messages.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_types::ExitReason;
use headroom_wire::v1::job::{MemoryFailureMode, TaskState};
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// 20 tasks on 2 executors of 4 slots with 64 MiB each.
const FIGURE: &str = concat!(
    job_head!("figure", "288MiB", 4, 2, 4),
    r#"[[stage]]
grow = false
name = "group"
array = "0-19"
command = ["prog", "{index}"]
"#
);

/// Four tasks need three times their share, one more than a whole executor.
fn figure(mode: MemoryFailureMode) -> MasterScenario {
    let mut s = MasterScenario::of(FIGURE)
        .mode(mode)
        .usual(TaskBehaviour::native(50, 2000))
        .habit("group/19", TaskBehaviour::native(300, 2000));
    for heavy in [3, 7, 11, 15] {
        s = s.habit(&format!("group/{heavy}"), TaskBehaviour::native(190, 2000));
    }
    s
}

fn done(world: &SimulatedCluster) -> u32 {
    world.core.totals().done
}

#[test]
fn the_figure_in_mode_headroom_loses_no_task_and_no_neighbour() {
    let world = figure(MemoryFailureMode::Headroom).run();
    let totals = world.core.totals();
    assert_eq!(
        (totals.done, totals.failed, totals.collateral_reruns),
        (20, 0, 0)
    );
    assert_eq!(
        world.sizes("group/3"),
        [64, 128, 192],
        "first two slots, then a container of its own"
    );
    assert_eq!(world.sizes("group/19"), [64, 128, 192, 384]);
    assert_eq!(world.sizes("group/0"), [64]);
    assert_eq!((totals.escalated, totals.memory_kills), (5, 11));
    let slots: Vec<u32> = world
        .row("group/3")
        .attempts
        .iter()
        .map(|a| a.slots)
        .collect();
    assert_eq!(slots, [1, 2, 1]);
    let second = &world.row("group/3").attempts[1].container;
    assert!(
        world
            .rows
            .values()
            .any(|r| r.attempts[0].container == *second),
        "two slots need no new container"
    );
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Succeeded)
    );
    assert!(totals.rerun_byte_ms > 0 && totals.rerun_byte_ms < totals.allocated_byte_ms);
}

#[test]
fn the_figure_in_mode_uber_loses_the_task_larger_than_an_executor() {
    let world = figure(MemoryFailureMode::Uber).run();
    assert_eq!((done(&world), world.core.totals().failed), (19, 1));
    assert_eq!(world.sizes("group/3"), [64, 256]);
    assert_eq!(
        world.row("group/3").attempts[1].slots,
        4,
        "alone on a whole executor"
    );
    assert_eq!(world.row("group/19").state, TaskState::Failed);
    assert_eq!(
        world.sizes("group/19"),
        [64, 256],
        "a kill alone on a whole executor is final"
    );
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::MemoryExhausted)
    );
}

#[test]
fn the_figure_in_mode_pinterest_climbs_to_larger_executors() {
    let world = figure(MemoryFailureMode::Pinterest).run();
    assert_eq!((done(&world), world.core.totals().failed), (20, 0));
    assert_eq!(world.sizes("group/3"), [64, 128, 2 * 288 - 32]);
    assert_eq!(world.sizes("group/19"), [64, 128, 2 * 288 - 32]);
}

#[test]
fn the_figure_in_mode_databricks_doubles_until_every_task_fits() {
    let world = figure(MemoryFailureMode::Databricks).run();
    assert_eq!((done(&world), world.core.totals().failed), (20, 0));
    assert_eq!(world.sizes("group/3"), [64, 128, 256]);
    assert_eq!(world.sizes("group/19"), [64, 128, 256, 512]);
}

#[test]
fn the_figure_in_mode_tovar_gives_killed_tasks_the_largest_size() {
    let world = figure(MemoryFailureMode::Tovar).run();
    assert_eq!((done(&world), world.core.totals().failed), (20, 0));
    assert_eq!(world.sizes("group/3"), [64, 8 * 1024 - 32]);
}

#[test]
fn the_figure_in_mode_fixed_loses_all_large_tasks() {
    let world = figure(MemoryFailureMode::Fixed).run();
    assert_eq!((done(&world), world.core.totals().failed), (15, 5));
    assert_eq!(world.sizes("group/19"), [64; 4]);
    assert_eq!(world.core.totals().escalated, 0);
}

#[test]
fn the_further_rungs_of_a_ladder_are_reported_in_advance() {
    for mode in [
        MemoryFailureMode::Headroom,
        MemoryFailureMode::Uber,
        MemoryFailureMode::Pinterest,
        MemoryFailureMode::Databricks,
        MemoryFailureMode::Fixed,
    ] {
        let world = figure(mode).run();
        let sizes = world.sizes("group/19");
        for n in 1..=sizes.len() {
            let announced = &world.ahead[&(world::task("group/19"), n)];
            let came: Vec<u64> = sizes[n..]
                .iter()
                .copied()
                .filter(|size| *size > sizes[n - 1])
                .collect();
            assert!(
                announced.starts_with(&came),
                "{mode:?}, attempt {n}: reported {announced:?}, then {came:?}"
            );
        }
        let first = &world.ahead[&(world::task("group/0"), 1)];
        assert_eq!(
            first.is_empty(),
            mode == MemoryFailureMode::Fixed,
            "further rungs are reported without a kill: {first:?}"
        );
        assert!(
            world.row("group/0").ahead.is_empty(),
            "a finished task has no further rungs"
        );
    }
}

#[test]
fn events_describe_the_escalation_of_a_task() {
    let world = figure(MemoryFailureMode::Headroom).run();
    let of = |reason: &str| {
        world
            .words(reason)
            .into_iter()
            .filter(|m| m.contains("group/3"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let killed = of("OomKilled");
    assert!(
        killed[0].starts_with("group/3@1 killed at 64 MiB (native memory) on n0"),
        "{killed:?}"
    );
    assert_eq!(
        of("Escalated"),
        [
            "group/3 rung 1 → 2 (64 → 128 MiB, 2 slots)",
            "group/3 rung 2 → 3 (128 → 192 MiB, own container)"
        ]
    );
    assert_eq!(of("TaskFinished"), ["group/3@3 done, peak 190 MiB"]);
    assert_eq!(
        world.words("JobStarted"),
        ["figure: 20 tasks in 1 stage, mode headroom"]
    );
}

const ONE: &str = concat!(
    job_head!("one", "288MiB", 4, 2, 4),
    r#"[[stage]]
grow = false
name = "map"
count = 4
command = ["prog"]
"#
);

#[test]
fn a_task_above_every_size_fails_with_a_remedy() {
    let world = MasterScenario::of(ONE)
        .nodes(&[1024])
        .habit("map/2", TaskBehaviour::native(4000, 1000))
        .run();
    let row = world.row("map/2");
    assert_eq!((row.state, done(&world)), (TaskState::Failed, 3));
    assert_eq!(
        world.sizes("map/2"),
        [64, 128, 192, 384, 992],
        "four times is beyond the cap: one jump to it"
    );
    assert!(
        row.note.contains("map/2")
            && row.note.contains("992 MiB")
            && row.note.contains("1 GiB")
            && row.note.contains("split"),
        "{}",
        row.note
    );
    assert_eq!(world.words("EscalationExhausted").len(), 1);
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::MemoryExhausted)
    );
}

#[test]
fn the_jobs_own_cap_is_kept() {
    let world = MasterScenario::of(&format!("{ONE}[retry]\ncap = \"256MiB\"\n"))
        .habit("map/0", TaskBehaviour::native(300, 1000))
        .run();
    assert_eq!(world.sizes("map/0"), [64, 128, 192, 256]);
    assert!(
        world.row("map/0").note.contains("retry.cap"),
        "{}",
        world.row("map/0").note
    );
}

#[test]
fn an_infeasible_size_fails_at_once_and_names_the_largest_node() {
    let world = MasterScenario::of(ONE).nodes(&[200, 100]).run();
    assert_eq!((done(&world), world.core.totals().failed), (0, 4));
    assert!(
        world.row("map/0").note.contains("288 MiB") && world.row("map/0").note.contains("200 MiB")
    );
    assert!(
        world.now_ms < 2000 && world.granted.is_empty(),
        "no container was granted"
    );
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Failed)
    );
}

const JVM: &str = concat!(
    job_head!("jvm", "416MiB", 4, 1, 4),
    r#"[profiles.task]
heap = "64MiB"
overhead = "32MiB"
[[stage]]
grow = false
name = "map"
count = 2
profile = "task"
runtime = "jvm"
command = ["java", "-Xmx{heap}"]
"#
);

#[test]
fn a_full_heap_grows_the_heap_only() {
    let world = MasterScenario::of(JVM)
        .usual(TaskBehaviour::jvm(10, 10))
        .habit("map/1", TaskBehaviour::jvm(100, 20))
        .run();
    let sizes: Vec<(u64, u64)> = world
        .row("map/1")
        .attempts
        .iter()
        .map(|a| (a.profile.heap.whole_mib(), a.profile.overhead.whole_mib()))
        .collect();
    assert_eq!(sizes, [(64, 32), (128, 32)]);
    assert!(world.words("OomKilled")[0].contains("out of heap"));
}

#[test]
fn an_off_heap_kill_grows_the_overhead_only() {
    let world = MasterScenario::of(JVM)
        .usual(TaskBehaviour::jvm(10, 10))
        .habit("map/1", TaskBehaviour::jvm(60, 100))
        .run();
    let sizes: Vec<(u64, u64)> = world
        .row("map/1")
        .attempts
        .iter()
        .map(|a| (a.profile.heap.whole_mib(), a.profile.overhead.whole_mib()))
        .collect();
    assert_eq!(sizes.first(), Some(&(64, 32)));
    assert!(sizes.iter().all(|(heap, _)| *heap == 64), "{sizes:?}");
    assert!(
        sizes.last().is_some_and(|(_, overhead)| *overhead >= 100),
        "{sizes:?}"
    );
    assert!(world.words("OomKilled")[0].contains("(off-heap)"));
}

#[test]
fn a_kill_from_outside_keeps_the_size_and_is_not_charged() {
    let ends = [ExitReason::KilledExternally, ExitReason::NodeOom];
    let world = MasterScenario::of(ONE)
        .habit("map/1", TaskBehaviour::ending(&ends))
        .run();
    let totals = world.core.totals();
    assert_eq!(
        (
            totals.done,
            totals.transient,
            totals.memory_kills,
            totals.escalated
        ),
        (4, 2, 0, 0)
    );
    assert_eq!(world.sizes("map/1"), [64, 64, 64]);
}

#[test]
fn uncaused_losses_have_a_budget() {
    let world = MasterScenario::of(ONE)
        .habit(
            "map/1",
            TaskBehaviour::ending(&[ExitReason::KilledExternally; 9]),
        )
        .run();
    assert_eq!(
        world.sizes("map/1").len(),
        4,
        "three are free, the fourth is final"
    );
    assert_eq!(world.row("map/1").state, TaskState::Failed);
}

#[test]
fn an_escalated_size_survives_a_loss() {
    let mut habit = TaskBehaviour::native(100, 1000);
    habit.ends = vec![ExitReason::TaskOom, ExitReason::KilledExternally];
    let world = MasterScenario::of(ONE).habit("map/1", habit).run();
    assert_eq!(world.sizes("map/1"), [64, 128, 128]);
}

#[test]
fn plain_failures_are_repeated_elsewhere_with_a_pause() {
    let busy = MasterScenario::of(&ONE.replace("count = 4", "count = 8"))
        .usual(TaskBehaviour::native(1, 4000));
    let world = busy
        .habit(
            "map/1",
            TaskBehaviour {
                runs_ms: 1000,
                ..TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }; 2])
            },
        )
        .run();
    assert_eq!((done(&world), world.core.totals().memory_kills), (8, 0));
    let attempts = &world.row("map/1").attempts;
    assert_eq!(attempts.len(), 3);
    assert_ne!(
        attempts[0].container, attempts[1].container,
        "another executor"
    );
    let pause = attempts[1].started.since(attempts[0].ended.expect("ended"));
    assert!(pause.as_millis() >= 1000, "{pause:?}");
}

#[test]
fn plain_failures_end_at_their_budget() {
    let world = MasterScenario::of(ONE)
        .habit(
            "map/1",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }; 9]),
        )
        .run();
    assert_eq!(world.sizes("map/1"), [64; 4]);
    assert!(
        world.row("map/1").note.contains("exit code 1"),
        "{}",
        world.row("map/1").note
    );
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::Failed)
    );
}

#[test]
fn a_task_that_must_not_run_twice_runs_once() {
    let once = ONE.replace("command", "idempotent = \"no\"\ncommand");
    let world = MasterScenario::of(&once)
        .habit("map/1", TaskBehaviour::native(100, 1000))
        .habit("map/2", TaskBehaviour::ending(&[ExitReason::NodeOom]))
        .run();
    assert_eq!(
        (world.sizes("map/1").len(), world.sizes("map/2").len()),
        (1, 1)
    );
    assert_eq!(world.core.totals().failed, 2);
    assert!(world.row("map/1").note.contains("must not run twice"));
}

#[test]
fn repeated_and_late_reports_have_no_effect() {
    let world = figure(MemoryFailureMode::Headroom)
        .fault(InjectedFault::Twice)
        .run();
    let once = figure(MemoryFailureMode::Headroom).run();
    let counted = |w: &SimulatedCluster| {
        (
            w.core.totals().memory_kills,
            w.core.totals().escalated,
            w.core.totals().done,
        )
    };
    assert_eq!(counted(&world), counted(&once));
    assert_eq!(world.result(), once.result());
}

#[test]
fn a_lost_executor_costs_only_its_running_attempts() {
    let world = figure(MemoryFailureMode::Headroom)
        .fault(InjectedFault::ContainerEnds {
            at_ms: 1500,
            nth: 0,
            reason: ExitReason::NodeLost,
        })
        .run();
    let totals = world.core.totals();
    assert_eq!((totals.done, totals.failed), (20, 0));
    assert!((1..=4).contains(&totals.transient), "{totals:?}");
    assert_eq!(totals.collateral_reruns, 0);
    let set = "set-main".parse().expect("id");
    assert_eq!(world.granted[&set], 3, "one executor was replaced");
}

#[test]
fn a_lost_task_runs_on_its_node_again_if_the_other_is_busy() {
    let long = FIGURE.replace("0-19", "0-7");
    let fault = InjectedFault::ContainerEnds {
        at_ms: 1500,
        nth: 0,
        reason: ExitReason::NodeLost,
    };
    let world = MasterScenario::of(&long)
        .nodes(&[300, 300])
        .usual(TaskBehaviour::native(50, 600_000))
        .fault(fault)
        .run();
    let again: Vec<_> = world
        .rows
        .values()
        .filter(|row| row.attempts.len() == 2)
        .collect();
    assert_eq!((again.len(), world.core.totals().done), (4, 8));
    for row in again {
        let [first, second] = &row.attempts[..] else {
            panic!("two attempts")
        };
        let waited = second.started.since(first.ended.expect("ended"));
        assert!(
            waited.as_secs() < 10,
            "{} waited {waited:?} for the other node, with room on its own",
            row.task
        );
    }
}

#[test]
fn an_executor_killed_by_a_task_costs_its_other_tasks_no_charge() {
    let shared = FIGURE.replace("command", "enforce = \"executor\"\ncommand");
    let world = MasterScenario::of(&shared)
        .usual(TaskBehaviour::native(50, 2000))
        .habit("group/2", TaskBehaviour::native(300, 2000))
        .shared_fate()
        .run();
    let totals = world.core.totals();
    assert_eq!((totals.done, totals.failed), (20, 0), "{totals:?}");
    assert!(totals.collateral_reruns > 0, "{totals:?}");
    let collateral = world
        .rows
        .values()
        .find(|r| r.attempts.len() > 1 && r.task.index != 2)
        .expect("one task ran twice");
    assert!(
        collateral
            .attempts
            .iter()
            .all(|a| a.profile.memory().whole_mib() == 64),
        "the task keeps its size"
    );
    assert_eq!(collateral.attempts[0].reason, Some(ExitReason::AncestorOom));
    assert!(world.sizes("group/2").last().is_some_and(|s| *s >= 300));
    assert_eq!(totals.escalated, 1);
}

#[test]
fn a_wide_task_gets_its_slots_within_a_bounded_time() {
    let long = FIGURE.replace("0-19", "0-199");
    let world = MasterScenario::of(&long)
        .usual(TaskBehaviour::native(50, 3000))
        .habit("group/0", TaskBehaviour::native(120, 3000))
        .run();
    let attempts = &world.row("group/0").attempts;
    let waited = attempts[1].started.since(attempts[0].ended.expect("ended"));
    assert!(waited.as_secs() <= 20, "{waited:?}");
    assert_eq!(attempts[1].slots, 2);
}

#[test]
fn a_wide_task_gets_its_own_container_if_no_executor_drains() {
    let slow = FIGURE.replace("0-19", "0-7");
    let mut s = MasterScenario::of(&slow).usual(TaskBehaviour::native(50, 600_000));
    s = s.habit("group/0", TaskBehaviour::native(120, 3000));
    let world = s.run();
    let attempts = &world.row("group/0").attempts;
    let waited = attempts[1].started.since(attempts[0].ended.expect("ended"));
    assert!((20..=21).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(
        (
            attempts[1].slots,
            attempts[1].rung,
            attempts[1].profile.memory().whole_mib()
        ),
        (1, 2, 128)
    );
    assert_eq!(world.words("TaskMoved").len(), 1);
}

#[test]
fn tasks_that_are_wide_from_the_start_wait_for_their_executors() {
    let wide = FIGURE
        .replace("0-19", "0-59")
        .replace("command", "cpus_per_task = 2\ncommand");
    let world = MasterScenario::of(&wide)
        .usual(TaskBehaviour::native(50, 30_000))
        .run();
    assert_eq!(done(&world), 60);
    assert_eq!(
        world.granted.len(),
        1,
        "no task got a container of its own: {:?}",
        world.granted
    );
    assert!(
        world
            .rows
            .values()
            .all(|r| r.attempts.len() == 1 && r.attempts[0].slots == 2)
    );
}

#[test]
fn a_narrow_stage_does_not_starve_a_wide_stage() {
    let both = FIGURE.replace("0-19", "0-399");
    let both = format!(
        "{both}[[stage]]\ngrow = false\nname = \"wide\"\ncpus_per_task = 4\ncommand = [\"prog\"]\n"
    );
    let mut s = MasterScenario::of(&both).usual(TaskBehaviour::native(50, 2000));
    for i in 0..8 {
        s = s.habit(
            &format!("group/{i}"),
            TaskBehaviour::native(50, 1000 + 250 * i),
        );
    }
    let world = s.run();
    assert_eq!((done(&world), world.granted.len()), (401, 1));
}

#[test]
fn scheduling_many_tasks_does_not_scan_all_of_them() {
    let many = FIGURE
        .replace("0-19", "0-4999")
        .replace("count = 2", "count = 50");
    let from = std::time::Instant::now();
    let world = MasterScenario::of(&many)
        .nodes(&[64 * 1024])
        .usual(TaskBehaviour::native(50, 1000))
        .quick()
        .run();
    assert_eq!(done(&world), 5_000);
    assert!(from.elapsed().as_secs() < 60, "{:?}", from.elapsed());
}

const TWO: &str = concat!(
    job_head!("two", "288MiB", 4, 2, 4),
    r#"[[stage]]
grow = false
name = "map"
count = 8
command = ["prog"]
[[stage]]
grow = false
name = "reduce"
after = ["map"]
command = ["prog"]
"#
);

#[test]
fn a_stage_begins_after_its_predecessor() {
    let world = MasterScenario::of(TWO).run();
    let last = world
        .rows
        .values()
        .filter(|r| r.task.stage.as_str() == "map")
        .filter_map(|r| r.attempts[0].ended)
        .max();
    assert!(world.row("reduce/0").attempts[0].started >= last.expect("ended"));
    assert_eq!(done(&world), 9);
}

#[test]
fn a_stage_after_a_failed_stage_is_never_run_and_noted() {
    let world = MasterScenario::of(TWO)
        .habit(
            "map/0",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }; 4]),
        )
        .run();
    assert_eq!(world.row("reduce/0").state, TaskState::Blocked);
    assert!(world.row("reduce/0").note.contains("map"));
    assert_eq!(
        (done(&world), world.core.totals().failed),
        (7, 1),
        "the other tasks of the stage are unaffected"
    );
}

#[test]
fn an_own_container_gets_the_memory_of_idle_executors() {
    // One node: both executors leave no memory for the container of map/0, and only reduce, which
    // depends on it, needs them.
    let world = MasterScenario::of(TWO)
        .nodes(&[600])
        .habit("map/0", TaskBehaviour::native(400, 1000))
        .run();
    assert_eq!((done(&world), world.core.totals().failed), (9, 0));
    assert_eq!(
        world.sizes("map/0").last(),
        Some(&568),
        "the largest that the node can give"
    );
}

#[test]
fn executors_that_never_start_end_the_job_with_a_reason() {
    let world = MasterScenario::of(ONE)
        .fault(InjectedFault::NothingStarts)
        .run();
    assert_eq!(world.core.totals().failed, 4);
    assert!(
        world.row("map/0").note.contains("set-main")
            && world.row("map/0").note.contains("could not be started")
    );
    assert!(
        world.granted.values().all(|n| *n <= 10),
        "{:?}",
        world.granted
    );
}

#[test]
fn a_restart_of_the_resource_manager_keeps_tasks_and_grants() {
    let world = figure(MemoryFailureMode::Headroom)
        .fault(InjectedFault::ManagerRestarts { at_ms: 2500 })
        .run();
    let once = figure(MemoryFailureMode::Headroom).run();
    assert_eq!(world.result(), once.result());
    let totals = world.core.totals();
    assert_eq!(
        (totals.memory_kills, totals.transient),
        (once.core.totals().memory_kills, 0)
    );
    assert_eq!(world.granted, once.granted, "no request was granted twice");
}

#[test]
fn idle_executors_are_ended() {
    let mut s = MasterScenario::of(FIGURE).usual(TaskBehaviour::native(50, 1000));
    s = s.habit("group/0", TaskBehaviour::native(50, 60_000));
    let world = s.run();
    assert!(
        world.core.fleet().executors.len() <= 1,
        "the other executor was idle for a minute"
    );
}

#[test]
fn a_task_in_its_own_container_is_retried_after_its_wait() {
    let ends = [
        ExitReason::TaskOom,
        ExitReason::TaskOom,
        ExitReason::Exit { code: 1 },
    ];
    let alone = FIGURE.replace("array = \"0-19\"\n", "");
    let world = MasterScenario::of(&alone)
        .usual(TaskBehaviour::ending(&ends))
        .run();
    assert_eq!(
        done(&world),
        1,
        "only the deadline of the retry can wake the master"
    );
    assert_eq!(
        world.places("group/0").len(),
        2,
        "an executor, and a container of its own, used twice"
    );
}

/// Two slots, and two tasks that were killed and need both: the task that has waited longer starts
/// first, independent of its index.
#[test]
fn the_wide_task_that_waited_longer_starts_first() {
    let job = concat!(
        job_head!("wide", "160MiB", 2, 1, 2),
        "[[stage]]\nname = \"map\"\ncount = 6\ngrow = false\ncommand = [\"prog\", \"{index}\"]\n"
    );
    let tasks = MasterScenario::of(job)
        .nodes(&[160])
        .usual(TaskBehaviour::native(10, 3000));
    let world = tasks
        .habit("map/0", TaskBehaviour::native(100, 3000))
        .habit("map/1", TaskBehaviour::native(100, 1000))
        .run();
    let again = |id: &str| world.row(id).attempts[1].started;
    assert!(world.row("map/1").attempts[0].ended < world.row("map/0").attempts[0].ended);
    assert!(
        again("map/1") < again("map/0"),
        "{:?} and {:?}",
        again("map/1"),
        again("map/0")
    );
}

//! Jobs whose tasks start with learned sizes: scenarios of whole jobs, and the state after a
//! restart.

#[macro_use]
mod world;

use headroom_appmaster::MasterCore;
use headroom_appmaster::event::JobEndKind;
use headroom_appmaster::record::JournalRecord;
use headroom_config::SizingMode;
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::job::{MemoryFailureMode, ShadowOutcome, TaskState};
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// Two executors of four slots with 64 MiB each.
const SLOTS: &str = concat!(
    job_head!("learning", "288MiB", 4, 2, 4, "sizes = \"learned\"\n"),
    r#"[[stage]]
grow = false
name = "map"
array = "0-39"
command = ["prog", "{index}"]
"#
);

/// One task in an executor: 8 of 1 GiB each.
const ALONE: &str = concat!(
    job_head!("alone", "1056MiB", 1, 8, 1, "sizes = \"learned\"\n"),
    r#"[[stage]]
grow = false
name = "map"
array = "0-39"
command = ["prog", "{index}"]
"#
);

fn slots() -> MasterScenario {
    MasterScenario::of(SLOTS).nodes(&[8192]).mirrored()
}
fn alone() -> MasterScenario {
    MasterScenario::of(ALONE).nodes(&[16 * 1024]).mirrored()
}

/// First sizes of tasks, in MiB, in the order of their starts.
fn firsts(world: &SimulatedCluster) -> Vec<u64> {
    let mut rows: Vec<_> = world.rows.values().map(|row| &row.attempts[0]).collect();
    rows.sort_by_key(|row| (row.started, row.attempt.clone()));
    rows.iter()
        .map(|row| row.profile.memory().whole_mib())
        .collect()
}

fn kills(world: &SimulatedCluster) -> u32 {
    world.core.totals().memory_kills
}

fn done(world: &SimulatedCluster) -> (u32, u32) {
    (world.core.totals().done, world.core.totals().failed)
}

#[test]
fn tasks_above_their_share_are_killed_only_until_the_need_is_learned() {
    let world = slots().usual(TaskBehaviour::native(100, 2000)).run();
    assert_eq!(done(&world), (40, 0));
    assert!(
        kills(&world) <= 8,
        "only tasks that started before the first result: {}",
        kills(&world)
    );
    let second: Vec<u64> = firsts(&world).split_off(20);
    assert!(
        second.iter().all(|mib| (100..=192).contains(mib)),
        "{second:?}"
    );
    let last = &world.row("map/39").attempts;
    assert_eq!(
        (last.len(), last[0].slots, last[0].rung),
        (1, 2, 1),
        "directly in two slots"
    );
    assert!(last[0].why.contains("kind map"), "{}", last[0].why);
    assert_eq!(
        world.row("map/0").attempts[0].why,
        "the size of its stage; no size is known for kind map"
    );
    assert!(
        world.row("map/0").attempts[1].why.starts_with("rung 2"),
        "{}",
        world.row("map/0").attempts[1].why
    );
}

#[test]
fn tasks_larger_than_an_executor_start_in_own_containers() {
    let world = slots().usual(TaskBehaviour::native(400, 2000)).run();
    assert_eq!(done(&world), (40, 0));
    let last = &world.row("map/39").attempts;
    assert_eq!((last.len(), last[0].slots), (1, 1));
    assert!(
        last[0].profile.memory() >= Bytes::from_mib(400),
        "{}",
        last[0].profile
    );
    assert!(
        world
            .granted
            .keys()
            .any(|id| id.as_str() == "own-map-39-r1"),
        "{:?}",
        world.granted
    );
}

#[test]
fn a_task_in_shared_slots_gets_at_least_its_share() {
    let world = slots().usual(TaskBehaviour::native(10, 2000)).run();
    assert_eq!((done(&world), kills(&world)), ((40, 0), 0));
    assert!(
        firsts(&world).iter().all(|mib| *mib == 64),
        "{:?}",
        firsts(&world)
    );
}

#[test]
fn a_task_alone_in_its_executor_gets_the_learned_size() {
    let world = alone().usual(TaskBehaviour::native(200, 20_000)).run();
    assert_eq!((done(&world), kills(&world)), ((40, 0), 0));
    let sizes = firsts(&world);
    assert_eq!(sizes[0], 1024);
    assert!(
        sizes[20..].iter().all(|mib| (200..=320).contains(mib)) && sizes[39] < 250,
        "{sizes:?}"
    );
    assert!(
        world.core.totals().allocated_byte_ms < 40 * 20_000 * (600 << 20),
        "{:?}",
        world.core.totals()
    );
}

#[test]
fn a_short_task_gets_no_container_of_its_own() {
    let world = alone().usual(TaskBehaviour::native(200, 2000)).run();
    assert_eq!((done(&world), kills(&world)), ((40, 0), 0));
    assert_eq!(
        world.granted.len(),
        1,
        "only the executors of the job: {:?}",
        world.granted
    );
}

#[test]
fn an_outlier_does_not_change_other_first_sizes() {
    let with = alone()
        .usual(TaskBehaviour::native(200, 20_000))
        .habit("map/12", TaskBehaviour::native(5000, 20_000))
        .run();
    let without = alone().usual(TaskBehaviour::native(200, 20_000)).run();
    assert_eq!(done(&with), (40, 0));
    assert_eq!(firsts(&with)[36..], firsts(&without)[36..]);
    assert!(kills(&with) <= 3, "{}", kills(&with));
}

#[test]
fn a_kind_with_two_peaks_reaches_the_second_peak_in_one_step() {
    let mut s = alone().usual(TaskBehaviour::native(100, 20_000));
    for heavy in (0..40).step_by(8) {
        s = s.habit(&format!("map/{heavy}"), TaskBehaviour::native(3000, 20_000));
    }
    let world = s.run();
    assert_eq!(done(&world), (40, 0));
    let sizes = world.sizes("map/32");
    assert!(
        sizes.len() <= 2 && sizes.last().is_some_and(|mib| *mib >= 3000),
        "{sizes:?}"
    );
}

#[test]
fn a_leak_is_given_up_and_not_learned() {
    let world = alone()
        .usual(TaskBehaviour::native(200, 20_000))
        .habit("map/9", TaskBehaviour::native(900_000, 20_000))
        .run();
    assert_eq!(done(&world), (39, 1));
    assert_eq!(
        world.outcome.as_ref().map(|o| o.ending),
        Some(JobEndKind::MemoryExhausted)
    );
    assert!(
        world.sizes("map/9").len() <= 3,
        "{:?}",
        world.sizes("map/9")
    );
    assert!(
        firsts(&world)[30..].iter().all(|mib| *mib < 300),
        "{:?}",
        firsts(&world)
    );
}

#[test]
fn two_hundred_of_a_new_kind_are_not_killed_in_one_wave() {
    let many = SLOTS
        .replace("0-39", "0-199")
        .replace("count = 2", "count = 50");
    let world = MasterScenario::of(&many)
        .nodes(&[64 * 1024])
        .usual(TaskBehaviour::native(100, 2000))
        .run();
    assert_eq!(done(&world), (200, 0));
    assert!(kills(&world) <= 10, "{} kills", kills(&world));
    let stated = MasterScenario::of(&many.replace("learned", "stated"))
        .nodes(&[64 * 1024])
        .usual(TaskBehaviour::native(100, 2000))
        .run();
    assert_eq!(kills(&stated), 200, "the stated size kills all of them");
}

#[test]
fn three_kills_of_a_known_kind_raise_all_waiting_tasks() {
    let mut s = alone().usual(TaskBehaviour::native(200, 20_000));
    // From the twentieth on, each task needs twice as much.
    for late in 20..40 {
        s = s.habit(&format!("map/{late}"), TaskBehaviour::native(400, 20_000));
    }
    let world = s.run();
    assert_eq!(done(&world), (40, 0));
    let last = world.sizes("map/39");
    assert!(last.len() == 1 && last[0] >= 400, "{last:?}");
    assert!(kills(&world) < 20, "{}", kills(&world));
}

const INPUTS: &str = r#"
[[stage]]
grow = false
name = "sort"
array = "0-39"
input = "part-{index}.csv"
command = ["prog", "{index}"]
"#;

fn with_inputs(text: &str) -> MasterScenario {
    let job = ALONE.split("[[stage]]").next().expect("a head").to_owned() + text;
    let mut s = MasterScenario::of(&job).nodes(&[16 * 1024]).mirrored();
    for n in 0..40u64 {
        s = s.habit(
            &format!("sort/{n}"),
            TaskBehaviour::native(100 + 20 * nth(n), 20_000 + 500 * n),
        );
    }
    s
}

/// Sizes in a mixed order.
fn nth(n: u64) -> u64 {
    n * 17 % 40
}

#[test]
fn the_input_size_predicts_the_need() {
    let mut s = with_inputs(INPUTS);
    for n in 0..40 {
        s = s.file(&format!("part-{n}.csv"), 10 + 2 * nth(n));
    }
    let world = s.run();
    assert_eq!(done(&world), (40, 0));
    assert!(world.records.iter().any(
        |r| matches!(r, JournalRecord::Inputs { sizes, .. } if sizes.iter().all(Option::is_some))
    ));
    let (mut given, mut needed) = (0, 0);
    for n in 16..40 {
        let (size, need) = (world.sizes(&format!("sort/{n}"))[0], 100 + 20 * nth(n));
        assert!(size >= need, "sort/{n} needs {need} and got {size}");
        (given, needed) = (given + size, needed + need);
    }
    assert!(
        given * 2 < needed * 3,
        "{given} MiB for {needed}, a single size takes twice as much"
    );
    assert!(
        kills(&world) <= 8,
        "only tasks that started with few results: {}",
        kills(&world)
    );
}

#[test]
fn missing_empty_and_zero_inputs_fail_no_task() {
    let nothing = with_inputs(INPUTS).run();
    assert_eq!(done(&nothing), (40, 0));
    let mut s = with_inputs(INPUTS);
    for n in 0..20 {
        s = s.file(&format!("part-{n}.csv"), 0);
    }
    assert_eq!(done(&s.run()), (40, 0));
    let sizes: Vec<String> = (0..40)
        .map(|n| format!("\"{}MiB\"", if n % 2 == 0 { 0 } else { 10 + 2 * n }))
        .collect();
    let inputs = INPUTS.replace("\"part-{index}.csv\"", &format!("[{}]", sizes.join(", ")));
    assert_eq!(done(&with_inputs(&inputs).run()), (40, 0));
}

#[test]
fn stages_of_one_kind_learn_from_each_other() {
    let two = |kind: &str| {
        let stage = format!(
            "[[stage]]\ngrow = false\nname = \"again\"\nafter = [\"map\"]\n{kind}\ncount = 8\ncommand = [\"prog\"]\n"
        );
        alone_with(&stage)
            .usual(TaskBehaviour::native(200, 20_000))
            .run()
    };
    let alike = two("kind = \"map\"");
    assert!(
        alike.sizes("again/0")[0] < 300,
        "{:?}",
        alike.sizes("again/0")
    );
    assert_eq!(two("").sizes("again/0"), [1024]);
}

fn alone_with(more: &str) -> MasterScenario {
    MasterScenario::of(&format!("{ALONE}{more}"))
        .nodes(&[16 * 1024])
        .mirrored()
}

const JVM: &str = concat!(
    job_head!("jvm", "1312MiB", 1, 8, 1, "sizes = \"learned\"\n"),
    r#"[profiles.task]
heap = "1GiB"
overhead = "256MiB"
[[stage]]
grow = false
name = "map"
count = 40
profile = "task"
runtime = "jvm"
command = ["java"]
"#
);

fn long(habit: TaskBehaviour) -> TaskBehaviour {
    TaskBehaviour {
        runs_ms: 20_000,
        ..habit
    }
}

#[test]
fn heap_and_overhead_of_a_jvm_are_learned_separately() {
    let jvm = MasterScenario::of(JVM).nodes(&[16 * 1024]).mirrored();
    let world = jvm
        .usual(long(TaskBehaviour::jvm(300, 150)))
        .habit("map/30", long(TaskBehaviour::jvm(700, 150)))
        .run();
    assert_eq!(done(&world), (40, 0));
    let sizes = |id: &str| -> Vec<(u64, u64)> {
        let mib = |p: &headroom_types::Profile| (p.heap.whole_mib(), p.overhead.whole_mib());
        world
            .row(id)
            .attempts
            .iter()
            .map(|a| mib(&a.profile))
            .collect()
    };
    let last = sizes("map/39");
    assert!(
        last.len() == 1 && (300..450).contains(&last[0].0) && (150..256).contains(&last[0].1),
        "{last:?}"
    );
    let heavy = sizes("map/30");
    assert!(
        heavy.len() >= 2 && heavy.iter().all(|(_, overhead)| *overhead == heavy[0].1),
        "only the heap grows: {heavy:?}"
    );
    assert!(
        world.row("map/39").attempts[0]
            .why
            .contains("heap: learned"),
        "{}",
        world.row("map/39").attempts[0].why
    );
}

#[test]
fn a_shadow_changes_no_size_and_reports_its_outcome() {
    let run = |sizes: &str| {
        let s = MasterScenario::of(&ALONE.replace("learned", sizes))
            .nodes(&[16 * 1024])
            .mirrored();
        s.usual(TaskBehaviour::native(200, 20_000))
            .habit("map/30", TaskBehaviour::native(900, 20_000))
            .run()
    };
    let (shadow, stated) = (run("shadow"), run("stated"));
    let plain = |world: &SimulatedCluster| -> Vec<(String, Vec<u64>)> {
        world
            .rows
            .keys()
            .map(|id| (id.to_string(), world.sizes(&id.to_string())))
            .collect()
    };
    assert_eq!(plain(&shadow), plain(&stated), "a shadow changes no size");
    assert_eq!(shadow.granted, stated.granted);
    assert!(
        stated
            .rows
            .values()
            .all(|row| row.attempts.iter().all(|a| a.shadow.is_none()))
    );
    let outcome = |id: &str| {
        shadow.row(id).attempts[0]
            .shadow
            .as_ref()
            .expect("a shadow")
            .outcome
    };
    assert_eq!(
        (outcome("map/39"), outcome("map/30")),
        (Some(ShadowOutcome::Fits), Some(ShadowOutcome::Killed))
    );
    let totals = shadow.core.totals().shadow.expect("figures");
    assert_eq!((totals.fit, totals.killed, totals.perhaps), (39, 1, 0));
    assert!(
        totals.learned_byte_ms < totals.given_byte_ms / 2,
        "{totals:?}"
    );
    assert_eq!(stated.core.totals().shadow, None);
}

#[test]
fn a_shadow_of_a_killed_task_reports_a_possible_success() {
    let shadow = SLOTS.replace("learned", "shadow");
    let world = MasterScenario::of(&shadow)
        .nodes(&[8192])
        .usual(TaskBehaviour::native(100, 2000))
        .run();
    let outcomes: Vec<_> = world
        .rows
        .values()
        .filter_map(|row| row.attempts[0].shadow.as_ref()?.outcome)
        .collect();
    assert!(outcomes.contains(&ShadowOutcome::Perhaps), "{outcomes:?}");
    assert_eq!(kills(&world), 40);
}

#[test]
fn tovar_starts_with_least_waste_and_then_gives_the_largest_size() {
    let s = MasterScenario::of(&ALONE.replace("sizes = \"learned\"\n", ""))
        .mode(MemoryFailureMode::Tovar)
        .nodes(&[16 * 1024])
        .mirrored();
    let world = s
        .usual(TaskBehaviour::native(200, 20_000))
        .habit("map/30", TaskBehaviour::native(900, 20_000))
        .run();
    assert_eq!(done(&world), (40, 0));
    assert_eq!(world.sizes("map/39"), [200]);
    assert_eq!(world.sizes("map/30"), [200, 16 * 1024 - 32]);
    assert!(
        world.row("map/39").attempts[0]
            .why
            .contains("least expected waste")
    );
}

#[test]
fn no_first_size_is_above_the_cap() {
    let capped = format!("{SLOTS}\n[retry]\ncap = \"150MiB\"\n");
    let world = MasterScenario::of(&capped)
        .nodes(&[8192])
        .usual(TaskBehaviour::native(140, 2000))
        .mirrored()
        .run();
    assert_eq!(done(&world), (40, 0));
    assert!(
        firsts(&world).iter().all(|mib| *mib <= 150),
        "{:?}",
        firsts(&world)
    );
}

#[test]
fn a_stage_above_its_breaker_gets_no_more_memory() {
    let bad = format!(
        "{}\n[retry]\nbreaker = 20\n",
        SLOTS.replace("learned", "stated")
    );
    let world = MasterScenario::of(&bad)
        .nodes(&[8192])
        .usual(TaskBehaviour::native(100, 2000))
        .run();
    let totals = world.core.totals();
    assert!(totals.failed > 0 && totals.escalated <= 12, "{totals:?}");
    assert_eq!(world.words("StageBadlySized").len(), 1);
    assert!(
        world.words("StageBadlySized")[0].contains("more than 20 in 100"),
        "{:?}",
        world.words("StageBadlySized")
    );
    let lost = world
        .rows
        .values()
        .find(|row| row.state == TaskState::Failed)
        .expect("one task failed");
    assert!(lost.note.contains("retry.breaker"), "{}", lost.note);
    let fine = MasterScenario::of(&bad)
        .nodes(&[8192])
        .usual(TaskBehaviour::native(50, 2000))
        .habit("map/3", TaskBehaviour::native(100, 2000))
        .run();
    assert_eq!(done(&fine), (40, 0), "one task does not trip the breaker");
}

#[test]
fn a_job_over_its_budget_gets_no_more_memory() {
    let stated = SLOTS.replace("learned", "stated");
    let job = |budget: &str| {
        MasterScenario::of(&format!("{stated}\n[retry]\nbudget_gib_h = {budget}\n")).nodes(&[8192])
    };
    let world = job("0.001").usual(TaskBehaviour::native(100, 2000)).run();
    let lost: Vec<_> = world
        .rows
        .values()
        .filter(|row| row.state == TaskState::Failed)
        .collect();
    assert!(!lost.is_empty() && lost.len() < 40, "{} of 40", lost.len());
    assert!(
        lost.iter()
            .all(|row| row.note.contains("retry.budget_gib_h") && row.note.contains("map/")),
        "{}",
        lost[0].note
    );
    let fine = job("5").usual(TaskBehaviour::native(100, 2000)).run();
    assert_eq!(done(&fine), (40, 0), "the budget was not reached");
}

#[test]
fn a_restart_after_any_record_loses_no_task_and_no_learned_size() {
    let job = || {
        let s = MasterScenario::of(&SLOTS.replace("0-39", "0-15"))
            .nodes(&[4096])
            .mirrored();
        s.usual(TaskBehaviour::native(100, 2000))
            .habit("map/9", TaskBehaviour::native(500, 2000))
            .habit("map/5", TaskBehaviour::native(20, 500))
    };
    let whole = job().run();
    for n in 1..=whole.records.len() {
        let world = job().fault(InjectedFault::MasterDiesAfter(n)).run();
        assert_eq!(
            done(&world),
            (16, 0),
            "died after record {n}: {:?}",
            whole.records[n - 1]
        );
        assert!(
            kills(&world) <= kills(&whole) + 4,
            "died after record {n}: {} kills",
            kills(&world)
        );
    }
}

#[test]
fn a_task_lost_with_its_node_keeps_its_first_size() {
    let fault = InjectedFault::ContainerEnds {
        at_ms: 50_000,
        nth: 0,
        reason: ExitReason::NodeLost,
    };
    let world = alone()
        .usual(TaskBehaviour::native(200, 20_000))
        .fault(fault)
        .run();
    assert_eq!(done(&world), (40, 0));
    let twice: Vec<_> = world
        .rows
        .values()
        .filter(|row| row.attempts.len() > 1)
        .collect();
    assert!(!twice.is_empty());
    assert!(
        twice
            .iter()
            .all(|row| row.attempts[0].profile == row.attempts[1].profile)
    );
}

#[test]
fn older_journals_are_read_and_used_for_learning() {
    let world = alone().usual(TaskBehaviour::native(200, 20_000)).run();
    // A journal of an older master: without the need and the reason for a size.
    let older = |record: &JournalRecord| -> JournalRecord {
        let mut value = serde_json::to_value(record).expect("writes");
        let fields = value.as_object_mut().expect("an object");
        fields.remove("need");
        if let Some(row) = fields.get_mut("row").and_then(|row| row.as_object_mut()) {
            row.remove("why");
            row.remove("shadow");
        }
        serde_json::from_value(value).expect("reads")
    };
    let records: Vec<JournalRecord> = world.records.iter().map(older).collect();
    let mut core = MasterCore::replay(
        world.core.job().clone(),
        headroom_appmaster::MasterSetup::default(),
        &records,
    );
    core.assert_invariants();
    assert_eq!(core.totals().done, 40);
    let learned = core.first_sizes();
    assert!(
        learned
            .iter()
            .all(|(_, size, _)| size.memory() < Bytes::from_mib(300)),
        "{:?}",
        learned.first()
    );
    assert_eq!(core.job().sizes(), SizingMode::Learned);
}

#[test]
fn learned_sizes_add_few_events_and_stated_sizes_none() {
    let many = ALONE
        .replace("0-39", "0-299")
        .replace("count = 8", "count = 30");
    let world = MasterScenario::of(&many)
        .nodes(&[32 * 1024])
        .usual(TaskBehaviour::native(200, 20_000))
        .quick()
        .run();
    let messages = world.words("RungLearned");
    assert!(
        (1..=8).contains(&messages.len()),
        "300 tasks have ended: {messages:#?}"
    );
    assert!(
        messages[0].starts_with("tasks such as map/0 start with ")
            && messages[0].contains(" instead of 1 GiB: "),
        "{}",
        messages[0]
    );
    let as_stated = slots().usual(TaskBehaviour::native(10, 2000)).run();
    assert_eq!(
        as_stated.words("RungLearned"),
        Vec::<&str>::new(),
        "the share of a slot is not a learned size"
    );
    let stated = MasterScenario::of(&ALONE.replace("learned", "stated"))
        .nodes(&[16 * 1024])
        .usual(TaskBehaviour::native(200, 20_000))
        .run();
    assert_eq!(stated.words("RungLearned"), Vec::<&str>::new());
}

#[test]
fn a_restarted_master_does_not_repeat_learning_events() {
    let job = || alone().usual(TaskBehaviour::native(200, 20_000));
    let whole = job().run();
    let late = whole.records.len() * 9 / 10;
    let world = job().fault(InjectedFault::MasterDiesAfter(late)).run();
    assert_eq!(done(&world), (40, 0));
    assert!(!whole.words("RungLearned").is_empty());
    assert!(
        world.words("RungLearned").len() <= whole.words("RungLearned").len(),
        "{:#?}",
        world.words("RungLearned")
    );
}

#[test]
fn a_long_stage_runs_in_own_containers_without_a_kill() {
    let many = ALONE
        .replace("0-39", "0-499")
        .replace("count = 8", "count = 30");
    let world = MasterScenario::of(&many)
        .nodes(&[32 * 1024])
        .usual(TaskBehaviour::native(200, 20_000))
        .quick()
        .run();
    assert_eq!(done(&world), (500, 0));
    assert_eq!(kills(&world), 0);
}

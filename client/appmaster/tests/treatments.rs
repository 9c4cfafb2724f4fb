//! Treatments of the sub-cause of a failure, and their state after a restart.

#[macro_use]
mod world;

use headroom_types::exit::{MemorySample, TaskReport};
use headroom_types::{
    Bytes, Certainty, Diagnosis, ExitCharge, ExitReason, Remedy, SubCause, Treatment,
};
use headroom_wire::v1::job::MemoryFailureMode;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("treated", "288MiB", 2, 2, 4),
    r#"[[stage]]
name = "map"
count = 4
grow = false
command = ["prog"]
"#
);

fn job(rest: &str, habit: TaskBehaviour) -> MasterScenario {
    MasterScenario::of(&format!("{JOB}{rest}"))
        .nodes(&[2048])
        .usual(TaskBehaviour::native(10, 1000))
        .habit("map/1", habit)
}

/// Adds a row to the diagnosis of an attempt that failed.
fn found(report: &mut TaskReport, cause: SubCause) {
    if report.reason.charge() != ExitCharge::Success {
        report.diagnosis = vec![Diagnosis::new(
            cause,
            Certainty::Certain,
            "it met something",
            "change something",
        )];
    }
}

fn treatments(world: &SimulatedCluster) -> Vec<String> {
    let attempts = &world.row("map/1").attempts;
    attempts
        .iter()
        .map(|a| {
            a.treatment
                .map(|treated| treated.to_string())
                .unwrap_or_default()
        })
        .collect()
}

#[test]
fn a_limit_of_the_program_fails_at_once_with_the_cure() {
    for end in [ExitReason::Exit { code: 1 }, ExitReason::HeapOom] {
        let habit =
            TaskBehaviour::ending(&[end]).telling(|report| found(report, SubCause::OwnLimit));
        let world = job("", habit).run();
        let row = world.row("map/1");
        assert_eq!(
            (row.attempts.len(), treatments(&world)),
            (1, vec!["fail".to_owned()]),
            "{end}"
        );
        assert!(
            row.note.contains("failed at once (own_limit)")
                && row.note.contains("change something"),
            "{}",
            row.note
        );
        assert!(
            row.note.contains("[treatments] own_limit = \"grow\""),
            "{}",
            row.note
        );
        assert!(
            row.attempts[0].decision.starts_with("given up"),
            "{}",
            row.attempts[0].decision
        );
    }
}

#[test]
fn a_job_file_can_override_a_failing_treatment() {
    let habit = TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }])
        .telling(|report| found(report, SubCause::OwnLimit));
    let world = job("[treatments]\nown_limit = \"grow\"\n", habit).run();
    let sizes = world.sizes("map/1");
    assert_eq!((world.core.totals().done, sizes.len()), (4, 2));
    assert!(sizes[1] > sizes[0], "{sizes:?}");
    assert_eq!(treatments(&world), ["grow memory", ""]);
}

#[test]
fn a_remedy_keeps_the_size_and_survives_a_restart() {
    let habit = || {
        TaskBehaviour::ending(&[ExitReason::TaskOom])
            .telling(|report| found(report, SubCause::NativeArenas))
    };
    let whole = job("", habit()).run();
    let check = |world: &SimulatedCluster| {
        let row = world.row("map/1");
        assert_eq!(treatments(world), ["remedy one_arena", ""]);
        let sizes = world.sizes("map/1");
        assert_eq!(sizes[0], sizes[1]);
        assert_eq!(row.attempts[1].remedies, [Remedy::OneArena]);
        assert_eq!(
            (world.core.totals().done, world.core.totals().escalated),
            (4, 0)
        );
    };
    check(&whole);
    assert!(
        whole.words("OomKilled")[0].contains("native_arenas → remedy one_arena"),
        "{:?}",
        whole.words("OomKilled")
    );
    for n in 1..=whole.records.len() {
        check(
            &job("", habit())
                .fault(InjectedFault::MasterDiesAfter(n))
                .run(),
        );
    }
}

#[test]
fn a_remedy_that_does_not_help_is_followed_by_more_memory() {
    let habit = TaskBehaviour::ending(&[ExitReason::TaskOom; 2])
        .telling(|report| found(report, SubCause::Tmpfs));
    let world = job("", habit).run();
    assert_eq!(
        treatments(&world),
        ["remedy tmp_on_disk", "grow memory", ""]
    );
    let sizes = world.sizes("map/1");
    assert!(sizes[0] == sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
}

/// A request for 600 MiB, with nodes of 2 GiB: another node may have the memory that this one
/// refused.
#[test]
fn a_refused_allocation_that_fits_a_node_is_retried_larger() {
    let habit = TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }]).telling(|report| {
        found(report, SubCause::ImpossibleRequest);
        report
            .diagnosis
            .iter_mut()
            .for_each(|row| row.asked = Some(Bytes::from_mib(600)));
    });
    let world = job("", habit).run();
    assert_eq!(treatments(&world), ["grow memory", ""]);
    assert!(world.sizes("map/1")[1] >= 600, "{:?}", world.sizes("map/1"));
}

#[test]
fn other_modes_ignore_sub_causes() {
    for mode in [
        MemoryFailureMode::Pinterest,
        MemoryFailureMode::Uber,
        MemoryFailureMode::Databricks,
        MemoryFailureMode::Tovar,
        MemoryFailureMode::Fixed,
    ] {
        let habit = TaskBehaviour::ending(&[ExitReason::HeapOom])
            .telling(|report| found(report, SubCause::OwnLimit));
        let world = job("", habit).mode(mode).run();
        assert!(world.row("map/1").attempts.len() > 1, "{mode:?}");
        assert!(
            world
                .row("map/1")
                .attempts
                .iter()
                .all(|a| a.treatment.is_none()),
            "{mode:?}"
        );
    }
}

/// A task that fills its limit linearly, by 32 MiB per second.
fn steadily(report: &mut TaskReport) {
    found(report, SubCause::OwnData);
    let limit = report.evidence.own.limit.unwrap_or_default();
    let life = limit.whole_mib() * 1000 / 32;
    let point = |n: u64| MemorySample {
        at_ms: n * life / 20,
        current: limit.mul_ratio(n, 20),
        anon: None,
        file: None,
        heap: None,
        limit: Some(limit),
        mark: None,
    };
    report.timeline = (0..=20).map(point).collect();
}

#[test]
fn a_leak_is_given_up_before_the_largest_size() {
    let leak = || TaskBehaviour::native(100_000, 1000).telling(steadily);
    let world = job("", leak()).run();
    let row = world.row("map/1");
    let first = &row.attempts.last().expect("one").diagnosis[0];
    assert_eq!(
        (first.name, row.attempts.len()),
        (SubCause::Leak, 4),
        "{:?}: {}",
        world.sizes("map/1"),
        row.note
    );
    assert!(row.note.contains("(leak)"), "{}", row.note);
    let world = job("[treatments]\nleak = \"grow\"\n", leak()).run();
    assert!(
        world.sizes("map/1").last() > Some(&1000),
        "up to the largest size: {:?}",
        world.sizes("map/1")
    );
}

#[test]
fn recorded_treatments_match_the_decisions() {
    let habit = TaskBehaviour::ending(&[ExitReason::NodeOom])
        .telling(|report| found(report, SubCause::HostMemory));
    let world = job("", habit).run();
    let attempts = &world.row("map/1").attempts;
    let treated = attempts[0].treatment.expect("treated");
    assert_eq!(
        (treated.treatment, treated.cause),
        (Treatment::Elsewhere, SubCause::HostMemory)
    );
    assert_eq!((attempts.len(), world.core.totals().memory_kills), (2, 0));
}

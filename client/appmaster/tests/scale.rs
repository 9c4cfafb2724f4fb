//! Changes of the number of executors of a running job: more if there is work, fewer after running
//! tasks have ended. No task is stopped.

#[macro_use]
mod world;

use headroom_appmaster::record::JournalRecord;
use headroom_types::ScaleOrder;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("scaled", "288MiB", 2, 2, 2),
    r#"[[stage]]
name = "map"
array = "0-19"
command = ["prog", "{index}"]
"#
);

fn scaled(at_ms: u64, executors: Option<&str>, count: u32) -> InjectedFault {
    let executors = executors.map(|name| name.parse().expect("name"));
    InjectedFault::Scaled {
        at_ms,
        order: ScaleOrder {
            executors,
            count,
            reason: Some("the night is long".into()),
        },
    }
}

fn job(faults: impl IntoIterator<Item = InjectedFault>) -> SimulatedCluster {
    let scenario = MasterScenario::of(JOB)
        .nodes(&[4096])
        .usual(TaskBehaviour::native(10, 5_000));
    faults
        .into_iter()
        .fold(scenario, MasterScenario::fault)
        .run()
}

/// Number of containers that were ever granted.
fn gained(world: &SimulatedCluster) -> usize {
    world
        .records
        .iter()
        .filter(|record| matches!(record, JournalRecord::Gained { .. }))
        .count()
}

/// Maximum number of concurrent tasks, from this time after the first start on. Milliseconds.
fn widest_after(world: &SimulatedCluster, ms: u64) -> usize {
    let attempts: Vec<_> = world.rows.values().flat_map(|row| &row.attempts).collect();
    let first = attempts
        .iter()
        .map(|a| a.started)
        .min()
        .expect("something ran");
    let starts = attempts
        .iter()
        .map(|a| a.started)
        .filter(|at| at.since(first).as_millis() >= u128::from(ms));
    starts
        .map(|at| {
            attempts
                .iter()
                .filter(|a| a.started <= at && a.ended.is_none_or(|end| end > at))
                .count()
        })
        .max()
        .unwrap_or(0)
}

#[test]
fn a_scale_up_adds_executors_for_waiting_tasks() {
    let (few, many) = (job([]), job([scaled(2_000, Some("main"), 5)]));
    assert_eq!((gained(&few), gained(&many)), (2, 5));
    assert_eq!((few.core.totals().done, many.core.totals().done), (20, 20));
    assert!(
        widest_after(&many, 0) > widest_after(&few, 0),
        "ten at once instead of four"
    );
}

#[test]
fn a_scale_down_drains_the_newest_executors_and_stops_no_task() {
    let world = job([scaled(2_000, None, 1)]);
    assert_eq!(world.core.totals().done, 20);
    assert!(
        world.rows.values().all(|row| row.attempts.len() == 1),
        "every attempt ran to its end"
    );
    assert_eq!(
        widest_after(&world, 7_000),
        2,
        "one executor with two slots is left"
    );
    assert_eq!(gained(&world), 2);
}

#[test]
fn an_unknown_executor_set_is_refused() {
    let world = job([scaled(2_000, Some("large"), 5)]);
    assert_eq!((gained(&world), world.core.totals().done), (2, 20));
    assert!(
        !world
            .records
            .iter()
            .any(|record| matches!(record, JournalRecord::Scaled { .. }))
    );
}

#[test]
fn a_restarted_master_keeps_the_scaled_number() {
    for n in 1..40 {
        let world = job([
            scaled(2_000, Some("main"), 4),
            InjectedFault::MasterDiesAfter(n),
        ]);
        assert_eq!(
            (gained(&world), world.core.totals().done),
            (4, 20),
            "after {n} records"
        );
        let said = world
            .records
            .iter()
            .filter(|record| matches!(record, JournalRecord::Scaled { count: 4, .. }))
            .count();
        assert_eq!(said, 1, "after {n} records: recorded once");
    }
}

//! Orders for one task: each is carried out once, across restarts, and does not affect other tasks.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_appmaster::record::JournalRecord;
use headroom_types::{Bytes, ExitReason, TaskOrder, TaskOrderAction};
use headroom_wire::v1::job::TaskState;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("ordered", "288MiB", 4, 1, 4),
    r#"[retry]
transient = 0
[[stage]]
name = "map"
array = "0-7"
command = ["prog", "{index}"]
"#
);

fn order(task: &str, action: TaskOrderAction) -> TaskOrder {
    TaskOrder {
        task: task.parse().expect("id"),
        action,
        reason: Some("wrong day".into()),
    }
}

fn job(at_ms: u64, task: &str, action: TaskOrderAction) -> MasterScenario {
    let fault = InjectedFault::Ordered {
        at_ms,
        order: order(task, action),
    };
    MasterScenario::of(JOB)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(fault)
}

fn others_are_done(world: &SimulatedCluster, but: &str) {
    for row in world
        .rows
        .values()
        .filter(|row| row.task.to_string() != but)
    {
        assert_eq!(
            (row.state, row.attempts.len()),
            (TaskState::Done, 1),
            "{row:?}"
        );
    }
}

#[test]
fn cancelling_a_running_task_ends_its_attempt() {
    let world = job(2_000, "map/0", TaskOrderAction::Cancel).run();
    let row = world.row("map/0");
    assert_eq!((row.state, row.attempts.len()), (TaskState::Failed, 1));
    assert_eq!(row.attempts[0].reason, Some(ExitReason::Stopped));
    assert_eq!(row.note, "map/0 cancelled on request: wrong day");
    others_are_done(&world, "map/0");
    let outcome = world.outcome.as_ref().expect("over");
    assert_eq!(outcome.ending, JobEndKind::Failed);
    assert!(
        outcome
            .diagnostics
            .contains("7 of 8 tasks done, 1 failed; map/0 cancelled on request"),
        "{}",
        outcome.diagnostics
    );
}

#[test]
fn a_cancelled_waiting_task_never_runs() {
    let world = job(2_000, "map/7", TaskOrderAction::Cancel).run();
    assert_eq!(
        (world.row("map/7").state, world.row("map/7").attempts.len()),
        (TaskState::Failed, 0)
    );
    others_are_done(&world, "map/7");
}

#[test]
fn a_cancelled_task_whose_executor_dies_first_is_not_retried() {
    let dies = InjectedFault::ContainerEnds {
        at_ms: 2_005,
        nth: 0,
        reason: ExitReason::NodeLost,
    };
    let text = JOB.replace("transient = 0", "transient = 3");
    let ordered = InjectedFault::Ordered {
        at_ms: 2_000,
        order: order("map/1", TaskOrderAction::Cancel),
    };
    let world = MasterScenario::of(&text)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(ordered)
        .fault(dies)
        .run();
    assert_eq!(
        (world.row("map/1").state, world.row("map/1").attempts.len()),
        (TaskState::Failed, 1)
    );
    assert_eq!(world.core.totals().done, 7);
}

#[test]
fn a_retry_on_request_is_not_charged() {
    // The budget for losses is zero, so a charged loss would end the task.
    let world = job(2_000, "map/2", TaskOrderAction::Retry { attempt: 1 }).run();
    let row = world.row("map/2");
    assert_eq!((row.state, row.attempts.len()), (TaskState::Done, 2));
    assert!(
        row.attempts[0]
            .decision
            .contains("retried on request, not charged"),
        "{}",
        row.attempts[0].decision
    );
    assert_eq!(row.attempts[0].profile, row.attempts[1].profile);
    others_are_done(&world, "map/2");
}

#[test]
fn a_retry_on_request_reaches_an_executor_that_is_disconnected() {
    let cut = InjectedFault::Partitioned {
        at_ms: 1_500,
        nth: 0,
        for_ms: 2_000,
    };
    let world = job(2_000, "map/2", TaskOrderAction::Retry { attempt: 1 })
        .fault(cut)
        .run();
    let row = world.row("map/2");
    assert_eq!((row.state, row.attempts.len()), (TaskState::Done, 2));
    assert_eq!(row.attempts[0].reason, Some(ExitReason::Stopped));
    others_are_done(&world, "map/2");
}

#[test]
fn a_request_for_an_ended_attempt_ends_no_other_attempt() {
    let world = job(2_000, "map/2", TaskOrderAction::Retry { attempt: 2 }).run();
    assert_eq!(world.row("map/2").attempts.len(), 1);
}

#[test]
fn a_task_that_must_not_run_twice_is_not_retried_on_request() {
    let text = JOB.replace("command =", "idempotent = \"no\"\ncommand =");
    let ordered = InjectedFault::Ordered {
        at_ms: 2_000,
        order: order("map/2", TaskOrderAction::Retry { attempt: 1 }),
    };
    let world = MasterScenario::of(&text)
        .nodes(&[1024])
        .usual(TaskBehaviour::native(10, 5_000))
        .fault(ordered)
        .run();
    assert_eq!(
        (world.row("map/2").attempts.len(), world.core.totals().done),
        (1, 8)
    );
}

#[test]
fn a_waiting_task_gets_the_requested_size() {
    let memory = Bytes::from_mib(150);
    let world = job(2_000, "map/6", TaskOrderAction::Resize { memory }).run();
    let attempt = &world.row("map/6").attempts[0];
    assert!(
        attempt.profile.memory() >= memory && attempt.slots == 3,
        "{attempt:?}"
    );
    assert_eq!(attempt.why, "150 MiB on request: wrong day");
    assert_eq!(world.core.totals().done, 8);
}

#[test]
fn a_requested_size_above_the_cap_becomes_the_cap() {
    let world = job(
        2_000,
        "map/6",
        TaskOrderAction::Resize {
            memory: Bytes::from_gib(64),
        },
    )
    .run();
    let attempt = &world.row("map/6").attempts[0];
    assert!(attempt.profile.memory() < Bytes::from_gib(1), "{attempt:?}");
    assert_eq!(world.core.totals().done, 8);
}

#[test]
fn a_restarted_master_carries_out_task_orders() {
    for n in 1..30 {
        let world = job(2_000, "map/0", TaskOrderAction::Cancel)
            .fault(InjectedFault::MasterDiesAfter(n))
            .run();
        let row = world.row("map/0");
        assert_eq!(row.state, TaskState::Failed, "after {n} records: {row:?}");
        assert!(
            row.note.contains("cancelled on request"),
            "after {n} records: {}",
            row.note
        );
        assert_eq!(world.core.totals().done, 7, "after {n} records");
        let marks = world
            .records
            .iter()
            .filter(|record| matches!(record, JournalRecord::Cancelled { .. }))
            .count();
        assert_eq!(marks, 1, "after {n} records: recorded once");
    }
}

#[test]
fn a_task_with_a_higher_priority_begins_first() {
    let run = |task: &str, priority| {
        let fault = InjectedFault::Ordered {
            at_ms: 2_000,
            order: order(task, TaskOrderAction::Rank { priority }),
        };
        let text = JOB.replace("0-7", "0-15");
        MasterScenario::of(&text)
            .nodes(&[1024])
            .usual(TaskBehaviour::native(10, 5_000))
            .fault(fault)
            .run()
    };
    let began = |world: &SimulatedCluster, task: &str| world.row(task).attempts[0].started;
    let first = run("map/15", 1);
    assert_eq!(first.row("map/15").priority, 1);
    assert!(
        began(&first, "map/15") < began(&first, "map/8"),
        "the last of twelve that wait, for four places at a time"
    );
    let last = run("map/4", -1);
    assert!(
        began(&last, "map/4") > began(&last, "map/8"),
        "the first of twelve that wait"
    );
    assert_eq!(
        (first.core.totals().done, last.core.totals().done),
        (16, 16)
    );
}

//! Live jobs: stages and tasks that clients submit while the job runs.

#[macro_use]
mod world;

use headroom_appmaster::event::JobEndKind;
use headroom_appmaster::record::JournalRecord;
use headroom_types::{Bytes, ExitReason, TaskAttemptId};
use headroom_wire::v1::submission::{
    FromSubmitter, SubmittedTask, SubmittedTaskOutcome, ToSubmitter,
};
use proptest::prelude::*;
use serde_json::json;
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

const JOB: &str = job_head!("live", "544MiB", 8, 2, 8, "live = true\nlease = \"20s\"\n");

fn stage(name: &str) -> FromSubmitter {
    FromSubmitter::Stage {
        name: name.parse().expect("a name"),
        spec: json!({"command": ["prog", "{index}"], "env": {"A": "stage", "B": "stage"}}),
    }
}

fn item(key: &str) -> SubmittedTask {
    SubmittedTask {
        key: key.to_owned(),
        ..SubmittedTask::default()
    }
}

fn after(key: &str, earlier: &[&str]) -> SubmittedTask {
    SubmittedTask {
        after: earlier.iter().map(|key| (*key).to_owned()).collect(),
        ..item(key)
    }
}

fn tasks(batch: &str, items: Vec<SubmittedTask>) -> FromSubmitter {
    FromSubmitter::Tasks {
        batch: batch.to_owned(),
        stage: "map".parse().expect("a name"),
        items,
    }
}

fn numbered(batch: &str, count: usize) -> FromSubmitter {
    let items = (0..count).map(|n| item(&format!("{batch}-{n}")));
    tasks(batch, items.collect())
}

/// A job with one client that declares stage `map` at the start.
fn live(job: &str) -> MasterScenario {
    MasterScenario::of(job)
        .client("c", 20)
        .submission(10, 0, stage("map"))
}

fn outcomes(world: &SimulatedCluster) -> Vec<(&str, SubmittedTaskOutcome)> {
    let results = world.clients[0].results.iter();
    results
        .map(|(key, result)| (key.as_str(), result.outcome))
        .collect()
}

fn ending(world: &SimulatedCluster) -> (JobEndKind, &str) {
    let outcome = world.outcome.as_ref().expect("the job has ended");
    (outcome.ending, outcome.diagnostics.as_str())
}

use SubmittedTaskOutcome::{Cancelled, Failed, Succeeded};

#[test]
fn submitted_tasks_run_with_their_arguments_and_return_values() {
    let first = SubmittedTask {
        args: vec!["{x}".into(), "y".into()],
        env: [("B".to_owned(), "task".to_owned())].into(),
        input: Some("text".into()),
        memory: Some(Bytes::from_mib(100)),
        ..item("first")
    };
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 500).telling(|report| {
            report.value = Some(format!("value of {}", report.attempt));
        }))
        .submission(20, 0, tasks("b", vec![first, item("second")]))
        .submission(2_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    assert_eq!(
        ending(&world).0,
        JobEndKind::Succeeded,
        "{:?}",
        world.outcome
    );
    let start = &world.starts[&"map/0@1".parse::<TaskAttemptId>().expect("id")];
    assert_eq!(start.command, ["prog", "0", "{x}", "y"]);
    assert_eq!(
        (start.env["A"].as_str(), start.env["B"].as_str()),
        ("stage", "task")
    );
    assert_eq!(start.input.as_deref(), Some("text"));
    assert_eq!((start.limit, start.slots), (Some(Bytes::from_mib(100)), 2));
    let client = &world.clients[0];
    assert_eq!(client.order.len(), 2);
    let result = &client.results["first"];
    assert_eq!(result.value.as_deref(), Some("value of map/0@1"));
    assert_eq!(
        (result.task.to_string().as_str(), result.attempts.len()),
        ("map/0", 1)
    );
    assert!(matches!(
        client.answers[..3],
        [
            ToSubmitter::Welcome {
                credit: 10_000,
                cursor: 0,
                closed: false,
                ..
            },
            ToSubmitter::StageAccepted { .. },
            ToSubmitter::Accepted { credit: 9_998, .. }
        ]
    ));
}

#[test]
fn a_task_grows_like_any_other_and_its_result_lists_all_attempts() {
    let world = live(JOB)
        .habit("map/1", TaskBehaviour::native(200, 500))
        .submission(20, 0, numbered("b", 3))
        .submission(30, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    let result = &world.clients[0].results["b-1"];
    assert_eq!(result.outcome, Succeeded);
    assert!(!result.attempts.is_empty());
    let last = result.attempts.last().expect("an attempt");
    assert!(last.profile.memory() >= Bytes::from_mib(200), "{last:?}");
    assert_eq!(ending(&world).0, JobEndKind::Succeeded);
}

#[test]
fn the_end_of_the_job_waits_for_results_of_a_client_unless_it_has_left() {
    let with_second_client = |leaves: bool| {
        // The second client acknowledges nothing for an hour.
        let job = live(JOB).client("other", 3_600_000);
        let job = job.submission(20, 0, numbered("b", 3));
        let job = match leaves {
            true => job.submission(900, 1, FromSubmitter::Leave),
            false => job,
        };
        job.submission(1_000, 0, FromSubmitter::Close)
            .mirrored()
            .run()
    };
    let (waits, left) = (with_second_client(false), with_second_client(true));
    for world in [&waits, &left] {
        assert_eq!(ending(world).0, JobEndKind::Succeeded);
    }
    assert!(waits.now_ms >= 3_600_000, "{}", waits.now_ms);
    assert!(left.now_ms < 20_000, "{}", left.now_ms);
}

#[test]
fn tasks_follow_earlier_ones_and_are_cancelled_if_one_fails() {
    let bad = TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }; 4])
        .telling(|report| report.value = Some(format!("exception of {}", report.attempt)));
    let items = vec![
        item("a"),
        item("bad"),
        after("after-a", &["a"]),
        after("after-both", &["a", "bad"]),
        after("last", &["after-both"]),
    ];
    let world = live(JOB)
        .habit("map/1", bad)
        .submission(20, 0, tasks("b", items))
        .submission(
            30_000,
            0,
            tasks("c", vec![after("late", &["bad"]), after("fine", &["a"])]),
        )
        .submission(40_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    assert_eq!(
        outcomes(&world),
        [
            ("a", Succeeded),
            ("after-a", Succeeded),
            ("after-both", Cancelled),
            ("bad", Failed),
            ("fine", Succeeded),
            ("last", Cancelled),
            ("late", Cancelled)
        ]
    );
    let results = &world.clients[0].results;
    assert!(
        results["after-both"]
            .message
            .contains("it follows task bad"),
        "{}",
        results["after-both"].message
    );
    assert!(!results["bad"].message.is_empty());
    assert_eq!(
        results["bad"].value.as_deref(),
        Some("exception of map/1@4"),
        "the value of the last attempt, which failed"
    );
    let (ending, diagnostics) = ending(&world);
    assert_eq!(ending, JobEndKind::Failed);
    assert!(
        diagnostics.contains("3 of 7 tasks done, 1 failed, 3 cancelled"),
        "{diagnostics}"
    );
}

#[test]
fn tasks_that_the_client_cancels_do_not_fail_the_job() {
    let all = (0..40).map(|n| item(&format!("t{n:02}"))).collect();
    let keys = vec!["t00".to_owned(), "t39".to_owned(), "unknown".to_owned()];
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 3_000))
        .submission(20, 0, tasks("b", all))
        .submission(1_000, 0, FromSubmitter::Cancel { keys })
        .submission(4_000, 0, FromSubmitter::CancelAll)
        .submission(4_100, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    let results = &world.clients[0].results;
    assert_eq!(results.len(), 40);
    assert_eq!(
        (results["t00"].outcome, results["t39"].outcome),
        (Cancelled, Cancelled)
    );
    assert_eq!(results["t00"].attempts.len(), 1, "it was stopped");
    assert_eq!(results["t01"].outcome, Succeeded);
    assert!(results["t39"].attempts.is_empty() && results["t39"].message.contains("by c"));
    assert_eq!(
        ending(&world).0,
        JobEndKind::Succeeded,
        "{:?}",
        world.outcome
    );
}

#[test]
fn invalid_messages_are_refused_and_change_nothing() {
    let wrong = |spec| FromSubmitter::Stage {
        name: "other".parse().expect("a name"),
        spec,
    };
    let many = (0..1001).map(|n| item(&n.to_string())).collect();
    let unknown = FromSubmitter::Tasks {
        batch: "u".into(),
        stage: "mapp".parse().expect("a name"),
        items: vec![item("x")],
    };
    let world = live(JOB)
        .submission(20, 0, wrong(json!({"comand": ["prog"]})))
        .submission(30, 0, wrong(json!({"command": ["prog"], "array": "0-3"})))
        .submission(40, 0, wrong(json!({"command": ["p"], "output": "/out"})))
        .submission(50, 0, unknown)
        .submission(60, 0, tasks("many", many))
        .submission(70, 0, tasks("w", vec![item("x"), after("y", &["z"])]))
        .submission(80, 0, tasks("v", vec![item("")]))
        .submission(90, 0, FromSubmitter::Close)
        .submission(100, 0, tasks("late", vec![item("x")]))
        .run();
    assert_eq!(
        world.clients[0].refusals(),
        [
            "HR0400", "HR0400", "HR0400", "HR0404", "HR0413", "HR0400", "HR0400"
        ],
        "the job has ended when the last batch arrives"
    );
    let ToSubmitter::Refused { error, .. } = &world.clients[0].answers[2] else {
        panic!("{:?}", world.clients[0].answers)
    };
    assert!(error.detail.contains("did you mean `command`?"), "{error}");
    assert_eq!(world.core.totals().tasks, 0);
    assert_eq!(world.core.job().stages.len(), 1);
}

#[test]
fn open_tasks_and_results_that_are_not_acknowledged_are_limited() {
    let batch = |n: usize| numbered(&format!("b{n}"), 1000);
    let mut scenario = MasterScenario::of(JOB)
        .quick()
        .client("c", 60_000)
        .usual(TaskBehaviour::native(1, 50))
        .submission(10, 0, stage("map"));
    for n in 0..11 {
        scenario = scenario.submission(20 + u64::try_from(n).expect("few"), 0, batch(n));
    }
    let world = scenario
        .submission(50, 0, batch(0))
        .submission(55_000, 0, batch(11))
        .submission(200_000, 0, batch(11))
        .submission(200_001, 0, FromSubmitter::Close)
        .run();
    let client = &world.clients[0];
    assert_eq!(
        client.refusals(),
        ["HR0429", "HR0429"],
        "the eleventh batch, and one while no result is acknowledged"
    );
    assert_eq!(client.results.len(), 11_000);
    assert_eq!(ending(&world).0, JobEndKind::Succeeded);
    let of_batch_0 = |record: &&JournalRecord| matches!(record, JournalRecord::TasksAccepted { batch, .. } if batch == "b0");
    assert_eq!(
        world.records.iter().filter(of_batch_0).count(),
        1,
        "a repeated batch changes nothing, even without credit"
    );
}

#[test]
fn a_job_without_a_client_ends_after_its_lease() {
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 100_000))
        .submission(20, 0, numbered("b", 30))
        .client_leaves(5_000, 0)
        .client_returns(15_000, 0)
        .client_leaves(16_000, 0)
        .mirrored()
        .run();
    let (kind, diagnostics) = ending(&world);
    assert_eq!(kind, JobEndKind::Failed);
    assert!(
        diagnostics.starts_with("no client was connected for the lease of 20 s"),
        "{diagnostics}"
    );
    assert!(
        (36_000..60_000).contains(&world.now_ms),
        "ended at {}",
        world.now_ms
    );
    assert!(
        world
            .rows
            .values()
            .all(|row| row.note.starts_with("cancelled: no client")),
        "all tasks are cancelled"
    );
}

#[test]
fn a_closed_job_needs_no_client() {
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 50_000))
        .submission(20, 0, numbered("b", 3))
        .submission(30, 0, FromSubmitter::Close)
        .client_leaves(5_000, 0)
        .mirrored()
        .run();
    assert_eq!(
        ending(&world).0,
        JobEndKind::Succeeded,
        "{:?}",
        world.outcome
    );
    assert_eq!(world.core.totals().done, 3);
}

#[test]
fn results_wait_for_every_client_that_was_seen_within_the_lease() {
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 100))
        .client("slow", 4_000)
        .submission(20, 0, numbered("b", 20))
        .client_leaves(6_000, 1)
        .submission(7_000, 0, numbered("c", 5))
        .client_returns(20_000, 1)
        .submission(30_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    for client in &world.clients {
        assert_eq!(client.results.len(), 25, "{}", client.name);
    }
    let alone = live(JOB)
        .usual(TaskBehaviour::native(10, 100))
        .client("gone", 1_000)
        .client_leaves(100, 1)
        .submission(1_000, 0, numbered("b", 20))
        .submission(30_000, 0, numbered("c", 5))
        .submission(31_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    assert!(
        alone
            .records
            .iter()
            .any(|r| matches!(r, JournalRecord::SubmitterForgotten { client } if client == "gone")),
        "a client is forgotten after its lease"
    );
    assert_eq!(alone.clients[0].results.len(), 25);
}

#[test]
fn results_do_not_wait_for_a_client_that_has_left() {
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 100))
        .client("observer", 100_000)
        .submission(20, 0, numbered("b", 5))
        .submission(2_000, 1, FromSubmitter::Leave)
        .client_leaves(2_100, 1)
        .submission(3_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    assert_eq!(ending(&world).0, JobEndKind::Succeeded);
    assert_eq!(world.clients[0].results.len(), 5);
    let place = |wanted: fn(&JournalRecord) -> bool| world.records.iter().position(wanted);
    let forgotten = place(|r| matches!(r, JournalRecord::SubmitterForgotten { .. }));
    let closed = place(|r| matches!(r, JournalRecord::JobClosed { .. }));
    assert!(
        forgotten.is_some() && forgotten < closed,
        "a client that leaves is forgotten at once, and not after the lease"
    );
}

#[test]
fn acknowledged_tasks_are_forgotten_and_only_counted() {
    let world = live(JOB)
        .usual(TaskBehaviour::native(10, 100))
        .habit(
            "map/3",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }]),
        )
        .submission(20, 0, numbered("b", 30))
        .submission(
            10_000,
            0,
            tasks("again", vec![item("b-0"), after("next", &["b-3"])]),
        )
        .submission(20_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    let (tasks, job) = (world.core.tasks(), world.core.job());
    let kept: Vec<String> = tasks.iter().map(|(_, task)| task.id.to_string()).collect();
    assert_eq!(
        kept,
        ["map/3"],
        "a task with a failed attempt keeps its row"
    );
    assert_eq!(tasks.stages()[0].forgotten.done, 30);
    assert_eq!((world.core.totals().done, job.tasks()), (31, 31));
    assert_eq!(world.folded.len(), 30, "their rows are removed");
    assert_eq!(world.clients[0].results["next"].outcome, Succeeded);
}

#[test]
fn a_stage_of_the_job_file_takes_tasks_beside_an_array() {
    let job = format!(
        "{JOB}[[stage]]\nname = \"fixed\"\ncount = 3\ncommand = [\"prog\"]\n[[stage]]\nname = \"map\"\ncommand = [\"prog\"]\n"
    );
    let fixed = FromSubmitter::Tasks {
        batch: "f".into(),
        stage: "fixed".parse().expect("a name"),
        items: vec![item("x")],
    };
    let world = MasterScenario::of(&job)
        .client("c", 20)
        .submission(10, 0, numbered("b", 4))
        .submission(20, 0, fixed)
        .submission(5_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    assert_eq!(world.clients[0].refusals(), ["HR0409"]);
    assert_eq!(
        (world.core.totals().done, world.clients[0].results.len()),
        (7, 4)
    );
    assert_eq!(ending(&world).0, JobEndKind::Succeeded);
}

#[test]
fn learned_sizes_apply_to_declared_stages() {
    let job = job_head!(
        "live",
        "2080MiB",
        8,
        2,
        8,
        "live = true\nsizes = \"learned\"\n"
    );
    let world = live(job)
        .usual(TaskBehaviour::native(20, 500))
        .submission(20, 0, numbered("b", 60))
        .submission(60_000, 0, FromSubmitter::Close)
        .mirrored()
        .run();
    let last = &world.clients[0].results["b-59"].attempts[0];
    assert_ne!(last.why, "the size of its stage");
    assert_eq!(ending(&world).0, JobEndKind::Succeeded);
}

/// One action of a random client.
#[derive(Clone, Debug)]
enum Action {
    Stage,
    Add {
        count: usize,
        repeated: bool,
        follow: bool,
    },
    Cancel {
        nth: usize,
    },
    Leave,
    Return,
    Fault(InjectedFault),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::Stage),
        6 => (1usize..8, any::<bool>(), any::<bool>())
            .prop_map(|(count, repeated, follow)| Action::Add { count, repeated, follow }),
        2 => (0usize..30).prop_map(|nth| Action::Cancel { nth }),
        1 => Just(Action::Leave),
        1 => Just(Action::Return),
        2 => (0usize..3).prop_map(|nth| Action::Fault(InjectedFault::ContainerEnds {
            at_ms: 0,
            nth,
            reason: ExitReason::NodeLost,
        })),
    ]
}

/// A scenario of random actions, one every 700 ms, and the keys that it adds.
fn scenario(actions: &[Action], die_after: usize, ack_ms: u64) -> (MasterScenario, usize) {
    let mut scenario = MasterScenario::of(JOB)
        .client("c", ack_ms)
        .client("second", 3 * ack_ms)
        .usual(TaskBehaviour::native(10, 900))
        .habit("map/2", TaskBehaviour::native(150, 900))
        .habit(
            "map/5",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }; 4]),
        )
        .habit("map/7", TaskBehaviour::ending(&[ExitReason::NodeLost]))
        .fault(InjectedFault::MasterDiesAfter(die_after))
        .submission(10, 0, stage("map"));
    let (mut keys, mut added): (usize, Vec<Vec<SubmittedTask>>) = (0, Vec::new());
    for (n, action) in actions.iter().enumerate() {
        let at = 100 + 700 * u64::try_from(n).expect("few");
        scenario = match action {
            Action::Stage => scenario.submission(at, 1, stage("map")),
            Action::Add { repeated: true, .. } if !added.is_empty() => {
                let again = added[n % added.len()].clone();
                scenario.submission(at, 1, tasks(&format!("again{n}"), again))
            }
            Action::Add { count, follow, .. } => {
                let items: Vec<SubmittedTask> = (keys..keys + count)
                    .map(|k| match k.checked_sub(3).filter(|_| *follow) {
                        Some(earlier) => after(&format!("k{k}"), &[&format!("k{earlier}")]),
                        None => item(&format!("k{k}")),
                    })
                    .collect();
                keys += count;
                added.push(items.clone());
                scenario.submission(at, 0, tasks(&format!("b{n}"), items))
            }
            Action::Cancel { nth } => scenario.submission(
                at,
                0,
                FromSubmitter::Cancel {
                    keys: vec![format!("k{nth}")],
                },
            ),
            Action::Leave => scenario.client_leaves(at, 1),
            Action::Return => scenario.client_returns(at, 1),
            Action::Fault(InjectedFault::ContainerEnds { nth, reason, .. }) => {
                scenario.fault(InjectedFault::ContainerEnds {
                    at_ms: at,
                    nth: *nth,
                    reason: *reason,
                })
            }
            Action::Fault(fault) => scenario.fault(fault.clone()),
        };
    }
    let end = 1_000 + 700 * u64::try_from(actions.len()).expect("few");
    (scenario.submission(end, 0, FromSubmitter::Close), keys)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Safety: for every sequence of messages, failures and a restart, every key has exactly one
    /// result, and a master that reads the journal has the state of the one that wrote it.
    #[test]
    fn every_key_has_exactly_one_result(
        actions in proptest::collection::vec(action(), 1..25),
        die_after in 5usize..200,
        ack_ms in 1u64..2_000,
    ) {
        let (scenario, keys) = scenario(&actions, die_after, ack_ms);
        let world = scenario.mirrored().run();
        prop_assert_eq!(world.clients[0].results.len(), keys, "{:?}", world.outcome);
        prop_assert_eq!(
            usize::try_from(world.core.totals().tasks).expect("few"),
            keys
        );
    }
}

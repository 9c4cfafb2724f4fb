//! Restarts of the master: after a crash at any record, the next master ends the job with the same
//! result.

#[macro_use]
mod world;

use headroom_appmaster::record::JournalRecord;
use headroom_types::ExitReason;
use headroom_wire::v1::job::MemoryFailureMode;
use proptest::prelude::*;
use world::{InjectedFault, MasterScenario, TaskBehaviour};

const JOB: &str = concat!(
    job_head!("figure", "288MiB", 4, 2, 4),
    r#"[[stage]]
name = "map"
count = 10
command = ["prog"]
[[stage]]
name = "reduce"
after = ["map"]
count = 2
command = ["prog"]
[retry]
cap = "1GiB"
"#
);

fn job(mode: MemoryFailureMode) -> MasterScenario {
    MasterScenario::of(JOB)
        .mode(mode)
        .usual(TaskBehaviour::native(50, 2000))
        .habit("map/1", TaskBehaviour::native(190, 2000))
        .habit("map/4", TaskBehaviour::native(300, 2000))
        .habit(
            "map/6",
            TaskBehaviour::ending(&[ExitReason::Exit { code: 1 }]),
        )
        .habit("map/8", TaskBehaviour::native(5000, 2000))
        .habit("reduce/1", TaskBehaviour::native(100, 2000))
}

#[test]
fn a_restart_after_any_record_leads_to_the_same_end() {
    for mode in MemoryFailureMode::ALL {
        let whole = job(mode).run();
        assert!(whole.records.len() > 30);
        for n in 1..=whole.records.len() {
            let restarted = job(mode).fault(InjectedFault::MasterDiesAfter(n)).run();
            assert_eq!(
                restarted.result(),
                whole.result(),
                "{mode:?}: died after record {n}: {:?}",
                whole.records[n - 1]
            );
            assert_eq!(
                restarted.outcome.map(|o| o.ending),
                whole.outcome.as_ref().map(|o| o.ending),
                "{mode:?} {n}"
            );
        }
    }
}

#[test]
fn a_restart_reruns_no_running_task() {
    let whole = job(MemoryFailureMode::Headroom).run();
    for n in 1..whole.records.len() {
        let restarted = job(MemoryFailureMode::Headroom)
            .fault(InjectedFault::MasterDiesAfter(n))
            .run();
        let totals = restarted.core.totals();
        assert_eq!(
            (totals.transient, totals.memory_kills),
            (0, whole.core.totals().memory_kills),
            "died after record {n}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Safety: no task is both lost and counted done; no budget is exceeded (the invariants check
    /// this after every step). Liveness: every job ends after any faults.
    #[test]
    fn the_job_decides_every_task_under_any_fault(
        needs in proptest::collection::vec(1u64..700, 12),
        lost_at in 1u64..8000, nth in 0usize..3, dies in 1usize..60, twice in any::<bool>(), rm_at in 1u64..8000, mode in 0usize..6,
    ) {
        let mut s = MasterScenario::of(JOB).mode(MemoryFailureMode::ALL[mode]).nodes(&[1500, 700]);
        for (i, need) in needs.iter().enumerate() {
            let id = if i < 10 { format!("map/{i}") } else { format!("reduce/{}", i - 10) };
            s = s.habit(&id, TaskBehaviour::native(*need, 500 + need * 3));
        }
        s = s.fault(InjectedFault::ContainerEnds { at_ms: lost_at, nth, reason: ExitReason::NodeLost });
        s = s.fault(InjectedFault::MasterDiesAfter(dies)).fault(InjectedFault::ManagerRestarts { at_ms: rm_at });
        if twice {
            s = s.fault(InjectedFault::Twice);
        }
        let world = s.run();
        let totals = world.core.totals();
        prop_assert!(totals.running == 0 && totals.done + totals.failed <= 12);
        if MemoryFailureMode::ALL[mode] == MemoryFailureMode::Headroom {
            prop_assert_eq!(totals.failed, 0, "every task fits some node");
        }
    }
}

const MOVED: &str = concat!(
    job_head!("moved", "160MiB", 2, 2, 2),
    r#"[[stage]]
name = "map"
count = 4
command = ["prog"]
"#
);

/// The attempts that ran when the master moved are lost, because their executors know another
/// secret. Attempts of the next master start as soon as it runs, whether or not the old executors
/// leave free memory.
#[test]
fn a_master_without_the_journal_does_not_wait_for_old_executors() {
    for room in [2048, 350] {
        let s = MasterScenario::of(MOVED)
            .nodes(&[room])
            .usual(TaskBehaviour::native(10, 20_000));
        let world = s
            .fault(InjectedFault::MasterMoves {
                at_ms: 5_000,
                to: 1,
            })
            .run();
        assert_eq!(
            (world.core.totals().done, world.core.totals().transient),
            (4, 0),
            "{room} MiB"
        );
        assert!(
            world.now_ms < 28_000,
            "{room} MiB: over after {} ms",
            world.now_ms
        );
    }
}

/// Attempts between two attempts with the same journal had another one. The ends of the containers
/// in this journal were reported to them, so a container that the resource manager does not list
/// counts as ended. Without such attempts its end is not reported yet.
#[test]
fn a_container_that_ended_under_another_journal_counts_as_ended() {
    let world = MasterScenario::of(MOVED)
        .nodes(&[2048])
        .usual(TaskBehaviour::native(10, 20_000))
        .run();
    let gained = |record: &JournalRecord| matches!(record, JournalRecord::Gained { .. });
    let first = world.records.iter().position(gained).expect("a container");
    let counts = |attempt| {
        let core = world.registered_successor(attempt, first + 1);
        let requests = core.fleet().desired_requests();
        requests.iter().map(|r| (r.ended, r.count)).max()
    };
    let (next, later) = (counts(2).expect("a request"), counts(4).expect("a request"));
    assert_eq!((next.0, later), (0, (1, next.1 + 1)));
}

/// The master finds its own journal, but the live containers were granted to a run that wrote
/// another one.
#[test]
fn a_master_back_on_its_first_host_ends_unknown_executors() {
    let s = MasterScenario::of(MOVED)
        .nodes(&[2048])
        .usual(TaskBehaviour::native(10, 20_000));
    let s = s
        .fault(InjectedFault::MasterMoves {
            at_ms: 5_000,
            to: 1,
        })
        .fault(InjectedFault::MasterMoves {
            at_ms: 10_000,
            to: 0,
        });
    let world = s.run();
    assert_eq!(world.core.totals().done, 4);
    assert!(world.now_ms < 33_000, "over after {} ms", world.now_ms);
    assert_eq!(world.granted.values().sum::<u32>(), 6, "two for each run");
}

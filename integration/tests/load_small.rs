//! Two hundred simulated agents over real sockets, with kills of the resource manager: the records
//! of agents and masters agree.

#![allow(missing_docs)] // a test binary has no public API

use std::time::Duration;

use integration::load::agents::AgentProtocol;
use integration::load::records::RecordComparison;
use integration::load::restart::{RestartPlan, run};

fn plan(rounds: u32, protocol: AgentProtocol) -> RestartPlan {
    let life = Duration::from_millis(700);
    RestartPlan {
        agents: 200,
        masters: 4,
        staying: 3,
        window: 20,
        life,
        submitters: 2,
        rounds,
        seed: 1,
        protocol,
    }
}

fn play(plan: &RestartPlan) -> integration::load::restart::RestartResults {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(plan, &|_| ())).expect("ends")
}

#[test]
fn no_container_is_lost_or_doubled_over_three_restarts() {
    let plan = plan(3, AgentProtocol::Channel);
    let outcome = play(&plan);
    let RecordComparison {
        launched,
        lost,
        twice,
        oversold,
        notes,
        ..
    } = outcome.balance;
    assert_eq!((lost, twice, oversold), (0, 0, 0), "{notes:?}");
    assert_eq!(
        (outcome.submissions_lost, outcome.submissions_twice),
        (0, 0),
        "of {}",
        outcome.submitted
    );
    assert_eq!(outcome.recoveries_ms.len(), 3);
    assert!(
        launched >= 600 + 80,
        "the permanent containers and at least one window: {launched}"
    );
    assert!(
        outcome.submitted > 0 && outcome.live.iter().all(|live| *live >= 600),
        "there was load: {:?}",
        outcome.live
    );
    assert_eq!(outcome.faults, Vec::<String>::new(), "no error is logged");
}

#[test]
fn no_container_is_lost_or_doubled_without_a_restart() {
    without_a_restart(AgentProtocol::Channel);
}

#[test]
fn agents_of_an_earlier_version_are_served() {
    without_a_restart(AgentProtocol::Calls { connections: 200 });
}

fn without_a_restart(protocol: AgentProtocol) {
    let outcome = play(&plan(0, protocol));
    let RecordComparison {
        lost,
        twice,
        oversold,
        troubles,
        notes,
        ..
    } = outcome.balance;
    assert_eq!((lost, twice, oversold, troubles), (0, 0, 0, 0), "{notes:?}");
    assert_eq!(outcome.faults, Vec::<String>::new(), "no error is logged");
}

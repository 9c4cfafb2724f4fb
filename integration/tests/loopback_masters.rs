//! Kills of the application master during escalations: the result equals that without kills, and no
//! completed task runs again.

#![allow(missing_docs)] // a test binary has no public API

use std::time::Duration;

use headroom_types::Bytes;
use integration::cluster::IN_RESOURCE_MANAGER;
use integration::guest::{Guest, in_guest};
use integration::masters::MasterKillResults;
use integration::{masters, on_host_and_in_guest};

/// `measure master-restart` runs a hundred.
const ROUNDS: u32 = 3;
/// A guest has one slow processor.
const ROUNDS_IN_GUEST: u32 = 1;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_gib(1))
        .timeout(Duration::from_secs(200))
}

fn killed_during_an_escalation() {
    let rounds = if in_guest() { ROUNDS_IN_GUEST } else { ROUNDS };
    let results = masters::run(None, rounds, 1, &mut |_, _| {}).expect("runs");
    check(&results);
}
on_host_and_in_guest!(master_killed, guest(), killed_during_an_escalation);

/// The last records before the kill may be in the copy on the node only.
#[test]
fn a_killed_master_with_its_journal_in_the_resource_manager_repeats_nothing() {
    let place = Some(IN_RESOURCE_MANAGER);
    let results = masters::run(place, ROUNDS, 2, &mut |_, _| {}).expect("runs");
    check(&results);
}

fn check(results: &MasterKillResults) {
    assert_eq!(
        (results.lost, results.twice, results.rerun_finished),
        (0, 0, 0),
        "{:#?}",
        results.notes
    );
    assert!(results.kills >= 1 && results.escalations > 0, "{results:?}");
}

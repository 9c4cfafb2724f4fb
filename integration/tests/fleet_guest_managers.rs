//! Three resource managers on three hosts, upgraded one after the other while jobs are submitted.

#![allow(missing_docs)] // a test binary has no public API

use std::time::Duration;

use anyhow::{Result, ensure};
use integration::fleet::managers::{ALL, LEASE, ManagerState, UNIT};
use integration::fleet::{Fleet, TranscriptOutput};
use integration::test_packages::LATER_PROGRAM;

/// Timeout of the hosts.
const LONGEST: Duration = Duration::from_secs(600);
/// The version in the packages of this build.
const NOW_PROGRAM: &str = env!("CARGO_PKG_VERSION");

fn standbys(leader: usize) -> impl Iterator<Item = usize> {
    ALL.into_iter().filter(move |host| *host != leader)
}

/// systemd holds the listeners of all hosts, and only the leader serves calls.
fn standbys_refer_to_the_leader(fleet: &mut Fleet) -> Result<()> {
    let leader = fleet.leader()?;
    for host in standbys(leader) {
        let answer = fleet.answer_of(host)?;
        ensure!(
            answer.contains("HR0421") && answer.ends_with(" 421"),
            "{answer}"
        );
    }
    let answer = fleet.answer_of(leader)?;
    ensure!(answer.ends_with(" 401"), "it asks who calls: {answer}");
    Ok(())
}

/// However its service ends, a leader with socket activation has a successor before its lease
/// expires.
fn successors_do_not_wait_for_the_lease(fleet: &mut Fleet) -> Result<()> {
    for (what, command) in [
        (
            "systemctl stop",
            format!("systemctl stop {UNIT}; systemctl start {UNIT}"),
        ),
        (
            "kill -9",
            format!("systemctl kill --signal KILL --kill-who main {UNIT}"),
        ),
    ] {
        let leader = fleet.leader()?;
        let (next, took) = fleet.depose(leader, &command)?;
        fleet
            .book
            .say(&format!("{what}: {next} leads after {took:.1?}"));
        ensure!(
            took < LEASE / 2,
            "{what}: it waited for the lease: {took:?}"
        );
        fleet.until_accepted(1)?;
    }
    Ok(())
}

fn upgrade_one_after_the_other(fleet: &mut Fleet) -> Result<()> {
    let leader = fleet.leader()?;
    for host in standbys(leader) {
        fleet.install_manager(host, "upgrade", LATER_PROGRAM)?;
        ensure!(
            fleet.leader()? == leader,
            "a standby of another version leads"
        );
        fleet.until_accepted(1)?;
    }
    fleet.install_manager(leader, "upgrade", LATER_PROGRAM)?;
    let next = fleet.leader_other_than(Some(leader))?;
    fleet.until_accepted(1)?;
    fleet.on(next, "rmctl operator leader")?;
    let managers = fleet.managers()?;
    let is_new = |one: &ManagerState| one.version.as_deref() == Some(LATER_PROGRAM);
    ensure!(
        managers.len() == 3 && managers.iter().all(is_new),
        "{managers:?}"
    );
    // A manager of the earlier version waits as a standby.
    fleet.install_manager(leader, "now", NOW_PROGRAM)?;
    ensure!(fleet.leader()? == next, "the earlier version leads");
    Ok(())
}

fn nothing_was_lost(fleet: &mut Fleet) -> Result<()> {
    let load = fleet.end_load()?;
    fleet.book.say(&format!("{load:?}"));
    ensure!(load.lost.is_empty() && load.wrong.is_empty(), "{load:?}");
    ensure!(load.accepted >= 6, "too few jobs for a test: {load:?}");
    let failed = fleet.failed_units()?;
    ensure!(failed.is_empty(), "failed units: {failed}");
    Ok(())
}

fn a_life(fleet: &mut Fleet) -> Result<()> {
    fleet.step("standbys refer to the leader", standbys_refer_to_the_leader)?;
    fleet.start_load()?;
    fleet.until_accepted(1)?;
    fleet.step(
        "the leader is stopped, and killed",
        successors_do_not_wait_for_the_lease,
    )?;
    fleet.step(
        "later packages, the leader last",
        upgrade_one_after_the_other,
    )?;
    fleet.step("all jobs have finished once", nothing_was_lost)
}

#[test]
fn three_managers_are_upgraded_under_load_in_guests() -> Result<()> {
    let mut fleet = Fleet::boot_managers(TranscriptOutput::Aloud, LONGEST)?;
    let lived = a_life(&mut fleet);
    fleet.book.say(&format!("\n{}", fleet.book.table()));
    lived
}

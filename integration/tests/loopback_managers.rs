//! Several resource managers with their state in etcd: one leads, and any of them can fail.

#![allow(missing_docs)] // tests are read, not imported

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, NodeShape, SOON, until};
use integration::jobs::JobFile;
use integration::managers::{FailurePlan, KINDS, run as run_failures};
use nix::sys::signal::Signal;

const LEASE: Duration = Duration::from_secs(2);

/// A job whose tasks outlast a change of the leader.
fn job() -> String {
    JobFile::new("words", 2, 4, Bytes::from_mib(16))
        .stage("count", 32, &["sleep", "1.5"], "")
        .text()
        .to_owned()
}

fn cluster() -> Result<Cluster> {
    Cluster::start_replicated(&[NodeShape::default(), NodeShape::default()], (3, 1), LEASE)
}

/// Waits until another manager than `before` leads, and returns it.
fn next_leader(cluster: &Cluster, before: usize) -> Result<usize> {
    until("another leader", SOON, || {
        Ok(Some(cluster.leading_manager()?).filter(|now| *now != before))
    })
}

fn ends_well(cluster: &Cluster, app: &AppId) -> Result<()> {
    let ended = cluster.until_ended(app)?;
    let totals = ended.job.as_ref().map(|job| job.totals.clone());
    ensure!(ended.state == AppState::Finished, "{ended:?}");
    ensure!(
        totals
            .as_ref()
            .is_some_and(|totals| (totals.done, totals.transient) == (32, 0)),
        "a task was lost or ran again: {totals:?}"
    );
    Ok(())
}

#[test]
fn a_job_outlives_its_leader_however_that_ends() {
    run().expect("the job ends well");
}

fn run() -> Result<()> {
    let mut cluster = cluster()?;
    let first = cluster.leading_manager()?;
    let epoch = cluster.call(cluster.client().status())?.epoch;
    let app = cluster.submit(&job())?;
    cluster.until_app(&app, "its tasks to run", SOON, |view| {
        (view.state == AppState::Running).then_some(())
    })?;

    // Its process is killed: another one leads at once.
    let killed = Instant::now();
    cluster.kill_daemon(&format!("rm-{first}"))?;
    let second = next_leader(&cluster, first)?;
    let gap = killed.elapsed();
    ensure!(gap < LEASE, "the lease had to expire: {gap:?}");
    cluster.start_manager(first)?;
    let seen = cluster.app(&app)?;
    ensure!(seen.id == app, "the accepted job is known: {seen:?}");
    ensure!(cluster.call(cluster.client().status())?.epoch > epoch);

    // Its process is stopped: another one leads when the lease has expired, and the first one ends
    // when it continues.
    let stopped = format!("rm-{second}");
    cluster.signal_daemon(&stopped, Signal::SIGSTOP)?;
    let third = next_leader(&cluster, second)?;
    cluster.until_ready()?;
    let other = cluster.submit(&job())?;
    cluster.signal_daemon(&stopped, Signal::SIGCONT)?;
    until("the deposed leader to end", SOON, || {
        Ok(cluster.has_ended(&stopped)?.then_some(()))
    })?;
    let log = cluster.log(&stopped);
    ensure!(log.contains("leads no longer"), "{log}");
    cluster.start_manager(second)?;

    // It is asked to end: it hands the leadership over.
    let asked = Instant::now();
    cluster.stop_daemon(&format!("rm-{third}"))?;
    next_leader(&cluster, third)?;
    ensure!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    ends_well(&cluster, &app)?;
    ends_well(&cluster, &other)
}

#[test]
fn without_etcd_nothing_is_accepted_and_nothing_is_lost() {
    without_etcd().expect("the job ends well");
}

fn without_etcd() -> Result<()> {
    let mut cluster = cluster()?;
    let leader = format!("rm-{}", cluster.leading_manager()?);
    let app = cluster.submit(&job())?;
    cluster.until_app(&app, "its tasks to run", SOON, |view| {
        (view.state == AppState::Running).then_some(())
    })?;
    cluster.etcd()?.kill(0)?;
    until("the leader to end", SOON, || {
        Ok(cluster.has_ended(&leader)?.then_some(()))
    })?;
    let refused = until("the reason to be shown", SOON, || {
        let answer = cluster.rmctl(&["status"])?;
        Ok(Some(answer).filter(|answer| answer.stderr.contains("no member of etcd answers")))
    })?;
    ensure!(refused.code == 6, "{refused:?}");
    // Containers continue without any resource manager.
    cluster.etcd()?.restart(0)?;
    cluster.start_manager(leader.trim_start_matches("rm-").parse()?)?;
    cluster.leading_manager()?;
    ends_well(&cluster, &app)
}

#[test]
#[allow(clippy::print_stderr)] // the reason for the skip
fn every_kind_of_failure_loses_nothing() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "SKIPPED: every_kind_of_failure_loses_nothing: only root can create networks and disks"
        );
        return;
    }
    let plan = FailurePlan {
        tasks: 24,
        rounds: u32::try_from(KINDS).expect("few"),
        lease: LEASE,
        pause: Duration::from_secs(5),
        seed: 7,
    };
    let results = run_failures(&plan, &mut |_| {}).expect("all rounds end");
    assert_eq!(
        (results.lost, results.twice, results.verdicts_lost),
        (0, 0, 0),
        "{:?}",
        results.notes
    );
    assert_eq!(results.gaps_ms.len(), KINDS);
    assert!(
        results.accepted > results.gaps_ms.len() as u64,
        "{results:?}"
    );
}

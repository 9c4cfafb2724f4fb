//! Unforked Apache Spark with several resource managers, one of which does not answer.

#![allow(missing_docs)] // a test binary has no public API

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::Bytes;
use integration::cluster::{Cluster, NodeShape, SOON, until};
use integration::spark::{SparkInstallation, WaitingJob, only_app};
use nix::sys::signal::Signal;

const LEASE: Duration = Duration::from_secs(1);
/// Timeout of a call of the plugin.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

#[test]
fn a_driver_leaves_a_paused_leader_when_another_one_leads() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let shape = NodeShape {
        memory: Bytes::from_mib(4096),
        ..NodeShape::default()
    };
    let cluster = Cluster::start_replicated(&[shape], (2, 1), LEASE)?;
    let waiting = WaitingJob::start(&spark, &cluster, &[])?;
    let app = only_app(&cluster)?.id;
    let leader = cluster.leading_manager()?;
    cluster.signal_daemon(&format!("rm-{leader}"), Signal::SIGSTOP)?;
    let paused = Instant::now();
    let next = cluster.leading_manager()?;
    ensure!(next != leader, "rm-{leader} is paused and leads");
    until("the driver to register at the next leader", SOON, || {
        let view = cluster.app(&app)?;
        let attempt = view.attempts.last().context("no attempt")?;
        Ok((attempt.state == "registered").then_some(()))
    })?;
    let took = paused.elapsed();
    ensure!(took < CALL_TIMEOUT, "the driver waited for {took:?}");

    waiting.end_undisturbed(&cluster)
}

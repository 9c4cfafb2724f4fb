//! The node of an application master is lost, with all its processes. With a shared directory of
//! journals, the next attempt continues on another node: no finished task runs again, and the
//! executors there continue. Without it, the job begins from the start.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;

use integration::cluster::{SOON, until};
use integration::lost_node::{GATED, JOURNALS, LostNode, QUICK, RUNNING};

#[test]
fn a_master_on_another_node_continues_its_job() {
    let mut job = LostNode::begin("moved", Some(JOURNALS)).expect("the job runs");
    let lost = job.lose_node().expect("the job ends well");
    let (before, after) = lost.on_other_node;
    assert_eq!(after, before, "the other executor and its tasks run on");
    assert_eq!(lost.rerun_finished, 0, "no finished task ran again");
    assert_eq!(
        lost.rerun_running,
        RUNNING / 2,
        "only the tasks of the lost node"
    );
    let totals = lost.end.job.expect("a job").totals;
    assert_eq!(totals.done, QUICK + GATED);
    let dir = job.cluster.dir().join(JOURNALS);
    until("the journal to be removed", SOON, || {
        Ok((fs::read_dir(&dir)?.count() == 0).then_some(()))
    })
    .expect("nothing is left of an ended job");
}

#[test]
fn without_a_shared_directory_the_job_begins_from_its_start() {
    let mut job = LostNode::begin("restarted", None).expect("the job runs");
    let lost = job.lose_node().expect("the job ends well");
    assert_eq!(lost.rerun_finished, QUICK, "the other node has no journal");
}

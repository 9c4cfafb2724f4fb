//! The node of an application master is lost, with all its processes. With a shared directory of
//! journals, or with its journal in the resource manager, the next attempt continues on another node:
//! no finished task runs again, and the executors there continue. Without either, the job begins from
//! the start.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;

use integration::cluster::{IN_RESOURCE_MANAGER, SOON, until};
use integration::lost_node::{JOURNALS, LostNode, QUICK, RUNNING};

#[test]
fn a_master_on_another_node_continues_its_job() {
    let mut job = LostNode::begin("moved", Some(JOURNALS)).expect("the job runs");
    let lost = job.lose_node().expect("the job ends well");
    lost.check_continued().expect("the next attempt continued");
    let dir = job.cluster.dir().join(JOURNALS);
    until("the journal to be removed", SOON, || {
        Ok((fs::read_dir(&dir)?.count() == 0).then_some(()))
    })
    .expect("nothing is left of an ended job");
}

#[test]
fn a_journal_in_the_resource_manager_survives_kills_of_both_hosts() {
    let mut job = LostNode::begin("kept", Some(IN_RESOURCE_MANAGER)).expect("the job runs");
    job.restart_manager().expect("it continues from its state");
    let lost = job.lose_node().expect("the job ends well");
    lost.check_continued().expect("the next attempt continued");
    let left = job.groups_in_state().expect("the state is whole");
    assert_eq!(left, 0, "nothing is left of an ended job");
}

#[test]
fn a_journal_in_a_secured_etcd_survives_the_leader_and_the_node() {
    let mut job = LostNode::begin_in_secured_etcd("replicated").expect("the job runs");
    let groups = job.groups_in_etcd().expect("etcd answers");
    assert!(groups > 0, "the journal is not in etcd");
    job.replace_leader().expect("the other manager continues");
    let lost = job.lose_node().expect("the job ends well");
    lost.check_continued().expect("the next attempt continued");
    until("the journal to be removed", SOON, || {
        Ok((job.groups_in_etcd()? == 0).then_some(()))
    })
    .expect("nothing is left of an ended job");
}

#[test]
fn without_the_resource_manager_a_slot_starts_one_task_at_most_and_none_runs_twice() {
    let mut job = LostNode::begin("waits", Some(IN_RESOURCE_MANAGER)).expect("the job runs");
    let (started, repeated) = job.end_without_manager().expect("the job ends well");
    // The resource manager may have answered in the last milliseconds.
    assert!(started <= RUNNING, "{started} tasks started");
    assert_eq!(repeated, 0);
}

#[test]
fn without_a_shared_directory_the_job_begins_from_its_start() {
    let mut job = LostNode::begin("restarted", None).expect("the job runs");
    let lost = job.lose_node().expect("the job ends well");
    assert_eq!(lost.rerun_finished, QUICK, "the other node has no journal");
}

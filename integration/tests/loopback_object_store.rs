//! Journals of masters in an object store: the node of a master is lost, with all its processes, and the
//! next attempt continues on another node. The agent checks the store.

#![allow(missing_docs)] // a test binary has no public API

use integration::cluster::{Cluster, NodeShape, SOON, until};
use integration::lost_node::LostNode;
use integration::object_store::ObjectStoreServer;

#[test]
fn a_master_on_another_node_continues_its_job_from_an_object_store() {
    let store = ObjectStoreServer::start().expect("the server starts");
    store.probe().expect("it has conditional writes");
    let mut job = LostNode::begin_in_object_store("stored", &store).expect("the job runs");
    let objects = store.objects().expect("the store answers");
    assert!(objects.len() > 1, "{objects:?}");
    let lost = job.lose_node().expect("the job ends well");
    lost.check_continued().expect("the next attempt continued");
    until("the journal to be removed", SOON, || {
        Ok(store.objects()?.is_empty().then_some(()))
    })
    .expect("nothing is left of an ended job");
}

#[test]
fn a_node_without_its_object_store_is_unhealthy_and_says_why() {
    let mut store = ObjectStoreServer::start().expect("the server starts");
    let shape = NodeShape::default();
    let cluster = Cluster::start_with_object_store(&[shape], "", &store).expect("it starts");
    cluster.until_ready().expect("the node is healthy");
    store.stop();
    let found = until("the node to be unhealthy", SOON, || {
        let nodes = cluster.call(cluster.client().nodes())?;
        let mut unhealthy = nodes.into_iter().filter(|node| node.state == "unhealthy");
        Ok(unhealthy.find_map(|node| node.not_ready_reason().map(str::to_owned)))
    })
    .expect("the check fails");
    assert!(
        found.contains("journals: s3://journals/cluster") && found.contains("object_store"),
        "{found}"
    );
}

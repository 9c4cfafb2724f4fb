//! A node whose disk is full takes no containers, and a job waits until the disk has room again.

#![allow(missing_docs)] // a test binary has no public API

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, NodeShape, SOON, until};
use integration::host_tmpfs::HostTmpfs;
use integration::jobs::JobFile;

const NODE: &str = "node-1";

/// State and reason of the node.
fn health(cluster: &Cluster) -> (String, String) {
    let nodes = cluster.call(cluster.client().nodes()).expect("answers");
    let node = nodes.into_iter().next().expect("a node");
    (node.state, node.reason.unwrap_or_default())
}

/// Writes a file until the disk is full.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("creates");
    let zeros = [0; 4096];
    let full = loop {
        if let Err(error) = file.write_all(&zeros) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
}

#[test]
fn a_job_waits_for_room_on_the_disk_of_its_node() {
    let mut cluster = Cluster::start(&[NodeShape::default()]).expect("a cluster");
    cluster.stop_daemon(NODE).expect("stops");
    let state = cluster.state(NODE);
    fs::remove_dir_all(&state).expect("removes");
    let _disk = HostTmpfs::mount(state.clone(), Some(Bytes::from_mib(8))).expect("mounts");
    cluster.start_node(NODE).expect("starts");
    cluster.until_ready().expect("is ready");

    let filler = state.join("filler");
    fill(&filler);
    let job = JobFile::new("waits", 1, 1, Bytes::from_mib(32)).stage("one", 1, &["true"], "");
    let app = cluster.submit(job.text()).expect("submits");
    let reason = until("an unhealthy node", SOON, || {
        let (state, reason) = health(&cluster);
        Ok((state == "unhealthy").then_some(reason))
    })
    .expect("is unhealthy");
    assert!(reason.contains("disk"), "{reason}");
    let waiting = cluster.app(&app).expect("the job");
    assert!(!waiting.state.is_final(), "{}", waiting.diagnostics);

    fs::remove_file(&filler).expect("removes");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert!(end.attempt <= 2, "{} masters for a full disk", end.attempt);
    assert_eq!(health(&cluster).0, "ready");
}

//! A drain of the host with the application master: the next master runs the job's tasks elsewhere
//! without waiting for the old executors.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::time::Duration;

use headroom_types::{Bytes, ContainerId};
use headroom_wire::v1::apps::{AppState, AppView};
use integration::cluster::{Cluster, ContainerOwner, NodeShape, SOON};
use integration::jobs::JobFile;

/// Well below the minute that an executor has for its hello: the next master does not wait for the
/// executors of the previous one.
const NEXT: Duration = Duration::from_secs(40);

fn all_run(view: &AppView) -> Option<()> {
    view.job
        .as_ref()
        .filter(|job| job.totals.running == 4)
        .map(|_| ())
}

#[test]
fn executors_of_a_master_without_a_journal_are_replaced() {
    let cluster = Cluster::start(&[NodeShape::default(); 2]).expect("a cluster");
    let gate = cluster.dir().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.1; done", gate.display());
    let job =
        JobFile::new("moved", 2, 2, Bytes::from_mib(32)).stage("wait", 4, &["sh", "-c", &wait], "");
    let app = cluster.submit(job.text()).expect("submits");
    cluster
        .until_app(&app, "four tasks to run", SOON, all_run)
        .expect("running tasks");
    let master = cluster
        .live_containers(&app, ContainerOwner::Master)
        .expect("containers")
        .remove(0);
    let before: Vec<ContainerId> = cluster
        .live_containers(&app, ContainerOwner::Executors)
        .expect("containers")
        .into_iter()
        .map(|c| c.id)
        .collect();

    let node = master.node.as_str();
    let drained = cluster
        .rmctl(&[
            "node",
            "drain",
            node,
            "--reason",
            "kernel upgrade",
            "--deadline",
            "1s",
        ])
        .expect("runs");
    assert_eq!(drained.code, 0, "{}{}", drained.stdout, drained.stderr);
    let again = |view: &AppView| (view.attempt == 2).then(|| all_run(view)).flatten();
    cluster
        .until_app(&app, "four tasks to run under the next master", NEXT, again)
        .expect("running tasks");
    let after = cluster
        .live_containers(&app, ContainerOwner::Executors)
        .expect("containers");
    assert!(
        after
            .iter()
            .all(|c| c.node != master.node && !before.contains(&c.id)),
        "{after:?}"
    );

    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(
        (end.state, end.attempt),
        (AppState::Finished, 2),
        "{}",
        end.diagnostics
    );
}

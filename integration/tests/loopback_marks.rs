//! Operators' changes to nodes and jobs, on real daemons: cordons, labels and taints survive a kill
//! of either daemon and control placement. A running job gets more executors, and its record is
//! purged after its end.

use headroom_types::{AppId, Bytes, NodeId};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::nodes::NodeView;
use integration::cluster::{Cluster, NodeShape, ProgramOutput, SOON, until};
use integration::jobs::JobFile;

fn rmctl(cluster: &Cluster, arguments: &[&str]) -> ProgramOutput {
    cluster.rmctl(arguments).expect("runs")
}

fn well(cluster: &Cluster, arguments: &[&str]) -> String {
    let ran = rmctl(cluster, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

fn node(cluster: &Cluster, name: &str) -> NodeView {
    cluster
        .call(
            cluster
                .client()
                .node(&name.parse::<NodeId>().expect("a name")),
        )
        .expect("the node")
}

/// Cordons the first node, labels and taints the second one, and restarts two daemons.
fn mark_and_restart(cluster: &mut Cluster) {
    well(
        cluster,
        &["node", "cordon", "node-1", "--reason", "a slow disk"],
    );
    well(cluster, &["node", "label", "node-2", "gpu", "zone=b"]);
    well(cluster, &["node", "taint", "node-2", "team=etl"]);
    cluster.kill_daemon("resourcemanager").expect("kills");
    cluster.kill_daemon("node-2").expect("kills");
    cluster.start_resource_manager().expect("starts");
    cluster.start_node("node-2").expect("starts");
    until("both nodes to register again", SOON, || {
        let known = cluster.call(cluster.client().nodes()).unwrap_or_default();
        Ok((known.len() == 2
            && known
                .iter()
                .all(|n| n.state == "ready" || n.state == "cordoned"))
        .then_some(()))
    })
    .expect("both nodes");
}

/// A job without tolerations does not fit, and its explanation names the taint.
fn a_taint_is_the_reason(cluster: &Cluster) -> AppId {
    let plain =
        JobFile::new("plain", 4, 1, Bytes::from_mib(400)).stage("nap", 4, &["sleep", "600"], "");
    let other = cluster.submit(plain.text()).expect("submits");
    let reason = until("the reason to name the taint", SOON, || {
        let why = rmctl(cluster, &["why", &other.to_string()]).stdout;
        Ok(why
            .contains("has taint team=etl, which it does not tolerate")
            .then_some(why))
    });
    let reason = reason.expect("the taint is the reason");
    assert!(
        !reason
            .lines()
            .any(|line| line.starts_with("node-2") && line.contains("closest")),
        "{reason}"
    );
    other
}

#[test]
fn marks_of_nodes_decide_placement_and_survive_restarts() {
    let mut cluster = Cluster::start(&[NodeShape::default(); 2]).expect("a cluster");
    mark_and_restart(&mut cluster);
    let (first, second) = (node(&cluster, "node-1"), node(&cluster, "node-2"));
    assert_eq!(
        (first.state.as_str(), first.not_ready_reason()),
        ("cordoned", Some("a slow disk"))
    );
    assert_eq!(
        (
            second.state.as_str(),
            second.traits.labels.len(),
            second.traits.taints.len()
        ),
        ("ready", 1, 1)
    );

    let job =
        JobFile::new("marks", 1, 1, Bytes::from_mib(32)).stage("nap", 1, &["sleep", "600"], "");
    let there = job.text().replace(
        "slots = 1",
        "slots = 1\nlabels = [\"gpu\"]\nattributes = { zone = \"b\" }\ntolerate = [\"team=etl\"]",
    );
    let app = cluster.submit(&there).expect("submits");
    let waits = |view: &AppView| {
        (view.pending > 0 && view.diagnostics.contains("its master waits")).then_some(())
    };
    cluster
        .until_app(&app, "its master to wait", SOON, waits)
        .expect("one node is cordoned, and the other one tainted");
    well(&cluster, &["node", "uncordon", "node-1"]);
    let runs = |view: &AppView| {
        view.job
            .as_ref()
            .filter(|job| job.totals.running == 1)
            .map(|_| ())
    };
    cluster
        .until_app(&app, "its task to run", SOON, runs)
        .expect("a running task");
    let containers = cluster
        .call(cluster.client().containers(Some(&app)))
        .expect("answers");
    let places: Vec<(bool, &str)> = containers
        .iter()
        .map(|c| (c.request.is_some(), c.node.as_str()))
        .collect();
    assert_eq!(
        places,
        [(false, "node-1"), (true, "node-2")],
        "the master tolerates nothing"
    );

    let other = a_taint_is_the_reason(&cluster);
    for app in [&app, &other] {
        well(&cluster, &["kill", &app.to_string(), "-y"]);
        cluster.until_ended(app).expect("ends");
    }
}

#[test]
fn a_job_is_scaled_and_purged_after_its_end() {
    let cluster = Cluster::of_one().expect("a cluster");
    let job =
        JobFile::new("scaled", 1, 1, Bytes::from_mib(32)).stage("nap", 3, &["sleep", "600"], "");
    let app = cluster.submit(job.text()).expect("submits");
    let name = app.to_string();
    let running = |n: u32| {
        move |view: &AppView| {
            view.job
                .as_ref()
                .filter(|job| job.totals.running == n)
                .map(|_| ())
        }
    };
    cluster
        .until_app(&app, "one task to run", SOON, running(1))
        .expect("a running task");
    let more = well(
        &cluster,
        &["job", "scale", &name, "3", "--reason", "in a hurry"],
    );
    assert!(
        more.contains("executors main: 1 → 3 at most: in a hurry"),
        "{more}"
    );
    cluster
        .until_app(&app, "three tasks to run", SOON, running(3))
        .expect("running tasks");
    let unknown = rmctl(&cluster, &["job", "scale", &format!("{name}/large"), "2"]);
    assert_eq!(
        (
            unknown.code,
            unknown
                .stderr
                .contains("the job has main; nothing was changed")
        ),
        (3, true),
        "{}",
        unknown.stderr
    );
    let lives = rmctl(&cluster, &["job", "purge", &name, "-y"]);
    assert_eq!(
        (
            lives.code,
            lives
                .stderr
                .contains("only an ended application can be purged")
        ),
        (4, true),
        "{}",
        lives.stderr
    );

    well(&cluster, &["kill", &name, "-y"]);
    assert_eq!(
        cluster.until_ended(&app).expect("ends").state,
        AppState::Killed
    );
    let past = well(
        &cluster,
        &["job", "history", "-o", "cols=id,state,tasks,oom_kills"],
    );
    assert!(
        past.lines().any(|line| line
            .split_whitespace()
            .eq([name.as_str(), "killed", "3", "0"])),
        "{past}"
    );
    well(&cluster, &["job", "purge", &name, "--dry-run"]);
    well(&cluster, &["job", "purge", &name, "-y"]);
    assert_eq!(rmctl(&cluster, &["ps", &name]).code, 3);
    assert!(!well(&cluster, &["job", "history", "-o", "name"]).contains(&name));
    assert_eq!(rmctl(&cluster, &["job", "purge", &name, "-y"]).code, 3);
}

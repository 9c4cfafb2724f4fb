//! Files that exist only by upload: they reach the node with its own certificate, survive a killed
//! resource manager, and are missed with a sentence.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_client::DryRunMode;
use headroom_types::{
    Bytes, Cpus, ExitReason, FetchedFile, FetchedFileKind, LaunchSpec, Resource, Sha256,
};
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{AppState, ContainerView};
use headroom_wire::v1::operator::LeaderView;
use integration::cluster::{Cluster, NodeShape, SOON, until};

/// A job whose task needs the file `from` with this text.
fn job(name: &str, from: &str) -> String {
    format!(
        "version = 1\nname = \"{name}\"\n[profiles.small]\nmemory = \"96MiB\"\ncpus = 0.5\n\
         [executors.small]\nprofile = \"small\"\nslots = 1\nreserve = \"64MiB\"\n\
         [retry]\ntransient = 0\nmax_attempts = 1\n\
         [[stage]]\nname = \"read\"\nexecutors = \"small\"\n\
         command = [\"grep\", \"-qx\", \"only here\", \"input\"]\n\
         files = [{{ name = \"input\", from = \"{from}\" }}]\n"
    )
}

fn write(cluster: &Cluster, name: &str, text: &str) -> String {
    let path = cluster.dir().join(name);
    fs::write(&path, text).expect("writes");
    path.display().to_string()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("lists").flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_that_exists_only_by_upload_reaches_the_task() {
    let shape = NodeShape {
        memory: Bytes::from_mib(512),
        ..NodeShape::default()
    };
    let mut cluster = Cluster::start_secured(&[shape]).expect("a cluster");
    let input = write(&cluster, "words.txt", "only here\n");
    let file = write(&cluster, "job.toml", &job("first", "upload:words.txt"));
    let plan = cluster
        .rmctl(&["submit", &file, "--dry-run"])
        .expect("runs");
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    let uploads = cluster.state("resourcemanager").join("uploads");
    assert!(names(&uploads).is_empty(), "a dry run uploads nothing");
    let sent = cluster
        .rmctl(&["submit", &file, "-o", "name"])
        .expect("runs");
    assert!(
        sent.code == 0 && sent.stderr.contains("uploaded") && sent.stderr.contains("words.txt"),
        "{}{}",
        sent.stdout,
        sent.stderr
    );
    fs::remove_file(input).expect("removes");
    let app = sent.stdout.trim().parse().expect("an id");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(ended.state, AppState::Finished, "{}", ended.diagnostics);

    // A killed resource manager keeps whole files only.
    let stored = names(&uploads);
    let [digest] = stored.as_slice() else {
        panic!("one file is stored: {stored:?}")
    };
    cluster.kill_daemon("resourcemanager").expect("kills");
    fs::write(uploads.join("unfinished-0"), "only h").expect("writes");
    cluster.start_resource_manager().expect("starts");
    cluster.until_ready().expect("is ready");
    assert_eq!(names(&uploads), stored);
    // The node has to fetch it again.
    cluster.kill_daemon("node-1").expect("kills");
    fs::remove_dir_all(cluster.state("node-1").join("cache")).expect("removes");
    cluster.start_node("node-1").expect("starts");
    cluster.until_ready().expect("is ready");
    let app = cluster
        .submit(&job("second", &format!("upload:{digest}")))
        .expect("submits");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(ended.state, AppState::Finished, "{}", ended.diagnostics);

    let other = "ab".repeat(32);
    let file = write(
        &cluster,
        "none.toml",
        &job("third", &format!("upload:{other}")),
    );
    let refused = cluster.rmctl(&["submit", &file]).expect("runs");
    assert!(
        refused.code == 3
            && refused
                .stderr
                .contains(&format!("no uploaded file {other}")),
        "{} {}",
        refused.code,
        refused.stderr
    );
}

fn uploads(cluster: &Cluster, manager: usize) -> PathBuf {
    cluster.state(&format!("rm-{manager}")).join("uploads")
}

/// Waits until every one of these managers has this file and no other.
fn until_copied(cluster: &Cluster, managers: &[usize], digest: &str) {
    until("copies on all managers", SOON, || {
        let has = |n: &usize| {
            let dir = uploads(cluster, *n);
            dir.is_dir() && names(&dir) == [digest]
        };
        Ok(managers.iter().all(has).then_some(()))
    })
    .expect("copies");
}

/// Submits a job that needs the uploaded file, on a node that has to fetch it.
fn needs_the_upload(cluster: &mut Cluster, name: &str, digest: &str) {
    cluster.kill_daemon("node-1").expect("kills");
    fs::remove_dir_all(cluster.state("node-1").join("cache")).expect("removes");
    cluster.start_node("node-1").expect("starts");
    cluster.until_ready().expect("is ready");
    let app = cluster
        .submit(&job(name, &format!("upload:{digest}")))
        .expect("submits");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(ended.state, AppState::Finished, "{}", ended.diagnostics);
}

#[test]
fn an_upload_outlives_the_disk_of_any_resource_manager() {
    let shape = NodeShape {
        memory: Bytes::from_mib(512),
        ..NodeShape::default()
    };
    let mut cluster =
        Cluster::start_replicated(&[shape], (3, 1), Duration::from_secs(1)).expect("a cluster");
    let first = cluster.leading_manager().expect("a leader");
    until("all managers to be known", SOON, || {
        let view = cluster.call(cluster.client().get::<LeaderView>("/v1/leader"))?;
        Ok((view.managers.len() == 3).then_some(()))
    })
    .expect("all are known");
    write(&cluster, "words.txt", "only here\n");
    let file = write(&cluster, "job.toml", &job("first", "upload:words.txt"));
    let sent = cluster
        .rmctl(&["submit", &file, "-o", "name"])
        .expect("runs");
    assert_eq!(sent.code, 0, "{}{}", sent.stdout, sent.stderr);
    let stored = names(&uploads(&cluster, first));
    let [digest] = stored.as_slice() else {
        panic!("one file is stored: {stored:?}")
    };
    let holders = (1..=3).filter(|n| names(&uploads(&cluster, *n)) == stored);
    assert!(
        holders.count() >= 2,
        "a majority has it when it is acknowledged"
    );
    until_copied(&cluster, &[1, 2, 3], digest);

    // The leader ends with its disk.
    cluster
        .kill_daemon(&format!("rm-{first}"))
        .expect("kills the leader");
    fs::remove_dir_all(uploads(&cluster, first)).expect("removes");
    cluster.leading_manager().expect("another one leads");
    needs_the_upload(&mut cluster, "second", digest);

    // A leader without a file gets it from another manager.
    let second = cluster.leading_manager().expect("leads");
    fs::remove_file(uploads(&cluster, second).join(digest)).expect("removes");
    needs_the_upload(&mut cluster, "third", digest);
    assert_eq!(names(&uploads(&cluster, second)), stored);

    // A manager that starts gets the files that it does not have.
    cluster.start_manager(first).expect("starts");
    until_copied(&cluster, &[1, 2, 3], digest);
}

#[test]
fn a_missing_upload_fails_the_launch_with_the_next_step() {
    let cluster = Cluster::of_one().expect("a cluster");
    let client = cluster.client();
    let submitted = cluster.register_master("master").expect("registers");
    let file = FetchedFile::uploaded("input", Sha256::new([7; 32]), FetchedFileKind::File);
    let launch = LaunchSpec {
        command: vec!["true".into()],
        fetch: vec![file],
        ..LaunchSpec::default()
    };
    let size = Resource::new(Bytes::from_mib(64), Cpus::from_milli(500));
    let ask = PlacementRequest::new("one".parse().expect("a request"), size, launch);
    cluster
        .call(client.create_request(&submitted.app, DryRunMode::Really, &ask))
        .expect("requests");
    let failed = until("the launch to fail", SOON, || {
        let all = cluster.call(client.containers(Some(&submitted.app)))?;
        let has_failed = |c: &ContainerView| c.reason == Some(ExitReason::LaunchFailed);
        Ok(all.into_iter().find(has_failed))
    })
    .expect("fails");
    let dir = cluster.state("node-1").join("containers");
    let report = dir.join(failed.id.to_string()).join("report.json");
    let text = fs::read_to_string(report).expect("reads");
    for word in ["the resource manager does not have it", "submit again"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

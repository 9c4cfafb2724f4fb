//! Executors of a job are drained for its escalated tasks, with real daemons: the wait is reported,
//! and other jobs are not affected.

#![allow(missing_docs, clippy::print_stdout)] // a test binary has no public API

use std::collections::BTreeSet;
use std::path::Path;

use headroom_types::{AppId, Bytes, ContainerId};
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::job::{AttemptRow, TaskState};
use integration::cluster::{Cluster, ContainerOwner, NodeShape, SOON};
use integration::programs;

/// One task of a job exceeds its slot and is killed after `sleep` seconds; the others wait for the
/// file `gate`.
fn job(name: &str, tasks: u32, sleep: u32, gate: &Path, more: &str) -> String {
    let (program, gate) = (
        programs::path("workload").expect("the workload is built"),
        gate.display(),
    );
    let script = format!(
        "case $HEADROOM_INDEX in 0) sleep {sleep}; exec {} act take:64;; *) while ! [ -e {gate} ]; do sleep 0.05; done;; esac",
        program.display()
    );
    format!(
        "version = 1\nname = \"{name}\"\n\
         [profiles.exec]\nmemory = \"144MiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 1\nreserve = \"96MiB\"\n\
         [[stage]]\nname = \"map\"\ncount = {tasks}\ngrow = false\ncommand = [\"sh\", \"-c\", '''{script}''']\n{more}"
    )
}

fn node(cpus: u32) -> NodeShape {
    NodeShape {
        memory: Bytes::from_mib(2048),
        cpus,
        enforcer: None,
    }
}

fn attempts(cluster: &Cluster, app: &AppId, task: &str) -> Vec<AttemptRow> {
    let job = cluster.app(app).expect("is there").job.expect("a job");
    job.tasks
        .into_iter()
        .find(|t| t.task.to_string() == task)
        .expect("the task")
        .attempts
}

fn live(cluster: &Cluster, app: &AppId) -> BTreeSet<ContainerId> {
    let all = cluster
        .live_containers(app, ContainerOwner::Executors)
        .expect("lists");
    all.into_iter().map(|c| c.id).collect()
}

/// Waits until a command of `rmctl` prints these words.
fn until_said(cluster: &Cluster, arguments: &[&str], words: &str) -> String {
    let said = || {
        let ran = cluster.rmctl(arguments)?;
        Ok(ran.stdout.contains(words).then_some(ran.stdout))
    };
    integration::cluster::until(words, SOON, said).unwrap_or_else(|e| {
        let last = cluster.rmctl(arguments).expect("runs");
        panic!(
            "{e:#}: rmctl {arguments:?} printed\n{}{}",
            last.stdout, last.stderr
        )
    })
}

#[test]
fn a_task_that_waits_for_its_own_job_shows_the_reason_on_this_host() {
    let cluster = Cluster::start(&[node(2)]).expect("a cluster");
    let gate = cluster.dir().join("gate");
    // The wait is bounded by half the run time of the killed attempt, because no other task has
    // ended.
    let app = cluster
        .submit(&job("full", 6, 8, &gate, "[retry]\ndrain_after = \"1h\"\n"))
        .expect("submits");
    let (id, task) = (app.to_string(), format!("{app}/map/0"));
    let before = until_said(
        &cluster,
        &["why", &task],
        "the job drains an executor for it",
    );
    assert!(
        before.contains("own-map-0-r2") && before.contains("waits for a container of "),
        "{before}"
    );
    println!("{before}");
    let words = "waits for an executor of its job to drain";
    let during = until_said(&cluster, &["why", &task], words);
    let whole = until_said(&cluster, &["why", &id], words);
    let list = until_said(&cluster, &["ps", &id, "-o", "wide"], words);
    println!("{during}\n{whole}\n{list}");
    let narrow = cluster.rmctl(&["ps", &id]).expect("runs").stdout;
    assert!(narrow.contains(words), "{narrow}");
    std::fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let tasks = end.job.expect("a job").tasks;
    assert!(tasks.iter().all(|t| t.state == TaskState::Done));
    assert_eq!(
        tasks.iter().map(|t| t.attempts.len()).sum::<usize>(),
        7,
        "the other tasks lost no attempt"
    );
}

#[test]
fn other_jobs_keep_their_containers_during_a_drain_on_this_host() {
    let cluster = Cluster::start(&[node(4)]).expect("a cluster");
    let (gate, other_gate) = (cluster.dir().join("gate"), cluster.dir().join("other"));
    let other = cluster
        .submit(
            &job("other", 3, 0, &other_gate, "")
                .replace("case $HEADROOM_INDEX in 0)", "case - in 0)"),
        )
        .expect("submits");
    let its = cluster
        .until_app(&other, "two executors", SOON, |app| {
            (app.job.as_ref()?.totals.running == 2).then(|| live(&cluster, &other))
        })
        .expect("runs");
    let app = cluster
        .submit(&job("full", 6, 1, &gate, ""))
        .expect("submits");
    let task = format!("{app}/map/0");
    until_said(
        &cluster,
        &["why", &task],
        "waits for an executor of its job to drain",
    );
    std::fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert_eq!(live(&cluster, &other), its, "the same containers as before");
    std::fs::write(&other_gate, "").expect("opens the gate");
    let end = cluster.until_ended(&other).expect("ends");
    let rows = end.job.expect("a job").tasks;
    assert_eq!(
        (end.state, rows.iter().map(|t| t.attempts.len()).max()),
        (AppState::Finished, Some(1))
    );
}

#[test]
fn escalated_tasks_with_fewer_processors_find_memory_on_this_host() {
    let cluster = Cluster::start(&[node(2)]).expect("a cluster");
    let gate = cluster.dir().join("gate");
    let text =
        job("narrow", 6, 0, &gate, "[retry]\ncpus = 0.2\n").replace("cpus = 1\n", "cpus = 0.9\n");
    let app = cluster.submit(&text).expect("submits");
    // The gate is closed, so no executor can drain, and there are 0.2 free processors.
    cluster
        .until_app(&app, "map/0 to be done", SOON, |app| {
            let row = app
                .job
                .as_ref()?
                .tasks
                .iter()
                .find(|t| t.task.to_string() == "map/0")?;
            (row.state == TaskState::Done).then_some(())
        })
        .expect("done while the others wait");
    assert_eq!(attempts(&cluster, &app, "map/0").len(), 2);
    std::fs::write(&gate, "").expect("opens the gate");
    assert_eq!(
        cluster.until_ended(&app).expect("ends").state,
        AppState::Finished
    );
}

//! Fenced stages on real daemons and a real file system: exactly one complete output for each task.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::TaskRow;
use integration::cluster::{Cluster, ContainerOwner, SOON, until};
use integration::jobs::JobFile;

const TASKS: u32 = 6;

/// All files below a directory, with their text.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("reads").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path
                    .strip_prefix(dir)
                    .expect("below it")
                    .display()
                    .to_string();
                found.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
    }
    found
}

fn outputs(attempt_of: impl Fn(u32) -> u32) -> BTreeMap<String, String> {
    let files = |n: u32| {
        let line = format!("{n}@{}\n", attempt_of(n));
        [
            (format!("map-{n}/first"), line.clone()),
            (format!("map-{n}/second"), line),
        ]
    };
    (0..TASKS).flat_map(files).collect()
}

/// A job with six tasks that write two files each and run `between` in between.
fn job(out: &Path, between: &str) -> JobFile {
    let line = format!(
        "echo {{index}}@{{attempt}} > {{output}}/first; {between}; echo {{index}}@{{attempt}} > $HEADROOM_OUTPUT/second"
    );
    let fenced = format!("idempotent = \"fenced\"\noutput = \"{}\"", out.display());
    JobFile::new("outputs", 2, 3, Bytes::from_mib(32)).stage(
        "map",
        TASKS,
        &["/bin/sh", "-c", &line],
        &fenced,
    )
}

fn row(app: &AppView, index: u32) -> &TaskRow {
    let tasks = &app.job.as_ref().expect("a job").tasks;
    tasks
        .iter()
        .find(|t| t.task.index == index && t.task.stage.as_str() == "map")
        .expect("a task")
}

#[test]
fn failed_attempts_leave_no_output_and_jobs_overwrite_none() {
    let cluster = Cluster::of_one().expect("a cluster");
    let out = cluster.dir().join("out");
    let check = format!(
        "[ $(cat {}/map-*/second | wc -l) = {TASKS} ]",
        out.display()
    );
    let file = job(&out, "[ {index}@{attempt} = 2@1 ] && exit 3; true").stage(
        "check",
        1,
        &["/bin/sh", "-c", &check],
        "after = [\"map\"]",
    );
    let app = cluster.submit(file.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let reasons: Vec<_> = row(&end, 2)
        .attempts
        .iter()
        .filter_map(|a| a.reason)
        .collect();
    assert_eq!(
        reasons,
        [ExitReason::Exit { code: 3 }, ExitReason::Exit { code: 0 }]
    );
    let whole = outputs(|n| if n == 2 { 2 } else { 1 });
    assert_eq!(
        tree(&out),
        whole,
        "the partial output of the failed attempt and all temporary files are removed"
    );
    let left = format!("{app} {}", end.submitted.0);
    fs::create_dir_all(out.join(".headroom").join(app.to_string()))
        .expect("creates the files of a lost master");
    fs::write(out.join(".headroom/owner"), left).expect("writes");
    let again = cluster.submit(job(&out, "true").text()).expect("submits");
    let refused = cluster.until_ended(&again).expect("ends");
    assert_eq!(refused.state, AppState::Failed, "{}", refused.diagnostics);
    assert!(
        refused.diagnostics.contains("map-0 already exists"),
        "{}",
        refused.diagnostics
    );
    assert_eq!(
        tree(&out),
        whole,
        "the leftovers of the first master are removed"
    );
}

/// The executor only has to create a directory.
#[test]
fn the_executor_in_python_serves_a_fenced_stage() {
    let cluster = Cluster::of_one().expect("a cluster");
    let out = cluster.dir().join("out");
    let python = [
        "python3",
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../client/executor/examples/executor.py"
        ),
    ];
    let text = job(&out, "true")
        .text()
        .replace("slots = 3", &format!("slots = 3\nprogram = {python:?}"));
    let app = cluster.submit(&text).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert_eq!(tree(&out), outputs(|_| 1));
}

#[test]
fn a_restarted_master_commits_outputs_of_ended_tasks() {
    let cluster = Cluster::of_one().expect("a cluster");
    let (out, gate) = (cluster.dir().join("out"), cluster.dir().join("gate"));
    let wait = format!("while ! [ -e {} ]; do sleep 0.05; done", gate.display());
    let app = cluster.submit(job(&out, &wait).text()).expect("submits");
    let have_started = || {
        out.exists()
            && tree(&out)
                .keys()
                .filter(|file| file.ends_with("-1/first"))
                .count()
                == TASKS as usize
    };
    until("all tasks to start", SOON, || {
        Ok(have_started().then_some(()))
    })
    .expect("begin");
    let masters = cluster
        .live_containers(&app, ContainerOwner::Master)
        .expect("containers");
    Cluster::kill_process(cluster.container_pid(&masters[0]).expect("a process")).expect("kills");
    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert!(
        (0..TASKS).all(|n| row(&end, n).attempts.len() == 1),
        "no task ran again"
    );
    assert_eq!(tree(&out), outputs(|_| 1));
}

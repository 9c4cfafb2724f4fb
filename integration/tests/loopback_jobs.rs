//! Jobs under kills of every kind, on real daemons: who is charged, who is run again, with how much.

#![allow(missing_docs)] // tests are read, not imported

use std::fs;
use std::path::PathBuf;

use headroom_types::{Bytes, Charge, EnforcerKind, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use integration::cluster::{Cluster, NodeShape, SOON, Whose, until};
use integration::guest::Guest;
use integration::jobs::{JobFile, WorkLog};
use integration::on_host_and_in_guest;

fn guest() -> Guest {
    Guest::new().with_programs().memory(Bytes::from_mib(1536)).timeout(std::time::Duration::from_secs(100))
}

fn task<'a>(app: &'a AppView, id: &str) -> &'a TaskRow {
    let job = app.job.as_ref().expect("a job");
    job.tasks.iter().find(|t| t.task.to_string() == id).unwrap_or_else(|| panic!("no task {id}"))
}

fn reasons(row: &TaskRow) -> Vec<ExitReason> {
    row.attempts.iter().filter_map(|a| a.reason).collect()
}

fn sizes(row: &TaskRow) -> Vec<Bytes> {
    row.attempts.iter().map(|a: &AttemptRow| a.profile.memory()).collect()
}

/// One task of five needs almost three times its share; only that one is given more, and only that one runs again.
fn a_large_task_among_small_ones() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("skewed", 1, 4, Bytes::from_mib(32));
    let job = job.workload("small", 4, log.path(), &["--mib", "8", "--over-ms", "200"]).expect("a stage");
    let job = job.workload("large", 1, log.path(), &["--mib", "88"]).expect("a stage");
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    let (last, killed) = large.attempts.split_last().expect("attempts");
    assert!(!killed.is_empty() && killed.iter().all(|a| a.reason == Some(ExitReason::TaskOom)), "{:?}", reasons(large));
    assert_eq!(last.reason, Some(ExitReason::Exit { code: 0 }));
    assert!(sizes(large).is_sorted() && last.profile.memory() >= Bytes::from_mib(88), "{:?}", sizes(large));
    for n in 0..4 {
        assert_eq!(task(&end, &format!("small/{n}")).attempts.len(), 1, "a neighbour was run again");
    }
    let totals = &end.job.as_ref().expect("a job").totals;
    assert_eq!((totals.memory_kills as usize, totals.escalated, totals.innocent_reruns), (killed.len(), 1, 0));
    assert!(log.starts().iter().filter(|(t, _)| t.starts_with("small")).all(|(_, n)| *n == 1), "{:?}", log.starts());
}
on_host_and_in_guest!(skewed, guest(), a_large_task_among_small_ones);

/// Without any rights to make cgroups the agents measure and kill by themselves; the story is the same, and labelled.
#[test]
fn without_cgroups_a_large_task_is_found_by_measuring() {
    let shape = NodeShape { enforcer: Some(EnforcerKind::Poll), ..NodeShape::default() };
    let cluster = Cluster::start(&[shape]).expect("a cluster");
    assert_eq!(cluster.call(cluster.client().status()).expect("answers").enforcers, ["poll"]);
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("measured", 1, 4, Bytes::from_mib(32));
    let job = job.workload("small", 3, log.path(), &["--mib", "8", "--over-ms", "200"]).expect("a stage");
    let job = job.workload("large", 1, log.path(), &["--mib", "88", "--over-ms", "2000"]).expect("a stage");
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    let first = large.attempts.first().expect("attempts");
    assert_eq!(first.reason.map(|r| r.charge()), Some(Charge::Memory), "{:?}", reasons(large));
    assert_eq!(first.evidence.as_ref().map(|e| e.enforcer), Some(EnforcerKind::Poll));
    assert_eq!(end.job.as_ref().expect("a job").totals.innocent_reruns, 0);
}

/// Somebody kills the executor's process from outside: nobody's memory, so the same size again, and no charge.
fn an_executor_is_killed_from_outside() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let gate = cluster.dir().join("gate");
    let arguments = ["--mib", "4", "--until", gate.to_str().expect("UTF-8")];
    let job = JobFile::new("outside", 1, 2, Bytes::from_mib(32)).workload("map", 2, log.path(), &arguments).expect("a stage");
    let app = cluster.submit(job.text()).expect("submits");
    until("both tasks to run", SOON, || Ok((log.started().len() == 2).then_some(()))).expect("start");
    let executors = cluster.live_containers(&app, Whose::Executors).expect("containers");
    assert_eq!(executors.len(), 1);
    Cluster::kill_process(cluster.container_pid(&executors[0]).expect("a process")).expect("kills");
    until("both tasks to run again", SOON, || Ok((log.started().len() == 4).then_some(()))).expect("start again");
    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    for n in 0..2 {
        let row = task(&end, &format!("map/{n}"));
        assert_eq!(row.attempts.len(), 2, "{:?}", reasons(row));
        assert_eq!(reasons(row)[0].charge(), Charge::Free, "{:?}", reasons(row));
        assert_eq!(sizes(row)[0], sizes(row)[1], "an innocent task was given another size");
    }
    let totals = &end.job.as_ref().expect("a job").totals;
    assert_eq!((totals.memory_kills, totals.escalated, totals.transient), (0, 0, 2));
}
on_host_and_in_guest!(outside, guest(), an_executor_is_killed_from_outside);

/// The limit file of the fence around all containers of a node, and the file that says how much is in use.
fn fence(cluster: &Cluster, node: &str) -> Option<(PathBuf, PathBuf)> {
    let dir = cluster.cgroup(node)?.join("containers");
    let names = if dir.join("memory.max").exists() {
        ("memory.max", "memory.current")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
    };
    Some((dir.join(names.0), dir.join(names.1)))
}

fn number(file: &PathBuf) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.trim().parse().unwrap_or(u64::MAX)
}

/// A task far below its own limit is killed because an outer one was lowered under it: not its fault.
fn the_fence_around_all_containers_is_hit() {
    let cluster = Cluster::start(&[NodeShape { memory: Bytes::from_mib(900), cpus: 4, enforcer: None }]).expect("a cluster");
    let Some((limit, current)) = fence(&cluster, "node-1") else {
        panic!("no kernel enforcer here: this test needs cgroups and the right to make them");
    };
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("fence", 1, 1, Bytes::from_mib(400));
    let job = job.workload("ramp", 1, log.path(), &["--mib", "300", "--over-ms", "6000"]).expect("a stage");
    let before = number(&limit);
    let app = cluster.submit(job.text()).expect("submits");
    until("the task to grow", SOON, || Ok((number(&current) > 250 << 20).then_some(()))).expect("grows");
    fs::write(&limit, (number(&current) + (8 << 20)).to_string()).expect("lowers the fence");
    let killed = |view: &AppView| task(view, "ramp/0").attempts.first()?.reason;
    let reason = cluster.until_app(&app, "the kill to be told", SOON, killed).expect("is told");
    fs::write(&limit, before.to_string()).expect("puts the fence back");
    assert_eq!(reason, ExitReason::AncestorOom);
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let row = task(&end, "ramp/0");
    assert!(sizes(row).windows(2).all(|w| w[0] == w[1]), "an innocent task was given another size: {:?}", sizes(row));
    assert_eq!(end.job.as_ref().expect("a job").totals.memory_kills, 0);
}
on_host_and_in_guest!(outer_limit, guest(), the_fence_around_all_containers_is_hit);

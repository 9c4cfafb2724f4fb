//! Growth of running tasks with real daemons: a task is not killed if it can grow, and is killed
//! otherwise.

#![allow(missing_docs, clippy::print_stdout)] // a test binary has no public API

use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::TaskRow;
use integration::cluster::{Cluster, ContainerOwner, NodeShape, SOON, until};
use integration::guest::Guest;
use integration::jobs::{JobFile, WorkLog};
use integration::{on_host_and_in_guest, programs};
use nix::sys::signal::Signal;

/// Memory of a master's container.
const MASTER: Bytes = Bytes::from_mib(72);

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_mib(1536))
        .timeout(std::time::Duration::from_secs(280))
}

/// Adds a stage of the workload with further keys.
fn stage(
    job: JobFile,
    name: &str,
    count: u32,
    log: &WorkLog,
    arguments: &[&str],
    more: &str,
) -> JobFile {
    let program = programs::path("workload").expect("the workload is built");
    let log = log.path().to_str().expect("UTF-8");
    let mut command = vec![program.to_str().expect("UTF-8"), "run", "--log", log];
    command.extend(arguments);
    job.stage(name, count, &command, more)
}

fn task<'a>(app: &'a AppView, id: &str) -> &'a TaskRow {
    let job = app.job.as_ref().expect("a job");
    job.tasks
        .iter()
        .find(|t| t.task.to_string() == id)
        .unwrap_or_else(|| panic!("no task {id}"))
}

fn finished(cluster: &Cluster, job: &JobFile) -> AppView {
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    end
}

/// One of five tasks needs three times its share. No task is killed unless its stage sets grow =
/// false.
fn a_task_grows_to_three_times_its_share() {
    let cluster = Cluster::of_one().expect("a cluster");
    let run = |name: &str, more: &str| {
        let log = WorkLog::at(cluster.dir().join(format!("{name}.log")));
        let job = JobFile::new(name, 1, 2, Bytes::from_mib(48));
        let job = stage(
            job,
            "small",
            4,
            &log,
            &["--mib", "8", "--over-ms", "100"],
            more,
        );
        let job = stage(
            job,
            "large",
            1,
            &log,
            &["--mib", "144", "--over-ms", "300"],
            more,
        );
        (finished(&cluster, &job), log)
    };
    let (end, log) = run("growing", "");
    let (totals, large) = (
        &end.job.as_ref().expect("a job").totals,
        task(&end, "large/0"),
    );
    assert_eq!(
        (
            totals.memory_kills,
            totals.escalated,
            totals.collateral_reruns
        ),
        (0, 0, 0),
        "{totals:?}"
    );
    assert_eq!(
        (large.attempts.len(), log.starts()["large/0"]),
        (1, 1),
        "the task ran once"
    );
    let attempt = &large.attempts[0];
    assert!(
        attempt.profile.memory() >= Bytes::from_mib(144) && attempt.grown.len() >= 3,
        "{:?}",
        attempt.grown
    );
    assert!(
        attempt
            .peak
            .is_some_and(|peak| peak >= Bytes::from_mib(144)),
        "{:?}",
        attempt.peak
    );
    assert_eq!(
        usize::try_from(totals.grown).ok(),
        Some(attempt.grown.len())
    );
    let held: Vec<Option<u64>> = attempt.grown.iter().map(|g| g.frozen_us).collect();
    assert!(
        held.iter().all(Option::is_some),
        "every growth has a freeze time: {held:?}"
    );
    println!("freeze times in microseconds: {held:?}");
    let (end, _) = run("killing", "grow = false");
    let kills = end.job.as_ref().expect("a job").totals.memory_kills;
    assert!(kills >= 1, "without growth the same job must kill");
    println!("kills without growth: {kills}");
}
on_host_and_in_guest!(grown, guest(), a_task_grows_to_three_times_its_share);

/// The resource manager does not answer: the task stays frozen for the hold time of its stage. Then
/// the kernel kills it at its own limit, and the ladder continues.
fn the_kernel_kills_after_the_freeze_timeout() {
    let cluster = Cluster::of_one().expect("a cluster");
    let (log, gate) = (
        WorkLog::at(cluster.dir().join("work.log")),
        cluster.dir().join("gate"),
    );
    let gate_text = gate.to_str().expect("UTF-8");
    let job = JobFile::new("held", 1, 1, Bytes::from_mib(48));
    let job = stage(
        job,
        "large",
        1,
        &log,
        &["--mib", "96", "--after", gate_text],
        "grow = true\ngrow_hold = \"1s\"",
    );
    let app = cluster.submit(job.text()).expect("submits");
    until("the task to run", SOON, || {
        Ok((log.started().len() == 1).then_some(()))
    })
    .expect("starts");
    let signal = |signal| cluster.signal_daemon("resourcemanager", signal);
    signal(Signal::SIGSTOP).expect("stops");
    std::fs::write(&gate, "").expect("opens the gate");
    let first = log.started()[0];
    let died = until("the kernel to kill it", SOON, || {
        Ok((!std::path::Path::new(&format!("/proc/{first}/cmdline")).exists()).then_some(()))
    });
    signal(Signal::SIGCONT).expect("goes on");
    died.expect("is killed");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    assert_eq!(
        large.attempts[0].reason,
        Some(ExitReason::TaskOom),
        "its own limit: {:?}",
        large.attempts[0].evidence
    );
    assert!(
        large.attempts.len() >= 2 && large.attempts[0].grown.is_empty(),
        "{:?}",
        large.attempts[0].grown
    );
}
on_host_and_in_guest!(
    freeze_timeout,
    guest(),
    the_kernel_kills_after_the_freeze_timeout
);

/// No node has more memory: growth is refused, and the ladder continues.
fn a_full_node_refuses_growth() {
    let shape = NodeShape {
        memory: Bytes::from_mib(320),
        cpus: 4,
        enforcer: None,
    };
    let cluster = Cluster::start(&[shape]).expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("full", 1, 1, Bytes::from_mib(48));
    let job = stage(
        job,
        "large",
        1,
        &log,
        &["--mib", "400", "--over-ms", "200"],
        "grow = true",
    );
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Failed, "the task fits on no node");
    let large = task(&end, "large/0");
    assert!(
        large
            .attempts
            .iter()
            .all(|a| a.reason == Some(ExitReason::TaskOom)),
        "{:?}",
        large.attempts
    );
}
on_host_and_in_guest!(full_node, guest(), a_full_node_refuses_growth);

/// Two executors fill the node, and each task waits for the memory of the other. One task is
/// evicted and runs again; none is killed.
fn a_deadlocked_task_is_evicted() {
    let share = Bytes::from_mib(64);
    // The master's container, two executors, and less than a step of growth.
    let shape = NodeShape {
        memory: MASTER.saturating_add(Bytes::from_mib(2 * (96 + 64) + 16)),
        cpus: 8,
        enforcer: None,
    };
    let cluster = Cluster::start(&[shape]).expect("a cluster");
    let (log, gate) = (
        WorkLog::at(cluster.dir().join("work.log")),
        cluster.dir().join("gate"),
    );
    let gate_text = gate.to_str().expect("UTF-8");
    let job = JobFile::new("tight", 2, 1, share);
    let job = stage(
        job,
        "map",
        2,
        &log,
        &["--mib", "110", "--after", gate_text, "--over-ms", "3000"],
        "grow_hold = \"60s\"",
    );
    let app = cluster.submit(job.text()).expect("submits");
    until("both to run", SOON, || {
        Ok((log.started().len() == 2).then_some(()))
    })
    .expect("start");
    std::fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let totals = &end.job.as_ref().expect("a job").totals;
    assert_eq!(
        (totals.memory_kills, totals.evicted, totals.done),
        (0, 1, 2),
        "{totals:?}"
    );
    let attempts: Vec<usize> = ["map/0", "map/1"]
        .iter()
        .map(|id| task(&end, id).attempts.len())
        .collect();
    assert_eq!(
        attempts.iter().sum::<usize>(),
        3,
        "exactly one task ran twice: {attempts:?}"
    );
}
on_host_and_in_guest!(contention, guest(), a_deadlocked_task_is_evicted);

/// The master is killed repeatedly while a task grows. The task still gets its memory and runs
/// once.
fn masters_die_while_a_task_grows() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("restarted", 1, 1, Bytes::from_mib(48));
    let job = stage(
        job,
        "large",
        1,
        &log,
        &["--mib", "300", "--over-ms", "6000"],
        "grow = true",
    );
    let app = cluster.submit(job.text()).expect("submits");
    for size in [72, 108, 168] {
        let grown = |view: &AppView| {
            let large = view
                .job
                .as_ref()?
                .tasks
                .iter()
                .find(|t| t.task.to_string() == "large/0")?;
            (large.profile.memory() >= Bytes::from_mib(size)).then_some(())
        };
        cluster
            .until_app(&app, "the task to grow", SOON, grown)
            .expect("grows");
        let master = cluster
            .live_containers(&app, ContainerOwner::Master)
            .expect("containers");
        let Some(master) = master.first() else {
            continue;
        };
        if let Ok(pid) = cluster.container_pid(master) {
            Cluster::kill_process(pid).expect("kills the master");
        }
    }
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    assert_eq!(
        (large.attempts.len(), log.starts()["large/0"]),
        (1, 1),
        "{:?}",
        large.attempts
    );
    assert_eq!(end.job.as_ref().expect("a job").totals.memory_kills, 0);
    assert!(
        end.attempts.len() >= 2,
        "the master was started again: {:?}",
        end.attempts.len()
    );
}
on_host_and_in_guest!(master_dies, guest(), masters_die_while_a_task_grows);

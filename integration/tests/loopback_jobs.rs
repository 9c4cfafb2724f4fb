//! Jobs with kills of all kinds, on real daemons: the charge, the tasks that run again, and their
//! sizes.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::PathBuf;

use headroom_types::{Bytes, EnforcerKind, ExitCharge, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use integration::cluster::{Cluster, ContainerOwner, JOB, NodeShape, SOON, until};
use integration::guest::Guest;
use integration::jobs::{JobFile, WorkLog};
use integration::on_host_and_in_guest;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_mib(1536))
        .timeout(std::time::Duration::from_secs(280))
}

fn task<'a>(app: &'a AppView, id: &str) -> &'a TaskRow {
    let job = app.job.as_ref().expect("a job");
    job.tasks
        .iter()
        .find(|t| t.task.to_string() == id)
        .unwrap_or_else(|| panic!("no task {id}"))
}

fn reasons(row: &TaskRow) -> Vec<ExitReason> {
    row.attempts.iter().filter_map(|a| a.reason).collect()
}

fn sizes(row: &TaskRow) -> Vec<Bytes> {
    row.attempts
        .iter()
        .map(|a: &AttemptRow| a.profile.memory())
        .collect()
}

/// One task of five needs almost three times its share. Only that task gets more, and only that
/// task runs again.
fn a_large_task_among_small_ones() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("skewed", 1, 4, Bytes::from_mib(32));
    let job = job
        .workload("small", 4, log.path(), &["--mib", "8", "--over-ms", "200"])
        .expect("a stage");
    let job = job
        .workload("large", 1, log.path(), &["--mib", "88"])
        .expect("a stage")
        .without_growth();
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    let (last, killed) = large.attempts.split_last().expect("attempts");
    assert!(
        !killed.is_empty() && killed.iter().all(|a| a.reason == Some(ExitReason::TaskOom)),
        "{:?}",
        reasons(large)
    );
    assert_eq!(last.reason, Some(ExitReason::Exit { code: 0 }));
    assert!(
        sizes(large).is_sorted() && last.profile.memory() >= Bytes::from_mib(88),
        "{:?}",
        sizes(large)
    );
    for n in 0..4 {
        assert_eq!(
            task(&end, &format!("small/{n}")).attempts.len(),
            1,
            "a neighbour was run again"
        );
    }
    let totals = &end.job.as_ref().expect("a job").totals;
    assert_eq!(
        (
            totals.memory_kills as usize,
            totals.escalated,
            totals.collateral_reruns
        ),
        (killed.len(), 1, 0)
    );
    assert!(
        log.starts()
            .iter()
            .filter(|(t, _)| t.starts_with("small"))
            .all(|(_, n)| *n == 1),
        "{:?}",
        log.starts()
    );
}
on_host_and_in_guest!(skewed, guest(), a_large_task_among_small_ones);

/// Without permission to create cgroups, the agents measure and kill by themselves. The result is
/// the same and is marked as such.
#[test]
fn without_cgroups_a_large_task_is_found_by_measurement() {
    let shape = NodeShape {
        enforcer: Some(EnforcerKind::Poll),
        ..NodeShape::default()
    };
    let cluster = Cluster::start(&[shape]).expect("a cluster");
    assert_eq!(
        cluster
            .call(cluster.client().status())
            .expect("answers")
            .enforcers,
        ["poll"]
    );
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("measured", 1, 4, Bytes::from_mib(32));
    let job = job
        .workload("small", 3, log.path(), &["--mib", "8", "--over-ms", "200"])
        .expect("a stage");
    let job = job
        .workload(
            "large",
            1,
            log.path(),
            &["--mib", "88", "--over-ms", "2000"],
        )
        .expect("a stage");
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let large = task(&end, "large/0");
    let first = large.attempts.first().expect("attempts");
    assert_eq!(
        first.reason.map(|r| r.charge()),
        Some(ExitCharge::Memory),
        "{:?}",
        reasons(large)
    );
    assert_eq!(
        first.evidence.as_ref().map(|e| e.enforcer),
        Some(EnforcerKind::Poll)
    );
    assert_eq!(end.job.as_ref().expect("a job").totals.collateral_reruns, 0);
}

/// The executor's process is killed from outside: the tasks run again at the same size, without a
/// charge.
fn an_executor_is_killed_from_outside() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let gate = cluster.dir().join("gate");
    let arguments = ["--mib", "4", "--until", gate.to_str().expect("UTF-8")];
    let job = JobFile::new("outside", 1, 2, Bytes::from_mib(32))
        .workload("map", 2, log.path(), &arguments)
        .expect("a stage");
    let app = cluster.submit(job.text()).expect("submits");
    until("both tasks to run", SOON, || {
        Ok((log.started().len() == 2).then_some(()))
    })
    .expect("start");
    let executors = cluster
        .live_containers(&app, ContainerOwner::Executors)
        .expect("containers");
    assert_eq!(executors.len(), 1);
    Cluster::kill_process(cluster.container_pid(&executors[0]).expect("a process")).expect("kills");
    until("both tasks to run again", SOON, || {
        Ok((log.started().len() == 4).then_some(()))
    })
    .expect("start again");
    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    for n in 0..2 {
        let row = task(&end, &format!("map/{n}"));
        assert_eq!(row.attempts.len(), 2, "{:?}", reasons(row));
        assert_eq!(
            reasons(row)[0].charge(),
            ExitCharge::Free,
            "{:?}",
            reasons(row)
        );
        assert_eq!(
            sizes(row)[0],
            sizes(row)[1],
            "a collateral task got another size"
        );
    }
    let totals = &end.job.as_ref().expect("a job").totals;
    assert_eq!(
        (totals.memory_kills, totals.escalated, totals.transient),
        (0, 0, 2)
    );
}
on_host_and_in_guest!(
    killed_from_outside,
    guest(),
    an_executor_is_killed_from_outside
);

/// Uses at least 64 MiB in any POSIX shell.
const GREEDY: &str =
    "x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; exit 0";

/// Tasks of jobs that root submits run as an unprivileged user. Their executors still create a
/// cgroup for each task, with effective limits.
#[test]
#[allow(clippy::print_stderr)] // the reason for the skip
fn tasks_of_another_user_have_limits_of_their_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "SKIPPED: tasks_of_another_user_have_limits_of_their_own: only root can start programs as another user"
        );
        return;
    }
    let submitter = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| "root".to_owned());
    let configuration = format!(
        "[isolation]\nprivate_tmp = false\n[isolation.users]\nroot = \"nobody\"\n\"{submitter}\" = \"nobody\"\n"
    );
    let configuration = if submitter == "root" {
        configuration.replacen("root = \"nobody\"\n", "", 1)
    } else {
        configuration
    };
    let cluster =
        Cluster::start_configured(&[NodeShape::default()], &configuration).expect("a cluster");
    let check = "[ \"$(id -un)\" = nobody ] || exit 9; grep -q /task- /proc/self/cgroup || exit 8; echo 8 > $HEADROOM_CGROUP/x && exit 7";
    let job = JobFile::new("nobodys", 1, 4, Bytes::from_mib(32));
    let job = job.stage(
        "who",
        2,
        &["/bin/sh", "-c", &format!("{check}; exit 0")],
        "",
    );
    let job = job.stage(
        "large",
        1,
        &["/bin/sh", "-c", GREEDY],
        "after = [\"who\"]\ngrow = false",
    );
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    for n in 0..2 {
        assert_eq!(
            reasons(task(&end, &format!("who/{n}"))),
            [ExitReason::Exit { code: 0 }]
        );
    }
    let large = task(&end, "large/0");
    let (last, killed) = large.attempts.split_last().expect("attempts");
    assert!(
        !killed.is_empty() && killed.iter().all(|a| a.reason == Some(ExitReason::TaskOom)),
        "{:?}",
        reasons(large)
    );
    assert_eq!(last.reason, Some(ExitReason::Exit { code: 0 }));
    let Some((limit, _)) = fence(&cluster, "node-1") else {
        return;
    };
    let containers = limit.parent().expect("a directory").to_owned();
    let groups = || {
        fs::read_dir(&containers)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.path().is_dir())
            .count()
    };
    until("all cgroups to be removed", SOON, || {
        Ok((groups() == 0).then_some(()))
    })
    .expect("no leftovers");
    let apps = cluster.state("node-1").join("apps");
    let left = || fs::read_dir(&apps).map_or(0, Iterator::count);
    until(
        "the directory of the application to be removed",
        JOB,
        || Ok((left() == 0).then_some(())),
    )
    .expect("no leftovers");
}

/// A stage names a program by URL and a data file by path; its tasks find both in their directory.
#[test]
fn a_stage_finds_the_files_of_its_job_file() {
    let cluster = Cluster::of_one().expect("a cluster");
    let program = b"#!/bin/sh\ncat data.txt > out-$1; [ \"$(cat data.txt)\" = seven ]\n";
    let sum = sha256(&cluster, program);
    let address = serve(program);
    let data = cluster.dir().join("data.txt");
    fs::write(&data, "seven\n").expect("writes");
    let files = format!(
        "files = [{{ name = \"tool\", from = \"{address}/tool\", sha256 = \"{sum}\", kind = \"program\" }},\n\
         {{ name = \"data.txt\", from = \"{}\" }}]",
        data.display()
    );
    let job = JobFile::new("with-files", 1, 2, Bytes::from_mib(32)).stage(
        "map",
        2,
        &["./tool", "{index}"],
        &files,
    );
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let wrong = JobFile::new("no-sum", 1, 2, Bytes::from_mib(32));
    let wrong = wrong.stage(
        "map",
        1,
        &["./tool"],
        &format!("files = [{{ name = \"tool\", from = \"{address}/tool\" }}]"),
    );
    let refused = cluster
        .submit(wrong.text())
        .expect_err("no sum")
        .to_string();
    assert!(
        refused.contains("stage.map.files[0]") && refused.contains("sha256"),
        "{refused}"
    );
}

/// The SHA-256 sum as `sha256sum` prints it.
fn sha256(cluster: &Cluster, bytes: &[u8]) -> String {
    let file = cluster.dir().join("summed");
    fs::write(&file, bytes).expect("writes");
    let ran = std::process::Command::new("sha256sum")
        .arg(&file)
        .output()
        .expect("sha256sum runs");
    String::from_utf8_lossy(&ran.stdout)
        .split_whitespace()
        .next()
        .expect("a sum")
        .to_owned()
}

/// Serves one file on a separate thread until the end of the test process.
fn serve(bytes: &'static [u8]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for peer in listener.incoming() {
            let Ok(mut peer) = peer else { return };
            let mut request = [0; 4096];
            let _ = peer.read(&mut request);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                bytes.len()
            );
            let _ = peer
                .write_all(head.as_bytes())
                .and_then(|()| peer.write_all(bytes));
        }
    });
    address
}

/// The limit file of the fence around all containers of a node, and the usage file.
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

/// A task far below its own limit is killed because an outer limit was lowered. It is not charged.
fn the_fence_around_all_containers_is_hit() {
    let cluster = Cluster::start(&[NodeShape {
        memory: Bytes::from_mib(900),
        cpus: 4,
        enforcer: None,
    }])
    .expect("a cluster");
    let Some((limit, current)) = fence(&cluster, "node-1") else {
        panic!("no kernel enforcer here: this test needs cgroups and the right to make them");
    };
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("fence", 1, 1, Bytes::from_mib(400));
    let job = job
        .workload(
            "ramp",
            1,
            log.path(),
            &["--mib", "300", "--over-ms", "6000"],
        )
        .expect("a stage");
    let before = number(&limit);
    let app = cluster.submit(job.text()).expect("submits");
    until("the task to grow", SOON, || {
        Ok((number(&current) > 250 << 20).then_some(()))
    })
    .expect("grows");
    fs::write(&limit, (number(&current) + (8 << 20)).to_string()).expect("lowers the fence");
    let killed = |view: &AppView| task(view, "ramp/0").attempts.first()?.reason;
    let reason = cluster
        .until_app(&app, "the report of the kill", SOON, killed)
        .expect("a reported kill");
    fs::write(&limit, before.to_string()).expect("puts the fence back");
    assert_eq!(reason, ExitReason::AncestorOom);
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let row = task(&end, "ramp/0");
    assert!(
        sizes(row).windows(2).all(|w| w[0] == w[1]),
        "a collateral task got another size: {:?}",
        sizes(row)
    );
    assert_eq!(end.job.as_ref().expect("a job").totals.memory_kills, 0);
}
on_host_and_in_guest!(outer_limit, guest(), the_fence_around_all_containers_is_hit);

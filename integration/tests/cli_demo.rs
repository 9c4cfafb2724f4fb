//! The first command of the README after the build: `rmctl demo` with JSON output.

#![allow(missing_docs)] // a test binary has no public API

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headroom_types::Bytes;
use integration::cluster::{self, ProgramOutput, until};
use integration::guest::{Guest, in_guest};
use integration::{on_host_and_in_guest, programs, sweep};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_gib(2))
        .timeout(Duration::from_secs(280))
}

fn the_demo_finishes_a_job_that_plain_retry_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(programs::path("rmctl").expect("built"));
    let keep = dir.path().join("demo");
    // Six small partitions give the same result with debug builds.
    command
        .args([
            "demo",
            "-o",
            "json",
            "--partitions",
            "6",
            "--share",
            "16MiB",
            "--keep",
        ])
        .arg(&keep);
    command
        .env_remove("HEADROOM_ADDR")
        .env(programs::DIR_VARIABLE, programs::dir().expect("built"));
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let pid = child.id();
    let output = ProgramOutput::from(child.wait_with_output().expect("runs"));
    sweep::processes_of(&keep);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let report: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stdout));
    assert_eq!(
        (&report["finished"], &report["result_equal"]),
        (&Value::Bool(true), &Value::Bool(true)),
        "{report}"
    );
    assert_eq!(report["fixed_mode"], "failed", "{report}");
    assert_eq!(report["collateral_reruns"], 0, "{report}");
    assert!(
        report["kills"].as_u64().is_some_and(|kills| kills >= 3),
        "{report}"
    );
    let enforcer = report["enforcer"].as_str().expect("an enforcer");
    if in_guest() {
        assert_eq!(enforcer, "cgroup2");
    }
    let left = clusters_of(pid);
    assert!(
        left.is_empty(),
        "cgroups that the demo left behind: {left:?}"
    );
}
on_host_and_in_guest!(
    demo,
    guest(),
    the_demo_finishes_a_job_that_plain_retry_fails
);

/// Kills these daemons of `rmctl dev` while a task runs: `rmctl` fails, and leaves neither
/// processes nor cgroups.
fn killed_daemons_end_the_cluster(daemons: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let _swept = Swept(dir.path());
    let mut command = Command::new(programs::path("rmctl").expect("built"));
    command
        .args([
            "dev",
            "--memory",
            "1GiB",
            "--listen",
            "127.0.0.1:0",
            "-o",
            "json",
            "--keep",
        ])
        .arg(dir.path());
    command
        .env_remove("HEADROOM_ADDR")
        .env(programs::DIR_VARIABLE, programs::dir().expect("built"));
    let mut dev = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut greeting = String::new();
    BufReader::new(dev.stdout.take().expect("piped"))
        .read_line(&mut greeting)
        .expect("a line");
    let greeting: Value =
        serde_json::from_str(&greeting).unwrap_or_else(|e| panic!("{e}: {greeting:?}"));
    let url = greeting["addr"].as_str().expect("an address");
    let submitted = cluster::rmctl(url, &["run", "-d", "--", "sleep", "300"]).expect("runs");
    assert_eq!(
        submitted.code, 0,
        "{}{}",
        submitted.stdout, submitted.stderr
    );
    until("the task to start", Duration::from_secs(60), || {
        Ok((!named("sleep", dir.path()).is_empty()).then_some(()))
    })
    .expect("starts");

    for daemon in daemons {
        // The kernel keeps 15 bytes of a name.
        let [pid] = named(&daemon[..daemon.len().min(15)], dir.path())[..] else {
            panic!("not one {daemon}")
        };
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("is there");
    }
    let pid = dev.id();
    let ended = ProgramOutput::from(dev.wait_with_output().expect("ends"));
    assert!(
        ended.code != 0 && ended.stderr.contains("ended: signal: 9"),
        "{}: {}",
        ended.code,
        ended.stderr
    );
    let left = sweep::processes(dir.path());
    assert!(
        left.is_empty(),
        "processes that outlived the cluster: {left:?}"
    );
    let left = clusters_of(pid);
    assert!(
        left.is_empty(),
        "cgroups that the cluster left behind: {left:?}"
    );
}

fn a_killed_agent_ends_the_cluster() {
    killed_daemons_end_the_cluster(&["nodeagent"]);
}
on_host_and_in_guest!(killed_agent, guest(), a_killed_agent_ends_the_cluster);

fn killed_daemons_end_the_cluster_together() {
    killed_daemons_end_the_cluster(&["resourcemanager", "nodeagent"]);
}
on_host_and_in_guest!(
    killed_daemons,
    guest(),
    killed_daemons_end_the_cluster_together
);

/// Ends what a failed test leaves.
struct Swept<'a>(&'a Path);

impl Drop for Swept<'_> {
    fn drop(&mut self) {
        sweep::processes_of(self.0);
    }
}

/// Processes of a program whose arguments or environment name `dir`.
fn named(program: &str, dir: &Path) -> Vec<i32> {
    let comm = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    sweep::processes(dir)
        .into_iter()
        .filter(|pid| comm(pid).trim_end() == program)
        .collect()
}

/// Cgroups of the clusters inside one `rmctl`, which carry its process id: in the v2 hierarchy, or
/// in each of v1.
fn clusters_of(pid: u32) -> Vec<PathBuf> {
    let children = |dir: PathBuf| {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    let mut dirs = children("/sys/fs/cgroup".into());
    dirs.extend(dirs.clone().into_iter().flat_map(children));
    let prefix = format!("headroom-dev-{pid}-");
    dirs.retain(|dir| {
        dir.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    });
    dirs
}

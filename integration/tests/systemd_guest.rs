//! The shipped units with a real systemd: restarts and kills of the daemons, which containers must
//! survive.

#![allow(missing_docs, clippy::print_stderr)] // no public API; a failing test prints the logs

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use headroom_types::Bytes;
use integration::cluster::{Cluster, JOB, SOON, ran, rmctl, until};
use integration::guest::{Guest, in_guest, rerun};
use integration::jobs::{Counts, JobFile, WorkLog};
use integration::{programs, test_name};

const URL: &str = "http://127.0.0.1:7070";
const MANAGER: &str = "headroom-resourcemanager";
const AGENT: &str = "headroom-nodeagent";
/// The unit with the cgroup of the containers.
const HOME: &str = "headroom-containers";
const UNITS: [&str; 3] = [MANAGER, HOME, AGENT];
/// Mount point of the built programs in the guest; the units name `/usr/bin`.
const PROGRAMS: &str = "/opt/headroom";
const CONTAINERS: &str = "/sys/fs/cgroup/headroom.slice/headroom-containers.service/containers";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn guest() -> Guest {
    let guest = Guest::new()
        .memory(Bytes::from_mib(1536))
        .timeout(Duration::from_secs(280))
        .with_programs();
    if in_guest() {
        return guest;
    }
    let text =
        |path: &str| fs::read_to_string(repository(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut files = BTreeMap::new();
    let others = ["headroom-resourcemanager.socket", "headroom.slice"].map(str::to_owned);
    for unit in UNITS
        .map(|u| format!("{u}.service"))
        .into_iter()
        .chain(others)
    {
        files.insert(
            PathBuf::from("/etc/systemd/system").join(&unit),
            text(&format!("systemd/{unit}")),
        );
    }
    files.insert(
        "/usr/lib/sysusers.d/headroom.conf".into(),
        text("systemd/headroom.sysusers"),
    );
    files.insert(
        "/usr/lib/tmpfiles.d/headroom.conf".into(),
        text("systemd/headroom.tmpfiles"),
    );
    files.insert(
        "/etc/headroom/resourcemanager.toml".into(),
        text("config/resourcemanager.toml"),
    );
    // All users in the guest are root, and the log of the workload is in /tmp.
    let node =
        text("config/nodeagent.toml").replace("run_as = \"submitter\"", "run_as = \"agent\"");
    let node = node
        .replace("allow_root = false", "allow_root = true")
        .replace("private_tmp = true", "private_tmp = false");
    files.insert("/etc/headroom/nodeagent.toml".into(), node);
    let windows = BTreeMap::from([(
        PROGRAMS.into(),
        programs::dir().expect("programs").to_owned(),
    )]);
    guest.systemd(files, windows)
}

fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = ran(command).expect("runs");
    assert_eq!(
        output.code, 0,
        "{program} {arguments:?}: {}{}",
        output.stdout, output.stderr
    );
    output.stdout.trim().to_owned()
}

fn property(unit: &str, name: &str) -> String {
    run("systemctl", &["show", "--value", "-p", name, unit])
}

/// Installs the group, directories and programs as an operator does by hand, and starts all units.
fn install_and_start() {
    run("systemd-sysusers", &["/usr/lib/sysusers.d/headroom.conf"]);
    run(
        "systemd-tmpfiles",
        &["--create", "/usr/lib/tmpfiles.d/headroom.conf"],
    );
    for program in [
        "resourcemanager",
        "nodeagent",
        "container-shim",
        "appmaster",
        "executor",
        "rmctl",
    ] {
        symlink(
            Path::new(PROGRAMS).join(program),
            Path::new("/usr/bin").join(program),
        )
        .expect("installs");
    }
    let mut command = Command::new("systemctl");
    command.args(["start", "headroom-resourcemanager", "headroom-nodeagent"]);
    let started = ran(command).expect("runs");
    if started.code != 0 {
        panic!(
            "{}\n{}",
            started.stderr,
            run(
                "journalctl",
                &["--no-pager", "-n", "80", "-u", "headroom-*"]
            )
        );
    }
    for unit in UNITS {
        assert_eq!(property(unit, "ActiveState"), "active", "{unit}");
    }
    let ready = || {
        Ok(rmctl(URL, &["node", "list"])?
            .stdout
            .contains("ready")
            .then_some(()))
    };
    until("the node to be ready", SOON, ready).expect("is ready");
}

/// The cgroups of all containers with their limits.
fn limits() -> BTreeMap<String, String> {
    let groups = fs::read_dir(CONTAINERS).expect("reads").flatten();
    groups
        .filter_map(|group| {
            // Files have no limit, and a group can be removed meanwhile.
            let limit = fs::read_to_string(group.path().join("memory.max")).ok()?;
            let name = group.file_name().to_string_lossy().into_owned();
            Some((name, limit.trim().to_owned()))
        })
        .collect()
}

/// The cgroup holder, a sleeping process beside the containers; `None` after its end.
fn keeper() -> Option<i32> {
    let dir = Path::new(CONTAINERS).with_file_name("keeper");
    let text = fs::read_to_string(dir.join("cgroup.procs")).expect("reads");
    let pid = text.trim();
    (!pid.is_empty()).then(|| pid.parse().expect("one process"))
}

fn lives(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}/cmdline")).exists()
}

fn main_pid(unit: &str) -> i32 {
    property(unit, "MainPID").parse().expect("a number")
}

/// Checks that `disturb` replaces the daemon and that the containers and their limits stay the
/// same.
fn survives(what: &str, unit: &str, log: &WorkLog, disturb: impl FnOnce()) {
    let (before, daemon) = (limits(), main_pid(unit));
    disturb();
    let other = || {
        let pid = main_pid(unit);
        Ok((pid != 0 && pid != daemon && property(unit, "ActiveState") == "active").then_some(()))
    };
    until("another daemon", SOON, other).expect(what);
    assert_eq!(limits(), before, "{what}: containers and their limits");
    for pid in log.started() {
        assert!(
            Path::new(&format!("/proc/{pid}/cmdline")).exists(),
            "{what}: task process {pid} has ended"
        );
    }
}

/// A daemon that hangs sends no watchdog messages although its process exists. Only its watchdog
/// detects that.
fn hangs(unit: &str, log: &WorkLog) {
    let drop_in = PathBuf::from(format!("/run/systemd/system/{unit}.service.d"));
    fs::create_dir_all(&drop_in).expect("a directory");
    // A shorter interval than the unit's, so that the test does not wait 30 s.
    fs::write(drop_in.join("watchdog.conf"), "[Service]\nWatchdogSec=5s\n").expect("writes");
    run("systemctl", &["daemon-reload"]);
    survives("restart for a shorter watchdog", unit, log, || {
        drop(run("systemctl", &["restart", unit]))
    });
    assert_eq!(property(unit, "WatchdogUSec"), "5s");
    let restarts = || {
        property(unit, "NRestarts")
            .parse::<u32>()
            .expect("a number")
    };
    let before = restarts();
    survives("a daemon that hangs", unit, log, || {
        drop(run("kill", &["-STOP", &main_pid(unit).to_string()]))
    });
    assert!(restarts() > before, "systemd restarted the daemon");
}

/// A kill of the cgroup holder does not end the containers.
fn keeper_is_killed(log: &WorkLog) {
    let (before, life) = (limits(), property(HOME, "InvocationID"));
    let keeper = keeper().expect("a cgroup holder");
    assert_eq!(
        main_pid(HOME),
        0,
        "the end of a process ends no other process of the unit"
    );
    Cluster::kill_process(keeper).expect("kills");
    until("the cgroup holder to end", SOON, || {
        Ok((!lives(keeper)).then_some(()))
    })
    .expect("goes");
    assert_eq!(
        (
            property(HOME, "ActiveState").as_str(),
            property(HOME, "InvocationID")
        ),
        ("active", life)
    );
    assert_eq!(limits(), before, "containers and their limits");
    assert!(
        log.started().into_iter().all(lives),
        "a task ended with the cgroup holder"
    );
}

/// All processes in the containers' unit are killed at once, as by a mistaken `systemctl kill`. The
/// tasks run again, and no task escalates. The unit and the agent restart, unless the agent has
/// started the next container before systemd found the unit empty. Then the unit lives on without a
/// cgroup holder.
fn all_are_killed(round: u32) {
    let log = WorkLog::at(format!("/tmp/again-{round}.log").into());
    let gate = format!("/tmp/second-gate-{round}");
    let arguments = ["--mib", "4", "--until", &gate];
    let job = JobFile::new("again", 1, 2, Bytes::from_mib(32))
        .workload("map", 2, log.path(), &arguments)
        .expect("a stage");
    fs::write("/tmp/again.toml", job.text()).expect("writes");
    let submitted = rmctl(URL, &["submit", "/tmp/again.toml", "-o", "name"]).expect("runs");
    assert_eq!(submitted.code, 0, "{}", submitted.stderr);
    let app = submitted.stdout.trim();
    until("two tasks to run", SOON, || {
        Ok((log.started().len() == 2).then_some(()))
    })
    .expect("run");

    let (before, life) = (log.started(), property(HOME, "InvocationID"));
    run("systemctl", &["kill", "--signal", "KILL", HOME]);
    until("the tasks to run again", JOB, || {
        Ok((log.started().len() == 4).then_some(()))
    })
    .expect("run");
    assert!(!before.into_iter().any(lives), "a task has no master");
    until("all units and two containers", SOON, || {
        let active = UNITS
            .iter()
            .all(|unit| property(unit, "ActiveState") == "active");
        let is_held = keeper().is_some_and(lives) || property(HOME, "InvocationID") == life;
        // The groups of ended containers are removed after their reports.
        Ok((active && is_held && limits().len() == 2).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}, {}", limits(), states()));
    fs::write(&gate, "").expect("opens the gate");
    let ended = rmctl(
        URL,
        &["wait", app, "--timeout", &format!("{}s", JOB.as_secs())],
    )
    .expect("runs");
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(
        log.ends(),
        (0..2).map(|n| (format!("map/{n}"), 1)).collect::<Counts>(),
        "each task ended once"
    );
    let events = rmctl(URL, &["events"]).expect("runs").stdout;
    assert!(
        events.contains("killed_externally") && !events.contains(" Escalated "),
        "{events}"
    );
}

/// The states of all units, for the message of a failure.
fn states() -> String {
    let shown = "Id,ActiveState,SubState,Result,NRestarts,InvocationID";
    let of = |unit| run("systemctl", &["show", "-p", shown, unit]).replace('\n', " ");
    UNITS.map(of).join("; ")
}

/// Prints the journal and the resource manager's events if the test fails.
struct Witness;
impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut command = Command::new("journalctl");
            command.args(["--no-pager", "-n", "80", "-u", "headroom-*"]);
            for output in [
                rmctl(URL, &["events"]),
                rmctl(URL, &["ps", "last"]),
                ran(command),
            ]
            .into_iter()
            .flatten()
            {
                eprintln!("{}{}", output.stdout, output.stderr);
            }
        }
    }
}

fn agents_come_and_go() {
    install_and_start();
    let _witness = Witness;
    let (log, gate) = (WorkLog::at("/tmp/work.log".into()), Path::new("/tmp/gate"));
    let arguments = ["--mib", "4", "--until", "/tmp/gate"];
    let job = JobFile::new("units", 1, 2, Bytes::from_mib(32))
        .workload("map", 4, log.path(), &arguments)
        .expect("a stage");
    fs::write("/tmp/job.toml", job.text()).expect("writes");
    let submitted = rmctl(URL, &["submit", "/tmp/job.toml", "-o", "name"]).expect("runs");
    assert_eq!(submitted.code, 0, "{}", submitted.stderr);
    let app = submitted.stdout.trim();
    until("two tasks to run", SOON, || {
        Ok((log.started().len() == 2).then_some(()))
    })
    .expect("run");
    assert_eq!(
        limits().len(),
        2,
        "the master's container and the executor's: {:?}",
        limits()
    );
    assert!(limits().values().all(|l| l != "max"), "{:?}", limits());

    survives("kill -9", AGENT, &log, || {
        Cluster::kill_process(main_pid(AGENT)).expect("kills")
    });
    survives("restart", AGENT, &log, || {
        drop(run("systemctl", &["restart", AGENT]))
    });
    hangs(AGENT, &log);
    hangs(MANAGER, &log);
    keeper_is_killed(&log);

    fs::write(gate, "").expect("opens the gate");
    let ended = rmctl(
        URL,
        &["wait", app, "--timeout", &format!("{}s", JOB.as_secs())],
    )
    .expect("runs");
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let once: Counts = (0..4).map(|n| (format!("map/{n}"), 1)).collect();
    assert_eq!(
        (log.starts(), log.ends()),
        (once.clone(), once),
        "each task ran once"
    );

    // In some rounds systemd needs two tries to start the unit of the containers again.
    for round in 0..5 {
        all_are_killed(round);
    }
    run("systemctl", &["stop", HOME]);
    assert_eq!(
        property(AGENT, "ActiveState"),
        "inactive",
        "the agent needs the unit of its containers"
    );
}

#[test]
fn agents_restart_under_systemd_in_a_guest() {
    rerun(
        test_name!(agents_restart_under_systemd_in_a_guest),
        guest(),
        agents_come_and_go,
    );
}

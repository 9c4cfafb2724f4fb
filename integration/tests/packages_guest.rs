//! The Debian packages on a host with systemd: installation, use by an unprivileged user, upgrade
//! with a running container, and removal.

#![allow(missing_docs, clippy::print_stderr)] // no public API; a failing test prints the logs

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headroom_types::Bytes;
use integration::cluster::{ProgramOutput, SOON, ran, until};
use integration::guest::{Guest, in_guest, rerun};
use integration::{test_name, test_packages};

/// Mount point of the packages in the guest.
const PACKAGES: &str = "/opt/packages";
const NAMES: [&str; 3] = ["headroom-manager", "headroom-node", "headroom-client"];
const UNITS: [&str; 4] = [
    "headroom-resourcemanager.socket",
    "headroom-resourcemanager",
    "headroom-containers",
    "headroom-nodeagent",
];
/// An unprivileged user.
const PERSON: &str = "ada";

fn guest(packages: &Path) -> Guest {
    let guest = Guest::new()
        .memory(Bytes::from_gib(2))
        .timeout(Duration::from_secs(280));
    guest.systemd(
        BTreeMap::new(),
        BTreeMap::from([(PACKAGES.into(), packages.to_owned())]),
    )
}

fn tried(program: &str, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    ran(command).unwrap_or_else(|e| panic!("{program}: {e:#}"))
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = tried(program, arguments);
    assert_eq!(
        output.code, 0,
        "{program} {arguments:?}: {}{}",
        output.stdout, output.stderr
    );
    output.stdout
}

/// A command line as the user types it.
fn as_person(command: &str) -> Command {
    let mut shell = Command::new("runuser");
    shell
        .args(["-u", PERSON, "--", "sh", "-c", command])
        .current_dir("/tmp")
        .stdin(Stdio::null());
    shell
}

fn install(release: &str, count: usize) -> String {
    let debs = fs::read_dir(Path::new(PACKAGES).join(release))
        .expect("packages")
        .flatten();
    let debs: Vec<String> = debs.map(|e| e.path().display().to_string()).collect();
    assert_eq!(debs.len(), count, "{debs:?}");
    let words = ["--force-unsafe-io", "--install"]
        .into_iter()
        .chain(debs.iter().map(String::as_str));
    run("dpkg", &words.collect::<Vec<_>>())
}

fn property(unit: &str, name: &str) -> String {
    run("systemctl", &["show", "--value", "-p", name, unit])
        .trim()
        .to_owned()
}

fn states() -> Vec<String> {
    UNITS
        .iter()
        .map(|unit| property(unit, "ActiveState"))
        .collect()
}

/// Prints the journal if the test fails.
struct Witness;
impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output = tried(
                "journalctl",
                &["--no-pager", "-n", "100", "-u", "headroom-*"],
            );
            eprintln!("{}{}", output.stdout, output.stderr);
        }
    }
}

/// Installs the packages and checks that this starts and enables nothing; then enables and starts
/// the units.
fn installed_and_started() {
    // Container images include a policy that forbids starting and stopping services. Hosts do not
    // have it.
    fs::remove_file("/usr/sbin/policy-rc.d").ok();
    // The update of the manual index takes half of the time and is not needed.
    fs::remove_file("/var/lib/man-db/auto-update").ok();
    let said = install("now", NAMES.len());
    assert!(said.contains("rmctl doctor"), "{said}");
    assert_eq!(states(), ["inactive"; 4], "installing starts nothing");
    let links = run("find", &["/etc/systemd/system", "-name", "headroom*"]);
    assert!(links.is_empty(), "installing enables nothing: {links}");
    run(
        "useradd",
        &["--create-home", "--home-dir", "/srv/ada", PERSON],
    );
    run(
        "systemctl",
        &["enable", "--now", "headroom-resourcemanager"],
    );
    assert_eq!(
        property("headroom-resourcemanager.socket", "UnitFileState"),
        "enabled",
        "with the daemon"
    );
    run(
        "systemctl",
        &[
            "enable",
            "--now",
            "headroom-containers",
            "headroom-nodeagent",
        ],
    );
    assert_eq!(states(), ["active"; 4]);
    let ready = || {
        Ok(ran(as_person("rmctl node list"))?
            .stdout
            .contains("ready")
            .then_some(()))
    };
    until("the node to be ready", SOON, ready).expect("is ready");
}

fn main_pids() -> [String; 2] {
    ["headroom-resourcemanager", "headroom-nodeagent"].map(|unit| property(unit, "MainPID"))
}

/// Checks that `disturb` replaces both daemons and keeps the process of the container.
fn survives(what: &str, process: &str, disturb: impl FnOnce()) {
    let before = main_pids();
    disturb();
    let others = || {
        let now = main_pids();
        let changed = before.iter().zip(&now).all(|(before, now)| before != now);
        Ok((changed && states() == ["active"; 4]).then_some(()))
    };
    until("other daemons", SOON, others).expect(what);
    assert!(
        Path::new(&format!("/proc/{process}")).exists(),
        "{what}: the process of the container has ended"
    );
    let seen = || {
        Ok(ran(as_person("rmctl ps"))?
            .stdout
            .contains("running")
            .then_some(()))
    };
    until("the job to be seen as running", SOON, seen).expect(what);
}

/// Checks the fields and ids of log lines, and their catalog entries.
fn the_journal_knows() {
    let fields = run(
        "journalctl",
        &[
            "--no-pager",
            "-o",
            "json",
            "MESSAGE_ID=b0c0c9a288444916816e938e77ae683d",
        ],
    );
    assert!(
        fields.contains("\"HEADROOM_NODE\"")
            && fields.contains("\"SYSLOG_IDENTIFIER\":\"nodeagent\""),
        "{fields}"
    );
    let catalog = run("journalctl", &["--list-catalog"]);
    assert!(
        catalog.contains("b0c0c9a288444916816e938e77ae683d Headroom"),
        "the message catalog was installed"
    );
    let ready = run(
        "journalctl",
        &[
            "--no-pager",
            "-u",
            "headroom-resourcemanager",
            "MESSAGE_ID=6776b204068242e9b74510d3e29dfcb1",
        ],
    );
    assert!(ready.contains("the resource manager answers"), "{ready}");
    let drained = ran(as_person("rmctl node drain vm")).expect("runs");
    assert!(
        drained.code != 0 && drained.stderr.contains("HR0403"),
        "{} {}",
        drained.code,
        drained.stderr
    );
    let refused = run(
        "journalctl",
        &[
            "--no-pager",
            "-x",
            "MESSAGE_ID=5a7363997ebc49ccb9d7dcae519e08d2",
            "HEADROOM_WHO=ada",
        ],
    );
    assert!(
        refused.contains("a call was refused")
            && refused.contains("ada, from 127.0.0.1, lacks the permission"),
        "{refused}"
    );
}

fn a_life_of_the_packages() {
    let _witness = Witness;
    installed_and_started();
    // The user's own job through the Unix socket. Its output names the user that ran it.
    let (gate, pid) = ("/srv/ada/gate", Path::new("/srv/ada/pid"));
    let work = format!(
        "id -un > /srv/ada/who; echo $$ > {}; while [ ! -e {gate} ]; do sleep 0.2; done",
        pid.display()
    );
    let mut job = as_person(&format!("rmctl run -m 64M -- sh -c '{work}'"));
    let mut job = job.stdout(Stdio::null()).spawn().expect("starts");
    let started = || {
        Ok(fs::read_to_string(pid)
            .ok()
            .filter(|text| text.ends_with('\n')))
    };
    let process = until("the job to run", SOON, started)
        .expect("runs")
        .trim()
        .to_owned();
    assert_eq!(
        fs::read_to_string("/srv/ada/who").expect("reads").trim(),
        PERSON
    );
    let tree = run(
        "systemd-cgls",
        &[
            "--no-pager",
            "--full",
            "--unit",
            "headroom-containers.service",
        ],
    );
    assert!(tree.contains(&process) && tree.contains("keeper"), "{tree}");

    survives("restart", &process, || {
        drop(run(
            "systemctl",
            &["restart", "headroom-resourcemanager", "headroom-nodeagent"],
        ))
    });
    let life = property("headroom-containers", "InvocationID");
    survives("upgrade", &process, || drop(install("later", 2)));
    assert_eq!(
        property("headroom-containers", "InvocationID"),
        life,
        "the unit of the containers keeps running"
    );
    the_journal_knows();
    fs::write(gate, "").expect("opens the gate");
    let ended = until("the job to end", SOON, || Ok(job.try_wait()?)).expect("ends");
    assert!(ended.success(), "{ended}");
    taken_away();
}

fn taken_away() {
    let with = |verb: &str| run("dpkg", &[&[verb], &NAMES[..]].concat());
    with("--remove");
    assert_eq!(states(), ["inactive"; 4]);
    assert!(
        Path::new("/etc/headroom/nodeagent.toml").exists()
            && Path::new("/var/lib/headroom/nodeagent").exists()
    );
    with("--purge");
    run("systemctl", &["daemon-reload"]);
    let places = ["/etc", "/usr", "/var", "/run"];
    let mut words: Vec<&str> = places.to_vec();
    words.extend([
        "-xdev",
        "-path",
        "/var/lib/dpkg",
        "-prune",
        "-o",
        "-name",
        "*headroom*",
        "-print",
    ]);
    let left = tried("find", &words).stdout;
    assert_eq!(left, "", "a purge leaves these");
    let cgroups = PathBuf::from("/sys/fs/cgroup/headroom.slice");
    until("the slice to be removed", SOON, || {
        Ok((!cgroups.exists()).then_some(()))
    })
    .expect("no process runs");
}

#[test]
fn packages_are_installed_upgraded_and_removed_in_a_guest() {
    let name = test_name!(packages_are_installed_upgraded_and_removed_in_a_guest);
    if in_guest() {
        return rerun(name, Guest::new(), a_life_of_the_packages);
    }
    let dir = tempfile::tempdir().expect("a directory");
    test_packages::packages(dir.path()).expect("packs");
    rerun(name, guest(dir.path()), a_life_of_the_packages);
}

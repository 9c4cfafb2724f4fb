//! Checks of the shipped units with systemd's own tools. Nothing is started.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const UNITS: [&str; 5] = [
    "headroom-resourcemanager.service",
    "headroom-resourcemanager.socket",
    "headroom-nodeagent.service",
    "headroom-containers.service",
    "headroom.slice",
];

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../systemd")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Copies the units into a separate directory, with programs that exist on all machines.
fn copies(dir: &Path) -> Vec<PathBuf> {
    let place = |name: &&str| {
        let mut text = shipped(name);
        for program in ["resourcemanager", "nodeagent", "container-shim"] {
            for key in ["ExecStart=", "ExecStopPost=-"] {
                text = text.replace(
                    &format!("{key}/usr/bin/{program}"),
                    &format!("{key}/bin/true"),
                );
            }
        }
        fs::write(dir.join(name), text).expect("writes");
        dir.join(name)
    };
    UNITS.iter().map(place).collect()
}

fn run(program: &str, prepare: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(program);
    prepare(&mut command);
    command
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}; `apt-get install -y systemd`"))
}

#[test]
fn systemd_reports_no_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let units = copies(dir.path());
    let output = run("systemd-analyze", |c| {
        c.arg("verify").arg("--man=no").args(&units);
    });
    let said = String::from_utf8_lossy(&output.stderr);
    // The exit code is 0 even for unknown keys, so the output is checked. Messages about the host's
    // own units are ignored.
    let ours: Vec<&str> = said.lines().filter(|l| l.contains("headroom")).collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
}

/// Checks the score of `systemd-analyze security` against `threshold` (tenths of its scale of 10).
fn exposure_is_at_most(unit: &str, threshold: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    copies(dir.path());
    let output = run("systemd-analyze", |c| {
        c.args([
            "security",
            "--no-pager",
            "--offline=true",
            &format!("--threshold={threshold}"),
        ])
        .arg(dir.path().join(unit));
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{unit}: {}",
        said.lines().last().unwrap_or_default()
    );
}

#[test]
fn the_resource_manager_is_sandboxed() {
    exposure_is_at_most("headroom-resourcemanager.service", 15);
}

#[test]
fn the_node_agent_is_sandboxed_as_far_as_its_containers_allow() {
    exposure_is_at_most("headroom-nodeagent.service", 78);
}

#[test]
fn the_socket_unit_holds_the_port_of_the_shipped_configuration() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/resourcemanager.toml");
    let config = fs::read_to_string(path).expect("reads");
    let listen = config
        .lines()
        .find_map(|l| l.strip_prefix("listen = "))
        .expect("a line")
        .trim_matches('"');
    assert!(
        shipped("headroom-resourcemanager.socket").contains(&format!("\nListenStream={listen}\n")),
        "{listen}"
    );
}

#[test]
fn only_the_cgroup_holder_delegates() {
    assert!(shipped("headroom-containers.service").contains("\nDelegate=memory pids cpu\n"));
    for unit in [
        "headroom-nodeagent.service",
        "headroom-resourcemanager.service",
    ] {
        assert!(
            !shipped(unit).contains("\nDelegate="),
            "{unit} could not be restarted under systemd 252"
        );
    }
    for unit in ["headroom-nodeagent.service", "headroom-containers.service"] {
        assert!(
            shipped(unit).contains("\nOOMPolicy=continue\n"),
            "the end of a container would stop {unit}"
        );
    }
}

#[test]
fn users_and_directories_are_created_as_configured() {
    let root = tempfile::tempdir().expect("a directory");
    let place = |name: &str| {
        let path = root.path().join(name);
        fs::write(&path, shipped(name)).expect("writes");
        path
    };
    let (users, files) = (place("headroom.sysusers"), place("headroom.tmpfiles"));
    fs::create_dir(root.path().join("etc")).expect("creates etc");
    fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").expect("writes");
    fs::write(root.path().join("etc/group"), "root:x:0:\n").expect("writes");
    let at = format!("--root={}", root.path().display());
    for (program, arguments) in [
        ("systemd-sysusers", vec![&at]),
        ("systemd-tmpfiles", vec![&at]),
    ] {
        let file = if program == "systemd-sysusers" {
            &users
        } else {
            &files
        };
        let output = run(program, |c| {
            c.args(arguments)
                .args((program == "systemd-tmpfiles").then_some("--create"))
                .arg(file);
        });
        assert!(
            output.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let groups = fs::read_to_string(root.path().join("etc/group")).expect("reads");
    assert!(
        groups.lines().any(|l| l.starts_with("headroom:")),
        "{groups}"
    );
    assert!(
        root.path().join("etc/headroom").is_dir() && root.path().join("var/lib/headroom").is_dir()
    );
}

//! `container-shim --keeper`: the cgroup holder. It prepares the delegated cgroup of all containers
//! and leaves a process that holds it, so that the agent can restart.
//!
//! It moves itself into `keeper/`, enables controllers for the sibling directories, and exits; its
//! child sleeps until SIGTERM. Neither process touches a container. (systemd before 254 cannot
//! restart a unit whose own cgroup is an inner node. Therefore the agent and the holder are two
//! units.)
//!
//! systemd does not track the child. It ends a unit with all its processes when the main process
//! dies. A unit without main process lives as long as any process in it, even if only containers
//! remain.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headroom_container_shim::KEEPER_GROUP;

use crate::sys;

/// Groups that it creates for the agent. The agent creates them too; both accept existing ones.
const MADE: [&str; 2] = ["shims", "containers"];
/// Limits need the memory controller; the others are optional.
const CONTROLLERS: [(&str, ControllerNeed); 3] = [
    ("memory", ControllerNeed::Must),
    ("pids", ControllerNeed::IfThere),
    ("cpu", ControllerNeed::IfThere),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ControllerNeed {
    Must,
    IfThere,
}

pub(crate) fn run() -> ExitCode {
    match hold() {
        Ok(code) => code,
        Err(error) => {
            sys::write_text(2, &format!("container-shim --keeper: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Returns in two processes: in this one when the groups are ready, in its child after SIGTERM or
/// SIGINT.
fn hold() -> io::Result<ExitCode> {
    let held = match own_group() {
        Some(dir) => {
            prepare_group(&dir)?;
            format!("holds {}", dir.display())
        }
        None => "holds no cgroup: cgroup v2 has no memory controller on this host".to_owned(),
    };
    let wait_for_the_end = sys::block_termination();
    match sys::fork().map_err(io::Error::from_raw_os_error)? {
        Some(child) => sys::write_text(
            1,
            &format!("container-shim --keeper: process {child} {held}\n"),
        ),
        None => wait_for_the_end(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The own directory in cgroup v2, if it has the memory controller.
fn own_group() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = line.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = Path::new(own.lines().find_map(|line| line.strip_prefix("0::"))?);
    let dir = Path::new(point).join(path.strip_prefix(root).ok()?);
    let offered = std::fs::read_to_string(dir.join("cgroup.controllers")).ok()?;
    offered
        .split_whitespace()
        .any(|c| c == "memory")
        .then_some(dir)
}

/// Moves this process out of the directory and prepares the directory for containers.
fn prepare_group(dir: &Path) -> io::Result<()> {
    if !dir.join("cgroup.type").exists() {
        return Err(io::Error::other(
            "the cgroup is the root; start container-shim --keeper in its own delegated cgroup",
        ));
    }
    make(&dir.join(KEEPER_GROUP))?;
    put(&dir.join(KEEPER_GROUP).join("cgroup.procs"), "0")?;
    enable(dir)?;
    for name in MADE {
        make(&dir.join(name))?;
    }
    enable(&dir.join("containers"))
}

fn enable(dir: &Path) -> io::Result<()> {
    let path = dir.join("cgroup.subtree_control");
    for (name, wanted) in CONTROLLERS {
        match put(&path, &format!("+{name}")) {
            Err(error) if wanted == ControllerNeed::Must => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn make(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(io::Error::new(
            e.kind(),
            format!("cannot make {}: {e}", dir.display()),
        )),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn put(path: &Path, value: &str) -> io::Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("cannot write {value:?} to {}: {e}", path.display()),
        )
    })
}

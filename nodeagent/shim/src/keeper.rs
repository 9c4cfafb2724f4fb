//! `container-shim --keeper`: makes the delegated cgroup in which containers live ready, and leaves a process that holds it, so that the agent
//! can come and go.
//!
//! It moves itself out of the way into `keeper/`, hands controllers to the directories beside it, and ends; a child of it sleeps until it is
//! told to stop. Neither ever looks at a container. (systemd before 254 cannot start a unit again whose own cgroup has become
//! an inner node, which is why the agent's unit and this one are two.)
//!
//! The service manager is not told about the child. A unit whose main process dies is ended with all that is in it; one without lives
//! for as long as anything does, be it the containers alone.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::sys;

/// Where the keeper itself lives.
const KEEPER: &str = "keeper";
/// What it makes for the agent. The agent makes them too; both are content to find them.
const MADE: [&str; 2] = ["shims", "containers"];
/// Memory is what all this is for; the others are welcome.
const CONTROLLERS: [(&str, Wanted); 3] = [("memory", Wanted::Must), ("pids", Wanted::IfThere), ("cpu", Wanted::IfThere)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Must,
    IfThere,
}

pub(crate) fn run() -> ExitCode {
    match hold() {
        Ok(code) => code,
        Err(error) => {
            sys::say(2, &format!("container-shim --keeper: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Returns twice: in this process when all is ready, in its child when that was told to stop.
fn hold() -> io::Result<ExitCode> {
    let held = match own_group() {
        Some(dir) => {
            take(&dir)?;
            format!("holds {}", dir.display())
        }
        None => "has nothing to hold: no cgroup v2 memory controller here".to_owned(),
    };
    let wait_for_the_end = sys::block_termination();
    match sys::fork().map_err(io::Error::from_raw_os_error)? {
        Some(child) => sys::say(1, &format!("container-shim --keeper: process {child} {held}\n")),
        None => wait_for_the_end(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The own directory in cgroup v2, if the memory controller is there.
fn own_group() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = line.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = Path::new(own.lines().find_map(|line| line.strip_prefix("0::"))?);
    let dir = Path::new(point).join(path.strip_prefix(root).ok()?);
    let offered = std::fs::read_to_string(dir.join("cgroup.controllers")).ok()?;
    offered.split_whitespace().any(|c| c == "memory").then_some(dir)
}

/// Leaves the directory itself and prepares it for containers.
fn take(dir: &Path) -> io::Result<()> {
    if !dir.join("cgroup.type").exists() {
        return Err(io::Error::other("this is the root of all cgroups; start the keeper in a delegated cgroup of its own"));
    }
    make(&dir.join(KEEPER))?;
    put(&dir.join(KEEPER).join("cgroup.procs"), "0")?;
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
            Err(error) if wanted == Wanted::Must => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn make(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(e.kind(), format!("cannot make {}: {e}", dir.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn put(path: &Path, value: &str) -> io::Result<()> {
    let written = OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(|e| io::Error::new(e.kind(), format!("cannot write {value:?} to {}: {e}", path.display())))
}

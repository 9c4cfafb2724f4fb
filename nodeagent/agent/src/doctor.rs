//! What this host offers to a node agent and what it lacks, each with what to do about it.
//!
//! A look changes nothing: no cgroup, no file, no process but `systemctl --version`. That the enforcer works is not found by looking; the
//! agent proves that at its start (`proof`). Blocking.

mod judge;

pub(crate) use judge::left_behind;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use headroom_config::IpcScope;
use headroom_node_cgroup::{Group, Offers};
use headroom_node_exec::offers::{self, Call};
use headroom_types::{Bytes, EnforcerKind};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::health;
use crate::host;
use crate::site::Rights;
use crate::unattributed;

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// As it should be.
    Ok,
    /// The agent works, and something is less than it could be.
    Warn,
    /// A node on this host takes no work, or cannot do what it is for.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name. Never changes its meaning.
    pub code: Cow<'static, str>,
    /// How it stands.
    pub state: Standing,
    /// What it is needed for.
    pub what: Cow<'static, str>,
    /// What was found.
    pub found: String,
    /// What to do; `None` when nothing needs doing.
    pub fix: Option<String>,
}

/// Where a node agent would work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its state directory; need not exist.
    pub state: PathBuf,
    /// The cgroup directory it is told to work in.
    pub cgroup_root: Option<PathBuf>,
    /// A fuller disk is not healthy. Percent.
    pub disk_full: u32,
    /// Whether containers are to have a `/tmp` of their own.
    pub private_tmp: bool,
    /// Which programs are to share `/dev/shm` and IPC.
    pub ipc: IpcScope,
}

/// Looks at everything; in the order in which it is worth reading.
pub fn examine(place: &Place) -> Vec<Finding> {
    judge::all(&Facts::read(place), place)
}

/// The worst of them.
pub fn worst(findings: &[Finding]) -> Standing {
    findings.iter().map(|f| f.state).max().unwrap_or(Standing::Ok)
}

/// What is not as it should be, for the log of an agent that starts.
pub(crate) fn tell(findings: &[Finding]) {
    for Finding { code, state, found, fix, .. } in findings {
        let fix = fix.as_deref().unwrap_or_default();
        let code = code.as_ref();
        match state {
            Standing::Ok => tracing::debug!(code, found, "this host"),
            Standing::Warn => tracing::info!(code, found, fix, "this host could be better"),
            Standing::Fail => tracing::warn!(code, found, fix, "this host cannot do its work"),
        }
    }
}

/// What was read, before anything is thought about it.
#[derive(Clone, Debug)]
struct Facts {
    kernel: String,
    cgroup: Offers,
    calls: [(Call, bool); 3],
    /// Whether `/proc/pressure/memory` can be read.
    psi: bool,
    memory: Bytes,
    swap: Bytes,
    /// The first line of `systemctl --version`, where it is process 1.
    systemd: Option<String>,
    /// Process 1, where that is not systemd.
    first_process: String,
    /// Most of it that this process may have; `None` without bound.
    open_files: Option<u64>,
    processes: Option<u64>,
    disk: Disk,
    /// Whether the kernel believes its clock; the year of that clock.
    clock: (Option<bool>, u64),
    rights: Rights,
    user_namespaces: u64,
    /// What ended containers have left on the node, and the limit of all containers; `None` where no agent has made cgroups.
    left: Option<(Bytes, Bytes)>,
}

/// The file system of the state directory.
#[derive(Clone, Debug)]
struct Disk {
    /// What was looked at: the state directory, or the first directory above it that exists.
    dir: PathBuf,
    /// Percent in use and bytes free; `None` when it cannot be asked.
    room: Option<(u64, Bytes)>,
    writable: bool,
}

impl Facts {
    fn read(place: &Place) -> Facts {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let first_process = text("/proc/1/comm").trim().to_owned();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        Facts {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cgroup: headroom_node_cgroup::offers(place.cgroup_root.as_deref()),
            calls: [Call::PidfdOpen, Call::Openat2, Call::Clone3].map(|call| (call, offers::has(call))),
            psi: fs::read_to_string("/proc/pressure/memory").is_ok(),
            memory: host::memory().total,
            swap: host::swap(),
            systemd: Path::new("/run/systemd/system").is_dir().then(systemd).flatten(),
            first_process,
            open_files: getrlimit(Resource::Nofile).maximum,
            processes: getrlimit(Resource::Nproc).maximum,
            disk: Disk::of(&place.state),
            // Years of 365.25 days are close enough for a clock that was never set.
            clock: (offers::clock_is_set(), 1970 + clock / 31_557_600),
            rights: Rights::own(),
            user_namespaces: text("/proc/sys/user/max_user_namespaces").trim().parse().unwrap_or(0),
            left: left_on(&place.state),
        }
    }
}

/// As the agent that works in this state directory would measure it.
fn left_on(state: &Path) -> Option<(Bytes, Bytes)> {
    let record: NodeRecord = serde_json::from_slice(&fs::read(state.join("node.json")).ok()?).ok()?;
    let containers = Group::attach(record.enforcer, &record.root?.join("containers")).ok()?;
    let limit = containers.level().ok()??.0?;
    Some((containers.unattributed(unattributed::floor(limit)).ok()??, limit))
}

/// What is read of the agent's record of itself.
#[derive(Deserialize)]
struct NodeRecord {
    enforcer: EnforcerKind,
    root: Option<PathBuf>,
}

fn systemd() -> Option<String> {
    let said = Command::new("systemctl").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).lines().next()?.trim().to_owned())
}

impl Disk {
    fn of(state: &Path) -> Disk {
        let dir = state.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned();
        let room = statvfs(&dir).ok().and_then(|facts| {
            let used = health::percent(facts.f_blocks, facts.f_blocks - facts.f_bfree, facts.f_bavail)?;
            Some((used, Bytes::new(facts.f_bavail.saturating_mul(facts.f_frsize))))
        });
        let writable = access(&dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        Disk { dir, room, writable }
    }
}

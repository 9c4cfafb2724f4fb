//! The doctor: checks which features this host offers to a node agent, and names a fix for each
//! problem.
//!
//! The checks change nothing: no cgroup, no file, no process except `systemctl --version`. They do
//! not show that the enforcer works; the agent proves that at its start (`proof`). Blocking.

mod judge;

pub(crate) use judge::left_behind;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use headroom_config::IpcScope;
use headroom_node_cgroup::{CgroupFeatures, Group};
use headroom_node_exec::syscalls::{self, KernelCall};
use headroom_types::{Bytes, EnforcerKind};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::health;
use crate::host;
use crate::node_context::AgentPrivileges;
use crate::unattributed;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// As required.
    Ok,
    /// The agent works, but a feature is limited or missing.
    Warn,
    /// A node on this host takes no work, or cannot do its task.
    Fail,
}

/// One finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// Code of the check. Its meaning never changes.
    pub code: Cow<'static, str>,
    /// The result.
    pub state: CheckResult,
    /// The purpose of the checked feature.
    pub what: Cow<'static, str>,
    /// The state that was found.
    pub found: String,
    /// The fix. `None` if none is needed.
    pub fix: Option<String>,
}

/// Settings of a node agent that the checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorSettings {
    /// State directory. It need not exist.
    pub state: PathBuf,
    /// Configured cgroup directory.
    pub cgroup_root: Option<PathBuf>,
    /// Disk use from which the disk counts as full. Percent.
    pub disk_full: u32,
    /// Whether containers get their own `/tmp`.
    pub private_tmp: bool,
    /// Scope of shared `/dev/shm` and IPC.
    pub ipc: IpcScope,
}

/// Runs all checks. Findings are in reading order.
pub fn examine(place: &DoctorSettings) -> Vec<DoctorFinding> {
    judge::all(&DoctorFacts::read(place), place)
}

/// The worst result of all findings.
pub fn worst(findings: &[DoctorFinding]) -> CheckResult {
    findings
        .iter()
        .map(|f| f.state)
        .max()
        .unwrap_or(CheckResult::Ok)
}

/// Logs the findings at the start of an agent.
pub(crate) fn log_findings(findings: &[DoctorFinding]) {
    for DoctorFinding {
        code,
        state,
        found,
        fix,
        ..
    } in findings
    {
        let fix = fix.as_deref().unwrap_or_default();
        let code = code.as_ref();
        match state {
            CheckResult::Ok => tracing::debug!(code, found, "this host"),
            CheckResult::Warn => {
                tracing::info!(code, found, fix, "a check of this host gives a warning")
            }
            CheckResult::Fail => tracing::warn!(code, found, fix, "a check of this host failed"),
        }
    }
}

/// The facts about the host, before any judgement.
#[derive(Clone, Debug)]
struct DoctorFacts {
    kernel: String,
    cgroup: CgroupFeatures,
    calls: [(KernelCall, bool); 3],
    /// Whether `/proc/pressure/memory` can be read.
    psi: bool,
    memory: Bytes,
    swap: Bytes,
    /// The first line of `systemctl --version`, if systemd is process 1.
    systemd: Option<String>,
    /// Name of process 1.
    first_process: String,
    /// Hard limit of open files of this process. `None` means unlimited.
    open_files: Option<u64>,
    processes: Option<u64>,
    disk: Disk,
    /// Whether the kernel clock is synchronised, and the year of the clock.
    clock: (Option<bool>, u64),
    rights: AgentPrivileges,
    user_namespaces: u64,
    /// Memory that ended containers left on the node, and the limit of all containers. `None` if no
    /// agent has created cgroups.
    left: Option<(Bytes, Bytes)>,
}

/// The file system of the state directory.
#[derive(Clone, Debug)]
struct Disk {
    /// The checked directory: the state directory, or its nearest existing ancestor.
    dir: PathBuf,
    /// Percent in use and bytes free. `None` if the file system cannot be queried.
    room: Option<(u64, Bytes)>,
    writable: bool,
}

impl DoctorFacts {
    fn read(place: &DoctorSettings) -> DoctorFacts {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let first_process = text("/proc/1/comm").trim().to_owned();
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_secs());
        DoctorFacts {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cgroup: headroom_node_cgroup::detect_features(place.cgroup_root.as_deref()),
            calls: [
                KernelCall::PidfdOpen,
                KernelCall::Openat2,
                KernelCall::Clone3,
            ]
            .map(|call| (call, syscalls::has(call))),
            psi: fs::read_to_string("/proc/pressure/memory").is_ok(),
            memory: host::memory().total,
            swap: host::swap(),
            systemd: Path::new("/run/systemd/system")
                .is_dir()
                .then(systemd)
                .flatten(),
            first_process,
            open_files: getrlimit(Resource::Nofile).maximum,
            processes: getrlimit(Resource::Nproc).maximum,
            disk: Disk::of(&place.state),
            // Years of 365.25 days are precise enough to detect a clock that was never set.
            clock: (syscalls::clock_is_set(), 1970 + clock / 31_557_600),
            rights: AgentPrivileges::own(),
            user_namespaces: text("/proc/sys/user/max_user_namespaces")
                .trim()
                .parse()
                .unwrap_or(0),
            left: left_on(&place.state),
        }
    }
}

/// The memory as the agent of this state directory would measure it.
fn left_on(state: &Path) -> Option<(Bytes, Bytes)> {
    let record: NodeRecord =
        serde_json::from_slice(&fs::read(state.join("node.json")).ok()?).ok()?;
    let containers = Group::attach(record.enforcer, &record.root?.join("containers")).ok()?;
    let limit = containers.level().ok()??.0?;
    Some((
        containers.unattributed(unattributed::floor(limit)).ok()??,
        limit,
    ))
}

/// The fields of `node.json` that the doctor reads.
#[derive(Deserialize)]
struct NodeRecord {
    enforcer: EnforcerKind,
    root: Option<PathBuf>,
}

fn systemd() -> Option<String> {
    let said = Command::new("systemctl").arg("--version").output().ok()?;
    Some(
        String::from_utf8_lossy(&said.stdout)
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}

impl Disk {
    fn of(state: &Path) -> Disk {
        let dir = state
            .ancestors()
            .find(|dir| dir.is_dir())
            .unwrap_or(Path::new("/"))
            .to_owned();
        let room = statvfs(&dir).ok().and_then(|facts| {
            let used = health::percent(
                facts.f_blocks,
                facts.f_blocks - facts.f_bfree,
                facts.f_bavail,
            )?;
            Some((
                used,
                Bytes::new(facts.f_bavail.saturating_mul(facts.f_frsize)),
            ))
        });
        let writable = access(&dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        Disk {
            dir,
            room,
            writable,
        }
    }
}

//! The facts about this host that the doctor judges. Reads them and changes nothing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use headroom_config::{JournalPlace, NodeAgentConfig};
use headroom_node_cgroup::{CgroupFeatures, EnforcedGroup};
use headroom_node_exec::syscalls::{self, KernelCall};
use headroom_types::{Bytes, EnforcerKind};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::Deserialize;

use crate::host;
use crate::journals::{JournalsProblem, SharedJournals};
use crate::privileges::AgentPrivileges;
use crate::unattributed_memory;

/// The facts about the host, before any judgement.
#[derive(Clone, Debug)]
pub(super) struct DoctorFacts {
    pub(super) kernel: String,
    pub(super) cgroup: CgroupFeatures,
    pub(super) calls: [(KernelCall, bool); 3],
    /// Whether `/proc/pressure/memory` can be read.
    pub(super) psi: bool,
    pub(super) memory: Bytes,
    pub(super) swap: Bytes,
    /// The first line of `systemctl --version`, if systemd is process 1.
    pub(super) systemd: Option<String>,
    /// Name of process 1.
    pub(super) first_process: String,
    /// Hard limit of open files of this process. `None` means unlimited.
    pub(super) open_files: Option<u64>,
    pub(super) processes: Option<u64>,
    pub(super) disk: StateFileSystem,
    /// Whether the kernel clock is synchronised, and the year of the clock.
    pub(super) clock: (Option<bool>, u64),
    pub(super) rights: AgentPrivileges,
    pub(super) user_namespaces: u64,
    /// Memory that ended containers left on the node, and the limit of all containers. `None` if no
    /// agent has created cgroups.
    pub(super) left: Option<(Bytes, Bytes)>,
    /// True if the journals of masters are in the state of the resource manager.
    pub(super) journals_in_manager: bool,
    /// The shared directory or the object store of journals, and its problem. `None` if neither is
    /// configured.
    pub(super) journals: Option<(String, Option<JournalsProblem>)>,
    /// Whether that directory is on the file system of the state directory.
    pub(super) journals_beside_state: bool,
}

/// The file system of the state directory.
#[derive(Clone, Debug)]
pub(super) struct StateFileSystem {
    /// The checked directory: the state directory, or its nearest existing ancestor.
    pub(super) dir: PathBuf,
    /// Percent in use and bytes free. `None` if the file system cannot be queried.
    pub(super) room: Option<(u64, Bytes)>,
    pub(super) writable: bool,
}

impl DoctorFacts {
    /// Reads the facts. Blocking.
    pub(super) fn read(config: &NodeAgentConfig) -> DoctorFacts {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let first_process = text("/proc/1/comm").trim().to_owned();
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_secs());
        DoctorFacts {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cgroup: headroom_node_cgroup::detect_features(config.cgroup_root.as_deref()),
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
            disk: StateFileSystem::of(&config.state),
            // Years of 365.25 days are precise enough to detect a clock that was never set.
            clock: (syscalls::clock_is_set(), 1970 + clock / 31_557_600),
            rights: AgentPrivileges::own(),
            user_namespaces: text("/proc/sys/user/max_user_namespaces")
                .trim()
                .parse()
                .unwrap_or(0),
            left: left_on(&config.state),
            journals_in_manager: config.masters.journals == Some(JournalPlace::ResourceManager),
            journals_beside_state: config
                .masters
                .journals
                .as_ref()
                .and_then(JournalPlace::directory)
                .is_some_and(|dir| device(dir).is_some() && device(dir) == device(&config.state)),
            journals: SharedJournals::of(config, &probe_name())
                .map(|journals| (journals.name(), journals.check())),
        }
    }
}

/// A part of file names that no other process of any host uses.
fn probe_name() -> String {
    let host = host::name().map_or_else(|| "host".to_owned(), |name| name.to_string());
    format!("doctor-{host}-{}", std::process::id())
}

/// The file system of a path.
fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|facts| facts.dev())
}

/// The memory as the agent of this state directory would measure it.
fn left_on(state: &Path) -> Option<(Bytes, Bytes)> {
    let record: NodeRecordFields =
        serde_json::from_slice(&fs::read(state.join("node.json")).ok()?).ok()?;
    let containers =
        EnforcedGroup::attach(record.enforcer, &record.root?.join("containers")).ok()?;
    let limit = containers.level().ok()??.0?;
    Some((
        containers
            .unattributed(unattributed_memory::floor(limit))
            .ok()??,
        limit,
    ))
}

/// The fields of `node.json` that the doctor reads.
#[derive(Deserialize)]
struct NodeRecordFields {
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

impl StateFileSystem {
    fn of(state: &Path) -> StateFileSystem {
        let dir = state
            .ancestors()
            .find(|dir| dir.is_dir())
            .unwrap_or(Path::new("/"))
            .to_owned();
        let room = statvfs(&dir).ok().and_then(|facts| {
            let used = host::percent(
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
        StateFileSystem {
            dir,
            room,
            writable,
        }
    }
}

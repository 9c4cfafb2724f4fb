//! Judges the facts of the doctor. Pure.

use headroom_config::{IpcScope, NodeAgentConfig};
use headroom_node_cgroup::{CgroupFeatures, HierarchyMode};
use headroom_node_exec::Privilege;
use headroom_node_exec::syscalls::KernelCall;
use headroom_types::Bytes;

use super::facts::DoctorFacts;
use super::finding::{CheckResult, DoctorFinding};

/// Minimum number of open files. A container needs about eight descriptors of the agent; with fewer
/// the agent holds a few dozen containers.
const FILES: u64 = 4096;
/// Number of open files below which the agent itself does not work.
const FEWEST_FILES: u64 = 256;
/// Minimum number of processes and threads; one container alone may use as many.
const PROCESSES: u64 = 4096;
/// Minimum memory of a useful node.
const MEMORY: Bytes = Bytes::from_mib(256);
/// A clock before this year was never set.
const YEAR: u64 = 2025;

/// Fix: boot with cgroup v2 only.
const UNIFY: &str = "boot with systemd.unified_cgroup_hierarchy=1 and cgroup_no_v1=all";
const DELEGATE: &str = "run headroom-containers.service, or give your own cgroup with --cgroup-root (systemd-run --user -p Delegate=yes)";

pub(super) fn all(facts: &DoctorFacts, config: &NodeAgentConfig) -> Vec<DoctorFinding> {
    let mut findings = vec![cgroup(facts), controllers(facts), delegation(facts)];
    findings.extend(V2_FEATURES.iter().map(|feature| feature.judge(facts)));
    findings.push(psi(facts));
    findings.extend(
        facts
            .calls
            .iter()
            .map(|(call, there)| system_call(*call, *there, &facts.kernel)),
    );
    findings.extend([
        memory(facts),
        swap(facts),
        systemd(facts),
        open_files(facts),
        processes(facts),
    ]);
    findings.extend([
        disk(facts, config),
        clock(facts),
        users(facts),
        tmp(facts, config),
        namespaces(facts, config),
        journals(facts),
    ]);
    findings.push(left_behind(facts.left));
    findings
}

fn fine(code: &'static str, what: &'static str, found: impl Into<String>) -> DoctorFinding {
    DoctorFinding {
        code: code.into(),
        state: CheckResult::Ok,
        what: what.into(),
        found: found.into(),
        fix: None,
    }
}

impl DoctorFinding {
    fn warn(self, fix: impl Into<String>) -> DoctorFinding {
        self.with(CheckResult::Warn, fix.into())
    }
    fn fail(self, fix: impl Into<String>) -> DoctorFinding {
        self.with(CheckResult::Fail, fix.into())
    }
    fn with(self, state: CheckResult, fix: String) -> DoctorFinding {
        let fix = Some(fix);
        DoctorFinding { state, fix, ..self }
    }
}

fn cgroup(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: &str| fine("cgroup", "enforces the limits of containers", found);
    match facts.cgroup.mode {
        HierarchyMode::Unified => about("v2 with the memory controller"),
        HierarchyMode::Hybrid => about("v1 has the memory controller, v2 is empty").warn(UNIFY),
        HierarchyMode::V1 => about("v1 only").warn(UNIFY),
        HierarchyMode::Nothing => {
            about("no memory controller; limits would be measured, not enforced")
                .warn("mount cgroup2 at /sys/fs/cgroup; boot without cgroup_disable=memory")
        }
    }
}

fn controllers(facts: &DoctorFacts) -> DoctorFinding {
    let has = |name: &str| facts.cgroup.controllers.iter().any(|c| c == name);
    let disks = if facts.cgroup.mode == HierarchyMode::Unified {
        "io"
    } else {
        "blkio"
    };
    let lacking: Vec<&str> = ["memory", "pids", "cpu", disks]
        .into_iter()
        .filter(|c| !has(c))
        .collect();
    let found = match (facts.cgroup.controllers.as_slice(), lacking.as_slice()) {
        ([], _) => "none".to_owned(),
        (there, []) => there.join(" "),
        (there, lacking) => format!("{}; missing: {}", there.join(" "), lacking.join(", ")),
    };
    let finding = fine(
        "controllers",
        "memory, number of processes, shares of processors and of disks",
        found,
    );
    if lacking.is_empty() {
        return finding;
    }
    finding.warn(format!(
        "delegate {} to the cgroup of the agent (Delegate=yes)",
        lacking.join(", ")
    ))
}

fn delegation(facts: &DoctorFacts) -> DoctorFinding {
    let dir = facts.cgroup.dir.as_ref().map_or_else(
        || "no directory".to_owned(),
        |dir| dir.display().to_string(),
    );
    let about = |found: String| {
        fine(
            "delegation",
            "the agent creates a cgroup for each container",
            found,
        )
    };
    if facts.cgroup.writable {
        about(format!("{dir} is writable"))
    } else {
        about(format!(
            "{dir} is not writable; limits would be measured, not enforced"
        ))
        .warn(DELEGATE)
    }
}

/// A feature that only cgroup v2 has, since some kernel release.
struct V2Feature {
    code: &'static str,
    what: &'static str,
    there: fn(&CgroupFeatures) -> Option<bool>,
    /// The behavior of the agent without it.
    instead: &'static str,
    /// The first kernel release with it.
    since: &'static str,
}

const V2_FEATURES: [V2Feature; 3] = [
    V2Feature {
        code: "memory_oom_group",
        what: "the kernel kills the whole container at its limit, not one process",
        there: |cgroup| cgroup.oom_group,
        instead: "the agent kills the other processes",
        since: "4.19",
    },
    V2Feature {
        code: "cgroup_kill",
        what: "one step kills a container, also while it forks",
        there: |cgroup| cgroup.kill,
        instead: "the agent kills the processes one by one",
        since: "5.14",
    },
    V2Feature {
        code: "memory_high",
        what: "the kernel throttles a container before its limit, so that it can grow",
        there: |cgroup| cgroup.high,
        instead: "only the limit itself triggers growth",
        since: "4.19",
    },
];

impl V2Feature {
    fn judge(&self, facts: &DoctorFacts) -> DoctorFinding {
        let about = |found: String| fine(self.code, self.what, found);
        let V2Feature { instead, since, .. } = self;
        match (facts.cgroup.mode, (self.there)(&facts.cgroup)) {
            (HierarchyMode::Unified, Some(true)) => about("yes".to_owned()),
            (HierarchyMode::Unified, Some(false)) => {
                about(format!("not in Linux {}; {instead}", facts.kernel))
                    .warn(format!("run Linux {since} or newer"))
            }
            (HierarchyMode::Unified, None) => {
                about("unknown: there is no cgroup to inspect".to_owned())
                    .warn(format!("run Linux {since} or newer, which has it"))
            }
            (HierarchyMode::Hybrid | HierarchyMode::V1 | HierarchyMode::Nothing, _) => {
                about(format!("cgroup v2 only; {instead}")).warn(UNIFY)
            }
        }
    }
}

fn psi(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: &str| fine("psi", "measures how long programs wait for memory", found);
    if facts.psi {
        about("yes")
    } else {
        about("/proc/pressure/memory cannot be read").warn("boot with psi=1 (Linux 4.20 or newer)")
    }
}

fn system_call(call: KernelCall, there: bool, kernel: &str) -> DoctorFinding {
    let (code, what, since) = match call {
        KernelCall::PidfdOpen => (
            "pidfd",
            "a process is watched and signalled by descriptor, not by a reused process id",
            "5.3",
        ),
        KernelCall::Openat2 => ("openat2", "files are opened only below a directory", "5.6"),
        KernelCall::Clone3 => (
            "clone3",
            "a program is cloned into its cgroup of version 2 instead of moved",
            "5.7",
        ),
    };
    if there {
        return fine(code, what, "yes");
    }
    let lacking = fine(
        code,
        what,
        format!("Linux {kernel} does not have it, or a filter forbids it"),
    );
    let fix =
        format!("run Linux {since} or newer; in a container, allow it in the seccomp profile");
    // The agent itself requires pidfds; the other calls serve programs.
    if call == KernelCall::PidfdOpen {
        lacking.fail(fix)
    } else {
        lacking.warn(fix)
    }
}

fn memory(facts: &DoctorFacts) -> DoctorFinding {
    let finding = fine("memory", "memory of the host", facts.memory.to_string());
    if facts.memory < MEMORY {
        finding.fail(format!("a node needs at least {MEMORY}"))
    } else {
        finding
    }
}

fn swap(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: String| {
        fine(
            "swap",
            "containers get no swap, so that the memory limit is exact",
            found,
        )
    };
    match (
        facts.swap.is_zero(),
        facts.cgroup.mode,
        facts.cgroup.writable,
    ) {
        (true, _, _) => about("none".into()),
        (false, HierarchyMode::Unified | HierarchyMode::Hybrid | HierarchyMode::V1, true) => {
            about(format!("{}, not available to containers", facts.swap))
        }
        (false, HierarchyMode::Unified | HierarchyMode::Hybrid | HierarchyMode::V1, false)
        | (false, HierarchyMode::Nothing, _) => {
            about(format!("{}, and containers can use it", facts.swap))
                .warn("switch it off: swapoff -a")
        }
    }
}

fn systemd(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: String| {
        fine(
            "systemd",
            "keeps containers alive while the agent is replaced",
            found,
        )
    };
    match &facts.systemd {
        Some(version) => about(version.clone()),
        None => about(format!("process 1 is {}", facts.first_process))
            .warn("start the agent with a program that does not end the children of the agent"),
    }
}

fn bounded(finding: DoctorFinding, most: Option<u64>, wanted: u64, fix: &str) -> DoctorFinding {
    let finding = DoctorFinding {
        found: most.map_or_else(|| "no limit".to_owned(), |n| n.to_string()),
        ..finding
    };
    if most.is_some_and(|n| n < wanted) {
        finding.warn(fix)
    } else {
        finding
    }
}

fn open_files(facts: &DoctorFacts) -> DoctorFinding {
    let about = fine("open_files", "a container needs about eight", "");
    let fix = "LimitNOFILE=1048576 in the unit, or `ulimit -Hn 1048576` as root";
    let finding = bounded(about, facts.open_files, FILES, fix);
    if facts.open_files.is_some_and(|n| n < FEWEST_FILES) {
        finding.fail(fix)
    } else {
        finding
    }
}

fn processes(facts: &DoctorFacts) -> DoctorFinding {
    let about = fine(
        "processes",
        "processes of this user in all containers together",
        "",
    );
    bounded(
        about,
        facts.processes,
        PROCESSES,
        "LimitNPROC=infinity and TasksMax=infinity in the unit, or raise `ulimit -Hu`",
    )
}

fn disk(facts: &DoctorFacts, config: &NodeAgentConfig) -> DoctorFinding {
    let disk = &facts.disk;
    let about = |found: String| {
        fine(
            "disk",
            "records, logs and working directories of containers",
            found,
        )
    };
    let (at, full) = (disk.dir.display(), u64::from(config.health.disk_full));
    match disk.room {
        None => {
            about(format!("the free space of {at} cannot be read")).fail("choose another --state")
        }
        Some(_) if !disk.writable => about(format!("{at} is not writable"))
            .fail("run as a user with write permission, or choose another --state"),
        Some((used, free)) if used >= full => about(format!(
            "{at}: {used} % in use, {free} free (limit {full} %)"
        ))
        .fail("free space, choose another --state, or raise disk_full under [health]"),
        Some((used, free)) => about(format!("{at}: {used} % in use, {free} free")),
    }
}

fn journals(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: String| {
        fine(
            "journals",
            "a master that starts on another node continues its job",
            found,
        )
    };
    match &facts.journals {
        None if facts.journals_in_manager => about(
            "in the state of the resource manager, for jobs up to the limits of [journals] there"
                .into(),
        ),
        None => about(
            "no shared directory; a master on another node begins its job from the start".into(),
        ),
        Some((_, Some(problem))) => about(problem.found.clone()).fail(problem.fix.clone()),
        Some((place, None)) if facts.journals_beside_state => about(format!(
            "{place} is on the file system of the state directory"
        ))
        .warn("use a file system that every node mounts, and name its type in masters.file_system"),
        Some((place, None)) => about(format!(
            "{place}: exclusive creation, writes and reads work"
        )),
    }
}

fn clock(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: String| fine("clock", "times of several nodes are compared", found);
    let fix = "run chronyd or systemd-timesyncd";
    match facts.clock {
        (_, year) if year < YEAR => {
            about(format!("the year is {year}; the clock was never set")).warn(fix)
        }
        (Some(true), _) => about("synchronized".into()),
        (Some(false), _) => about("not synchronized".into()).warn(fix),
        (None, _) => about("unknown".into())
            .warn("allow adjtimex in the seccomp profile, and synchronize the clock of the host"),
    }
}

fn users(facts: &DoctorFacts) -> DoctorFinding {
    let about = |found: &str| {
        fine(
            "users",
            "programs run as the user who submitted them",
            found,
        )
    };
    if facts.rights.root {
        about("the agent may start programs as other users")
    } else {
        about("not root: all programs run as the user of the agent")
            .warn("run the agent as root; its unit drops most capabilities")
    }
}

fn tmp(facts: &DoctorFacts, config: &NodeAgentConfig) -> DoctorFinding {
    let about = |found: String| {
        fine(
            "private_tmp",
            "programs do not see each other's files in /tmp",
            found,
        )
    };
    let only = "all programs share the /tmp of the host; only TMPDIR is private";
    match (config.isolation.private_tmp, facts.rights.mounts) {
        (true, true) => about("each container has its own".into()),
        (true, false) => about(format!(
            "no CAP_SYS_ADMIN (user namespaces: {}); {only}",
            facts.user_namespaces
        ))
        .warn("give the agent CAP_SYS_ADMIN, as its unit does"),
        (false, _) => about(format!("not configured; {only}"))
            .warn("set private_tmp = true under [isolation], without --shared-tmp"),
    }
}

fn namespaces(facts: &DoctorFacts, config: &NodeAgentConfig) -> DoctorFinding {
    let about = |found: &str| {
        fine(
            "namespaces",
            "shared memory and IPC objects of a program are removed with it",
            found,
        )
    };
    match (config.isolation.ipc, facts.rights.namespaces) {
        (IpcScope::Task | IpcScope::Container, Some(Privilege::SysAdmin)) => {
            about("each container has its own; tasks of user 0 too, and tasks of other users if user namespaces are available")
        }
        (IpcScope::Task | IpcScope::Container, Some(Privilege::UserNamespace)) => {
            about("each container and task has its own, by user namespaces")
        }
        (IpcScope::Task | IpcScope::Container, None) => about(
            "neither CAP_SYS_ADMIN nor user namespaces: programs use /dev/shm and IPC of the host, and leftovers stay charged",
        )
        .warn("give the agent CAP_SYS_ADMIN, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"),
        (IpcScope::Host, _) => {
            about("not configured: programs use /dev/shm and IPC of the host").warn("set ipc = \"task\" under [isolation]")
        }
    }
}

/// The finding about unattributed memory. `left` is the memory and the limit of all containers.
pub(crate) fn left_behind(left: Option<(Bytes, Bytes)>) -> DoctorFinding {
    let about = |found: String| {
        fine(
            "unattributed",
            "memory of ended containers is free for the next ones",
            found,
        )
    };
    match left {
        None => about("this host has no cgroup of a node agent".to_owned()),
        Some((memory, _)) if memory.is_zero() => about("no memory of ended containers".to_owned()),
        Some((memory, limit)) => about(format!("{memory} of {limit} are held by memory that no running container owns"))
            .warn("remove leftovers of ended programs: df -t tmpfs, ls -l /dev/shm, ipcs -m; rmctl node show NODE lists owners"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::StateFileSystem;
    use super::super::worst;
    use super::*;
    use crate::journals::JournalsProblem;
    use crate::privileges::AgentPrivileges;
    use headroom_node_cgroup::CgroupFeatures;

    fn good() -> DoctorFacts {
        let words = |all: &str| all.split(' ').map(str::to_owned).collect();
        DoctorFacts {
            kernel: "6.1.0".into(),
            cgroup: CgroupFeatures {
                mode: HierarchyMode::Unified,
                dir: Some("/sys/fs/cgroup/x".into()),
                controllers: words("cpu io memory pids"),
                writable: true,
                oom_group: Some(true),
                kill: Some(true),
                high: Some(true),
            },
            calls: [
                KernelCall::PidfdOpen,
                KernelCall::Openat2,
                KernelCall::Clone3,
            ]
            .map(|call| (call, true)),
            psi: true,
            memory: Bytes::from_gib(8),
            swap: Bytes::from_gib(1),
            systemd: Some("systemd 252".into()),
            first_process: "systemd".into(),
            open_files: Some(1 << 20),
            processes: None,
            disk: StateFileSystem {
                dir: "/s".into(),
                room: Some((40, Bytes::from_gib(50))),
                writable: true,
            },
            clock: (Some(true), 2026),
            rights: AgentPrivileges {
                root: true,
                mounts: true,
                namespaces: Some(Privilege::SysAdmin),
                maps_root: true,
                limits: true,
            },
            user_namespaces: 100,
            left: Some((Bytes::ZERO, Bytes::from_gib(3))),
            journals: Some(("/shared".into(), None)),
            journals_in_manager: false,
            journals_beside_state: false,
        }
    }

    /// Code and result of each finding that is not `Ok`.
    fn ills(facts: &DoctorFacts) -> Vec<(String, CheckResult)> {
        let findings = all(facts, &NodeAgentConfig::default());
        for finding in &findings {
            assert_eq!(
                finding.fix.is_none(),
                finding.state == CheckResult::Ok,
                "{finding:?}"
            );
            assert!(
                !finding.found.is_empty() && !finding.what.is_empty(),
                "{finding:?}"
            );
        }
        findings
            .into_iter()
            .filter(|f| f.state != CheckResult::Ok)
            .map(|f| (f.code.into_owned(), f.state))
            .collect()
    }

    #[test]
    fn a_good_host_passes_every_check() {
        assert!(ills(&good()).is_empty());
        assert_eq!(
            worst(&all(&good(), &NodeAgentConfig::default())),
            CheckResult::Ok
        );
    }

    #[test]
    fn each_missing_feature_has_its_own_finding() {
        type Spoil = fn(&mut DoctorFacts);
        let cases: [(&str, CheckResult, Spoil); 17] = [
            ("unattributed", CheckResult::Warn, |f| {
                f.left = Some((Bytes::from_mib(300), Bytes::from_gib(3)))
            }),
            ("journals", CheckResult::Fail, |f| {
                let problem = JournalsProblem {
                    found: "/shared cannot be opened".into(),
                    fix: "mount it".into(),
                };
                f.journals = Some(("/shared".into(), Some(problem)));
            }),
            ("journals", CheckResult::Warn, |f| {
                f.journals_beside_state = true
            }),
            ("controllers", CheckResult::Warn, |f| {
                f.cgroup.controllers.retain(|c| c != "pids")
            }),
            ("memory_oom_group", CheckResult::Warn, |f| {
                f.cgroup.oom_group = Some(false)
            }),
            ("cgroup_kill", CheckResult::Warn, |f| f.cgroup.kill = None),
            ("memory_high", CheckResult::Warn, |f| {
                f.cgroup.high = Some(false)
            }),
            ("psi", CheckResult::Warn, |f| f.psi = false),
            ("pidfd", CheckResult::Fail, |f| f.calls[0].1 = false),
            ("openat2", CheckResult::Warn, |f| f.calls[1].1 = false),
            ("systemd", CheckResult::Warn, |f| f.systemd = None),
            ("open_files", CheckResult::Warn, |f| {
                f.open_files = Some(1024)
            }),
            ("open_files", CheckResult::Fail, |f| f.open_files = Some(64)),
            ("processes", CheckResult::Warn, |f| f.processes = Some(100)),
            ("disk", CheckResult::Fail, |f| {
                f.disk.room = Some((91, Bytes::from_gib(1)))
            }),
            ("disk", CheckResult::Fail, |f| f.disk.writable = false),
            ("clock", CheckResult::Warn, |f| f.clock = (Some(true), 1970)),
        ];
        for (code, state, spoil) in cases {
            let mut facts = good();
            spoil(&mut facts);
            assert_eq!(ills(&facts), [(code.to_owned(), state)]);
        }
    }

    #[test]
    fn a_v1_host_has_warnings_for_v2_features_and_for_swap() {
        let mut facts = good();
        facts.cgroup.mode = HierarchyMode::Hybrid;
        facts.cgroup.controllers =
            vec!["memory".into(), "pids".into(), "cpu".into(), "blkio".into()];
        let names: Vec<_> = ills(&facts).into_iter().map(|(code, _)| code).collect();
        assert_eq!(
            names,
            ["cgroup", "memory_oom_group", "cgroup_kill", "memory_high"]
        );
        facts.cgroup.writable = false;
        let names: Vec<_> = ills(&facts).into_iter().map(|(code, _)| code).collect();
        assert_eq!(
            names,
            [
                "cgroup",
                "delegation",
                "memory_oom_group",
                "cgroup_kill",
                "memory_high",
                "swap"
            ]
        );
    }

    #[test]
    fn without_mount_permission_only_tmpdir_is_private() {
        let mut facts = good();
        facts.rights = AgentPrivileges {
            root: true,
            mounts: false,
            namespaces: None,
            maps_root: false,
            limits: false,
        };
        let finding = tmp(&facts, &NodeAgentConfig::default());
        assert!(
            finding.state == CheckResult::Warn && finding.found.contains("only TMPDIR is private"),
            "{finding:?}"
        );
        let mut config = NodeAgentConfig::default();
        config.isolation.private_tmp = false;
        assert!(tmp(&good(), &config).found.contains("not configured"));
    }
}

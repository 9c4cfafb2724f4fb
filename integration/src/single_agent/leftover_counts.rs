//! Counts of objects that an agent left in the kernel and on disk.

use std::fs;
use std::path::Path;

use crate::single_agent::agent::SingleAgent;
use crate::sweep;

/// Entries of the state directory that belong to no container; see the agent's layout.
const OWN_FILES: [&str; 4] = ["lock", "node.json", "containers", "apps"];

/// Counts of objects that must be gone when no container is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoverCounts {
    /// Cgroups of containers, in all hierarchies.
    pub cgroups: usize,
    /// Processes that name the agent's directory, without the agent and its launcher: shims,
    /// programs and their children.
    pub processes: usize,
    /// Ended children of the agent that were not reaped.
    pub zombies: usize,
    /// Temporary files, unknown files, and directories of containers without a `forgotten` mark.
    pub files: usize,
    /// Open files of the agent except sockets.
    pub descriptors: usize,
}

impl LeftoverCounts {
    /// Counts the present objects.
    pub fn of(agent: &SingleAgent) -> Self {
        let pid = agent.pid().unwrap_or(0);
        let resident = |p: &i32| *p != pid && !is_launcher_of(*p, pid);
        LeftoverCounts {
            cgroups: agent
                .cgroups()
                .iter()
                .map(|root| directories(&root.join("containers")))
                .sum(),
            processes: sweep::processes(agent.dir())
                .into_iter()
                .filter(resident)
                .count(),
            zombies: zombies_of(pid),
            files: files(&agent.state()),
            descriptors: descriptors(pid),
        }
    }

    /// Number of objects in excess of `before`.
    pub fn beyond(&self, before: &LeftoverCounts) -> usize {
        let pairs = [
            (self.cgroups, before.cgroups),
            (self.processes, before.processes),
            (self.zombies, before.zombies),
            (self.files, before.files),
            (self.descriptors, before.descriptors),
        ];
        pairs
            .iter()
            .map(|(now, before)| now.saturating_sub(*before))
            .sum()
    }
}

/// Directories below `dir`, at any depth.
fn directories(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let below = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    below.map(|e| 1 + directories(&e.path())).sum()
}

fn files(state: &Path) -> usize {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    };
    let strange = names(state)
        .iter()
        .filter(|name| !OWN_FILES.contains(&name.as_str()))
        .count();
    let containers = state.join("containers");
    let of_one = |name: &String| {
        let dir = containers.join(name);
        let torn = names(&dir)
            .iter()
            .filter(|file| file.ends_with(".tmp"))
            .count();
        torn + usize::from(!dir.join("forgotten").exists())
    };
    strange + names(&containers).iter().map(of_one).sum::<usize>()
}

fn descriptors(pid: i32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let targets = entries.filter_map(|e| fs::read_link(e.path()).ok());
    targets
        .filter(|target| !target.to_string_lossy().starts_with("socket:"))
        .count()
}

fn zombies_of(parent: i32) -> usize {
    children(parent, |state| state == "Z")
}

/// Number of children of a process in a state, as in field 3 of `/proc/PID/stat`.
pub(crate) fn children(of: i32, is_counted: fn(&str) -> bool) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|e| fs::read_to_string(e.path().join("stat")).ok());
    stats
        .filter(|stat| {
            state_and_parent(stat).is_some_and(|(state, parent)| parent == of && is_counted(state))
        })
        .count()
}

/// Reaps the shims that a killed agent left to this process. Other children are not touched.
pub fn reap_shims() {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let is_one =
            stat.contains("(container-shim)") && state_and_parent(&stat) == Some(("Z", own));
        if let Some(pid) = pid.filter(|_| is_one) {
            // Another thread may reap it first.
            let _ = waitpid(nix::unistd::Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Fields 3 and 4 of `/proc/PID/stat`.
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

/// True for the launcher of an agent.
fn is_launcher_of(pid: i32, agent: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_child =
        state_and_parent(&stat).is_some_and(|(state, parent)| parent == agent && state != "Z");
    is_child && line.windows(10).any(|w| w == b"--launcher")
}

/// The launcher of an agent, if it runs.
pub(crate) fn launcher_of(agent: i32) -> Option<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_launcher_of(*pid, agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_leftovers_are_not_counted() {
        let before = LeftoverCounts {
            descriptors: 9,
            files: 1,
            ..LeftoverCounts::default()
        };
        let after = LeftoverCounts {
            descriptors: 8,
            files: 3,
            cgroups: 1,
            ..LeftoverCounts::default()
        };
        assert_eq!(after.beyond(&before), 3);
    }

    #[test]
    fn a_zombie_is_recognized_by_its_stat() {
        assert_eq!(state_and_parent("7 (a) b) Z 12 7 7"), Some(("Z", 12)));
        assert_eq!(state_and_parent("nonsense"), None);
    }
}

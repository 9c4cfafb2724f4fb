//! The cgroup hierarchies of this host and the memberships of this process, as the kernel lists
//! them.
//!
//! It only reads `/proc`, and keeps nothing between two calls.

use std::path::{Path, PathBuf};

use crate::layout::{v1_mount, v2_mount};
use crate::parse::{self, MountedHierarchy};

/// The hierarchies and the memberships of this process, as the kernel lists them.
pub(crate) struct Hierarchies {
    pub(crate) mounts: Vec<MountedHierarchy>,
    pub(crate) own: Vec<parse::Membership>,
}

impl Hierarchies {
    /// Reads them from `/proc`. An unreadable file counts as empty.
    pub(crate) fn read() -> Hierarchies {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Hierarchies {
            mounts: parse::mountinfo(&text("/proc/self/mountinfo")),
            own: parse::self_cgroup(&text("/proc/self/cgroup")),
        }
    }

    /// The mode of the host: unified, hybrid, legacy or none.
    pub(crate) fn mode(&self) -> String {
        let v1 = self.mounts.iter().any(|m| m.fstype == "cgroup");
        let mode = match (
            cgroups_rs::hierarchies::is_cgroup2_unified_mode(),
            v1,
            v2_mount(&self.mounts).is_some(),
        ) {
            (true, _, _) => "unified (cgroup v2)",
            (false, true, true) => "hybrid (v1 controllers and an empty v2 hierarchy)",
            (false, true, false) => "legacy (cgroup v1)",
            (false, false, true) => "cgroup v2, not mounted at /sys/fs/cgroup",
            (false, false, false) => "no cgroup hierarchy is mounted",
        };
        format!("host: {mode}")
    }
}

/// The directory in the hierarchy of `controller` that mirrors `memory`; it may be missing.
pub(crate) fn mirror(
    mounts: &[MountedHierarchy],
    controller: &str,
    memory: &Path,
) -> Option<PathBuf> {
    let below = memory
        .strip_prefix(&v1_mount(mounts, "memory")?.point)
        .ok()?;
    Some(v1_mount(mounts, controller)?.point.join(below))
}

/// The mirrors of a group in the hierarchies of pids and cpu of this host.
pub(crate) fn mirrors(memory: &Path) -> [Option<PathBuf>; 2] {
    let mounts = Hierarchies::read().mounts;
    ["pids", "cpu"].map(|controller| mirror(&mounts, controller, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_keeps_the_relative_path() {
        let mounts = parse::mountinfo(
            "36 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n37 31 0:33 / /cg/pids rw - cgroup cgroup rw,pids\n",
        );
        assert_eq!(
            mirror(&mounts, "pids", Path::new("/cg/memory/a/b")),
            Some(PathBuf::from("/cg/pids/a/b"))
        );
        assert_eq!(mirror(&mounts, "pids", Path::new("/elsewhere")), None);
        assert_eq!(
            mirror(&mounts[..1], "pids", Path::new("/cg/memory/a")),
            None
        );
    }
}

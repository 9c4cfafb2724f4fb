//! The cgroup features that are available to this process. It only reads.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::layout::{PROCS, dir_in, v1_mount, v2_membership, v2_mount};
use crate::parse;

/// The mounted hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HierarchyMode {
    /// v2 with its controllers.
    Unified,
    /// v2 is mounted, and v1 has the memory controller.
    Hybrid,
    /// Only v1.
    V1,
    /// No hierarchy.
    Nothing,
}

/// The available features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFeatures {
    /// The mounted hierarchies.
    pub mode: HierarchyMode,
    /// The directory for new groups, in the hierarchy that has the memory controller.
    pub dir: Option<PathBuf>,
    /// Available controllers there, by the kernel's names.
    pub controllers: Vec<String>,
    /// Whether this process can create groups there.
    pub writable: bool,
    /// Whether the kernel kills a whole group at its limit (`memory.oom.group`); `None` without an
    /// existing group to check.
    pub oom_group: Option<bool>,
    /// Whether a whole group can be killed at once (`cgroup.kill`); `None` without an existing
    /// group to check.
    pub kill: Option<bool>,
    /// Whether a group can be throttled before its limit (`memory.high`); `None` without an
    /// existing group to check.
    pub high: Option<bool>,
}

/// Detects the features. `root` is the chosen root directory, if any.
pub fn detect_features(root: Option<&Path>) -> CgroupFeatures {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mounts = parse::mountinfo(&text("/proc/self/mountinfo"));
    let own = parse::self_cgroup(&text("/proc/self/cgroup"));
    let (v2, v1) = (v2_mount(&mounts), v1_mount(&mounts, "memory"));
    let unified = v2.and_then(|mount| {
        let own = v2_membership(&own).and_then(|path| dir_in(mount, path));
        let dir = root
            .map(there)
            .or(own)
            .unwrap_or_else(|| mount.point.clone());
        let controllers =
            parse::words(&std::fs::read_to_string(dir.join("cgroup.controllers")).ok()?);
        controllers
            .iter()
            .any(|c| c == "memory")
            .then_some((dir, controllers))
    });
    match (unified, v1) {
        (Some((dir, controllers)), _) => {
            let seen = example(&dir);
            let has = |file: &str| seen.as_ref().map(|group| group.join(file).exists());
            let (oom_group, kill, high) = (
                has("memory.oom.group"),
                has("cgroup.kill"),
                has("memory.high"),
            );
            CgroupFeatures {
                mode: HierarchyMode::Unified,
                writable: may_make(&dir),
                dir: Some(dir),
                controllers,
                oom_group,
                kill,
                high,
            }
        }
        (None, Some(v1)) => {
            let known = ["memory", "pids", "cpu", "blkio"]
                .into_iter()
                .filter(|c| v1_mount(&mounts, c).is_some());
            let dir = root.map_or_else(|| v1.point.clone(), there);
            CgroupFeatures {
                mode: if v2.is_some() {
                    HierarchyMode::Hybrid
                } else {
                    HierarchyMode::V1
                },
                controllers: known.map(str::to_owned).collect(),
                writable: may_make(&dir),
                dir: Some(dir),
                oom_group: Some(false),
                kill: Some(false),
                high: Some(false),
            }
        }
        (None, None) => CgroupFeatures {
            mode: HierarchyMode::Nothing,
            dir: v2.map(|mount| mount.point.clone()),
            controllers: Vec::new(),
            writable: false,
            oom_group: None,
            kill: None,
            high: None,
        },
    }
}

/// The directory, or its parent if it does not exist yet.
fn there(root: &Path) -> PathBuf {
    if root.exists() {
        root.to_owned()
    } else {
        root.parent().unwrap_or(root).to_owned()
    }
}

fn may_make(dir: &Path) -> bool {
    access(dir, Access::WRITE_OK).is_ok() && access(dir.join(PROCS), Access::WRITE_OK).is_ok()
}

/// A group with a memory controller: this directory or one below. The real root has none of the
/// files.
fn example(dir: &Path) -> Option<PathBuf> {
    let has = |dir: &Path| dir.join("memory.max").exists();
    if has(dir) {
        return Some(dir.to_owned());
    }
    std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| has(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detected_features_agree_with_the_mounted_hierarchies() {
        let found = detect_features(None);
        if found.mode == HierarchyMode::Nothing {
            assert!(!found.writable && found.controllers.is_empty());
            return;
        }
        assert!(found.controllers.iter().any(|c| c == "memory"), "{found:?}");
        assert!(
            found.dir.as_ref().is_some_and(|dir| dir.is_dir()),
            "{found:?}"
        );
        let elsewhere = detect_features(Some(Path::new("/proc/nowhere/at-all")));
        assert!(!elsewhere.writable, "{elsewhere:?}");
    }

    #[test]
    fn the_example_is_a_group_with_memory_files() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(example(dir.path()), None);
        let group = dir.path().join("group");
        std::fs::create_dir(&group).expect("makes");
        std::fs::write(group.join("memory.max"), "max\n").expect("writes");
        assert_eq!(example(dir.path()), Some(group.clone()));
        assert_eq!(example(&group), Some(group));
        assert!(!may_make(dir.path()), "the directory has no cgroup.procs");
    }
}

//! Names of the directories below the root, and where hierarchies are mounted: pure.
//!
//! ```text
//! ROOT/shims            all container-shims
//! ROOT/containers       the fence: what the node offers
//!      <container>      heap + overhead
//!          main         the executor itself
//!          task-<name>  one running task
//! ```

use std::path::{Path, PathBuf};

use crate::error::{CgroupError, Result};
use crate::parse::{Membership, Mount};

/// Where the agent or the keeper itself goes when its own cgroup must become an inner node.
pub const AGENT: &str = "agent";
/// All shims.
pub const SHIMS: &str = "shims";
/// All containers; its limit is what the node offers.
pub const CONTAINERS: &str = "containers";
/// The executor itself, in its container.
pub const MAIN: &str = "main";
/// What the name of a task's group starts with.
pub const TASK_PREFIX: &str = "task-";
/// The file that moves a process into a group.
pub const PROCS: &str = "cgroup.procs";
/// v1 only: the file that moves the thread that writes `0` into it. For a process of one thread that is the same, and the kernel need not
/// keep every fork of the host waiting for it, which takes 10 ms where no other process moves.
pub const TASKS: &str = "tasks";

/// `name` if it can be one directory that collides with no kernel file, or the reason.
pub fn checked(name: &str) -> Result<&str> {
    let fine = name.len() <= 200
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fine { Ok(name) } else { Err(CgroupError::Name(name.to_owned())) }
}

/// The directory name of a task's group.
pub fn task_dir(name: &str) -> Result<String> {
    let dir = format!("{TASK_PREFIX}{name}");
    checked(&dir)?;
    Ok(dir)
}

/// The directory of the cgroup `path` (as in `/proc/self/cgroup`) in a hierarchy mounted at `mount`; `None` when the mount does not show it.
pub fn dir_in(mount: &Mount, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.root).ok()?;
    Some(if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
}

/// The v1 mount that carries `controller`.
pub fn v1_mount<'a>(mounts: &'a [Mount], controller: &str) -> Option<&'a Mount> {
    mounts.iter().find(|m| m.fstype == "cgroup" && m.options.iter().any(|o| o == controller))
}

/// The cgroup v2 mount.
pub fn v2_mount(mounts: &[Mount]) -> Option<&Mount> {
    mounts.iter().find(|m| m.fstype == "cgroup2")
}

/// The caller's own v2 path.
pub fn v2_membership(list: &[Membership]) -> Option<&Path> {
    list.iter().find(|m| m.hierarchy == 0 && m.controllers.is_empty()).map(|m| m.path.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{mountinfo, self_cgroup};

    const MOUNTS: &str = "\
31 24 0:27 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate
36 31 0:32 /docker/abc /sys/fs/cgroup/memory rw shared:15 - cgroup cgroup rw,memory
37 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw shared:16 - cgroup cgroup rw,cpu,cpuacct
";

    #[test]
    fn finds_the_mount_of_a_controller() {
        let mounts = mountinfo(MOUNTS);
        assert_eq!(v1_mount(&mounts, "memory").map(|m| m.point.as_path()), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(v1_mount(&mounts, "cpuacct").map(|m| m.point.as_path()), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(v1_mount(&mounts, "pids"), None);
        assert_eq!(v2_mount(&mounts).map(|m| m.point.as_path()), Some(Path::new("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn a_cgroup_path_is_seen_through_its_mount() {
        let mounts = mountinfo(MOUNTS);
        let memory = v1_mount(&mounts, "memory").expect("there");
        assert_eq!(dir_in(memory, Path::new("/docker/abc/x")), Some(PathBuf::from("/sys/fs/cgroup/memory/x")));
        assert_eq!(dir_in(memory, Path::new("/docker/abc")), Some(PathBuf::from("/sys/fs/cgroup/memory")));
        assert_eq!(dir_in(memory, Path::new("/elsewhere")), None, "outside of what is mounted here");
    }

    #[test]
    fn own_v2_path() {
        let list = self_cgroup("4:memory:/docker/abc\n1:name=systemd:/x\n0::/system.slice/a.service\n");
        assert_eq!(v2_membership(&list), Some(Path::new("/system.slice/a.service")));
        assert_eq!(v2_membership(&self_cgroup("4:memory:/\n")), None);
    }

    #[test]
    fn no_name_leaves_its_directory() {
        for bad in ["", ".", "..", "a/b", "-x", "a b", "ä"] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
        assert!(checked("word-count.7.e3.c12").is_ok() && task_dir("map-7-2").is_ok());
        assert!(task_dir("../x").is_err());
    }
}

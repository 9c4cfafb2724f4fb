//! Names of the directories below the root, and mount points of hierarchies. Pure.
//!
//! ```text
//! ROOT/shims            all container-shims
//! ROOT/containers       the fence: the memory that the node offers
//!      <container>      heap + overhead
//!          main         the executor
//!          task-<name>  one running task, or a later one: see [`TASK_NAME`]
//! ```

use std::path::{Path, PathBuf};

use crate::error::{CgroupError, Result};
use crate::parse::{Membership, MountedHierarchy};

/// The group of the agent or the cgroup holder, when its own cgroup must become an inner node.
pub const AGENT: &str = "agent";
/// The group of all shims.
pub const SHIMS: &str = "shims";
/// The group of all containers; its limit is the memory that the node offers.
pub const CONTAINERS: &str = "containers";
/// The group of the executor, inside its container.
pub const MAIN: &str = "main";
/// The prefix of the name of a task's group.
pub const TASK_PREFIX: &str = "task-";
/// The attribute with the name of the task that uses a group now, if another task has created it.
/// Empty while no task uses it.
pub const TASK_NAME: &str = "user.headroom.task";
/// The file that moves a process into a group.
pub const PROCS: &str = "cgroup.procs";
/// v1 only: the file that moves the thread which writes `0` into it. For a single-threaded process
/// that moves the whole process. It also avoids the lock that delays every fork of the host, which
/// takes 10 ms on an idle host.
pub const TASKS: &str = "tasks";

/// `name` if it is a valid directory name that collides with no kernel file; else an error.
pub fn checked(name: &str) -> Result<&str> {
    let fine = name.len() <= 200
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fine {
        Ok(name)
    } else {
        Err(CgroupError::Name(name.to_owned()))
    }
}

/// The directory name of a task's group.
pub fn task_dir(name: &str) -> Result<String> {
    let dir = format!("{TASK_PREFIX}{name}");
    checked(&dir)?;
    Ok(dir)
}

/// The directory of the cgroup `path` (as in `/proc/self/cgroup`) in a hierarchy mounted at
/// `mount`. `None` when the mount does not contain it.
pub fn dir_in(mount: &MountedHierarchy, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.root).ok()?;
    Some(if below.as_os_str().is_empty() {
        mount.point.clone()
    } else {
        mount.point.join(below)
    })
}

/// The v1 mount that carries `controller`.
pub fn v1_mount<'a>(
    mounts: &'a [MountedHierarchy],
    controller: &str,
) -> Option<&'a MountedHierarchy> {
    mounts
        .iter()
        .find(|m| m.fstype == "cgroup" && m.options.iter().any(|o| o == controller))
}

/// The cgroup v2 mount.
pub fn v2_mount(mounts: &[MountedHierarchy]) -> Option<&MountedHierarchy> {
    mounts.iter().find(|m| m.fstype == "cgroup2")
}

/// The v2 path of the calling process.
pub fn v2_membership(list: &[Membership]) -> Option<&Path> {
    list.iter()
        .find(|m| m.hierarchy == 0 && m.controllers.is_empty())
        .map(|m| m.path.as_path())
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
        assert_eq!(
            v1_mount(&mounts, "memory").map(|m| m.point.as_path()),
            Some(Path::new("/sys/fs/cgroup/memory"))
        );
        assert_eq!(
            v1_mount(&mounts, "cpuacct").map(|m| m.point.as_path()),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(v1_mount(&mounts, "pids"), None);
        assert_eq!(
            v2_mount(&mounts).map(|m| m.point.as_path()),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
    }

    #[test]
    fn a_cgroup_path_is_seen_through_its_mount() {
        let mounts = mountinfo(MOUNTS);
        let memory = v1_mount(&mounts, "memory").expect("there");
        assert_eq!(
            dir_in(memory, Path::new("/docker/abc/x")),
            Some(PathBuf::from("/sys/fs/cgroup/memory/x"))
        );
        assert_eq!(
            dir_in(memory, Path::new("/docker/abc")),
            Some(PathBuf::from("/sys/fs/cgroup/memory"))
        );
        assert_eq!(
            dir_in(memory, Path::new("/elsewhere")),
            None,
            "a path outside of the mount"
        );
    }

    #[test]
    fn own_v2_path() {
        let list =
            self_cgroup("4:memory:/docker/abc\n1:name=systemd:/x\n0::/system.slice/a.service\n");
        assert_eq!(
            v2_membership(&list),
            Some(Path::new("/system.slice/a.service"))
        );
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

//! IPC and mount namespaces of a child, with a separate tmpfs at `/dev/shm`.
//!
//! The kernel frees their contents when the last process ends: POSIX and SysV shared memory,
//! semaphores and message queues. The child mounts the tmpfs after it entered its cgroup, so the
//! pages are charged to that cgroup.

use std::ffi::CString;

/// The parameters of a child's IPC namespace and `/dev/shm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// The privilege that creates them.
    pub privilege: Privilege,
    /// Size limit of `/dev/shm`. In bytes.
    pub shm: u64,
}

/// The privilege that creates namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The caller has `CAP_SYS_ADMIN` in its user namespace. The child drops it before it executes
    /// the program.
    SysAdmin,
    /// A new user namespace, in which the caller's user and group are mapped to themselves.
    UserNamespace,
}

/// The effective capabilities of this process, one bit for each number; none if they are unknown.
pub fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

impl Privilege {
    /// The privilege of this process.
    pub fn own() -> Privilege {
        const CAP_SYS_ADMIN: u32 = 21;
        if effective_capabilities() >> CAP_SYS_ADMIN & 1 == 1 {
            Privilege::SysAdmin
        } else {
            Privilege::UserNamespace
        }
    }
}

/// The texts of the system calls, built before the clone.
pub(crate) struct PreparedNamespaces {
    pub(crate) flags: libc::c_int,
    /// `uid_map` and `gid_map`, for a new user namespace.
    pub(crate) maps: Option<[CString; 2]>,
    /// Mount options of `/dev/shm`.
    pub(crate) options: CString,
}

impl PreparedNamespaces {
    pub(crate) fn new(namespaces: &Namespaces) -> PreparedNamespaces {
        let text = |t: String| CString::new(t).unwrap_or_default();
        let map = |id: u32| text(format!("{id} {id} 1"));
        let (flags, maps) = match namespaces.privilege {
            Privilege::SysAdmin => (0, None),
            Privilege::UserNamespace => {
                let (uid, gid) = (
                    rustix::process::geteuid().as_raw(),
                    rustix::process::getegid().as_raw(),
                );
                (libc::CLONE_NEWUSER, Some([map(uid), map(gid)]))
            }
        };
        let options = text(format!("mode=1777,size={}", namespaces.shm));
        PreparedNamespaces {
            flags: flags | libc::CLONE_NEWNS | libc::CLONE_NEWIPC,
            maps,
            options,
        }
    }
}

/// The name of the failed part, by the index that the child reports.
pub(crate) fn part(index: usize) -> &'static str {
    match index {
        0 => "user, mount and IPC namespaces",
        1 => "/proc/self/setgroups",
        2 => "/proc/self/uid_map",
        3 => "/proc/self/gid_map",
        4 => "mount propagation of /",
        5 => "a tmpfs at /dev/shm",
        _ => "capset",
    }
}

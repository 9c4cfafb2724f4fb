//! Early warnings: descriptors that become readable when memory events of a group occur.
//!
//! The sampler owns them. v2: inotify on `memory.events` covers all counters of the group and
//! below. It fires at most every 10 ms, so it may come after the end. v1: an eventfd on
//! `memory.oom_control` covers out of memory at this level or above. It fires before the kill is
//! complete.
//!
//! Groups that can grow have two more watches. v1: an eventfd on a threshold of
//! `memory.usage_in_bytes`. v2: a trigger on the time lost for memory (`memory.pressure`), which
//! reports `POLLPRI` instead of readable.
//!
//! A watch never proves a kill; the counters after the end do.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use headroom_types::Bytes;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;

use crate::error::{CgroupError, Result};
use crate::group::EnforcedGroup;
use crate::tree::CgroupDir;

/// Some task waited for memory 300 ms of 2 s, in microseconds. This is the shortest window without
/// privileges. The kernel requires the final zero byte.
const STALLS: &str = "some 300000 2000000\0";

/// A non-blocking descriptor that is readable after memory events of the group (plain
/// `Interest::READABLE` in a tokio `AsyncFd`).
#[derive(Debug)]
pub struct MemoryEventWatch {
    fd: OwnedFd,
}

impl MemoryEventWatch {
    /// Watches `group`; `None` for poll, which has no such events.
    pub fn open(group: &EnforcedGroup) -> Result<Option<MemoryEventWatch>> {
        let fd = match group {
            EnforcedGroup::Cgroup2(g) => inotify(g.dir().path().join("memory.events"))?,
            EnforcedGroup::Cgroup1(g) => eventfd(g.dir())?,
            EnforcedGroup::Poll(_) => return Ok(None),
        };
        Ok(Some(MemoryEventWatch { fd }))
    }

    /// v1: fires when the use of `group` crosses `at`, in either direction. `None` elsewhere: v2
    /// uses its events.
    pub fn usage(group: &EnforcedGroup, at: Bytes) -> Result<Option<MemoryEventWatch>> {
        match group {
            EnforcedGroup::Cgroup1(g) => Ok(Some(MemoryEventWatch {
                fd: event_on(g.dir(), "memory.usage_in_bytes", &format!(" {}", at.get()))?,
            })),
            EnforcedGroup::Cgroup2(_) | EnforcedGroup::Poll(_) => Ok(None),
        }
    }

    /// v2: reports `POLLPRI` (`Interest::PRIORITY`) when tasks of `group` lost more than 300 ms of
    /// 2 s to waits for memory, at most once per 2 s. `None` elsewhere, and for a kernel without
    /// pressure information.
    pub fn stalls(group: &EnforcedGroup) -> Result<Option<MemoryEventWatch>> {
        match group {
            EnforcedGroup::Cgroup2(g) => {
                MemoryEventWatch::stalls_in(&g.dir().path().join("memory.pressure"))
            }
            EnforcedGroup::Cgroup1(_) | EnforcedGroup::Poll(_) => Ok(None),
        }
    }

    /// Like [`MemoryEventWatch::stalls`], for any pressure file.
    pub fn stalls_in(path: &Path) -> Result<Option<MemoryEventWatch>> {
        let opened = match OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path)
        {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(CgroupError::Read {
                    path: path.to_owned(),
                    hint: "; cannot watch it",
                    source,
                });
            }
        };
        match (&opened).write_all(STALLS.as_bytes()) {
            Ok(()) => Ok(Some(MemoryEventWatch { fd: opened.into() })),
            // Pressure information is built in but disabled at boot.
            Err(e) if e.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(None),
            Err(source) => Err(CgroupError::Write {
                path: path.to_owned(),
                value: STALLS.trim_end_matches('\0').into(),
                hint: "",
                source,
            }),
        }
    }

    /// Reads all pending events, so that the descriptor is not readable any more.
    pub fn clear(&self) -> std::io::Result<()> {
        let mut room = [0u8; 4096];
        loop {
            match nix::unistd::read(&self.fd, &mut room) {
                // An eventfd is empty after one read; inotify may hold more.
                Ok(n) if n < room.len() => return Ok(()),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn inotify(path: std::path::PathBuf) -> Result<OwnedFd> {
    let opened = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).and_then(|i| {
        i.add_watch(&path, AddWatchFlags::IN_MODIFY)
            .map(|_| OwnedFd::from(i))
    });
    opened.map_err(|errno| CgroupError::Read {
        path,
        hint: "; cannot watch it",
        source: errno.into(),
    })
}

fn eventfd(dir: &CgroupDir) -> Result<OwnedFd> {
    event_on(dir, "memory.oom_control", "")
}

/// An eventfd that the kernel signals for `file`; `more` holds further arguments.
fn event_on(dir: &CgroupDir, file: &'static str, more: &str) -> Result<OwnedFd> {
    let failed = |errno: Errno| CgroupError::Read {
        path: dir.path().join(file),
        hint: "; cannot watch it",
        source: errno.into(),
    };
    let event =
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
    let control = openat(
        dir.fd(),
        file,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed)?;
    dir.write(
        "cgroup.event_control",
        &format!(
            "{} {}{more}",
            event.as_fd().as_raw_fd(),
            control.as_raw_fd()
        ),
    )?;
    Ok(OwnedFd::from(event))
}

impl AsFd for MemoryEventWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
impl AsRawFd for MemoryEventWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

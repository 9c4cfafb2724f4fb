//! Early warning: a descriptor that becomes readable when a group's memory events move.
//!
//! Owned by the sampler. v2: inotify on `memory.events` (any counter of the group or below; at most every 10 ms, so it may come after the
//! end). v1: an eventfd on `memory.oom_control` (out of memory at this level or above; it comes before the kill is over).
//! Never the proof of a kill: that is read from the counters after the end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;

use crate::error::{CgroupError, Result};
use crate::group::Group;

/// A non-blocking descriptor, readable (plain `Interest::READABLE` in a tokio `AsyncFd`) after memory events of the group.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// Watches `group`; `None` for a kind without such events (poll).
    pub fn open(group: &Group) -> Result<Option<Watch>> {
        let fd = match group {
            Group::Cgroup2(g) => inotify(g.dir().path().join("memory.events"))?,
            Group::Cgroup1(g) => eventfd(g.dir())?,
            Group::Poll(_) => return Ok(None),
        };
        Ok(Some(Watch { fd }))
    }

    /// Takes all that is pending, so that the descriptor is quiet again.
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
    let opened = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
        .and_then(|i| i.add_watch(&path, AddWatchFlags::IN_MODIFY).map(|_| OwnedFd::from(i)));
    opened.map_err(|errno| CgroupError::Read { path, hint: "; cannot watch it", source: errno.into() })
}

fn eventfd(dir: &crate::tree::Dir) -> Result<OwnedFd> {
    let failed = |errno: Errno| CgroupError::Read {
        path: dir.path().join("memory.oom_control"),
        hint: "; cannot watch it",
        source: errno.into(),
    };
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
    let control = openat(dir.fd(), "memory.oom_control", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    dir.write("cgroup.event_control", &format!("{} {}", event.as_fd().as_raw_fd(), control.as_raw_fd()))?;
    Ok(OwnedFd::from(event))
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

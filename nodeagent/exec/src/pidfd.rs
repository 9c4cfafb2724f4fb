//! Processes by descriptor: a reused pid is never signalled or waited for.
//!
//! The watcher of a container or task owns it. A readable descriptor shows *that* a process ended.
//! Only its parent learns *how*, by reaping it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use headroom_node_process::procstat;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The kind of a process's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// A child of this process. Dropping it neither kills nor reaps it.
#[derive(Debug)]
pub struct ChildProcess {
    /// The pid.
    pub pid: i32,
    /// The start time, in kernel ticks after boot (field 22 of `/proc/PID/stat`). With `pid` it
    /// identifies the process.
    pub starttime: u64,
    /// Becomes readable when the process ends.
    pub pidfd: OwnedFd,
}

impl ChildProcess {
    /// Waits for the end and reaps. It blocks until the descriptor is readable, and restarts after
    /// interrupting signals.
    pub fn wait(&self) -> io::Result<ProcessEnd> {
        loop {
            match reap(self.as_fd(), 0) {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reaps an ended process; `None` while it runs.
    pub fn try_wait(&self) -> io::Result<Option<ProcessEnd>> {
        reap(self.as_fd(), libc::WNOHANG)
    }

    /// The end without reaping; `None` while it runs.
    pub fn peek(&self) -> io::Result<Option<ProcessEnd>> {
        reap(self.as_fd(), libc::WNOHANG | libc::WNOWAIT)
    }

    /// Sends a signal; an ended process is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        send(self.as_fd(), signal)
    }
}
impl AsFd for ChildProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
impl AsRawFd for ChildProcess {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// A process that is not our child (a shim of an earlier agent), held by descriptor. It is readable
/// when the process ends.
#[derive(Debug)]
pub struct WatchedProcess {
    pid: i32,
    pidfd: OwnedFd,
}

impl WatchedProcess {
    /// Opens the process `pid` with this start time; `None` when it is gone or the pid was reused.
    pub fn open(pid: i32, starttime: u64) -> io::Result<Option<WatchedProcess>> {
        let Some(number) = Pid::from_raw(pid) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // EINVAL: the pid of a thread that leads no process.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // Checked after the descriptor was opened: if the start time matches now, the descriptor
        // refers to that process.
        let same = procstat::read(pid)?
            .is_some_and(|s| s.starttime == starttime && !matches!(s.state, 'Z' | 'X'));
        Ok(same.then_some(WatchedProcess { pid, pidfd }))
    }

    /// The pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// False after the process has ended.
    pub fn is_alive(&self) -> bool {
        !readable(self.as_fd())
    }

    /// Sends a signal; an ended process is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        send(self.as_fd(), signal)
    }
}
impl AsFd for WatchedProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
impl AsRawFd for WatchedProcess {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Start time of a process, in kernel ticks after boot; `None` when there is no such process.
pub fn starttime_of(pid: i32) -> io::Result<Option<u64>> {
    Ok(procstat::read(pid)?.map(|s| s.starttime))
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut set = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `set` is one valid pollfd that lives through the call, the count is 1, and a timeout
    // of 0 returns at once.
    let ready = unsafe { libc::poll(&mut set, 1, 0) };
    ready > 0
}

fn send(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is borrowed and so open; a null siginfo means "as by kill"; flags
    // are 0.
    let answer =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0) };
    if answer == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        e => Err(e),
    }
}

fn reap(fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Option<ProcessEnd>> {
    let id = libc::id_t::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` has the size of one siginfo_t and lives through the call; the descriptor is
    // borrowed and so open.
    let answer =
        unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), libc::WEXITED | flags) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, which is a valid siginfo_t. The kernel has filled it if there was an
    // end to report.
    let info = unsafe { info.assume_init() };
    if info.si_signo == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel returned SIGCHLD, for which si_status is the active member.
    let status = unsafe { info.si_status() };
    Ok(Some(if info.si_code == libc::CLD_EXITED {
        ProcessEnd::Code(status)
    } else {
        ProcessEnd::Signal(status)
    }))
}

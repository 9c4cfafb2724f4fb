//! Processes by descriptor: no number is ever signalled or waited for that could mean another process.
//!
//! Owned by whoever watches a container or a task. Readiness of a descriptor says *that* a process ended; only its parent
//! learns *how*, by reaping it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::procstat;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A child of this process. Dropping it neither kills nor reaps it.
#[derive(Debug)]
pub struct Child {
    /// Its number.
    pub pid: i32,
    /// When it was born, in kernel ticks after boot (field 22 of `/proc/PID/stat`): with `pid` its identity.
    pub starttime: u64,
    /// Becomes readable when it ends.
    pub pidfd: OwnedFd,
}

impl Child {
    /// Waits for the end and reaps; blocks, and takes signals that interrupt it in its stride. After readiness of the descriptor it does
    /// not block.
    pub fn wait(&self) -> io::Result<Ended> {
        loop {
            match reap(self.as_fd(), 0) {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// `None` while it runs; reaps otherwise.
    pub fn try_wait(&self) -> io::Result<Option<Ended>> {
        reap(self.as_fd(), libc::WNOHANG)
    }

    /// How it ended, without reaping it; `None` while it runs.
    pub fn peek(&self) -> io::Result<Option<Ended>> {
        reap(self.as_fd(), libc::WNOHANG | libc::WNOWAIT)
    }

    /// Sends a signal; fine if it is already gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        send(self.as_fd(), signal)
    }
}
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// A process that is no child of ours (a shim of an earlier agent), held by descriptor. Readable when it ends.
#[derive(Debug)]
pub struct Watched {
    pid: i32,
    pidfd: OwnedFd,
}

impl Watched {
    /// The process `pid` born at `starttime`; `None` when it is gone or the number means another process now.
    pub fn open(pid: i32, starttime: u64) -> io::Result<Option<Watched>> {
        let Some(number) = Pid::from_raw(pid) else { return Ok(None) };
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // EINVAL: the number of a thread that leads no process.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // Looked at after the descriptor was taken: if the birth is right now, the descriptor means that very process.
        let same = procstat::read(pid)?.is_some_and(|s| s.starttime == starttime && !matches!(s.state, 'Z' | 'X'));
        Ok(same.then_some(Watched { pid, pidfd }))
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// False once it has ended.
    pub fn is_alive(&self) -> bool {
        !readable(self.as_fd())
    }

    /// Sends a signal; fine if it is already gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        send(self.as_fd(), signal)
    }
}
impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Birth of a process, in kernel ticks after boot; `None` when there is no such process.
pub fn starttime_of(pid: i32) -> io::Result<Option<u64>> {
    Ok(procstat::read(pid)?.map(|s| s.starttime))
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut set = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `set` is one valid pollfd that lives through the call, the count is 1, and a timeout of 0 returns at once.
    let ready = unsafe { libc::poll(&mut set, 1, 0) };
    ready > 0
}

fn send(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is borrowed and so open; a null siginfo is allowed and means "as by kill"; flags are 0.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0) };
    if answer == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        e => Err(e),
    }
}

fn reap(fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Option<Ended>> {
    let id = libc::id_t::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is room for one siginfo_t and lives through the call; the descriptor is borrowed and so open.
    let answer = unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), libc::WEXITED | flags) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, which is a valid siginfo_t, and the kernel has filled it since if there was an end to report.
    let info = unsafe { info.assume_init() };
    if info.si_signo == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel answered with SIGCHLD, for which si_status is the member in use.
    let status = unsafe { info.si_status() };
    Ok(Some(if info.si_code == libc::CLD_EXITED { Ended::Code(status) } else { Ended::Signal(status) }))
}

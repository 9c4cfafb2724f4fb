//! Processes by descriptor: no number is ever signalled or waited for that could mean another process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

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

#[allow(missing_docs, unused_variables)]
impl Child {
    /// Waits for the end and reaps; blocks. After readiness of the descriptor it does not block.
    pub fn wait(&self) -> io::Result<Ended> {
        unimplemented!()
    }
    /// `None` while it runs; reaps otherwise.
    pub fn try_wait(&self) -> io::Result<Option<Ended>> {
        unimplemented!()
    }
    /// Sends a signal; fine if it is already gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        unimplemented!()
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

#[allow(missing_docs, unused_variables)]
impl Watched {
    /// The process `pid` born at `starttime`; `None` when it is gone or the number means another process now.
    pub fn open(pid: i32, starttime: u64) -> io::Result<Option<Watched>> {
        unimplemented!()
    }
    pub fn pid(&self) -> i32 {
        self.pid
    }
    /// False once it has ended.
    pub fn is_alive(&self) -> bool {
        unimplemented!()
    }
    /// Sends a signal; fine if it is already gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        unimplemented!()
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
    let _ = pid;
    unimplemented!()
}

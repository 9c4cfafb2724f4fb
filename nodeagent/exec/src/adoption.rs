//! Processes that this process did not start, but that become its children when their parent ends.
//!
//! It keeps no state. No function blocks.

use std::io;
use std::mem::MaybeUninit;

use headroom_node_process::procstat;
use rustix::process::{Pid, PidfdFlags, pidfd_open, set_child_subreaper};

use crate::pidfd::ChildProcess;

/// Makes this process the new parent of all its descendants whose parent ends. They stay zombies
/// until this process reaps them.
pub fn become_subreaper() -> io::Result<()> {
    // The kernel reads the argument as a truth; any pid sets it.
    set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// Opens the child `pid`. `NotFound` if it is not a child of this process, or not yet.
///
/// An unreaped child keeps its pid, so the result refers to that child for certain if no other code
/// of this process reaps it.
pub fn adopt(pid: i32) -> io::Result<ChildProcess> {
    let no_child = || io::Error::from(io::ErrorKind::NotFound);
    let number = Pid::from_raw(pid)
        .filter(|_| pid > 0)
        .ok_or_else(no_child)?;
    let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        // EINVAL: the pid of a thread that leads no process.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Err(no_child()),
        Err(e) => return Err(e.into()),
    };
    let starttime = procstat::read(pid)?.ok_or_else(no_child)?.starttime;
    let child = ChildProcess {
        pid,
        starttime,
        pidfd,
    };
    match child.peek() {
        Ok(_) => Ok(child),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Err(no_child()),
        Err(e) => Err(e),
    }
}

/// The pid of a child that has ended and is not reaped; `None` without one. Returns the same child
/// until it is reaped.
pub fn ended_child() -> io::Result<Option<i32>> {
    wait(libc::P_ALL, 0, libc::WNOWAIT)
}

/// Reaps the child `pid`. False if it runs, or is not a child.
pub fn reap_child(pid: i32) -> io::Result<bool> {
    let id = libc::id_t::try_from(pid).map_err(io::Error::other)?;
    Ok(wait(libc::P_PID, id, 0)?.is_some())
}

fn wait(kind: libc::idtype_t, id: libc::id_t, flags: libc::c_int) -> io::Result<Option<i32>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: `info` has the size of one siginfo_t and lives through the call.
    if unsafe { libc::waitid(kind, id, info.as_mut_ptr(), flags) } != 0 {
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            e => Err(e),
        };
    }
    // SAFETY: it was zeroed, which is a valid siginfo_t. The kernel has filled it if a child ended.
    let info = unsafe { info.assume_init() };
    // SAFETY: zero or the kernel's answer for SIGCHLD, for which si_pid is an active member.
    let pid = unsafe { info.si_pid() };
    Ok(Some(pid).filter(|pid| *pid > 0))
}

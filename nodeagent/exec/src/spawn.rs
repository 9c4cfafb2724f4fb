//! Starting a program without copying the parent: the cost does not grow with the parent's memory.
//!
//! Owned by nobody: it keeps no state. All that can be prepared is prepared here, in safe code; `child` then runs in the parent's memory.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::child;
use crate::error::{SpawnError, Step};
use crate::limits::Rlimit;
use crate::namespaces::Namespaces;
use crate::pidfd::Child;
use crate::prepare::Prepared;
use crate::procstat;
use crate::user::User;

/// A program to start. Nothing is inherited but what is named here: descriptors above 2 are closed, signals are reset, the
/// environment is exactly `env`.
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// The program; looked up in `PATH` of `env` when it has no slash.
    pub program: &'a Path,
    /// Arguments after the program's own name.
    pub args: &'a [OsString],
    /// The whole environment.
    pub env: &'a [(OsString, OsString)],
    /// Working directory.
    pub cwd: &'a Path,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<&'a File>,
    /// Standard output; `None` is `/dev/null`.
    pub stdout: Option<&'a File>,
    /// Standard error; `None` is `/dev/null`.
    pub stderr: Option<&'a File>,
    /// `cgroup.procs` files, or `tasks` files of v1: the child is in these groups before it becomes the program. In the first that is of
    /// cgroup v2 it is born, where the kernel has that; into the others it writes `0`.
    pub procs_files: &'a [PathBuf],
    /// IPC and mount namespaces of its own; `None` shares the caller's.
    pub namespaces: Option<Namespaces>,
    /// Own session, so that no terminal and no group signal of ours reaches it.
    pub new_session: bool,
    /// Badness against the host's out-of-memory killer, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Resource limits.
    pub limits: &'a [Rlimit],
    /// Whom it runs as; `None` is the caller.
    pub user: Option<&'a User>,
    /// Signal it gets when the *thread* that started it ends; start it from a thread that lives as long as the process.
    pub parent_death: Option<i32>,
}

impl<'a> Command<'a> {
    /// `program` in `cwd`, with nothing else.
    pub fn new(program: &'a Path, cwd: &'a Path) -> Self {
        Command {
            program,
            args: &[],
            env: &[],
            cwd,
            stdin: None,
            stdout: None,
            stderr: None,
            procs_files: &[],
            namespaces: None,
            new_session: false,
            oom_score_adj: None,
            limits: &[],
            user: None,
            parent_death: None,
        }
    }
}

/// Starts it. Returns after the program has taken over (or failed to); the calling thread waits for that, other threads do not.
pub fn spawn(command: &Command<'_>) -> Result<Child, SpawnError> {
    let prepared = Prepared::new(command)?;
    let (pid, pidfd) = child::launch(&prepared).map_err(|failure| prepared.explain(command, failure))?;
    // Not reaped by anybody before us, so the entry is there even if it has ended already.
    match procstat::read(pid) {
        Ok(Some(stat)) => Ok(Child { pid, starttime: stat.starttime, pidfd }),
        Ok(None) => Err(lost(command, pid, pidfd, std::io::Error::from_raw_os_error(libc::ESRCH))),
        Err(e) => Err(lost(command, pid, pidfd, e)),
    }
}

/// Somebody else reaped it, or `/proc` is not to be had: without a birth time it cannot be adopted later, so it is ended.
fn lost(command: &Command<'_>, pid: i32, pidfd: std::os::fd::OwnedFd, source: std::io::Error) -> SpawnError {
    let child = Child { pid, starttime: 0, pidfd };
    // Best effort: the first error is the one to report.
    let _ = child.signal(libc::SIGKILL).and_then(|()| child.wait());
    SpawnError { step: Step::Identify, program: command.program.display().to_string(), what: format!("/proc/{pid}/stat"), source }
}

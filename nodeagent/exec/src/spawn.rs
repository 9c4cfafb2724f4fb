//! Starting a program without copying the parent: the cost does not grow with the parent's memory.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::SpawnError;
use crate::limits::Rlimit;
use crate::pidfd::Child;
use crate::user::User;

/// A program to start. Nothing is inherited but what is named here: descriptors above 2 are closed, signals are reset, the
/// environment is exactly `env`, standard input is `/dev/null`.
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
    /// Standard output; `None` is `/dev/null`.
    pub stdout: Option<&'a File>,
    /// Standard error; `None` is `/dev/null`.
    pub stderr: Option<&'a File>,
    /// `cgroup.procs` files: the child writes `0` into each before it becomes the program.
    pub procs_files: &'a [PathBuf],
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
            stdout: None,
            stderr: None,
            procs_files: &[],
            new_session: false,
            oom_score_adj: None,
            limits: &[],
            user: None,
            parent_death: None,
        }
    }
}

/// Starts it. Returns after the program has taken over (or failed to).
pub fn spawn(command: &Command<'_>) -> Result<Child, SpawnError> {
    let _ = command;
    unimplemented!()
}

//! A program to start, as the caller describes it.
//!
//! It borrows everything and does nothing; `spawn` starts it.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::exec_arguments::ExecArguments;
use crate::limits::RlimitSetting;
use crate::namespaces::Namespaces;
use crate::user::ProcessUser;

/// A program to start. The child inherits only the named items: other descriptors above 2 are closed,
/// signals are reset, and the environment is exactly that of `arguments`.
#[derive(Clone, Debug)]
pub struct SpawnCommand<'a> {
    /// The program with its arguments, and the whole environment.
    pub arguments: &'a ExecArguments,
    /// Working directory.
    pub cwd: &'a Path,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<&'a File>,
    /// Standard output; `None` is `/dev/null`.
    pub stdout: Option<&'a File>,
    /// Standard error; `None` is `/dev/null`.
    pub stderr: Option<&'a File>,
    /// More descriptors that the program inherits, under the same numbers. Each is above 2.
    pub inherited: &'a [BorrowedFd<'a>],
    /// `cgroup.procs` files, or `tasks` files of v1. The child is in these groups before it
    /// executes the program. It is cloned into the first group of cgroup v2 where the kernel
    /// supports that, and writes `0` into the files of the others.
    pub procs_files: &'a [PathBuf],
    /// Separate IPC and mount namespaces; `None` shares those of the caller.
    pub namespaces: Option<Namespaces>,
    /// A new session, so that no terminal and no group signal of the caller reaches it.
    pub new_session: bool,
    /// Score for the host's out-of-memory killer, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Resource limits.
    pub limits: &'a [RlimitSetting],
    /// The user of the program; `None` is the user of the caller.
    pub user: Option<&'a ProcessUser>,
    /// The signal that it receives when the *thread* that started it ends. Start it from a thread
    /// that lives as long as the process.
    pub parent_death: Option<i32>,
}

impl<'a> SpawnCommand<'a> {
    /// A command in `cwd`, with all other fields empty.
    pub fn new(arguments: &'a ExecArguments, cwd: &'a Path) -> Self {
        SpawnCommand {
            arguments,
            cwd,
            stdin: None,
            stdout: None,
            stderr: None,
            inherited: &[],
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

//! The data of a child as NUL-terminated texts, numbers and open files, so that the child allocates
//! nothing.
//!
//! One call of `spawn` owns it.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;

use headroom_node_process::clone_into_cgroup::{CloneTarget, find_clone_target};

use crate::command::SpawnCommand;
use crate::error::{SpawnError, SpawnStep};
use crate::exec_arguments::ExecArguments;
use crate::namespaces;

/// The prepared command.
pub(crate) struct PreparedCommand<'a> {
    pub(crate) arguments: &'a ExecArguments,
    pub(crate) cwd: CString,
    pub(crate) procs_files: Vec<CString>,
    /// The group of `procs_files` into which the child is cloned.
    pub(crate) clone_target: Option<CloneTarget>,
    /// The descriptors for 0, 1 and 2; each is above 2 itself.
    pub(crate) stdio: [File; 3],
    /// Numbers of the other descriptors that the program inherits.
    pub(crate) inherited: Vec<i32>,
    /// The value for `/proc/self/oom_score_adj`.
    pub(crate) oom_score_adj: Option<CString>,
    /// Kernel number and value.
    pub(crate) limits: Vec<(libc::c_long, libc::rlimit64)>,
    pub(crate) namespaces: Option<namespaces::PreparedNamespaces>,
    pub(crate) user: Option<crate::user::ProcessUser>,
    pub(crate) parent_death: Option<i32>,
    pub(crate) new_session: bool,
}

/// A failure below `spawn`, with the index in the list that the step processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareFailure {
    pub(crate) step: SpawnStep,
    pub(crate) index: usize,
    /// 0 means that the child was killed before it executed the program.
    pub(crate) errno: i32,
}

impl<'a> PreparedCommand<'a> {
    pub(crate) fn new(command: &SpawnCommand<'a>) -> Result<PreparedCommand<'a>, SpawnError> {
        let bad = |value: &dyn std::fmt::Debug, source: io::Error| {
            failed(command, SpawnStep::Prepare, format!("{value:?}"), source)
        };
        let text = |t: &OsStr| CString::new(t.as_bytes()).map_err(|e| bad(&t, e.into()));
        Ok(PreparedCommand {
            arguments: command.arguments,
            cwd: text(command.cwd.as_os_str())?,
            procs_files: command
                .procs_files
                .iter()
                .map(|p| text(p.as_os_str()))
                .collect::<Result<_, _>>()?,
            clone_target: find_clone_target(command.procs_files),
            stdio: stdio(command).map_err(|e| {
                failed(
                    command,
                    SpawnStep::Stdio,
                    "/dev/null or a standard stream".into(),
                    e,
                )
            })?,
            inherited: inherited(command)?,
            oom_score_adj: command
                .oom_score_adj
                .map(|n| text(OsStr::new(&n.to_string())))
                .transpose()?,
            limits: command
                .limits
                .iter()
                .map(|l| {
                    (
                        libc::c_long::from(l.limit.kernel_number()),
                        libc::rlimit64 {
                            rlim_cur: l.soft,
                            rlim_max: l.hard,
                        },
                    )
                })
                .collect(),
            namespaces: command
                .namespaces
                .as_ref()
                .map(namespaces::PreparedNamespaces::new),
            user: command.user.cloned(),
            parent_death: command.parent_death,
            new_session: command.new_session,
        })
    }

    /// The error for the caller, with the path or value of the step.
    pub(crate) fn explain(
        &self,
        command: &SpawnCommand<'_>,
        failure: PrepareFailure,
    ) -> SpawnError {
        let what = match failure.step {
            SpawnStep::Cgroup => command
                .procs_files
                .get(failure.index)
                .map(|p| p.display().to_string()),
            SpawnStep::Chdir => Some(command.cwd.display().to_string()),
            SpawnStep::Exec => Some(command.arguments.0.name()),
            SpawnStep::OomScore => command
                .oom_score_adj
                .map(|n| format!("/proc/self/oom_score_adj = {n}")),
            SpawnStep::Limit => command.limits.get(failure.index).map(|l| format!("{l:?}")),
            SpawnStep::User => command
                .user
                .map(|u| format!("user {} group {}", u.uid, u.gid)),
            SpawnStep::Stdio => Some(format!("descriptor {}", failure.index)),
            SpawnStep::Namespaces | SpawnStep::Privileges => {
                Some(namespaces::part(failure.index).to_owned())
            }
            SpawnStep::Prepare
            | SpawnStep::Clone
            | SpawnStep::Session
            | SpawnStep::ParentDeath
            | SpawnStep::Identify => None,
        };
        let source = match failure.errno {
            0 => io::Error::new(
                io::ErrorKind::Interrupted,
                "the child was killed before it executed the program",
            ),
            errno => io::Error::from_raw_os_error(errno),
        };
        failed(
            command,
            failure.step,
            what.unwrap_or_else(|| failure.step.to_string()),
            source,
        )
    }
}

fn failed(
    command: &SpawnCommand<'_>,
    step: SpawnStep,
    what: String,
    source: io::Error,
) -> SpawnError {
    SpawnError {
        step,
        program: command.arguments.0.name(),
        what,
        source,
    }
}

/// The numbers of the descriptors, which standard input, output and error must not replace.
fn inherited(command: &SpawnCommand<'_>) -> Result<Vec<i32>, SpawnError> {
    let numbers = command.inherited.iter().map(|fd| fd.as_raw_fd());
    numbers
        .map(|number| {
            (number > 2).then_some(number).ok_or_else(|| {
                let source = io::Error::from_raw_os_error(libc::EBADF);
                let what = format!("inherited descriptor {number}, which must be above 2");
                failed(command, SpawnStep::Stdio, what, source)
            })
        })
        .collect()
}

/// Three descriptors above 2 (`try_clone` never returns 0, 1 or 2), so that none is overwritten
/// while the others are moved into place.
fn stdio(command: &SpawnCommand<'_>) -> io::Result<[File; 3]> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let copy = |wanted: Option<&File>| wanted.unwrap_or(&null).try_clone();
    Ok([
        copy(command.stdin)?,
        copy(command.stdout)?,
        copy(command.stderr)?,
    ])
}

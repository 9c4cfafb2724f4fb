//! What can go wrong with a kernel file: always with its path, the value, and the next step.
//!
//! Owned by whoever called; this crate never logs an error and hands it on as well.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::{Bytes, EnforcerKind};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, CgroupError>;

/// Why a cgroup could not be made, read, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A kernel file could not be read.
    #[error("cannot read {path}{hint}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What to do about it; empty or starting with "; ".
        hint: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A kernel file did not take a value.
    #[error("cannot write {value:?} to {path}{hint}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// What to do about it; empty or starting with "; ".
        hint: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory could not be made.
    #[error("cannot make the cgroup {path}{hint}", path = path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// What to do about it; empty or starting with "; ".
        hint: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory could not be opened or listed.
    #[error("cannot open the cgroup {path}{hint}", path = path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What to do about it; empty or starting with "; ".
        hint: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory could not be removed before the deadline.
    #[error("cannot remove the cgroup {path} within {within:?}; processes still in it: {left:?}", path = path.display())]
    Remove {
        /// The directory.
        path: PathBuf,
        /// How long it was tried.
        within: Duration,
        /// Who is still there.
        left: Vec<i32>,
        /// The kernel's last answer.
        source: io::Error,
    },
    /// Some processes outlived SIGKILL until the deadline.
    #[error("processes {left:?} in {group} outlived SIGKILL for {within:?}; they may hang in the kernel, see /proc/PID/stack")]
    Unkillable {
        /// The group.
        group: String,
        /// Who.
        left: Vec<i32>,
        /// How long it was tried.
        within: Duration,
    },
    /// The file holds another value than the one just written, so the limit does not hold.
    #[error("{path} holds {found:?} after {wrote:?} was written; the limit is not in force", path = path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What was written.
        wrote: String,
        /// What was read back.
        found: String,
    },
    /// The text of a kernel file is not what this crate knows.
    #[error("cannot make sense of {path}: {text:?}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Its text, shortened.
        text: String,
    },
    /// A name that cannot be one directory.
    #[error("{0:?} cannot name a cgroup; use letters, digits, - _ and ., starting with a letter or digit, at most 200")]
    Name(String),
    /// The limit would be below what cannot be given back, so that lowering it would kill.
    #[error("{group}: a limit of {wanted} is below the {demand} in use that cannot be reclaimed; stop something in it first")]
    BelowDemand {
        /// The group.
        group: String,
        /// The limit asked for.
        wanted: Bytes,
        /// What is in use for good.
        demand: Bytes,
    },
    /// The wanted kind of enforcement cannot be had here.
    #[error("{kind} enforcement cannot be had here: {why}", why = why.join("; "))]
    Unavailable {
        /// Which kind.
        kind: EnforcerKind,
        /// What was looked for and not found.
        why: Vec<String>,
    },
    /// A process could not be signalled.
    #[error("cannot send SIGKILL to process {pid}")]
    Signal {
        /// The process.
        pid: i32,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl CgroupError {
    /// The errno of the kernel's answer, when there was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            CgroupError::Read { source, .. }
            | CgroupError::Write { source, .. }
            | CgroupError::Make { source, .. }
            | CgroupError::Open { source, .. }
            | CgroupError::Remove { source, .. }
            | CgroupError::Signal { source, .. } => source.raw_os_error(),
            CgroupError::Unkillable { .. }
            | CgroupError::Mismatch { .. }
            | CgroupError::Parse { .. }
            | CgroupError::Name(_)
            | CgroupError::BelowDemand { .. }
            | CgroupError::Unavailable { .. } => None,
        }
    }

    /// True when the file or directory is not there (any more).
    pub fn is_gone(&self) -> bool {
        matches!(self.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ENODEV))
    }

    /// A text that is not understood, with its file.
    pub(crate) fn parse(path: &Path, text: &str) -> CgroupError {
        CgroupError::Parse { path: path.to_owned(), text: text.chars().take(200).collect() }
    }
}

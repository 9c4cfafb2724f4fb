//! Errors of kernel files, with the path, the value and the next step.
//!
//! This crate returns errors and never also logs them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::{Bytes, EnforcerKind};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, CgroupError>;

/// The reason why a cgroup could not be created, read, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A kernel file could not be read.
    #[error("cannot read {path}{hint}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The next step; empty or beginning with "; ".
        hint: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A value could not be written to a kernel file.
    #[error("cannot write {value:?} to {path}{hint}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The written value.
        value: String,
        /// The next step; empty or beginning with "; ".
        hint: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A directory could not be created.
    #[error("cannot make the cgroup {path}{hint}", path = path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// The next step; empty or beginning with "; ".
        hint: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A directory could not be opened or listed.
    #[error("cannot open the cgroup {path}{hint}", path = path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The next step; empty or beginning with "; ".
        hint: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The given root is the cgroup of a systemd unit that does not run. Only systemd creates it:
    /// it cannot start a unit whose cgroup passes on controllers already.
    #[error("there is no cgroup {path}: its unit does not run; systemctl start {unit}", path = path.display())]
    UnitNotRunning {
        /// The directory.
        path: PathBuf,
        /// The unit.
        unit: String,
    },
    /// A directory could not be removed before the deadline.
    #[error("cannot remove the cgroup {path} within {within:?}; processes still in it: {left:?}", path = path.display())]
    Remove {
        /// The directory.
        path: PathBuf,
        /// The time limit of the removal.
        within: Duration,
        /// The remaining processes.
        left: Vec<i32>,
        /// The last error of the kernel.
        source: io::Error,
    },
    /// Some processes outlived SIGKILL until the deadline.
    #[error(
        "processes {left:?} in {group} outlived SIGKILL for {within:?}; they may hang in the kernel, see /proc/PID/stack"
    )]
    Unkillable {
        /// The group.
        group: String,
        /// The remaining processes.
        left: Vec<i32>,
        /// The time limit of the kill.
        within: Duration,
    },
    /// The file contains another value than the one just written, so the limit is not in force.
    #[error("{path} holds {found:?} after {wrote:?} was written; the limit is not in force", path = path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The written value.
        wrote: String,
        /// The value that was read back.
        found: String,
    },
    /// The text of a kernel file cannot be parsed.
    #[error("cannot parse {path}: {text:?}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Its text, shortened.
        text: String,
    },
    /// The name is not a valid directory name.
    #[error(
        "{0:?} cannot name a cgroup; use letters, digits, - _ and ., starting with a letter or digit, at most 200"
    )]
    Name(String),
    /// The limit would be below the unreclaimable use, so that the kernel would kill.
    #[error(
        "{group}: a limit of {wanted} is below the {demand} in use that cannot be reclaimed; stop a process in it first"
    )]
    BelowDemand {
        /// The group.
        group: String,
        /// The requested limit.
        wanted: Bytes,
        /// The use that cannot be reclaimed.
        demand: Bytes,
    },
    /// The required kind of enforcement is not available.
    #[error("{kind} enforcement is not available: {why}", why = why.join("; "))]
    Unavailable {
        /// The kind.
        kind: EnforcerKind,
        /// The missing requirements.
        why: Vec<String>,
    },
    /// A process could not be signalled.
    #[error("cannot send SIGKILL to process {pid}")]
    Signal {
        /// The process.
        pid: i32,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl CgroupError {
    /// The errno of the kernel's error; `None` for other errors.
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
            | CgroupError::UnitNotRunning { .. }
            | CgroupError::Unavailable { .. } => None,
        }
    }

    /// True when the file or directory does not exist (any more).
    pub fn is_gone(&self) -> bool {
        matches!(
            self.raw_os_error(),
            Some(nix::libc::ENOENT | nix::libc::ENODEV)
        )
    }

    /// An error for an unparsable text, with its file.
    pub(crate) fn parse(path: &Path, text: &str) -> CgroupError {
        CgroupError::Parse {
            path: path.to_owned(),
            text: text.chars().take(200).collect(),
        }
    }

    /// The number of bytes in the text of a file; the error names the file and its text.
    pub(crate) fn bytes_in(dir: &Path, file: &str, text: &str) -> Result<Bytes> {
        let number = text.trim().parse().map(Bytes::new);
        number.map_err(|_| CgroupError::parse(&dir.join(file), text))
    }
}

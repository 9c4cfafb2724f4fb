//! Arguments of container access: signals, files, and programs inside a container.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{ContainerId, Signal};

use super::confirm::ConfirmOptions;
use super::value_parser::duration;
use crate::complete;

/// Arguments of `rmctl container signal`.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// The container
    #[arg(add = Completer::new(complete::containers))]
    pub(crate) container: ContainerId,
    /// Name or number: TERM, USR1, SIGHUP, 10; KILL ends the container without its grace period
    #[arg(value_name = "SIGNAL")]
    pub(crate) signal: Signal,
    /// Signal every process in the container, not only its program
    #[arg(long)]
    pub(crate) all: bool,
    /// Reason, stored with the event
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) sure: ConfirmOptions,
}

/// Verbs about the files of a container.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesSubcommand {
    /// List a directory
    #[command(visible_alias = "list")]
    Ls {
        /// The container; its node keeps the files of an ended container for a while
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        /// Path below the container's directory, such as work/out
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Print a file
    Cat {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        /// Path below the container's directory, such as work/part-0
        path: String,
        #[command(flatten)]
        range: ByteRange,
    },
    /// Copy a file to this host
    Get {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        /// Path below the container's directory, such as work/part-0
        path: String,
        /// Target file or directory [default: its own name in the working directory]
        to: Option<PathBuf>,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        range: ByteRange,
    },
}

/// A range of a file.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ByteRange {
    /// First byte, counted from 0
    #[arg(long, value_name = "BYTE", conflicts_with = "last")]
    pub(crate) from: Option<u64>,
    /// Maximum number of bytes
    #[arg(long, value_name = "N", conflicts_with = "last", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) bytes: Option<u64>,
    /// Only the last N bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) last: Option<u64>,
}

impl ByteRange {
    /// The value of a `Range` header, or `None` for the whole file.
    pub(crate) fn header(self) -> Option<String> {
        if let Some(last) = self.last {
            return Some(format!("bytes=-{last}"));
        }
        let from = self.from.unwrap_or(0);
        match self.bytes {
            Some(bytes) => Some(format!(
                "bytes={from}-{}",
                from.saturating_add(bytes - 1).min(u64::MAX - 1)
            )),
            None => self.from.map(|from| format!("bytes={from}-")),
        }
    }
}

/// Options of a program inside a container.
#[derive(Debug, Args)]
pub(crate) struct ExecOptions {
    /// Pass standard input to the program, at most 512 KiB
    #[arg(short = 'i', long)]
    pub(crate) stdin: bool,
    /// Longest run time, at most 1h
    #[arg(long, value_parser = duration, default_value = "1m", value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// The program with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// Arguments of `rmctl container exec`.
#[derive(Debug, Args)]
pub(crate) struct ContainerExecArgs {
    /// The container
    #[arg(add = Completer::new(complete::containers))]
    pub(crate) container: ContainerId,
    #[command(flatten)]
    pub(crate) beside: ExecOptions,
}

/// Arguments of `rmctl task exec`.
#[derive(Debug, Args)]
pub(crate) struct TaskExecArgs {
    /// The task, such as last/map/7
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) task: String,
    #[command(flatten)]
    pub(crate) beside: ExecOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_is_a_range_of_bytes() {
        let range = |from, bytes, last| ByteRange { from, bytes, last }.header();
        assert_eq!(range(None, None, None), None);
        assert_eq!(range(Some(5), None, None).as_deref(), Some("bytes=5-"));
        assert_eq!(range(Some(5), Some(2), None).as_deref(), Some("bytes=5-6"));
        assert_eq!(range(None, Some(1), None).as_deref(), Some("bytes=0-0"));
        assert_eq!(range(None, None, Some(9)).as_deref(), Some("bytes=-9"));
    }
}

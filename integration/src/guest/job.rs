//! What the host tells a guest: one JSON file in the job directory, and the names of the files that come back.
//!
//! Shared by the harness on the host and by `guest-init`, which is process 1 of the guest. Never touches a kernel itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the file with the [`Job`] in the job directory.
pub const JOB: &str = "job.json";
/// The program's standard output.
pub const STDOUT: &str = "stdout";
/// The program's standard error.
pub const STDERR: &str = "stderr";
/// The exit code as decimal text. Appears last, by rename: without it the guest did not come to its end.
pub const RC: &str = "rc";
/// What the guest's kernel wrote to its console.
pub const CONSOLE: &str = "console";
/// Where `guest-init` sees the job directory.
pub const MOUNT: &str = "/run/job";
/// Kernel argument, and so environment variable of process 1, that names the job directory on the host.
pub const DIR_VARIABLE: &str = "HEADROOM_GUEST_JOB";
/// Set for every program in a guest.
pub const IN_GUEST: &str = "HEADROOM_IN_GUEST";
/// Where the guest's own disk is, when it has one.
pub const DISK: &str = "/run/disk";
/// Where errands are laid in the job directory; see `station.rs`.
pub const ERRANDS: &str = "errands";
/// First argument of `guest-init` as the program of a guest that runs errands.
pub const ERRANDS_ARGUMENT: &str = "--errands";
/// The device of that disk in the guest.
pub const DISK_DEVICE: &str = "/dev/ubda";
/// Directories that a fresh tmpfs replaces in the guest; what lies below them on the host is hidden unless kept.
pub const HIDDEN: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// One run of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Added to the guest's small environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Host directories below a hidden one that are shown again, read-only.
    pub keep: Vec<PathBuf>,
    /// Image of a disk with ext4 on it, a file on the host. Under systemd what is written anywhere is written there, and the next
    /// guest on the same disk finds it.
    #[serde(default)]
    pub disk: Option<PathBuf>,
    /// Where it is on a network of guests.
    #[serde(default)]
    pub place: Option<Place>,
    /// What is process 1 once the mounts are made.
    pub init: Init,
}

/// A place on a network of guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where the switch listens.
    pub switch: PathBuf,
    /// The last part of its address, and of that of its interface.
    pub number: u8,
}

impl Place {
    /// Its address.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.number)
    }
    /// Address of its interface.
    pub fn hardware(&self) -> String {
        format!("02:00:00:00:00:{:02x}", self.number)
    }
}

/// What is process 1 of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Init {
    /// `guest-init` itself: it runs the program, waits, and powers off.
    #[default]
    Plain,
    /// The host's systemd on a writable copy-on-write root; the program runs as a unit of its own.
    Systemd {
        /// Files laid over the root before systemd starts: path in the guest and text.
        files: BTreeMap<PathBuf, String>,
        /// Host directories shown read-only at another place: path in the guest and on the host.
        windows: BTreeMap<PathBuf, PathBuf>,
    },
}

//! The protocol between the host and a guest: one JSON file in the job directory, and the names of
//! the result files.
//!
//! The harness on the host and `guest-init`, which is process 1 of the guest, share this module. It
//! makes no system calls.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the file with the [`GuestJob`] in the job directory.
pub const JOB: &str = "job.json";
/// The program's standard output.
pub const STDOUT: &str = "stdout";
/// The program's standard error.
pub const STDERR: &str = "stderr";
/// The exit code as decimal text. It is written last, by rename; without it the guest did not
/// complete.
pub const RC: &str = "rc";
/// The console output of the guest's kernel.
pub const CONSOLE: &str = "console";
/// Mount point of the job directory in the guest.
pub const MOUNT: &str = "/run/job";
/// Kernel argument with the path of the job directory on the host. The kernel passes it to process
/// 1 as an environment variable.
pub const DIR_VARIABLE: &str = "HEADROOM_GUEST_JOB";
/// Environment variable that is set for every program in a guest.
pub const IN_GUEST: &str = "HEADROOM_IN_GUEST";
/// Mount point of the guest's own disk, if it has one.
pub const DISK: &str = "/run/disk";
/// Directory of the scripts in the job directory; see `script_guest.rs`.
pub const ERRANDS: &str = "errands";
/// First argument of `guest-init` as the program of a guest that runs scripts.
pub const ERRANDS_ARGUMENT: &str = "--errands";
/// The device of that disk in the guest.
pub const DISK_DEVICE: &str = "/dev/ubda";
/// Directories that a fresh tmpfs replaces in the guest. Host files below them are hidden unless
/// kept.
pub const HIDDEN: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// One run of one program in a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestJob {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables that are added to the guest's small environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Host directories below a hidden one that are mounted again, read-only.
    pub keep: Vec<PathBuf>,
    /// Image of an ext4 disk, a file on the host. Under systemd all writes of the guest go there,
    /// and the next guest on the same disk finds them.
    #[serde(default)]
    pub disk: Option<PathBuf>,
    /// The guest's place on a network of guests.
    #[serde(default)]
    pub place: Option<GuestAddress>,
    /// The program that becomes process 1 after the mounts.
    pub init: Init,
}

/// A place on a network of guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestAddress {
    /// Socket of the switch.
    pub switch: PathBuf,
    /// The last part of its IP address and of its hardware address.
    pub number: u8,
}

impl GuestAddress {
    /// Its IP address.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.number)
    }
    /// Its hardware address.
    pub fn hardware(&self) -> String {
        format!("02:00:00:00:00:{:02x}", self.number)
    }
}

/// Process 1 of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Init {
    /// `guest-init` itself: it runs the program, waits, and powers off.
    #[default]
    Plain,
    /// The host's systemd on a writable copy-on-write root; the program runs as a unit of its own.
    Systemd {
        /// Files that are written to the root before systemd starts: path in the guest and text.
        files: BTreeMap<PathBuf, String>,
        /// Host directories that are mounted read-only elsewhere: path in the guest and path on the
        /// host.
        windows: BTreeMap<PathBuf, PathBuf>,
    },
}

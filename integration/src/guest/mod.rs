//! Guests: a Linux kernel for one test, by User-Mode Linux, booted in less than a second.
//!
//! A guest sees the host's files read-only. It has only cgroup v2 at `/sys/fs/cgroup`, one
//! processor, its own process tree and a loopback interface. The test that creates a guest owns it,
//! and the guest is killed when the test's thread ends. It writes to the host only in its job
//! directory.

mod boot;
pub mod job;
mod network;
mod power;
mod rerun;
mod script_guest;
mod xstate;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::Bytes;

use crate::programs;

pub use network::Network;
pub use power::{Disk, RunningGuest};
pub use rerun::{in_guest, rerun};
pub use script_guest::{GuestScript, ScriptGuest};

/// A guest that is not started yet.
#[derive(Clone, Debug)]
pub struct Guest {
    memory: Bytes,
    timeout: Duration,
    /// Whether the program's output is only kept for the outcome, not forwarded.
    quiet: bool,
    /// The processor it is pinned to, modulo the number of processors.
    processor: usize,
    job: job::GuestJob,
}

/// The result of the program in a guest.
#[derive(Clone, Debug)]
pub struct GuestOutcome {
    /// Its exit code; 128 + n for signal n.
    pub code: i32,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Default for Guest {
    fn default() -> Self {
        Guest::new()
    }
}

impl Guest {
    /// Defaults: 512 MiB, 150 s, `guest-init` as process 1.
    pub fn new() -> Self {
        let env = BTreeMap::from([(job::IN_GUEST.to_owned(), "1".to_owned())]);
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Guest {
            memory: Bytes::from_mib(512),
            timeout: Duration::from_secs(150),
            quiet: false,
            processor: default_processor(),
            job: job::GuestJob {
                env,
                cwd,
                ..job::GuestJob::default()
            },
        }
    }

    /// Sets the memory of the whole guest. It costs the host only touched pages.
    #[must_use]
    pub fn memory(mut self, memory: Bytes) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the timeout. After it the guest is killed and the run is an error.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The processor of the host it is pinned to, modulo the number of processors. The default is
    /// the slot of the test in its group, so that guests at the same time have processors of their
    /// own, or the process id outside of nextest.
    #[must_use]
    pub fn processor(mut self, processor: usize) -> Self {
        self.processor = processor;
        self
    }

    /// Adds a network interface, `eth0`.
    #[must_use]
    pub fn place(mut self, place: job::GuestAddress) -> Self {
        self.job.place = Some(place);
        self
    }

    /// Does not forward the program's output while it runs.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Adds an environment variable for the program.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.job.env.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Shows a host directory that lies below one that the guest replaces (`/tmp`, `/run`,
    /// `/var/tmp`). Other directories are visible anyway.
    #[must_use]
    pub fn keep(mut self, dir: &Path) -> Self {
        // A hidden directory itself exists in the guest, empty and writable.
        if job::HIDDEN
            .iter()
            .any(|hidden| dir.starts_with(hidden) && dir != Path::new(hidden))
            && !self.job.keep.iter().any(|k| dir.starts_with(k))
        {
            self.job.keep.push(dir.to_owned());
        }
        self
    }

    /// Sets the working directory of the program. The default is the caller's.
    #[must_use]
    pub fn directory(mut self, dir: &Path) -> Self {
        self.job.cwd = dir.to_owned();
        self
    }

    /// Shows the built programs of the repository in the guest and names them in its environment.
    #[must_use]
    pub fn with_programs(self) -> Self {
        match programs::dir() {
            // Inside a guest the variable is set already. Without the programs the test itself
            // reports the error.
            Ok(dir) => self
                .keep(dir)
                .env(programs::DIR_VARIABLE, &dir.display().to_string()),
            Err(_) => self,
        }
    }

    /// Runs systemd as process 1, with `files` (path in the guest, text) written to the root, and
    /// `windows` (path in the guest, host directory) mounted read-only.
    #[must_use]
    pub fn systemd(
        mut self,
        files: BTreeMap<PathBuf, String>,
        windows: BTreeMap<PathBuf, PathBuf>,
    ) -> Self {
        self.job.init = job::Init::Systemd { files, windows };
        self
    }

    /// Adds a disk, mounted at [`job::DISK`]. Under systemd it holds the copy-on-write root.
    #[must_use]
    pub fn disk(mut self, disk: &Disk) -> Self {
        self.job.disk = Some(disk.image().to_owned());
        self
    }

    /// Boots, runs `argv` and powers off. An error if there is no kernel, or if the guest did not
    /// complete in time.
    pub fn run<S: AsRef<OsStr>>(self, argv: &[S]) -> Result<GuestOutcome> {
        let (machine, job) = self.prepared(argv)?;
        boot::run(&machine, &job)
    }

    /// Boots and runs `argv` until the power is cut.
    pub fn start<S: AsRef<OsStr>>(self, argv: &[S]) -> Result<RunningGuest> {
        let (machine, job) = self.prepared(argv)?;
        RunningGuest::on(&machine, &job)
    }

    fn prepared<S: AsRef<OsStr>>(mut self, argv: &[S]) -> Result<(boot::Machine, job::GuestJob)> {
        self.job.argv = argv
            .iter()
            .map(|word| {
                word.as_ref()
                    .to_str()
                    .map(str::to_owned)
                    .context("an argument for a guest must be UTF-8")
            })
            .collect::<Result<_>>()?;
        let program = PathBuf::from(
            self.job
                .argv
                .first()
                .context("nothing to run in the guest")?,
        );
        let cwd = self.job.cwd.clone();
        let init = boot::init_binary()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        for dir in [
            program.parent(),
            init.parent(),
            sources,
            Some(cwd.as_path()),
        ]
        .into_iter()
        .flatten()
        {
            self = self.keep(dir);
        }
        let Guest {
            memory,
            timeout,
            quiet,
            processor,
            job,
        } = self;
        Ok((
            boot::Machine {
                memory,
                timeout,
                quiet,
                processor,
                init,
            },
            job,
        ))
    }
}

/// The slot of a test in its nextest group, otherwise the process id.
fn default_processor() -> usize {
    let slot = std::env::var("NEXTEST_TEST_GROUP_SLOT")
        .ok()
        .and_then(|slot| slot.parse().ok());
    slot.unwrap_or_else(|| usize::try_from(std::process::id()).unwrap_or(0))
}

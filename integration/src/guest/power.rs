//! A guest with its own disk whose power can be cut at any moment.
//!
//! The disk is a file on the host. The file contains all data that the guest's kernel handed to the
//! disk; the guest's page cache is lost. The disk itself neither loses nor reorders writes.
//! Therefore this shows that a program flushes its data before it acknowledges, not that a drive
//! keeps its promise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use super::boot::{Booted, Glance, Machine, Watched};
use super::job::GuestJob;

/// An ext4 image, in a directory that is removed with this value unless it is kept.
#[derive(Debug)]
pub struct Disk {
    dir: TempDir,
    image: PathBuf,
}

impl Disk {
    /// Creates an empty image of `mib` MiB. It is sparse: it uses only the written space on the
    /// host.
    pub fn new(mib: u32) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-disk-")
            .tempdir()
            .context("a directory for a disk")?;
        let image = dir.path().join("image");
        let made = Command::new("/sbin/mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&image)
            .arg(format!("{mib}M"))
            .output();
        let made = made.context("/sbin/mkfs.ext4: `apt-get install -y e2fsprogs`")?;
        ensure!(
            made.status.success(),
            "mkfs.ext4: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
        Ok(Disk { dir, image })
    }

    /// The path of the image file.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Keeps the file for the analysis of a failure and returns its path.
    pub fn keep(self) -> PathBuf {
        let Disk { dir, image } = self;
        let _kept = dir.keep();
        image
    }
}

/// A running guest.
pub struct RunningGuest {
    booted: Booted,
    deadline: Instant,
}

impl std::fmt::Debug for RunningGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Powered")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl RunningGuest {
    pub(super) fn on(machine: &Machine, job: &GuestJob) -> Result<Self> {
        Ok(RunningGuest {
            booted: Booted::start(machine, job)?,
            deadline: Instant::now() + machine.timeout,
        })
    }

    /// Waits until `wanted` is true for the output of its program.
    pub fn until(&mut self, mut wanted: impl FnMut(&str) -> bool) -> Result<()> {
        let watched = self.booted.watch(self.deadline, |booted| {
            let enough = wanted(&booted.out.read()?);
            Ok(if enough { Glance::Enough } else { Glance::GoOn })
        })?;
        match watched {
            Watched::Enough => Ok(()),
            Watched::Ended => bail!(
                "the guest powered off too early\n{}",
                self.collected_output()
            ),
            Watched::Late => bail!(
                "the guest did not reach this point in time\n{}",
                self.collected_output()
            ),
        }
    }

    /// Cuts the power and returns all that its program wrote to standard output before.
    pub fn cut(mut self) -> Result<String> {
        self.booted.kill();
        Ok(self.booted.out.read()?)
    }

    fn collected_output(&mut self) -> String {
        let (out, err) = (
            self.booted.out.read().unwrap_or_default(),
            self.booted.err.read().unwrap_or_default(),
        );
        format!(
            "output:\n{out}\nerrors:\n{err}\nconsole:\n{}",
            self.booted.console()
        )
    }
}

//! A guest with a disk of its own whose power can be cut at any moment.
//!
//! The disk is a file on the host. What the guest's kernel has handed to the disk is in that file, what was in its page cache is
//! gone with it. The disk itself neither loses nor reorders anything: what this shows is that a program has its data written
//! before it says so, not that a drive keeps its promise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use super::boot::{Booted, Glance, Machine, Watched};
use super::job::Job;

/// An image with ext4 on it, in a directory that goes with this value unless it is kept.
#[derive(Debug)]
pub struct Disk {
    dir: TempDir,
    image: PathBuf,
}

impl Disk {
    /// An empty one of so many MiB. It takes as much of the host as was written to it.
    pub fn new(mib: u32) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("headroom-disk-").tempdir().context("a directory for a disk")?;
        let image = dir.path().join("image");
        let made = Command::new("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&image).arg(format!("{mib}M")).output();
        let made = made.context("/sbin/mkfs.ext4: `apt-get install -y e2fsprogs`")?;
        ensure!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr).trim());
        Ok(Disk { dir, image })
    }

    /// The file.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Keeps the file, for whoever looks into a failure. Where it is.
    pub fn keep(self) -> PathBuf {
        let Disk { dir, image } = self;
        let _kept = dir.keep();
        image
    }
}

/// A guest that runs.
pub struct Powered {
    booted: Booted,
    deadline: Instant,
}

impl std::fmt::Debug for Powered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Powered").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Powered {
    pub(super) fn on(machine: &Machine, job: &Job) -> Result<Self> {
        Ok(Powered { booted: Booted::start(machine, job)?, deadline: Instant::now() + machine.timeout })
    }

    /// Waits until its program has written what is `wanted`.
    pub fn until(&mut self, mut wanted: impl FnMut(&str) -> bool) -> Result<()> {
        let watched = self.booted.watch(self.deadline, |booted| {
            let enough = wanted(&booted.out.read()?);
            Ok(if enough { Glance::Enough } else { Glance::GoOn })
        })?;
        match watched {
            Watched::Enough => Ok(()),
            Watched::Ended => bail!("the guest is off before its time\n{}", self.told()),
            Watched::Late => bail!("the guest has not come so far in time\n{}", self.told()),
        }
    }

    /// Cuts the power. All that its program had written to its standard output by then.
    pub fn cut(mut self) -> Result<String> {
        self.booted.kill();
        Ok(self.booted.out.read()?)
    }

    fn told(&mut self) -> String {
        let (out, err) = (self.booted.out.read().unwrap_or_default(), self.booted.err.read().unwrap_or_default());
        format!("output:\n{out}\nerrors:\n{err}\nconsole:\n{}", self.booted.console())
    }
}

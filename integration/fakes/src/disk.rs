//! A small disk of its own: a file system in a file, which can be filled.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

/// An ext4 file system in a file, mounted while this value lives. Requires root.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Makes a disk of `bytes` in the file `image`, and mounts it at the new directory `at`.
    pub fn mount(image: &Path, at: &Path, bytes: u64) -> Result<Self> {
        File::create(image)?.set_len(bytes)?;
        fs::create_dir(at)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(at))?;
        Ok(SmallDisk { at: at.to_owned() })
    }

    /// Takes all free space.
    pub fn fill(&self) -> Result<()> {
        let filler = File::options()
            .create(true)
            .append(true)
            .open(self.filler())?;
        // Smaller and smaller pieces, until not even a block is left.
        let (mut size, mut end) = (64 << 20, 0);
        while size >= 4096 {
            match fallocate(&filler, FallocateFlags::empty(), end, size) {
                Ok(()) => end += size,
                Err(Errno::ENOSPC) => size /= 2,
                Err(error) => return Err(error).context("the disk cannot be filled"),
            }
        }
        filler.sync_all().context("the filler cannot be synced")
    }

    /// Gives the space of [`SmallDisk::fill`] back.
    pub fn empty(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("the filler cannot be removed")
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is ending may still use it.
        let _ = run(Command::new("umount").arg("-l").arg(&self.at));
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

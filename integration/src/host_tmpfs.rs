//! A tmpfs of the host, for a test that fills or leaks memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use headroom_types::Bytes;

/// A mounted tmpfs; dropping it unmounts it.
#[derive(Debug)]
pub struct HostTmpfs(PathBuf);

impl HostTmpfs {
    /// Creates the directory `at` and mounts a tmpfs there, of half of the memory without a size.
    pub fn mount(at: PathBuf, size: Option<Bytes>) -> Result<HostTmpfs> {
        fs::create_dir(&at)?;
        let size = size.map(|size| format!(",size={}", size.get()));
        let options = format!("mode=1777{}", size.unwrap_or_default());
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "headroom-test"])
            .arg(&at)
            .status()?;
        ensure!(done.success(), "mount -t tmpfs {}", at.display());
        Ok(HostTmpfs(at))
    }

    /// Its mount point.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for HostTmpfs {
    fn drop(&mut self) {
        // The directory of the cluster cannot be removed below a mount. A failure has no other
        // remedy.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

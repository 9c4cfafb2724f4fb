//! The file systems of a guest: kernel file systems, fresh tmpfs for writable directories, and
//! directories of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use integration::guest::job;
use nix::mount::{MsFlags, mount};

/// Mounts kernel file systems, tmpfs, and the job directory.
pub(crate) fn make(dir: &Path) -> Result<()> {
    // proc comes first: until then /proc is the host's, seen through the root file system. The
    // kernel mounts /dev itself (devtmpfs.mount).
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        fresh(kind, at)?;
    }
    fs::create_dir_all("/dev/shm")?;
    for at in job::HIDDEN.iter().chain(&["/dev/shm"]) {
        fresh("tmpfs", at)?;
    }
    window(dir, Path::new(job::MOUNT), MsFlags::empty())
}

/// Mounts host directories that a tmpfs hides.
pub(crate) fn keep(dirs: &[PathBuf]) -> Result<()> {
    dirs.iter()
        .try_for_each(|dir| window(dir, dir, MsFlags::MS_RDONLY))
}

/// Mounts the guest's own disk. After a power cut the kernel replays the file system's journal
/// here.
pub(crate) fn disk() -> Result<()> {
    fs::create_dir_all(job::DISK)?;
    mount(
        Some(job::DISK_DEVICE),
        job::DISK,
        Some("ext4"),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| format!("mounting {} at {}", job::DISK_DEVICE, job::DISK))
}

/// Mounts a directory of the host at `at`.
pub(crate) fn window(host: &Path, at: &Path, flags: MsFlags) -> Result<()> {
    fs::create_dir_all(at).with_context(|| format!("making {}", at.display()))?;
    mount(Some("none"), at, Some("hostfs"), flags, Some(host))
        .with_context(|| format!("showing {} of the host", host.display()))
}

pub(crate) fn fresh(kind: &str, at: &str) -> Result<()> {
    mount(Some("none"), at, Some(kind), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("mounting {kind} at {at}"))
}

/// Configures the loopback interface.
pub(crate) fn loopback_up() -> Result<()> {
    ip(&["link", "set", "lo", "up"])
}

/// Configures the interface on the network of guests.
pub(crate) fn network_up(place: &job::GuestAddress) -> Result<()> {
    ip(&[
        "addr",
        "add",
        &format!("{}/24", place.address()),
        "dev",
        "eth0",
    ])?;
    ip(&["link", "set", "eth0", "up"])
}

/// Runs busybox, because the calls are ioctls and this crate has no unsafe code.
fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("/bin/busybox").arg("ip").args(words).status();
    let status = status.context("/bin/busybox: `apt-get install -y busybox-static`")?;
    ensure!(status.success(), "busybox ip {}: {status}", words.join(" "));
    Ok(())
}

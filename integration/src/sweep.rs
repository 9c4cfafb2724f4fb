//! Cleanup after tests: kills the processes that name a directory, and removes their cgroups.
//!
//! A cleanup failure must not hide the failure of a test. Therefore this module reports no errors,
//! and all waits are bounded.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::until;

/// Kills all processes whose arguments or environment name `dir`, until none is left.
pub fn processes_of(dir: &Path) {
    let _ = until("processes to end", Duration::from_secs(10), || {
        let left = processes(dir);
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        Ok(left.is_empty().then_some(()))
    });
}

/// Processes except this one that name `dir`. A zombie names nothing any more.
pub fn processes(dir: &Path) -> Vec<i32> {
    let needle = dir.as_os_str().as_bytes();
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let names = |file: PathBuf| {
        fs::read(file).is_ok_and(|text| text.windows(needle.len()).any(|w| w == needle))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<i32>().ok()?,
                entry.path(),
            ))
        })
        .filter(|(pid, path)| {
            *pid != own && (names(path.join("environ")) || names(path.join("cmdline")))
        })
        .map(|(pid, _)| pid)
        .collect()
}

/// Removes a cgroup and its descendants. Busy cgroups are retried for two seconds, until the killed
/// processes are gone.
pub fn cgroup(path: &Path) {
    let _ = until("the cgroup to be empty", Duration::from_secs(2), || {
        remove_once(path);
        Ok((!path.exists()).then_some(()))
    });
}

fn remove_once(path: &Path) {
    for child in fs::read_dir(path).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|t| t.is_dir()) {
            remove_once(&child.path());
        }
    }
    let _ = fs::remove_dir(path);
}

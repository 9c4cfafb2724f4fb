//! The processes that the records in a directory name: the shim of a container or an auxiliary
//! service, and its program.
//!
//! A record holds the pid and the start time, so a reused pid is never taken for the process.

use std::fs;
use std::path::Path;

use headroom_container_shim::record::{self, ProcessIdentity};
use headroom_node_exec::WatchedProcess;

/// The identity in the record `name` in `dir`. `None` without a complete record.
pub(crate) fn identity(dir: &Path, name: &str) -> Option<ProcessIdentity> {
    ProcessIdentity::decode(&fs::read_to_string(dir.join(name)).ok()?)
}

/// The process that the record `name` in `dir` names. `None` if it is gone.
pub(crate) fn process(dir: &Path, name: &str) -> Option<WatchedProcess> {
    let ProcessIdentity { pid, starttime } = identity(dir, name)?;
    WatchedProcess::open(pid, starttime).ok()?
}

/// The shim by its recorded identity. If the agent was killed between the start and the record, by
/// its command line.
pub(crate) fn shim(dir: &Path) -> Option<WatchedProcess> {
    let known = identity(dir, record::file::SHIM_PID).or_else(|| by_command_line(dir))?;
    WatchedProcess::open(known.pid, known.starttime)
        .ok()?
        .filter(WatchedProcess::is_alive)
}

fn by_command_line(dir: &Path) -> Option<ProcessIdentity> {
    let dir = dir.as_os_str().as_encoded_bytes();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let mut words = line.split(|b| *b == 0);
        let is_shim = words
            .next()
            .is_some_and(|program| program.ends_with(b"container-shim"));
        if is_shim && words.next() == Some(dir) {
            let starttime = headroom_node_exec::pidfd::starttime_of(pid).ok()??;
            return Some(ProcessIdentity { pid, starttime });
        }
    }
    None
}

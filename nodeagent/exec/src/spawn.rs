//! Starts a program without copying the parent. The cost does not grow with the parent's memory.
//!
//! It keeps no state. Safe code here prepares all data; `child` then runs in the parent's memory.

use headroom_node_process::procstat;

use crate::child;
use crate::command::SpawnCommand;
use crate::error::{SpawnError, SpawnStep};
use crate::pidfd::ChildProcess;
use crate::prepare::PreparedCommand;

/// Starts the program. Returns after the program was executed (or the start failed). Only the
/// calling thread waits.
pub fn spawn(command: &SpawnCommand<'_>) -> Result<ChildProcess, SpawnError> {
    let prepared = PreparedCommand::new(command)?;
    let (pid, pidfd) =
        child::launch(&prepared).map_err(|failure| prepared.explain(command, failure))?;
    // The child is not reaped yet, so the entry exists even if the child has ended.
    match procstat::read(pid) {
        Ok(Some(stat)) => Ok(ChildProcess {
            pid,
            starttime: stat.starttime,
            pidfd,
        }),
        Ok(None) => Err(lost(
            command,
            pid,
            pidfd,
            std::io::Error::from_raw_os_error(libc::ESRCH),
        )),
        Err(e) => Err(lost(command, pid, pidfd, e)),
    }
}

/// Ends a child without a readable start time, because it cannot be adopted later. Another thread
/// reaped it, or `/proc` is not accessible.
fn lost(
    command: &SpawnCommand<'_>,
    pid: i32,
    pidfd: std::os::fd::OwnedFd,
    source: std::io::Error,
) -> SpawnError {
    let child = ChildProcess {
        pid,
        starttime: 0,
        pidfd,
    };
    // Errors are ignored, because the caller reports the first one.
    let _ = child.signal(libc::SIGKILL).and_then(|()| child.wait());
    SpawnError {
        step: SpawnStep::Identify,
        program: command.arguments.0.name(),
        what: format!("/proc/{pid}/stat"),
        source,
    }
}

//! Files in the container's directory: reads the specification; writes identities and the exit
//! record. Each file shows whether it is complete.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_container_shim::record::{ExitRecord, ProcessIdentity, ProgramSpec, file};
use headroom_node_process::procstat::{self, ProcessStat};

use crate::sys;

/// Maximum time for which the exit record waits for space on a full disk. The agent waits longer for
/// the record of an exec program.
const FULL_DISK_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval between the attempts.
const FULL_DISK_INTERVAL: Duration = Duration::from_millis(100);

/// Reads the specification.
pub(crate) fn read_spec(dir: &Path) -> Result<ProgramSpec, (i32, String)> {
    let path = dir.join(file::SPEC);
    let text =
        std::fs::read(&path).map_err(|e| (crate::sys::errno_of(&e), path.display().to_string()))?;
    ProgramSpec::decode(&text).map_err(|e| (libc::EINVAL, format!("{}: {e}", path.display())))
}

/// Writes the identity of a process; nothing if the process is gone. It is one write, and a torn
/// file names no process. An existing file names another process and stays: of two shims with one
/// container, the second one fails.
pub(crate) fn write_identity(dir: &Path, name: &str, pid: i32) -> io::Result<()> {
    let Some(ProcessStat { starttime, .. }) = procstat::read(pid).ok().flatten() else {
        return Ok(());
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(name))?;
    file.write_all(ProcessIdentity { pid, starttime }.encode().as_bytes())
}

/// Writes the exit record. Returns its file, which the caller syncs: then the record survives a
/// power loss. On a full disk it tries for some seconds, because a lost record makes a success look
/// like a kill.
///
/// The specification is not needed any more, and its file becomes the record: no file is created,
/// and the blocks of the file are never given back to a full disk. The rename shows readers only
/// whole records. The sync of the file also syncs its new name on file
/// systems that order both in one log, such as ext4 and XFS; elsewhere, a loss of power may lose the
/// exit code.
pub(crate) fn write_exit(dir: &Path, record: &ExitRecord) -> io::Result<File> {
    let text = record.encode();
    let deadline = Instant::now() + FULL_DISK_TIMEOUT;
    loop {
        match try_write_exit(dir, &text) {
            Err(error) if is_full_disk(&error) && Instant::now() < deadline => {
                sys::sleep(FULL_DISK_INTERVAL);
            }
            done => return done,
        }
    }
}

fn try_write_exit(dir: &Path, text: &[u8]) -> io::Result<File> {
    let spare = dir.join(file::SPEC);
    let Ok(mut file) = OpenOptions::new().write(true).open(&spare) else {
        // The record has an end line that shows readers that it is complete.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(dir.join(file::EXIT))?;
        file.write_all(text)?;
        return Ok(file);
    };
    file.write_all(text)?;
    // The specification may have been longer.
    file.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))?;
    std::fs::rename(spare, dir.join(file::EXIT))?;
    Ok(file)
}

fn is_full_disk(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

//! Files in the container's directory: the specification in; identities and the exit record out, whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use headroom_container_shim::record::{ExitRecord, Identity, Spec, file};

/// Reads the specification.
pub(crate) fn read_spec(dir: &Path) -> Result<Spec, (i32, String)> {
    let path = dir.join(file::SPEC);
    let text = std::fs::read(&path).map_err(|e| (crate::sys::errno_of(&e), path.display().to_string()))?;
    Spec::decode(&text).map_err(|e| (libc::EINVAL, format!("{}: {e}", path.display())))
}

/// Writes who a process is; nothing if it is gone already.
pub(crate) fn write_identity(dir: &Path, name: &str, pid: i32) -> io::Result<()> {
    let Some(starttime) = starttime(pid) else { return Ok(()) };
    replace(dir, name, Identity { pid, starttime }.encode().as_bytes(), Durable::No)
}

/// Writes the last word so that it survives a loss of power.
pub(crate) fn write_exit(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    replace(dir, file::EXIT, &record.encode(), Durable::Yes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Yes,
    /// Means nothing after a reboot anyway.
    No,
}

/// Under another name first, so that a reader sees all or nothing.
fn replace(dir: &Path, name: &str, text: &[u8], durable: Durable) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text)?;
    if durable == Durable::Yes {
        file.sync_data()?;
    }
    std::fs::rename(&temporary, dir.join(name))?;
    match durable {
        Durable::Yes => File::open(dir)?.sync_all(),
        Durable::No => Ok(()),
    }
}

/// Field 22 of `/proc/PID/stat`; the name before it may hold anything.
fn starttime(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

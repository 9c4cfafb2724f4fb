//! Files in the container's directory: the specification in; identities and the exit record out, each in one piece that shows when it is not whole.

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

/// Writes who a process is; nothing if it is gone already. In one go, and torn it names nobody.
pub(crate) fn write_identity(dir: &Path, name: &str, pid: i32) -> io::Result<()> {
    let Some(starttime) = starttime(pid) else { return Ok(()) };
    create(dir, name)?.write_all(Identity { pid, starttime }.encode().as_bytes())
}

/// Writes the last word so that it survives a loss of power. It has an end of its own, by which a reader knows that it is whole. A new
/// file that is synced is synced with its name (ext4, XFS, Btrfs and F2FS all see to that), which a rename would have to be for itself.
pub(crate) fn write_exit(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    let mut file = create(dir, file::EXIT)?;
    file.write_all(&record.encode())?;
    file.sync_all()
}

fn create(dir: &Path, name: &str) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(dir.join(name))
}

/// Field 22 of `/proc/PID/stat`; the name before it may hold anything, and need not be text.
fn starttime(pid: i32) -> Option<u64> {
    let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = bytes.windows(2).rposition(|two| two == b") ")? + 2;
    std::str::from_utf8(bytes.get(after_name..)?).ok()?.split(' ').nth(19)?.parse().ok()
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

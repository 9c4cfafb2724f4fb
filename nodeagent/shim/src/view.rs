//! What a program sees of the file system: a `/tmp` of its own.
//!
//! Runs in the child, between fork and exec. Only what would be hidden by the new `/tmp` is put back: the directories that the program
//! was given by name.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::sys;

/// What is replaced.
const PLACES: [&str; 2] = ["/tmp", "/var/tmp"];

/// Puts `dir` at `/tmp` and `/var/tmp`, in a mount namespace of the caller's own. An error says which path it is about.
pub(crate) fn private_tmp(dir: &Path, visible: &[PathBuf]) -> Result<(), (i32, PathBuf)> {
    sys::own_mounts().map_err(|errno| (errno, "a mount namespace".into()))?;
    // Opened in the new namespace and before anything is hidden: a directory of another one cannot be bound.
    let own = open(dir)?;
    let hidden: Vec<(&PathBuf, File)> = visible
        .iter()
        .filter(|path| PLACES.iter().any(|place| path.starts_with(place)))
        .map(|path| Ok((path, open(path)?)))
        .collect::<Result<_, _>>()?;
    for place in PLACES.map(Path::new) {
        // A link (`/var/tmp` to `/tmp`, say) is followed: it leads to what is replaced already.
        match bind(&own, place) {
            Err((libc::ENOENT, _)) => {}
            done => done?,
        }
    }
    for (path, file) in &hidden {
        fs::create_dir_all(path).map_err(|e| (sys::errno_of(&e), (*path).clone()))?;
        bind(file, path)?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, (i32, PathBuf)> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| (sys::errno_of(&e), path.to_owned()))
}

fn bind(from: &File, at: &Path) -> Result<(), (i32, PathBuf)> {
    let failed = |errno| (errno, at.to_owned());
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| failed(libc::EINVAL));
    let from = text(format!("/proc/self/fd/{}", from.as_raw_fd()).as_bytes())?;
    sys::bind(&from, &text(at.as_os_str().as_bytes())?).map_err(failed)
}

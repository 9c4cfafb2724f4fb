//! Namespaces of a program: its own `/tmp`, its own `/dev/shm`, its own IPC.
//!
//! Runs in the child, between fork and exec, after it joined its cgroup: pages of the tmpfs are
//! charged to the container that writes them. The kernel frees the namespaces and their contents
//! when the last process of the container ends; the shim stays outside. Directories that the new
//! `/tmp` would hide stay visible if the specification names them.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use headroom_container_shim::LaunchStep;
use headroom_container_shim::record::{ProgramSpec, UserNamespace};

use crate::step_failure::StepFailure;
use crate::sys::{self, write_existing};

/// Directories that a private `/tmp` replaces.
const PLACES: [&str; 2] = ["/tmp", "/var/tmp"];

/// Enters the namespaces of `spec` and mounts their file systems.
pub(crate) fn enter(spec: &ProgramSpec) -> Result<(), StepFailure> {
    let has_tmp = spec.private_tmp.is_some() || spec.tmp_size.is_some();
    let ipc = if spec.shm_size.is_some() {
        libc::CLONE_NEWIPC
    } else {
        0
    };
    if !has_tmp && ipc == 0 {
        return Ok(());
    }
    let failed = |errno, what: &str| StepFailure::new(LaunchStep::Namespaces, errno, what);
    let flags = libc::CLONE_NEWNS | ipc;
    match spec.user_namespace {
        UserNamespace::Host | UserNamespace::Delegated => {
            sys::unshare(flags).map_err(|errno| failed(errno, "mount and IPC namespaces"))?;
        }
        UserNamespace::Own => enter_user_namespace(flags)?,
    }
    sys::receive_mounts_only().map_err(|errno| failed(errno, "mount propagation of /"))?;
    if has_tmp {
        let seen = private_tmp(spec);
        seen.map_err(|(errno, what)| {
            StepFailure::new(LaunchStep::PrivateTmp, errno, what.display())
        })?;
    }
    spec.shm_size.map_or(Ok(()), |size| {
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        tmpfs(Path::new("/dev/shm"), "1777", flags, size)
            .map_err(|errno| failed(errno, "a tmpfs at /dev/shm"))?;
        // The namespace has its own message queues. A kernel without this file system offers none,
        // and programs do without.
        let _ = sys::mount(c"mqueue", c"/dev/mqueue", flags | libc::MS_NOEXEC, c"");
        Ok(())
    })
}

/// Enters a user namespace in which the program keeps `CAP_SYS_ADMIN`. The earlier mounts belong to
/// the host's user namespace, so the program cannot undo them.
pub(crate) fn delegate_namespaces() -> Result<(), StepFailure> {
    enter_user_namespace(0)?;
    sys::empty_bounding_set(&[sys::CAP_SYS_ADMIN]);
    Ok(())
}

/// Enters a user namespace that maps the own user and group to themselves.
fn enter_user_namespace(flags: libc::c_int) -> Result<(), StepFailure> {
    let (uid, gid) = sys::own_ids();
    sys::unshare(libc::CLONE_NEWUSER | flags)
        .map_err(|errno| StepFailure::new(LaunchStep::Namespaces, errno, "user namespace"))?;
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        write_existing(Path::new(path), &text)
            .map_err(|errno| StepFailure::new(LaunchStep::Namespaces, errno, path))?;
    }
    Ok(())
}

/// Mounts a tmpfs at `at`. A missing directory is no error and is not created.
fn tmpfs(at: &Path, mode: &str, flags: libc::c_ulong, size: u64) -> Result<(), i32> {
    let text = |t: &[u8]| CString::new(t).map_err(|_| libc::EINVAL);
    let (at, options) = (
        text(at.as_os_str().as_bytes())?,
        text(format!("mode={mode},size={size}").as_bytes())?,
    );
    match sys::mount(c"tmpfs", &at, flags, &options) {
        Ok(()) | Err(libc::ENOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Puts the directory, or a tmpfs, at `/tmp` and `/var/tmp`. An error names the path.
fn private_tmp(spec: &ProgramSpec) -> Result<(), (i32, PathBuf)> {
    // Opened in the new namespace and before the mounts hide anything: a directory of another
    // namespace cannot be bound.
    let own = spec
        .private_tmp
        .as_deref()
        .filter(|_| spec.tmp_size.is_none())
        .map(open)
        .transpose()?;
    let hidden: Vec<(&PathBuf, File)> = spec
        .visible
        .iter()
        .filter(|path| PLACES.iter().any(|place| path.starts_with(place)))
        .map(|path| Ok((path, open(path)?)))
        .collect::<Result<_, _>>()?;
    for place in PLACES.map(Path::new) {
        // A link (such as `/var/tmp` to `/tmp`) is followed: its target is already replaced.
        match (&own, spec.tmp_size) {
            (Some(own), _) => match bind(own, place) {
                Err((libc::ENOENT, _)) => {}
                done => done?,
            },
            (None, Some(size)) => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                tmpfs(place, "1777", flags, size).map_err(|errno| (errno, place.to_owned()))?;
            }
            (None, None) => {}
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
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|e| (sys::errno_of(&e), path.to_owned()))
}

fn bind(from: &File, at: &Path) -> Result<(), (i32, PathBuf)> {
    let failed = |errno| (errno, at.to_owned());
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| failed(libc::EINVAL));
    let from = text(format!("/proc/self/fd/{}", from.as_raw_fd()).as_bytes())?;
    sys::bind(&from, &text(at.as_os_str().as_bytes())?).map_err(failed)
}

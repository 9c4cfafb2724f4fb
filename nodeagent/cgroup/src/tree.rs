//! Directories and files of a cgroup hierarchy, by descriptor and relative name.
//!
//! `v1`, `v2` and `detect` use it. A file is opened without `O_CREAT`, so that a missing file gives
//! ENOENT instead of EACCES. Every limit is read back. Each wait has a deadline.

mod walk;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{SysconfVar, sysconf};
use rustix::fs::{AtFlags, Dir, FileType, XattrFlags, statat};

use crate::error::{CgroupError, Result};
use crate::layout::{MAIN, PROCS};
use crate::open_counters::{OpenCounters, whole};
use crate::parse;
use crate::plan::{CgroupKnob, KnobRequirement, confirmed};

/// Longest attribute: the name of a group. In bytes.
const MAX_ATTRIBUTE_BYTES: usize = 256;
/// Flags with which a directory is opened.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_RDONLY);

/// An open cgroup directory.
#[derive(Debug)]
pub struct CgroupDir {
    fd: OwnedFd,
    path: PathBuf,
    /// Counters that stay open. `None` if each read opens its file.
    open_counters: Option<Box<OpenCounters>>,
}

impl CgroupDir {
    fn new(fd: OwnedFd, path: PathBuf) -> CgroupDir {
        CgroupDir {
            fd,
            path,
            open_counters: None,
        }
    }

    /// Opens the directory.
    pub fn open(path: &Path) -> Result<CgroupDir> {
        CgroupDir::open_if_there(path)?.ok_or_else(|| open_error(path, Errno::ENOENT))
    }

    /// Opens the directory; `None` when it does not exist.
    pub fn open_if_there(path: &Path) -> Result<Option<CgroupDir>> {
        match openat(AT_FDCWD, path, DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(CgroupDir::new(fd, path.to_owned()))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(open_error(path, errno)),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor, for watches.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a subdirectory; `None` when it does not exist.
    pub fn child(&self, name: &str) -> Result<Option<CgroupDir>> {
        let path = self.path.join(name);
        match openat(&self.fd, name, DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(CgroupDir::new(fd, path))),
            Err(Errno::ENOENT | Errno::ENODEV) => Ok(None),
            Err(errno) => Err(open_error(&path, errno)),
        }
    }

    /// Creates a subdirectory; an existing one is an error.
    pub fn make(&self, name: &str) -> Result<CgroupDir> {
        let path = self.path.join(name);
        mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755))
            .map_err(|errno| make_error(&path, errno))?;
        self.child(name)?
            .ok_or_else(|| open_error(&path, Errno::ENOENT))
    }

    /// Opens a subdirectory, and creates it if necessary.
    pub fn ensure(&self, name: &str) -> Result<CgroupDir> {
        match self.child(name)? {
            Some(dir) => Ok(dir),
            None => self.make(name),
        }
    }

    /// Names of the subdirectories, sorted.
    pub fn children(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = self
            .subdirectories()?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Names of the subdirectories as the kernel has them. A user with a delegated group can choose
    /// names that are no text.
    fn subdirectories(&self) -> Result<Vec<CString>> {
        let failed = |errno: rustix::io::Errno| CgroupError::Open {
            path: self.path.clone(),
            hint: "",
            source: errno.into(),
        };
        // Most groups have none, and one call shows it.
        match self.child_count() {
            Some(0) => return Ok(Vec::new()),
            // The only child of most others is that of the program. The kernel would sort all files
            // of a listed group.
            Some(1) if self.has_directory(MAIN) => {
                return Ok(CString::new(MAIN).into_iter().collect());
            }
            Some(_) | None => {}
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if entry.file_type().is_dir() && name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Number of subdirectories, which the kernel counts as links. `None` if it is unknown.
    fn child_count(&self) -> Option<nix::libc::nlink_t> {
        fstat(&self.fd).ok()?.st_nlink.checked_sub(2)
    }

    /// Whether there is exactly one subdirectory.
    pub(crate) fn has_one_child(&self) -> bool {
        self.child_count() == Some(1)
    }

    fn has_directory(&self, name: &str) -> bool {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    /// Sets an attribute of the directory itself. The kernel keeps it as long as the directory, since
    /// Linux 5.7.
    pub(crate) fn set_attribute(&self, name: &str, value: &str) -> Result<()> {
        rustix::fs::fsetxattr(&self.fd, name, value.as_bytes(), XattrFlags::empty())
            .map_err(|errno| write_error(&self.path.join(name), value, errno.into()))
    }

    /// An attribute of the directory itself; `None` without it.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        let mut room = [0; MAX_ATTRIBUTE_BYTES];
        let length = rustix::fs::fgetxattr(&self.fd, name, &mut room).ok()?;
        String::from_utf8(room.get(..length)?.to_vec()).ok()
    }

    /// The text of a file in this directory.
    pub fn read(&self, file: &str) -> Result<String> {
        self.read_if_there(file)?
            .ok_or_else(|| read_error(&self.path.join(file), Errno::ENOENT.into()))
    }

    /// The text of a file in this directory, or below it (`main/cgroup.procs`). `None` when the
    /// kernel has no such file, or the group was removed.
    pub fn read_if_there(&self, file: &str) -> Result<Option<String>> {
        let text = match &self.open_counters {
            Some(counters) if OpenCounters::can_hold(file) => {
                counters.read(file, || self.open_file(file))
            }
            Some(_) | None => self
                .open_file(file)
                .and_then(|fd| fd.map(|fd| whole(&fd, file)).transpose()),
        };
        match text {
            Ok(text) => Ok(text),
            // ENODEV: removed between open and read. EOPNOTSUPP: the file exists without its
            // feature (v1 without swap accounting).
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(nix::libc::ENODEV | nix::libc::EOPNOTSUPP)
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(read_error(&self.path.join(file), e)),
        }
    }

    /// Opens a file in this directory, or below it, for reading. `None` without such a file.
    fn open_file(&self, file: &str) -> io::Result<Option<OwnedFd>> {
        match openat(
            &self.fd,
            file,
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        ) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Leaves each counter open that is read from now on.
    pub fn keep_counters_open(&mut self) {
        self.open_counters.get_or_insert_default();
    }

    /// Writes a value to an existing file.
    pub fn write(&self, file: &str, value: &str) -> Result<()> {
        let failed = |source: io::Error| write_error(&self.path.join(file), value, source);
        let fd = openat(
            &self.fd,
            file,
            OFlag::O_WRONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| failed(e.into()))?;
        File::from(fd).write_all(value.as_bytes()).map_err(failed)
    }

    /// Writes a value and reads it back. It is the only function that sets limits.
    pub fn set(&self, knob: &CgroupKnob) -> Result<()> {
        let failed =
            |source: io::Error| write_error(&self.path.join(knob.file), &knob.value, source);
        let written = openat(
            &self.fd,
            knob.file,
            OFlag::O_RDWR | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| failed(e.into()))
        .and_then(|fd| {
            nix::unistd::write(&fd, knob.value.as_bytes())
                .map(|_| fd)
                .map_err(|e| failed(e.into()))
        });
        let file = match written {
            Ok(fd) => fd,
            Err(e) if knob.need == KnobRequirement::IfThere && absent(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        let found =
            whole(&file, knob.file).map_err(|e| read_error(&self.path.join(knob.file), e))?;
        if confirmed(knob.confirm, &knob.value, &found, page_size()) {
            return Ok(());
        }
        Err(CgroupError::Mismatch {
            path: self.path.join(knob.file),
            wrote: knob.value.clone(),
            found: found.trim().to_owned(),
        })
    }

    /// Writes each value and reads it back; stops at the first failure.
    pub fn set_all(&self, knobs: &[CgroupKnob]) -> Result<()> {
        knobs.iter().try_for_each(|knob| self.set(knob))
    }

    /// The file that moves a process into this group.
    pub fn procs_file(&self) -> PathBuf {
        self.path.join(PROCS)
    }

    /// Pids in this group and below. A group that is removed concurrently has none.
    pub fn pids(&self) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        self.each(&mut |dir| {
            found.extend(parse::pids(&dir.read_if_there(PROCS)?.unwrap_or_default()));
            Ok(())
        })?;
        Ok(found)
    }

    /// Waits until `cgroup.events` changes (v2), at most `at_most`; only 1 ms if the group is
    /// empty. v1 has no such file and waits the whole time.
    pub fn await_change(&self, at_most: Duration) {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::from(2u8));
        let events = openat(
            &self.fd,
            "cgroup.events",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        );
        // An error of poll (a signal) only shortens the wait; the caller checks again anyway.
        let _ = match events.map(File::from) {
            Ok(mut events) => {
                // Read first: before the first read, poll reports every change since boot and
                // returns at once.
                let mut text = String::new();
                if events.read_to_string(&mut text).is_err()
                    || parse::populated(&text) == Some(false)
                {
                    let _ = poll(&mut [], PollTimeout::from(1u8));
                    return;
                }
                poll(
                    &mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)],
                    timeout,
                )
            }
            Err(_) => poll(&mut [], timeout),
        };
    }
}

/// The page size. In bytes.
pub fn page_size() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(4096)
}

/// True when the file does not exist, or exists without its feature.
fn absent(error: &CgroupError) -> bool {
    matches!(
        error.raw_os_error(),
        Some(nix::libc::ENOENT | nix::libc::EOPNOTSUPP)
    )
}

fn read_error(path: &Path, source: io::Error) -> CgroupError {
    let hint = match source.raw_os_error() {
        Some(nix::libc::ENOENT) => {
            "; the group is gone, or this kernel or this level has no such file"
        }
        Some(nix::libc::EACCES | nix::libc::EPERM) => "; run as root or in a delegated cgroup",
        _ => "",
    };
    CgroupError::Read {
        path: path.to_owned(),
        hint,
        source,
    }
}

fn write_error(path: &Path, value: &str, source: io::Error) -> CgroupError {
    let hint = match source.raw_os_error() {
        Some(nix::libc::ENOENT) => {
            "; the group is gone, or its controller is not enabled in the parent's cgroup.subtree_control"
        }
        Some(nix::libc::EACCES | nix::libc::EPERM | nix::libc::EROFS) => {
            "; run as root or in a delegated cgroup"
        }
        Some(nix::libc::EBUSY) => {
            "; an inner group contains processes, or the limit is below the memory in use"
        }
        Some(nix::libc::EINVAL) => "; this kernel does not accept the value",
        _ => "",
    };
    CgroupError::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        hint,
        source,
    }
}

fn make_error(path: &Path, errno: Errno) -> CgroupError {
    let hint = match errno as i32 {
        nix::libc::EEXIST => {
            "; a group is never used twice, because its counters remain: remove the old group first"
        }
        nix::libc::EACCES | nix::libc::EPERM | nix::libc::EROFS => {
            "; run as root or give a delegated cgroup (--cgroup-root)"
        }
        nix::libc::ENOENT => "; the parent group does not exist",
        nix::libc::EAGAIN => "; the parent's cgroup.max.descendants or cgroup.max.depth is reached",
        _ => "",
    };
    CgroupError::Make {
        path: path.to_owned(),
        hint,
        source: errno.into(),
    }
}

fn open_error(path: &Path, errno: Errno) -> CgroupError {
    let hint = match errno as i32 {
        nix::libc::ENOENT => "; there is no such group",
        nix::libc::EACCES => "; run as root or give a delegated cgroup (--cgroup-root)",
        _ => "",
    };
    CgroupError::Open {
        path: path.to_owned(),
        hint,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ReadBackCheck, v2_memory};
    use headroom_types::Bytes;

    /// A directory of plain files. Writing does not truncate there, so an old value remains
    /// visible, as with a kernel that ignores the new value.
    fn dir(files: &[(&str, &str)]) -> (tempfile::TempDir, CgroupDir) {
        let place = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(place.path().join(name), text).expect("writes");
        }
        let dir = CgroupDir::open(place.path()).expect("opens");
        (place, dir)
    }

    #[test]
    fn a_limit_that_is_not_in_force_is_an_error_with_both_values() {
        let (_keep, dir) = dir(&[("memory.max", "99999999999\n")]);
        match dir.set(&v2_memory(Bytes::from_mib(32))) {
            Err(CgroupError::Mismatch { path, wrote, found }) => {
                assert!(path.ends_with("memory.max"));
                assert_eq!(
                    (wrote.as_str(), found.as_str()),
                    ("33554432", "33554432999")
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_required_file_is_an_error_and_is_never_created() {
        let (keep, dir) = dir(&[]);
        let must = CgroupKnob {
            file: "memory.max",
            value: "1".into(),
            confirm: ReadBackCheck::Exact,
            need: KnobRequirement::Must,
        };
        let error = dir.set(&must).expect_err("must fail");
        assert!(
            error.is_gone() && error.to_string().contains("subtree_control"),
            "{error}"
        );
        dir.set(&CgroupKnob {
            need: KnobRequirement::IfThere,
            ..must
        })
        .expect("an optional file may be missing");
        assert_eq!(std::fs::read_dir(keep.path()).expect("lists").count(), 0);
        assert_eq!(dir.read_if_there("memory.peak").expect("asks"), None);
        assert!(dir.read("memory.peak").is_err());
    }
}

//! Files of a container for authorized callers: found by a path below its directory, never outside
//! of it.
//!
//! Only files of the program are visible. The records of shim and agent beside them contain the
//! program's environment and are not served. The container's user may change any of these
//! directories at any moment. Therefore the kernel resolves a path in one step and refuses links
//! that lead out (`RESOLVE_BENEATH`), and the result is checked before it is opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::str::FromStr;

use headroom_types::UnixMillis;
use headroom_wire::v1::container_access::{ContainerFileEntry, FileEntryKind};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, readlinkat,
    statat,
};
use rustix::io::Errno;

use crate::disk::file;

/// Entries of a container's directory that belong to its program.
const SHOWN: [&str; 5] = [
    file::STDERR,
    file::STDOUT,
    file::TASKS,
    file::TMP,
    file::WORK,
];
/// Maximum number of listed entries of one directory.
pub(crate) const MOST_ENTRIES: usize = 10_000;
/// Maximum length of a path. Bytes.
const LONGEST: usize = 4096;
/// Number of attempts to resolve a path that changes during the resolution.
const TRIES: u32 = 64;

/// A path below a container's directory, as components without `..`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerPath(Vec<String>);

impl FromStr for ContainerPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Err(format!(
                "{text:?} is absolute; give a path below the directory of the container, without the first /"
            ));
        }
        if text.len() > LONGEST || text.contains('\0') {
            return Err(format!(
                "a path has at most {LONGEST} bytes and contains no NUL"
            ));
        }
        let words: Vec<String> = text
            .split('/')
            .filter(|word| !word.is_empty() && *word != ".")
            .map(str::to_owned)
            .collect();
        if words.iter().any(|word| word == "..") {
            return Err(format!(
                "{text:?} contains ..; give a path below the directory of the container"
            ));
        }
        match words.first() {
            Some(first) if !SHOWN.contains(&first.as_str()) => Err(format!(
                "{first:?} is not accessible; the first part is one of {}",
                SHOWN.join(", ")
            )),
            Some(_) | None => Ok(ContainerPath(words)),
        }
    }
}

impl ContainerPath {
    fn path(&self) -> String {
        self.0.join("/")
    }
}

/// The entries of a directory, or the one row of a file, sorted by name. More than [`MOST_ENTRIES`]
/// are `FileTooLarge`.
pub(crate) fn list(dir: &Path, place: &ContainerPath) -> io::Result<Vec<ContainerFileEntry>> {
    let Some(found) = find(dir, place)? else {
        return shown(dir);
    };
    let facts = rustix::fs::fstat(&found)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
        return Ok(vec![row(&found, place.path(), &facts, None)]);
    }
    let mut rows = Vec::new();
    for entry in Dir::read_from(&again(&found, OFlags::DIRECTORY)?)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if rows.len() >= MOST_ENTRIES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the directory exceeds {MOST_ENTRIES} entries"),
            ));
        }
        // An entry that disappeared meanwhile is skipped.
        let Ok(facts) = statat(&found, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        rows.push(row(
            &found,
            format!("{}/{}", place.path(), name.to_string_lossy()),
            &facts,
            Some(name),
        ));
    }
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(rows)
}

/// Opens a file for reading. Returns it with its length. Directories, and files that could block a
/// reader, are refused.
pub(crate) fn open(dir: &Path, place: &ContainerPath) -> io::Result<(File, u64)> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned());
    let Some(found) = find(dir, place)? else {
        return Err(refused("the path is a directory"));
    };
    let file = File::from(found);
    let facts = file.metadata()?;
    if facts.is_dir() {
        return Err(refused("the path is a directory"));
    }
    if !facts.is_file() {
        return Err(refused("the path is not a regular file"));
    }
    // A second hard link may be another user's file. A world-readable file is no secret; fetched
    // files are world-readable.
    if facts.nlink() > 1 && facts.permissions().mode() & 0o004 == 0 {
        return Err(refused(
            "the file has another hard link and is not readable by all users",
        ));
    }
    let opened = File::from(again(&OwnedFd::from(file), OFlags::empty())?);
    let length = opened.metadata()?.len();
    Ok((opened, length))
}

/// The visible entries of the container's directory itself.
fn shown(dir: &Path) -> io::Result<Vec<ContainerFileEntry>> {
    let dir = directory(dir)?;
    let facts = |name: &&str| {
        statat(&dir, *name, AtFlags::SYMLINK_NOFOLLOW)
            .ok()
            .map(|facts| ((*name).to_owned(), facts))
    };
    Ok(SHOWN
        .iter()
        .filter_map(facts)
        .map(|(name, facts)| row(&dir, name, &facts, None))
        .collect())
}

/// Resolves a path to an `O_PATH` descriptor. `None` for the container's directory itself.
fn find(dir: &Path, place: &ContainerPath) -> io::Result<Option<OwnedFd>> {
    let Some((first, rest)) = place.0.split_first() else {
        return Ok(None);
    };
    // The first component is a fixed name and never a link. Links below it may lead to other paths
    // below it.
    let top = openat(
        directory(dir)?,
        first.as_str(),
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if rest.is_empty() {
        return Ok(Some(top));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(&top, rest.join("/"), flags, Mode::empty(), inside) {
            // A directory of the path was moved meanwhile.
            Err(Errno::AGAIN) => {}
            Err(Errno::XDEV | Errno::LOOP) => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "a symbolic link leads out of the directory of the container",
                ));
            }
            Err(Errno::NOSYS) => return step_by_step(top, rest).map(Some),
            found => return Ok(found.map(Some)?),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "the path changes too often to be opened; try again",
    ))
}

/// Before Linux 5.6: follows no link at all.
fn step_by_step(top: OwnedFd, words: &[String]) -> io::Result<OwnedFd> {
    let mut at = top;
    for (place, word) in words.iter().enumerate() {
        let last = place + 1 == words.len();
        let kind = if last {
            OFlags::empty()
        } else {
            OFlags::DIRECTORY
        };
        at = openat(
            &at,
            word.as_str(),
            kind | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
    }
    Ok(at)
}

fn directory(dir: &Path) -> io::Result<OwnedFd> {
    Ok(openat(
        CWD,
        dir,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens a resolved file for reading, through its descriptor, so that it cannot have been replaced.
fn again(found: &OwnedFd, kind: OFlags) -> io::Result<OwnedFd> {
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(
        CWD,
        own,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | kind,
        Mode::empty(),
    )?)
}

fn row(
    dir: &OwnedFd,
    path: String,
    facts: &Stat,
    name: Option<&std::ffi::CStr>,
) -> ContainerFileEntry {
    let kind = match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile => FileEntryKind::File,
        FileType::Directory => FileEntryKind::Directory,
        FileType::Symlink => FileEntryKind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileEntryKind::Other,
    };
    let link = name
        .filter(|_| kind == FileEntryKind::Link)
        .and_then(|name| readlinkat(dir, name, Vec::new()).ok());
    let target = link.map(|to| {
        String::from_utf8_lossy(std::ffi::OsStr::from_bytes(to.to_bytes()).as_bytes()).into_owned()
    });
    let seconds = u64::try_from(facts.st_mtime).unwrap_or(0);
    ContainerFileEntry {
        path,
        kind,
        bytes: u64::try_from(facts.st_size).unwrap_or(0),
        modified: UnixMillis(
            seconds
                .saturating_mul(1000)
                .saturating_add(facts.st_mtime_nsec / 1_000_000),
        ),
        target,
    }
}

#[cfg(test)]
mod tests;

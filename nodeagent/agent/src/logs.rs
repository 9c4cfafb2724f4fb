//! Logs of containers: found by name, read by position, kept within limits.
//!
//! A program writes into a file, never into a pipe: it never blocks on a reader, and a killed agent
//! loses nothing. The file only grows at its end, so a position always refers to the same bytes.
//! When the file exceeds its segments, the oldest segments are returned to the disk
//! (`FALLOC_FL_PUNCH_HOLE`). The file keeps its length and then begins at [`ContainerLog::start`].
//!
//! Logs of tasks are in a directory that belongs to the container's user. No name leads out of it:
//! links, pipes and files with a second hard link are not opened.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use headroom_config::LogRetention;
use headroom_node_core::marker;
use headroom_types::Bytes;
use rustix::fs::{
    CWD, FallocateFlags, Mode, OFlags, ResolveFlags, SeekFrom, fallocate, openat, openat2, seek,
};

use crate::disk::file;

/// Size of the end of standard error that a report contains. Bytes.
pub(crate) const REPORTED: u64 = 4 << 10;
/// Size of the end of a log that is searched for runtime messages. A runtime may print a long
/// thread dump after its message. Bytes.
const SEARCHED: u64 = 64 << 10;
/// Default size of a served part of a log. Bytes.
pub(crate) const SERVED: u64 = 64 << 10;
/// Maximum size of one served part. Bytes.
pub(crate) const MOST: u64 = 4 << 20;
/// Maximum number of listed logs of one container.
const NAMED: usize = 1000;
/// Maximum size of a marker file. Bytes.
const MARKER_LINE: u64 = 512;
/// Unit of returned space. File systems return whole blocks; all usual block sizes divide it.
/// Bytes.
const BLOCK: u64 = 64 << 10;

/// An open log.
#[derive(Debug)]
pub(crate) struct ContainerLog {
    /// `None` for a task log without a file: its task wrote nothing, and a later task uses the file.
    file: Option<File>,
    /// Position of the first kept byte.
    pub(crate) start: u64,
    /// Position after the last byte.
    pub(crate) end: u64,
}

impl ContainerLog {
    /// Opens the log with that public name in a container's directory. An unknown name is
    /// `InvalidInput`.
    pub(crate) fn open(dir: &Path, name: &str) -> io::Result<ContainerLog> {
        let path = place(name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no log has this name"))?;
        let opened = open_inside(dir, &path, OFlags::RDONLY);
        let is_of_task = path.starts_with(file::TASKS);
        match opened {
            Err(error)
                if is_of_task
                    && error.kind() == io::ErrorKind::NotFound
                    && dir.join(file::TASKS).is_dir() =>
            {
                Ok(ContainerLog {
                    file: None,
                    start: 0,
                    end: 0,
                })
            }
            Ok(file) => ContainerLog::of(file),
            Err(error) => Err(error),
        }
    }

    /// True if the log with that name is not this file: its task has ended without output while it
    /// was read, and its file is another task's now.
    pub(crate) fn is_of_other_task(&self, dir: &Path, name: &str) -> bool {
        let inode = |log: &ContainerLog| {
            let facts = log.file.as_ref()?.metadata().ok()?;
            Some((facts.dev(), facts.ino()))
        };
        ContainerLog::open(dir, name).is_ok_and(|now| inode(&now) != inode(self))
    }

    fn of(file: File) -> io::Result<ContainerLog> {
        let end = file.metadata()?.len();
        // A file system that cannot report holes has not returned any space either. ENXIO: the file
        // is a single hole.
        let start = match seek(&file, SeekFrom::Data(0)) {
            Ok(start) => start.min(end),
            Err(rustix::io::Errno::NXIO) => end,
            Err(_) => 0,
        };
        Ok(ContainerLog {
            file: Some(file),
            start,
            end,
        })
    }

    /// Reads kept bytes from position `from` on, at most `most`. Returns them with the position of
    /// the first.
    pub(crate) fn read(&self, from: u64, most: u64) -> io::Result<(u64, Vec<u8>)> {
        let from = from.max(self.start).min(self.end);
        let Some(file) = &self.file else {
            return Ok((from, Vec::new()));
        };
        let length = usize::try_from(most.min(MOST).min(self.end - from)).unwrap_or(0);
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
            match file.read_at(room, from + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(filled);
        Ok((from, bytes))
    }

    /// Reads the last `most` bytes. Returns them with the position of the first.
    pub(crate) fn last(&self, most: u64) -> io::Result<(u64, Vec<u8>)> {
        self.read(self.end.saturating_sub(most.min(MOST)), most)
    }
}

/// The last `most` bytes of a log, as text. Invalid bytes become `U+FFFD`.
pub(crate) fn tail(dir: &Path, name: &str, most: u64) -> io::Result<String> {
    // Most programs leave one of their outputs empty, and one call shows it.
    if let Some(path) = place(name)
        && fs::symlink_metadata(dir.join(path))
            .is_ok_and(|facts| facts.is_file() && facts.len() == 0)
    {
        return Ok(String::new());
    }
    let (_, bytes) = ContainerLog::open(dir, name)?.last(most)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A part of a log: `size` bytes from its beginning, or from its end if `size` is negative. `None`
/// returns the end.
pub(crate) fn part(dir: &Path, name: &str, size: Option<i64>) -> io::Result<Vec<u8>> {
    let log = ContainerLog::open(dir, name)?;
    let most = size.map_or(SERVED, i64::unsigned_abs);
    let (_, bytes) = if size.is_none_or(i64::is_negative) {
        log.last(most)?
    } else {
        log.read(0, most)?
    };
    Ok(bytes)
}

/// Public names of the logs in a container's directory: the two of the container, then those of its
/// tasks, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names = all_names(dir);
    names.truncate(NAMED);
    names
}

fn all_names(dir: &Path) -> Vec<String> {
    let own = [file::STDOUT, file::STDERR]
        .into_iter()
        .filter(|name| dir.join(name).exists())
        .map(str::to_owned);
    let entries = fs::read_dir(dir.join(file::TASKS))
        .into_iter()
        .flatten()
        .flatten();
    let mut tasks: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    tasks.retain(|name| place(name).is_some());
    tasks.sort();
    own.chain(tasks).collect()
}

/// The cache size that the program in `dir` reported last.
pub(crate) fn cached(dir: &Path) -> Option<Bytes> {
    let log = open_inside(
        dir,
        &Path::new(file::TASKS).join(file::CACHED),
        OFlags::RDONLY,
    )
    .and_then(ContainerLog::of)
    .ok()?;
    let (_, bytes) = log.read(0, MARKER_LINE).ok()?;
    marker::cached(&String::from_utf8_lossy(&bytes))
}

/// The line by which the program in `dir` reported a full heap: from its marker file, otherwise
/// from its last output.
pub(crate) fn heap_marker(dir: &Path) -> Option<String> {
    let marker = open_inside(
        dir,
        &Path::new(file::TASKS).join(file::MARKER),
        OFlags::RDONLY,
    )
    .and_then(ContainerLog::of);
    if let Ok((_, bytes)) = marker.and_then(|log| log.read(0, MARKER_LINE)) {
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().map(str::trim).find(|l| !l.is_empty());
        return Some(
            line.unwrap_or("the program wrote its out-of-memory marker file")
                .to_owned(),
        );
    }
    [file::STDERR, file::STDOUT]
        .iter()
        .filter_map(|name| tail(dir, name, SEARCHED).ok())
        .find_map(|text| marker::find(&text).map(str::to_owned))
}

/// The path of a log below its container's directory, by its public name: `stdout`, `stderr`,
/// `TASK.out`, `TASK.err`.
pub(crate) fn place(name: &str) -> Option<PathBuf> {
    match name {
        file::STDOUT | file::STDERR => Some(name.into()),
        _ => {
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
            let ours = name.ends_with(".out") || name.ends_with(".err");
            (plain && ours && !name.starts_with('.') && name.len() <= 200)
                .then(|| Path::new(file::TASKS).join(name))
        }
    }
}

/// Opens a regular file below `dir` without following links, because its user may replace any
/// entry.
fn open_inside(dir: &Path, path: &Path, access: OFlags) -> io::Result<File> {
    let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir: OwnedFd = openat(CWD, dir, OFlags::PATH | directory, Mode::empty())?;
    // NONBLOCK: opening a named pipe must not wait for its other end.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match openat2(&dir, path, flags, Mode::empty(), inside) {
        // Before Linux 5.6: one step after the other, none of which follows a link.
        Err(rustix::io::Errno::NOSYS) => {
            match path.parent().filter(|p| !p.as_os_str().is_empty()) {
                Some(parent) => {
                    let parent = openat(
                        &dir,
                        parent,
                        OFlags::PATH | OFlags::NOFOLLOW | directory,
                        Mode::empty(),
                    )?;
                    openat(
                        &parent,
                        path.file_name().unwrap_or_default(),
                        flags,
                        Mode::empty(),
                    )
                }
                None => openat(&dir, path, flags, Mode::empty()),
            }
        }
        answer => answer,
    };
    let file = File::from(opened?);
    let facts = file.metadata()?;
    if !facts.is_file() || facts.nlink() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the log is not a regular file with one hard link",
        ));
    }
    Ok(file)
}

/// A log as its directory entry describes it. Thousands of tasks leave thousands of logs, most of
/// them empty.
#[derive(Debug)]
struct LogDirEntry {
    name: String,
    /// Whether the log is the container's own. These are shortened last.
    own: bool,
    modified: i64,
    /// Space on the disk. Bytes.
    taken: u64,
    end: u64,
}

/// The logs of a container that occupy disk space.
fn logs_on_disk(dir: &Path) -> Vec<LogDirEntry> {
    let facts = |name: String| {
        let path = place(&name)?;
        let facts = fs::symlink_metadata(dir.join(&path))
            .ok()
            .filter(|facts| facts.is_file() && facts.len() > 0)?;
        let own = path.components().count() == 1;
        Some(LogDirEntry {
            name,
            own,
            modified: facts.mtime(),
            taken: facts.blocks() * 512,
            end: facts.len(),
        })
    };
    all_names(dir).into_iter().filter_map(facts).collect()
}

/// Keeps the logs of one container within their limits. Returns the space returned to the disk.
/// Bytes.
pub(crate) fn keep_within(dir: &Path, bounds: &LogRetention) -> u64 {
    let mut logs = logs_on_disk(dir);
    // Opened one at a time, and only to be shortened.
    let open = |log: &LogDirEntry| {
        open_inside(dir, &place(&log.name)?, OFlags::RDWR)
            .and_then(ContainerLog::of)
            .ok()
    };
    let mut freed = 0;
    for entry in &mut logs {
        let kept = first_kept(entry.end, bounds);
        let whole = kept > 0 && entry.taken > entry.end.saturating_sub(kept).saturating_add(BLOCK);
        let got = if whole {
            open(entry).map_or(0, |log| give_back(&log, kept))
        } else {
            0
        };
        entry.taken = entry.taken.saturating_sub(got);
        freed += got;
    }
    let mut taken: u64 = logs.iter().map(|entry| entry.taken).sum();
    // The most recently written logs come last, and the container's own logs after all others.
    logs.sort_by_key(|entry| (entry.own, entry.modified));
    for entry in &logs {
        if taken <= bounds.container.get() {
            break;
        }
        let Some(log) = open(entry) else { continue };
        let too_much = taken - bounds.container.get();
        // The last bytes of each log are kept.
        let start = log.start.max(first_kept(log.end, bounds));
        let to = start
            .saturating_add(too_much.next_multiple_of(BLOCK))
            .min(log.end.saturating_sub(REPORTED) / BLOCK * BLOCK);
        let got = give_back(&log, to);
        taken = taken.saturating_sub(got);
        freed += got;
    }
    freed
}

/// Start of the oldest segment that is kept.
fn first_kept(end: u64, bounds: &LogRetention) -> u64 {
    let size = bounds.size.get().next_multiple_of(BLOCK);
    (end / size).saturating_sub(u64::from(bounds.count) - 1) * size
}

/// Returns the space before `to` to the disk.
fn give_back(log: &ContainerLog, to: u64) -> u64 {
    let Some(file) = log.file.as_ref().filter(|_| to > log.start) else {
        return 0;
    };
    let before = file.metadata().map_or(0, |m| m.blocks());
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, how, 0, to) {
        Ok(()) => before.saturating_sub(file.metadata().map_or(before, |m| m.blocks())) * 512,
        Err(error) => {
            tracing::debug!(%error, "the file system cannot punch holes into files; the log is not bounded");
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    fn container() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir(dir.path().join("tasks")).expect("makes");
        dir
    }

    #[test]
    fn no_name_leaves_the_directory() {
        for name in [
            "../order.json",
            "order.json",
            "a/b.out",
            ".out",
            "..out",
            "",
            "tasks",
            "a\0.err",
        ] {
            assert_eq!(place(name), None, "{name:?}");
        }
        assert_eq!(place("stderr"), Some("stderr".into()));
        assert_eq!(place("map-7-2.out"), Some("tasks/map-7-2.out".into()));
    }

    #[test]
    fn no_link_pipe_or_second_name_is_read() {
        let dir = container();
        let (tasks, secret) = (dir.path().join("tasks"), dir.path().join("secret"));
        fs::write(&secret, "secret").expect("writes");
        symlink(&secret, tasks.join("link.out")).expect("links");
        symlink("../secret", tasks.join("up.out")).expect("links");
        fs::hard_link(&secret, tasks.join("hard.out")).expect("links");
        nix::unistd::mkfifo(&tasks.join("pipe.out"), nix::sys::stat::Mode::S_IRWXU)
            .expect("a pipe");
        fs::create_dir(tasks.join("dir.out")).expect("makes");
        for name in ["link.out", "up.out", "hard.out", "pipe.out", "dir.out"] {
            assert!(tail(dir.path(), name, 10).is_err(), "{name}");
        }
        fs::rename(&tasks, dir.path().join("elsewhere")).expect("renames");
        fs::write(dir.path().join("elsewhere/a.out"), "x").expect("writes");
        symlink("elsewhere", &tasks).expect("links");
        assert!(
            tail(dir.path(), "a.out", 10).is_err(),
            "a directory that is a link is not followed"
        );
    }

    #[test]
    fn the_log_of_a_task_that_wrote_nothing_is_empty_without_a_file() {
        let dir = container();
        assert_eq!(tail(dir.path(), "map-7-2.out", 10).expect("reads"), "");
        let own = tail(dir.path(), "stdout", 10).expect_err("no task's");
        assert_eq!(own.kind(), io::ErrorKind::NotFound);
        let empty = tempfile::tempdir().expect("dir");
        let gone = tail(empty.path(), "map-7-2.out", 10).expect_err("no tasks");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_log_that_became_another_tasks_is_recognised() {
        let dir = container();
        let (first, second) = (
            dir.path().join("tasks/map-7-1.out"),
            dir.path().join("tasks/map-8-1.out"),
        );
        fs::write(&first, "").expect("writes");
        let log = ContainerLog::open(dir.path(), "map-7-1.out").expect("opens");
        assert!(!log.is_of_other_task(dir.path(), "map-7-1.out"));
        fs::rename(&first, &second).expect("renames");
        assert!(log.is_of_other_task(dir.path(), "map-7-1.out"));
    }

    #[test]
    fn a_tail_reads_only_the_end() {
        let dir = container();
        fs::write(dir.path().join("stdout"), b"first\nlast \xff\n").expect("writes");
        assert_eq!(
            tail(dir.path(), "stdout", 7).expect("reads"),
            "last \u{fffd}\n"
        );
        assert_eq!(
            tail(dir.path(), "stdout", 1 << 20).expect("reads").len(),
            15,
            "the replacement takes three bytes"
        );
    }

    #[test]
    fn a_part_is_read_from_the_beginning_or_the_end() {
        let dir = container();
        for name in [
            "stdout",
            "tasks/map-2-1.err",
            "tasks/map-1-1.out",
            "tasks/other",
        ] {
            fs::write(dir.path().join(name), b"0123456789").expect("writes");
        }
        let part = |size| super::part(dir.path(), "stdout", size).expect("reads");
        assert_eq!(
            (part(Some(3)).as_slice(), part(Some(-3)).as_slice()),
            (b"012".as_slice(), b"789".as_slice())
        );
        assert_eq!(
            (
                part(None).len(),
                part(Some(0)).len(),
                part(Some(i64::MIN)).len()
            ),
            (10, 0, 10)
        );
        assert_eq!(names(dir.path()), ["stdout", "map-1-1.out", "map-2-1.err"]);
    }

    #[test]
    fn the_marker_file_takes_precedence_over_the_logs() {
        let dir = container();
        let write =
            |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("writes");
        assert_eq!(heap_marker(dir.path()), None);
        write(
            "stdout",
            "Terminating due to java.lang.OutOfMemoryError: Java heap space\n",
        );
        assert!(
            heap_marker(dir.path())
                .expect("found")
                .contains("Java heap space")
        );
        write("tasks/oom-marker", "\n  arena exhausted \n");
        assert_eq!(heap_marker(dir.path()).as_deref(), Some("arena exhausted"));
    }

    #[test]
    fn the_oldest_segments_are_removed_and_positions_remain() {
        let dir = container();
        let bounds = LogRetention {
            size: Bytes::from_kib(64),
            count: 2,
            ..LogRetention::default()
        };
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(dir.path().join("stdout"))
            .expect("opens");
        for n in 0..40_000 {
            writeln!(file, "{n:09}").expect("writes");
            if n % 1000 == 0 {
                keep_within(dir.path(), &bounds);
            }
        }
        keep_within(dir.path(), &bounds);
        let log = ContainerLog::open(dir.path(), "stdout").expect("opens");
        let taken = file.metadata().expect("facts").blocks() * 512;
        assert_eq!(
            (log.end, log.start),
            (400_000, 5 * 65_536),
            "the newest two of seven segments are kept"
        );
        assert!(taken <= 2 * 65_536 + 4096, "{taken} bytes on the disk");
        let (from, bytes) = log.read(0, 20).expect("reads");
        assert_eq!(from, log.start, "a read begins at the oldest kept byte");
        assert!(
            String::from_utf8_lossy(&bytes).contains("\n0000327"),
            "{bytes:?}"
        );
        assert_eq!(
            tail(dir.path(), "stdout", 10).expect("reads"),
            "000039999\n"
        );
    }

    #[test]
    fn all_logs_of_a_container_together_are_bounded() {
        let dir = container();
        let bounds = LogRetention {
            container: Bytes::from_kib(256),
            ..LogRetention::default()
        };
        for name in ["tasks/a.out", "tasks/b.out", "tasks/c.out", "stdout"] {
            fs::write(dir.path().join(name), vec![b'x'; 200 << 10]).expect("writes");
        }
        assert!(keep_within(dir.path(), &bounds) > 0);
        let taken =
            |name: &str| fs::metadata(dir.path().join(name)).map_or(0, |m| m.blocks() * 512);
        let all: u64 = ["tasks/a.out", "tasks/b.out", "tasks/c.out", "stdout"]
            .into_iter()
            .map(taken)
            .sum();
        assert!(all <= 256 << 10, "{all}");
        assert_eq!(
            taken("stdout"),
            200 << 10,
            "task logs are removed before the log of the container"
        );
        assert_eq!(
            tail(dir.path(), "a.out", 5).expect("reads"),
            "xxxxx",
            "the end of each log is kept"
        );
    }
}

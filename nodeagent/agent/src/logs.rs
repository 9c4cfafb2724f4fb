//! The ends of logs: read from the back, never more than asked for.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use headroom_node_core::marker;

use crate::disk::file;

/// How much of standard error goes into a report. Bytes.
pub(crate) const REPORTED: u64 = 4 << 10;
/// How much of a log is served when nothing is said. Bytes.
pub(crate) const SERVED: u64 = 64 << 10;
/// The most that is served. Bytes.
pub(crate) const MOST: u64 = 4 << 20;
/// Most logs of one container that are named.
const NAMED: usize = 1000;

/// The last `most` bytes of a file, as text; wrong bytes become `U+FFFD`.
pub(crate) fn tail(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A part of a file: `size` bytes of its beginning, or of its end when that is below zero; the end of it when nothing is said.
pub(crate) fn part(path: &Path, size: Option<i64>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let most = size.map_or(SERVED, i64::unsigned_abs).min(MOST);
    if size.is_none_or(i64::is_negative) {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Public names of the logs in a container's directory: its own two, then those of its tasks, in order.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let own = [file::STDOUT, file::STDERR].into_iter().filter(|name| dir.join(name).exists()).map(str::to_owned);
    let entries = std::fs::read_dir(dir.join(file::TASKS)).into_iter().flatten().flatten();
    let mut tasks: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    tasks.retain(|name| path_of(dir, name).is_some());
    tasks.sort();
    own.chain(tasks).take(NAMED).collect()
}

/// The line by which the program in `dir` named its memory as full: its marker file, else its last words.
pub(crate) fn heap_marker(dir: &Path) -> Option<String> {
    if let Ok(text) = tail(&dir.join(file::MARKER), 512) {
        let line = text.lines().map(str::trim).find(|l| !l.is_empty());
        return Some(line.unwrap_or("the program left its out-of-memory marker").to_owned());
    }
    [file::STDERR, file::STDOUT]
        .iter()
        .filter_map(|name| tail(&dir.join(name), REPORTED).ok())
        .find_map(|text| marker::find(&text).map(str::to_owned))
}

/// The file of a log by its public name: `stdout`, `stderr`, `TASK.out`, `TASK.err`. `None` for anything else.
pub(crate) fn path_of(dir: &Path, name: &str) -> Option<PathBuf> {
    match name {
        file::STDOUT | file::STDERR => Some(dir.join(name)),
        _ => {
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
            let ours = name.ends_with(".out") || name.ends_with(".err");
            (plain && ours && !name.starts_with('.') && name.len() <= 200).then(|| dir.join(file::TASKS).join(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn no_name_leaves_the_directory() {
        let dir = Path::new("/c");
        for name in ["../order.json", "order.json", "a/b.out", ".out", "..out", "", "tasks", "a\0.err"] {
            assert_eq!(path_of(dir, name), None, "{name:?}");
        }
        assert_eq!(path_of(dir, "stderr"), Some("/c/stderr".into()));
        assert_eq!(path_of(dir, "map-7-2.out"), Some("/c/tasks/map-7-2.out".into()));
    }

    #[test]
    fn only_the_end_is_read() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("stdout");
        fs::write(&path, b"first\nlast \xff\n").expect("writes");
        assert_eq!(tail(&path, 7).expect("reads"), "last \u{fffd}\n");
        assert_eq!(tail(&path, 1 << 20).expect("reads").len(), 15, "the replacement takes three bytes");
    }

    #[test]
    fn a_part_is_of_the_beginning_or_of_the_end() {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir(dir.path().join("tasks")).expect("makes");
        for name in ["stdout", "tasks/map-2-1.err", "tasks/map-1-1.out", "tasks/other"] {
            fs::write(dir.path().join(name), b"0123456789").expect("writes");
        }
        let part = |size| super::part(&dir.path().join("stdout"), size).expect("reads");
        assert_eq!((part(Some(3)).as_slice(), part(Some(-3)).as_slice()), (b"012".as_slice(), b"789".as_slice()));
        assert_eq!((part(None).len(), part(Some(0)).len(), part(Some(i64::MIN)).len()), (10, 0, 10));
        assert_eq!(names(dir.path()), ["stdout", "map-1-1.out", "map-2-1.err"]);
    }

    #[test]
    fn the_marker_file_goes_before_the_logs() {
        let dir = tempfile::tempdir().expect("dir");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("writes");
        assert_eq!(heap_marker(dir.path()), None);
        write("stdout", "Terminating due to java.lang.OutOfMemoryError: Java heap space\n");
        assert!(heap_marker(dir.path()).expect("found").contains("Java heap space"));
        write("oom-marker", "\n  arena exhausted \n");
        assert_eq!(heap_marker(dir.path()).as_deref(), Some("arena exhausted"));
    }
}

//! Bounded files of lines: written in order and divided into segments. The oldest segment is
//! removed when there are too many.
//!
//! Owned by one writer. Lines that were written before a crash are read again at the next start; a
//! torn last line is dropped. A segment is called `NAME-NUMBER.jsonl`, with ascending numbers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

const ENDING: &str = ".jsonl";

/// Size limits of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimits {
    /// Size at which a segment is closed. Bytes.
    pub segment: u64,
    /// Maximum number of segments, including the open one.
    pub segments: usize,
}

/// A log of lines in segments.
#[derive(Debug)]
pub struct SegmentedLog {
    folder: PathBuf,
    name: &'static str,
    bounds: SegmentLimits,
    open: File,
    number: u64,
    written: u64,
    /// True if the name of the open file is on disk. A new file also needs a sync of its folder.
    named: bool,
}

impl SegmentedLog {
    /// Opens the log to append to it.
    ///
    /// # Errors
    /// The folder or the file cannot be created or written.
    pub fn open(folder: &Path, name: &'static str, bounds: SegmentLimits) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let number = segments(folder, name)?
            .last()
            .map_or(1, |(number, _)| *number);
        let (open, written) = append_to(&path(folder, name, number))?;
        Ok(SegmentedLog {
            folder: folder.to_owned(),
            name,
            bounds,
            open,
            number,
            written,
            named: false,
        })
    }

    /// Appends lines. The kernel has them when this returns, so they survive the end of the
    /// process. They survive the end of the machine only after [`SegmentedLog::sync`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append<L: AsRef<[u8]>>(&mut self, lines: impl IntoIterator<Item = L>) -> io::Result<()> {
        let (mut text, mut next) = (Vec::new(), Ok(()));
        for line in lines {
            text.extend_from_slice(line.as_ref());
            text.push(b'\n');
            // If the next segment cannot be opened, the other lines are still written.
            if next.is_ok() && self.written + bytes(&text) >= self.bounds.segment {
                self.write(&mut text)?;
                next = self.next();
            }
        }
        self.write(&mut text)?;
        next
    }

    fn write(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        self.open.write_all(text)?;
        self.written += bytes(text);
        text.clear();
        Ok(())
    }

    /// Writes all appended lines to disk, so that they survive the end of the machine.
    ///
    /// # Errors
    /// The disk reports an error.
    pub fn sync(&mut self) -> io::Result<()> {
        self.open.sync_data()?;
        if !self.named {
            File::open(&self.folder)?.sync_all()?;
            self.named = true;
        }
        Ok(())
    }

    /// Replaces the bounds and removes surplus segments.
    ///
    /// # Errors
    /// A surplus segment cannot be removed.
    pub fn bound(&mut self, bounds: SegmentLimits) -> io::Result<()> {
        self.bounds = bounds;
        self.trim()
    }

    fn next(&mut self) -> io::Result<()> {
        self.sync()?;
        self.number += 1;
        (self.open, self.written) = append_to(&path(&self.folder, self.name, self.number))?;
        self.named = false;
        self.trim()
    }

    fn trim(&self) -> io::Result<()> {
        let all = segments(&self.folder, self.name)?;
        let many = all.len().saturating_sub(self.bounds.segments.max(1));
        all.iter()
            .take(many)
            .try_for_each(|(_, old)| fs::remove_file(old))
    }
}

fn bytes(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Opens a file and returns it with its size. A torn last line gets a line break, so that the next
/// line does not continue it.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut size = file.metadata()?.len();
    if size > 0 && fs::read(path)?.last() != Some(&b'\n') {
        file.write_all(b"\n")?;
        size += 1;
    }
    Ok((file, size))
}

fn path(folder: &Path, name: &str, number: u64) -> PathBuf {
    folder.join(format!("{name}-{number:08}{ENDING}"))
}

/// Segments by number, the oldest first.
fn segments(folder: &Path, name: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let number = file
            .strip_prefix(name)
            .and_then(|n| n.strip_prefix('-'))
            .and_then(|n| n.strip_suffix(ENDING));
        if let Some(number) = number.and_then(|n| n.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads all stored lines, the oldest first. Lines that are not UTF-8 are skipped. A missing folder
/// is an empty log.
///
/// # Errors
/// A file cannot be read.
pub fn read(folder: &Path, name: &str, each: impl FnMut(&str)) -> io::Result<()> {
    read_latest(folder, name, usize::MAX, each)
}

/// Like [`read`], but only the `most` latest lines. A file that a writer removes meanwhile is left
/// out.
///
/// # Errors
/// A file cannot be read.
pub fn read_latest(
    folder: &Path,
    name: &str,
    most: usize,
    mut each: impl FnMut(&str),
) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let (mut files, mut lines) = (Vec::new(), 0_usize);
    for (_, path) in segments(folder, name)?.into_iter().rev() {
        if lines >= most {
            break;
        }
        let Some(file) = present(&path)? else { break };
        lines = lines.saturating_add(count_lines(file)?);
        files.push(path);
    }
    let mut older = lines.saturating_sub(most);
    for path in files.iter().rev() {
        let Some(file) = present(path)? else { continue };
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            if older > 0 {
                older -= 1;
            } else if let Ok(text) = std::str::from_utf8(&line) {
                each(text);
            }
        }
    }
    Ok(())
}

/// Opens a file; `None` if it was removed.
fn present(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Number of lines of a file. A last line without an end counts.
fn count_lines(file: File) -> io::Result<usize> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut count, mut last) = (0, b'\n');
    loop {
        let piece = reader.fill_buf()?;
        let Some(end) = piece.last() else { break };
        (count, last) = (
            count + piece.iter().filter(|byte| **byte == b'\n').count(),
            *end,
        );
        let length = piece.len();
        reader.consume(length);
    }
    Ok(count + usize::from(last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        read(folder, "x", |line| all.push(line.to_owned())).expect("reads");
        all
    }
    fn open(folder: &Path) -> SegmentedLog {
        SegmentedLog::open(
            folder,
            "x",
            SegmentLimits {
                segment: 100,
                segments: 3,
            },
        )
        .expect("opens")
    }

    #[test]
    fn the_latest_lines_are_read_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut lines = open(dir.path());
        for n in 0..20 {
            lines.append([format!("line {n}")]).expect("writes");
        }
        let all = kept(dir.path());
        for most in [0, 1, 7, all.len(), usize::MAX] {
            let mut latest = Vec::new();
            let each = |line: &str| latest.push(line.to_owned());
            read_latest(dir.path(), "x", most, each).expect("reads");
            assert_eq!(latest, all[all.len().saturating_sub(most)..], "{most}");
        }
    }

    #[test]
    fn lines_survive_a_restart_within_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        for life in 0..4 {
            let mut lines = open(dir.path());
            for n in 0..10 {
                lines
                    .append([format!("life {life} line {n}")])
                    .expect("writes");
            }
        }
        let all = kept(dir.path());
        assert_eq!(all.last().map(String::as_str), Some("life 3 line 9"));
        let size: usize = all.iter().map(|l| l.len() + 1).sum();
        assert!((200..400).contains(&size), "{size}");
        assert_eq!(segments(dir.path(), "x").expect("reads").len(), 3);
    }

    #[test]
    fn one_call_fills_several_segments() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut lines = open(dir.path());
        lines
            .append((0..100).map(|n| format!("line {n:02}")))
            .expect("writes");
        let all = kept(dir.path());
        assert_eq!(segments(dir.path(), "x").expect("reads").len(), 3);
        assert_eq!(all.last().map(String::as_str), Some("line 99"));
        let size: usize = all.iter().map(|line| line.len() + 1).sum();
        assert!((200..400).contains(&size), "{size}");
    }

    #[test]
    fn changed_limits_apply_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut lines = open(dir.path());
        for n in 0..40 {
            lines
                .append([format!("a line with the number {n}")])
                .expect("writes");
        }
        lines.sync().expect("syncs");
        let files = || segments(dir.path(), "x").expect("reads").len();
        assert_eq!(files(), 3);
        lines
            .bound(SegmentLimits {
                segment: 1000,
                segments: 2,
            })
            .expect("applies the limits");
        assert_eq!(files(), 2);
        for n in 0..20 {
            lines
                .append([format!("a longer line with the number {n}")])
                .expect("writes");
        }
        assert_eq!(
            (files(), kept(dir.path()).len() > 20),
            (2, true),
            "segments are longer now"
        );
    }

    #[test]
    fn a_truncated_last_line_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        open(dir.path()).append(["whole"]).expect("writes");
        let (number, path) = segments(dir.path(), "x")
            .expect("reads")
            .pop()
            .expect("one");
        let mut file = OpenOptions::new().append(true).open(path).expect("opens");
        file.write_all(b"to\xffrn").expect("writes");
        open(dir.path()).append(["next"]).expect("writes");
        assert_eq!(
            (number, kept(dir.path())),
            (1, vec!["whole".to_owned(), "next".to_owned()])
        );
    }

    #[test]
    fn a_log_that_was_never_written_is_empty() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(kept(&dir.path().join("none")).is_empty());
    }
}

//! Write-ahead log of a local database: two files of batches, in the order of their commits.
//!
//! A file begins with eight bytes that name its layout. A batch is its length, its checksum, and its
//! content. One file takes batches; when it is full and its batches are in the database, it is
//! overwritten from its beginning. A batch that does not follow the one before it is therefore an
//! old one, or torn, and ends the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::entry::RecordEntry;
use crate::local_database::with_suffix;

/// The first bytes of a file. The last one is the version of the layout.
const MAGIC: [u8; 8] = *b"hr-wal\0\x01";
/// Capacity of the buffer that is kept after a large batch. In bytes.
const KEPT_BUFFER: usize = 1 << 20;
/// Length and checksum of a batch. In bytes.
const FRAME: usize = 4 + 4;
/// Suffixes of the names of the two files, behind the name of the database.
const SUFFIXES: [&str; 2] = ["wal-0", "wal-1"];

/// A batch of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedBatch {
    /// The number of its commit.
    pub commit: u64,
    /// Its entries.
    pub entries: Vec<RecordEntry>,
}

/// The paths of the files of a database's log.
pub fn log_paths(database: &Path) -> [PathBuf; 2] {
    SUFFIXES.map(|suffix| with_suffix(database, suffix))
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogContent {
    /// Where the next batch of this file begins.
    pub position: LogPosition,
    /// Its batches.
    pub batches: Vec<LoggedBatch>,
}

/// Where the next batch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the file in [`log_paths`].
    pub file: usize,
    /// Offset in it. In bytes.
    pub end: u64,
}

/// Reads both files, the one with earlier commits first. Files without batches are left out.
pub fn read_log(database: &Path) -> io::Result<Vec<LogContent>> {
    let mut files = Vec::new();
    for (file, path) in log_paths(database).into_iter().enumerate() {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let (batches, end) = batches(&bytes);
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        files.push(LogContent {
            position: LogPosition { file, end },
            batches,
        });
    }
    files.retain(|content| !content.batches.is_empty());
    files.sort_by_key(|content| content.batches.first().map(|batch| batch.commit));
    Ok(files)
}

/// Appends the encoding of a batch to `out`.
fn encode(commit: u64, entries: &[RecordEntry], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME]);
    out.extend_from_slice(&commit.to_le_bytes());
    out.extend_from_slice(&length(entries.len()));
    for (key, value) in entries {
        out.extend_from_slice(&length(key.len()));
        out.extend_from_slice(key.as_bytes());
        match value {
            Some(value) => {
                out.push(1);
                out.extend_from_slice(&length(value.len()));
                out.extend_from_slice(value);
            }
            None => out.push(0),
        }
    }
    let content = start + FRAME;
    let checksum = crc32fast::hash(&out[content..]).to_le_bytes();
    let size = length(out.len() - content);
    out[start..start + 4].copy_from_slice(&size);
    out[start + 4..content].copy_from_slice(&checksum);
}

/// A length as it is written. It fits, because [`LogFile::append`] refuses larger batches.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// The batches of a file, up to the first one that does not follow the one before it, and their
/// end.
fn batches(bytes: &[u8]) -> (Vec<LoggedBatch>, usize) {
    let mut found: Vec<LoggedBatch> = Vec::new();
    let mut rest = Rest(bytes);
    if rest.take(MAGIC.len()) != Some(&MAGIC) {
        return (found, 0);
    }
    let mut end = MAGIC.len();
    while let Some(batch) = rest.frame() {
        let before = found.last().map(|last| last.commit);
        if before.is_some_and(|before| before + 1 != batch.commit) {
            break;
        }
        found.push(batch);
        end = bytes.len() - rest.0.len();
    }
    (found, end)
}

/// The part of a file that is still to be read. Each method returns `None` if it ends too early.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = self.number()?;
        self.take(usize::try_from(size).ok()?)
    }

    /// A batch with a valid checksum.
    fn frame(&mut self) -> Option<LoggedBatch> {
        let (size, checksum) = (self.number()?, self.number()?);
        let content = self.take(usize::try_from(size).ok()?)?;
        if crc32fast::hash(content) != checksum {
            return None;
        }
        let mut content = Rest(content);
        let commit = u64::from_le_bytes(content.take(8)?.try_into().ok()?);
        let count = content.number()?;
        let entries = (0..count).map(|_| content.entry()).collect::<Option<_>>()?;
        Some(LoggedBatch { commit, entries })
    }

    fn entry(&mut self) -> Option<RecordEntry> {
        let key = String::from_utf8(self.sized()?.to_vec()).ok()?;
        match self.take(1)? {
            [0] => Some((key, None)),
            [1] => Some((key, Some(self.sized()?.to_vec()))),
            _ => None,
        }
    }
}

/// A file of a log, open for writing.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    /// Offset at which the next batch begins. In bytes.
    end: u64,
    buffer: Vec<u8>,
}

impl LogFile {
    /// Opens or creates a file. The next batch begins at the offset `end`, in bytes.
    pub fn open(path: &Path, end: u64) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Submitted data may contain secrets.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(LogFile {
            file,
            end,
            buffer: Vec::new(),
        })
    }

    /// Length of the batches in it. In bytes.
    pub fn length(&self) -> u64 {
        self.end
    }

    /// Appends a batch; durable when this returns.
    pub fn append(&mut self, commit: u64, entries: &[RecordEntry]) -> io::Result<()> {
        self.buffer.clear();
        if self.end == 0 {
            self.buffer.extend_from_slice(&MAGIC);
        }
        encode(commit, entries, &mut self.buffer);
        let size = u32::try_from(self.buffer.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.file.write_all_at(&self.buffer, self.end)?;
        self.file.sync_data()?;
        self.end += u64::from(size);
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        Ok(())
    }

    /// The next batch overwrites the file from its beginning. All its batches must be in the
    /// database.
    pub fn restart(&mut self) {
        self.end = 0;
    }

    /// Removes all batches. They must be in the database.
    pub fn clear(&mut self) -> io::Result<()> {
        self.end = 0;
        self.file.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(commit: u64, size: usize) -> LoggedBatch {
        LoggedBatch {
            commit,
            entries: vec![
                (format!("done/{commit}"), Some(vec![7; size])),
                ("gone".into(), None),
            ],
        }
    }

    fn text(batches: &[LoggedBatch]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for batch in batches {
            encode(batch.commit, &batch.entries, &mut out);
        }
        out
    }

    proptest! {
        #[test]
        fn a_cut_file_has_all_whole_batches_before_the_cut(
            sizes in prop::collection::vec(0usize..300, 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let written: Vec<_> = (5..).zip(sizes).map(|(n, size)| batch(n, size)).collect();
            let bytes = text(&written);
            let cut = cut.index(bytes.len() + 1);
            let whole = (0..=written.len()).rev().find(|n| text(&written[..*n]).len() <= cut);
            let written = &written[..whole.unwrap_or(0)];
            let (found, end) = batches(&bytes[..cut]);
            prop_assert_eq!(found, written);
            prop_assert_eq!(end, if cut < MAGIC.len() { 0 } else { text(written).len() });
        }

        #[test]
        fn a_changed_byte_ends_the_file_before_its_batch(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let written: Vec<_> = (5..9).map(|n| batch(n, 100)).collect();
            let mut bytes = text(&written);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let before = (0..=4).rev().find(|n| text(&written[..*n]).len() <= at).unwrap_or(0);
            prop_assert_eq!(batches(&bytes).0, &written[..before]);
        }
    }

    #[test]
    fn old_batches_behind_the_newest_one_are_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let database = dir.path().join("store");
        let [first, second] = log_paths(&database);
        let mut file = LogFile::open(&first, 0).expect("opens");
        for commit in 1..=4 {
            file.append(commit, &batch(commit, 50).entries)
                .expect("appends");
        }
        let mut other = LogFile::open(&second, 0).expect("opens");
        other.append(5, &batch(5, 50).entries).expect("appends");
        file.restart();
        file.append(6, &batch(6, 50).entries).expect("appends");
        let found: Vec<(usize, u64)> = read_log(&database)
            .expect("reads")
            .iter()
            .map(|content| (content.position.file, content.batches[0].commit))
            .collect();
        assert_eq!(found, [(1, 5), (0, 6)], "the batches 2 to 4 are old");
        file.clear().expect("clears");
        let found = read_log(&database).expect("reads");
        assert_eq!(found[0].batches, [batch(5, 50)]);
        assert_eq!(found.len(), 1);
    }
}

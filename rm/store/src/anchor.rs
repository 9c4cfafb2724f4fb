//! The number of the last commit, in a separate file.
//!
//! The database takes damage at the end of its log for a torn write and silently drops it. This
//! number is the commit that the database must reach. It is written after each commit without a
//! sync, so it can be behind the database, but never ahead.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Name of the file in the state directory.
pub const NAME: &str = "last-commit";
/// Length of its single line. In bytes.
const LENGTH: usize = 30;

/// The open file.
#[derive(Debug)]
pub struct AnchorFile {
    path: PathBuf,
    file: File,
}

impl AnchorFile {
    /// The number in the file of this state directory; `None` when the file is missing or empty.
    pub fn read(dir: &Path) -> Result<Option<u64>, StoreError> {
        let path = dir.join(NAME);
        let mut text = String::new();
        match File::open(&path).and_then(|f| f.take(1024).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidData => return Err(damaged(path, dir)),
            Err(source) => return Err(StoreError::file(&path, source)),
        }
        if text.is_empty() {
            return Ok(None);
        }
        parse(&text).map(Some).ok_or_else(|| damaged(path, dir))
    }

    /// Opens the file for writing; its content stays until the first write.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(NAME);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        Ok(AnchorFile {
            file: file.map_err(|source| StoreError::file(&path, source))?,
            path,
        })
    }

    /// Records that the database reaches `commit`.
    pub fn write(&self, commit: u64) -> Result<(), StoreError> {
        let line = line(commit);
        self.file
            .write_all_at(line.as_bytes(), 0)
            .map_err(|source| StoreError::file(&self.path, source))
    }

    /// Syncs the file.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.file
            .sync_data()
            .map_err(|source| StoreError::file(&self.path, source))
    }
}

fn line(commit: u64) -> String {
    let number = format!("{commit:020}");
    let line = format!("{number} {:08x}\n", crc32fast::hash(number.as_bytes()));
    debug_assert_eq!(line.len(), LENGTH);
    line
}

fn parse(text: &str) -> Option<u64> {
    let commit = text.get(..20)?.parse().ok()?;
    (text == line(commit)).then_some(commit)
}

fn damaged(file: PathBuf, dir: &Path) -> StoreError {
    let advice = format!(
        "If the database in {} is complete, remove {} and start again; the last commit of the database is then accepted",
        dir.display(),
        file.display()
    );
    StoreError::Corrupt {
        file,
        what: "its line is not a commit number with its checksum".into(),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_written_number_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(AnchorFile::read(dir.path()).expect("reads"), None);
        let anchor = AnchorFile::open(dir.path()).expect("opens");
        assert_eq!(AnchorFile::read(dir.path()).expect("reads"), None);
        for commit in [7, u64::MAX, 8] {
            anchor.write(commit).expect("writes");
            assert_eq!(AnchorFile::read(dir.path()).expect("reads"), Some(commit));
        }
    }

    #[test]
    fn an_invalid_line_is_refused_and_the_error_names_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        for text in ["7", "00000000000000000007 00000000\n", "\u{0}", "seven"] {
            std::fs::write(dir.path().join(NAME), text).expect("writes");
            let refused = AnchorFile::read(dir.path()).expect_err(text).to_string();
            assert!(
                refused.contains(&dir.path().join(NAME).display().to_string()),
                "{refused}"
            );
        }
    }
}

//! Detection of changes in files.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest interval between two checks.
const EVERY: Duration = Duration::from_secs(5);

/// Identity of a file's version: device, inode, length, and modification time.
type FileVersion = Option<(u64, u64, u64, i64, i64)>;

/// Files with their versions at the last check.
#[derive(Debug)]
pub struct FileWatcher {
    files: Vec<PathBuf>,
    marks: Vec<FileVersion>,
    looked: Instant,
}

impl FileWatcher {
    /// Watches these files from their present versions.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let marks = files.iter().map(|path| mark(path)).collect();
        FileWatcher {
            files,
            marks,
            looked: Instant::now(),
        }
    }

    /// True if a file has changed since the last check. Looks at the disk every 5 s at most.
    pub fn changed(&mut self) -> bool {
        self.looked.elapsed() >= EVERY && self.changed_now()
    }

    /// True if a file has changed since the last check. Always looks at the disk.
    pub fn changed_now(&mut self) -> bool {
        self.looked = Instant::now();
        let marks: Vec<FileVersion> = self.files.iter().map(|path| mark(path)).collect();
        let changed = marks != self.marks;
        self.marks = marks;
        changed
    }
}

fn mark(path: &Path) -> FileVersion {
    let meta = std::fs::metadata(path).ok()?;
    Some((
        meta.dev(),
        meta.ino(),
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_written_or_removed_file_reports_one_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "1").expect("writes");
        let mut watched = FileWatcher::new(vec![one.clone(), two.clone()]);
        assert!(!watched.changed_now());
        std::fs::write(&two, "2").expect("writes");
        assert!(
            watched.changed_now() && !watched.changed_now(),
            "a new file"
        );
        std::fs::write(dir.path().join("new"), "3").expect("writes");
        std::fs::rename(dir.path().join("new"), &one).expect("renames");
        assert!(
            watched.changed_now() && !watched.changed_now(),
            "a file replaced by one of the same length"
        );
        std::fs::remove_file(&two).expect("removes");
        assert!(
            watched.changed_now() && !watched.changed_now(),
            "a removed file"
        );
        assert!(!watched.changed(), "the next check is later");
    }
}

//! Log files that ended attempts left empty, for the next attempts.
//!
//! A file system such as ext4 takes long to create files among many that were just removed: 37 % of
//! all processor time of empty tasks. So an attempt takes the empty logs of an ended one, under its
//! own name. An ended attempt without output then has no file, which readers show as an empty log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};

use crate::payload::FileReuse;

/// The empty logs of one directory. At most two for each slot.
#[derive(Debug)]
pub struct LogPool {
    reuse: FileReuse,
    empty: Mutex<Vec<PathBuf>>,
    /// Mode of a new log.
    mode: OnceLock<u32>,
}

impl LogPool {
    /// A pool without logs.
    pub fn new(reuse: FileReuse) -> LogPool {
        LogPool {
            reuse,
            empty: Mutex::default(),
            mode: OnceLock::new(),
        }
    }

    /// Opens an empty log with this path for writing.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        match self.take().map(|empty| self.rename(&empty, path)) {
            Some(Ok(Some(file))) => Ok(file),
            // Without one, or after its task or another process changed it.
            Some(Ok(None) | Err(_)) | None => self.create(path),
        }
    }

    /// Offers a log to the next attempt. All processes of the attempt that had it have ended.
    pub(crate) fn give_back(&self, path: &Path, log: &File) {
        if self.reuse == FileReuse::Allowed && self.is_unused(log).is_ok_and(|unused| unused) {
            let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
            empty.push(path.to_owned());
        }
    }

    fn take(&self) -> Option<PathBuf> {
        let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
        empty.pop()
    }

    /// The log under its new name, through a new open file: position and flags are not those of the
    /// last task. `None` if it is not as its task left it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<Option<File>> {
        std::fs::rename(from, to)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(to, flags, Mode::empty()).map(File::from) {
            Ok(file) if self.is_unused(&file)? => {
                rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
                Ok(Some(file))
            }
            // A link or a pipe cannot be opened like this.
            Ok(_) | Err(_) => {
                std::fs::remove_file(to)?;
                Ok(None)
            }
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(path)?;
        if self.mode.get().is_none() {
            self.mode
                .get_or_init(|| file.metadata().map_or(0, |facts| facts.mode()));
        }
        Ok(file)
    }

    /// True for an empty file with its first mode and one name.
    fn is_unused(&self, log: &File) -> io::Result<bool> {
        let facts = log.metadata()?;
        Ok(facts.is_file()
            && facts.len() == 0
            && facts.nlink() == 1
            && Some(&facts.mode()) == self.mode.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_empty_log_serves_the_next_attempt_under_its_name() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pool = LogPool::new(FileReuse::Allowed);
        let (first, second) = (dir.path().join("a.out"), dir.path().join("b.out"));
        let log = pool.open(&first).expect("opens");
        let inode = log.metadata().expect("metadata").ino();
        pool.give_back(&first, &log);
        let mut log = pool.open(&second).expect("opens");
        assert_eq!(log.metadata().expect("metadata").ino(), inode);
        assert!(!first.exists());
        log.write_all(b"text").expect("writes");
        pool.give_back(&second, &log);
        let third = pool.open(&first).expect("opens");
        assert_ne!(third.metadata().expect("metadata").ino(), inode);
        assert_eq!(
            std::fs::read(&second).expect("reads"),
            b"text",
            "output stays"
        );
    }

    #[test]
    fn a_log_that_was_changed_or_may_be_open_elsewhere_is_not_taken() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (first, second) = (dir.path().join("a.out"), dir.path().join("b.out"));
        let never = LogPool::new(FileReuse::Never);
        let log = never.open(&first).expect("opens");
        never.give_back(&first, &log);
        never.open(&second).expect("opens");
        assert!(first.exists(), "each attempt has its own");

        let pool = LogPool::new(FileReuse::Allowed);
        let changes: [fn(&Path); 4] = [
            |path| std::fs::write(path, "late").expect("writes"),
            |path| std::fs::hard_link(path, path.with_extension("link")).expect("links"),
            |path| {
                let mode = std::fs::Permissions::from_mode(0o777);
                std::fs::set_permissions(path, mode).expect("changes");
            },
            |path| {
                std::fs::remove_file(path).expect("removes");
                std::os::unix::fs::symlink("/dev/null", path).expect("links");
            },
        ];
        for change in changes {
            let log = pool.open(&first).expect("opens");
            pool.give_back(&first, &log);
            change(&first);
            let taken = pool.open(&second).expect("opens");
            let facts = taken.metadata().expect("metadata");
            assert!(facts.is_file() && facts.len() == 0 && facts.nlink() == 1);
            assert_ne!(facts.ino(), log.metadata().expect("metadata").ino());
            let _ = std::fs::remove_file(&first);
        }
    }
}

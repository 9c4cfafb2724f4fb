//! One process in a state directory.
//!
//! The lock is the kernel's, on a file that is never written to; it goes with the process, however that ends.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::StoreError;

/// Name of the file in the state directory.
pub const NAME: &str = "lock";
/// Another process that is on its way out has this long to leave.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the directory, waiting at most `patience` for another process to leave it. It is held as long as the file is open.
pub fn take(dir: &Path, patience: Duration) -> Result<File, StoreError> {
    let unusable = |source| StoreError::directory(dir, source);
    let file = File::options().create(true).truncate(false).write(true).open(dir.join(NAME)).map_err(unusable)?;
    let until = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::park_timeout(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { dir: dir.to_owned(), pid: holder(&file) }),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
    }
}

/// Who holds it, by the kernel's list of locks.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| of_line(line, inode))
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF`. A process that is not to be seen from here has the number 0.
fn of_line(line: &str, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "FLOCK")?;
    let (pid, place) = (words.get(at + 3)?, words.get(at + 4)?);
    let found: u64 = place.rsplit(':').next()?.parse().ok()?;
    pid.parse().ok().filter(|pid| *pid > 0 && found == inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_in_the_list_of_locks() {
        assert_eq!(of_line("1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF", 1_234_567), Some(4711));
        assert_eq!(of_line("1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF", 7), None);
        assert_eq!(of_line("1: -> FLOCK  ADVISORY  WRITE 0 fd:01:7 0 EOF", 7), None);
        assert_eq!(of_line("1: POSIX  ADVISORY  WRITE 4711 fd:01:7 0 EOF", 7), None);
    }

    #[test]
    fn whoever_comes_second_is_told_who_was_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let _held = take(dir.path(), PATIENCE).expect("free");
        let refused = take(dir.path(), Duration::ZERO).expect_err("in use").to_string();
        assert!(refused.contains("in use by another"), "{refused}");
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    }
}

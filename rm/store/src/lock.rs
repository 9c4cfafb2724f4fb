//! The lock that allows one process per state directory.
//!
//! It is a kernel lock on a file that is never written. The kernel releases it at any end of the
//! process.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::StoreError;

/// Name of the file in the state directory.
pub const NAME: &str = "lock";
/// Maximum wait for another process that is shutting down.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Locks the directory. Waits at most `timeout` for another process to release it. The lock is
/// held while the file is open.
pub fn lock_directory(dir: &Path, timeout: Duration) -> Result<File, StoreError> {
    let unusable = |source| StoreError::directory(dir, source);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(NAME))
        .map_err(unusable)?;
    let until = Instant::now() + timeout;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::park_timeout(Duration::from_millis(50))
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    dir: dir.to_owned(),
                    pid: holder(&file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
    }
}

/// The pid of the holder, from the kernel's list of locks.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| of_line(line, inode))
}

/// Parses `1: FLOCK ADVISORY WRITE 4711 fd:01:1234567 0 EOF`. A process in another pid namespace
/// has the number 0.
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
        assert_eq!(
            of_line(
                "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF",
                1_234_567
            ),
            Some(4711)
        );
        assert_eq!(
            of_line("1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF", 7),
            None
        );
        assert_eq!(
            of_line("1: -> FLOCK  ADVISORY  WRITE 0 fd:01:7 0 EOF", 7),
            None
        );
        assert_eq!(
            of_line("1: POSIX  ADVISORY  WRITE 4711 fd:01:7 0 EOF", 7),
            None
        );
    }

    #[test]
    fn a_second_process_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let _held = lock_directory(dir.path(), LOCK_TIMEOUT).expect("free");
        let refused = lock_directory(dir.path(), Duration::ZERO)
            .expect_err("in use")
            .to_string();
        assert!(refused.contains("in use by another"), "{refused}");
        assert!(
            refused.contains(&format!("(process {})", std::process::id())),
            "{refused}"
        );
    }
}

//! Counters of a cgroup that stay open, so that a read is one call of the kernel instead of three.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::layout::PROCS;

/// Buffer size that fits most kernel files: `memory.stat` of a recent kernel has two thousand
/// bytes. In bytes.
const ROOM: usize = 8 * 1024;
/// Maximum number of open files.
const MAX_OPEN: usize = 16;

/// The open counters of one cgroup, by file name.
#[derive(Debug, Default)]
pub(crate) struct OpenCounters(Mutex<Vec<(String, OwnedFd)>>);

impl OpenCounters {
    /// True for the counters of memory in the directory itself. A list of processes is not among them:
    /// with cgroup v1, an open one shows the processes of up to a second ago.
    pub(crate) fn can_hold(file: &str) -> bool {
        file.starts_with("memory.") && !file.contains('/')
    }

    /// The text of the file. `open` opens it for the first read; without such a file the result is
    /// `None`.
    pub(crate) fn read(
        &self,
        file: &str,
        open: impl FnOnce() -> io::Result<Option<OwnedFd>>,
    ) -> io::Result<Option<String>> {
        // The list is complete at any moment, also if a read panicked.
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = files.iter().find(|(name, _)| name == file) {
            return whole(known, file).map(Some);
        }
        let Some(opened) = open()? else {
            return Ok(None);
        };
        let text = whole(&opened, file)?;
        if files.len() < MAX_OPEN {
            files.push((file.to_owned(), opened));
        }
        Ok(Some(text))
    }
}

/// The text of an open kernel file, in as few reads as possible. `file` is its name. The kernel
/// composes the text again for each read of its beginning. A read that is shorter than the buffer
/// ends the file, unless the file is a list of processes.
pub(crate) fn whole(open: &OwnedFd, file: &str) -> io::Result<String> {
    let mut room = [0; ROOM];
    let mut text = Vec::new();
    loop {
        let length = match rustix::io::pread(open, &mut room, text.len() as u64) {
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        text.extend_from_slice(room.get(..length).unwrap_or_default());
        if length == 0 || (length < room.len() && !file.ends_with(PROCS)) {
            return String::from_utf8(text)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn an_open_counter_is_read_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("memory.stat");
        std::fs::write(&path, "anon 1").expect("writes");
        let open = || Ok(Some(File::open(&path)?.into()));
        let counters = OpenCounters::default();
        let read = |name: &str| counters.read(name, open).expect("reads");
        assert_eq!(read("memory.stat").as_deref(), Some("anon 1"));
        let long = format!("anon {}", "7".repeat(2 * ROOM));
        std::fs::write(&path, &long).expect("writes");
        let unopened = || -> io::Result<Option<OwnedFd>> { panic!("it is open") };
        let again = counters.read("memory.stat", unopened).expect("reads");
        assert_eq!(again, Some(long));
    }

    #[test]
    fn a_missing_counter_is_looked_for_each_time() {
        let counters = OpenCounters::default();
        let missing = counters.read("memory.peak", || Ok(None)).expect("reads");
        assert_eq!(missing, None);
        let there = || Ok(Some(File::open("/proc/self/oom_score")?.into()));
        assert!(
            counters
                .read("memory.peak", there)
                .expect("reads")
                .is_some()
        );
    }

    #[test]
    fn lists_of_processes_and_files_below_are_not_held() {
        let held = ["memory.events", "memory.failcnt"];
        assert!(held.into_iter().all(OpenCounters::can_hold));
        let opened = ["cgroup.procs", "tasks", "main/memory.oom_control"];
        assert!(!opened.into_iter().any(OpenCounters::can_hold));
    }
}

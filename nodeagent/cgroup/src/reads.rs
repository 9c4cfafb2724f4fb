//! Bytes that a process read by system calls from files, pipes and sockets, including the page
//! cache.
//!
//! The kernel adds the reads of a child to its parent when the parent waits for it. The number of
//! an ended process remains until it is reaped. Pages of mapped files are not included.

use std::fs::File;
use std::io::Read as _;

use headroom_types::Bytes;

use crate::parse;

/// Bytes that process `pid`, its threads and its reaped children have read so far. `None` when it
/// is gone or access is denied.
pub fn so_far(pid: i32) -> Option<Bytes> {
    // One read returns the whole file, which has no length.
    let mut room = [0; 512];
    let mut file = File::open(format!("/proc/{pid}/io")).ok()?;
    let length = file.read(&mut room).ok()?;
    parse::read_chars(std::str::from_utf8(room.get(..length)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const FILE: u64 = 3 << 20;

    fn reader(script: &str, file: &std::path::Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script, "sh"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Reads of an ended process and of the child that it waited for are reported until it is
    /// reaped.
    #[test]
    fn reads_of_a_reaped_child_count_until_its_parent_is_reaped() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("input");
        std::fs::write(&file, vec![7; usize::try_from(FILE).expect("small")]).expect("writes");
        let mut child = reader("cat \"$1\" > /dev/null; :", &file)
            .spawn()
            .expect("starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let mut out = child.stdout.take().expect("a pipe");
        // The pipe ends when none of its processes runs any more.
        std::io::copy(&mut out, &mut std::io::sink()).expect("reads");
        let ended = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "))
        };
        while !ended() {
            std::thread::yield_now();
        }
        let read = so_far(pid).expect("not reaped yet");
        assert!((FILE..FILE + (1 << 20)).contains(&read.get()), "{read}");
        child.wait().expect("ends");
        assert_eq!(so_far(pid), None);
    }
}

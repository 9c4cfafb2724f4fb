//! What a process has read: bytes that system calls brought it from files, pipes and sockets, from the page cache or not.
//!
//! The kernel adds what a child has read to its parent when the parent waits for it, and keeps the figure of a process that has ended until it
//! is reaped. Pages of mapped files are not in it.

use headroom_types::Bytes;

use crate::parse;

/// What process `pid`, its threads and the children it has waited for have read so far. `None` when it is gone, or not ours to look at.
pub fn so_far(pid: i32) -> Option<Bytes> {
    parse::read_chars(&std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const FILE: u64 = 3 << 20;

    fn reader(script: &str, file: &std::path::Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// A process that has ended, its own reads and those of a child that it waited for: all are told until it is reaped.
    #[test]
    fn a_child_that_was_waited_for_counts_and_the_end_does_not_take_it_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("input");
        std::fs::write(&file, vec![7; usize::try_from(FILE).expect("small")]).expect("writes");
        let mut child = reader("cat \"$1\" > /dev/null; :", &file).spawn().expect("starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let mut out = child.stdout.take().expect("a pipe");
        // The pipe ends when nothing of it runs any more.
        std::io::copy(&mut out, &mut std::io::sink()).expect("reads");
        let ended = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        while !ended() {
            std::thread::yield_now();
        }
        let read = so_far(pid).expect("not reaped yet");
        assert!((FILE..FILE + (1 << 20)).contains(&read.get()), "{read}");
        child.wait().expect("ends");
        assert_eq!(so_far(pid), None);
    }
}

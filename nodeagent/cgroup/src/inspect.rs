//! Reads the mappings and counts the open sockets and pipes of one process.
//!
//! It is expensive compared with the counters of a group (about 3 ms per 300 MB). Therefore it runs
//! only for a process near its limit, and never while a caller waits. `headroom-node-core::maps`
//! parses the text.

use std::fs::File;
use std::io::{self, Read as _};

/// Maximum length of the text: about thirty thousand mappings. In bytes.
const MOST_TEXT: u64 = 32 << 20;
/// Maximum number of descriptors that are read.
const MOST_OPEN: usize = 4096;

/// The result of one inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInspection {
    /// The pid.
    pub pid: i32,
    /// Its `/proc/PID/smaps`, at most 32 MiB of it.
    pub smaps: String,
    /// Open sockets. A count.
    pub sockets: u32,
    /// Open ends of pipes. A count.
    pub pipes: u32,
}

/// Inspects process `pid`. It is an error when the process is gone or access is denied.
pub fn inspect_process(pid: i32) -> io::Result<ProcessInspection> {
    let mut inside = ProcessInspection {
        pid,
        ..ProcessInspection::default()
    };
    // Descriptors may be inaccessible where mappings are not. They are counted first: a process
    // that ends in between has neither, and without mappings the inspection does not count.
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .take(MOST_OPEN)
    {
        let Ok(target) = std::fs::read_link(entry.path()) else {
            continue;
        };
        match target.to_str() {
            Some(t) if t.starts_with("socket:") => inside.sockets += 1,
            Some(t) if t.starts_with("pipe:") => inside.pipes += 1,
            Some(_) | None => {}
        }
    }
    let mut smaps = Vec::new();
    File::open(format!("/proc/{pid}/smaps"))?
        .take(MOST_TEXT)
        .read_to_end(&mut smaps)?;
    // The program chooses the names of mapped files, and they need not be UTF-8.
    inside.smaps = String::from_utf8(smaps)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mappings_sockets_and_pipes_of_this_process_are_counted() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let before = inspect_process(me).expect("looks");
        assert!(before.smaps.contains("Anonymous:") && before.smaps.contains("[stack]"));
        let _pair = std::os::unix::net::UnixStream::pair().expect("a pair");
        let _pipe = std::io::pipe().expect("a pipe");
        let after = inspect_process(me).expect("looks");
        assert!(
            after.sockets >= before.sockets + 2 && after.pipes >= before.pipes + 2,
            "{} {}",
            after.sockets,
            after.pipes
        );
        assert!(inspect_process(i32::MAX).is_err());
    }
}

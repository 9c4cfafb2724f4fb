//! Looks into one process: the text of its mappings, and how many sockets and pipes it has open.
//!
//! Dear compared with the counters of a group (about 3 ms for each 300 MB), so it is asked for a process near its limit only,
//! and never on the way of somebody who waits. The text is understood by `headroom-node-core::maps`.

use std::fs::File;
use std::io::{self, Read as _};

/// Most text that is read: about thirty thousand mappings. Bytes.
const MOST_TEXT: u64 = 32 << 20;
/// Most descriptors that are looked at.
const MOST_OPEN: usize = 4096;

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Which process.
    pub pid: i32,
    /// Its `/proc/PID/smaps`, at most 32 MiB of it.
    pub smaps: String,
    /// Open sockets; a count.
    pub sockets: u32,
    /// Open ends of pipes; a count.
    pub pipes: u32,
}

/// Looks into process `pid`. An error when it is gone or not ours to look at.
pub fn look(pid: i32) -> io::Result<Inside> {
    let mut smaps = Vec::new();
    File::open(format!("/proc/{pid}/smaps"))?.take(MOST_TEXT).read_to_end(&mut smaps)?;
    // Names of mapped files are the program's to choose, and need not be text.
    let smaps = String::from_utf8(smaps).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    let mut inside = Inside { pid, smaps, ..Inside::default() };
    // Descriptors may be closed to us where mappings are not; a process that ends between the two has none.
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(MOST_OPEN) {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        match target.to_str() {
            Some(t) if t.starts_with("socket:") => inside.sockets += 1,
            Some(t) if t.starts_with("pipe:") => inside.pipes += 1,
            Some(_) | None => {}
        }
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_mappings_and_what_it_opens() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let before = look(me).expect("looks");
        assert!(before.smaps.contains("Anonymous:") && before.smaps.contains("[stack]"));
        let _pair = std::os::unix::net::UnixStream::pair().expect("a pair");
        let _pipe = std::io::pipe().expect("a pipe");
        let after = look(me).expect("looks");
        assert!(after.sockets >= before.sockets + 2 && after.pipes >= before.pipes + 2, "{} {}", after.sockets, after.pipes);
        assert!(look(i32::MAX).is_err());
    }
}

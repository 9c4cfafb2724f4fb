//! The two fields of `/proc/PID/stat` that this crate needs.

use std::fs::File;
use std::io::Read as _;

/// State and start time of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// The kernel's letter: `R`, `S`, …; `Z` is an ended process that is not reaped yet.
    pub state: char,
    /// The start time, in kernel ticks after boot.
    pub starttime: u64,
}

/// Parses the content of `/proc/PID/stat`. The program chooses the name in parentheses. It can
/// contain blanks, parentheses and line ends, and need not be UTF-8.
pub fn parse(bytes: &[u8]) -> Option<ProcessStat> {
    let name_ends = bytes.windows(2).rposition(|two| two == b") ")?;
    let after_name = std::str::from_utf8(bytes.get(name_ends + 2..)?).ok()?;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    // The state is field 3, the start time field 22.
    let starttime = fields.nth(18)?.trim().parse().ok()?;
    Some(ProcessStat { state, starttime })
}

/// Reads the fields of a process; `None` when there is no such process.
pub fn read(pid: i32) -> std::io::Result<Option<ProcessStat>> {
    // One read returns the whole file, which has no length.
    let mut room = [0; 1024];
    let file = File::open(format!("/proc/{pid}/stat"));
    match file.and_then(|mut file| file.read(&mut room)) {
        Ok(length) => Ok(room.get(..length).and_then(parse)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 200 18446744073709551615\n";
        assert_eq!(
            parse(text.as_bytes()),
            Some(ProcessStat {
                state: 'S',
                starttime: 98765
            })
        );
        assert_eq!(parse(b"nonsense"), None);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_parsed() {
        let bytes = b"7 (\xff\n) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 200 18446744073709551615\n";
        assert_eq!(
            parse(bytes),
            Some(ProcessStat {
                state: 'S',
                starttime: 98765
            })
        );
    }

    #[test]
    fn this_process_has_a_start_time() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        assert!(read(me).expect("reads").expect("is there").starttime > 0);
        assert_eq!(read(i32::MAX).expect("reads"), None);
    }
}

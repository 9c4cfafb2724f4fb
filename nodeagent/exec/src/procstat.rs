//! The two fields of `/proc/PID/stat` this crate needs.

/// State and birth of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcStat {
    /// `R`, `S`, … `Z` for one that waits to be reaped.
    pub(crate) state: char,
    /// Kernel ticks after boot.
    pub(crate) starttime: u64,
}

/// From the text of `/proc/PID/stat`. The name in parentheses may hold blanks and parentheses itself.
pub(crate) fn parse(text: &str) -> Option<ProcStat> {
    let (_, after_name) = text.rsplit_once(") ")?;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    // The state is field 3, the start time field 22.
    let starttime = fields.nth(18)?.trim().parse().ok()?;
    Some(ProcStat { state, starttime })
}

/// Reads it; `None` when there is no such process.
pub(crate) fn read(pid: i32) -> std::io::Result<Option<ProcStat>> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse(&text)),
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
        assert_eq!(parse(text), Some(ProcStat { state: 'S', starttime: 98765 }));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn this_process_has_a_birth() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        assert!(read(me).expect("reads").expect("is there").starttime > 0);
        assert_eq!(read(i32::MAX).expect("reads"), None);
    }
}

//! The copy of a manager's journal on this node, and the rule by which starts follow it.
//!
//! A group of records is written here before it is sent to the resource manager. The next attempt on
//! this node finds the groups that did not arrive. So starts leave after this write, as those of a
//! journal in a file do, and no slot waits for the call. Nothing is synced: after the end of the host,
//! the copy is not needed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// Time since the last answer of the resource manager in which starts follow the copy. In a longer
/// silence they wait for the answer, so that few records are on this node only.
const MAX_SILENCE: Duration = Duration::from_millis(50);
/// Beginning of the first line of an attempt; no record begins like this.
pub(crate) const FIRST_LINE: &[u8] = b"{\"attempt\":";

/// The copy of one attempt's groups.
#[derive(Debug)]
pub(crate) struct JournalTail {
    path: PathBuf,
    /// `None` before the journal begins, and after an error.
    file: Option<File>,
    /// Last answer of the resource manager.
    answered: Option<Instant>,
}

impl JournalTail {
    /// The copy beside the file of a journal on this node.
    pub(crate) fn beside(file: &Path) -> JournalTail {
        JournalTail {
            path: file.with_extension("tail"),
            file: None,
            answered: None,
        }
    }

    /// The records of the last attempt that `stored`, the journal of the resource manager, lacks.
    pub(crate) fn missing_records(&self, stored: &[u8]) -> Vec<u8> {
        match std::fs::read(&self.path) {
            Ok(copy) => missing_in(stored, &copy).to_vec(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the copy of the journal cannot be read; started tasks may run again");
                Vec::new()
            }
        }
    }

    /// Begins with these lines, which the resource manager has, in place of an earlier attempt's.
    pub(crate) fn begin(&mut self, lines: &[u8]) {
        let new = self.path.with_extension("tail-new");
        let begun = (|| {
            let mut options = File::options();
            let mut file = options
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(lines)?;
            std::fs::rename(&new, &self.path)?;
            Ok(file)
        })();
        self.file = self.checked(begun);
    }

    /// Writes the lines of a group. True if starts may follow.
    pub(crate) fn write(&mut self, lines: &[u8]) -> bool {
        let written = match &mut self.file {
            Some(file) => file.write_all(lines),
            None => return false,
        };
        if self.checked(written).is_none() {
            self.file = None;
            return false;
        }
        self.answered
            .is_some_and(|answered| answered.elapsed() < MAX_SILENCE)
    }

    /// Notes that the resource manager has answered.
    pub(crate) fn on_answer(&mut self) {
        self.answered = Some(Instant::now());
    }

    /// Ends the copy: the journal continues elsewhere.
    pub(crate) fn end(&mut self) {
        self.file = None;
        let _ = std::fs::remove_file(&self.path); // an old copy has nothing that a later journal lacks
    }

    fn checked<T>(&self, result: io::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                tracing::warn!(path = %self.path.display(), %error, "the copy of the journal cannot be written; starts wait for the resource manager");
            })
            .ok()
    }
}

/// The whole lines at the end of `copy` that follow the last attempt in `stored`.
fn missing_in<'c>(stored: &[u8], copy: &'c [u8]) -> &'c [u8] {
    let mut begin = None;
    let mut at = 0;
    for line in stored.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(FIRST_LINE) {
            begin = Some(at);
        }
        at += line.len();
    }
    let last = begin.and_then(|begin| stored.get(begin..));
    let rest = last.and_then(|last| copy.strip_prefix(last)).unwrap_or(&[]);
    let whole = rest.iter().rposition(|byte| *byte == b'\n');
    whole.and_then(|end| rest.get(..=end)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "{\"attempt\":1,\"process\":\"a\"}\n";
    const SECOND: &str = "{\"attempt\":2,\"process\":\"b\"}\n";

    #[test]
    fn whole_lines_after_the_last_attempt_are_missing() {
        let missing = |stored: &str, copy: &str| {
            String::from_utf8(missing_in(stored.as_bytes(), copy.as_bytes()).to_vec())
                .expect("text")
        };
        let stored = format!("{FIRST}one\n{SECOND}two\n");
        assert_eq!(
            missing(&stored, &format!("{SECOND}two\nthree\nfo")),
            "three\n"
        );
        assert_eq!(missing(&stored, &format!("{SECOND}two\n")), "");
        assert_eq!(missing(&stored, &format!("{SECOND}tw")), "", "it has less");
        assert_eq!(
            missing(&stored, &format!("{FIRST}one\nx\n")),
            "",
            "an earlier one's"
        );
        assert_eq!(
            missing("", &format!("{FIRST}one\n")),
            "",
            "no attempt has begun"
        );
    }

    #[tokio::test]
    async fn starts_follow_the_copy_while_the_resource_manager_answers() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("journal.ndjson");
        let mut tail = JournalTail::beside(&file);
        tail.on_answer();
        assert!(!tail.write(b"one\n"), "it has not begun");
        tail.begin(FIRST.as_bytes());
        assert!(tail.write(b"one\n"));
        tail.answered = tail.answered.and_then(|at| at.checked_sub(MAX_SILENCE));
        assert!(!tail.write(b"two\n"), "a silence");
        let next = JournalTail::beside(&file);
        assert_eq!(next.missing_records(FIRST.as_bytes()), b"one\ntwo\n");
        tail.end();
        assert_eq!(next.missing_records(FIRST.as_bytes()), b"");
    }
}

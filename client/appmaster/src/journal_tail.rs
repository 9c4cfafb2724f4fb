//! The copy on this node of a journal in the resource manager or in an object store, and the rule by which
//! starts follow it.
//!
//! A group of records is written here before it is sent there. The next attempt on this node finds the
//! groups that did not arrive. So starts leave after this write, as those of a
//! journal in a file do, and no slot waits for the call. Nothing is synced: after the end of the host,
//! the copy is not needed.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum size of the groups that did not arrive. Bytes.
const MAX_MISSING: u64 = 16 << 20;

/// The copy of one attempt's groups.
#[derive(Debug)]
pub(crate) struct JournalTail {
    path: PathBuf,
    /// `None` before the journal begins, and after an error.
    file: Option<File>,
    /// Last answer of the resource manager or the object store.
    answered: Option<Instant>,
    /// Time since that answer in which starts follow the copy. In a longer silence they wait for the
    /// answer, so that few records are on this node only.
    max_silence: Duration,
}

impl JournalTail {
    /// The copy beside the file of a journal on this node.
    pub(crate) fn beside(file: &Path, max_silence: Duration) -> JournalTail {
        JournalTail {
            path: file.with_extension("tail"),
            file: None,
            answered: None,
            max_silence,
        }
    }

    /// The records of the last attempt that did not arrive. `arrived` is its text from its first line on.
    /// Empty if the copy is of another attempt.
    pub(crate) fn missing_records(&self, arrived: impl Read) -> Vec<u8> {
        match File::open(&self.path).and_then(|copy| missing_in(arrived, copy)) {
            Ok(missing) => missing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the copy of the journal cannot be read; started tasks may run again");
                Vec::new()
            }
        }
    }

    /// Begins with these lines, which have arrived, in place of an earlier attempt's.
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
            .is_some_and(|answered| answered.elapsed() < self.max_silence)
    }

    /// Notes an answer.
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
                tracing::warn!(path = %self.path.display(), %error, "the copy of the journal cannot be written; starts wait until the journal is durable");
            })
            .ok()
    }
}

/// The whole lines in `copy` after the text in `arrived`, with which it must begin.
fn missing_in(arrived: impl Read, copy: impl Read) -> io::Result<Vec<u8>> {
    let (mut arrived, mut copy) = (BufReader::new(arrived), BufReader::new(copy));
    loop {
        let (known, copied) = (arrived.fill_buf()?, copy.fill_buf()?);
        if known.is_empty() {
            break;
        }
        let length = known.len().min(copied.len());
        if length == 0 || known.get(..length) != copied.get(..length) {
            return Ok(Vec::new());
        }
        arrived.consume(length);
        copy.consume(length);
    }
    let mut missing = Vec::new();
    copy.take(MAX_MISSING).read_to_end(&mut missing)?;
    let whole = missing.iter().rposition(|byte| *byte == b'\n');
    missing.truncate(whole.map_or(0, |end| end + 1));
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "{\"attempt\":1,\"process\":\"a\"}\n";
    const SECOND: &str = "{\"attempt\":2,\"process\":\"b\"}\n";

    #[test]
    fn whole_lines_after_the_text_that_arrived_are_missing() {
        let missing = |arrived: &str, copy: &str| {
            let missing = missing_in(arrived.as_bytes(), copy.as_bytes()).expect("reads");
            String::from_utf8(missing).expect("text")
        };
        let arrived = format!("{SECOND}two\n");
        let with = |rest: &str| missing(&arrived, &format!("{arrived}{rest}"));
        assert_eq!(with("three\nfo"), "three\n");
        assert_eq!(with(""), "");
        assert_eq!(missing(&arrived, &format!("{SECOND}tw")), "", "it has less");
        assert_eq!(
            missing(&arrived, &format!("{FIRST}one\nx\n")),
            "",
            "an earlier one's"
        );
        let long = "x".repeat(20_000) + "\n";
        assert_eq!(missing(&long, &format!("{long}rest\n")), "rest\n");
    }

    #[tokio::test]
    async fn starts_follow_the_copy_while_answers_arrive() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("journal.ndjson");
        let beside = || JournalTail::beside(&file, Duration::from_secs(3600));
        let mut tail = beside();
        tail.on_answer();
        assert!(!tail.write(b"one\n"), "it has not begun");
        tail.begin(FIRST.as_bytes());
        assert!(tail.write(b"one\n"));
        tail.max_silence = Duration::ZERO;
        assert!(!tail.write(b"two\n"), "a silence");
        let next = beside();
        assert_eq!(next.missing_records(FIRST.as_bytes()), b"one\ntwo\n");
        tail.end();
        assert_eq!(next.missing_records(FIRST.as_bytes()), b"");
    }
}

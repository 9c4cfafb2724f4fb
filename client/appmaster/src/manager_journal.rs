//! The journal of one application in the state of the resource manager: for small jobs, without a
//! directory that the nodes share.
//!
//! The resource manager takes groups of the current attempt only, in the order of their offsets, and
//! answers when a group is durable. So its answer is the sync and the check of the fence at once. A
//! call whose answer was lost is repeated; the resource manager knows the group then.
//!
//! The first line of each attempt names the attempt and its process: two processes with the same
//! attempt never append the same group. The lines are not part of the records.
//!
//! Each group is also in a copy on this node, from which the next attempt takes the records that did
//! not arrive (`journal_tail`).
//!
//! A journal that reaches the limit of the resource manager continues in a file of the node: all
//! records are written there first, and the resource manager forgets them afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_client::{Client, ClientError};
use headroom_types::{AttemptId, Bytes};
use headroom_wire::v1::application_master::{AppendToJournal, StoredJournal};
use headroom_wire::v1::error::ErrorCode;

use crate::first_line::{FIRST_LINE, FirstLine};
use crate::journal::{JournalError, JournalReplay, MasterJournal, encode, io_at};
use crate::journal_tail::JournalTail;
use crate::record::JournalRecord;
use crate::remote_journal::RemoteJournal;

/// Expected size of the records of one task that succeeds at its first attempt, with the entries of
/// its groups. Bytes.
const BYTES_PER_TASK: u64 = 2 << 10;
/// Expected size of all other records of a job. Bytes.
const BYTES_PER_JOB: u64 = 8 << 10;
/// Time since the last answer of the resource manager in which starts follow the copy.
const MAX_SILENCE: Duration = Duration::from_millis(50);
/// Maximum size of one append, unless one record is larger. Bytes.
const MAX_APPEND: usize = 256 << 10;

/// Where the journal of an attempt is, if the resource manager is the configured place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChosenPlace {
    /// In the resource manager.
    Manager,
    /// On this node, for this reason.
    Node(String),
}

/// Chooses the place of a journal. `tasks` is the number of tasks in the job file, and `has_file`
/// whether this node has the journal of an earlier attempt.
pub(crate) fn choose_place(stored: &StoredJournal, tasks: u32, has_file: bool) -> ChosenPlace {
    if stored.moved {
        let reason = "it has reached the limit of the resource manager in an earlier attempt";
        return ChosenPlace::Node(reason.to_owned());
    }
    if !stored.records.is_empty() {
        return ChosenPlace::Manager;
    }
    if has_file {
        return ChosenPlace::Node("an earlier attempt began it there".to_owned());
    }
    let expected = u64::from(tasks)
        .saturating_mul(BYTES_PER_TASK)
        .saturating_add(BYTES_PER_JOB);
    if expected <= stored.limit.get() {
        return ChosenPlace::Manager;
    }
    ChosenPlace::Node(format!(
        "about {} are expected for {tasks} tasks, and the resource manager takes {} (journals.max_journal, \
         journals.max_total)",
        Bytes::new(expected),
        stored.limit
    ))
}

/// The journal of one attempt in the resource manager.
#[derive(Debug)]
pub(crate) struct ManagerJournal {
    client: Client,
    attempt: AttemptId,
    /// Records of all attempts. They are needed when the journal moves, and bounded by the limit of
    /// the resource manager.
    records: Vec<u8>,
    /// Bytes that this attempt has appended.
    offset: u64,
    /// Records of the last attempt, from the copy on this node, that the resource manager lacks.
    missing: Vec<u8>,
    /// The copy of this attempt. `None` while [`RemoteJournal::take_tail`] has it.
    tail: Option<JournalTail>,
    /// The file on this node, after a move.
    file: PathBuf,
    moved: Option<MasterJournal>,
}

/// The resource manager took no group, because the journal has reached its limit.
struct JournalFull;

impl ManagerJournal {
    /// The journal that `stored` has from earlier attempts. Nothing may be appended before
    /// [`ManagerJournal::begin`]. `file` is the journal on this node after a move.
    pub(crate) fn new(
        client: Client,
        attempt: AttemptId,
        stored: &StoredJournal,
        file: PathBuf,
    ) -> Self {
        let (tail, stored) = (
            JournalTail::beside(&file, MAX_SILENCE),
            stored.records.as_bytes(),
        );
        let last = last_attempt(stored);
        let missing = last.map(|arrived| tail.missing_records(arrived));
        ManagerJournal {
            client,
            attempt,
            records: without_first_lines(stored),
            missing: missing.unwrap_or_default(),
            tail: Some(tail),
            offset: 0,
            file,
            moved: None,
        }
    }

    /// Reads the records of the earlier attempts.
    pub(crate) fn replay(&self) -> JournalReplay {
        let lines = std::io::Cursor::new([&self.records[..], &self.missing].concat());
        JournalReplay::new(self.name(), Box::new(lines))
    }

    /// Appends the first line of this attempt, the process of which is `process`, and the records
    /// that the resource manager lacks.
    ///
    /// # Errors
    /// A later attempt, or another process with this attempt, has appended.
    pub(crate) async fn begin(&mut self, process: String) -> Result<(), JournalError> {
        let first = FirstLine {
            attempt: self.attempt.attempt,
            process,
        };
        let mut line = first.line().map_err(|e| self.unwritten(e.into()))?;
        let missing = std::mem::take(&mut self.missing);
        // The encoder of JSON writes UTF-8.
        line.push_str(&String::from_utf8_lossy(&missing));
        match self.append_lines(&line).await? {
            Ok(()) => {
                self.records.extend(missing);
                self.tail
                    .iter_mut()
                    .for_each(|tail| tail.begin(line.as_bytes()));
                Ok(())
            }
            Err(JournalFull) => self.move_to_node(&missing).await,
        }
    }

    /// Appends records. Returns when they are durable, and no later attempt had appended before. While
    /// no resource manager answers, it waits.
    ///
    /// # Errors
    /// [`JournalError::Refused`]; errors of the file system after a move.
    pub(crate) async fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let group = encode(records).map_err(|e| self.unwritten(e.into()))?;
        // Starts wait for the answer here, so nothing depends on the copy.
        let _ = self.tail.as_mut().map(|tail| tail.write(&group));
        self.append_encoded(&group).await
    }

    /// Repeats one append until it is answered.
    async fn append_lines(&mut self, lines: &str) -> Result<Result<(), JournalFull>, JournalError> {
        let body = AppendToJournal {
            attempt: self.attempt.clone(),
            offset: self.offset,
            records: lines.to_owned(),
            moved: false,
        };
        match self.answered(&body).await {
            Ok(end) => {
                self.offset = end;
                Ok(Ok(()))
            }
            Err(error) if error.code() == Some(ErrorCode::HR0413) => Ok(Err(JournalFull)),
            Err(error) => Err(self.refused(error)),
        }
    }

    async fn answered(&self, body: &AppendToJournal) -> Result<u64, ClientError> {
        let mut backoff = ExponentialBackoff::usual();
        let mut is_silent = false;
        loop {
            let error = match self.client.append_to_journal(&self.attempt.app, body).await {
                Ok(appended) if is_silent => {
                    tracing::info!("the resource manager confirms records of the journal again");
                    return Ok(appended.end);
                }
                Ok(appended) => return Ok(appended.end),
                Err(error) if error.code().is_some_and(|code| !code.retryable()) => {
                    return Err(error);
                }
                Err(error) => error,
            };
            if !is_silent {
                tracing::warn!(%error, "the resource manager does not confirm records of the journal; decisions wait, and tasks continue");
                is_silent = true;
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Continues the journal in a file of this node, with `rest` after the present records.
    async fn move_to_node(&mut self, rest: &[u8]) -> Result<(), JournalError> {
        let (path, mut all) = (self.file.clone(), std::mem::take(&mut self.records));
        all.extend_from_slice(rest);
        let (app, size) = (&self.attempt.app, all.len());
        tracing::warn!(%app, size, file = %path.display(), "the journal has reached the limit of the resource manager and moves to this node: if the node is lost, the job begins from its start");
        let file = blocking(move || MasterJournal::replace(&path, &all)).await?;
        let mark = AppendToJournal {
            attempt: self.attempt.clone(),
            offset: self.offset,
            records: String::new(),
            moved: true,
        };
        self.answered(&mark).await.map_err(|e| self.refused(e))?;
        self.moved = Some(file);
        Ok(())
    }

    async fn append_to_file(&mut self, lines: &[u8]) -> Result<(), JournalError> {
        let Some(mut file) = self.moved.take() else {
            return Ok(());
        };
        let lines = lines.to_vec();
        let written = blocking(move || {
            file.write_lines(&lines)?;
            file.sync()?;
            Ok(file)
        });
        self.moved = Some(written.await?);
        Ok(())
    }

    fn refused(&self, source: ClientError) -> JournalError {
        JournalError::Refused {
            app: self.attempt.app.clone(),
            attempt: self.attempt.attempt,
            source: Box::new(source),
        }
    }

    fn unwritten(&self, source: std::io::Error) -> JournalError {
        io_at(&self.name(), "written")(source)
    }
}

impl RemoteJournal for ManagerJournal {
    const MAX_PAUSE: Duration = Duration::from_millis(8);

    fn name(&self) -> PathBuf {
        PathBuf::from(format!("resourcemanager:{}", self.attempt.app))
    }

    fn take_tail(&mut self) -> Option<JournalTail> {
        self.tail.take().filter(|_| self.moved.is_none())
    }

    async fn append_encoded(&mut self, group: &[u8]) -> Result<(), JournalError> {
        let mut rest = group;
        while !rest.is_empty() {
            if self.moved.is_some() {
                return self.append_to_file(rest).await;
            }
            let (lines, later) = rest.split_at(whole_lines(rest, MAX_APPEND));
            // The encoder of JSON writes UTF-8.
            let text = String::from_utf8_lossy(lines);
            match self.append_lines(&text).await? {
                Ok(()) => self.records.extend_from_slice(lines),
                Err(JournalFull) => return self.move_to_node(rest).await,
            }
            rest = later;
        }
        Ok(())
    }

    fn has_moved(&self) -> bool {
        self.moved.is_some()
    }
}

/// Runs a blocking operation of the file system.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Length of the whole lines at the beginning of `lines` that have at most `max` bytes together, but
/// at least one line.
fn whole_lines(lines: &[u8], max: usize) -> usize {
    let fitting = lines.get(..max.min(lines.len())).unwrap_or(lines);
    let after = |at: usize| at + 1;
    fitting
        .iter()
        .rposition(|byte| *byte == b'\n')
        .or_else(|| lines.iter().position(|byte| *byte == b'\n'))
        .map_or(lines.len(), after)
}

/// The text of the last attempt in that of a journal, from its first line on.
fn last_attempt(text: &[u8]) -> Option<&[u8]> {
    let (mut at, mut begin) = (0, None);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(FIRST_LINE) {
            begin = Some(at);
        }
        at += line.len();
    }
    text.get(begin?..)
}

/// The records in the text of a journal.
fn without_first_lines(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let records = lines.filter(|line| !line.starts_with(FIRST_LINE));
    records.flatten().copied().collect()
}

/// True for a file that this node has from an earlier attempt.
pub(crate) fn has_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{self, JournalHeader};

    fn stored(records: &str, moved: bool) -> StoredJournal {
        StoredJournal {
            records: records.to_owned(),
            moved,
            limit: Bytes::from_mib(1),
        }
    }

    #[test]
    fn a_small_job_begins_in_the_resource_manager_and_stays_where_it_began() {
        let (new, present) = (stored("", false), stored("{\"attempt\":1}\n", false));
        assert_eq!(choose_place(&new, 500, false), ChosenPlace::Manager);
        assert_eq!(choose_place(&present, 5000, true), ChosenPlace::Manager);
        let on_node = |place| matches!(place, ChosenPlace::Node(_));
        assert!(on_node(choose_place(&new, 5, true)), "it began here");
        assert!(on_node(choose_place(&stored("", true), 5, false)), "moved");
        let ChosenPlace::Node(reason) = choose_place(&new, 5000, false) else {
            panic!("5000 tasks are too many");
        };
        assert!(
            reason.contains("5000 tasks") && reason.contains("max_journal"),
            "{reason}"
        );
    }

    #[test]
    fn first_lines_are_no_records_and_no_record_looks_like_one() {
        let first = FirstLine {
            attempt: 2,
            process: "x".into(),
        };
        let line = first.line().expect("writes");
        assert!(line.as_bytes().starts_with(FIRST_LINE));
        let begin = JournalRecord::Begin(JournalHeader {
            version: record::VERSION,
            job: 7,
            app: "job.1".into(),
            token: "secret".into(),
            port: 4711,
            submission_token: None,
        });
        let record = encode(&[begin]).expect("writes");
        let text = [line.as_bytes(), &record, line.as_bytes(), &record].concat();
        let last = [line.as_bytes(), &record].concat();
        assert_eq!(last_attempt(&text), Some(&last[..]));
        assert_eq!(last_attempt(&record), None, "no attempt has begun");
        assert_eq!(FirstLine::split(&last), Some((first, &record[..])));
        assert_eq!(FirstLine::split(&record), None);
        assert_eq!(without_first_lines(&text), [&record[..], &record].concat());
    }

    #[test]
    fn a_group_is_split_between_records() {
        let split = |text: &str, max| whole_lines(text.as_bytes(), max);
        assert_eq!(split("one\ntwo\nthree\n", 9), 8);
        assert_eq!(split("one\ntwo\n", 100), 8);
        assert_eq!(split("a long line\nb\n", 4), 12, "one line at least");
    }
}

//! The journal of a job in an object store: the log of its objects, and the copy on this node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_objects::ObjectDirectory;

use crate::first_line::FirstLine;
use crate::journal::{JournalError, JournalReplay, encode, io_at};
use crate::journal_tail::JournalTail;
use crate::object_log::ObjectLog;
use crate::record::JournalRecord;
use crate::remote_journal::RemoteJournal;

/// Time since the last answer of the object store in which starts follow the copy. One request takes
/// some tens of milliseconds.
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// The journal of one attempt in an object store.
#[derive(Debug)]
pub(crate) struct ObjectJournal {
    log: ObjectLog,
    /// The copy of this attempt. `None` while [`RemoteJournal::take_tail`] has it.
    tail: Option<JournalTail>,
}

impl ObjectJournal {
    /// Takes over the journal in `directory`. `process` is a random word of this process, and `file` the
    /// path that a journal on this node would have.
    ///
    /// # Errors
    /// As [`ObjectLog::take_over`].
    pub(crate) async fn take_over(
        directory: ObjectDirectory,
        attempt: u32,
        process: String,
        file: &Path,
    ) -> Result<ObjectJournal, JournalError> {
        let mut tail = JournalTail::beside(file, MAX_SILENCE);
        let (first, records) = (FirstLine { attempt, process }, file.with_extension("read"));
        let log = ObjectLog::take_over(directory, &first, records, &mut tail).await?;
        tail.on_answer();
        Ok(ObjectJournal {
            log,
            tail: Some(tail),
        })
    }

    /// The directory of its objects.
    pub(crate) fn directory(&self) -> &ObjectDirectory {
        self.log.directory()
    }

    /// Reads the records of the earlier attempts.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn replay(&self) -> Result<JournalReplay, JournalError> {
        Ok(JournalReplay::new(self.name(), self.log.records()?))
    }

    /// Ends the replay, so that records can be appended.
    ///
    /// # Errors
    /// The journal is damaged before its end.
    pub(crate) fn finish_replay(&mut self, replay: JournalReplay) -> Result<(), JournalError> {
        replay.finish()?;
        self.log.forget_records();
        Ok(())
    }

    /// Appends records. Returns when they are durable.
    ///
    /// # Errors
    /// As [`RemoteJournal::append_encoded`].
    pub(crate) async fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let group = encode(records).map_err(|e| io_at(&self.name(), "written")(e.into()))?;
        // Nothing depends on the copy here.
        let _ = self.tail.as_mut().map(|tail| tail.write(&group));
        self.append_encoded(&group).await
    }
}

impl RemoteJournal for ObjectJournal {
    const MAX_PAUSE: Duration = Duration::from_millis(50);

    fn name(&self) -> PathBuf {
        PathBuf::from(self.directory().url())
    }

    fn take_tail(&mut self) -> Option<JournalTail> {
        self.tail.take()
    }

    async fn append_encoded(&mut self, group: &[u8]) -> Result<(), JournalError> {
        self.log.append(group).await
    }

    fn has_moved(&self) -> bool {
        false
    }
}

//! The journal of a job at its place: a file of the node, files in a shared directory, or the state
//! of the resource manager.

use std::path::PathBuf;

use crate::journal::{JournalError, JournalReplay, MasterJournal};
use crate::manager_journal::ManagerJournal;
use crate::record::JournalRecord;

/// The journal of a job.
#[derive(Debug)]
pub(crate) enum JobJournal {
    /// In a file.
    File(MasterJournal),
    /// In the resource manager.
    Manager(Box<ManagerJournal>),
}

impl JobJournal {
    /// Its path or name, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            JobJournal::File(journal) => journal.path().to_owned(),
            JobJournal::Manager(journal) => journal.name(),
        }
    }

    /// The directory that all nodes share, if the journal is in one.
    pub(crate) fn shared_dir(&self) -> Option<PathBuf> {
        match self {
            JobJournal::File(journal) => journal.fence().map(|_| journal.path().with_file_name("")),
            JobJournal::Manager(_) => None,
        }
    }

    /// Reads the records one by one.
    ///
    /// # Errors
    /// As [`MasterJournal::replay`].
    pub(crate) fn replay(&self) -> Result<JournalReplay, JournalError> {
        match self {
            JobJournal::File(journal) => journal.replay(),
            JobJournal::Manager(journal) => Ok(journal.replay()),
        }
    }

    /// Ends the replay, so that records can be appended. `process` is a random word of this process.
    ///
    /// # Errors
    /// As [`MasterJournal::finish_replay`] and [`ManagerJournal::begin`].
    pub(crate) async fn finish_replay(
        &mut self,
        replay: JournalReplay,
        process: String,
    ) -> Result<(), JournalError> {
        match self {
            JobJournal::File(journal) => journal.finish_replay(replay),
            JobJournal::Manager(journal) => {
                replay.finish()?;
                journal.begin(process).await
            }
        }
    }

    /// Appends records and returns when they are durable.
    ///
    /// # Errors
    /// As [`MasterJournal::append`] and [`ManagerJournal::append`].
    pub(crate) async fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        match self {
            JobJournal::File(journal) => journal.append(records),
            JobJournal::Manager(journal) => journal.append(records).await,
        }
    }
}

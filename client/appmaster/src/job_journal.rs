//! The journal of a job at its place: a file of the node, files in a shared directory, the state of the
//! resource manager, or an object store.

use std::path::PathBuf;
use std::time::Duration;

use headroom_objects::ObjectDirectory;

use crate::journal::{JournalError, JournalReplay, MasterJournal};
use crate::manager_journal::ManagerJournal;
use crate::object_journal::ObjectJournal;
use crate::record::JournalRecord;
use crate::remote_journal::RemoteJournal as _;

/// Timeout for the removal of the objects of a journal.
const REMOVAL: Duration = Duration::from_secs(30);

/// The journal of a job.
#[derive(Debug)]
pub(crate) enum JobJournal {
    /// In a file.
    File(MasterJournal),
    /// In the resource manager.
    Manager(Box<ManagerJournal>),
    /// In an object store.
    Objects(Box<ObjectJournal>),
}

/// What a journal leaves where other nodes read it.
#[derive(Clone, Debug)]
pub(crate) enum SharedPlace {
    /// A directory.
    Directory(PathBuf),
    /// A directory of an object store.
    Objects(ObjectDirectory),
}

impl JobJournal {
    /// Its path or name, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            JobJournal::File(journal) => journal.path().to_owned(),
            JobJournal::Manager(journal) => journal.name(),
            JobJournal::Objects(journal) => journal.name(),
        }
    }

    /// The place that this master removes at the end of its job. `None` for a file of this node, and for
    /// the resource manager, which removes the journal itself.
    pub(crate) fn shared_place(&self) -> Option<SharedPlace> {
        match self {
            JobJournal::File(journal) => {
                let dir = journal.fence().map(|_| journal.path().with_file_name(""));
                dir.map(SharedPlace::Directory)
            }
            JobJournal::Manager(_) => None,
            JobJournal::Objects(journal) => Some(SharedPlace::Objects(journal.directory().clone())),
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
            JobJournal::Objects(journal) => journal.replay(),
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
            JobJournal::Objects(journal) => journal.finish_replay(replay),
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
            JobJournal::Objects(journal) => journal.append(records).await,
        }
    }
}

impl SharedPlace {
    /// The directory, if it is one of a file system.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match self {
            SharedPlace::Directory(dir) => Some(dir.clone()),
            SharedPlace::Objects(_) => None,
        }
    }

    /// Removes the journal of a job whose end is accepted. No attempt follows.
    pub(crate) async fn remove(self) {
        let (name, error) = match self {
            SharedPlace::Directory(dir) => {
                let path = dir.clone();
                let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path));
                let Ok(Err(error)) = removed.await else {
                    return;
                };
                (dir.display().to_string(), error.to_string())
            }
            SharedPlace::Objects(directory) => {
                let error = match tokio::time::timeout(REMOVAL, directory.remove_all()).await {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "the object store does not answer".to_owned(),
                };
                (directory.url().to_owned(), error)
            }
        };
        tracing::warn!(
            journal = name,
            error,
            "the journal of this ended job cannot be removed; remove it"
        );
    }
}

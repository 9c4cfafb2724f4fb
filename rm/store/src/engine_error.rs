//! Error of reading or writing a database, of either backend.
//!
//! Plain data. [`crate::StoreError`] adds the file and the next step.

use std::io;

/// An error of reading or writing a database.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An error of sled.
    #[error("{}", .0.to_string().trim_end_matches(" backtrace ()"))]
    Sled(#[from] ::sled::Error),
    /// An error of redb.
    #[error("{0}")]
    Redb(Box<::redb::Error>),
    /// An error of etcd.
    #[error(transparent)]
    Etcd(#[from] headroom_rm_etcd::EtcdError),
    /// The file could not be synced.
    #[error("{0}")]
    Sync(io::Error),
    /// The log could not be read or written.
    #[error("the write-ahead log: {0}")]
    Log(io::Error),
    /// Commits between the database and its log are missing.
    #[error("it ends at commit {database}, and its write-ahead log continues from commit {log}")]
    LogGap {
        /// The first commit of the log that follows those of the database.
        log: u64,
        /// The last commit of the database.
        database: u64,
    },
    /// It was opened for reading.
    #[error("it was opened for reading")]
    ReadOnly,
    /// The database panicked while a checkpoint wrote to it.
    #[error("the database panicked")]
    Checkpoint,
}

impl EngineError {
    /// The system's error; `None` for other errors.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            EngineError::Sled(::sled::Error::Io(error))
            | EngineError::Sync(error)
            | EngineError::Log(error) => Some(error),
            EngineError::Redb(error) => {
                if let ::redb::Error::Io(error) = &**error {
                    Some(error)
                } else {
                    None
                }
            }
            EngineError::Sled(_)
            | EngineError::Etcd(_)
            | EngineError::LogGap { .. }
            | EngineError::ReadOnly
            | EngineError::Checkpoint => None,
        }
    }

    /// True when the disk is full.
    pub fn is_full(&self) -> bool {
        self.io().is_some_and(is_full)
    }
}

/// True for a full disk or an exceeded quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

//! The supported databases: ordered entries, written in atomic and durable batches.
//!
//! [`crate::disk::DiskStore`] owns it. It handles bytes only; [`crate::scan`] interprets the
//! entries.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::StoreError;
use crate::redb::RedbEngine;
use crate::sled::SledEngine;

/// One entry to write; `None` removes it.
pub type Entry = (String, Option<Vec<u8>>);
/// A range of keys.
pub type Keys<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);
/// All keys.
pub const ALL_KEYS: Keys<'static> = (Bound::Unbounded, Bound::Unbounded);

/// An open database. Clones share it.
#[derive(Clone, Debug)]
pub enum Engine {
    /// sled 0.34.
    Sled(SledEngine),
    /// redb 4.
    Redb(RedbEngine),
}

/// An error of reading or writing a database.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An error of sled.
    #[error("{}", .0.to_string().trim_end_matches(" backtrace ()"))]
    Sled(#[from] ::sled::Error),
    /// An error of redb.
    #[error("{0}")]
    Redb(Box<::redb::Error>),
    /// The file could not be synced.
    #[error("{0}")]
    Sync(io::Error),
}

impl EngineError {
    /// The system's error; `None` for other errors.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            EngineError::Sled(::sled::Error::Io(error)) | EngineError::Sync(error) => Some(error),
            EngineError::Redb(error) => {
                if let ::redb::Error::Io(error) = &**error {
                    Some(error)
                } else {
                    None
                }
            }
            EngineError::Sled(_) => None,
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

/// The path of a backend's database in a state directory: a directory for sled, a file for redb.
pub fn database_path(dir: &Path, backend: StoreBackend) -> PathBuf {
    match backend {
        StoreBackend::Sled => dir.join("store"),
        StoreBackend::Redb => dir.join("store.redb"),
    }
}

/// The backend of the database in a state directory; two databases are an error.
pub fn present_backend(dir: &Path) -> Result<Option<StoreBackend>, StoreError> {
    let found: Vec<StoreBackend> = StoreBackend::ALL
        .into_iter()
        .filter(|b| database_path(dir, *b).exists())
        .collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [..] => Err(StoreError::Corrupt {
            file: dir.to_owned(),
            what: "it contains databases of two kinds, store and store.redb".into(),
            advice: "Move the unused one away".into(),
        }),
    }
}

impl Engine {
    /// Opens a database, or creates an empty one.
    pub fn open(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(Engine::Sled),
            StoreBackend::Redb => RedbEngine::open(path).map(Engine::Redb),
        }
    }

    /// Opens a database that may be damaged, and checks every page where the database supports
    /// that.
    pub fn open_suspect(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(Engine::Sled),
            StoreBackend::Redb => RedbEngine::open_suspect(path).map(Engine::Redb),
        }
    }

    /// Writes all entries or none; durable when this returns.
    pub fn write(&self, entries: Vec<Entry>) -> Result<(), EngineError> {
        match self {
            Engine::Sled(engine) => engine.write(entries),
            Engine::Redb(engine) => engine.write(&entries),
        }
    }

    /// The value of one entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Sled(engine) => engine.get(key),
            Engine::Redb(engine) => engine.get(key),
        }
    }

    /// Passes entries to `see` in key order, until `see` returns an error.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: Keys<'_>,
        see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Engine::Sled(engine) => engine.walk(keys, see),
            Engine::Redb(engine) => engine.walk(keys, see),
        }
    }
}

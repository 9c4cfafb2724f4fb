//! The databases under one roof: ordered entries, written in batches that are whole and durable.
//!
//! Owned by [`crate::disk::DiskStore`]. Knows bytes only; what an entry means is the affair of [`crate::scan`].

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::StoreError;
use crate::redb::RedbEngine;
use crate::sled::SledEngine;

/// One entry to write, or to remove when there are no bytes.
pub type Entry = (String, Option<Vec<u8>>);
/// Keys from and up to.
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

/// A database could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// sled's word for it.
    #[error("{}", .0.to_string().trim_end_matches(" backtrace ()"))]
    Sled(#[from] ::sled::Error),
    /// redb's word for it.
    #[error("{0}")]
    Redb(Box<::redb::Error>),
    /// Its file could not be synced.
    #[error("{0}")]
    Sync(io::Error),
}

impl EngineError {
    /// What the system said, when it was the system.
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

    /// True when there was no room on the disk.
    pub fn is_full(&self) -> bool {
        self.io().is_some_and(is_full)
    }
}

/// No space, or no more of it for this user.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Where a backend keeps its database in a state directory: a directory for sled, a file for redb.
pub fn place(dir: &Path, backend: StoreBackend) -> PathBuf {
    match backend {
        StoreBackend::Sled => dir.join("store"),
        StoreBackend::Redb => dir.join("store.redb"),
    }
}

/// What is in a state directory: at most one database.
pub fn present(dir: &Path) -> Result<Option<StoreBackend>, StoreError> {
    let found: Vec<StoreBackend> = StoreBackend::ALL.into_iter().filter(|b| place(dir, *b).exists()).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [..] => Err(StoreError::Corrupt {
            file: dir.to_owned(),
            what: "it holds databases of two kinds, store and store.redb".into(),
            advice: "Move the one away that is not in use".into(),
        }),
    }
}

impl Engine {
    /// Opens a database, or makes an empty one where there is none.
    pub fn open(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(Engine::Sled),
            StoreBackend::Redb => RedbEngine::open(path).map(Engine::Redb),
        }
    }

    /// Opens one that may be damaged, and has every page of it checked where the database can do that.
    pub fn open_suspect(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(Engine::Sled),
            StoreBackend::Redb => RedbEngine::open_suspect(path).map(Engine::Redb),
        }
    }

    /// Writes all or nothing; durable when this returns.
    pub fn write(&self, entries: Vec<Entry>) -> Result<(), EngineError> {
        match self {
            Engine::Sled(engine) => engine.write(entries),
            Engine::Redb(engine) => engine.write(&entries),
        }
    }

    /// One entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Sled(engine) => engine.get(key),
            Engine::Redb(engine) => engine.get(key),
        }
    }

    /// Shows entries in the order of their keys, until `see` has enough of it.
    pub fn walk<E: From<EngineError>>(&self, keys: Keys<'_>, see: impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Engine::Sled(engine) => engine.walk(keys, see),
            Engine::Redb(engine) => engine.walk(keys, see),
        }
    }
}

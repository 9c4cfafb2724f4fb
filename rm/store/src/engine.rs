//! The supported databases: ordered entries, written in atomic and durable batches.
//!
//! [`crate::database::DatabaseStore`] owns it. It handles bytes only; [`crate::scan`] interprets the
//! entries.

use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::StoreError;
use crate::damage::{corrupt, corrupt_in_etcd};
use crate::engine_error::EngineError;
use crate::entry::{KeyRange, RecordEntry};
use crate::etcd::EtcdEngine;
use crate::redb::RedbEngine;
use crate::sled::SledEngine;

/// An open database. Clones share it.
#[derive(Clone, Debug)]
pub enum StorageEngine {
    /// sled 0.34.
    Sled(SledEngine),
    /// redb 4.
    Redb(RedbEngine),
    /// etcd 3.4 or later.
    Etcd(EtcdEngine),
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

impl StorageEngine {
    /// Opens a database, or creates an empty one.
    pub fn open(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(StorageEngine::Sled),
            StoreBackend::Redb => RedbEngine::open(path).map(StorageEngine::Redb),
        }
    }

    /// Opens a database that may be damaged, and checks every page where the database supports
    /// that.
    pub fn open_suspect(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(StorageEngine::Sled),
            StoreBackend::Redb => RedbEngine::open_suspect(path).map(StorageEngine::Redb),
        }
    }

    /// Writes all entries or none; durable when this returns.
    pub fn write(&self, entries: Vec<RecordEntry>) -> Result<(), EngineError> {
        match self {
            StorageEngine::Sled(engine) => engine.write(entries),
            StorageEngine::Redb(engine) => engine.write(&entries),
            StorageEngine::Etcd(engine) => engine.write(entries),
        }
    }

    /// The value of one entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            StorageEngine::Sled(engine) => engine.get(key),
            StorageEngine::Redb(engine) => engine.get(key),
            StorageEngine::Etcd(engine) => engine.get(key),
        }
    }

    /// Passes entries to `see` in key order, until `see` returns an error.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            StorageEngine::Sled(engine) => engine.walk(keys, see),
            StorageEngine::Redb(engine) => engine.walk(keys, see),
            StorageEngine::Etcd(engine) => engine.walk(keys, see),
        }
    }

    /// The error for damaged content, with the next step of the operator.
    pub(crate) fn damaged(
        &self,
        dir: &Path,
        database: &Path,
        what: &dyn std::fmt::Display,
    ) -> StoreError {
        match self {
            StorageEngine::Sled(_) | StorageEngine::Redb(_) => corrupt(dir, database, what),
            StorageEngine::Etcd(_) => corrupt_in_etcd(database, what),
        }
    }
}

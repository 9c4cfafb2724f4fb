//! Where entries are kept: a local database, alone or behind a log, or etcd.
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
use crate::local_database::LocalDatabase;
use crate::logged_database::LoggedDatabase;

/// An open database. Clones share it.
#[derive(Clone, Debug)]
pub enum StorageEngine {
    /// A local database.
    Local(LocalDatabase),
    /// A local database behind a log.
    Logged(LoggedDatabase),
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
    /// Writes all entries or none; durable when this returns. Commits have consecutive numbers.
    pub fn write(&self, commit: u64, entries: Vec<RecordEntry>) -> Result<(), EngineError> {
        match self {
            StorageEngine::Local(engine) => engine.write_batch(&entries),
            StorageEngine::Logged(engine) => engine.write(commit, entries),
            StorageEngine::Etcd(engine) => engine.write(entries),
        }
    }

    /// The value of one entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            StorageEngine::Local(engine) => engine.get(key.as_bytes()),
            StorageEngine::Logged(engine) => engine.get(key.as_bytes()),
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
            StorageEngine::Local(engine) => engine.walk(keys, see),
            StorageEngine::Logged(engine) => engine.walk(keys, see),
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
            StorageEngine::Local(_) | StorageEngine::Logged(_) => corrupt(dir, database, what),
            StorageEngine::Etcd(_) => corrupt_in_etcd(database, what),
        }
    }
}

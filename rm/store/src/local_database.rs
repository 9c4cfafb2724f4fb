//! The databases on a local disk: ordered entries, written in atomic and durable batches.

use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::engine_error::EngineError;
use crate::entry::{Durability, KeyRange, RecordEntry};
use crate::redb::RedbEngine;
use crate::sled::SledEngine;

/// The path of a file or directory beside a database, such as `store.redb.check` or `store.wal-0`.
pub(crate) fn with_suffix(database: &Path, what: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

/// An open database. Clones share it.
#[derive(Clone, Debug)]
pub enum LocalDatabase {
    /// sled 0.34.
    Sled(SledEngine),
    /// redb 4.
    Redb(RedbEngine),
}

impl LocalDatabase {
    /// Opens a database, or creates an empty one.
    pub fn open(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(LocalDatabase::Sled),
            StoreBackend::Redb => RedbEngine::open(path).map(LocalDatabase::Redb),
        }
    }

    /// Opens a database that may be damaged, and checks every page where the database supports
    /// that.
    pub fn open_suspect(backend: StoreBackend, path: &Path) -> Result<Self, EngineError> {
        match backend {
            StoreBackend::Sled => SledEngine::open(path).map(LocalDatabase::Sled),
            StoreBackend::Redb => RedbEngine::open_suspect(path).map(LocalDatabase::Redb),
        }
    }

    /// Writes all entries or none.
    pub fn write<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        match self {
            LocalDatabase::Sled(engine) => engine.write(entries, durability),
            LocalDatabase::Redb(engine) => engine.write(entries, durability),
        }
    }

    /// Writes all entries or none; durable when this returns.
    pub fn write_batch(&self, entries: &[RecordEntry]) -> Result<(), EngineError> {
        let entries = entries
            .iter()
            .map(|(key, bytes)| (key.as_bytes(), bytes.as_deref()));
        self.write(entries, Durability::Immediate)
    }

    /// The value of one entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            LocalDatabase::Sled(engine) => engine.get(key),
            LocalDatabase::Redb(engine) => engine.get(key),
        }
    }

    /// Passes entries to `see` in key order, until `see` returns an error.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            LocalDatabase::Sled(engine) => engine.walk(keys, see),
            LocalDatabase::Redb(engine) => engine.walk(keys, see),
        }
    }
}

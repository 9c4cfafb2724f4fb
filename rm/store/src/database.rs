//! Records in a database: on the local disk, or in etcd.
//!
//! The journal owns it; other threads read documents concurrently. After a failed write it accepts
//! no more writes, and the next start checks the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_types::AppId;

use crate::anchor::AnchorFile;
use crate::engine::StorageEngine;
use crate::entry::RecordEntry;
use crate::scan::{self, ScanError, ScanResult};
use crate::seal::{BatchSeal, FORMAT, SEAL};
use crate::snapshot::{self, StateSnapshot};
use crate::{RecordChange, RecordStore, StoreError, frame};

/// The store in use.
#[derive(Debug)]
pub struct DatabaseStore {
    dir: PathBuf,
    database: PathBuf,
    engine: StorageEngine,
    pieces: BTreeMap<String, usize>,
    commit: u64,
    /// None for a database that has no final name yet.
    anchor: Option<AnchorFile>,
    state: WriteHealth,
    /// Held for the lifetime of the store: one process per directory.
    _lock: Option<Arc<File>>,
}

/// Whether all writes have succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteHealth {
    Good,
    /// A write failed.
    Failed,
}

impl DatabaseStore {
    /// Wraps an open and scanned database. Its commits continue from `commit`.
    pub(crate) fn new(
        dir: &Path,
        database: &Path,
        engine: StorageEngine,
        scan: ScanResult,
        commit: u64,
    ) -> Self {
        let (dir, database) = (dir.to_owned(), database.to_owned());
        DatabaseStore {
            dir,
            database,
            engine,
            pieces: scan.pieces,
            commit,
            anchor: None,
            state: WriteHealth::Good,
            _lock: None,
        }
    }

    /// From now on the directory records every commit and belongs to this process.
    pub(crate) fn in_use(self, lock: File) -> Result<Self, StoreError> {
        let anchor = AnchorFile::open(&self.dir)?;
        Ok(DatabaseStore {
            anchor: Some(anchor),
            _lock: Some(Arc::new(lock)),
            ..self
        })
    }

    /// A reader of documents, for any thread.
    pub fn documents(&self) -> Documents {
        Documents {
            dir: self.database.clone(),
            engine: self.engine.clone(),
            _lock: self._lock.clone(),
        }
    }

    /// The entries to write and remove. It updates the piece counts, so a planned batch must be
    /// written.
    fn plan(&mut self, changes: &[RecordChange]) -> Vec<RecordEntry> {
        let mut batch = Vec::new();
        for change in changes {
            let (key, before, now) = match change {
                RecordChange::Put { key, value } => {
                    batch.extend(
                        frame::entries(key, value)
                            .into_iter()
                            .map(|(entry, bytes)| (entry, Some(bytes))),
                    );
                    let now = frame::pieces(value.len());
                    (key, self.pieces.insert(key.clone(), now), now)
                }
                RecordChange::Remove { key } => {
                    batch.push((key.clone(), None));
                    (key, self.pieces.remove(key), 0)
                }
            };
            batch.extend((now..before.unwrap_or(0)).map(|n| (frame::piece_key(key, n), None)));
        }
        batch
    }

    fn write(&mut self, changes: &[RecordChange]) -> Result<(), StoreError> {
        let mut batch = self.plan(changes);
        let records = u64::try_from(self.pieces.len()).unwrap_or(u64::MAX);
        let seal = BatchSeal {
            format: FORMAT,
            commit: self.commit + 1,
            records,
        };
        let encoded = serde_json::to_vec(&seal).map_err(|source| StoreError::Encode {
            key: SEAL.into(),
            source,
        })?;
        batch.extend(
            frame::entries(SEAL, &encoded)
                .into_iter()
                .map(|(entry, bytes)| (entry, Some(bytes))),
        );
        self.engine
            .write(seal.commit, batch)
            .map_err(|source| StoreError::database(&self.dir, &self.database, source))?;
        self.commit = seal.commit;
        self.anchor
            .as_ref()
            .map_or(Ok(()), |anchor| anchor.write(self.commit))
    }
}

impl RecordStore for DatabaseStore {
    fn commit(&mut self, changes: &[RecordChange]) -> Result<(), StoreError> {
        if self.state == WriteHealth::Failed {
            return Err(StoreError::Failed {
                dir: self.dir.clone(),
            });
        }
        let written = self.write(changes);
        if written.is_err() {
            self.state = WriteHealth::Failed;
        }
        written
    }

    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        scan::without_documents(&self.engine)
            .map_err(|e| self.engine.damaged(&self.dir, &self.database, &e))
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        let from_prefix = self.pieces.range(prefix.to_owned()..);
        from_prefix
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect()
    }

    fn snapshot(&mut self) -> Result<PathBuf, StoreError> {
        let records = self.load()?;
        self.anchor.as_ref().map_or(Ok(()), AnchorFile::sync)?;
        snapshot::write(
            &self.dir,
            &StateSnapshot {
                commit: self.commit,
                records,
            },
        )
    }
}

/// A reader of documents, concurrent to the journal's writes.
#[derive(Clone, Debug)]
pub struct Documents {
    dir: PathBuf,
    engine: StorageEngine,
    /// Held until the engine is closed, which writes to the database.
    _lock: Option<Arc<File>>,
}

impl Documents {
    /// The document of an application. Blocks on disk reads.
    pub fn get(&self, app: &AppId) -> Result<Option<Vec<u8>>, StoreError> {
        let key = crate::record::document_key(app);
        // Retried, because a commit may occur between two of its pieces.
        let mut answer = self.read(&key);
        for _ in 0..3 {
            match answer {
                Err(ScanError::Frame(_)) => answer = self.read(&key),
                Ok(_) | Err(_) => break,
            }
        }
        let advice =
            || "The document is only displayed, and no other state depends on it".to_owned();
        answer.map_err(|e| StoreError::Corrupt {
            file: self.dir.clone(),
            what: e.to_string(),
            advice: advice(),
        })
    }

    /// The records in the journal of an application's master, in order. Blocks on disk reads. No
    /// attempt may append meanwhile.
    pub fn master_journal(&self, app: &AppId) -> Result<Vec<u8>, StoreError> {
        let mut records = Vec::new();
        scan::journal_groups(&self.engine, app, |value| records.extend_from_slice(value)).map_err(
            |e| StoreError::Corrupt {
                file: self.dir.clone(),
                what: format!("the journal of the master of {app}: {e}"),
                advice: "Restore a backup; or kill the application, and submit it again".into(),
            },
        )?;
        Ok(records)
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, ScanError> {
        let Some(head) = self.engine.get(key)? else {
            return Ok(None);
        };
        let mut rest = Vec::new();
        for n in 0..frame::pieces(frame::length(key, &head)?) {
            rest.extend(self.engine.get(&frame::piece_key(key, n))?);
        }
        Ok(Some(frame::value(
            key,
            &head,
            rest.iter().map(Vec::as_slice),
        )?))
    }
}

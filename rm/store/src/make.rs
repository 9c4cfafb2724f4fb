//! Creates a database, empty or from the newest snapshot. It gets its final name only when it is
//! complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use headroom_types::{Epoch, StoreBackend};

use crate::anchor::AnchorFile;
use crate::database::DatabaseStore;
use crate::engine::{StorageEngine, database_path};
use crate::integrity::remove;
use crate::local_database::{LocalDatabase, with_suffix};
use crate::record::{META, MetaRecord};
use crate::scan::ScanResult;
use crate::snapshot::{self, StateSnapshot};
use crate::write_ahead_log::log_paths;
use crate::{RecordChange, RecordStore, StoreError, anchor};

/// Suffix of the name of an incomplete database.
const MAKING: &str = "new";
/// Epochs that are skipped after a start from a copy, because the copy lacks the later ones.
pub const EPOCH_GAP: u32 = 1_000;
/// Application numbers that are skipped for the same reason.
pub const APP_GAP: u32 = 1_000_000;

/// The numbers after a start from a copy that may be old, so that no later number is used twice.
pub fn ahead(meta: MetaRecord) -> MetaRecord {
    let epoch = Epoch(meta.epoch.0.saturating_add(EPOCH_GAP));
    MetaRecord {
        epoch,
        last_app: meta.last_app.saturating_add(APP_GAP),
    }
}

/// Creates the database of a directory that has none, and adds its source to `notes`.
pub(crate) fn make(
    dir: &Path,
    backend: StoreBackend,
    notes: &mut Vec<String>,
) -> Result<(), StoreError> {
    let acknowledged = AnchorFile::read(dir)?;
    let found = newest(dir, notes)?;
    if let (None, Some(commit)) = (&found, acknowledged) {
        return Err(lost(dir, commit));
    }
    let (records, commit) = match found {
        Some((path, snapshot)) => {
            let missing = acknowledged.unwrap_or(0).saturating_sub(snapshot.commit);
            notes.push(format!(
                "there was no database; started from {}, which lacks the last {missing} commits",
                path.display()
            ));
            let records = raised(snapshot.records).map_err(|what| unusable(&path, what))?;
            (records, snapshot.commit)
        }
        None => (vec![(META.to_owned(), encode(&MetaRecord::default())?)], 0),
    };
    // Commit numbers continue, so that the last number never decreases.
    let mut making = NewDatabase::begin(dir, backend, commit.max(acknowledged.unwrap_or(0)))?;
    making.put(
        records
            .into_iter()
            .map(|(key, value)| RecordChange::Put { key, value })
            .collect(),
    )?;
    making.finish()
}

/// The records with the numbers of `meta` advanced by [`ahead`].
fn raised(mut records: Vec<(String, Vec<u8>)>) -> Result<Vec<(String, Vec<u8>)>, String> {
    for (_, value) in records.iter_mut().filter(|(key, _)| key == META) {
        let meta = serde_json::from_slice(value)
            .map_err(|e| format!("record {META} cannot be read: {e}"))?;
        *value = encode(&ahead(meta)).map_err(|e| e.to_string())?;
    }
    Ok(records)
}

fn unusable(file: &Path, what: String) -> StoreError {
    let advice = "Restore a backup with rmctl operator state restore, or move the snapshots away to start with an empty state";
    StoreError::Corrupt {
        file: file.to_owned(),
        what,
        advice: advice.into(),
    }
}

/// The encoded `meta` record.
pub(crate) fn encode(meta: &MetaRecord) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(meta).map_err(|source| StoreError::Encode {
        key: META.to_owned(),
        source,
    })
}

/// A database without its final name.
#[derive(Debug)]
pub(crate) struct NewDatabase {
    dir: PathBuf,
    path: PathBuf,
    database: PathBuf,
    store: DatabaseStore,
}

impl NewDatabase {
    /// Begins an empty database and removes an earlier incomplete one. Its commits continue from
    /// `commit`.
    pub(crate) fn begin(
        dir: &Path,
        backend: StoreBackend,
        commit: u64,
    ) -> Result<Self, StoreError> {
        let database = database_path(dir, backend);
        let path = with_suffix(&database, MAKING);
        remove(&path)?;
        let engine = LocalDatabase::open(backend, &path)
            .map(StorageEngine::Local)
            .map_err(|source| StoreError::database(dir, &path, source))?;
        let store = DatabaseStore::new(dir, &path, engine, ScanResult::default(), commit);
        Ok(NewDatabase {
            dir: dir.to_owned(),
            path,
            database,
            store,
        })
    }
    /// The store, to write its records.
    pub(crate) fn store(&mut self) -> &mut DatabaseStore {
        &mut self.store
    }
    /// Writes some of its records.
    pub(crate) fn put(&mut self, changes: Vec<RecordChange>) -> Result<(), StoreError> {
        self.store.commit(&changes)
    }
    /// Closes it and gives it its final name.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        let NewDatabase {
            dir,
            path,
            database,
            store,
        } = self;
        drop(store);
        // A log of an earlier database of this name does not belong to this one.
        for log in log_paths(&database) {
            remove(&log)?;
        }
        let renamed = fs::rename(&path, database).and_then(|()| File::open(dir)?.sync_all());
        renamed.map_err(|source| StoreError::file(&path, source))
    }
}

/// The newest readable snapshot. Skipped ones are added to `notes`.
fn newest(
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<(PathBuf, StateSnapshot)>, StoreError> {
    let mut wrong = None;
    for path in snapshot::list(dir)?.into_iter().rev() {
        match snapshot::read(&path) {
            Ok(snapshot) => return Ok(Some((path, snapshot))),
            Err(fault) => {
                notes.push(format!("{} was skipped: {fault}", path.display()));
                wrong = Some((path, fault));
            }
        }
    }
    match wrong {
        None => Ok(None),
        Some((file, fault)) => Err(unusable(
            &file,
            format!("{fault}, and there is no database and no other snapshot"),
        )),
    }
}

/// An error: commits were acknowledged, but there is no database.
fn lost(dir: &Path, commit: u64) -> StoreError {
    let advice = format!(
        "Put the database back, or restore a backup: rmctl operator state restore --state {} --from FILE --replace; \
         to start with an empty state, remove {}",
        dir.display(),
        dir.join(anchor::NAME).display()
    );
    let what =
        format!("the database and all snapshots are missing, and commit {commit} was acknowledged");
    StoreError::Corrupt {
        file: dir.to_owned(),
        what,
        advice,
    }
}

//! Opens a state directory for a running resource manager, or explains why it cannot.

use std::fs;
use std::path::Path;

use headroom_rm_core::RestoredCluster;
use headroom_types::StoreBackend;

use crate::StoreError;
use crate::access::{SavedAccess, access};
use crate::backup::refuse_unfinished;
use crate::damage::corrupt;
use crate::disk::{DiskStore, Documents};
use crate::engine::{StorageEngine, database_path, present_backend};
use crate::history::{SavedJobHistory, families};
use crate::idempotency::{SavedResponse, answers};
use crate::integrity::check_copy;
use crate::journal::RecordJournal;
use crate::lock;
use crate::make::make;
use crate::profiles::{SavedProfiles, profiles};
use crate::record::MetaRecord;
use crate::replay::replay;
use crate::scan::scan;

/// A store ready for use.
#[derive(Debug)]
pub struct OpenedStore {
    /// The journal; the new epoch is durable.
    pub journal: RecordJournal<DiskStore>,
    /// The state that an earlier epoch saved.
    pub restored: RestoredCluster,
    /// Responses to idempotent calls, oldest first.
    pub answers: Vec<SavedResponse>,
    /// The usage history of earlier jobs.
    pub families: Vec<SavedJobHistory>,
    /// The named sizes for job files.
    pub profiles: SavedProfiles,
    /// Tokens, policies and shares.
    pub access: SavedAccess,
    /// The reader of documents.
    pub documents: Documents,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// Opens the state directory `dir`, and begins a new epoch in it.
pub fn open(dir: &Path, backend: StoreBackend) -> Result<OpenedStore, StoreError> {
    fs::create_dir_all(dir).map_err(|source| StoreError::directory(dir, source))?;
    let lock = lock::lock_directory(dir, lock::LOCK_TIMEOUT)?;
    refuse_unfinished(dir)?;
    let database = database_path(dir, backend);
    let mut notes = Vec::new();
    match present_backend(dir)? {
        Some(found) if found != backend => {
            return Err(StoreError::OtherBackend {
                dir: dir.to_owned(),
                found,
                asked: backend,
            });
        }
        Some(_) => drop(check_copy(dir, backend)?),
        None => make(dir, backend, &mut notes)?,
    }
    let engine = StorageEngine::open(backend, &database)
        .map_err(|source| StoreError::database(dir, &database, source))?;
    let found = scan(&engine).map_err(|e| corrupt(dir, &database, &e))?;
    let commit = found.seal.map_or(0, |s| s.commit);
    let (_, restored) = replay(&found.records).map_err(|e| corrupt(dir, &database, &e))?;
    let answers = answers(&found.records).map_err(|e| corrupt(dir, &database, &e))?;
    let families = families(&found.records).map_err(|e| corrupt(dir, &database, &e))?;
    let profiles = profiles(&found.records).map_err(|e| corrupt(dir, &database, &e))?;
    let access = access(&found.records).map_err(|e| corrupt(dir, &database, &e))?;
    let meta = MetaRecord {
        epoch: restored.epoch,
        last_app: restored.last_app,
    };
    let store = DiskStore::new(dir, &database, engine, found, commit).in_use(lock)?;
    let documents = store.documents();
    let mut journal = RecordJournal::new(store, meta);
    journal.begin(meta)?;
    journal.commit()?;
    journal.snapshot()?;
    Ok(OpenedStore {
        journal,
        restored,
        answers,
        families,
        profiles,
        access,
        documents,
        notes,
    })
}

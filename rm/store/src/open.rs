//! Opens a state directory for a running resource manager, or explains why it cannot.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use headroom_rm_core::RestoredCluster;
use headroom_types::{Bytes, StoreBackend};

use crate::access::{SavedAccess, access};
use crate::anchor::{self, AnchorFile};
use crate::backup::refuse_unfinished;
use crate::cluster_identity;
use crate::database::{DatabaseStore, Documents};
use crate::engine::{StorageEngine, database_path, present_backend};
use crate::etcd::EtcdEngine;
use crate::history::{SavedJobHistory, families};
use crate::idempotency::{SavedResponse, answers};
use crate::integrity::check_copy;
use crate::journal::RecordJournal;
use crate::lock;
use crate::logged_database::{LOG_SIZE, LoggedDatabase, NewerBatches};
use crate::make::{encode, make};
use crate::master_journal::{self, JournalGroup};
use crate::profiles::{SavedProfiles, profiles};
use crate::record::{META, MetaRecord};
use crate::replay::replay;
use crate::scan::{ScanResult, scan};
use crate::{RecordStore as _, StoreError};

/// A store ready for use.
#[derive(Debug)]
pub struct OpenedStore {
    /// The journal; the new epoch is durable.
    pub journal: RecordJournal,
    /// The store that batches of the journal are committed to.
    pub store: DatabaseStore,
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
    /// The groups in journals of masters, with the numbers of their applications, in order.
    pub journals: Vec<(u32, JournalGroup)>,
    /// The reader of documents.
    pub documents: Documents,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

impl OpenedStore {
    /// Makes the records that were appended to the journal durable.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.journal.commit(&mut self.store)
    }
}

/// Opens the state directory `dir`, and begins a new epoch in it.
pub fn open(dir: &Path, backend: StoreBackend) -> Result<OpenedStore, StoreError> {
    open_with_log(dir, backend, LOG_SIZE)
}

/// Like [`open`], with another size of the files of the log.
pub fn open_with_log(
    dir: &Path,
    backend: StoreBackend,
    log_size: Bytes,
) -> Result<OpenedStore, StoreError> {
    let lock = lock_state(dir)?;
    let database = database_path(dir, backend);
    let mut notes = Vec::new();
    let newer = match present_backend(dir)? {
        Some(found) if found != backend => {
            return Err(StoreError::OtherBackend {
                dir: dir.to_owned(),
                found,
                asked: backend,
            });
        }
        Some(_) => check_copy(dir, backend)?.into_newer(),
        None => {
            make(dir, backend, &mut notes)?;
            NewerBatches::default()
        }
    };
    let engine = LoggedDatabase::open(backend, &database, newer, log_size)
        .map(StorageEngine::Logged)
        .map_err(|source| StoreError::database(dir, &database, source))?;
    let found = scan(&engine).map_err(|e| engine.damaged(dir, &database, &e))?;
    begin(
        StatePlace {
            dir,
            database,
            lock,
        },
        engine,
        found,
        notes,
    )
}

/// Opens the state in etcd as its leader, and begins a new epoch in it. `dir` keeps what belongs to
/// this host: logs, snapshots, the last commit that it knows.
pub fn open_in_etcd(dir: &Path, etcd: EtcdEngine) -> Result<OpenedStore, StoreError> {
    let lock = lock_state(dir)?;
    let database = etcd_place(etcd.prefix());
    let unreadable = |source| StoreError::database(dir, &database, source);
    if let Some(reason) = etcd.closed().map_err(unreadable)? {
        return Err(StoreError::Closed {
            state: database,
            reason,
        });
    }
    etcd.prepare().map_err(unreadable)?;
    let engine = StorageEngine::Etcd(etcd.clone());
    let mut found = scan(&engine).map_err(|e| engine.damaged(dir, &database, &e))?;
    let commit = found.seal.map_or(0, |seal| seal.commit);
    let mut notes = Vec::new();
    if let Some(local) = present_backend(dir)? {
        if commit == 0 {
            return Err(StoreError::NotMigrated {
                dir: dir.to_owned(),
                local,
                state: database,
            });
        }
        notes.push(format!(
            "{} is not used, because the state is in {}",
            database_path(dir, local).display(),
            database.display()
        ));
    }
    if let Some(acknowledged) = AnchorFile::read(dir)?.filter(|known| *known > commit) {
        return Err(older(dir, &database, commit, acknowledged));
    }
    cluster_identity::agree(dir, &database, &etcd, commit)?;
    if found.seal.is_none() {
        let first = encode(&MetaRecord::default())?;
        found.records.push((META.to_owned(), first));
    }
    let opened = begin(
        StatePlace {
            dir,
            database,
            lock,
        },
        engine,
        found,
        notes,
    )?;
    etcd.drop_documents();
    Ok(opened)
}

/// How errors name a state in etcd.
pub fn etcd_place(prefix: &str) -> PathBuf {
    PathBuf::from(format!("etcd:{prefix}"))
}

/// Creates and locks a state directory.
fn lock_state(dir: &Path) -> Result<File, StoreError> {
    fs::create_dir_all(dir).map_err(|source| StoreError::directory(dir, source))?;
    let lock = lock::lock_directory(dir, lock::LOCK_TIMEOUT)?;
    refuse_unfinished(dir)?;
    Ok(lock)
}

/// An error: this manager knows of a later commit than etcd has.
pub(crate) fn older(dir: &Path, database: &Path, commit: u64, acknowledged: u64) -> StoreError {
    let advice = format!(
        "etcd was restored from an older snapshot, or is another one. Put the newer data back; or, to go on without the \
         later commits, remove {} on every host of a resource manager",
        dir.join(anchor::NAME).display()
    );
    let what = format!("it ends at commit {commit}, and commit {acknowledged} was acknowledged");
    StoreError::Corrupt {
        file: database.to_owned(),
        what,
        advice,
    }
}

/// Where a state is, and the lock of its directory.
struct StatePlace<'a> {
    dir: &'a Path,
    database: PathBuf,
    lock: File,
}

/// Replays the records, and begins a new epoch.
fn begin(
    StatePlace {
        dir,
        database,
        lock,
    }: StatePlace<'_>,
    engine: StorageEngine,
    found: ScanResult,
    notes: Vec<String>,
) -> Result<OpenedStore, StoreError> {
    let damaged = |e: &dyn std::fmt::Display| engine.damaged(dir, &database, e);
    let commit = found.seal.map_or(0, |s| s.commit);
    let (_, restored) = replay(&found.records).map_err(|e| damaged(&e))?;
    let answers = answers(&found.records).map_err(|e| damaged(&e))?;
    let families = families(&found.records).map_err(|e| damaged(&e))?;
    let profiles = profiles(&found.records).map_err(|e| damaged(&e))?;
    let access = access(&found.records).map_err(|e| damaged(&e))?;
    let meta = MetaRecord {
        epoch: restored.epoch,
        last_app: restored.last_app,
    };
    let journals = master_journal::groups(found.pieces.keys());
    let mut store = DatabaseStore::new(dir, &database, engine, found, commit).in_use(lock)?;
    let documents = store.documents();
    let mut journal = RecordJournal::new(meta);
    journal.begin(meta)?;
    journal.commit(&mut store)?;
    store.snapshot()?;
    Ok(OpenedStore {
        journal,
        store,
        restored,
        answers,
        families,
        profiles,
        access,
        journals,
        documents,
        notes,
    })
}

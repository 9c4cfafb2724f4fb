//! Records in sled 0.34, with its gaps closed.
//!
//! On Linux sled's `flush` hands its log to `sync_file_range`, which leaves file size and disk cache alone. So each commit ends
//! with an `fdatasync` of our own on the log file. Values never reach the size at which sled writes files that it never syncs
//! (see [`crate::frame`]), and each carries a checksum. A seal written with every batch counts commits and records, so that a
//! part that vanished is noticed.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::sled::{Batch, Config, Db, Mode};
use serde::{Deserialize, Serialize};

use crate::anchor::Anchor;
use crate::frame;
use crate::record::DOCUMENTS;
use crate::snapshot::{self, Snapshot};
use crate::{Change, Store, StoreError};
use headroom_types::AppId;

const CACHE: u64 = 32 << 20;
/// Segments are collected in this thread only: without it the log grows for ever.
const BACKGROUND_FLUSH_MS: u64 = 500;
/// Threads of a database that was closed a moment ago may still hold its lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Key of the [`Seal`].
const SEAL: &str = "seal";
/// Latest layout of keys and values.
const FORMAT: u32 = 1;

/// Written with every batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Layout of keys and values.
    pub format: u32,
    /// Number of the commit.
    pub commit: u64,
    /// Records in the database.
    pub records: u64,
}

/// What a look at every entry found.
#[derive(Debug, Default)]
pub struct Scan {
    /// The seal; `None` in a database that was never written.
    pub seal: Option<Seal>,
    /// Entries of each record after its head.
    pub pieces: BTreeMap<String, usize>,
    /// All records but documents.
    pub records: Vec<(String, Vec<u8>)>,
}

/// What is wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// sled could not read it.
    #[error("{}", .0.to_string().trim_end_matches(" backtrace ()"))]
    Database(#[from] ::sled::Error),
    /// A value.
    #[error("{0}")]
    Frame(#[from] frame::FrameError),
    /// A key.
    #[error("it holds a key that is not text")]
    Key,
    /// A piece without its head.
    #[error("it holds a part of {0} out of its place")]
    Stray(String),
    /// The seal.
    #[error("its seal cannot be read")]
    Seal,
    /// A later layout.
    #[error("it has format {0}")]
    Format(u32),
    /// Records are missing.
    #[error("it holds {found} records instead of {sealed}")]
    Count {
        /// In it.
        found: u64,
        /// As sealed.
        sealed: u64,
    },
}

/// Opens a database; waits a moment for its lock.
pub fn open_database(dir: &Path) -> Result<Db, ::sled::Error> {
    let config = Config::new().path(dir).cache_capacity(CACHE).mode(Mode::LowSpace).flush_every_ms(Some(BACKGROUND_FLUSH_MS));
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match config.open() {
            Err(e) if e.to_string().contains("could not acquire lock") && Instant::now() < until => {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

/// Looks at every entry and compares the whole with its seal.
pub fn scan(db: &Db) -> Result<Scan, ScanError> {
    let scan = read(db.iter())?;
    let found = u64::try_from(scan.pieces.len()).unwrap_or(u64::MAX);
    let sealed = scan.seal.map_or(0, |s| s.records);
    if found != sealed { Err(ScanError::Count { found, sealed }) } else { Ok(scan) }
}

/// Puts records together from entries in the order of their keys.
fn read(entries: impl Iterator<Item = Result<(::sled::IVec, ::sled::IVec), ::sled::Error>>) -> Result<Scan, ScanError> {
    let mut scan = Scan::default();
    let mut open: Option<(String, Vec<u8>, Vec<::sled::IVec>)> = None;
    for entry in entries {
        let (key, bytes) = entry?;
        let entry = std::str::from_utf8(&key).map_err(|_| ScanError::Key)?;
        let (owner, head) = frame::owner(entry);
        if head {
            if let Some(record) = open.replace((owner.to_owned(), bytes.to_vec(), Vec::new())) {
                close(record, &mut scan)?;
            }
            continue;
        }
        match &mut open {
            Some((key, _, pieces)) if key == owner && entry == frame::piece_key(key, pieces.len()) => pieces.push(bytes),
            Some(_) | None => return Err(ScanError::Stray(entry.to_owned())),
        }
    }
    if let Some(record) = open {
        close(record, &mut scan)?;
    }
    Ok(scan)
}

fn close((key, head, pieces): (String, Vec<u8>, Vec<::sled::IVec>), scan: &mut Scan) -> Result<(), ScanError> {
    let value = frame::value(&key, &head, pieces.iter().map(AsRef::as_ref))?;
    if key == SEAL {
        let seal: Seal = serde_json::from_slice(&value).map_err(|_| ScanError::Seal)?;
        if seal.format != FORMAT {
            return Err(ScanError::Format(seal.format));
        }
        scan.seal = Some(seal);
        return Ok(());
    }
    scan.pieces.insert(key.clone(), pieces.len());
    if !key.starts_with(DOCUMENTS) {
        scan.records.push((key, value));
    }
    Ok(())
}

/// The store in one directory.
#[derive(Debug)]
pub struct SledStore {
    dir: PathBuf,
    database: PathBuf,
    db: Db,
    log: File,
    pieces: BTreeMap<String, usize>,
    commit: u64,
    anchor: Anchor,
    /// Held as long as the store lives: one process in a directory.
    _lock: Option<File>,
}

impl SledStore {
    /// Takes over an open database that was just looked through. Its commits go on from `commit`.
    pub fn new(dir: &Path, database: &Path, db: Db, scan: Scan, commit: u64, lock: Option<File>) -> Result<Self, StoreError> {
        let file = database.join("db");
        let log = File::open(&file).map_err(|source| StoreError::File { file, source })?;
        let (dir, database) = (dir.to_owned(), database.to_owned());
        let anchor = Anchor::open(&dir)?;
        Ok(SledStore { anchor, dir, database, db, log, pieces: scan.pieces, commit, _lock: lock })
    }

    /// Number of the last commit.
    pub fn last_commit(&self) -> u64 {
        self.commit
    }

    /// Reads documents, from any thread.
    pub fn documents(&self) -> Documents {
        Documents { dir: self.database.clone(), db: self.db.clone() }
    }

    fn failed(&self) -> impl Fn(::sled::Error) -> StoreError + use<> {
        let dir = self.database.clone();
        move |source| StoreError::Database { dir: dir.clone(), source }
    }

    /// Entries to write and to remove. Takes note of the pieces of each record, so a batch that was planned must be written.
    fn plan(&mut self, changes: &[Change]) -> Batch {
        let mut batch = Batch::default();
        for change in changes {
            let (key, before, now) = match change {
                Change::Put { key, value } => {
                    for (entry, bytes) in frame::entries(key, value) {
                        batch.insert(entry.as_bytes(), bytes);
                    }
                    let now = frame::pieces(value.len());
                    (key, self.pieces.insert(key.clone(), now), now)
                }
                Change::Remove { key } => {
                    batch.remove(key.as_bytes());
                    (key, self.pieces.remove(key), 0)
                }
            };
            for n in now..before.unwrap_or(0) {
                batch.remove(frame::piece_key(key, n).as_bytes());
            }
        }
        batch
    }
}

impl Store for SledStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = self.plan(changes);
        let records = u64::try_from(self.pieces.len()).unwrap_or(u64::MAX);
        let seal = Seal { format: FORMAT, commit: self.commit + 1, records };
        let encoded = serde_json::to_vec(&seal).map_err(|source| StoreError::Encode { key: SEAL.into(), source })?;
        for (entry, bytes) in frame::entries(SEAL, &encoded) {
            batch.insert(entry.as_bytes(), bytes);
        }
        self.db.apply_batch(batch).map_err(self.failed())?;
        self.db.flush().map_err(self.failed())?;
        self.log.sync_data().map_err(|source| StoreError::File { file: self.database.join("db"), source })?;
        self.commit = seal.commit;
        self.anchor.write(self.commit)
    }

    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        // Documents may be large, and the loop waits for this.
        let mut after = DOCUMENTS.as_bytes().to_vec();
        if let Some(last) = after.last_mut() {
            *last += 1;
        }
        let entries = self.db.range(..DOCUMENTS.as_bytes()).chain(self.db.range(after..));
        read(entries).map(|scan| scan.records).map_err(|e| crate::open::corrupt(&self.dir, &self.database, &e))
    }

    fn snapshot(&mut self) -> Result<PathBuf, StoreError> {
        let records = self.load()?;
        self.anchor.sync()?;
        snapshot::write(&self.dir, &Snapshot { commit: self.commit, records })
    }
}

/// Reads documents while the journal writes.
#[derive(Clone, Debug)]
pub struct Documents {
    dir: PathBuf,
    db: Db,
}

impl Documents {
    /// The document of an application. Blocks on the disk.
    pub fn get(&self, app: &AppId) -> Result<Option<Vec<u8>>, StoreError> {
        let key = crate::record::document_key(app);
        // Read again when a commit came between two of its pieces.
        let mut answer = self.read(&key);
        for _ in 0..3 {
            match answer {
                Err(ScanError::Frame(_)) => answer = self.read(&key),
                Ok(_) | Err(_) => break,
            }
        }
        let advice = || "It is only shown, and nothing depends on it".to_owned();
        answer.map_err(|e| StoreError::Corrupt { file: self.dir.clone(), what: e.to_string(), advice: advice() })
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, ScanError> {
        let Some(head) = self.db.get(key)? else { return Ok(None) };
        let mut rest = Vec::new();
        for n in 0..frame::pieces(frame::length(key, &head)?) {
            rest.extend(self.db.get(frame::piece_key(key, n))?);
        }
        Ok(Some(frame::value(key, &head, rest.iter().map(AsRef::as_ref))?))
    }
}

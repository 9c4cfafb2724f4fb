//! From a directory to a running journal, or one sentence that says why not.
//!
//! A database is opened by way of a copy first: sled repairs what it takes for a torn write while it opens, and what is damaged
//! must stay as it is. Only when the copy is whole, the original is touched.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use headroom_rm_core::Restored;
use headroom_types::Epoch;

use crate::anchor::Anchor;
use crate::journal::Journal;
use crate::record::Meta;
use crate::replay::replay;
use crate::sled::{Documents, Scan, ScanError, SledStore, open_database, scan};
use crate::snapshot::{self, Snapshot};
use crate::{Change, Store, StoreError};

/// Name of the database's directory in the state directory.
pub const DATABASE: &str = "store";
/// A database that is being made.
const MAKING: &str = "store.new";
/// The copy that is looked through.
const CHECKED: &str = "store.check";
const LOCK: &str = "lock";
/// Another process that is on its way out has this long to leave.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// A copy that is not looked through by then never will be.
const CHECK_PATIENCE: Duration = Duration::from_secs(120);
/// Numbers skipped after a start from a snapshot, which does not know of those given after it.
const SNAPSHOT_GAP: u32 = 1000;

/// A store ready for use.
#[derive(Debug)]
pub struct Opened {
    /// Writes; the new epoch is durable.
    pub journal: Journal<SledStore>,
    /// What an earlier life saved.
    pub restored: Restored,
    /// Reads documents.
    pub documents: Documents,
    /// What an operator should know.
    pub notes: Vec<String>,
}

/// Opens the state directory `dir`, and begins a new life in it.
pub fn open(dir: &Path) -> Result<Opened, StoreError> {
    fs::create_dir_all(dir).map_err(|source| StoreError::Directory { dir: dir.to_owned(), source })?;
    let lock = lock(dir)?;
    let database = dir.join(DATABASE);
    let mut notes = Vec::new();
    let mut gap = 0;
    if database.exists() {
        check(dir, &database)?;
    } else {
        gap = make(dir, &database, &mut notes)?;
    }
    let (db, found) = open_whole(dir, &database)?;
    let commit = found.seal.map_or(0, |s| s.commit);
    let replayed = replay(&found.records).map_err(|e| corrupt(dir, &database, &e));
    let (_, mut restored) = replayed?;
    restored.epoch = Epoch(restored.epoch.0.saturating_add(gap));
    restored.last_app = restored.last_app.saturating_add(gap);
    let meta = Meta { epoch: restored.epoch, last_app: restored.last_app };
    let store = SledStore::new(dir, &database, db, found, commit, Some(lock))?;
    let documents = store.documents();
    let mut journal = Journal::new(store, meta);
    journal.begin(meta)?;
    journal.commit()?;
    journal.snapshot()?;
    Ok(Opened { journal, restored, documents, notes })
}

/// One process in a directory. The file is never written to.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let unusable = |source| StoreError::Directory { dir: dir.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).open(dir.join(LOCK)).map_err(unusable)?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::park_timeout(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { dir: dir.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
    }
}

/// Looks through a copy.
fn check(dir: &Path, database: &Path) -> Result<(), StoreError> {
    let anchor = Anchor::read(dir)?;
    let copy = dir.join(CHECKED);
    remove(&copy)?;
    copy_dir(database, &copy)?;
    let looked = look(copy.clone());
    remove(&copy)?;
    let seal = match looked {
        Ok(scan) => scan.seal,
        Err(Fault::Scan(ScanError::Format(found))) if found > 1 => {
            return Err(StoreError::TooNew { file: database.to_owned(), found, known: 1 });
        }
        Err(fault) => return Err(corrupt(dir, database, &fault)),
    };
    let Some(seal) = seal else { return Err(corrupt(dir, database, &Fault::Empty)) };
    match anchor {
        Some(anchor) if seal.commit < anchor => Err(corrupt(dir, database, &Fault::Short { reaches: seal.commit, anchor })),
        Some(_) | None => Ok(()),
    }
}

/// What can be wrong with a database as a whole.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Scan(#[from] ScanError),
    #[error("it cannot be read (sled gave up over it)")]
    Panicked,
    #[error("nothing readable is left in it")]
    Empty,
    #[error("it reaches up to commit {reaches}, and commit {anchor} was acknowledged")]
    Short { reaches: u64, anchor: u64 },
    #[error("it could not be read within {} s", CHECK_PATIENCE.as_secs())]
    Endless,
}

/// Opens and scans in a thread of its own: sled panics over some kinds of damage. What it would print about that is kept quiet,
/// because the caller says it better.
fn look(copy: PathBuf) -> Result<Scan, Fault> {
    let (send, receive) = mpsc::sync_channel(1);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let thread = std::thread::Builder::new().name("store-check".into()).spawn(move || {
        let looked = std::panic::catch_unwind(|| {
            let db = open_database(&copy).map_err(ScanError::from)?;
            scan(&db)
        });
        // Nobody waits any more when this fails.
        let _ = send.send(looked);
    });
    let looked = thread.ok().and_then(|_| receive.recv_timeout(CHECK_PATIENCE).ok());
    std::panic::set_hook(hook);
    match looked {
        Some(Ok(scanned)) => scanned.map_err(Fault::from),
        Some(Err(_)) => Err(Fault::Panicked),
        None => Err(Fault::Endless),
    }
}

fn open_whole(dir: &Path, database: &Path) -> Result<(::sled::Db, Scan), StoreError> {
    let db = open_database(database).map_err(|source| StoreError::Database { dir: database.to_owned(), source })?;
    let found = scan(&db).map_err(|e| corrupt(dir, database, &e))?;
    Ok((db, found))
}

/// Makes a database: empty, or from the newest snapshot. It gets its name when it is whole. Answers how many numbers to skip.
fn make(dir: &Path, database: &Path, notes: &mut Vec<String>) -> Result<u32, StoreError> {
    let (records, commit, gap) = match newest(dir)? {
        Some((path, snapshot)) => {
            notes.push(format!("there was no database; started from {}", path.display()));
            (snapshot.records, snapshot.commit, SNAPSHOT_GAP)
        }
        None => {
            let meta = serde_json::to_vec(&Meta::default());
            let key = crate::record::META.to_owned();
            (vec![(key.clone(), meta.map_err(|source| StoreError::Encode { key, source })?)], 0, 0)
        }
    };
    let making = dir.join(MAKING);
    remove(&making)?;
    let (db, empty) = open_whole(dir, &making)?;
    // Commits are numbered on, so that the last number never goes back.
    let commit = commit.max(Anchor::read(dir).ok().flatten().unwrap_or(0));
    let mut store = SledStore::new(dir, &making, db, empty, commit, None)?;
    let changes: Vec<Change> = records.into_iter().map(|(key, value)| Change::Put { key, value }).collect();
    store.commit(&changes)?;
    drop(store);
    let renamed = fs::rename(&making, database).and_then(|()| File::open(dir)?.sync_all());
    renamed.map_err(|source| StoreError::File { file: making, source })?;
    Ok(gap)
}

/// The newest snapshot that can be read. Unreadable ones are not passed over in silence when there is no other.
fn newest(dir: &Path) -> Result<Option<(PathBuf, Snapshot)>, StoreError> {
    let mut wrong = None;
    for path in snapshot::list(dir)?.into_iter().rev() {
        match snapshot::read(&path) {
            Ok(snapshot) => return Ok(Some((path, snapshot))),
            Err(what) => wrong = Some((path, what)),
        }
    }
    match wrong {
        None => Ok(None),
        Some((file, what)) => {
            let advice = "There is no database and no other snapshot; move the snapshots away to start with nothing".into();
            Err(StoreError::Corrupt { file, what, advice })
        }
    }
}

/// The refusal, with what an operator can do about it.
pub(crate) fn corrupt(dir: &Path, database: &Path, what: &dyn std::fmt::Display) -> StoreError {
    let usable = snapshot::list(dir).ok().and_then(|all| all.into_iter().rev().find(|path| snapshot::read(path).is_ok()));
    let then = match usable {
        Some(path) => format!("the next start then goes on from {}", path.display()),
        None => "there is no readable snapshot, so the next start then begins with nothing".to_owned(),
    };
    let advice = format!("Restore it from a backup, or move it away ({then})");
    StoreError::Corrupt { file: database.to_owned(), what: what.to_string(), advice }
}

fn remove(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::File { file: dir.to_owned(), source }),
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |source| StoreError::File { file, source }
    };
    fs::create_dir_all(to).map_err(failed(to))?;
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let path = entry.map_err(failed(from))?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy_dir(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name)).map_err(failed(&path))?;
        }
    }
    Ok(())
}

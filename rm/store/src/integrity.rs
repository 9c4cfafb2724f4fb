//! Checks a database that may be damaged, through a copy.
//!
//! Both databases repair presumed torn writes while they open, but damaged data must stay
//! unchanged. The original is opened only when the copy is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use headroom_types::StoreBackend;

use crate::StoreError;
use crate::anchor::AnchorFile;
use crate::damage::corrupt;
use crate::engine::{StorageEngine, database_path};
use crate::local_database::with_suffix;
use crate::logged_database::{LoggedDatabase, NewerBatches};
use crate::scan::{ScanError, ScanResult, scan};
use crate::seal::{BatchSeal, FORMAT};

/// Suffix of the name of a copy.
const CHECKED: &str = "check";
/// Maximum duration of the check of a copy.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);

/// A copy that was found complete. Dropping this value removes it.
#[derive(Debug)]
pub struct CheckedCopy {
    /// The result of the scan.
    pub scan: ScanResult,
    /// The seal with the last commit.
    pub seal: BatchSeal,
    engine: Option<StorageEngine>,
    /// What only the log has.
    newer: NewerBatches,
    copy: PathBuf,
}

impl CheckedCopy {
    /// The open copy.
    pub fn engine(&self) -> Option<&StorageEngine> {
        self.engine.as_ref()
    }

    /// Removes the copy. Returns what only the log has.
    pub fn into_newer(mut self) -> NewerBatches {
        std::mem::take(&mut self.newer)
    }
}

impl Drop for CheckedCopy {
    fn drop(&mut self) {
        // Closes the database before its files are removed. Files that remain are removed before
        // the next check.
        self.engine = None;
        let _ = remove(&self.copy);
    }
}

/// Checks a copy of the database in `dir` and compares it with the last acknowledged commit.
pub fn check_copy(dir: &Path, backend: StoreBackend) -> Result<CheckedCopy, StoreError> {
    let database = database_path(dir, backend);
    let acknowledged = AnchorFile::read(dir)?;
    let copy = with_suffix(&database, CHECKED);
    let copied = remove(&copy).and_then(|()| copy_all(&database, &copy));
    let looked = copied.and_then(|()| {
        look(backend, copy.clone(), database.clone()).map_err(|fault| refuse(dir, &database, fault))
    });
    let (engine, newer, scan) = match looked {
        Ok(whole) => whole,
        Err(error) => {
            remove(&copy)?;
            return Err(error);
        }
    };
    let sealed = scan.seal;
    let suspect = CheckedCopy {
        seal: sealed.unwrap_or_default(),
        scan,
        engine: Some(engine),
        newer,
        copy,
    };
    match (sealed, acknowledged) {
        (None, _) => Err(corrupt(dir, &database, &DatabaseFault::Empty)),
        (Some(seal), Some(acknowledged)) if seal.commit < acknowledged => Err(corrupt(
            dir,
            &database,
            &DatabaseFault::Short {
                reaches: seal.commit,
                acknowledged,
            },
        )),
        (Some(_), _) => Ok(suspect),
    }
}

fn refuse(dir: &Path, database: &Path, fault: DatabaseFault) -> StoreError {
    match fault {
        DatabaseFault::Scan(ScanError::Format(found)) if found > FORMAT => StoreError::TooNew {
            file: database.to_owned(),
            found,
            known: FORMAT,
        },
        DatabaseFault::Scan(ScanError::Database(error)) if error.is_full() => {
            StoreError::database(dir, database, error)
        }
        fault @ (DatabaseFault::Scan(_)
        | DatabaseFault::Panicked
        | DatabaseFault::Empty
        | DatabaseFault::Short { .. }
        | DatabaseFault::Endless) => corrupt(dir, database, &fault),
    }
}

/// A fault of a database as a whole.
#[derive(Debug, thiserror::Error)]
enum DatabaseFault {
    #[error("{0}")]
    Scan(#[from] ScanError),
    #[error("it cannot be read (the database panicked)")]
    Panicked,
    #[error("it contains no readable records")]
    Empty,
    #[error("it ends at commit {reaches}, and commit {acknowledged} was acknowledged")]
    Short { reaches: u64, acknowledged: u64 },
    #[error("it could not be read within {} s", CHECK_TIMEOUT.as_secs())]
    Endless,
}

/// Opens a copy with the log of the original, and scans both. It does so in a separate thread,
/// because databases panic on some damage. The panic message is suppressed, because the caller
/// reports the fault.
fn look(
    backend: StoreBackend,
    copy: PathBuf,
    log_of: PathBuf,
) -> Result<(StorageEngine, NewerBatches, ScanResult), DatabaseFault> {
    let (send, receive) = mpsc::sync_channel(1);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let thread = std::thread::Builder::new()
        .name("store-check".into())
        .spawn(move || {
            let looked = std::panic::catch_unwind(|| {
                let (database, newer) = LoggedDatabase::open_copy(backend, &copy, &log_of)?;
                let engine = StorageEngine::Logged(database);
                let found = scan(&engine)?;
                Ok::<_, ScanError>((engine, newer, found))
            });
            // Fails only after the receiver's timeout.
            let _ = send.send(looked);
        });
    let looked = thread
        .ok()
        .and_then(|_| receive.recv_timeout(CHECK_TIMEOUT).ok());
    std::panic::set_hook(hook);
    match looked {
        Some(Ok(scanned)) => scanned.map_err(DatabaseFault::from),
        Some(Err(_)) => Err(DatabaseFault::Panicked),
        None => Err(DatabaseFault::Endless),
    }
}

/// Removes a database of either backend; a missing one is no error.
pub(crate) fn remove(database: &Path) -> Result<(), StoreError> {
    let removed = match fs::symlink_metadata(database) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(database),
        Ok(_) => fs::remove_file(database),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::file(database, source)),
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !from.is_dir() {
        return fs::copy(from, to)
            .map(drop)
            .map_err(|source| StoreError::file(from, source));
    }
    fs::create_dir_all(to).map_err(|source| StoreError::file(to, source))?;
    for entry in fs::read_dir(from).map_err(|source| StoreError::file(from, source))? {
        let path = entry
            .map_err(|source| StoreError::file(from, source))?
            .path();
        if let Some(name) = path.file_name() {
            copy_all(&path, &to.join(name))?;
        }
    }
    Ok(())
}

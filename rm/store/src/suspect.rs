//! A database that may be damaged, looked through by way of a copy: both databases repair what they take for a torn write while
//! they open, and what is damaged must stay as it is. Only when the copy is whole, the original is touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use headroom_types::StoreBackend;

use crate::StoreError;
use crate::anchor::Anchor;
use crate::engine::{Engine, place};
use crate::open::corrupt;
use crate::scan::{FORMAT, Scan, ScanError, Seal, scan};

/// Added to the name of a database for its copy.
const CHECKED: &str = "check";
/// A copy that is not looked through by then never will be.
const PATIENCE: Duration = Duration::from_secs(120);

/// A copy that was found whole. It is removed with this value.
#[derive(Debug)]
pub struct Suspect {
    /// What is in it.
    pub scan: Scan,
    /// The last commit.
    pub seal: Seal,
    engine: Option<Engine>,
    copy: PathBuf,
}

impl Suspect {
    /// The open copy.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }
}

impl Drop for Suspect {
    fn drop(&mut self) {
        // Closed before its files go. What cannot be removed now is removed before the next look.
        self.engine = None;
        let _ = remove(&self.copy);
    }
}

/// Looks through a copy of the database in `dir` and compares it with the last commit that was acknowledged.
pub fn look_through(dir: &Path, backend: StoreBackend) -> Result<Suspect, StoreError> {
    let database = place(dir, backend);
    let acknowledged = Anchor::read(dir)?;
    let copy = beside(&database, CHECKED);
    let copied = remove(&copy).and_then(|()| copy_all(&database, &copy));
    let looked = copied.and_then(|()| look(backend, copy.clone()).map_err(|fault| refuse(dir, &database, fault)));
    let (engine, scan) = match looked {
        Ok(whole) => whole,
        Err(error) => {
            remove(&copy)?;
            return Err(error);
        }
    };
    let sealed = scan.seal;
    let suspect = Suspect { seal: sealed.unwrap_or_default(), scan, engine: Some(engine), copy };
    match (sealed, acknowledged) {
        (None, _) => Err(corrupt(dir, &database, &Fault::Empty)),
        (Some(seal), Some(acknowledged)) if seal.commit < acknowledged => {
            Err(corrupt(dir, &database, &Fault::Short { reaches: seal.commit, acknowledged }))
        }
        (Some(_), _) => Ok(suspect),
    }
}

fn refuse(dir: &Path, database: &Path, fault: Fault) -> StoreError {
    match fault {
        Fault::Scan(ScanError::Format(found)) if found > FORMAT => {
            StoreError::TooNew { file: database.to_owned(), found, known: FORMAT }
        }
        Fault::Scan(ScanError::Database(error)) if error.is_full() => StoreError::database(dir, database, error),
        fault @ (Fault::Scan(_) | Fault::Panicked | Fault::Empty | Fault::Short { .. } | Fault::Endless) => {
            corrupt(dir, database, &fault)
        }
    }
}

/// What can be wrong with a database as a whole.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Scan(#[from] ScanError),
    #[error("it cannot be read (the database gave up over it)")]
    Panicked,
    #[error("nothing readable is left in it")]
    Empty,
    #[error("it reaches up to commit {reaches}, and commit {acknowledged} was acknowledged")]
    Short { reaches: u64, acknowledged: u64 },
    #[error("it could not be read within {} s", PATIENCE.as_secs())]
    Endless,
}

/// Opens and scans in a thread of its own: databases panic over some kinds of damage. What they would print about that is kept
/// quiet, because the caller says it better.
fn look(backend: StoreBackend, copy: PathBuf) -> Result<(Engine, Scan), Fault> {
    let (send, receive) = mpsc::sync_channel(1);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let thread = std::thread::Builder::new().name("store-check".into()).spawn(move || {
        let looked = std::panic::catch_unwind(|| {
            let engine = Engine::open_suspect(backend, &copy).map_err(ScanError::from)?;
            let found = scan(&engine)?;
            Ok::<_, ScanError>((engine, found))
        });
        // Nobody waits any more when this fails.
        let _ = send.send(looked);
    });
    let looked = thread.ok().and_then(|_| receive.recv_timeout(PATIENCE).ok());
    std::panic::set_hook(hook);
    match looked {
        Some(Ok(scanned)) => scanned.map_err(Fault::from),
        Some(Err(_)) => Err(Fault::Panicked),
        None => Err(Fault::Endless),
    }
}

/// `store.redb` and `store` with `what` at the end.
pub(crate) fn beside(database: &Path, what: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

/// Removes a database of either kind; none is fine too.
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
        return fs::copy(from, to).map(drop).map_err(|source| StoreError::file(from, source));
    }
    fs::create_dir_all(to).map_err(|source| StoreError::file(to, source))?;
    for entry in fs::read_dir(from).map_err(|source| StoreError::file(from, source))? {
        let path = entry.map_err(|source| StoreError::file(from, source))?.path();
        if let Some(name) = path.file_name() {
            copy_all(&path, &to.join(name))?;
        }
    }
    Ok(())
}

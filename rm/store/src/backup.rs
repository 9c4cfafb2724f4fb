//! Backup of a state directory to one file, and restore. No resource manager may run in the
//! directory.
//!
//! Operators call it through `rmctl`. It never changes the source database and never overwrites
//! data: a restore moves replaced state aside.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headroom_types::{Epoch, StoreBackend};
use serde::Serialize;

use crate::anchor::AnchorFile;
use crate::engine::{StorageEngine, database_path, present_backend};
use crate::integrity::check_copy;
use crate::local_database::with_suffix;
use crate::lock;
use crate::make::{NewDatabase, ahead, encode};
use crate::record::{DOCUMENTS, META, MetaRecord};
use crate::replay::replay;
use crate::scan::{self, ScanControl, ScanResult};
use crate::snapshot::{self, SnapshotHeader, SnapshotWriter};
use crate::write_ahead_log::log_paths;
use crate::{RecordChange, RecordStore, StoreError, anchor};

/// Marker file of a directory whose restore has not finished.
pub const REPLACING: &str = "replacing";
/// Maximum bytes of values in one write.
const BATCH: usize = 4 << 20;

/// The result of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupSummary {
    /// The file.
    pub file: PathBuf,
    /// The backend of its database: sled, redb or etcd.
    pub backend: String,
    /// The number of its last commit.
    pub commit: u64,
    /// The number of records, with documents.
    pub records: usize,
    /// Size of the file. In bytes.
    pub bytes: u64,
}

/// Whether existing state can be moved aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingStatePolicy {
    /// Only an empty directory is filled.
    No,
    /// Existing state is moved into a new directory next to the new database.
    MoveAside,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreSummary {
    /// The directory.
    pub dir: PathBuf,
    /// The backend of its new database: sled, redb or etcd.
    pub backend: String,
    /// The number of the last commit in the file.
    pub commit: u64,
    /// The number of records, with documents.
    pub records: usize,
    /// The epoch that was written; the next start uses the following one.
    pub epoch: Epoch,
    /// The application number that was written; the next application gets the following one.
    pub last_app: u32,
    /// The directory with the replaced state; `None` if there was none.
    pub aside: Option<PathBuf>,
}

/// Writes the whole state of `dir` into the file `to`, which must not exist yet.
pub fn backup(dir: &Path, to: &Path) -> Result<BackupSummary, StoreError> {
    let backend = present_backend(dir)?.ok_or_else(|| StoreError::Nothing {
        dir: dir.to_owned(),
    })?;
    let _lock = lock::lock_directory(dir, Duration::ZERO)?;
    refuse_unfinished(dir)?;
    if to.exists() {
        let advice = "name another file".to_owned();
        return Err(StoreError::NotEmpty {
            place: to.to_owned(),
            holds: "exists already".into(),
            advice,
        });
    }
    let whole = check_copy(dir, backend)?;
    replay(&whole.scan.records)
        .map_err(|e| crate::damage::corrupt(dir, &database_path(dir, backend), &e))?;
    let (commit, records) = (whole.seal.commit, whole.scan.pieces.len());
    let bytes = write_file(to, commit, &whole.scan, whole.engine())?;
    Ok(BackupSummary {
        file: to.to_owned(),
        backend: backend.to_string(),
        commit,
        records,
        bytes,
    })
}

/// Writes a scanned state into a new file. Returns its size in bytes.
pub(crate) fn write_file(
    to: &Path,
    commit: u64,
    scan: &ScanResult,
    engine: Option<&StorageEngine>,
) -> Result<u64, StoreError> {
    snapshot::whole(&with_suffix(to, "unfinished"), to, |file| {
        write(file, commit, scan, engine)
    })?;
    let written = fs::metadata(to).map_err(|source| StoreError::file(to, source))?;
    Ok(written.len())
}

fn write(
    file: &File,
    commit: u64,
    scan: &ScanResult,
    engine: Option<&StorageEngine>,
) -> io::Result<()> {
    let mut text = SnapshotWriter::begin(BufWriter::new(file), commit, scan.pieces.len())?;
    for (key, value) in &scan.records {
        text.record(key, value)?;
    }
    if let Some(engine) = engine {
        let mut failed = None;
        let walked = scan::documents(engine, |key, value| {
            failed = text.record(key, value).err();
            if failed.is_none() {
                ScanControl::Yes
            } else {
                ScanControl::No
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        walked.map_err(io::Error::other)?;
    }
    text.finish()
}

/// Fills the state directory `dir` from a backup or snapshot. Numbers advance, so that no number
/// given after the file was written is used twice.
pub fn restore(
    dir: &Path,
    from: &Path,
    backend: StoreBackend,
    replace: ExistingStatePolicy,
) -> Result<RestoreSummary, StoreError> {
    let (header, kept) = verify(from)?;
    fs::create_dir_all(dir).map_err(|source| StoreError::directory(dir, source))?;
    let _lock = lock::lock_directory(dir, Duration::ZERO)?;
    let old = occupied(dir)?;
    if let (Some(first), ExistingStatePolicy::No) = (old.first(), replace) {
        let holds = format!(
            "contains state ({} and {} more)",
            first.display(),
            old.len() - 1
        );
        let advice = "name an empty directory, or add --replace to move the state aside".to_owned();
        return Err(StoreError::NotEmpty {
            place: dir.to_owned(),
            holds,
            advice,
        });
    }
    let known = numbers_in(dir);
    let meta = ahead(MetaRecord {
        epoch: kept.epoch.max(known.epoch),
        last_app: kept.last_app.max(known.last_app),
    });
    // An unreadable anchor does not prevent the restore, because it is replaced.
    let acknowledged = AnchorFile::read(dir).ok().flatten().unwrap_or(0);
    let mut making = NewDatabase::begin(dir, backend, header.commit.max(acknowledged))?;
    fill(making.store(), from, meta)?;
    let aside = if old.is_empty() {
        None
    } else {
        Some(move_aside(dir, &old)?)
    };
    making.finish()?;
    if aside.is_some() {
        let marker = dir.join(REPLACING);
        let ended = fs::remove_file(&marker).and_then(|()| File::open(dir)?.sync_all());
        ended.map_err(|source| StoreError::file(&marker, source))?;
    }
    let MetaRecord { epoch, last_app } = meta;
    Ok(RestoreSummary {
        dir: dir.to_owned(),
        backend: backend.to_string(),
        commit: header.commit,
        records: header.records,
        epoch,
        last_app,
        aside,
    })
}

/// Reads the whole file before any change.
pub(crate) fn verify(from: &Path) -> Result<(SnapshotHeader, MetaRecord), StoreError> {
    let unusable = |what: String| {
        let advice =
            "Use another backup, or a file snapshot-….jsonl of the state directory".to_owned();
        StoreError::Corrupt {
            file: from.to_owned(),
            what,
            advice,
        }
    };
    let mut records = Vec::new();
    let header = snapshot::walk(from, |key, value| {
        if !key.starts_with(DOCUMENTS) {
            records.push((key, value));
        }
        Ok(())
    });
    let header = header.map_err(unusable)?;
    let (meta, _) = replay(&records).map_err(|e| unusable(e.to_string()))?;
    Ok((header, meta))
}

/// Commits the records of a file, with other numbers.
pub(crate) fn fill(
    store: &mut impl RecordStore,
    from: &Path,
    meta: MetaRecord,
) -> Result<(), StoreError> {
    let (mut changes, mut size, mut failed) = (Vec::new(), 0, None);
    let walked = snapshot::walk(from, |key, value| {
        let value = if key == META {
            encode(&meta).map_err(|e| e.to_string())?
        } else {
            value
        };
        size += value.len();
        changes.push(RecordChange::Put { key, value });
        if size > BATCH {
            size = 0;
            store
                .commit(&std::mem::take(&mut changes))
                .map_err(|error| {
                    let what = error.to_string();
                    failed = Some(error);
                    what
                })?;
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    // `verify` found the file complete before.
    walked.map_err(|what| StoreError::File {
        file: from.to_owned(),
        source: io::Error::other(what),
    })?;
    store.commit(&changes)
}

/// The highest numbers in the present state of the directory, as far as it is readable.
fn numbers_in(dir: &Path) -> MetaRecord {
    let whole = present_backend(dir)
        .ok()
        .flatten()
        .and_then(|backend| check_copy(dir, backend).ok());
    let of_database = whole.and_then(|whole| Some(replay(&whole.scan.records).ok()?.0));
    let snapshots = snapshot::list(dir).unwrap_or_default();
    let of_snapshots = snapshots
        .iter()
        .filter_map(|path| Some(replay(&snapshot::read(path).ok()?.records).ok()?.0));
    of_snapshots
        .chain(of_database)
        .fold(MetaRecord::default(), |most, meta| MetaRecord {
            epoch: most.epoch.max(meta.epoch),
            last_app: most.last_app.max(meta.last_app),
        })
}

/// The files of a state in this directory.
pub(crate) fn occupied(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let databases = StoreBackend::ALL.map(|backend| database_path(dir, backend));
    let logs = databases.iter().flat_map(|database| log_paths(database));
    let single = databases
        .iter()
        .cloned()
        .chain(logs)
        .chain([dir.join(anchor::NAME), dir.join(REPLACING)]);
    let mut found: Vec<PathBuf> = single.filter(|path| path.exists()).collect();
    found.extend(snapshot::list(dir)?);
    Ok(found)
}

/// Moves the state aside. From the first move to the end of the restore, a marker prevents the
/// start of a resource manager with partial state.
pub(crate) fn move_aside(dir: &Path, old: &[PathBuf]) -> Result<PathBuf, StoreError> {
    let marker = dir.join(REPLACING);
    let marked = File::create(&marker).and_then(|_| File::open(dir)?.sync_all());
    marked.map_err(|source| StoreError::file(&marker, source))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let names = (0..).map(|n| {
        dir.join(if n == 0 {
            format!("replaced-{now}")
        } else {
            format!("replaced-{now}-{n}")
        })
    });
    let aside = names
        .into_iter()
        .find(|path| !path.exists())
        .unwrap_or_else(|| dir.join("replaced"));
    fs::create_dir(&aside).map_err(|source| StoreError::file(&aside, source))?;
    for path in old.iter().filter(|path| **path != marker) {
        let Some(name) = path.file_name() else {
            continue;
        };
        fs::rename(path, aside.join(name)).map_err(|source| StoreError::file(path, source))?;
    }
    Ok(aside)
}

/// An error if the marker of an unfinished restore exists.
pub(crate) fn refuse_unfinished(dir: &Path) -> Result<(), StoreError> {
    if !dir.join(REPLACING).exists() {
        return Ok(());
    }
    let advice = format!(
        "Run the restore again: rmctl operator state restore --state {} --from FILE --replace; the earlier state is in {}",
        dir.display(),
        dir.join("replaced-…").display()
    );
    Err(StoreError::Corrupt {
        file: dir.to_owned(),
        what: "a restore of it was interrupted".into(),
        advice,
    })
}

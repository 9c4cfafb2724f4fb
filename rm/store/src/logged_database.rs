//! A local database behind a write-ahead log.
//!
//! A batch is durable in the log. A checkpoint, on a thread of its own, later writes the entries of
//! many batches into the database. An entry that is replaced or removed before that, like most
//! records of ended containers in a busy cluster, never reaches the database.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

use headroom_types::{Bytes, StoreBackend};

use crate::engine_error::EngineError;
use crate::entry::{Durability, KeyRange, RecordEntry};
use crate::frame;
use crate::local_database::LocalDatabase;
use crate::overlay::{NewerEntries, Overlay};
use crate::seal::{BatchSeal, SEAL};
use crate::write_ahead_log::{LogFile, LogPosition, log_paths, read_log};

/// Size of a file of the log at which a checkpoint begins. A start reads at most a few times as
/// much.
pub const LOG_SIZE: Bytes = Bytes::from_mib(32);
/// A file that has this many times its size waits for the checkpoint before.
const LARGEST_FILE: u64 = 4;
/// Entries that a checkpoint writes at once.
const CHECKPOINT_PART: usize = 512;

/// An open database with its log. Clones share it. Dropping the last one writes a checkpoint and
/// empties the log.
#[derive(Clone, Debug)]
pub struct LoggedDatabase {
    inner: Arc<LoggedInner>,
}

#[derive(Debug)]
struct LoggedInner {
    newest: Arc<NewestEntries>,
    /// None for a copy, which is only read.
    writer: Option<Mutex<LogWriter>>,
}

/// The entries of the database and the newer ones.
#[derive(Debug)]
struct NewestEntries {
    database: LocalDatabase,
    overlay: RwLock<Overlay>,
}

/// The files of the log, and the checkpoint.
#[derive(Debug)]
struct LogWriter {
    files: [LogFile; 2],
    /// The file that takes batches.
    active: usize,
    size: Bytes,
    checkpoint: Option<JoinHandle<Result<(), EngineError>>>,
    /// A write failed. The next start continues from the log, which therefore stays.
    failed: bool,
}

/// What the log of a database has and the database lacks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct NewerBatches {
    overlay: Overlay,
    next: LogPosition,
}

impl LoggedDatabase {
    /// Opens a copy of a database for reading, with the log of the original. The copy may be
    /// damaged. Also returns what only the log has.
    pub fn open_copy(
        backend: StoreBackend,
        copy: &Path,
        original: &Path,
    ) -> Result<(Self, NewerBatches), EngineError> {
        let database = LocalDatabase::open_suspect(backend, copy)?;
        let newer = newer_batches(&database, original)?;
        let newest = NewestEntries {
            database,
            overlay: RwLock::new(newer.overlay.clone()),
        };
        let inner = LoggedInner {
            newest: Arc::new(newest),
            writer: None,
        };
        let copy = LoggedDatabase {
            inner: Arc::new(inner),
        };
        Ok((copy, newer))
    }

    /// Opens a database. Its log was read with a copy of it.
    pub fn open(
        backend: StoreBackend,
        path: &Path,
        newer: NewerBatches,
        size: Bytes,
    ) -> Result<Self, EngineError> {
        Self::begin(LocalDatabase::open(backend, path)?, path, newer, size)
    }

    fn begin(
        database: LocalDatabase,
        path: &Path,
        NewerBatches { overlay, next }: NewerBatches,
        size: Bytes,
    ) -> Result<Self, EngineError> {
        let files = open_files(path, next).map_err(EngineError::Log)?;
        let in_checkpoint = overlay.in_checkpoint();
        let newest = Arc::new(NewestEntries {
            database,
            overlay: RwLock::new(overlay),
        });
        let mut writer = LogWriter {
            files,
            active: next.file,
            size,
            checkpoint: None,
            failed: false,
        };
        // The other file is free when its batches are in the database.
        if !in_checkpoint.is_empty() {
            writer.spawn_checkpoint(&newest, in_checkpoint)?;
        }
        let inner = LoggedInner {
            newest,
            writer: Some(Mutex::new(writer)),
        };
        Ok(LoggedDatabase {
            inner: Arc::new(inner),
        })
    }

    /// Writes all entries or none; durable when this returns. Commits have consecutive numbers.
    pub fn write(&self, commit: u64, entries: Vec<RecordEntry>) -> Result<(), EngineError> {
        let Some(mut writer) = self.inner.writer() else {
            return Err(EngineError::ReadOnly);
        };
        let written = writer.write(commit, &entries, &self.inner.newest);
        writer.failed |= written.is_err();
        written?;
        self.inner.newest.overlay_mut().add(entries);
        Ok(())
    }

    /// The value of one entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let overlay = self.inner.newest.overlay();
        match overlay.get(key) {
            Some(newer) => Ok(newer.map(<[u8]>::to_vec)),
            None => self.inner.newest.database.get(key),
        }
    }

    /// Passes entries to `see` in key order, until `see` returns an error. Writes wait meanwhile.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let overlay = self.inner.newest.overlay();
        let mut newer = overlay.range(keys).into_iter().peekable();
        self.inner.newest.database.walk(keys, |key, bytes| {
            while let Some((before, value)) = newer.next_if(|(newer, _)| *newer < key) {
                value.map_or(Ok(()), |value| see(before, value))?;
            }
            match newer.next_if(|(newer, _)| *newer == key) {
                Some((_, value)) => value.map_or(Ok(()), |value| see(key, value)),
                None => see(key, bytes),
            }
        })?;
        newer.try_for_each(|(key, value)| value.map_or(Ok(()), |value| see(key, value)))
    }
}

impl LoggedInner {
    fn writer(&self) -> Option<MutexGuard<'_, LogWriter>> {
        let writer = self.writer.as_ref()?;
        Some(writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a last checkpoint, and empties the log.
    fn close(&self) -> Result<(), EngineError> {
        let Some(mut writer) = self.writer() else {
            return Ok(());
        };
        writer.end_checkpoint()?;
        if writer.failed {
            return Ok(());
        }
        let entries = self.newest.overlay_mut().begin_checkpoint();
        write_checkpoint(&self.newest.database, &entries)?;
        writer
            .files
            .iter_mut()
            .try_for_each(LogFile::clear)
            .map_err(EngineError::Log)
    }
}

impl Drop for LoggedInner {
    fn drop(&mut self) {
        // After an error, the next start reads the log.
        let _ = self.close();
    }
}

impl NewestEntries {
    fn overlay(&self) -> RwLockReadGuard<'_, Overlay> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlay_mut(&self) -> RwLockWriteGuard<'_, Overlay> {
        self.overlay.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogWriter {
    fn write(
        &mut self,
        commit: u64,
        entries: &[RecordEntry],
        newest: &Arc<NewestEntries>,
    ) -> Result<(), EngineError> {
        if self.is_full() {
            self.end_checkpoint()?;
            self.begin_checkpoint(newest)?;
        }
        let file = &mut self.files[self.active];
        file.append(commit, entries).map_err(EngineError::Log)
    }

    /// Whether the active file is full, and the other one can be used or must be waited for.
    fn is_full(&self) -> bool {
        let (length, size) = (self.files[self.active].length(), self.size.get());
        let running = self.checkpoint.as_ref().is_some_and(|c| !c.is_finished());
        length >= size && (!running || length >= size.saturating_mul(LARGEST_FILE))
    }

    /// Waits for the checkpoint, if one runs. The file that is not active is free afterwards.
    fn end_checkpoint(&mut self) -> Result<(), EngineError> {
        match self.checkpoint.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(EngineError::Checkpoint),
        }
    }

    /// Begins a checkpoint of all entries, and a new file.
    fn begin_checkpoint(&mut self, newest: &Arc<NewestEntries>) -> Result<(), EngineError> {
        let entries = newest.overlay_mut().begin_checkpoint();
        self.spawn_checkpoint(newest, entries)?;
        self.active = 1 - self.active;
        self.files[self.active].restart();
        Ok(())
    }

    /// Writes these entries, which the overlay has in its checkpoint, on a thread.
    fn spawn_checkpoint(
        &mut self,
        newest: &Arc<NewestEntries>,
        entries: Arc<NewerEntries>,
    ) -> Result<(), EngineError> {
        let newest = Arc::clone(newest);
        let thread = std::thread::Builder::new()
            .name("checkpoint".into())
            .spawn(move || {
                write_checkpoint(&newest.database, &entries)?;
                drop(newest.overlay_mut().end_checkpoint());
                Ok(())
            });
        self.checkpoint = Some(thread.map_err(EngineError::Log)?);
        Ok(())
    }
}

/// Opens or creates the files of the log of a database.
fn open_files(database: &Path, next: LogPosition) -> io::Result<[LogFile; 2]> {
    let end = |file| if file == next.file { next.end } else { 0 };
    let [first, second] = log_paths(database);
    let files = [
        LogFile::open(&first, end(0))?,
        LogFile::open(&second, end(1))?,
    ];
    // A new file exists after a power cut only if its directory is synced.
    if let Some(dir) = database.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(files)
}

/// Reads the batches of a log that a database lacks. `log_of` is the path of the database that the
/// log belongs to.
fn newer_batches(database: &LocalDatabase, log_of: &Path) -> Result<NewerBatches, EngineError> {
    let Some(mut commit) = sealed_commit(database)? else {
        // The scan that follows reports a database without a seal.
        return Ok(NewerBatches::default());
    };
    let (mut older, mut newer, mut next) = (
        NewerEntries::new(),
        NewerEntries::new(),
        LogPosition::default(),
    );
    for content in read_log(log_of).map_err(EngineError::Log)? {
        let mut entries = NewerEntries::new();
        for batch in content.batches {
            if batch.commit <= commit {
                continue;
            }
            if batch.commit > commit + 1 {
                return Err(EngineError::LogGap {
                    log: batch.commit,
                    database: commit,
                });
            }
            commit = batch.commit;
            let batch = batch.entries.into_iter();
            entries.extend(batch.map(|(key, bytes)| (key.into_bytes(), bytes)));
        }
        if !entries.is_empty() {
            older = std::mem::replace(&mut newer, entries);
            next = content.position;
        }
    }
    Ok(NewerBatches {
        overlay: Overlay::new(older, newer),
        next,
    })
}

/// The last commit of a database; `None` without a readable seal.
fn sealed_commit(database: &LocalDatabase) -> Result<Option<u64>, EngineError> {
    let found = database.get(SEAL.as_bytes())?;
    let value = found.and_then(|bytes| frame::value(SEAL, &bytes, std::iter::empty()).ok());
    let seal = value.and_then(|value| serde_json::from_slice::<BatchSeal>(&value).ok());
    Ok(seal.map(|seal| seal.commit))
}

/// Writes entries, the seal last: until then the log is replayed from the seal before.
fn write_checkpoint(database: &LocalDatabase, entries: &NewerEntries) -> Result<(), EngineError> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut part: Vec<(&[u8], Option<&[u8]>)> = Vec::with_capacity(CHECKPOINT_PART);
    for (key, bytes) in entries {
        // Most removed entries never reached the database.
        let absent = bytes.is_none() && database.get(key)?.is_none();
        if absent || key == SEAL.as_bytes() {
            continue;
        }
        part.push((key, bytes.as_deref()));
        if part.len() == CHECKPOINT_PART {
            database.write(part.drain(..), Durability::Deferred)?;
        }
    }
    database.write(part.drain(..), Durability::Deferred)?;
    let seal = entries.get(SEAL.as_bytes()).and_then(Option::as_deref);
    let seal = seal.map(|bytes| (SEAL.as_bytes(), Some(bytes)));
    database.write(seal, Durability::Immediate)
}

#[cfg(test)]
mod tests;

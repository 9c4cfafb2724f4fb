//! Entries in sled 0.34, with its gaps closed.
//!
//! On Linux sled's `flush` hands its log to `sync_file_range`, which leaves file size and disk cache alone. So each write ends
//! with an `fdatasync` of our own on the log file. Entries never reach the size at which sled writes files that it never syncs
//! (see [`crate::frame`]).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::sled::{Batch, Config, Db, Mode};

use crate::engine::{EngineError, Entry, Keys};

const CACHE: u64 = 32 << 20;
/// Segments are collected in this thread only: without it the log grows for ever.
const BACKGROUND_FLUSH_MS: u64 = 500;
/// Threads of a database that was closed a moment ago may still hold its lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// An open database.
#[derive(Clone, Debug)]
pub struct SledEngine {
    db: Db,
    /// The log, to sync it.
    log: Arc<File>,
}

impl SledEngine {
    /// Opens or makes one; waits a moment for its lock.
    pub fn open(dir: &Path) -> Result<Self, EngineError> {
        let config = Config::new().path(dir).cache_capacity(CACHE).mode(Mode::LowSpace).flush_every_ms(Some(BACKGROUND_FLUSH_MS));
        let until = Instant::now() + LOCK_PATIENCE;
        let db = loop {
            match config.open() {
                Err(e) if e.to_string().contains("could not acquire lock") && Instant::now() < until => {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                answer => break answer?,
            }
        };
        let log = File::open(dir.join("db")).map_err(EngineError::Sync)?;
        Ok(SledEngine { db, log: Arc::new(log) })
    }

    /// One batch, flushed, and synced.
    pub fn write(&self, entries: Vec<Entry>) -> Result<(), EngineError> {
        let mut batch = Batch::default();
        for (key, bytes) in entries {
            match bytes {
                Some(bytes) => batch.insert(key.as_bytes(), bytes),
                None => batch.remove(key.as_bytes()),
            }
        }
        self.db.apply_batch(batch)?;
        self.db.flush()?;
        self.log.sync_data().map_err(EngineError::Sync)
    }

    /// One entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.db.get(key)?.map(|bytes| bytes.to_vec()))
    }

    /// Entries in the order of their keys.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: Keys<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for entry in self.db.range::<&[u8], _>(keys) {
            let (key, bytes) = entry.map_err(EngineError::from)?;
            see(&key, &bytes)?;
        }
        Ok(())
    }
}

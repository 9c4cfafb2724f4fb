//! Entries in sled 0.34, with workarounds for its gaps.
//!
//! On Linux sled's `flush` calls `sync_file_range` on its log, which syncs neither file size nor
//! disk cache. Each durable write here therefore ends with an `fdatasync` of the log file. Entries stay
//! below the size at which sled writes files that it never syncs (see [`crate::frame`]).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::sled::{Batch, Config, Db, Mode};

use crate::engine_error::EngineError;
use crate::entry::{Durability, KeyRange};

const CACHE: u64 = 32 << 20;
/// Interval of the background flush. Only that thread collects segments; without it the log grows
/// without limit.
const BACKGROUND_FLUSH_MS: u64 = 500;
/// Maximum wait for the lock, which threads of a database closed just before may still hold.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// An open database.
#[derive(Clone, Debug)]
pub struct SledEngine {
    db: Db,
    /// The log file, for syncs.
    log: Arc<File>,
}

impl SledEngine {
    /// Opens or creates a database; waits for its lock.
    pub fn open(dir: &Path) -> Result<Self, EngineError> {
        let config = Config::new()
            .path(dir)
            .cache_capacity(CACHE)
            .mode(Mode::LowSpace)
            .flush_every_ms(Some(BACKGROUND_FLUSH_MS));
        let until = Instant::now() + LOCK_PATIENCE;
        let db = loop {
            match config.open() {
                Err(e)
                    if e.to_string().contains("could not acquire lock")
                        && Instant::now() < until =>
                {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                answer => break answer?,
            }
        };
        let log = File::open(dir.join("db")).map_err(EngineError::Sync)?;
        Ok(SledEngine {
            db,
            log: Arc::new(log),
        })
    }

    /// Writes one batch.
    pub fn write<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        let mut batch = Batch::default();
        for (key, bytes) in entries {
            match bytes {
                Some(bytes) => batch.insert(key, bytes),
                None => batch.remove(key),
            }
        }
        self.db.apply_batch(batch)?;
        match durability {
            Durability::Deferred => Ok(()),
            Durability::Immediate => {
                self.db.flush()?;
                self.log.sync_data().map_err(EngineError::Sync)
            }
        }
    }

    /// The value of one entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.db.get(key)?.map(|bytes| bytes.to_vec()))
    }

    /// Passes entries to `see` in key order.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for entry in self.db.range::<&[u8], _>(keys) {
            let (key, bytes) = entry.map_err(EngineError::from)?;
            see(&key, &bytes)?;
        }
        Ok(())
    }
}

//! Durable batches per second of the resource manager's store, compared with a bare `fdatasync` of
//! the same disk.
//!
//! One thread makes one commit after the other. Each has ten records of 300 bytes over some
//! thousand keys, like a busy turn of the daemon's loop. The three kinds of work alternate in short
//! slices, so that other disk load affects all of them alike. The state is in the directory of
//! temporary files; `TMPDIR` selects another disk.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_rm_store::database::DatabaseStore;
use headroom_rm_store::{RecordChange, RecordStore as _};
use headroom_types::StoreBackend;
use serde::Serialize;

/// Length of a slice of one kind of work.
const SLICE: Duration = Duration::from_millis(250);
/// Slices of each kind.
const TURNS: u32 = 12;
/// Records of one commit.
const RECORDS: u64 = 10;
/// Bytes of one record.
const RECORD: usize = 300;
/// Number of different keys.
const KEYS: u64 = 5_000;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct StoreRateResults {
    sled_commits_per_s: u64,
    redb_commits_per_s: u64,
    fdatasync_per_s: u64,
    records_per_commit: u64,
    seconds_each: f64,
}

/// The repetitions and the total time of one kind of work.
#[derive(Debug, Default)]
struct Done {
    times: u64,
    time: Duration,
}

impl Done {
    fn for_a_slice(&mut self, mut once: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < SLICE {
            once(self.times)?;
            self.times += 1;
        }
        self.time += started.elapsed();
        Ok(())
    }
    fn per_second(&self) -> u64 {
        let micros = self.time.as_micros().max(1);
        u64::try_from(u128::from(self.times) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// Runs the three kinds in turns.
pub(crate) fn measure() -> Result<StoreRateResults> {
    let dir = tempfile::tempdir().context("a directory for the state")?;
    let mut sled = open(&dir.path().join("sled"), StoreBackend::Sled)?;
    let mut redb = open(&dir.path().join("redb"), StoreBackend::Redb)?;
    let mut file = File::create(dir.path().join("log")).context("a file to sync")?;
    let block = vec![b'x'; usize::try_from(RECORDS)? * RECORD];
    let (mut in_sled, mut in_redb, mut bare) = (Done::default(), Done::default(), Done::default());
    for _ in 0..TURNS {
        in_sled.for_a_slice(|n| Ok(sled.commit(&batch(n))?))?;
        in_redb.for_a_slice(|n| Ok(redb.commit(&batch(n))?))?;
        bare.for_a_slice(|_| {
            file.write_all(&block)?;
            Ok(file.sync_data()?)
        })?;
    }
    Ok(StoreRateResults {
        sled_commits_per_s: in_sled.per_second(),
        redb_commits_per_s: in_redb.per_second(),
        fdatasync_per_s: bare.per_second(),
        records_per_commit: RECORDS,
        seconds_each: in_sled.time.as_secs_f64(),
    })
}

fn open(dir: &Path, backend: StoreBackend) -> Result<DatabaseStore> {
    Ok(headroom_rm_store::open(dir, backend)?.store)
}

/// The records of commit `n`.
fn batch(n: u64) -> Vec<RecordChange> {
    let key = |i: u64| (n * RECORDS + i).wrapping_mul(2_654_435_761) % KEYS;
    let value =
        |i: u64| format!("\"{:>width$}\"", n * RECORDS + i, width = RECORD - 2).into_bytes();
    (0..RECORDS)
        .map(|i| RecordChange::Put {
            key: format!("measure/{:05}", key(i)),
            value: value(i),
        })
        .collect()
}

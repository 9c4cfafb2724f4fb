//! Tests of the log and its checkpoints beside a map that has the same writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::entry::ALL_KEYS;
use crate::seal::FORMAT;

/// So small that most tests have several checkpoints.
const SMALL: Bytes = Bytes::new(2 << 10);

type Model = BTreeMap<String, Vec<u8>>;

/// The entries of a commit with its seal.
fn sealed(commit: u64, mut entries: Vec<RecordEntry>) -> Vec<RecordEntry> {
    let seal = BatchSeal {
        format: FORMAT,
        commit,
        records: 0,
    };
    let value = serde_json::to_vec(&seal).expect("encodes");
    let framed = frame::entries(SEAL, &value).into_iter();
    entries.extend(framed.map(|(key, bytes)| (key, Some(bytes))));
    entries
}

/// Writes a commit to both.
fn write(database: &LoggedDatabase, model: &mut Model, commit: u64, entries: Vec<RecordEntry>) {
    for (key, bytes) in &entries {
        match bytes {
            Some(bytes) => drop(model.insert(key.clone(), bytes.clone())),
            None => drop(model.remove(key)),
        }
    }
    database
        .write(commit, sealed(commit, entries))
        .expect("writes");
}

fn entry(n: usize, size: usize) -> RecordEntry {
    (
        format!("key/{n:03}"),
        Some(vec![b'a' + u8::try_from(n % 20).expect("small"); size]),
    )
}

/// All entries except the seal.
fn contents(database: &LoggedDatabase) -> Model {
    let mut found = Model::new();
    let walked = database.walk(ALL_KEYS, |key, bytes| {
        let key = String::from_utf8(key.to_vec()).expect("text");
        assert!(
            found.keys().all(|before| *before < key),
            "{key} is in order"
        );
        found.insert(key, bytes.to_vec());
        Ok::<_, EngineError>(())
    });
    walked.expect("walks");
    found.remove(SEAL);
    found
}

/// Opens a database with what its log has.
fn try_open(backend: StoreBackend, path: &Path) -> Result<LoggedDatabase, EngineError> {
    let database = LocalDatabase::open(backend, path)?;
    let newer = newer_batches(&database, path)?;
    LoggedDatabase::begin(database, path, newer, SMALL)
}

fn open(backend: StoreBackend, path: &Path) -> LoggedDatabase {
    try_open(backend, path).expect("opens")
}

fn log_bytes(path: &Path) -> u64 {
    let sizes = log_paths(path).map(|log| fs::metadata(log).expect("the log exists").len());
    sizes.iter().sum()
}

/// Copies a database with its log, as it is on disk.
fn copy(database: &Path, to: &Path) -> PathBuf {
    let copied = to.join("store");
    if database.is_dir() {
        fs::create_dir(&copied).expect("makes");
        for entry in fs::read_dir(database).expect("reads") {
            let path = entry.expect("reads").path();
            if path.is_file() {
                fs::copy(&path, copied.join(path.file_name().expect("a name"))).expect("copies");
            }
        }
    } else {
        fs::copy(database, &copied).expect("copies");
    }
    for (from, to) in log_paths(database).iter().zip(log_paths(&copied)) {
        fs::copy(from, to).expect("copies");
    }
    copied
}

/// Waits for the checkpoint that runs.
fn end_checkpoint(database: &LoggedDatabase) {
    let mut writer = database.inner.writer().expect("it is written");
    writer.end_checkpoint().expect("a checkpoint");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_newest_entries_are_read_before_during_and_after_checkpoints(
        backend in prop::sample::select(StoreBackend::ALL.to_vec()),
        commits in prop::collection::vec(prop::collection::vec((0usize..30, 0usize..400, any::<bool>()), 1..6), 1..60),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let database = open(backend, &path);
        let mut model = Model::new();
        // The first commit gives the database its seal.
        for (commit, changes) in (1..).zip(commits) {
            let entries = changes.into_iter().map(|(n, size, put)| {
                let (key, value) = entry(n, size);
                (key, value.filter(|_| put))
            });
            write(&database, &mut model, commit, entries.collect());
            for n in 0..30 {
                let (key, _) = entry(n, 0);
                prop_assert_eq!(database.get(key.as_bytes()).expect("reads"), model.get(&key).cloned());
            }
            prop_assert_eq!(contents(&database), model.clone());
        }
        drop(database);
        prop_assert_eq!(log_bytes(&path), 0, "a closed database has an empty log");
        prop_assert_eq!(contents(&open(backend, &path)), model);
    }
}

#[test]
fn a_start_after_a_crash_replays_the_log() {
    for backend in StoreBackend::ALL {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let mut model = Model::new();
        let database = open(backend, &path);
        write(&database, &mut model, 1, vec![entry(0, 10)]);
        drop(database);
        let database = open(backend, &path);
        for commit in 2..40_u64 {
            let n = usize::try_from(commit).expect("small");
            write(
                &database,
                &mut model,
                commit,
                vec![entry(n % 7, 300), entry(n, 20)],
            );
            end_checkpoint(&database);
            let place = tempfile::tempdir().expect("a directory");
            let copied = copy(&path, place.path());
            assert_eq!(
                contents(&open(backend, &copied)),
                model,
                "{backend} after commit {commit}"
            );
        }
        assert!(
            log_bytes(&path) < 4 * SMALL.get(),
            "the files are used again"
        );
    }
}

#[test]
fn a_log_that_continues_behind_the_end_of_its_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let mut model = Model::new();
    let database = open(StoreBackend::Redb, &path);
    write(&database, &mut model, 1, vec![entry(0, 10)]);
    drop(database);
    let old = tempfile::tempdir().expect("a directory");
    let older = copy(&path, old.path());
    let database = open(StoreBackend::Redb, &path);
    for commit in 2..40 {
        write(&database, &mut model, commit, vec![entry(1, 300)]);
        end_checkpoint(&database);
    }
    for (from, to) in log_paths(&path).iter().zip(log_paths(&older)) {
        fs::copy(from, to).expect("copies");
    }
    let refused = try_open(StoreBackend::Redb, &older).expect_err("a gap");
    let text = refused.to_string();
    assert!(
        matches!(refused, EngineError::LogGap { database: 1, .. }),
        "{text}"
    );
}

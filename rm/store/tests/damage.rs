//! Tests of damaged state directories: the refusal, the unchanged files, and the start from a
//! snapshot.

#![allow(missing_docs)] // tests are read, not imported

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use headroom_rm_core::{DurableRecord, RestoredCluster};
use headroom_rm_store::engine::database_path;
use headroom_rm_store::{RecordStore as _, StoreError, anchor, open, snapshot};
use headroom_types::StoreBackend;

mod backends;
use backends::on_every_backend;

on_every_backend!(
    garbage_instead_of_a_database_is_refused,
    garbage_in_all_files_is_refused,
    the_database_of_another_program_is_refused,
    a_truncated_database_file_is_refused_or_complete,
    a_missing_database_file_is_refused_or_replaced_by_a_snapshot,
    an_empty_database_file_is_refused,
    a_database_without_the_last_commits_is_refused,
    a_flipped_byte_is_detected_or_harmless,
    a_missing_database_is_replaced_by_a_snapshot,
    a_damaged_snapshot_is_skipped_and_named,
    a_missing_database_without_snapshots_is_refused,
    another_backend_is_refused_with_the_commands_to_convert,
    a_directory_that_cannot_be_created_is_named,
    a_directory_is_used_by_one_process_at_a_time,
);

fn app(n: u32) -> headroom_types::AppId {
    headroom_types::AppId::new("job".parse().expect("name"), n)
}

/// A directory with 150 commits.
fn filled(backend: StoreBackend) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut opened = open(dir.path(), backend).expect("opens");
    for n in 0..150 {
        opened
            .journal
            .append(&DurableRecord::Node(
                format!("node-{n:03}").parse().expect("id"),
            ))
            .expect("appends");
        if n % 5 == 0 {
            opened
                .journal
                .append_document(&app(n), vec![b'a'; 20_000])
                .expect("appends");
        }
        opened.commit().expect("commits");
    }
    dir
}

/// The data file of the database.
fn data(dir: &Path, backend: StoreBackend) -> PathBuf {
    match backend {
        StoreBackend::Sled => database_path(dir, backend).join("db"),
        StoreBackend::Redb => database_path(dir, backend),
    }
}

fn nodes(restored: &RestoredCluster) -> Vec<String> {
    restored.nodes.iter().map(ToString::to_string).collect()
}

fn all_nodes() -> Vec<String> {
    (0..150).map(|n| format!("node-{n:03}")).collect()
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("reads") {
        let path = entry.expect("reads").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("reads"));
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).expect("copies");
        return;
    }
    fs::create_dir_all(to).expect("makes");
    for entry in fs::read_dir(from).expect("reads") {
        let path = entry.expect("reads").path();
        copy(&path, &to.join(path.file_name().expect("a name")));
    }
}

fn refused(dir: &Path, backend: StoreBackend) -> String {
    let before = contents(dir);
    let error = open(dir, backend).expect_err("damaged");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert_eq!(contents(dir), before, "the damaged files were changed");
    let text = error.to_string();
    assert!(
        text.contains(dir.to_str().expect("text")) && !text.contains('\n'),
        "{text}"
    );
    text
}

fn garbage_instead_of_a_database_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    fs::write(
        data(dir.path(), backend),
        b"this is not a database, and much too short",
    )
    .expect("writes");
    let text = refused(dir.path(), backend);
    assert!(
        text.contains("away (the next start then continues from") && text.contains("snapshot-"),
        "{text}"
    );
}

fn garbage_in_all_files_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    for file in contents(dir.path()).into_keys() {
        fs::write(file, b"this is not a database, and much too short").expect("writes");
    }
    refused(dir.path(), backend);
}

fn the_database_of_another_program_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    let mut foreign = b"SQLite format 3\0".to_vec();
    foreign.resize(64 << 10, 0x5a);
    fs::write(data(dir.path(), backend), foreign).expect("writes");
    assert!(refused(dir.path(), backend).contains("is damaged"));
}

/// Cuts the file at many places: either all records are present, or the open is refused.
fn a_truncated_database_file_is_refused_or_complete(backend: StoreBackend) {
    let dir = filled(backend);
    let whole = fs::read(data(dir.path(), backend)).expect("reads");
    let last = whole.iter().rposition(|b| *b != 0).expect("not empty");
    let mut found = 0;
    for at in (1..16).map(|n| n * last / 16).chain([last - 1, last]) {
        let place = tempfile::tempdir().expect("a directory");
        copy(dir.path(), place.path());
        fs::write(data(place.path(), backend), &whole[..at]).expect("writes");
        match open(place.path(), backend) {
            Ok(opened) => assert_eq!(
                nodes(&opened.restored),
                all_nodes(),
                "cut at {at} and a part is missing"
            ),
            Err(error) => {
                assert!(
                    matches!(error, StoreError::Corrupt { .. }),
                    "cut at {at}: {error}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 10, "{found} of 17 cuts were detected");
}

fn a_missing_database_file_is_refused_or_replaced_by_a_snapshot(backend: StoreBackend) {
    let dir = filled(backend);
    fs::remove_file(data(dir.path(), backend)).expect("removes");
    match backend {
        // The directory of sled still exists.
        StoreBackend::Sled => assert!(refused(dir.path(), backend).contains("is damaged")),
        StoreBackend::Redb => {
            let opened = open(dir.path(), backend).expect("continues from the snapshot");
            assert!(
                opened.notes[0].contains("lacks the last 150 commits"),
                "{:?}",
                opened.notes
            );
        }
    }
}

fn an_empty_database_file_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    fs::write(data(dir.path(), backend), b"").expect("writes");
    assert!(refused(dir.path(), backend).contains("is damaged"));
}

fn a_database_without_the_last_commits_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    let older = tempfile::tempdir().expect("a directory");
    copy(dir.path(), older.path());
    let mut opened = open(dir.path(), backend).expect("opens");
    opened
        .journal
        .append(&DurableRecord::Node("late".parse().expect("id")))
        .expect("appends");
    opened.commit().expect("commits");
    drop(opened);
    let database = database_path(dir.path(), backend);
    match backend {
        StoreBackend::Sled => fs::remove_dir_all(&database).expect("removes"),
        StoreBackend::Redb => fs::remove_file(&database).expect("removes"),
    }
    copy(&database_path(older.path(), backend), &database);
    assert!(refused(dir.path(), backend).contains("was acknowledged"));
}

/// Changes a byte at many places: either all records are present, or the open is refused.
fn a_flipped_byte_is_detected_or_harmless(backend: StoreBackend) {
    let dir = filled(backend);
    let file = data(dir.path(), backend);
    let whole = fs::read(&file).expect("reads");
    let last = whole.iter().rposition(|b| *b != 0).expect("not empty");
    let (mut found, mut harmless) = (0, 0);
    for at in (0..64).map(|n| n * last / 63) {
        let place = tempfile::tempdir().expect("a directory");
        copy(dir.path(), place.path());
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(data(place.path(), backend), changed).expect("writes");
        match open(place.path(), backend) {
            Ok(opened) => {
                assert_eq!(
                    nodes(&opened.restored),
                    all_nodes(),
                    "byte {at} changed and a part is missing"
                );
                for n in (0..150).step_by(5) {
                    let document = opened
                        .documents
                        .get(&app(n))
                        .expect("reads")
                        .expect("the document exists");
                    assert_eq!(
                        document,
                        vec![b'a'; 20_000],
                        "byte {at} changed, and a document changed"
                    );
                }
                harmless += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error, StoreError::Corrupt { .. }),
                    "byte {at}: {error}"
                );
                found += 1;
            }
        }
    }
    assert!(
        found > 0,
        "no change was detected, {harmless} were harmless"
    );
}

fn a_missing_database_is_replaced_by_a_snapshot(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut opened = open(dir.path(), backend).expect("opens");
    opened
        .journal
        .append(&DurableRecord::Node("n1".parse().expect("id")))
        .expect("appends");
    opened.commit().expect("commits");
    opened.store.snapshot().expect("writes");
    let epoch = opened.restored.epoch;
    drop(opened);
    fs::rename(
        database_path(dir.path(), backend),
        dir.path().join("damaged"),
    )
    .expect("moves");
    let opened = open(dir.path(), backend).expect("opens");
    assert_eq!(nodes(&opened.restored), ["n1"]);
    assert!(
        opened.restored.epoch.0 > epoch.0 + 100,
        "epochs after the snapshot are not reused"
    );
    assert!(opened.restored.last_app >= 1_000_000);
    assert!(opened.notes[0].contains("snapshot-"), "{:?}", opened.notes);
}

fn a_damaged_snapshot_is_skipped_and_named(backend: StoreBackend) {
    let dir = filled(backend);
    drop(open(dir.path(), backend).expect("opens, and writes another snapshot"));
    fs::rename(
        database_path(dir.path(), backend),
        dir.path().join("damaged"),
    )
    .expect("moves");
    let newest = snapshot::list(dir.path())
        .expect("lists")
        .pop()
        .expect("a snapshot");
    let text = fs::read(&newest).expect("reads");
    fs::write(&newest, &text[..text.len() / 2]).expect("writes");
    fs::write(dir.path().join("snapshot-new"), &text[..text.len() / 2]).expect("writes");
    let opened = open(dir.path(), backend).expect("continues from the earlier snapshot");
    assert!(
        nodes(&opened.restored).is_empty(),
        "the first snapshot is of the empty store"
    );
    assert!(
        opened.notes[0].contains(newest.to_str().expect("text")),
        "{:?}",
        opened.notes
    );
}

fn a_missing_database_without_snapshots_is_refused(backend: StoreBackend) {
    let dir = filled(backend);
    fs::rename(
        database_path(dir.path(), backend),
        dir.path().join("damaged"),
    )
    .expect("moves");
    for snapshot in snapshot::list(dir.path()).expect("lists") {
        fs::remove_file(snapshot).expect("removes");
    }
    let text = refused(dir.path(), backend);
    assert!(
        text.contains("commit 152 was acknowledged")
            && text.contains("rmctl operator state restore"),
        "{text}"
    );
    fs::remove_file(dir.path().join(anchor::NAME)).expect("removes");
    assert!(
        nodes(
            &open(dir.path(), backend)
                .expect("starts with an empty state")
                .restored
        )
        .is_empty()
    );
}

fn another_backend_is_refused_with_the_commands_to_convert(backend: StoreBackend) {
    let dir = filled(backend);
    let other = StoreBackend::ALL
        .into_iter()
        .find(|b| *b != backend)
        .expect("two");
    let before = contents(dir.path());
    let text = open(dir.path(), other)
        .expect_err("the database is of another backend")
        .to_string();
    assert_eq!(contents(dir.path()), before);
    assert!(
        text.contains(&format!("written with store = \"{backend}\""))
            && text.contains("rmctl operator state"),
        "{text}"
    );
    fs::write(database_path(dir.path(), other), b"").expect("writes");
    assert!(refused(dir.path(), backend).contains("two kinds"));
}

fn a_directory_that_cannot_be_created_is_named(backend: StoreBackend) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let dir = file.path().join("state");
    let text = open(&dir, backend)
        .expect_err("not a directory")
        .to_string();
    assert!(text.contains(dir.to_str().expect("text")), "{text}");
}

fn a_directory_is_used_by_one_process_at_a_time(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let held = open(dir.path(), backend).expect("opens");
    let text = open(dir.path(), backend).expect_err("in use").to_string();
    assert!(text.contains("in use by another"), "{text}");
    drop(held);
    open(dir.path(), backend).expect("opens again at once");
}

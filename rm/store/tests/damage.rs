//! A damaged state directory: refused in one sentence, left as it was, and a way back from the snapshot.

#![allow(missing_docs)] // tests are read, not imported

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use headroom_rm_core::{Restored, Save};
use headroom_rm_store::{StoreError, open};

fn app(n: u32) -> headroom_types::AppId {
    headroom_types::AppId::new("job".parse().expect("name"), n)
}

/// A directory with some hundred commits in it.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut opened = open(dir.path()).expect("opens");
    for n in 0..150 {
        opened.journal.append(&Save::Node(format!("node-{n:03}").parse().expect("id"))).expect("appends");
        if n % 5 == 0 {
            opened.journal.append_document(&app(n), vec![b'a'; 20_000]).expect("appends");
        }
        opened.journal.commit().expect("commits");
    }
    dir
}

fn nodes(restored: &Restored) -> Vec<String> {
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
    fs::create_dir_all(to).expect("makes");
    for entry in fs::read_dir(from).expect("reads") {
        let path = entry.expect("reads").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, target).map(|_| ()).expect("copies") }
    }
}

fn refused(dir: &Path) -> String {
    let before = contents(dir);
    let error = open(dir).expect_err("damaged");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert_eq!(contents(dir), before, "what is damaged was changed");
    let text = error.to_string();
    assert!(text.contains(dir.to_str().expect("text")) && !text.contains('\n'), "{text}");
    text
}

#[test]
fn garbage_instead_of_a_database() {
    let dir = filled();
    fs::write(dir.path().join("store/db"), b"this is not what was here before, and much too short").expect("writes");
    let text = refused(dir.path());
    assert!(text.contains("move it away") && text.contains("snapshot-"), "{text}");
}

#[test]
fn garbage_everywhere() {
    let dir = filled();
    for file in contents(dir.path()).into_keys() {
        fs::write(file, b"this is not what was here before, and much too short").expect("writes");
    }
    refused(dir.path());
}

#[test]
fn an_empty_database_file() {
    let dir = filled();
    fs::write(dir.path().join("store/db"), b"").expect("writes");
    assert!(refused(dir.path()).contains("store is damaged"));
}

#[test]
fn commits_that_vanished_from_the_end() {
    let dir = filled();
    let older = tempfile::tempdir().expect("a directory");
    copy(dir.path(), older.path());
    let mut opened = open(dir.path()).expect("opens");
    opened.journal.append(&Save::Node("late".parse().expect("id"))).expect("appends");
    opened.journal.commit().expect("commits");
    drop(opened);
    fs::remove_dir_all(dir.path().join("store")).expect("removes");
    copy(&older.path().join("store"), &dir.path().join("store"));
    assert!(refused(dir.path()).contains("was acknowledged"));
}

/// Wherever a byte is changed: all is there, or nothing is opened. Never a part.
#[test]
fn one_flipped_byte_anywhere() {
    let dir = filled();
    let file = dir.path().join("store/db");
    let whole = fs::read(&file).expect("reads");
    let last = whole.iter().rposition(|b| *b != 0).expect("not empty");
    let (mut found, mut harmless) = (0, 0);
    for at in (0..64).map(|n| n * last / 63) {
        let place = tempfile::tempdir().expect("a directory");
        copy(dir.path(), place.path());
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(place.path().join("store/db"), changed).expect("writes");
        match open(place.path()) {
            Ok(opened) => {
                assert_eq!(nodes(&opened.restored), all_nodes(), "byte {at} changed and a part is missing");
                for n in (0..150).step_by(5) {
                    let document = opened.documents.get(&app(n)).expect("reads").expect("is there");
                    assert_eq!(document, vec![b'a'; 20_000], "byte {at} changed and a document with it");
                }
                harmless += 1;
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt { .. }), "byte {at}: {error}");
                found += 1;
            }
        }
    }
    assert!(found > 0, "no change was found out, {harmless} were harmless");
}

#[test]
fn the_way_back_is_the_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut opened = open(dir.path()).expect("opens");
    opened.journal.append(&Save::Node("n1".parse().expect("id"))).expect("appends");
    opened.journal.commit().expect("commits");
    opened.journal.snapshot().expect("writes");
    let epoch = opened.restored.epoch;
    drop(opened);
    fs::rename(dir.path().join("store"), dir.path().join("store.damaged")).expect("moves");
    let opened = open(dir.path()).expect("opens");
    assert_eq!(nodes(&opened.restored), ["n1"]);
    assert!(opened.restored.epoch.0 > epoch.0 + 100, "numbers given after the snapshot are not given again");
    assert!(opened.notes[0].contains("snapshot-"), "{:?}", opened.notes);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let dir = file.path().join("state");
    let text = open(&dir).expect_err("not a directory").to_string();
    assert!(text.contains(dir.to_str().expect("text")), "{text}");
}

#[test]
fn one_process_in_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = open(dir.path()).expect("opens");
    let text = open(dir.path()).expect_err("in use").to_string();
    assert!(text.contains("in use by another"), "{text}");
    drop(held);
    open(dir.path()).expect("opens again at once");
}

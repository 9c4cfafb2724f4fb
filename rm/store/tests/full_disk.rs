//! Tests of a full or read-only disk: the error names the directory and the next step, and no data
//! is lost.
//!
//! Each scenario runs again in a separate mount namespace, on a small tmpfs.

#![allow(missing_docs)] // tests are read, not imported

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_rm_core::DurableRecord;
use headroom_rm_store::{OpenedStore, RecordStore as _, StoreError, open, open_with_log, snapshot};
use headroom_types::{AppId, Bytes, StoreBackend};

mod backends;
use backends::on_every_backend;

on_every_backend!(
    a_full_disk_is_named_and_loses_no_acknowledged_commits,
    a_disk_that_is_full_during_checkpoints_loses_no_acknowledged_commits,
    a_start_on_a_full_disk_fails_and_leaves_the_state_unchanged,
    a_snapshot_that_does_not_fit_keeps_the_older_snapshots,
    a_read_only_directory_is_named,
);

/// Passes the small disk to the inner test.
const DISK: &str = "HEADROOM_TEST_DISK";
/// A file that is removed to free space.
const BALLAST: &str = "ballast";

/// Runs this test again with a tmpfs of 24 MiB at `DISK`, most of it ballast, and passes that to
/// `check`.
#[allow(clippy::print_stdout)] // the runner counts what was skipped
fn on_a_small_disk(name: &str, backend: StoreBackend, check: impl FnOnce(&Path)) {
    if let Some(disk) = std::env::var_os(DISK) {
        let disk = PathBuf::from(disk);
        fs::write(disk.join(BALLAST), vec![1; 15 << 20]).expect("fits");
        return check(&disk);
    }
    let disk = tempfile::tempdir().expect("a directory");
    let inside = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=24m small \"$0\" && exec \"$@\"",
        ]);
        command
            .arg(disk.path())
            .args(program)
            .env(DISK, disk.path())
            .output()
            .expect("unshare, of util-linux, is installed")
    };
    let possible = inside(&["true"]);
    if !possible.status.success() {
        println!(
            "SKIPPED: no private mount namespace: {}",
            String::from_utf8_lossy(&possible.stderr).trim()
        );
        return;
    }
    let exe = std::env::current_exe().expect("this program");
    let again = inside(&[
        exe.to_str().expect("text"),
        "--exact",
        &format!("{backend}::{name}"),
        "--nocapture",
    ]);
    let output = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.status.success() && output.contains("1 passed"),
        "{output}\n{}",
        String::from_utf8_lossy(&again.stderr)
    );
}

fn app(n: usize) -> AppId {
    AppId::new(
        "job".parse().expect("name"),
        u32::try_from(n).expect("small"),
    )
}

fn document(n: usize) -> Vec<u8> {
    let byte = |i: usize| u8::try_from((i * 31 + n * 7 + (i >> 8) * 13) % 251).expect("small");
    (0..20_000).map(byte).collect()
}

/// Commits until an error. Returns the number of acknowledged commits and the error.
fn fill(opened: &mut OpenedStore) -> (usize, StoreError) {
    for n in 0.. {
        opened
            .journal
            .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
            .expect("appends");
        opened
            .journal
            .append_document(&app(n), document(n))
            .expect("appends");
        if let Err(error) = opened.commit() {
            return (n, error);
        }
    }
    unreachable!("the disk is small");
}

fn assert_names_the_place_and_the_way_out(error: &StoreError, dir: &Path) {
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(dir.to_str().expect("text")) && text.contains("free some space"),
        "{text}"
    );
    assert!(error.source().is_some());
}

/// Asserts that all acknowledged batches are present, and at most one unacknowledged batch.
fn assert_has(opened: &OpenedStore, acked: usize) {
    let mut have: Vec<usize> = opened
        .restored
        .nodes
        .iter()
        .map(|n| n.as_str()[1..].parse().expect("a number"))
        .collect();
    have.sort_unstable();
    assert_eq!(
        have,
        (0..have.len()).collect::<Vec<_>>(),
        "no batch is missing"
    );
    assert!(
        have.len() == acked || have.len() == acked + 1,
        "acknowledged {acked}, found {}",
        have.len()
    );
    for n in 0..have.len() {
        assert_eq!(
            opened.documents.get(&app(n)).expect("reads"),
            Some(document(n)),
            "the batch of {n} is incomplete"
        );
    }
}

/// Asserts that all acknowledged batches are present, and another one is accepted.
fn assert_continues(mut opened: OpenedStore, acked: usize) {
    assert_has(&opened, acked);
    opened
        .journal
        .append(&DurableRecord::Node("late".parse().expect("id")))
        .expect("appends");
    opened.commit().expect("commits");
}

fn a_full_disk_is_named_and_loses_no_acknowledged_commits(backend: StoreBackend) {
    on_a_small_disk(
        "a_full_disk_is_named_and_loses_no_acknowledged_commits",
        backend,
        |disk| {
            let dir = disk.join("state");
            let mut opened = open(&dir, backend).expect("opens");
            let (acked, error) = fill(&mut opened);
            assert!(acked > 20, "only {acked} fitted");
            assert_names_the_place_and_the_way_out(&error, &dir);
            opened
                .journal
                .append(&DurableRecord::Node("late".parse().expect("id")))
                .expect("appends");
            let refused = opened
                .commit()
                .expect_err("no change is accepted after a failed write");
            assert!(matches!(refused, StoreError::Failed { .. }), "{refused}");
            drop(opened);
            fs::remove_file(disk.join(BALLAST)).expect("removes");
            let opened = open(&dir, backend).expect("opens once space is free");
            assert_continues(opened, acked);
        },
    );
}

fn a_disk_that_is_full_during_checkpoints_loses_no_acknowledged_commits(backend: StoreBackend) {
    on_a_small_disk(
        "a_disk_that_is_full_during_checkpoints_loses_no_acknowledged_commits",
        backend,
        |disk| {
            let dir = disk.join("state");
            let log = Bytes::from_kib(64);
            // The database stays so small that a copy of it fits beside it later.
            fs::write(disk.join("rest"), vec![1; 4 << 20]).expect("fits");
            let mut opened = open_with_log(&dir, backend, log).expect("opens");
            let (acked, error) = fill(&mut opened);
            assert!(acked > 20, "only {acked} fitted");
            assert_names_the_place_and_the_way_out(&error, &dir);
            drop(opened);
            for file in [BALLAST, "rest"] {
                fs::remove_file(disk.join(file)).expect("removes");
            }
            let opened = open_with_log(&dir, backend, log).expect("opens once space is free");
            assert_continues(opened, acked);
        },
    );
}

fn a_start_on_a_full_disk_fails_and_leaves_the_state_unchanged(backend: StoreBackend) {
    on_a_small_disk(
        "a_start_on_a_full_disk_fails_and_leaves_the_state_unchanged",
        backend,
        |disk| {
            let dir = disk.join("state");
            let mut opened = open(&dir, backend).expect("opens");
            let (acked, _) = fill(&mut opened);
            drop(opened);
            for _ in 0..3 {
                let error = open(&dir, backend).expect_err("the copy for the check does not fit");
                assert_names_the_place_and_the_way_out(&error, &dir);
            }
            fs::remove_file(disk.join(BALLAST)).expect("removes");
            assert_has(&open(&dir, backend).expect("opens"), acked);
        },
    );
}

fn a_snapshot_that_does_not_fit_keeps_the_older_snapshots(backend: StoreBackend) {
    on_a_small_disk(
        "a_snapshot_that_does_not_fit_keeps_the_older_snapshots",
        backend,
        |disk| {
            let dir = disk.join("state");
            let mut opened = open(&dir, backend).expect("opens");
            for n in 0..2000 {
                opened
                    .journal
                    .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
                    .expect("appends");
            }
            opened.commit().expect("commits");
            let before = snapshot::list(&dir).expect("lists");
            let rest = free_bytes(disk).saturating_sub(16 << 10);
            fs::write(disk.join("rest"), vec![1; rest]).expect("fits");
            let error = opened.store.snapshot().expect_err("does not fit");
            assert_names_the_place_and_the_way_out(&error, &dir);
            assert_eq!(snapshot::list(&dir).expect("lists"), before);
            assert!(
                !dir.join("snapshot-new").exists(),
                "the incomplete snapshot is removed"
            );
            fs::remove_file(disk.join(BALLAST)).expect("removes");
            let written = opened.store.snapshot().expect("fits");
            assert_eq!(snapshot::read(&written).expect("whole").records.len(), 2001);
        },
    );
}

/// Free bytes, by `df`.
fn free_bytes(disk: &Path) -> usize {
    let output = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(disk)
        .output()
        .expect("df runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .nth(1)
        .expect("a second line")
        .trim()
        .parse()
        .expect("a number")
}

fn a_read_only_directory_is_named(backend: StoreBackend) {
    on_a_small_disk("a_read_only_directory_is_named", backend, |disk| {
        let dir = disk.join("state");
        let mut opened = open(&dir, backend).expect("opens");
        opened
            .journal
            .append(&DurableRecord::Node("n0".parse().expect("id")))
            .expect("appends");
        opened
            .journal
            .append_document(&app(0), document(0))
            .expect("appends");
        opened.commit().expect("commits");
        drop(opened);
        let remount = |how: &str| {
            let done = Command::new("mount")
                .args(["-o", how])
                .arg(disk)
                .status()
                .expect("mount runs");
            assert!(done.success(), "{how}");
        };
        remount("remount,ro");
        let error = open(&dir, backend).expect_err("read-only");
        assert!(matches!(error, StoreError::Directory { .. }), "{error:?}");
        assert!(
            error.to_string().contains(dir.to_str().expect("text")),
            "{error}"
        );
        remount("remount,rw");
        assert_has(&open(&dir, backend).expect("opens"), 1);
    });
}

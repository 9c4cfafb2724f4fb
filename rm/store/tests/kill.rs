//! Tests of a process that is killed between commits: all acknowledged commits are present.

#![allow(missing_docs)] // tests are read, not imported

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use headroom_rm_core::DurableRecord;
use headroom_rm_store::{RecordStore as _, open, open_with_log, snapshot};
use headroom_types::{AppId, Bytes, StoreBackend};

mod backends;
use backends::on_every_backend;

on_every_backend!(
    every_acknowledged_batch_survives_a_kill,
    a_kill_during_a_snapshot_leaves_only_complete_snapshots
);

/// Passes the directory to the process that is killed.
const CHILD: &str = "HEADROOM_TEST_STORE";

fn app(n: usize) -> AppId {
    AppId::new(
        "job".parse().expect("name"),
        u32::try_from(n).expect("small"),
    )
}

fn document(n: usize) -> Vec<u8> {
    vec![b'0' + u8::try_from(n % 10).expect("small"); 1000 + 7919 * (n % 9)]
}

/// Size of the files of the log. Kills also hit checkpoints.
const LOG: Bytes = Bytes::from_kib(256);

/// Commits without end and prints a line after each commit.
fn commit_for_ever(dir: &Path, backend: StoreBackend) -> ! {
    let mut opened = open_with_log(dir, backend, LOG).expect("opens");
    let mut out = std::io::stdout();
    let first = opened.restored.nodes.len();
    let mut n = first;
    loop {
        opened
            .journal
            .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
            .expect("appends");
        opened
            .journal
            .append_document(&app(n % 20), document(n))
            .expect("appends");
        opened.commit().expect("commits");
        writeln!(out, "acked {n}")
            .and_then(|()| out.flush())
            .expect("the parent reads");
        n += 1;
    }
}

/// Starts this test as a separate process in `dir`.
fn start(name: &str, backend: StoreBackend, dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("{backend}::{name}"), "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

fn every_acknowledged_batch_survives_a_kill(backend: StoreBackend) {
    if let Some(dir) = std::env::var_os(CHILD) {
        commit_for_ever(Path::new(&dir), backend);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut known = 0;
    for round in 0..8 {
        let mut child = start(
            "every_acknowledged_batch_survives_a_kill",
            backend,
            dir.path(),
        );
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let wanted = known + 5 + 37 * round;
        let mut acked = 0;
        for line in lines.by_ref() {
            acked = number(&line.expect("reads")).unwrap_or(acked);
            if acked >= wanted {
                break;
            }
        }
        child.kill().expect("kills");
        child.wait().expect("ends");
        acked = lines
            .filter_map(|line| number(&line.ok()?))
            .last()
            .unwrap_or(acked);
        assert!(acked >= wanted, "the child ended by itself at {acked}");
        known = verify(dir.path(), acked, backend);
    }
}

/// Commits one node and writes a snapshot, without end.
fn snapshot_for_ever(dir: &Path, backend: StoreBackend) -> ! {
    let mut opened = open(dir, backend).expect("opens");
    let mut out = std::io::stdout();
    for n in opened.restored.nodes.len().. {
        opened
            .journal
            .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
            .expect("appends");
        opened.commit().expect("commits");
        opened.store.snapshot().expect("writes");
        writeln!(out, "acked {n}")
            .and_then(|()| out.flush())
            .expect("the parent reads");
    }
    unreachable!("numbers do not end");
}

fn a_kill_during_a_snapshot_leaves_only_complete_snapshots(backend: StoreBackend) {
    if let Some(dir) = std::env::var_os(CHILD) {
        snapshot_for_ever(Path::new(&dir), backend);
    }
    let dir = tempfile::tempdir().expect("a directory");
    for round in 0..10 {
        let mut child = start(
            "a_kill_during_a_snapshot_leaves_only_complete_snapshots",
            backend,
            dir.path(),
        );
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = lines
            .by_ref()
            .filter_map(|line| number(&line.ok()?))
            .nth(3 + round % 3)
            .expect("snapshots are written");
        child.kill().expect("kills");
        child.wait().expect("ends");
        let acked = lines
            .filter_map(|line| number(&line.ok()?))
            .last()
            .unwrap_or(line);
        let all = snapshot::list(dir.path()).expect("lists");
        assert!(
            (3..=4).contains(&all.len()),
            "three snapshots are kept, and a fourth one until its removal: {all:?}"
        );
        let newest = all
            .iter()
            .map(|path| snapshot::read(path).expect("whole"))
            .next_back()
            .expect("some");
        let nodes = newest
            .records
            .iter()
            .filter(|(key, _)| key.starts_with("node/"))
            .count();
        assert!(
            nodes > acked,
            "the newest snapshot has {nodes} nodes, {acked} was acknowledged with its snapshot"
        );
    }
}

fn number(line: &str) -> Option<usize> {
    line.split("acked ").nth(1)?.parse().ok()
}

/// Asserts that all nodes up to `acked` are present, and at most one more. Returns their number.
fn verify(dir: &Path, acked: usize, backend: StoreBackend) -> usize {
    let opened = open(dir, backend).expect("opens after a kill");
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
        have.len() == acked + 1 || have.len() == acked + 2,
        "acknowledged {acked}, found {}",
        have.len()
    );
    for n in have.len().saturating_sub(20)..have.len() {
        assert_eq!(
            opened.documents.get(&app(n % 20)).expect("reads"),
            Some(document(n)),
            "the batch of {n} is incomplete"
        );
    }
    have.len()
}

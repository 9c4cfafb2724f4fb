//! A process that is killed in the middle of its commits: whatever it was told is durable is there.

#![allow(missing_docs)] // tests are read, not imported

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use headroom_rm_core::Save;
use headroom_rm_store::open;
use headroom_types::AppId;

const CHILD: &str = "HEADROOM_TEST_STORE";

fn app(n: usize) -> AppId {
    AppId::new("job".parse().expect("name"), u32::try_from(n).expect("small"))
}

fn document(n: usize) -> Vec<u8> {
    vec![b'0' + u8::try_from(n % 10).expect("small"); 1000 + 7919 * (n % 9)]
}

/// Commits without end and says so after each.
fn commit_for_ever(dir: &Path) -> ! {
    let mut opened = open(dir).expect("opens");
    let mut out = std::io::stdout();
    let first = opened.restored.nodes.len();
    let mut n = first;
    loop {
        opened.journal.append(&Save::Node(format!("n{n}").parse().expect("id"))).expect("appends");
        opened.journal.append_document(&app(n % 20), document(n)).expect("appends");
        opened.journal.commit().expect("commits");
        writeln!(out, "acked {n}").and_then(|()| out.flush()).expect("the parent reads");
        n += 1;
    }
}

#[test]
fn every_acknowledged_batch_survives_a_kill() {
    if let Some(dir) = std::env::var_os(CHILD) {
        commit_for_ever(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut known = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "every_acknowledged_batch_survives_a_kill", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
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
        acked = lines.filter_map(|line| number(&line.ok()?)).last().unwrap_or(acked);
        assert!(acked >= wanted, "the child ended by itself at {acked}");
        known = verify(dir.path(), acked);
    }
}

fn number(line: &str) -> Option<usize> {
    line.split("acked ").nth(1)?.parse().ok()
}

/// All up to `acked` is there, at most one more, and nothing in between is missing. Answers how many there are.
fn verify(dir: &Path, acked: usize) -> usize {
    let opened = open(dir).expect("opens after a kill");
    let mut have: Vec<usize> = opened.restored.nodes.iter().map(|n| n.as_str()[1..].parse().expect("a number")).collect();
    have.sort_unstable();
    assert_eq!(have, (0..have.len()).collect::<Vec<_>>(), "a hole");
    assert!(have.len() == acked + 1 || have.len() == acked + 2, "acknowledged {acked}, there are {}", have.len());
    for n in have.len().saturating_sub(20)..have.len() {
        assert_eq!(opened.documents.get(&app(n % 20)).expect("reads"), Some(document(n)), "the batch of {n} is not whole");
    }
    have.len()
}

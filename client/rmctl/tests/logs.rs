//! `rmctl logs` as a process with a fake resource manager.

#![allow(missing_docs)] // tests are read, not imported

#[allow(dead_code)] // other tests use the rest
mod fake_manager;

use std::sync::atomic::{AtomicUsize, Ordering};

use fake_manager::{APP, Fake, all_failed, usual};

/// The answers of a cluster with one job, whose attempt shares the log of its container.
fn shared_log(method: &str, path: &str) -> (u16, String) {
    const LOG: &str = "26/01/02 INFO (TID 44) a\n26/01/02 INFO (TID 45) b\n  at c\n\
                       26/01/02 INFO (TID 46) d\n";
    match path.trim_end_matches("?tasks=none") {
        "/v1/apps/word-count.7" => (200, APP.to_owned()),
        p if p.contains("/logs/stderr") => (200, LOG.to_owned()),
        _ => usual(method, path),
    }
}

#[test]
fn logs_are_printed_unchanged() {
    let fake = Fake::new(usual);
    assert_eq!(
        fake.rmctl(&["logs", "word-count.7/map/7@2"]).out,
        "one\ntwo\nthree\n"
    );
    assert_eq!(
        fake.rmctl(&["logs", "word-count.7/map/7", "--tail", "1"])
            .out,
        "three\n"
    );
    assert_eq!(
        fake.rmctl(&["logs", "last", "--tail", "1"]).out,
        "map/7@2 │ three\n"
    );
}

#[test]
fn a_task_that_shares_a_log_prints_its_own_lines() {
    let fake = Fake::new(shared_log);
    let ran = fake.rmctl(&["logs", "word-count.7/map/7@2"]);
    assert_eq!(ran.out, "26/01/02 INFO (TID 45) b\n  at c\n");
    assert!(
        ran.err.contains("is shared with other tasks"),
        "{}",
        ran.err
    );
    let whole = fake.rmctl(&["logs", "word-count.7", "--no-prefix"]).out;
    assert!(
        whole.contains("(TID 44) a\n") && whole.contains("(TID 46) d\n"),
        "{whole}"
    );
}

/// Reads of logs in this process.
static READS: AtomicUsize = AtomicUsize::new(0);

/// An ended job, whose attempt has empty logs.
fn silent(method: &str, path: &str) -> (u16, String) {
    if path.contains("/logs/") {
        READS.fetch_add(1, Ordering::SeqCst);
        return usual(method, "/no-such-log");
    }
    all_failed(method, path)
}

/// An ended job, whose attempt has output.
fn loud(method: &str, path: &str) -> (u16, String) {
    let (code, text) = silent(method, path);
    (code, text.replace("\"silent\": true", "\"silent\": false"))
}

#[test]
fn a_follower_does_not_read_empty_logs() {
    let follow = ["logs", "word-count.7", "--follow"];
    let ran = Fake::new(silent).rmctl(&follow);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert_eq!(READS.load(Ordering::SeqCst), 0);
    Fake::new(loud).rmctl(&follow);
    assert!(READS.load(Ordering::SeqCst) > 0);
}

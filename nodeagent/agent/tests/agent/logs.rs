//! Logs over HTTP: ranges, followers, and limits, while a program writes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::fake_rm::{FakeRm, WAIT_TIMEOUT};
use crate::node::{Node, on_any_disk, sh};

/// Head and body of one call.
fn call(node: &Node, path: &str, headers: &str) -> (String, String) {
    let host = node.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).expect("connects");
    stream
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a deadline");
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {host}\r\n{headers}\r\n"
    )
    .expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_request_continues_a_log() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 64, sh("printf 0123456789; exit 0"));
    rm.exit(&id).await;
    let log = |headers: &str| call(&node, &format!("/v1/containers/{id}/logs/stdout"), headers);
    let (head, body) = log("");
    assert!(
        head.starts_with("http/1.0 200") && head.contains("headroom-log-end: 10"),
        "{head}"
    );
    assert_eq!(body, "0123456789");
    let (head, body) = log("Range: bytes=4-\r\n");
    assert!(
        head.starts_with("http/1.0 206") && head.contains("content-range: bytes 4-9/10"),
        "{head}"
    );
    assert_eq!(body, "456789");
    let (head, body) = log("Range: bytes=2-3\r\n");
    assert!(head.contains("content-range: bytes 2-3/10"), "{head}");
    assert_eq!(body, "23");
    assert_eq!(log("Range: bytes=-2\r\n").1, "89");
    let (head, _) = log("Range: bytes=10-\r\n");
    assert!(
        head.starts_with("http/1.0 416") && head.contains("content-range: bytes */10"),
        "{head}"
    );
    assert!(log("Range: lines=1-\r\n").0.starts_with("http/1.0 400"));
    let (head, _) = call(
        &node,
        &format!("/v1/containers/{id}/logs/..%2Forder.json"),
        "",
    );
    assert!(head.starts_with("http/1.0 400"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_every_line_until_the_end() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        64,
        sh("for n in 1 2 3 4 5 6; do echo line $n; sleep 0.2; done; exit 0"),
    );
    rm.running(&id).await;
    let path = format!("/v1/containers/{id}/logs/stdout?follow=true");
    let (head, body) = tokio::task::block_in_place(|| call(&node, &path, "Range: bytes=0-\r\n"));
    assert!(head.starts_with("http/1.0 200"), "{head}");
    assert_eq!(
        body,
        (1..=6).map(|n| format!("line {n}\n")).collect::<String>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_bounded_and_a_killed_agent_loses_no_line() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let config = dir.path().join("nodeagent.toml");
    let text = "[isolation]\nrun_as = 'agent'\nallow_root = true\nprivate_tmp = false\n[logs]\nsize = '64KiB'\ncount = 2\n";
    std::fs::write(&config, on_any_disk(text)).expect("writes");
    let mut node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    let script = "n=0; while [ $n -lt 60000 ]; do echo $n; n=$((n+1)); done; echo done; sleep 63";
    let id = rm.run(1, 64, sh(script));
    rm.running(&id).await;
    // During the writes: no agent reads or trims the log, and the program does not block.
    node.crash();
    rm.until("the last line", |_| {
        node.text(&id, "stdout").ends_with("done\n").then_some(())
    })
    .await;
    let whole = node.text(&id, "stdout");
    let lines: Vec<&str> = whole.trim_start_matches('\0').lines().collect();
    assert_eq!(lines.last(), Some(&"done"));
    let first: usize = lines[1].parse().expect("a whole line");
    assert!(
        lines[1..lines.len() - 1]
            .iter()
            .zip(first..)
            .all(|(line, n)| *line == n.to_string()),
        "a line is missing"
    );
    node.start_again();
    let disk_usage = || {
        std::os::unix::fs::MetadataExt::blocks(
            &std::fs::metadata(node.file(&id, "stdout")).expect("metadata"),
        ) * 512
    };
    rm.until("the log to be trimmed", |_| {
        (disk_usage() <= 2 * 65_536 + 4096).then_some(())
    })
    .await;
    let (head, body) = call(
        &node,
        &format!("/v1/containers/{id}/logs/stdout"),
        "Range: bytes=0-\r\n",
    );
    assert!(
        head.contains("headroom-log-start: 262144") || head.contains("headroom-log-start: 196608"),
        "{head}"
    );
    assert!(body.ends_with("59999\ndone\n") && body.len() <= 2 * 65_536);
}

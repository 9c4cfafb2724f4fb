//! Malicious and faulty callers: they receive clear errors, and they do not delay other callers.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::time::Duration;

use fakes::*;
use headroom_client::Client;
use headroom_rm_server::{ManagerOptions, RunningManager, start};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A resource manager with short timeouts.
async fn impatient(state: &std::path::Path) -> (RunningManager, Client) {
    let mut options =
        ManagerOptions::new("127.0.0.1:0".parse().expect("address"), state.to_owned());
    (options.header_time, options.body_time) = (Duration::from_secs(2), Duration::from_secs(2));
    let running = start(options).await.expect("starts");
    let client = Client::new(&running.url).expect("address");
    (running, client)
}

async fn connect(client: &Client) -> TcpStream {
    TcpStream::connect(client.base().strip_prefix("http://").expect("an address"))
        .await
        .expect("connects")
}

/// Reads until the connection ends. Returns the status, and the problem if there is one.
async fn answer(mut stream: TcpStream) -> (Option<u16>, Option<ProblemDetails>) {
    let mut text = Vec::new();
    // A reset after the response is also an end.
    let _ = soon("the end of the connection", stream.read_to_end(&mut text)).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split_whitespace().nth(1).and_then(|s| s.parse().ok());
    let problem = text
        .split_once("\r\n\r\n")
        .and_then(|(_, body)| serde_json::from_str(body).ok());
    (status, problem)
}

fn head(length: &str) -> String {
    format!(
        "POST /v1/apps HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}connection: close\r\n\r\n"
    )
}

/// Bytes arrive one by one, each within a timeout for a single read.
#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_are_disconnected_and_do_not_block_other_callers() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = impatient(dir.path()).await;
    let mut dripping = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&client).await;
        dripping.push(tokio::spawn(async move {
            for byte in "POST /v1/apps HTTP/1.1\r\nx-never-ending: "
                .bytes()
                .chain(std::iter::repeat(b'a'))
            {
                if stream.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }));
    }
    client
        .submit(&unmanaged("job"))
        .await
        .expect("other callers are served");
    for drip in dripping {
        soon("the disconnection of a slow client", drip)
            .await
            .expect("ends");
    }
    client.status().await.expect("other callers are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_body_is_refused_after_a_timeout() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = impatient(dir.path()).await;
    let mut stream = connect(&client).await;
    stream
        .write_all(head("content-length: 100\r\n").as_bytes())
        .await
        .expect("writes");
    stream.write_all(b"{\"name\":").await.expect("writes");
    let (status, problem) = answer(stream).await;
    let problem = problem.expect("a problem");
    assert_eq!(
        (status, problem.code),
        (Some(400), ErrorCode::HR0400),
        "{problem}"
    );
    assert!(problem.detail.contains("did not arrive"), "{problem}");
    assert!(
        client.apps().await.expect("answers").is_empty(),
        "no application was created"
    );
}

/// The length is not announced, so the limit applies to the received bytes.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_body_is_refused_at_the_size_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (mut from, mut to) = connect(&client).await.into_split();
    let sending = tokio::spawn(async move {
        to.write_all(head("transfer-encoding: chunked\r\n").as_bytes())
            .await
            .expect("writes");
        let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, " ".repeat(64 << 10));
        // The other end stops reading long before this loop ends.
        for _ in 0..(64 << 4) {
            if to.write_all(chunk.as_bytes()).await.is_err() {
                return true;
            }
        }
        false
    });
    let mut text = Vec::new();
    let _ = soon("a response", from.read_to_end(&mut text)).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.is_empty() || (text.contains(" 413 ") && text.contains("HR0413")),
        "{text}"
    );
    drop(from);
    assert!(
        soon("the sender to be stopped", sending)
            .await
            .expect("ends"),
        "the server read 64 MiB"
    );
    client
        .submit(&unmanaged("job"))
        .await
        .expect("other callers are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn malicious_bodies_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let huge = r#"{"name":"a","priority":1e999999999}"#.to_owned();
    let wide = format!("{{{}\"name\":\"a\"}}", "\"name\":\"a\",".repeat(50_000));
    for body in [deep, huge, wide, "\u{0}\u{0}".to_owned(), String::new()] {
        let mut stream = connect(&client).await;
        stream
            .write_all(head(&format!("content-length: {}\r\n", body.len())).as_bytes())
            .await
            .expect("writes");
        stream.write_all(body.as_bytes()).await.expect("writes");
        let (status, problem) = answer(stream).await;
        let problem = problem.unwrap_or_else(|| {
            panic!(
                "a response with status {status:?} and no problem for {:.60}",
                body
            )
        });
        assert_eq!(
            (status, problem.code),
            (Some(400), ErrorCode::HR0400),
            "{problem}"
        );
        assert!(
            problem.detail.len() < 1000,
            "the problem repeats the body: {:.200}",
            problem.detail
        );
    }
    assert!(
        client.apps().await.expect("answers").is_empty(),
        "no application was created"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_above_the_size_limit_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let many = "x-a: b\r\n".repeat(2000);
    let long = format!("x-a: {}\r\n", "b".repeat(1 << 20));
    for headers in [many, long] {
        let mut stream = connect(&client).await;
        // The other end may close the connection in between.
        let _ = stream
            .write_all(
                format!("GET /v1/apps HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes(),
            )
            .await;
        let (status, _) = answer(stream).await;
        assert!(matches!(status, None | Some(431 | 400)), "{status:?}");
    }
    client.apps().await.expect("other callers are served");
}

//! The YARN node manager API of a real agent.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use headroom_types::{ContainerId, ExitReason};
use serde_json::{Value, json};

use crate::fake_rm::FakeRm;
use crate::node::{GREEDY, Node, sh};

/// Status and body of one call.
fn call(node: &Node, path: &str, accept: &str) -> (u16, String) {
    let host = node.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).expect("connects");
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"
    )
    .expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("a status");
    (status, body.to_owned())
}

fn get(node: &Node, path: &str) -> Value {
    let (status, body) = call(node, &format!("/ws/v1/node/{path}"), "application/json");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"))
}

fn exception(node: &Node, path: &str, accept: &str) -> (u16, String) {
    let (status, body) = call(node, path, accept);
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"));
    (
        status,
        body["RemoteException"]["exception"]
            .as_str()
            .expect("a kind")
            .to_owned(),
    )
}

fn name(id: &ContainerId) -> String {
    format!("container_e01_1700000000000_0001_01_{:06}", id.seq)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_listed_while_running_and_after_its_end() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let (running, killed) = (
        rm.run(1, 32, sh("echo hello; exec sleep 60")),
        rm.run(2, 32, sh(GREEDY)),
    );
    rm.running(&running).await;
    let report = rm.exit(&killed).await;
    assert_eq!(report.reason, ExitReason::OverheadOom, "{report:#?}");

    // The API may show the ended container a moment after its report arrived.
    rm.until("the ended container in the YARN API", |_| {
        let (status, _) = call(
            &node,
            &format!("/ws/v1/node/containers/{}", name(&killed)),
            "application/json",
        );
        (status == 200).then_some(())
    })
    .await;
    let live = get(&node, &format!("containers/{}", name(&running)))["container"].clone();
    assert_eq!(
        (&live["state"], &live["exitCode"]),
        (&json!("RUNNING"), &json!(-1000))
    );
    assert_eq!(
        (&live["totalMemoryNeededMB"], &live["headroomId"]),
        (&json!(32), &json!(running.to_string()))
    );
    let over = get(&node, &format!("containers/{}", name(&killed)))["container"].clone();
    assert_eq!(
        (&over["state"], &over["exitCode"], &over["exitReason"]),
        (
            &json!("EXITED_WITH_FAILURE"),
            &json!(-104),
            &json!("overhead_oom")
        )
    );
    assert!(
        over["diagnostics"]
            .as_str()
            .expect("a text")
            .contains("physical memory used"),
        "{over}"
    );
    assert!(
        over["memoryPeakBytes"].as_u64().expect("a number") >= 16 << 20,
        "{over}"
    );

    let all = get(&node, "containers")["containers"]["container"].clone();
    assert_eq!(all.as_array().expect("a list").len(), 2);
    let app = get(&node, "apps/application_1700000000000_0001")["app"].clone();
    assert_eq!(
        (&app["state"], &app["containerids"]),
        (&json!("RUNNING"), &json!([name(&running), name(&killed)]))
    );
    assert_eq!(
        get(&node, "apps?state=FINISHED"),
        json!({"apps": {"app": []}})
    );
    assert_eq!(get(&node, "apps?state=RUNNING")["apps"]["app"][0], app);

    // The container is forgotten; its directory is kept for its logs.
    rm.forget(&killed);
    rm.until("the forgotten container", |_| {
        let state =
            get(&node, &format!("containers/{}", name(&killed)))["container"]["state"].clone();
        (state == "DONE").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_from_the_beginning_or_the_end() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 32, sh("echo first; echo last; echo oops >&2"));
    rm.exit(&id).await;
    let base = format!("/ws/v1/node/containers/{}/logs", name(&id));
    let files = get(&node, &format!("containers/{}/logs", name(&id)))["containerLogsInfo"]["containerLogInfo"].clone();
    let sizes: Vec<(&str, &str)> = files
        .as_array()
        .expect("a list")
        .iter()
        .map(|f| {
            (
                f["fileName"].as_str().expect("name"),
                f["fileSize"].as_str().expect("size"),
            )
        })
        .collect();
    assert_eq!(sizes, [("stdout", "11"), ("stderr", "5")]);
    let text = |path: &str| call(&node, path, "text/plain");
    assert_eq!(
        text(&format!("{base}/stdout")),
        (200, "first\nlast\n".into())
    );
    assert_eq!(
        text(&format!("{base}/stdout?size=-5&format=octet-stream")),
        (200, "last\n".into())
    );
    assert_eq!(
        text(&format!("{base}/stdout?size=5")),
        (200, "first".into())
    );
    assert_eq!(
        text(&format!("/ws/v1/node/containerlogs/{}/stderr", name(&id))),
        (200, "oops\n".into())
    );
    assert_eq!(
        exception(&node, &format!("{base}/order.json"), "*/*"),
        (404, "NotFoundException".into())
    );
    assert_eq!(
        exception(&node, &format!("{base}/..%2forder.json"), "*/*"),
        (404, "NotFoundException".into())
    );
    assert_eq!(
        exception(&node, &format!("{base}/stdout?format=pdf"), "*/*"),
        (400, "BadRequestException".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_information_and_errors_have_the_format_of_yarn() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let info = get(&node, "info")["nodeInfo"].clone();
    assert_eq!(
        (
            &info["totalPmemAllocatedContainersMB"],
            &info["nodeHealthy"],
            &info["healthReport"]
        ),
        (&json!(256), &json!(true), &json!(""))
    );
    assert!(
        info["id"]
            .as_str()
            .expect("id")
            .starts_with(info["nodeHostName"].as_str().expect("name")),
        "{info}"
    );
    let missing = "/ws/v1/node/containers/container_e01_1700000000000_0001_01_000009";
    assert_eq!(
        exception(&node, missing, "*/*"),
        (404, "NotFoundException".into())
    );
    assert_eq!(
        exception(&node, "/ws/v1/node/containers/nonsense", "*/*"),
        (400, "BadRequestException".into())
    );
    assert_eq!(
        exception(&node, "/ws/v1/node/apps?state=ASLEEP", "*/*"),
        (400, "BadRequestException".into())
    );
    assert_eq!(
        exception(&node, "/ws/v1/node/resources/gpu", "*/*"),
        (404, "NotFoundException".into())
    );
    assert_eq!(
        exception(&node, "/ws/v1/node/info", "application/xml"),
        (406, "WebApplicationException".into())
    );
}

/// Every address of the node agent that the documentation page names is served.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_yarn_addresses_are_served() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let page = include_str!("../../../../docs/yarn.md");
    let paths: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `curl NM")?.split('`').next())
        .collect();
    for path in &paths {
        let (status, text) = call(&node, path, "*/*");
        assert!(
            !text.contains("nothing at") && [200, 404].contains(&status),
            "{path}: {status} {text}"
        );
    }
    assert!(paths.len() >= 9, "{paths:?}");
}

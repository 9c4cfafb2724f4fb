//! The connection of a node agent after the change of its protocol: desired state, reports and their
//! replies, and lines that are refused.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_client::{Client, ClientResult, JsonLineStream, NodeReportSender, NodeStream};
use headroom_types::{Bytes, Epoch};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::node_channel::{
    NODE_CHANNEL_PROTOCOL, NodeChannelLine, NodeChannelReport, NodeReportOutcome,
};
use headroom_wire::v1::nodes::{NodeHealthState, NodeReport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn report(number: u64, epoch: Epoch) -> NodeChannelReport {
    NodeChannelReport {
        number,
        report: NodeReport {
            epoch,
            containers: Vec::new(),
            exits: Vec::new(),
            host_used: Bytes::from_mib(100),
            health: NodeHealthState::Healthy,
            reload: None,
            unattributed: Bytes::ZERO,
            left_by: Vec::new(),
        },
    }
}

async fn open(
    client: &Client,
    node: &FakeNode,
) -> (JsonLineStream<NodeChannelLine>, NodeReportSender) {
    let stream = client.node_stream(&node.id, node.epoch).await;
    match stream.expect("opens") {
        NodeStream::Channel(lines, sender) => (lines, sender),
        NodeStream::Lines(_) => panic!("the protocol did not change"),
    }
}

async fn line(lines: &mut JsonLineStream<NodeChannelLine>) -> NodeChannelLine {
    let line = soon("a line", lines.next()).await;
    line.expect("the channel is open").expect("a line")
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_and_desired_state_share_a_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let node = FakeNode::join(&client, "n1", 512).await;
    let (mut lines, mut sender) = open(&client, &node).await;
    let NodeChannelLine::Desired(first) = line(&mut lines).await else {
        panic!("the first line is not desired state")
    };
    assert_eq!(first.epoch, node.epoch);

    sender.send(&report(1, node.epoch)).await.expect("sends");
    let stale = Epoch(node.epoch.0 + 7);
    sender.send(&report(2, stale)).await.expect("sends");
    sender.send(&report(3, node.epoch)).await.expect("sends");
    for expected in 1..=3 {
        let NodeChannelLine::Reply { number, outcome } = line(&mut lines).await else {
            panic!("no reply to report {expected}")
        };
        assert_eq!(number, expected);
        match (number, outcome) {
            (2, NodeReportOutcome::Refused(problem)) => {
                assert_eq!(problem.code, ErrorCode::HR0410, "{problem}");
            }
            (_, NodeReportOutcome::Received(reply)) => {
                assert!(reply.heartbeat_ms.is_some());
            }
            (_, outcome) => panic!("report {number}: {outcome:?}"),
        }
    }
    let shown = client.node(&node.id).await.expect("a node");
    assert_eq!(shown.host_used, Bytes::from_mib(100));
}

/// Registers the node with a sequence number, and returns its channel.
async fn join(
    client: &Client,
    node: &FakeNode,
    serial: u64,
) -> ClientResult<(JsonLineStream<NodeChannelLine>, NodeReportSender)> {
    let body = node.registration(serial);
    let (registered, stream) = client.register_node_with_stream(&node.id, &body).await?;
    assert_eq!(registered.epoch, node.epoch);
    match stream {
        Some(NodeStream::Channel(lines, sender)) => Ok((lines, sender)),
        Some(NodeStream::Lines(_)) | None => panic!("the protocol did not change"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_opens_the_channel_with_missed_commands() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    let asked = master.sync(vec![master.ask("main", mib(64), 1)]).await;
    asked.expect("asks");
    until("the command to run", || async {
        client
            .containers(None)
            .await
            .ok()
            .filter(|all| all.len() == 1)
    })
    .await;
    // The command was lost with the earlier connection.
    node.line = None;
    let (mut lines, mut sender) = join(&client, &node, 1).await.expect("registers");
    let NodeChannelLine::Desired(desired) = line(&mut lines).await else {
        panic!("no desired state")
    };
    assert_eq!(desired.containers.len(), 1, "{desired:?}");
    sender.send(&report(1, node.epoch)).await.expect("sends");
    let NodeChannelLine::Reply { number: 1, .. } = line(&mut lines).await else {
        panic!("no reply")
    };
}

/// Otherwise another agent with the name of a node could end the stream of the right one.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_leaves_the_open_channel() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let node = FakeNode::join(&client, "n1", 512).await;
    let (mut lines, mut sender) = join(&client, &node, 9).await.expect("registers");
    let refused = join(&client, &node, 8).await.expect_err("it is older");
    assert_eq!(refused.code(), Some(ErrorCode::HR0409), "{refused}");
    sender.send(&report(1, node.epoch)).await.expect("sends");
    loop {
        if let NodeChannelLine::Reply { number, .. } = line(&mut lines).await {
            assert_eq!(number, 1);
            break;
        }
    }
    // A later registration replaces the channel.
    let _later = join(&client, &node, 10).await.expect("registers");
    let end = async { while let Some(Ok(_)) = lines.next().await {} };
    soon("the end of the earlier channel", end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_arrives_on_the_channel() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let node = FakeNode::join(&client, "n1", 512).await;
    let (mut lines, _sender) = open(&client, &node).await;
    let master = FakeMaster::submit(&client, "job").await;
    let asked = master.sync(vec![master.ask("main", mib(64), 1)]).await;
    asked.expect("asks");
    loop {
        if let NodeChannelLine::Desired(desired) = line(&mut lines).await
            && !desired.containers.is_empty()
        {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_report_closes_the_channel_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let address = client.base().trim_start_matches("http://").to_owned();
    let mut connection = tokio::net::TcpStream::connect(&address)
        .await
        .expect("connects");
    let request = format!(
        "GET /v1/nodes/n1/desired?epoch={} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: {NODE_CHANNEL_PROTOCOL}\r\n\r\n{{\"number\":1,\n",
        node.epoch
    );
    connection
        .write_all(request.as_bytes())
        .await
        .expect("writes");
    let mut answer = Vec::new();
    soon(
        "the end of the connection",
        connection.read_to_end(&mut answer),
    )
    .await
    .expect("reads");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(!answer.contains("reply"), "{answer}");
    node.register().await;
    node.report().await.expect("reports");
}

//! Many nodes and containers at once: each order arrives exactly once.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::collections::BTreeSet;

use fakes::*;
use headroom_types::ContainerId;

const NODES: usize = 100;
const CONTAINERS: usize = 2000;

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_containers_run_on_a_hundred_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let joining: Vec<_> = (0..NODES)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { FakeNode::join(&client, &format!("n{n}"), 1024).await })
        })
        .collect();
    let mut nodes = Vec::new();
    for node in joining {
        nodes.push(soon("a node to join", node).await.expect("joins"));
    }
    let mut master = FakeMaster::submit(&client, "job").await;
    let count = u32::try_from(CONTAINERS).expect("small");
    master
        .sync(vec![master.ask("main", mib(51), count)])
        .await
        .expect("asks");
    // 20 containers fill a node, so every node gets 20.
    let working: Vec<_> = nodes
        .into_iter()
        .map(|mut node| {
            tokio::spawn(async move {
                let orders = node.until_orders(CONTAINERS / NODES).await;
                node.run_all().await;
                (node, orders)
            })
        })
        .collect();
    let mut all: BTreeSet<ContainerId> = BTreeSet::new();
    let mut kept = Vec::new();
    for node in working {
        let (node, orders) = soon("a node's orders", node).await.expect("works");
        let before = all.len();
        all.extend(orders.iter().cloned());
        assert_eq!(
            all.len(),
            before + orders.len(),
            "two nodes received the same container"
        );
        kept.push(node);
    }
    master
        .until("all to run", |m| {
            (m.running.len() == CONTAINERS).then_some(())
        })
        .await;
    assert_eq!((all.len(), &all), (CONTAINERS, &master.running));
    let status = client.status().await.expect("answers");
    assert_eq!(
        (status.nodes_ready, status.containers, status.pending),
        (100, 2000, 0)
    );
    running.shutdown().await.expect("ends");
}

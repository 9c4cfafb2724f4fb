//! A shim serves another container after the end of its first one.

use std::collections::BTreeSet;

use headroom_types::{ContainerId, ExitReason};

use crate::fake_rm::FakeRm;
use crate::node::{Node, kill, sh};

/// Maximum number of containers until one of them has the shim of an earlier one.
const MOST: u64 = 200;

/// The pid of the shim of a container.
fn shim(node: &Node, id: &ContainerId) -> i32 {
    let identity = node.text(id, "shim.pid");
    let pid = identity.split(' ').next().and_then(|pid| pid.parse().ok());
    pid.expect("the identity of a shim")
}

/// Runs a short container and returns its shim after the report of its end.
async fn run_short(rm: &FakeRm, node: &Node, n: u64) -> i32 {
    let id = rm.run(n, 16, sh("exit 5"));
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 5 }, "{report:#?}");
    shim(node, &id)
}

/// Runs containers that wait for a file until one of them has a shim that had another one before.
async fn run_on_an_earlier_shim(rm: &FakeRm, node: &Node) -> ContainerId {
    let mut earlier = BTreeSet::new();
    for n in (1..MOST).step_by(2) {
        earlier.insert(run_short(rm, node, n).await);
        let id = rm.run(
            n + 1,
            16,
            sh("while [ ! -e go ]; do sleep 0.05; done; exit 4"),
        );
        rm.running(&id).await;
        if !earlier.insert(shim(node, &id)) {
            return id;
        }
        std::fs::write(node.file(&id, "work/go"), "").expect("writes");
        rm.exit(&id).await;
    }
    panic!("{MOST} containers had a shim each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_serves_again_is_adopted_with_its_second_container() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let id = run_on_an_earlier_shim(&rm, &node).await;
    let pid = shim(&node, &id);
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a command line");
    assert!(
        line.contains(&id.to_string()),
        "the command line names the second container: {line}"
    );
    node.crash();
    node.start_again();
    rm.until("a second registration", |received| {
        received.registrations.get(1).cloned()
    })
    .await;
    std::fs::write(node.file(&id, "work/go"), "").expect("writes");
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 4 }, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shim_without_a_container_delays_nothing() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    for n in 1..10 {
        // Before or after it waits for another container.
        kill(run_short(&rm, &node, n).await, 9);
    }
}

/// Number of open sockets of a process.
fn sockets(pid: i32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let targets = files.into_iter().flatten().flatten();
    let targets = targets.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_killed_before_it_takes_its_container_is_replaced() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let spare = run_short(&rm, &node, 1).await;
    // One socket to the launcher, and after the offer one for its request.
    rm.until("the offer", |_| (sockets(spare) == 2).then_some(()))
        .await;
    kill(spare, 19);
    let id = rm.run(2, 16, sh("echo launched >> launches; exit 5"));
    // The agent creates the file just before it requests the shim.
    rm.until("the request", |_| {
        node.file(&id, "shim.err").exists().then_some(())
    })
    .await;
    kill(spare, 9);
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 5 }, "{report:#?}");
    assert_ne!(shim(&node, &id), spare);
    assert_eq!(node.text(&id, "work/launches"), "launched\n");
}

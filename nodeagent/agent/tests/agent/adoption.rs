//! The agent restarts while containers run; containers are not affected.

use headroom_types::{ExitReason, StopCause};

use crate::fake_rm::{FakeRm, container_id};
use crate::node::{GREEDY, Node, kill, sh};

/// Counts its launches in a file that outlives the agent.
const COUNTED: &str = "echo launched >> launches; while [ ! -e go ]; do sleep 0.05; done; exit 4";

#[tokio::test(flavor = "multi_thread")]
async fn a_running_container_is_adopted_and_its_exit_is_reported() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 32, sh(COUNTED));
    rm.running(&id).await;
    let pid = node.pid(&id);
    node.crash();
    node.start_again();
    let again = rm
        .until("a second registration", |received| {
            received.registrations.get(1).cloned()
        })
        .await;
    assert_eq!(again.containers.len(), 1, "{again:#?}");
    assert_eq!(node.pid(&id), pid);
    std::fs::write(node.file(&id, "work/go"), "").expect("writes");
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 4 }, "{report:#?}");
    assert_eq!(
        node.text(&id, "work/launches"),
        "launched\n",
        "the container was launched once"
    );
}

/// An agent that is killed during a preparation leaves a token and files.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_preparation_starts_again_with_new_files() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = container_id(1);
    for dir in ["work", "tasks", "tmp"] {
        std::fs::create_dir_all(node.file(&id, dir)).expect("makes");
        std::fs::write(node.file(&id, dir).join(".token"), "old").expect("writes");
    }
    let launch = sh("cat $HEADROOM_TOKEN_FILE; ls -A ../tmp ../work; exit 0");
    rm.run_with_token(1, "new", launch);
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:#?}");
    assert_eq!(node.text(&id, "stdout"), "new../tmp:\n\n../work:\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_without_an_agent_is_reported_after_the_restart() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let plain = rm.run(1, 32, sh(COUNTED));
    let greedy = rm.run(
        2,
        24,
        sh(&format!("while [ ! -e go ]; do sleep 0.05; done; {GREEDY}")),
    );
    rm.running(&plain).await;
    rm.running(&greedy).await;
    assert_eq!(node.terminate(), Some(0));
    for id in [&plain, &greedy] {
        std::fs::write(node.file(id, "work/go"), "").expect("writes");
    }
    // Without kernel enforcement an agent must run to see the second end.
    let kernel = rm.with(|received| received.registrations[0].enforcer.is_kernel());
    let ended = |id| node.file(id, "exit").exists();
    rm.until("both records", |_| {
        (ended(&plain) && (ended(&greedy) || !kernel)).then_some(())
    })
    .await;
    node.start_again();
    assert_eq!(rm.exit(&plain).await.reason, ExitReason::Exit { code: 4 });
    assert_eq!(rm.exit(&greedy).await.reason, ExitReason::OverheadOom);
    assert_eq!(
        node.text(&plain, "work/launches"),
        "launched\n",
        "the container was launched once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_its_shim_is_killed_and_reported() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 32, sh("sleep 60"));
    rm.running(&id).await;
    node.crash();
    let pid = node.pid(&id);
    let shim: i32 = node
        .text(&id, "shim.pid")
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("pid");
    kill(shim, 9);
    node.start_again();
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::KilledExternally, "{report:#?}");
    assert!(
        report
            .evidence
            .missing
            .iter()
            .any(|m| m.contains("shim was lost")),
        "{:#?}",
        report.evidence.missing
    );
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(
        state.is_empty() || state.contains(") Z "),
        "the program still runs: {state}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unacknowledged_report_survives_a_restart() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    rm.set_faults(|faults| faults.ignore_ends = true);
    let id = rm.run(1, 32, sh("exit 6"));
    rm.until("the report in a file", |_| {
        node.file(&id, "report.json").exists().then_some(())
    })
    .await;
    node.crash();
    rm.set_faults(|faults| faults.ignore_ends = false);
    node.start_again();
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 6 });
    rm.forget(&id);
    rm.until("the container to be forgotten", |_| {
        node.file(&id, "forgotten").exists().then_some(())
    })
    .await;
    node.crash();
    node.start_again();
    let last = rm
        .until("a third registration", |received| {
            received.registrations.get(2).cloned()
        })
        .await;
    assert!(
        last.containers.is_empty() && last.exits.is_empty(),
        "{last:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_stop_is_finished_by_the_next_agent() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let mut launch = sh("trap '' TERM; echo up; while :; do sleep 0.05; done");
    launch.stop_grace_ms = Some(60_000);
    let id = rm.run(1, 32, launch);
    rm.until("the first output", |_| {
        (node.text(&id, "stdout") == "up\n").then_some(())
    })
    .await;
    rm.stop(&id, StopCause::Timeout);
    rm.until("the recorded stop", |_| {
        node.file(&id, "stop").exists().then_some(())
    })
    .await;
    node.crash();
    node.start_again();
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_launcher_is_replaced_and_loses_no_container() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let before = rm.run(1, 32, sh(COUNTED));
    rm.running(&before).await;
    let first = node.launcher().expect("a launcher");
    let name = std::fs::read_to_string(format!(
        "/proc/{}/cmdline",
        node.text(&before, "shim.pid")
            .split(' ')
            .next()
            .expect("a pid")
    ));
    assert!(
        name.expect("a command line").contains(&before.to_string()),
        "the command line of the shim names the container"
    );
    // Orders in progress while the launcher dies are launched once each, by it or by the next
    // launcher.
    let ids: Vec<_> = (2..10)
        .map(|n| rm.run(n, 16, sh("echo launched >> launches; exit 5")))
        .collect();
    kill(first, 9);
    for id in &ids {
        let report = rm.exit(id).await;
        assert_eq!(report.reason, ExitReason::Exit { code: 5 }, "{report:#?}");
        assert_eq!(
            node.text(id, "work/launches"),
            "launched\n",
            "the container was launched once"
        );
    }
    let after = rm.run(10, 16, sh("exit 6"));
    assert_eq!(rm.exit(&after).await.reason, ExitReason::Exit { code: 6 });
    assert_ne!(node.launcher().expect("another launcher"), first);
    std::fs::write(node.file(&before, "work/go"), "").expect("writes");
    assert_eq!(
        rm.exit(&before).await.reason,
        ExitReason::Exit { code: 4 },
        "the shim does not depend on the launcher"
    );
}

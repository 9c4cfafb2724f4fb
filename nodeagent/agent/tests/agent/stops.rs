//! Stops, several containers at once, and a resource manager that restarts.

use std::time::{Duration, Instant};

use headroom_types::{ExitReason, LaunchSpec, StopCause};
use headroom_wire::v1::nodes::NodeContainerPhase;

use crate::fake_rm::FakeRm;
use crate::node::{GREEDY, Node, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sends_sigterm_first() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        32,
        sh("trap 'echo goodbye; exit 0' TERM; echo up; while :; do sleep 0.05; done"),
    );
    rm.running(&id).await;
    rm.until("the first output", |_| {
        (node.text(&id, "stdout") == "up\n").then_some(())
    })
    .await;
    rm.stop(&id, StopCause::Preempted);
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Preempted, "{report:#?}");
    assert_eq!(
        (report.evidence.exit_code, node.text(&id, "stdout").as_str()),
        (Some(0), "up\ngoodbye\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_the_stop_is_killed_after_the_grace() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let mut launch =
        sh("trap '' TERM; echo up; (setsid sleep 61 &) ; while :; do sleep 0.05; done");
    launch.stop_grace_ms = Some(300);
    let id = rm.run(1, 32, launch);
    rm.until("the first output", |_| {
        (node.text(&id, "stdout") == "up\n").then_some(())
    })
    .await;
    let asked = Instant::now();
    rm.stop(&id, StopCause::Asked);
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::Stopped, Some(9)),
        "{report:#?}"
    );
    assert!(
        asked.elapsed() >= Duration::from_millis(300),
        "the kill waits for the grace period"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_an_unknown_container_is_reported() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let id = "test.1.e1.c77".parse().expect("id");
    rm.stop(&id, StopCause::Asked);
    let report = rm.exit(&id).await;
    assert_eq!((report.reason, report.started), (ExitReason::Stopped, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_kill_does_not_affect_another_container() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let quiet = rm.run(1, 32, sh("sleep 60"));
    rm.running(&quiet).await;
    let greedy = rm.run(2, 24, sh(GREEDY));
    assert_eq!(rm.exit(&greedy).await.reason, ExitReason::OverheadOom);
    // Memory use arrives with heartbeats.
    rm.until("the use of the other", |received| {
        received
            .observed
            .get(&quiet)
            .filter(|o| o.used.is_some())
            .cloned()
    })
    .await;
    assert!(std::path::Path::new(&format!("/proc/{}", node.pid(&quiet))).exists());
    rm.stop(&quiet, StopCause::Asked);
    assert_eq!(rm.exit(&quiet).await.reason, ExitReason::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_reported_until_acknowledged() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    rm.set_faults(|faults| faults.ignore_ends = true);
    let id = rm.run(
        1,
        32,
        LaunchSpec {
            command: vec!["true".into()],
            ..LaunchSpec::default()
        },
    );
    rm.until("the end in a heartbeat", |received| {
        received
            .observed
            .get(&id)
            .filter(|o| o.phase == NodeContainerPhase::Exited)
            .cloned()
    })
    .await;
    rm.set_faults(|faults| faults.ignore_ends = false);
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_resource_manager_receives_all_containers_and_exits() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let stays = rm.run(1, 32, sh("sleep 60"));
    let ended = rm.run(2, 32, sh("exit 5"));
    rm.running(&stays).await;
    rm.exit(&ended).await;
    rm.restart();
    let again = rm
        .until("a second registration", |received| {
            received.registrations.get(1).cloned()
        })
        .await;
    let phase = |id| {
        again
            .containers
            .iter()
            .find(|o| &o.container == id)
            .map(|o| o.phase)
    };
    assert_eq!(
        (phase(&stays), phase(&ended)),
        (
            Some(NodeContainerPhase::Running),
            Some(NodeContainerPhase::Exited)
        )
    );
    assert_eq!(again.exits.len(), 1);
    assert_eq!(rm.exit(&ended).await.reason, ExitReason::Exit { code: 5 });
    rm.stop(&stays, StopCause::Asked);
    assert_eq!(
        rm.exit(&stays).await.reason,
        ExitReason::Stopped,
        "the agent follows the new stream"
    );
}

/// The time is the serial number of a registration. An agent whose clock was set back learns the
/// required number.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_has_a_higher_number_than_all_before() {
    let rm = FakeRm::start();
    let ahead = u64::MAX / 2;
    rm.fence_registrations(ahead);
    let _node = Node::start(rm.url(), 256, &[]);
    let (asked, first) = rm
        .until("a registration", |received| {
            received
                .registrations
                .first()
                .map(|r| (received.registration_attempts, r.serial))
        })
        .await;
    assert!(asked >= 2, "the first registration is numbered by the time");
    assert_eq!(first, ahead + 1);
    rm.restart();
    let second = rm
        .until("another registration", |received| {
            received.registrations.get(1).map(|r| r.serial)
        })
        .await;
    assert_eq!(second, ahead + 2);
}

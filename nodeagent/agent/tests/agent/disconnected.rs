//! A node without its resource manager: disconnected or decommissioned. Also the traits in its
//! registration.

use std::time::{Duration, Instant};

use headroom_types::{ExitCharge, ExitReason, StopCause};
use headroom_wire::v1::nodes::NodeTraits;

use crate::fake_rm::{FakeRm, WAIT_TIMEOUT};
use crate::node::{Node, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_node_ends_its_containers_and_reports_later() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &["--self-fence=4s"]);
    let mut launch = sh("trap 'exit 0' TERM; while :; do sleep 0.05; done");
    launch.stop_grace_ms = Some(300);
    let id = rm.run(1, 32, launch);
    rm.running(&id).await;
    // Every answer of the resource manager restarts the self-fence timeout.
    let connected = Instant::now();
    rm.until("a report after the self-fence timeout", |received| {
        let last = received.last_message?;
        (last.duration_since(connected) > Duration::from_millis(5500)).then_some(())
    })
    .await;
    rm.with(|received| assert!(received.ends.is_empty()));
    rm.set_faults(|faults| faults.unavailable = true);
    rm.until("the report in a file", |_| {
        node.file(&id, "report.json").exists().then_some(())
    })
    .await;
    rm.with(|received| {
        assert!(
            received.ends.is_empty(),
            "the resource manager was unreachable"
        )
    });
    rm.set_faults(|faults| faults.unavailable = false);
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::NodeLost, Some(StopCause::Fenced)),
        "{report:#?}"
    );
    assert_eq!(report.reason.charge(), ExitCharge::Free);
    let again = rm.run(2, 32, sh("exit 5"));
    assert_eq!(
        rm.exit(&again).await.reason,
        ExitReason::Exit { code: 5 },
        "the node runs further containers"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decommissioned_node_registers_rarely_and_reports_its_state() {
    let rm = FakeRm::start();
    rm.set_faults(|faults| faults.decommissioned = true);
    let node = Node::start(rm.url(), 256, &["--enforcer=poll"]);
    let client = headroom_client::Client::new(&node.url).expect("client");
    rm.until("a registration to be refused", |received| {
        (received.registration_attempts > 0).then_some(())
    })
    .await;
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let doctor: serde_json::Value = client.get("/v1/doctor").await.expect("doctor");
        if doctor["resource_manager"] == "decommissioned" {
            break;
        }
        assert!(Instant::now() < deadline, "{doctor}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The absence of a registration has no event to wait for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    rm.with(|received| {
        assert_eq!(
            received.registration_attempts, 1,
            "the agent waits before the next registration"
        )
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_contains_the_traits_of_the_node() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("nodeagent.toml");
    std::fs::write(
        &file,
        "rack = 'r1'\nlabels = ['hdd']\nattributes = { kernel = '6.1', zone = 'north' }\n",
    )
    .expect("writes");
    let config = format!("--config={}", file.display());
    let more = [
        &config,
        "--enforcer=poll",
        "--label=ssd",
        "--label=fast",
        "--exclusive",
        "--attribute=zone=south=east",
    ];
    let _node = Node::start(rm.url(), 256, &more);
    let traits = rm
        .until("the registration", |received| {
            received.registrations.first().map(|r| r.traits.clone())
        })
        .await;
    let word = |t: &str| t.parse().expect("a word");
    let wanted = NodeTraits {
        rack: Some(word("r1")),
        labels: [word("fast"), word("ssd")].into(),
        exclusive: true,
        attributes: [
            (word("kernel"), "6.1".to_owned()),
            (word("zone"), "south=east".to_owned()),
        ]
        .into(),
        taints: [].into(),
    };
    assert_eq!(traits, wanted);
}

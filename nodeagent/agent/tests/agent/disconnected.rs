//! A node without its resource manager: disconnected or decommissioned. Also the traits in its
//! registration.

use std::time::Duration;

use headroom_types::{Charge, ExitReason, StopCause};
use headroom_wire::v1::nodes::NodeTraits;

use crate::fake_rm::FakeRm;
use crate::node::{Node, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_node_ends_its_containers_and_reports_later() {
    let rm = FakeRm::start().await;
    let node = Node::start(&rm.url, 256, &["--self-fence=4s"]);
    let mut launch = sh("trap 'exit 0' TERM; while :; do sleep 0.05; done");
    launch.stop_grace_ms = Some(300);
    let id = rm.run(1, 32, launch);
    rm.running(&id).await;
    // Every answer of the resource manager restarts the self-fence timeout. On a loaded host an
    // answer may be some seconds late.
    tokio::time::sleep(Duration::from_millis(5500)).await;
    rm.with(|b| assert!(b.exits.is_empty()));
    rm.set_gone(true);
    rm.until("the report in a file", |_| {
        node.file(&id, "report.json").exists().then_some(())
    })
    .await;
    rm.with(|b| assert!(b.exits.is_empty(), "the resource manager was unreachable"));
    rm.set_gone(false);
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::NodeLost, Some(StopCause::Fenced)),
        "{report:#?}"
    );
    assert_eq!(report.reason.charge(), Charge::Free);
    let again = rm.run(2, 32, sh("exit 5"));
    assert_eq!(
        rm.exit(&again).await.reason,
        ExitReason::Exit { code: 5 },
        "the node runs further containers"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decommissioned_node_registers_rarely_and_reports_its_state() {
    let rm = FakeRm::start().await;
    rm.with(|b| b.decommissioned = true);
    let node = Node::start(&rm.url, 256, &["--enforcer=poll"]);
    let client = headroom_client::Client::new(&node.url).expect("client");
    rm.until("a registration to be refused", |b| {
        (b.asked > 0).then_some(())
    })
    .await;
    let mut doctor = serde_json::Value::Null;
    for _ in 0..100 {
        doctor = client.get("/v1/doctor").await.expect("doctor");
        if doctor["resource_manager"] == "decommissioned" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(doctor["resource_manager"], "decommissioned", "{doctor}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    rm.with(|b| assert_eq!(b.asked, 1, "the agent waits before the next registration"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_contains_the_traits_of_the_node() {
    let rm = FakeRm::start().await;
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
    let _node = Node::start(&rm.url, 256, &more);
    let told = rm
        .until("the registration", |b| {
            b.registrations.first().map(|r| r.traits.clone())
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
    assert_eq!(told, wanted);
}

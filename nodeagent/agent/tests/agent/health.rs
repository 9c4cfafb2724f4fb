//! An unhealthy host takes no work, reports the reason, and recovers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use headroom_wire::v1::nodes::NodeHealthState;

use crate::fake_rm::FakeRm;
use crate::node::{Node, on_any_disk, sh};

#[tokio::test(flavor = "multi_thread")]
async fn the_health_script_makes_the_node_unhealthy_and_healthy_again() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let (config, check, unhealthy) = (
        dir.path().join("node.toml"),
        dir.path().join("check"),
        dir.path().join("unhealthy"),
    );
    fs::write(
        &check,
        format!(
            "#!/bin/sh\n[ ! -f {} ] || echo 'ERROR scratch is read-only'\n",
            unhealthy.display()
        ),
    )
    .expect("writes");
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).expect("mode");
    let text = format!(
        "[isolation]\nrun_as = 'agent'\nallow_root = true\n[health]\nscript = '{}'\nscript_every = '100ms'\n",
        check.display()
    );
    fs::write(&config, on_any_disk(&text)).expect("writes");
    let _node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    let runs = rm.run(1, 32, sh("sleep 64"));
    rm.running(&runs).await;
    fs::write(&unhealthy, "").expect("writes");
    let reason = rm.until("an unhealthy node", |received| match &received.health {
        Some(NodeHealthState::Unhealthy { reason }) => Some(reason.clone()),
        Some(NodeHealthState::Healthy) | None => None,
    });
    assert_eq!(reason.await, "ERROR scratch is read-only");
    assert!(
        rm.with(|received| !received.ends.contains_key(&runs)),
        "the running container is not ended"
    );
    fs::remove_file(&unhealthy).expect("removes");
    rm.until("a healthy node", |received| {
        (received.health == Some(NodeHealthState::Healthy)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_at_registration() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let config = dir.path().join("node.toml");
    fs::write(
        &config,
        "[isolation]\nrun_as = 'agent'\nallow_root = true\n[health]\ndisk_full = 1\n",
    )
    .expect("writes");
    let _node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    let health = rm
        .until("a registration", |received| {
            received.registrations.first().map(|r| r.health.clone())
        })
        .await;
    assert!(
        matches!(&health, NodeHealthState::Unhealthy { reason } if reason.starts_with("disk full: ")),
        "{health:?}"
    );
}

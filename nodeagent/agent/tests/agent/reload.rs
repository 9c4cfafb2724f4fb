//! SIGHUP: reloadable keys take effect, keys that need a restart are named, and a file with errors
//! changes nothing.

use headroom_wire::v1::nodes::NodeHealthState;

use crate::fake_rm::FakeRm;
use crate::node::{Node, on_any_disk, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_the_whole_file_or_no_key() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let config = dir.path().join("nodeagent.toml");
    let write = |text: &str| {
        let usual = "[isolation]\nrun_as = 'agent'\nallow_root = true\nprivate_tmp = false\n";
        std::fs::write(&config, on_any_disk(&format!("{usual}{text}"))).expect("writes");
    };
    write("");
    let node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    let id = rm.run(1, 64, sh("sleep 61"));
    rm.running(&id).await;

    let script = dir.path().join("ill");
    std::fs::write(&script, "#!/bin/sh\necho ERROR the fan is off\n").expect("writes");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("may be run");
    write(&format!(
        "umask = '077'\n[logs]\ncount = 7\n[health]\nscript = '{}'\n",
        script.display()
    ));
    node.hang_up();
    let seen = rm
        .until("the result of the reload", |received| {
            received.reloads.first().cloned()
        })
        .await;
    assert!(
        !seen.refused
            && seen.message.contains("logs.count: ")
            && seen.message.contains(" → 7; health.script: "),
        "{seen:?}"
    );
    assert!(
        seen.message.ends_with("; after a restart: isolation.umask"),
        "{seen:?}"
    );
    let ill = |health: &NodeHealthState| matches!(health, NodeHealthState::Unhealthy { reason } if reason.contains("the fan is off"));
    rm.until("the result of the new script", |received| {
        received.health.as_ref().is_some_and(ill).then_some(())
    })
    .await;

    write("[logs]\ncount = 1\n[health]\nevery = '1s'\n");
    node.hang_up();
    let seen = rm
        .until("the result of the reload", |received| {
            received.reloads.get(1).cloned()
        })
        .await;
    assert!(
        seen.refused
            && seen.message.starts_with("nothing has changed: ")
            && seen.message.contains("logs.count"),
        "{seen:?}"
    );

    write("");
    node.hang_up();
    let seen = rm
        .until("the result of the reload", |received| {
            received.reloads.get(2).cloned()
        })
        .await;
    assert!(
        seen.message.contains("logs.count: 7 → "),
        "the refused file was not applied: {seen:?}"
    );
    rm.until("a healthy host", |received| {
        (received.health == Some(NodeHealthState::Healthy)).then_some(())
    })
    .await;
    rm.with(|received| assert!(received.ends.is_empty(), "the reloads ended no container"));
}

//! Failed starts with one-sentence errors, and an agent that is embedded in another program.

use std::path::Path;
use std::process::{Command, Output};

use headroom_nodeagent::{AgentOptions, ShutdownContainers, start};
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::nodes::NodeHealthState;

use crate::fake_rm::FakeRm;
use crate::node::{Node, bin_dir, program, sh};

fn agent(args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .env("HEADROOM_LOG", "error")
        .output()
        .expect("the agent starts")
}

/// Exit code and the only line on standard error.
fn refusal(args: &[&str]) -> (Option<i32>, String) {
    let output = agent(args);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        said.trim_end().lines().count(),
        1,
        "the error is not one line: {said}"
    );
    (output.status.code(), said)
}

#[test]
fn an_agent_that_cannot_start_prints_one_line() {
    let dir = tempfile::tempdir().expect("dir");
    let (state, bin) = (dir.path().join("state"), bin_dir());
    let (state, bin) = (state.to_str().expect("text"), bin.to_str().expect("text"));
    let usual = [
        "--name",
        "n",
        "--state",
        state,
        "--listen",
        "127.0.0.1:0",
        "--enforcer",
        "poll",
    ];
    let with = |more: &[&str]| refusal(&[usual.as_slice(), more].concat());

    let (code, said) = with(&["--bin-dir", "/"]);
    assert!(
        code == Some(1) && said.contains("container-shim is not in /"),
        "{said}"
    );
    let (code, said) = with(&["--bin-dir", bin, "--rm", "ftp://somewhere"]);
    assert!(
        code == Some(1) && said.contains("is not an address"),
        "{said}"
    );
    let (code, said) = with(&["--bin-dir", bin, "--memory", "1MiB"]);
    assert!(code == Some(1) && said.contains("give --memory"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("address").to_string();
    let (code, said) = refusal(&[
        "--name",
        "n",
        "--state",
        state,
        "--bin-dir",
        bin,
        "--enforcer",
        "poll",
        "--listen",
        &address,
    ]);
    assert!(
        code == Some(1) && said.contains("cannot listen on"),
        "{said}"
    );
    std::fs::write(dir.path().join("file"), "").expect("writes");
    let below = dir.path().join("file/state");
    let (code, said) = refusal(&[
        "--name",
        "n",
        "--bin-dir",
        bin,
        "--state",
        below.to_str().expect("text"),
    ]);
    assert!(
        code == Some(1) && said.contains("choose another --state"),
        "{said}"
    );
}

#[test]
fn check_config_reports_errors_and_starts_no_agent() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("nodeagent.toml");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "nonsense = 1\n").expect("writes");
    let output = agent(&["--config", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("nonsense"),
        "{output:?}"
    );
    std::fs::write(&file, "").expect("writes");
    assert_eq!(
        agent(&["--config", path, "--check-config"]).status.code(),
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_agent_with_0_and_a_second_agent_is_refused() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let state = node.state().to_str().expect("text").to_owned();
    let (code, said) = refusal(&[
        "--name",
        "other",
        "--state",
        &state,
        "--listen",
        "127.0.0.1:0",
        "--bin-dir",
        bin_dir().to_str().expect("text"),
    ]);
    assert!(
        code == Some(1) && said.contains("another node agent uses"),
        "{said}"
    );
    assert_eq!(node.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_agent_ends_its_containers() {
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let name = format!("test-{}-embedded", std::process::id());
    let mut options = AgentOptions::new(rm.url(), dir.path());
    options.config.name = Some(name.parse().expect("name"));
    options.config.memory = Some(Bytes::from_mib(128));
    options.config.bin_dir = Some(bin_dir());
    let agent = start(options).await.expect("starts");
    assert_eq!(
        agent.ready.health,
        NodeHealthState::Healthy,
        "{:?}",
        agent.ready.notes
    );
    let client = headroom_client::Client::new(&agent.ready.url).expect("client");
    let doctor: serde_json::Value = client.get("/v1/doctor").await.expect("doctor");
    assert_eq!(doctor["enforcer"], agent.ready.enforcer.as_str());
    let pidfd = doctor["host"]
        .as_array()
        .and_then(|all| all.iter().find(|f| f["code"] == "pidfd"))
        .map(|f| f["state"].clone());
    assert_eq!(pidfd, Some("ok".into()), "{doctor}");
    let root = doctor["root"].as_str().map(|r| Path::new(r).to_owned());
    if let Some(root) = &root {
        let limit = ["memory.max", "memory.limit_in_bytes"]
            .iter()
            .find_map(|f| std::fs::read_to_string(root.join("containers").join(f)).ok());
        assert_eq!(
            limit.as_deref().map(str::trim),
            Some("134217728"),
            "the fence around all containers"
        );
    }
    let id = rm.run(1, 32, sh("(setsid sleep 63 &); sleep 60"));
    rm.running(&id).await;
    let detail: serde_json::Value = client
        .get(&format!("/v1/containers/{id}"))
        .await
        .expect("container");
    assert_eq!(
        (detail["phase"].as_str(), detail["report"].is_null()),
        (Some("running"), true),
        "{detail}"
    );
    agent.shutdown(ShutdownContainers::Kill).await;
    assert_eq!(
        rm.exit(&id).await.reason,
        ExitReason::Stopped,
        "the exit was reported before the shutdown"
    );
    assert!(root.is_none_or(|r| !r.exists()), "a cgroup is left");
}

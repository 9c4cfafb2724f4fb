//! Changing calls: idempotency keys, versions, rate limits, and request ids.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::time::Duration;

use fakes::*;
use headroom_client::{Client, DryRunMode};
use headroom_rm_server::{CallerLimits, ManagerOptions, start};
use headroom_types::{Name, QueuePath};
use headroom_wire::v1::application_master::PlacementVerdict;
use headroom_wire::v1::apps::{ChangeApplicationRequest, ResizeContainer};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::nodes::{DrainNodeRequest, NodeTraits, TagNodeRequest};
use headroom_wire::v1::queues::QueueRunState;
use reqwest::{Method, Response};
use serde_json::{Value, json};

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Response {
    let mut request = reqwest::Client::new()
        .request(method, format!("{}{path}", client.base()))
        .json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    soon(path, request.send()).await.expect("answers")
}

async fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    send(client, Method::POST, path, headers, body).await
}

async fn problem(response: Response) -> ProblemDetails {
    response.json().await.expect("a problem")
}

fn job(name: &str) -> Value {
    json!({"name": name, "master": {"kind": "unmanaged"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_returns_the_same_response() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let key = [("idempotency-key", "deploy-1")];
    let body = job("a");
    let (first, second) = tokio::join!(
        post(&client, "/v1/apps", &key, &body),
        post(&client, "/v1/apps", &key, &body)
    );
    let replayed = [&first, &second]
        .iter()
        .filter(|r| r.headers().contains_key("idempotency-replayed"))
        .count();
    assert_eq!(
        (first.status(), second.status(), replayed),
        (200.try_into().expect("ok"), 200.try_into().expect("ok"), 1)
    );
    assert_eq!(
        first.bytes().await.expect("reads"),
        second.bytes().await.expect("reads")
    );
    assert_eq!(client.apps().await.expect("lists").len(), 1);

    let other = problem(post(&client, "/v1/apps", &key, &job("b")).await).await;
    assert_eq!(other.code, ErrorCode::HR0409, "another body");
    let elsewhere = problem(post(&client, "/v1/apps/a.1/kill", &key, &json!({})).await).await;
    assert_eq!(elsewhere.code, ErrorCode::HR0409, "another call");
    let refused = [("idempotency-key", "deploy-2")];
    for _ in 0..2 {
        assert_eq!(
            problem(post(&client, "/v1/apps/a.9/kill", &refused, &json!({})).await)
                .await
                .code,
            ErrorCode::HR0404
        );
    }
    for bad in ["", "two words", &"x".repeat(65)] {
        let answer = post(&client, "/v1/apps", &[("idempotency-key", bad)], &job("c")).await;
        assert_eq!(answer.status(), 400, "{bad:?}");
    }
}

/// The key of a submission is in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_submission_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = [("idempotency-key", "once")];
    let (running, client) = resource_manager(dir.path()).await;
    let first: Value = post(&client, "/v1/apps", &key, &job("a"))
        .await
        .json()
        .await
        .expect("a response");
    running.shutdown().await.expect("ends");
    let (_running, client) = resource_manager(dir.path()).await;
    let second: Value = post(&client, "/v1/apps", &key, &job("a"))
        .await
        .json()
        .await
        .expect("a response");
    assert_eq!(first["app"], second["app"]);
    assert_eq!(client.apps().await.expect("lists").len(), 1);
}

/// The response to any other call with a key is in the journal as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_key_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    client.submit(&unmanaged("a")).await.expect("submits");
    let (kill, lost) = (
        [("idempotency-key", "kill#1")],
        [("idempotency-key", "kill#2")],
    );
    let first = post(&client, "/v1/apps/a.1/kill", &kill, &json!({}))
        .await
        .bytes()
        .await
        .expect("a response");
    assert_eq!(
        post(&client, "/v1/apps/a.9/kill", &lost, &json!({}))
            .await
            .status(),
        404
    );
    running.shutdown().await.expect("ends");
    let (_running, client) = resource_manager(dir.path()).await;
    let again = post(&client, "/v1/apps/a.1/kill", &kill, &json!({})).await;
    assert!(again.headers().contains_key("idempotency-replayed"));
    assert_eq!(again.bytes().await.expect("a response"), first);
    assert_eq!(
        problem(post(&client, "/v1/apps/a.9/kill", &lost, &json!({})).await)
            .await
            .code,
        ErrorCode::HR0404
    );
    let other = problem(post(&client, "/v1/apps/a.9/kill", &kill, &json!({})).await).await;
    assert_eq!(
        other.code,
        ErrorCode::HR0409,
        "the key belongs to another call"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_an_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let named = post(
        &client,
        "/v1/apps/a.9/kill",
        &[("x-request-id", "deploy-7")],
        &json!({}),
    )
    .await;
    assert_eq!(named.headers()["x-request-id"], "deploy-7");
    assert_eq!(
        problem(named).await.instance.as_deref(),
        Some("urn:headroom:request:deploy-7")
    );
    let ours = post(&client, "/v1/apps", &[], &job("a")).await;
    let id = ours.headers()["x-request-id"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(id.starts_with("e1-"), "{id}");
    let lost = send(&client, Method::GET, "/v1/nowhere", &[], &json!({})).await;
    let id = lost.headers()["x-request-id"]
        .to_str()
        .expect("text")
        .to_owned();
    assert_eq!(
        problem(lost).await.instance,
        Some(format!("urn:headroom:request:{id}"))
    );
}

async fn limited(
    state: &std::path::Path,
    limits: CallerLimits,
) -> (headroom_rm_server::RunningManager, Client) {
    let mut options =
        ManagerOptions::new("127.0.0.1:0".parse().expect("address"), state.to_owned());
    options.config.limits = CallerLimits {
        loopback: true,
        ..limits
    };
    options.header_time = Duration::from_millis(300);
    let running = start(options).await.expect("starts");
    let client = Client::new(&running.url).expect("address");
    (running, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_above_the_rate_limit_receives_retry_after() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = limited(
        dir.path(),
        CallerLimits {
            calls_per_second: 1,
            calls_at_once: 3,
            ..CallerLimits::default()
        },
    )
    .await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let mut last = None;
    for i in 0..4 {
        last = Some(post(&client, "/v1/apps", &[], &job(&format!("a{i}"))).await);
    }
    let refused = last.expect("four");
    assert_eq!(
        (
            refused.status().as_u16(),
            refused.headers()["retry-after"].to_str().expect("text")
        ),
        (429, "1")
    );
    assert_eq!(problem(refused).await.code, ErrorCode::HR0429);
    assert_eq!(
        client
            .apps()
            .await
            .expect("reading calls are not limited")
            .len(),
        3
    );
    for _ in 0..5 {
        node.report().await.expect("calls of nodes are not limited");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_connections_are_limited() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = limited(
        dir.path(),
        CallerLimits {
            streams: 1,
            connections_per_peer: 3,
            ..CallerLimits::default()
        },
    )
    .await;
    let first = client.events(0).await.expect("the only stream");
    assert_eq!(
        client
            .events(0)
            .await
            .expect_err("the limit is reached")
            .code(),
        Some(ErrorCode::HR0429)
    );
    drop(first);
    until("the release of the stream", || async {
        client.events(0).await.ok()
    })
    .await;

    let address = client
        .base()
        .strip_prefix("http://")
        .expect("an address")
        .to_owned();
    let mut open = Vec::new();
    // Connections above the limit are closed before any request; the client above has some of the
    // connections.
    for _ in 0..4 {
        open.push(
            tokio::net::TcpStream::connect(&address)
                .await
                .expect("connects"),
        );
    }
    let mut closed = 0;
    for stream in &mut open {
        let mut byte = [0];
        let read = tokio::io::AsyncReadExt::read(stream, &mut byte);
        closed += usize::from(matches!(
            tokio::time::timeout(Duration::from_millis(100), read).await,
            Ok(Ok(0) | Err(_))
        ));
    }
    assert!(closed >= 1, "the fourth connection is above the limit");
    // Connections without headers time out, so that new connections are accepted again.
    for mut stream in open {
        let mut rest = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        let _ = soon("the end of a silent connection", read).await;
    }
    until("a new connection", || async { client.apps().await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_changed_only_with_its_current_etag() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    client.submit(&unmanaged("job")).await.expect("submits");
    let read = send(&client, Method::GET, "/v1/apps/job.1", &[], &json!({})).await;
    let tag = read.headers()["etag"].to_str().expect("text").to_owned();
    let app = id("job.1");
    let priority = |n| ChangeApplicationRequest {
        priority: Some(n),
        ..ChangeApplicationRequest::default()
    };
    assert_eq!(
        client
            .change_app(&app, Some(&tag), &priority(7))
            .await
            .expect("changes")
            .priority,
        7
    );
    let late = client
        .change_app(&app, Some(&tag), &priority(8))
        .await
        .expect_err("the application has changed");
    assert_eq!(late.code(), Some(ErrorCode::HR0409), "{late}");
    assert_eq!(
        client
            .change_app(&app, None, &priority(9))
            .await
            .expect("any version is changed")
            .priority,
        9
    );
    let elsewhere = ChangeApplicationRequest {
        queue: Some("nowhere".parse().expect("queue")),
        ..ChangeApplicationRequest::default()
    };
    assert_eq!(
        client
            .change_app(&app, None, &elsewhere)
            .await
            .expect_err("an unknown queue")
            .code(),
        Some(ErrorCode::HR0404)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_request_returns_the_verdict() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    let fits = client
        .create_request(
            master.app(),
            DryRunMode::DryRun,
            &master.ask("main", mib(64), 1),
        )
        .await
        .expect("answers");
    assert_eq!(fits.verdict, PlacementVerdict::Fits);
    client
        .create_request(
            master.app(),
            DryRunMode::Really,
            &master.ask("real", mib(300), 1),
        )
        .await
        .expect("answers");
    let waits = client
        .create_request(
            master.app(),
            DryRunMode::DryRun,
            &master.ask("main", mib(300), 1),
        )
        .await
        .expect("answers");
    assert!(
        matches!(waits.verdict, PlacementVerdict::Waits { .. }),
        "{waits:?}"
    );
    let never = client
        .create_request(
            master.app(),
            DryRunMode::DryRun,
            &master.ask("main", mib(4096), 1),
        )
        .await
        .expect("answers");
    assert!(
        matches!(never.verdict, PlacementVerdict::Never { .. }),
        "{never:?}"
    );
    assert_eq!(
        client.containers(None).await.expect("lists").len(),
        1,
        "a dry run grants no container"
    );
    assert!(
        client.why(master.app()).await.expect("answers").is_empty(),
        "a dry run leaves no request"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_resized_by_version() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (mut node, _master, container) = one_granted(&client).await;
    node.run_all().await;
    let body = |version, size| ResizeContainer {
        version,
        resource: mib(size),
        heap: None,
    };
    client
        .resize(&container, DryRunMode::DryRun, &body(Some(1), 128))
        .await
        .expect("the resize is possible");
    assert_eq!(
        client.container(&container).await.expect("known").wanted,
        None
    );
    let answer = client
        .resize(&container, DryRunMode::Really, &body(Some(1), 128))
        .await
        .expect("resizes");
    let view = client.container(&container).await.expect("known");
    let wanted = view.wanted.expect("the resize is in progress");
    assert_eq!(
        (view.version, view.resource, wanted.version, wanted.resource),
        (1, mib(64), answer.version, mib(128))
    );
    let stale = client
        .resize(&container, DryRunMode::Really, &body(Some(9), 100))
        .await
        .expect_err("the version differs");
    assert_eq!(stale.code(), Some(ErrorCode::HR0409), "{stale}");
    let path = format!("/v1/containers/{container}/resize");
    let both = post(
        &client,
        &path,
        &[("if-match", "\"2\"")],
        &json!(body(Some(1), 100)),
    )
    .await;
    assert_eq!(both.status(), 400, "two versions");
    let huge = client
        .resize(&container, DryRunMode::DryRun, &body(None, 1 << 20))
        .await
        .expect_err("the size is too large");
    assert!(
        matches!(huge.code(), Some(ErrorCode::HR0409 | ErrorCode::HR0422)),
        "{huge}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_undrained() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let body = DrainNodeRequest {
        deadline_s: Some(600),
        reason: "kernel upgrade".into(),
        decommission: false,
    };
    let view = client.drain(&id("n1"), &body).await.expect("drains");
    let mark = view.mark.expect("marked");
    assert_eq!(
        (mark.reason.as_str(), mark.drained, mark.decommission),
        ("kernel upgrade", true, false),
        "it was empty"
    );
    assert_eq!(view.state, "drained");
    let back = client.undrain(&id("n1")).await.expect("undrains");
    assert_eq!((back.state.as_str(), back.mark), ("ready", None));
    assert_eq!(
        client
            .drain(&id("n9"), &body)
            .await
            .expect_err("unknown")
            .code(),
        Some(ErrorCode::HR0404)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_a_node_survive_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let body = TagNodeRequest {
        cordon: Some(true),
        reason: Some("a slow disk".into()),
        labels: [(name("gpu"), true)].into(),
        attributes: [(name("zone"), Some("b".to_owned()))].into(),
        taints: [(name("team"), Some("etl".to_owned()))].into(),
    };
    let would = client
        .tag_node(&id("n1"), DryRunMode::DryRun, &body)
        .await
        .expect("the change is possible");
    assert_eq!(
        (
            would.state.as_str(),
            would.tags.cordon.as_deref(),
            would.traits.labels.len()
        ),
        ("cordoned", Some("a slow disk"), 1)
    );
    let untouched = client.node(&id("n1")).await.expect("is there");
    assert_eq!(
        (untouched.state.as_str(), untouched.tags.is_empty()),
        ("ready", true),
        "a dry run does not change the node"
    );
    let said = client
        .tag_node(&id("n1"), DryRunMode::Really, &body)
        .await
        .expect("the change is applied");
    assert_eq!(
        (
            said.state.as_str(),
            said.not_ready_reason(),
            said.undo_verb()
        ),
        ("cordoned", Some("a slow disk"), Some("uncordon"))
    );
    assert_settings_are_audited(&client).await;
    running.shutdown().await.expect("ends");

    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let again = client
        .node(&id("n1"))
        .await
        .expect("the node has registered again");
    assert_eq!(
        (again.state.as_str(), &again.tags, &again.traits),
        ("cordoned", &said.tags, &said.traits)
    );
    let back = TagNodeRequest {
        cordon: Some(false),
        labels: [(name("gpu"), false)].into(),
        attributes: [(name("zone"), None)].into(),
        taints: [(name("team"), None)].into(),
        ..TagNodeRequest::default()
    };
    let free = client
        .tag_node(&id("n1"), DryRunMode::Really, &back)
        .await
        .expect("the settings are removed");
    assert_eq!(
        (free.state.as_str(), free.tags.is_empty(), &free.traits),
        ("ready", true, &NodeTraits::default())
    );
}

/// Checks the audit line of the settings that [`the_settings_of_a_node_survive_restarts`] applies.
async fn assert_settings_are_audited(client: &Client) {
    let record: Value = client
        .get("/v1/audit?verb=PATCH&object=nodes/n1")
        .await
        .expect("the audit log is read");
    let after = record[1]["after"]
        .as_str()
        .expect("the second line is of the applied change");
    assert_eq!(
        (record[1]["before"].as_str(), after),
        (
            Some(""),
            "cordoned: a slow disk, label gpu, attribute zone=b, taint team=etl"
        )
    );
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_of_a_node_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let free = TagNodeRequest {
        cordon: Some(false),
        ..TagNodeRequest::default()
    };
    let unknown = client
        .tag_node(&id("n9"), DryRunMode::Really, &free)
        .await
        .expect_err("the node does not exist");
    assert_eq!(unknown.code(), Some(ErrorCode::HR0404));
    let many = TagNodeRequest {
        taints: (0..65)
            .map(|n| (name(&format!("t{n}")), Some(String::new())))
            .collect(),
        ..TagNodeRequest::default()
    };
    assert_eq!(
        client
            .tag_node(&id("n1"), DryRunMode::Really, &many)
            .await
            .expect_err("the node has too many taints")
            .code(),
        Some(ErrorCode::HR0413)
    );
    for wrong in [
        json!({"reason": "why"}),
        json!({"cordon": false, "reason": "why"}),
        json!({"taints": {"t": "a\nb"}}),
        json!({"lables": {}}),
    ] {
        let refused = send(&client, Method::PATCH, "/v1/nodes/n1", &[], &wrong).await;
        assert_eq!(refused.status(), 400, "{wrong}");
    }
}

/// The queues and keys that a refused tree names.
async fn problem_keys(refused: Response) -> Vec<String> {
    problem(refused)
        .await
        .problems
        .iter()
        .map(|p| format!("{} {}", p.queue, p.key))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_queues_is_applied_completely_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 1000).await;
    let before = client.queues().await.expect("a tree");
    assert!(before.root.find(&QueuePath::default_leaf()).is_some());
    let tree = json!({"queues": {"default": {}, "etl": {"guaranteed": "40%", "maximum": {"memory": "50%"}, "queues": {
        "night": {"guaranteed": "50%"}, "day": {}}}}});

    let wrong = json!({"queues": {"default": {"wieght": 1, "guaranteed": "70%"}, "etl": {"guaranteed": "60%", "order": "lifo"}}});
    let refused = send(
        &client,
        Method::PUT,
        "/v1/queues",
        &[("if-match", "*")],
        &wrong,
    )
    .await;
    assert_eq!(refused.status(), 400);
    let keys = problem_keys(refused).await;
    for part in ["root.default wieght", "root.etl order", "guaranteed"] {
        assert!(keys.iter().any(|t| t.contains(part)), "{part}: {keys:?}");
    }
    let unread = send(&client, Method::PUT, "/v1/queues", &[], &tree).await;
    assert!(problem(unread).await.detail.contains("If-Match"));

    let checked = client
        .check_queues(&tree, Some(before.generation))
        .await
        .expect("the tree is valid");
    assert_eq!(checked.tree.queues.len(), 2);
    assert_eq!(
        client.queues().await.expect("a tree").generation,
        before.generation,
        "a check does not change the tree"
    );
    let after = client
        .set_queues(&tree, Some(before.generation))
        .await
        .expect("sets");
    let night: QueuePath = "etl.night".parse().expect("queue");
    let shown = after.root.find(&night).expect("is there");
    assert_eq!(
        shown.guaranteed.memory.whole_mib(),
        200,
        "50% of 40% of 1000 MiB"
    );
    let late = client
        .set_queues(&tree, Some(before.generation))
        .await
        .expect_err("the generation has changed");
    assert_eq!(late.code(), Some(ErrorCode::HR0409), "{late}");

    let patched = client
        .patch_queue(&night, &json!({"max_apps": 3, "guaranteed": null}))
        .await
        .expect("patches");
    let spec = &patched.root.find(&night).expect("is there").spec;
    assert_eq!((spec.max_apps, spec.guaranteed.is_empty()), (Some(3), true));
    assert!(
        client
            .patch_queue(&night, &json!({"max_aps": 3}))
            .await
            .is_err()
    );
    assert_eq!(
        client
            .set_queue_state(&night, QueueRunState::Paused)
            .await
            .expect("closes")
            .state,
        QueueRunState::Paused
    );
    let missing = client
        .set_queue_state(&"nowhere".parse().expect("queue"), QueueRunState::Running)
        .await
        .expect_err("none");
    assert_eq!(missing.code(), Some(ErrorCode::HR0404));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_was_set_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let tree = json!({"queues": {"default": {}, "etl": {"guaranteed": "40%"}}});
    client.set_queues(&tree, None).await.expect("sets");
    let kept = client.queues().await.expect("a tree");
    running.shutdown().await.expect("ends");
    let (_running, client) = resource_manager(dir.path()).await;
    let again = client.queues().await.expect("a tree");
    let etl: QueuePath = "etl".parse().expect("queue");
    assert_eq!(again.generation, kept.generation);
    assert_eq!(
        again.root.find(&etl).expect("is there").spec,
        kept.root.find(&etl).expect("is there").spec
    );
}

//! Refused calls: each has a code and a message, and changes nothing.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_client::Client;
use headroom_types::{ContainerId, Epoch};
use headroom_wire::v1::application_master::PlacementVerdict;
use headroom_wire::v1::apps::{AppState, ContainerTimeline};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use serde_json::json;

async fn raw(
    client: &Client,
    method: reqwest::Method,
    path: &str,
    body: impl Into<reqwest::Body>,
) -> (u16, ProblemDetails) {
    let request = reqwest::Client::new()
        .request(method, format!("{}{path}", client.base()))
        .body(body);
    let answer = soon("a response", request.send()).await.expect("answers");
    let (status, kind) = (
        answer.status().as_u16(),
        answer.headers()["content-type"]
            .to_str()
            .expect("text")
            .to_owned(),
    );
    assert_eq!(kind, "application/problem+json");
    (
        status,
        serde_json::from_slice(&answer.bytes().await.expect("reads")).expect("a problem"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_calls_are_refused_with_the_faulty_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let cases = [
        (post.clone(), "/v1/apps", r#"{"name":"#, 400, "line 1"),
        (
            post.clone(),
            "/v1/apps",
            r#"{"name":"../x","master":{"kind":"unmanaged"}}"#,
            400,
            "not a name",
        ),
        (
            post.clone(),
            "/v1/apps",
            r#"{"name":"x","master":{"kind":"unmanaged"},"colour":1}"#,
            400,
            "colour",
        ),
        (
            post.clone(),
            "/v1/apps",
            r#"{"name":"x","master":{"kind":"managed","resource":{"memory":0},"launch":{"command":["a"]}}}"#,
            400,
            "memory",
        ),
        (post.clone(), "/v1/nodes/n1/register", "[]", 400, "the body"),
        (
            get.clone(),
            "/v1/apps/word",
            "",
            400,
            "not an application id",
        ),
        (get.clone(), "/v1/apps/job.7", "", 404, "job.7"),
        (get.clone(), "/v1/nodes/n1", "", 404, "n1"),
        (
            get.clone(),
            "/v1/containers/job.7.e1.c1",
            "",
            404,
            "job.7.e1.c1",
        ),
        (
            get.clone(),
            "/v1/containers/job.7.e1.c1/logs/..%2Fx",
            "",
            400,
            "not a log",
        ),
        (get.clone(), "/v1/nodes/n1/desired", "", 400, "epoch"),
        (
            get.clone(),
            "/v1/events?cursor=x",
            "",
            400,
            "the parameters",
        ),
        (get.clone(), "/v2/apps", "", 404, "/v2/apps"),
        (reqwest::Method::PUT, "/v1/apps", "", 400, "PUT"),
    ];
    for (method, path, body, status, word) in cases {
        let (given, problem) = raw(&client, method, path, body).await;
        assert_eq!(given, status, "{path}: {problem:?}");
        assert!(problem.detail.contains(word), "{path}: {}", problem.detail);
        assert_eq!(problem.status, status);
    }
    assert!(
        client.apps().await.expect("answers").is_empty(),
        "no application was created"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_name_is_answered_with_the_closest_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let submit = r#"{"name":"wordcount","master":{"kind":"unmanaged"}}"#;
    let sent = reqwest::Client::new()
        .post(format!("{}/v1/apps", client.base()))
        .body(submit)
        .send()
        .await
        .expect("answers");
    assert_eq!(sent.status(), 200);
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let elsewhere = r#"{"name":"x","queue":"root.defualt","master":{"kind":"unmanaged"}}"#;
    let cases = [
        (
            get.clone(),
            "/v1/apps/wordcont.1",
            "",
            "did you mean \"wordcount.1\"?",
        ),
        (
            post.clone(),
            "/v1/apps/wordcount.2/kill",
            "{}",
            "did you mean \"wordcount.1\"?",
        ),
        (
            get.clone(),
            "/v1/queues/root.default2",
            "",
            "did you mean \"root.default\"?",
        ),
        (
            post,
            "/v1/apps",
            elsewhere,
            "did you mean \"root.default\"?",
        ),
        (get, "/v1/errors/HR0405", "", "did you mean \"HR0400\"?"),
    ];
    for (method, path, body, hint) in cases {
        let (status, problem) = raw(&client, method, path, body).await;
        assert_eq!(
            (status, problem.hints),
            (404, vec![hint.to_owned()]),
            "{path}"
        );
        let page = reqwest::get(format!("{}{}", client.base(), problem.kind))
            .await
            .expect("answers");
        let page: serde_json::Value =
            serde_json::from_slice(&page.bytes().await.expect("reads")).expect("JSON");
        assert_eq!(
            page["code"], "HR0404",
            "the type of a problem is the address of its page"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_above_the_size_limit_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (status, problem) = raw(
        &client,
        reqwest::Method::POST,
        "/v1/apps",
        vec![b' '; (1 << 20) + 1],
    )
    .await;
    assert_eq!((status, problem.code), (413, ErrorCode::HR0413));
    let mut app = managed("job", mib(64), 1);
    if let headroom_wire::v1::apps::ApplicationMaster::Managed { launch, .. } = &mut app.master {
        launch.files.insert("big".into(), "x".repeat(300 << 10));
    }
    assert_eq!(
        client
            .submit(&app)
            .await
            .expect_err("the launch is too large")
            .code(),
        Some(ErrorCode::HR0413)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_a_stale_epoch_must_register_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    let (current, stale) = (node.epoch, Epoch(node.epoch.0 + 7));
    node.epoch = stale;
    master.epoch = stale;
    let refused = [
        node.report().await.expect_err("the epoch is stale"),
        client
            .desired(&node.id, stale)
            .await
            .expect_err("the epoch is stale"),
        master
            .sync(Vec::new())
            .await
            .expect_err("the epoch is stale"),
        client
            .updates(master.app(), stale, 0)
            .await
            .expect_err("the epoch is stale"),
        client
            .desired(&id("unknown"), current)
            .await
            .expect_err("not registered"),
    ];
    for error in refused {
        assert_eq!(error.code(), Some(ErrorCode::HR0410), "{error}");
    }
    node.register().await;
    node.report().await.expect("reports");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_an_infeasible_request_names_the_largest_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _small = FakeNode::join(&client, "small", 256).await;
    let _large = FakeNode::join(&client, "large", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    let path = format!("/v1/apps/{}/requests", master.app());
    let body = json!({ "ask": master.ask("main", mib(4096), 1) });
    let refused = client
        .post::<_, serde_json::Value>(&path, &body)
        .await
        .expect_err("the request is infeasible");
    assert_eq!(refused.code(), Some(ErrorCode::HR0422), "{refused}");
    assert!(
        refused.to_string().contains("large") && refused.to_string().contains("512 MiB"),
        "{refused}"
    );
    let verdicts = master
        .sync(vec![
            master.ask("main", mib(4096), 1),
            master.ask("fine", mib(64), 1),
        ])
        .await
        .expect("syncs");
    let PlacementVerdict::Never { largest, .. } = &verdicts[0].verdict else {
        panic!("{verdicts:?}")
    };
    assert_eq!(largest.memory, mib(512).memory);
    assert_eq!(
        verdicts[1].verdict,
        PlacementVerdict::Fits,
        "a refusal does not affect other requests"
    );
    assert_eq!(
        client
            .submit(&managed("big", mib(4096), 1))
            .await
            .expect_err("infeasible")
            .code(),
        Some(ErrorCode::HR0422)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_returns_the_same_application() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut app = unmanaged("job");
    app.idempotency_key = Some("once".into());
    let (first, second) = (
        client.submit(&app).await.expect("submits"),
        client.submit(&app).await.expect("submits"),
    );
    assert_eq!(first, second);
    assert_eq!(client.apps().await.expect("lists").len(), 1);
}

/// Routes of a node that has one log and one timeline.
fn log_routes(container: &ContainerId, timeline: ContainerTimeline) -> axum::Router {
    let route = format!("/v1/containers/{container}/logs/stdout");
    let answer = |axum::extract::RawQuery(query): axum::extract::RawQuery,
                  headers: axum::http::HeaderMap| async move {
        let range = headers
            .get("range")
            .map(|r| r.to_str().expect("text").to_owned());
        let positions = [("headroom-log-start", "40"), ("headroom-log-end", "77")];
        (
            positions,
            format!(
                "log with {} {}",
                query.unwrap_or_default(),
                range.unwrap_or_default()
            ),
        )
    };
    axum::Router::new()
        .route(&route, axum::routing::get(answer))
        .route(
            &format!("/v1/containers/{container}/timeline"),
            axum::routing::get(|| async move { axum::Json(timeline) }),
        )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_from_its_node_and_a_silent_node_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (mut node, _master, container) = one_granted(&client).await;
    let refused = client
        .log(&container, "stdout", 100)
        .await
        .expect_err("no process listens on the node");
    assert_eq!(refused.code(), Some(ErrorCode::HR0503), "{refused}");
    assert!(refused.to_string().contains("n1"), "{refused}");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    node.url = format!("http://{}", listener.local_addr().expect("address"));
    node.register().await;
    let timeline = ContainerTimeline {
        container: container.clone(),
        node: "n1".parse().expect("name"),
        reason: None,
        samples: Vec::new(),
    };
    let agent = log_routes(&container, timeline.clone());
    let agent = tokio::spawn(async move { axum::serve(listener, agent).await });
    assert_eq!(
        client
            .log(&container, "stdout", 100)
            .await
            .expect("the log is passed on"),
        "log with tail=100 "
    );
    assert_eq!(
        client
            .log_end(&container, "stdout", 5)
            .await
            .expect("the log is passed on"),
        ("log with tail=5 ".to_owned(), 77)
    );
    assert_eq!(
        client
            .log_after(&container, "stdout", 9)
            .await
            .expect("the log is passed on"),
        (b"log with  bytes=9-".to_vec(), 58)
    );
    let mut log = client
        .follow_log(&container, "stdout", 7)
        .await
        .expect("the log is passed on");
    assert_eq!(log.position(), 40, "removed bytes are skipped");
    let mut text = Vec::new();
    while let Some(bytes) = log.next().await {
        text.extend_from_slice(&bytes.expect("bytes"));
    }
    assert_eq!(
        (text.as_slice(), log.position()),
        (
            &b"log with follow=true bytes=7-"[..],
            40 + text.len() as u64
        )
    );
    assert_eq!(
        client
            .timeline(&container)
            .await
            .expect("the timeline is passed on"),
        timeline
    );
    agent.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_of_an_ended_application_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = FakeMaster::submit(&client, "job").await;
    master.finish(None).await;
    app_state(&client, master.app(), AppState::Finished).await;
    let refused = client
        .updates(master.app(), master.epoch, 0)
        .await
        .expect_err("the application has ended");
    assert_eq!(refused.code(), Some(ErrorCode::HR0409), "{refused}");
}

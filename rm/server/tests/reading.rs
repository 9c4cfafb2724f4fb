//! Read calls: pagination, filters, long polling, ETags, and errors for wrong parameters.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::time::{Duration, Instant};

use fakes::*;
use headroom_client::Client;
use headroom_wire::v1::application_master::{PlacementRequest, RegisterMaster};
use headroom_wire::v1::apps::ApplicationMaster;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::job::{JobTotals, JobViewPatch};
use reqwest::{Method, Response};
use serde_json::Value;

async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request =
        reqwest::Client::new().request(Method::GET, format!("{}{path}", client.base()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    soon(path, request.send()).await.expect("answers")
}

fn header(response: &Response, name: &str) -> Option<String> {
    response
        .headers()
        .get(name)
        .map(|v| v.to_str().expect("text").to_owned())
}

async fn ids(response: Response) -> Vec<String> {
    let rows: Vec<Value> = response.json().await.expect("a list");
    rows.iter()
        .map(|r| r["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_returned_in_consecutive_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    for name in ["b", "a", "c", "ab", "d"] {
        client.submit(&unmanaged(name)).await.expect("submits");
    }
    let (mut path, mut seen) = ("/v1/apps?limit=2".to_owned(), Vec::new());
    loop {
        let piece = get(&client, &path, &[]).await;
        let link = header(&piece, "link");
        assert_eq!(link.is_some(), header(&piece, "x-headroom-next").is_some());
        seen.push(ids(piece).await);
        match link {
            Some(link) => {
                path = link
                    .split(['<', '>'])
                    .nth(1)
                    .expect("an address")
                    .to_owned()
            }
            None => break,
        }
    }
    assert_eq!(
        seen,
        [vec!["b.1", "a.2"], vec!["c.3", "ab.4"], vec!["d.5"]],
        "in the order of submission"
    );
    assert_eq!(
        ids(get(&client, "/v1/apps?name=a", &[]).await).await,
        ["a.2", "ab.4"]
    );
    assert_eq!(
        ids(get(&client, "/v1/apps?state=running", &[]).await).await,
        Vec::<String>::new()
    );
    assert_eq!(
        ids(get(&client, "/v1/apps?queue=default&user=test", &[]).await)
            .await
            .len(),
        5
    );
    assert_eq!(
        ids(get(&client, "/v1/apps?user=eve", &[]).await)
            .await
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_selected_by_application_node_user_and_queue() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(64), 3)])
        .await
        .expect("asks");
    let all: Vec<String> = node
        .until_orders(3)
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        ids(get(
            &client,
            "/v1/containers?app=job.1&node=n1&user=test&queue=root",
            &[]
        )
        .await)
        .await,
        all
    );
    assert_eq!(
        ids(get(&client, "/v1/containers?node=n2", &[]).await)
            .await
            .len(),
        0
    );
    assert_eq!(
        ids(get(&client, "/v1/containers?user=other", &[]).await)
            .await
            .len(),
        0
    );
    let first = get(&client, "/v1/containers?limit=2", &[]).await;
    assert_eq!(header(&first, "x-headroom-next").as_ref(), Some(&all[1]));
    assert_eq!(
        ids(get(
            &client,
            &format!("/v1/containers?limit=2&after={}", all[1]),
            &[]
        )
        .await)
        .await,
        all[2..]
    );
    let running = get(&client, "/v1/containers?state=running", &[]).await;
    assert_eq!(ids(running).await.len(), 0, "the node has not started them");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_parameter_is_refused_by_every_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let cases = [
        ("/v1/apps?lmit=3", "did you mean \"limit\"?"),
        ("/v1/nodes?stat=ready", "did you mean \"state\"?"),
        ("/v1/queues?wiat=3s", "did you mean \"wait\"?"),
        ("/v1/events?folow=true", "did you mean \"follow\"?"),
        ("/v1/version?x=1", "this call has no parameters"),
        ("/v1/apps?limit=0", "write 1 to 1000"),
        ("/v1/apps?wait=30s", "index"),
        ("/v1/apps?wait=30&index=1", ""),
        ("/v1/apps?state=runing", ""),
    ];
    for (path, hint) in cases {
        let answer = get(&client, path, &[]).await;
        assert_eq!(answer.status(), 400, "{path}");
        let problem: ProblemDetails = answer.json().await.expect("a problem");
        assert!(
            problem.hints.iter().any(|h| h.contains(hint)) || hint.is_empty(),
            "{path}: {problem:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_query_is_answered_after_a_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    for path in ["/v1/apps", "/v1/status", "/v1/nodes", "/v1/containers"] {
        let before = header(&get(&client, path, &[]).await, "x-headroom-index").expect("an index");
        let waiting = {
            let (client, path) = (client.clone(), format!("{path}?wait=15s&index={before}"));
            tokio::spawn(async move { get(&client, &path, &[]).await })
        };
        // Measurements do not end the wait.
        node.report().await.expect("reports");
        let began = Instant::now();
        let master = FakeMaster::submit(&client, "job").await;
        master
            .sync(vec![master.ask("main", mib(8), 1)])
            .await
            .expect("asks");
        let after = header(&waiting.await.expect("answers"), "x-headroom-index").expect("an index");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{path} waited until the timeout"
        );
        assert!(
            after.parse::<u64>().expect("a number") > before.parse::<u64>().expect("a number"),
            "{path}"
        );
        let at_once = Instant::now();
        get(&client, &format!("{path}?wait=15s&index={before}"), &[]).await;
        assert!(
            at_once.elapsed() < Duration::from_secs(10),
            "{path}: an old index is answered at once"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_query_of_an_application_is_answered_after_a_change_of_its_tasks() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (one, other) = (
        FakeMaster::submit(&client, "job").await,
        FakeMaster::submit(&client, "other").await,
    );
    let running = |running| {
        let totals = JobTotals {
            running,
            ..JobTotals::default()
        };
        let patch = JobViewPatch {
            full: true,
            totals,
            ..JobViewPatch::default()
        };
        Some(patch)
    };
    for master in [&one, &other] {
        let synced = master.sync_with(Vec::new(), running(0)).await;
        synced.expect("reports");
    }
    let path = "/v1/apps/job.1?tasks=none";
    // A waiting query reads the present view; another one may read the last view.
    let present = get(&client, &format!("{path}&wait=1ms&index=0"), &[]).await;
    let before = header(&present, "x-headroom-index").expect("an index");
    let waiting = |wait: &str| {
        let (client, path) = (client.clone(), format!("{path}&wait={wait}&index={before}"));
        tokio::spawn(async move { get(&client, &path, &[]).await })
    };
    // Tasks of another application do not end the wait.
    let unchanged = waiting("500ms");
    let synced = other.sync_with(Vec::new(), running(2)).await;
    synced.expect("reports");
    let unchanged = unchanged.await.expect("answers");
    assert_eq!(
        header(&unchanged, "x-headroom-index").as_ref(),
        Some(&before)
    );
    let (began, changed) = (Instant::now(), waiting("15s"));
    let synced = one.sync_with(Vec::new(), running(3)).await;
    synced.expect("reports");
    let changed: Value = changed.await.expect("answers").json().await.expect("JSON");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "the call waited until its timeout"
    );
    assert_eq!(changed["job"]["totals"]["running"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_waits_for_the_address_of_its_master() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let mut submission = managed("job", mib(64), 2);
    if let ApplicationMaster::Managed { first_request, .. } = &mut submission.master {
        let request = PlacementRequest::new(id("set-main"), mib(32), launch());
        *first_request = Some(Box::new(request));
    }
    let job = client.submit(&submission).await.expect("submits");
    node.until_orders(2).await;
    let requests: Vec<bool> = node.orders.values().map(|o| o.request.is_some()).collect();
    assert_eq!(requests, [false, true], "both start at the same time");
    let unknown = client.master_address(&job.app, Duration::from_millis(20));
    assert_eq!(unknown.await.expect("answers").master_url, None);
    let waiting = {
        let (client, app) = (client.clone(), job.app.clone());
        tokio::spawn(async move { client.master_address(&app, Duration::from_secs(30)).await })
    };
    let began = Instant::now();
    let url = "tcp://127.0.0.1:9".to_owned();
    let registration = RegisterMaster {
        master_url: Some(url.clone()),
        ..RegisterMaster::new(job.attempt.clone())
    };
    let registered = client
        .register_master(&job.app, &registration)
        .await
        .expect("registers");
    assert_eq!(registered.containers.len(), 1);
    let found = waiting.await.expect("ends").expect("answers");
    assert_eq!(found.master_url, Some(url));
    client.kill(&job.app, None).await.expect("kills");
    let over = client.master_address(&job.app, Duration::from_secs(30));
    over.await.expect("answers at once");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "a wait took its whole time"
    );
    let missing = client
        .master_address(&id("none.7"), Duration::from_secs(30))
        .await;
    assert_eq!(
        missing.expect_err("no such job").code(),
        Some(ErrorCode::HR0404)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_query_is_answered_at_its_timeout() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let index = header(&get(&client, "/v1/apps", &[]).await, "x-headroom-index").expect("an index");
    let began = Instant::now();
    let answer = get(&client, &format!("/v1/apps?wait=500ms&index={index}"), &[]).await;
    assert!(began.elapsed() >= Duration::from_millis(500));
    assert_eq!(header(&answer, "x-headroom-index"), Some(index.clone()));
    let waiting = tokio::spawn(async move {
        get(&client, &format!("/v1/apps?wait=60s&index={index}"), &[]).await
    });
    // The call must arrive before the shutdown.
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.shutdown().await.expect("ends");
    soon("the end of the wait", waiting).await.expect("answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_object_is_answered_with_304() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (mut node, master, container) = one_granted(&client).await;
    for path in [
        "/v1/nodes/n1".to_owned(),
        format!("/v1/containers/{container}"),
        "/v1/apps/job.1".into(),
        "/v1/queues".into(),
    ] {
        let tag = header(&get(&client, &path, &[]).await, "etag").expect("a tag");
        node.report().await.expect("reports");
        let again = get(&client, &path, &[("if-none-match", &tag)]).await;
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(header(&again, "etag"), Some(tag), "{path}");
    }
    let tag = header(&get(&client, "/v1/apps/job.1", &[]).await, "etag").expect("a tag");
    master
        .sync(vec![master.ask("more", mib(64), 1)])
        .await
        .expect("asks");
    assert_eq!(
        get(&client, "/v1/apps/job.1", &[("if-none-match", &tag)])
            .await
            .status(),
        200,
        "it has another request"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_can_receive_server_sent_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(64), 2)])
        .await
        .expect("asks");
    node.until_orders(2).await;
    let path = format!("/v1/apps/job.1/updates?epoch={}&cursor=0", master.epoch);
    let sse = ("accept", "text/event-stream");
    let mut line = get(&client, &path, &[sse, ("last-event-id", "1")]).await;
    assert_eq!(
        header(&line, "content-type").as_deref(),
        Some("text/event-stream")
    );
    let chunk = soon("an update", line.chunk())
        .await
        .expect("reads")
        .expect("open");
    let text = String::from_utf8(chunk.to_vec()).expect("text");
    assert!(
        text.starts_with("id: 2\nevent: allocated\ndata: {\"cursor\":2,\"kind\":\"allocated\""),
        "{text}"
    );
    assert!(
        text.ends_with("}\n\n") && text.matches("id: ").count() == 1,
        "{text}"
    );
}

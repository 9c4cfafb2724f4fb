//! Profiles of the cluster: they survive a kill of the daemon, changes require the version that was
//! read, and the audit log has them.

#![allow(missing_docs)] // tests are read, not imported

#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use fakes::*;
use headroom_client::{Client, DryRunMode};
use headroom_types::{Bytes, Cpus, Name, StoreBackend};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::events::LoggedEvent;
use headroom_wire::v1::profiles::{ClusterProfile, ProfileSpec};
use reqwest::Method;
use serde_json::{Value, json};

fn spec(gib: u64) -> ProfileSpec {
    ProfileSpec {
        heap: Bytes::from_gib(gib),
        overhead: Bytes::from_mib(512),
        cpus: Cpus::from_cores(2),
        about: "for most".into(),
    }
}

fn name(text: &str) -> Name {
    id(text)
}

async fn names(client: &Client) -> Vec<(String, u64)> {
    let all = client.profiles().await.expect("lists");
    all.into_iter()
        .map(|p| (p.name.to_string(), p.revision))
        .collect()
}

/// A raw HTTP call. Returns its status, ETag and document.
async fn call(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, String, Value) {
    let mut request = reqwest::Client::new()
        .request(method, format!("{}{path}", client.base()))
        .json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = soon(path, request.send()).await.expect("answers");
    let tag = answer
        .headers()
        .get("etag")
        .map(|tag| tag.to_str().expect("text").to_owned())
        .unwrap_or_default();
    (
        answer.status().as_u16(),
        tag,
        serde_json::from_slice(&answer.bytes().await.expect("reads")).unwrap_or_default(),
    )
}

async fn kept(store: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let daemon = Daemon::start_with(dir.path(), port, store).await;
    for (profile, gib) in [("small", 1), ("gone", 2), ("jvm-medium", 4), ("small", 2)] {
        daemon
            .client
            .set_profile(&name(profile), &spec(gib), None, DryRunMode::Really)
            .await
            .expect("sets");
    }
    daemon
        .client
        .unset_profile(&name("gone"), None, DryRunMode::Really)
        .await
        .expect("unsets");
    daemon
        .client
        .set_profile(&name("small"), &spec(2), None, DryRunMode::Really)
        .await
        .expect("an equal value is accepted");
    daemon
        .client
        .set_profile(&name("small"), &spec(9), None, DryRunMode::DryRun)
        .await
        .expect("the change is possible");
    let mut lines = daemon
        .client
        .lines::<LoggedEvent>("/v1/events?topic=cluster")
        .await
        .expect("lists");
    let mut events = Vec::new();
    while let Some(event) = lines.next().await {
        events.extend(
            event
                .ok()
                .filter(|e| e.reason.starts_with("Profile"))
                .map(|e| (e.object, e.message)),
        );
    }
    assert_eq!(events.len(), 5, "one event for each change: {events:?}");
    assert!(
        events[0].0 == "small"
            && events[0].1.starts_with("profile small is ")
            && events[0].1.ends_with("; it is new"),
        "{events:?}"
    );
    assert!(
        events[3].1.contains("; it was ") && events[4].1.starts_with("profile gone was deleted"),
        "{events:?}"
    );
    let before = daemon.client.profiles().await.expect("lists");
    daemon.kill();
    let daemon = Daemon::start_with(dir.path(), port, store).await;
    assert_eq!(daemon.client.profiles().await.expect("lists"), before);
    assert_eq!(
        names(&daemon.client).await,
        [("jvm-medium".to_owned(), 3), ("small".to_owned(), 4)]
    );
    let next = daemon
        .client
        .set_profile(&name("gone"), &spec(2), None, DryRunMode::Really)
        .await
        .expect("sets");
    assert_eq!(
        next.revision, 6,
        "a revision is never reused, even after a kill"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_keeps_profiles_in_sled() {
    kept(StoreBackend::Sled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_keeps_profiles_in_redb() {
    kept(StoreBackend::Redb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_changed_only_with_its_current_etag() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let body = json!({"heap": 1_u64 << 30});
    let path = "/v1/profiles/small";
    let (status, tag, made) = call(&client, Method::PUT, path, &[], &body).await;
    assert_eq!(
        (status, made["cpus"].as_u64(), made["overhead"].as_u64()),
        (200, Some(1), Some(0)),
        "{made}"
    );
    let (_, read, _) = call(&client, Method::GET, path, &[], &Value::Null).await;
    assert!(read.starts_with(tag.trim_end_matches('"')), "{read} {tag}");
    assert_eq!(
        call(
            &client,
            Method::GET,
            path,
            &[("if-none-match", &read)],
            &Value::Null
        )
        .await
        .0,
        304
    );

    let larger = json!({"heap": 2_u64 << 30});
    let (status, second, _) =
        call(&client, Method::PUT, path, &[("if-match", &read)], &larger).await;
    assert_eq!((status, second.as_str()), (200, "\"2\""));
    for method in [Method::PUT, Method::DELETE] {
        let (status, _, problem) = call(&client, method, path, &[("if-match", &read)], &body).await;
        assert_eq!(
            (status, problem["code"].as_str()),
            (409, Some("HR0409")),
            "another caller changed it first"
        );
    }
    let (status, _, would) = call(
        &client,
        Method::DELETE,
        &format!("{path}?dry_run=true"),
        &[],
        &Value::Null,
    )
    .await;
    assert_eq!((status, would["revision"].as_u64()), (202, Some(2)));
    let would = client
        .set_profile(&name("other"), &spec(1), None, DryRunMode::DryRun)
        .await
        .expect("the change is possible");
    assert_eq!(
        (would.revision, names(&client).await),
        (3, vec![("small".to_owned(), 2)]),
        "neither dry run changed a profile"
    );
    assert_eq!(
        call(
            &client,
            Method::DELETE,
            path,
            &[("if-match", "\"2\"")],
            &Value::Null
        )
        .await
        .0,
        200
    );
    assert_eq!(names(&client).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_calls_are_refused_and_do_not_change_profiles() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    client
        .set_profile(&name("jvm-medium"), &spec(4), None, DryRunMode::Really)
        .await
        .expect("sets");
    let cases = [
        (
            Method::GET,
            "/v1/profiles/jvm-medum",
            Value::Null,
            404,
            "jvm-medum",
        ),
        (
            Method::DELETE,
            "/v1/profiles/jvm-medum",
            Value::Null,
            404,
            "jvm-medum",
        ),
        (
            Method::PUT,
            "/v1/profiles/..%2Fx",
            json!({"heap": 1}),
            400,
            "name",
        ),
        (
            Method::PUT,
            "/v1/profiles/a",
            json!({"heap": 0}),
            400,
            "no memory",
        ),
        (
            Method::PUT,
            "/v1/profiles/a",
            json!({"heap": 1, "heep": 2}),
            400,
            "heep",
        ),
        (
            Method::PUT,
            "/v1/profiles/a",
            json!({"heap": 1, "about": "x".repeat(201)}),
            413,
            "201",
        ),
        (
            Method::PUT,
            "/v1/profiles/a?dryrun=true",
            json!({"heap": 1}),
            400,
            "dryrun",
        ),
    ];
    for (method, path, body, status, word) in cases {
        let (given, _, problem) = call(&client, method, path, &[], &body).await;
        let problem: ProblemDetails = serde_json::from_value(problem).expect("a problem");
        assert!(
            given == status && problem.detail.contains(word),
            "{path}: {given} {problem:?}"
        );
        if problem.code == ErrorCode::HR0404 {
            assert_eq!(problem.hints, ["did you mean \"jvm-medium\"?"]);
        }
    }
    assert_eq!(names(&client).await, [("jvm-medium".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_records_a_profile_before_and_after_a_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    for gib in [1, 2] {
        client
            .set_profile(&name("small"), &spec(gib), None, DryRunMode::Really)
            .await
            .expect("sets");
    }
    client
        .unset_profile(&name("small"), None, DryRunMode::Really)
        .await
        .expect("unsets");
    let (_, _, lines) = call(
        &client,
        Method::GET,
        "/v1/audit?object=profiles",
        &[],
        &Value::Null,
    )
    .await;
    let field = |i: usize, key: &str| lines[i][key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (field(0, "before"), field(0, "object")),
        (String::new(), "profiles/small".to_owned())
    );
    assert!(
        field(1, "before").starts_with("1.5") && field(1, "after").starts_with("2.5"),
        "{lines}"
    );
    assert!(
        field(2, "before").starts_with("2.5") && field(2, "after").is_empty(),
        "{lines}"
    );
    let gone: Result<ClusterProfile, _> = client.profile(&name("small")).await;
    assert_eq!(
        gone.expect_err("the profile is deleted").code(),
        Some(ErrorCode::HR0404)
    );
}

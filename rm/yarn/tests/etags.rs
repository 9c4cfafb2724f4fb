//! Versions of applications: both interfaces show and compare the same ones.

#![allow(missing_docs)] // tests are read, not imported

mod calls;
#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use calls::*;
use fakes::*;
use headroom_client::Client;
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

#[tokio::test(flavor = "multi_thread")]
async fn both_interfaces_compare_the_same_etags() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = yarn_resource_manager(dir.path()).await;
    client.submit(&unmanaged("job")).await.expect("submits");
    let at = |what: &str| format!("/ws/v1/cluster/apps/application_1700000000000_0001/{what}");
    let read = send(&client, Method::GET, &at("state"), &[], &json!({})).await;
    let tag = read.headers()["etag"].to_str().expect("text").to_owned();
    let ours = send(&client, Method::GET, "/v1/apps/job.1", &[], &json!({})).await;
    assert!(
        ours.headers()["etag"]
            .to_str()
            .expect("text")
            .starts_with(tag.trim_end_matches('"')),
        "the same version"
    );
    let put = async |what: &str, body: Value| {
        let answer = send(
            &client,
            Method::PUT,
            &at(what),
            &[("if-match", tag.as_str())],
            &body,
        )
        .await;
        (answer.status().as_u16(), answer.text().await.expect("text"))
    };
    assert_eq!(put("priority", json!({"priority": 7})).await.0, 200);
    for (what, body) in [
        ("priority", json!({"priority": 8})),
        ("queue", json!({"queue": "default"})),
        ("state", json!({"state": "KILLED"})),
    ] {
        let (status, text) = put(what, body).await;
        assert!(
            status == 403 && text.contains("has changed since it was read"),
            "{what}: {status} {text}"
        );
    }
    let view = client.app(&id("job.1")).await.expect("known");
    assert_eq!(
        (view.priority, view.state),
        (7, headroom_wire::v1::apps::AppState::Accepted)
    );
    let killed = send(
        &client,
        Method::PUT,
        &at("state"),
        &[("if-match", "*")],
        &json!({"state": "KILLED"}),
    )
    .await;
    assert!(killed.status().is_success());
}

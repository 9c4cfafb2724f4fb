//! Event log and audit log with filters, and the report of a job.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_client::Client;
use headroom_types::UnixMillis;
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::{JobEvent, JobTotals, JobViewPatch};
use serde_json::Value;

async fn get(client: &Client, path: &str) -> (u16, String) {
    let answer = soon(path, reqwest::get(format!("{}{path}", client.base())))
        .await
        .expect("answers");
    (
        answer.status().as_u16(),
        answer.text().await.expect("reads"),
    )
}

/// Fetches lines of JSON.
async fn lines(client: &Client, path: &str) -> Vec<Value> {
    let (status, text) = get(client, path).await;
    assert_eq!(status, 200, "{path}: {text}");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

async fn list(client: &Client, path: &str) -> Vec<Value> {
    let (status, text) = get(client, path).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("a list")
}

fn words(rows: &[Value], field: &str) -> Vec<String> {
    rows.iter()
        .map(|row| row[field].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn event_patch(reason: &str, object: &str, level: EventLevel) -> Option<JobViewPatch> {
    let (time, message) = (UnixMillis(1), format!("of {object}"));
    let event = JobEvent {
        time,
        level,
        reason: reason.to_owned(),
        object: object.to_owned(),
        message,
    };
    Some(JobViewPatch {
        full: false,
        totals: JobTotals::default(),
        tasks: Vec::new(),
        events: vec![event],
        ..JobViewPatch::default()
    })
}

/// Data of a report.
fn held(file: &str) -> Value {
    let data = file
        .split("id=\"report\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next())
        .expect("its data");
    serde_json::from_str(data).expect("JSON")
}

/// `sort.1` and `sort.10`, each with an event of its own.
async fn two_of_one_beginning(client: &Client) -> [FakeMaster; 2] {
    let first = FakeMaster::submit(client, "sort").await;
    for n in 0..8 {
        client
            .submit(&unmanaged(&format!("other{n}")))
            .await
            .expect("submits");
    }
    let tenth = FakeMaster::submit(client, "sort").await;
    assert_eq!(
        [first.app(), tenth.app()].map(ToString::to_string),
        ["sort.1", "sort.10"]
    );
    first
        .sync_with(
            Vec::new(),
            event_patch("Escalated", "map/1", EventLevel::Warning),
        )
        .await
        .expect("syncs");
    tenth
        .sync_with(
            Vec::new(),
            event_patch("Escalated", "map/10", EventLevel::Warning),
        )
        .await
        .expect("syncs");
    [first, tenth]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_job_contains_only_its_own_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _masters = two_of_one_beginning(&client).await;
    let (status, file) = get(&client, "/v1/apps/sort.1/report").await;
    assert_eq!(status, 200);
    let report = held(&file);
    assert_eq!(
        (
            report["job"].as_str(),
            report["boards"]["job:sort.1"].is_object()
        ),
        (Some("sort.1"), true)
    );
    let rows = report["events"][0]["rows"]
        .as_array()
        .expect("rows")
        .clone();
    assert!(rows.iter().all(|row| row["app"] == "sort.1"), "{rows:#?}");
    assert_eq!(
        words(&rows, "reason"),
        ["JobSubmitted", "AppRunning", "Escalated"]
    );
    assert!(
        !file.contains("sort.10"),
        "the report does not name the other job"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_can_follow_the_events_of_a_single_job() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _masters = two_of_one_beginning(&client).await;
    let address = format!("{}/v1/stream?topics=events&app=sort.1", client.base());
    let mut stream = soon("a response", reqwest::get(address))
        .await
        .expect("answers");
    let first = soon("the first message", stream.chunk())
        .await
        .expect("reads")
        .expect("open");
    let first: Value = serde_json::from_slice(first.trim_ascii_end()).expect("one line of JSON");
    assert_eq!(
        words(first["rows"].as_array().expect("rows"), "reason"),
        ["JobSubmitted", "AppRunning", "Escalated"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_an_unknown_application_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    for (path, status, word) in [
        (
            "/v1/apps/sort.1/report",
            404,
            "there is no application sort.1",
        ),
        ("/v1/apps/sort/report", 400, "not an application id"),
    ] {
        let (given, text) = get(&client, path).await;
        assert_eq!(given, status, "{path}: {text}");
        assert!(text.contains(word), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_match_all_given_filters() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let _masters = two_of_one_beginning(&client).await;
    let chosen = |query: &'static str| {
        let client = client.clone();
        async move {
            words(
                &lines(&client, &format!("/v1/events?{query}")).await,
                "reason",
            )
        }
    };
    assert_eq!(
        chosen("app=sort.1").await,
        ["JobSubmitted", "AppRunning", "Escalated"]
    );
    assert_eq!(chosen("app=sort.1&type=warning").await, ["Escalated"]);
    assert_eq!(
        chosen("reason=Escalated&object=map/10").await,
        ["Escalated"]
    );
    assert_eq!(chosen("reason=Escalated").await.len(), 2);
    assert_eq!(chosen("topic=node").await, ["NodeJoined", "NodeReady"]);
    assert_eq!(chosen("node=n1&reason=NodeReady").await, ["NodeReady"]);
    assert_eq!(chosen("node=n2").await, Vec::<String>::new());
    assert_eq!(
        chosen("topic=job&since=1h&app=other0.2").await,
        ["JobSubmitted"]
    );
    // The time of the master's event is in 1970.
    assert_eq!(
        chosen("reason=Escalated&since=1h").await,
        Vec::<String>::new()
    );
    for wrong in [
        "topic=tasks",
        "reason=OomKiled",
        "type=odd",
        "since=1",
        "app=sort",
        "level=warning",
    ] {
        let (status, text) = get(&client, &format!("/v1/events?{wrong}")).await;
        assert_eq!(status, 400, "{wrong}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_filtered_by_its_parameters() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = FakeMaster::submit(&client, "job").await;
    let post = |path: String, id: &'static str| {
        let call = reqwest::Client::new()
            .post(format!("{}{path}", client.base()))
            .header("x-request-id", id)
            .body("{}");
        async move {
            soon("a response", call.send())
                .await
                .expect("answers")
                .status()
                .as_u16()
        }
    };
    assert_eq!(
        post(format!("/v1/apps/{}/kill", master.app()), "mine-1").await,
        200
    );
    assert_eq!(post("/v1/apps/none.7/kill".to_owned(), "mine-2").await, 404);
    let verbs = |query: &'static str| {
        let client = client.clone();
        async move { words(&list(&client, &format!("/v1/audit?{query}")).await, "verb") }
    };
    assert_eq!(
        verbs("").await,
        ["POST", "POST kill", "POST kill"],
        "heartbeats of the master are not recorded"
    );
    assert_eq!(verbs("verb=kill&refused=false").await, ["POST kill"]);
    assert_eq!(verbs("object=apps/job.1&since=1h").await, ["POST kill"]);
    assert_eq!(
        (
            verbs("who=127.0.0.1&limit=2").await.len(),
            verbs("who=eve").await.len()
        ),
        (2, 0)
    );
    assert_eq!(verbs("after=2").await, ["POST kill"]);
    let refused = list(&client, "/v1/audit?refused=true").await;
    assert_eq!(
        (refused.len(), &refused[0]["outcome"], &refused[0]["code"]),
        (1, &Value::from(404), &Value::from("HR0404"))
    );
    assert_eq!(
        (
            refused[0]["request"].as_str(),
            refused[0]["object"].as_str()
        ),
        (Some("mine-2"), Some("apps/none.7"))
    );
    for wrong in ["since=yesterday", "refused=maybe", "limit=0", "vrb=kill"] {
        let (status, text) = get(&client, &format!("/v1/audit?{wrong}")).await;
        assert_eq!(status, 400, "{wrong}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_records_a_queue_before_and_after_a_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let body = r#"{"state":"paused"}"#;
    let call = reqwest::Client::new()
        .post(format!("{}/v1/queues/root.default/state", client.base()))
        .body(body);
    assert_eq!(
        soon("a response", call.send())
            .await
            .expect("answers")
            .status(),
        200
    );
    let lines = list(&client, "/v1/audit?object=queues").await;
    assert_eq!(
        (lines[0]["before"].as_str(), lines[0]["after"].as_str()),
        (Some("running"), Some("paused"))
    );
}

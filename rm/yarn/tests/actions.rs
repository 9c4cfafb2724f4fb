//! Actions of the YARN interface: submit, kill, query ended applications, refuse.

#![allow(missing_docs)] // tests are read, not imported

mod calls;
#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use calls::*;
use fakes::*;
use headroom_rm_server::RunningManager;
use headroom_types::{AppId, ExitReason};
use headroom_wire::v1::apps::AppState;
use reqwest::Method;
use serde_json::{Value, json};

fn submission(id: &str) -> Value {
    json!({
        "application-id": id, "application-name": "word count", "application-type": "SCRIPT", "queue": "default",
        "am-container-spec": {"commands": {"command": "exec sleep 5"}, "environment": {"entry": [{"key": "A", "value": "1"}]}},
        "resource": {"memory": 128, "vCores": 1}, "max-app-attempts": 1, "application-tags": {"tag": ["nightly"]},
    })
}

async fn cluster(
    dir: &tempfile::TempDir,
) -> (RunningManager, headroom_client::Client, Yarn, FakeNode) {
    let (running, client) = yarn_resource_manager(dir.path()).await;
    let yarn = Yarn::new(&running.url);
    let node = FakeNode::join(&client, "n1", 1024).await;
    (running, client, yarn, node)
}

/// Submits the application twice: the same id again is the same application.
async fn assert_same_submission_twice(yarn: &Yarn, id: &str) {
    for _ in 0..2 {
        let submitted = yarn.post("apps?user.name=ann", Some(submission(id))).await;
        assert_eq!(
            (submitted.status, submitted.text.as_str()),
            (202, ""),
            "the same id again is the same application"
        );
        assert!(
            submitted
                .location
                .expect("a place")
                .ends_with(&format!("/ws/v1/cluster/apps/{id}"))
        );
    }
}

/// Checks that a waiting application has the names and the tag of its submission.
async fn assert_named_as_submitted(yarn: &Yarn, path: &str) {
    let app = yarn.get(path).await.json()["app"].clone();
    let said = [
        "user",
        "name",
        "applicationType",
        "applicationTags",
        "state",
        "finalStatus",
    ]
    .map(|key| app[key].as_str().expect(key));
    assert_eq!(
        said,
        [
            "ann",
            "word count",
            "SCRIPT",
            "nightly",
            "ACCEPTED",
            "UNDEFINED"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_submitted_run_and_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, mut node) = cluster(&dir).await;
    let new = yarn.post("apps/new-application", None).await.json();
    assert_eq!(
        new["maximum-resource-capability"],
        json!({"memory": 1024, "vCores": 64})
    );
    let id = new["application-id"].as_str().expect("an id").to_owned();
    let between = client.submit(&unmanaged("between")).await.expect("submits");

    let path = format!("apps/{id}");
    assert_eq!(
        yarn.get(&path).await.status,
        404,
        "a reserved id is not submitted"
    );
    assert_same_submission_twice(&yarn, &id).await;
    assert_named_as_submitted(&yarn, &path).await;
    let container = node.until_orders(1).await.remove(0);
    let launch = &node.orders[&container].launch;
    assert_eq!(launch.command, ["/bin/sh", "-c", "exec sleep 5"]);
    assert_eq!(launch.env.get("A").map(String::as_str), Some("1"));
    assert!(
        container.app.seq() < between.app.seq(),
        "the application has the reserved number"
    );
    node.run_all().await;

    let state = format!("{path}/state");
    assert_eq!(
        yarn.put(&state, json!({"state": "FINISHED"}))
            .await
            .exception(),
        "BadRequestException"
    );
    let asked = yarn
        .put(
            &format!("{state}?user.name=bob"),
            json!({"state": "KILLED"}),
        )
        .await;
    assert_eq!(
        (asked.status, asked.json()),
        (202, json!({"state": "RUNNING"})),
        "the container still runs"
    );
    assert!(asked.location.expect("a place").ends_with(&state));
    node.until("a stop", |n| n.exits.contains_key(&container).then_some(()))
        .await;
    node.report().await.expect("reports");
    app_state(&client, &container.app, AppState::Killed).await;
    let again = yarn.put(&state, json!({"state": "KILLED"})).await;
    assert_eq!(
        (again.status, again.json()),
        (200, json!({"state": "KILLED"}))
    );
    let app = yarn.get(&path).await.json()["app"].clone();
    assert_eq!(
        (app["finalStatus"].as_str(), app["diagnostics"].as_str()),
        (Some("KILLED"), Some("killed by bob"))
    );
    assert!(app["finishedTime"].as_u64() > Some(0) && app["trackingUI"] == "History");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_with_an_unreserved_id_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, _node) = cluster(&dir).await;
    let other = client
        .submit(&unmanaged("other"))
        .await
        .expect("submits")
        .app;
    for id in [
        format!("application_1700000000000_{:04}", other.seq()),
        "application_1700000000000_0042".to_owned(),
    ] {
        assert_eq!(
            yarn.post("apps", Some(submission(&id))).await.exception(),
            "ForbiddenException",
            "{id}"
        );
    }
    let foreign = submission("application_1600000000000_0001");
    assert_eq!(
        yarn.post("apps", Some(foreign)).await.exception(),
        "BadRequestException"
    );
    let new = yarn.post("apps/new-application", None).await.json();
    let mut files = submission(new["application-id"].as_str().expect("an id"));
    files["am-container-spec"]["local-resources"] =
        json!({"entry": [{"key": "a", "value": {"resource": "hdfs://nn/a", "type": "FILE"}}]});
    let refused = yarn.post("apps", Some(files)).await;
    assert!(
        refused.exception() == "BadRequestException" && refused.text.contains("local-resources"),
        "{}",
        refused.text
    );
    let mut large = submission(new["application-id"].as_str().expect("an id"));
    large["resource"]["memory"] = json!(4096);
    assert_eq!(
        yarn.post("apps", Some(large)).await.exception(),
        "BadRequestException",
        "no node is large enough"
    );
    assert_eq!(
        client.apps().await.expect("lists").len(),
        1,
        "no refused submission created an application"
    );
}

/// Exit status of memory kills in the YARN interface, before and after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn ended_containers_and_ids_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client, yarn, mut node) = cluster(&dir).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(256), 2)])
        .await
        .expect("asks");
    let containers = node.until_orders(2).await;
    node.run_all().await;
    let path = "apps/application_1700000000000_0001/appattempts/appattempt_1700000000000_0001_000001/containers";
    let live = yarn.get(path).await.json();
    let fields = |all: &Value, key: &str| -> Vec<Value> {
        all["containers"]["container"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c[key].clone())
            .collect()
    };
    assert_eq!(
        fields(&live, "containerExitStatus"),
        [json!(-1000), json!(-1000)]
    );
    assert_eq!(fields(&live, "containerState"), ["RUNNING", "RUNNING"]);
    node.end(&containers[0], ExitReason::OverheadOom);
    node.end(&containers[1], ExitReason::Signal { signal: 15 });
    node.report().await.expect("reports");
    master
        .until("both verdicts", |m| (m.ended.len() == 2).then_some(()))
        .await;
    master.sync(Vec::new()).await.expect("acknowledges");
    let over = yarn.get(path).await.json();
    assert_eq!(
        fields(&over, "containerExitStatus"),
        [json!(-104), json!(143)]
    );
    assert_eq!(fields(&over, "containerState"), ["COMPLETE", "COMPLETE"]);
    assert_eq!(fields(&over, "containerId"), fields(&live, "containerId"));
    let text = fields(&over, "diagnosticsInfo")[0]
        .as_str()
        .expect("a text")
        .to_owned();
    assert!(
        text.contains("256.0 MB of 256.0 MB physical memory used"),
        "{text}"
    );
    let kill = yarn
        .put(
            "apps/application_1700000000000_0001/state",
            json!({"state": "KILLED"}),
        )
        .await;
    assert_eq!(
        (kill.status, kill.json()),
        (200, json!({"state": "KILLED"})),
        "the application has no running container"
    );
    let app = yarn.get("apps/application_1700000000000_0001").await.json();
    running.shutdown().await.expect("ends");

    let (_running, _client, yarn, _node) = cluster(&dir).await;
    let after = yarn.get(path).await.json();
    assert_eq!(fields(&after, "containerId"), fields(&live, "containerId"));
    assert_eq!(
        fields(&after, "diagnosticsInfo"),
        fields(&over, "diagnosticsInfo")
    );
    let again = yarn.get("apps/application_1700000000000_0001").await.json();
    for key in [
        "id",
        "state",
        "finishedTime",
        "elapsedTime",
        "memorySeconds",
        "vcoreSeconds",
        "diagnostics",
    ] {
        assert_eq!(again["app"][key], app["app"][key], "{key}");
    }
}

/// All views with reservations show a reservation.
#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, mut node) = cluster(&dir).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![
            master.ask("small", mib(256), 1),
            master.ask("large", mib(1000), 1),
        ])
        .await
        .expect("asks");
    node.until_orders(1).await;
    node.run_all().await;
    until("a reservation of 1000 MB", || async {
        let metrics = yarn.get("metrics").await.json()["clusterMetrics"].clone();
        (metrics["reservedMB"] == 1000 && metrics["containersReserved"] == 1).then_some(())
    })
    .await;
    assert_eq!(
        yarn.get("apps/application_1700000000000_0001").await.json()["app"]["reservedMB"],
        1000
    );
    let queue = yarn.get("scheduler").await.json()["scheduler"]["schedulerInfo"]["queues"]["queue"]
        [0]
    .clone();
    assert_eq!(
        (&queue["reservedContainers"], &queue["allocatedContainers"]),
        (&json!(1), &json!(1))
    );
}

/// Memory × time of all containers, live and ended.
#[tokio::test(flavor = "multi_thread")]
async fn memory_seconds_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, mut node) = cluster(&dir).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(512), 2)])
        .await
        .expect("asks");
    node.until_orders(2).await;
    node.run_all().await;
    let path = "apps/application_1700000000000_0001";
    until("1024 MB-seconds of use", || async {
        let app = yarn.get(path).await.json()["app"].clone();
        let (seconds, elapsed) = (app["memorySeconds"].as_u64()?, app["elapsedTime"].as_u64()?);
        assert!(
            seconds <= elapsed * 1024 / 1000 + 1,
            "{seconds} MB-seconds in {elapsed} ms"
        );
        let entry = &app["resourceSecondsMap"]["entry"][0];
        assert_eq!(
            (entry["key"].as_str(), entry["value"].as_str()),
            (Some("memory-mb"), Some(seconds.to_string().as_str()))
        );
        (seconds >= 1024).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_are_selected_by_their_fields() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, _node) = cluster(&dir).await;
    let mut ids: Vec<AppId> = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(client.submit(&unmanaged(name)).await.expect("submits").app);
    }
    client.kill(&ids[1], None).await.expect("kills");
    let found = async |query: &str| -> Vec<String> {
        let answer = yarn.get(&format!("apps?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        answer.json()["apps"]["app"]
            .as_array()
            .expect("a list, even if it is empty")
            .iter()
            .map(|a| a["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(found("").await, ["a", "b", "c"]);
    assert_eq!(found("states=ACCEPTED,running").await, ["a", "c"]);
    assert_eq!(found("state=KILLED&user.name=x").await, ["b"]);
    assert_eq!(found("finalStatus=KILLED").await, ["b"]);
    assert_eq!(
        found("limit=2").await,
        ["b", "c"],
        "the latest applications"
    );
    assert_eq!(found("name=c&user=test&queue=default").await, ["c"]);
    assert_eq!(
        found("queue=root.default&applicationTypes=HEADROOM").await,
        ["a", "b", "c"]
    );
    for none in [
        "user=eve",
        "queue=other",
        "name=d",
        "applicationTypes=SPARK",
        "applicationTags=x",
        "startedTimeEnd=5",
        "states=NEW",
    ] {
        assert_eq!(found(none).await, [""; 0], "{none}");
    }
    assert_eq!(
        found("finishedTimeBegin=1").await,
        ["b"],
        "a running application has no end time"
    );
    assert_eq!(
        yarn.get("apps?states=ASLEEP").await.exception(),
        "BadRequestException"
    );
    let short = yarn
        .get("apps?deSelects=resourceRequests,timeouts")
        .await
        .json();
    assert!(
        short["apps"]["app"][0].get("timeouts").is_none()
            && short["apps"]["app"][0].get("resourceInfo").is_some()
    );

    let items = yarn
        .get("appstatistics?states=accepted,KILLED")
        .await
        .json()["appStatInfo"]["statItem"]
        .clone();
    assert_eq!(
        items,
        json!([{"state": "ACCEPTED", "type": "*", "count": 2}, {"state": "KILLED", "type": "*", "count": 1}])
    );
    assert_eq!(
        yarn.get("appstatistics?applicationTypes=A,B")
            .await
            .exception(),
        "BadRequestException"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_selected_by_name_and_state() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, _client, yarn, _node) = cluster(&dir).await;
    for name in ["n1:9", "n1:1234", "n1"] {
        assert_eq!(
            yarn.get(&format!("nodes/{name}")).await.json()["node"]["id"],
            "n1:9",
            "{name}"
        );
    }
    assert_eq!(
        yarn.get("nodes/n2:9").await.exception(),
        "NotFoundException"
    );
    let count = async |query: &str| {
        yarn.get(&format!("nodes{query}")).await.json()["nodes"]["node"]
            .as_array()
            .expect("a list")
            .len()
    };
    assert_eq!(
        (
            count("").await,
            count("?states=RUNNING,LOST").await,
            count("?states=lost").await
        ),
        (1, 1, 0)
    );
    assert_eq!(
        yarn.get("nodes?states=TIRED").await.exception(),
        "BadRequestException"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_objects_have_errors_that_clients_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, _node) = cluster(&dir).await;
    client.submit(&unmanaged("job")).await.expect("submits");
    let app = "apps/application_1700000000000_0001";
    let rows = [
        (
            Method::GET,
            "nothing/here".to_owned(),
            404,
            "NotFoundException",
        ),
        (Method::GET, "/ws/v2".to_owned(), 404, "NotFoundException"),
        (
            Method::GET,
            "apps/application_1700000000000_0009".to_owned(),
            404,
            "NotFoundException",
        ),
        (
            Method::GET,
            "apps/word-count.7".to_owned(),
            400,
            "BadRequestException",
        ),
        (
            Method::GET,
            format!("{app}/appattempts/appattempt_1700000000000_0001_000002"),
            404,
            "NotFoundException",
        ),
        (
            Method::GET,
            format!("{app}/appattempts/appattempt_1700000000000_0002_000001"),
            404,
            "NotFoundException",
        ),
        (
            Method::GET,
            format!("{app}/timeouts/NAPTIME"),
            400,
            "BadRequestException",
        ),
        (
            Method::DELETE,
            app.to_owned(),
            405,
            "WebApplicationException",
        ),
        (
            Method::POST,
            "containers/container_e01_1700000000000_0001_01_000001/signal/WAVE".to_owned(),
            400,
            "BadRequestException",
        ),
        (
            Method::POST,
            "containers/container_e01_1700000000000_0001_01_000009/signal/GRACEFUL_SHUTDOWN"
                .to_owned(),
            404,
            "NotFoundException",
        ),
    ];
    for (method, path, status, exception) in rows {
        assert_exception(&yarn, (method, &path), (status, exception)).await;
    }
}

/// Checks the status and the exception of a call that fails.
async fn assert_exception(
    yarn: &Yarn,
    (method, path): (Method, &str),
    (status, exception): (u16, &str),
) {
    let answer = yarn.call(method, path, None, None).await;
    assert_eq!(
        (answer.status, answer.exception().as_str()),
        (status, exception),
        "{path}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_calls_and_formats_have_errors_that_clients_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, _client, yarn, _node) = cluster(&dir).await;
    let unsupported = [
        (Method::GET, "reservation/list"),
        (Method::POST, "delegation-token"),
        (Method::GET, "scheduler-conf"),
        (Method::GET, "scheduler/activities"),
        (Method::POST, "nodes/n1:9/resource"),
    ];
    for call in unsupported {
        assert_exception(&yarn, call, (501, "UnsupportedOperationException")).await;
    }
    let xml = yarn
        .call(Method::GET, "info", None, Some("application/xml"))
        .await;
    assert_eq!(
        (xml.status, xml.exception().as_str()),
        (406, "WebApplicationException")
    );
    assert_eq!(
        yarn.call(Method::GET, "info", None, Some("text/html, */*;q=0.1"))
            .await
            .status,
        200
    );
    let front = yarn.get("/cluster").await;
    assert!(
        front.status == 200 && front.text.contains("active"),
        "{}",
        front.text
    );
    assert!(
        yarn.get("/jmx").await.json()["beans"]
            .as_array()
            .is_some_and(|beans| !beans.is_empty())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_stopped_by_a_signal() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, mut node) = cluster(&dir).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(256), 1)])
        .await
        .expect("asks");
    let container = node.until_orders(1).await.remove(0);
    node.run_all().await;
    let signal = |command: &str| {
        format!("containers/container_e01_1700000000000_0001_01_000001/signal/{command}")
    };
    assert_eq!(
        yarn.post(&signal("OUTPUT_THREAD_DUMP"), None)
            .await
            .exception(),
        "BadRequestException"
    );
    let answer = yarn.post(&signal("GRACEFUL_SHUTDOWN"), None).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    node.until("a stop", |n| n.exits.contains_key(&container).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_application_is_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client, yarn, _node) = cluster(&dir).await;
    client.submit(&unmanaged("job")).await.expect("submits");
    let app = "apps/application_1700000000000_0001";
    let at = |what: &str| format!("{app}/{what}");
    let put = async |what: &str, body: Value| {
        let answer = yarn.put(&at(what), body).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text);
        answer.json()
    };
    assert_eq!(
        put("priority", json!({"priority": 7})).await,
        json!({"priority": 7})
    );
    assert_eq!(yarn.get(app).await.json()["app"]["priority"], 7);
    assert_eq!(
        put("queue", json!({"queue": "root.default"})).await,
        json!({"queue": "default"})
    );
    assert_eq!(
        yarn.put(&at("queue"), json!({"queue": "nowhere"}))
            .await
            .exception(),
        "NotFoundException"
    );
    assert_eq!(
        yarn.put(&at("priority"), json!({"priority": "high"}))
            .await
            .exception(),
        "BadRequestException"
    );

    let timeout = |expiry: &str| json!({"timeout": {"type": "LIFETIME", "expiryTime": expiry}});
    assert_eq!(
        yarn.get(&at("timeouts/LIFETIME")).await.json()["timeout"]["remainingTimeInSeconds"],
        -1
    );
    let set = put("timeout", timeout("2090-01-01T01:00:00.000+0100")).await["timeout"].clone();
    assert_eq!(set["expiryTime"], "2090-01-01T00:00:00.000+0000");
    assert!(
        set["remainingTimeInSeconds"].as_u64() > Some(1_000_000_000),
        "{set}"
    );
    let all = yarn.get(&at("timeouts")).await.json();
    assert_eq!(
        all["timeouts"]["timeout"][0]["expiryTime"],
        set["expiryTime"]
    );
    for wrong in ["2001-01-01T00:00:00.000+0000", "tomorrow"] {
        assert_eq!(
            yarn.put(&at("timeout"), timeout(wrong)).await.exception(),
            "BadRequestException",
            "{wrong}"
        );
    }
    assert_eq!(
        put("timeout", timeout("UNLIMITED")).await["timeout"]["expiryTime"],
        "UNLIMITED"
    );
}

/// Every path of the resource manager in `docs/yarn.md` is served, with the method that the page
/// names.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_documentation_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, _client, yarn, _node) = cluster(&dir).await;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/yarn.md"))
        .expect("the page");
    let calls: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `curl ")?.split('`').next())
        .collect();
    let ours = calls.iter().filter_map(|call| {
        call.split_once("RM/")
            .map(|(flags, path)| (flags, format!("/{path}")))
    });
    let mut named = 0;
    for (flags, path) in ours {
        let method = if flags.contains("PUT") {
            Method::PUT
        } else if flags.contains("POST") {
            Method::POST
        } else {
            Method::GET
        };
        let answer = yarn.call(method, &path, None, None).await;
        let absent = answer.status == 404 && answer.text.contains("nothing at");
        assert!(
            !absent && ![405, 501].contains(&answer.status),
            "{path}: {} {}",
            answer.status,
            answer.text
        );
        named += 1;
    }
    assert!(named >= 20, "{named} addresses in {calls:?}");
}

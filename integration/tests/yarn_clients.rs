//! Two third-party clients of YARN's REST API with real daemons: all their calls and the results.

#![allow(missing_docs)] // a test binary has no public API

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{AppId, AttemptId, Bytes, Cpus, Epoch, ExitReason, LaunchSpec, Resource};
use headroom_wire::v1::application_master::{MasterSync, PlacementRequest};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::yarn::ids::{YarnApplicationId, YarnAttemptId, YarnContainerId};
use integration::cluster::{Cluster, SOON, until};
use serde_json::{Value, json};

/// Timeout of a script.
const SCRIPT: Duration = Duration::from_secs(60);
/// Uses at least 64 MiB in any POSIX shell, and keeps it.
const GREEDY: &str =
    "x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; sleep 62";

/// An application on a cluster of one node: a container that was killed for its memory, one that
/// runs, and one that waits.
struct ClientScenario {
    python: PathBuf,
    cluster: Cluster,
    attempt: AttemptId,
    epoch: Epoch,
    dead: ContainerView,
    live: ContainerView,
}

fn ask(request: &str, mib: u64, script: &str) -> PlacementRequest {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let launch = LaunchSpec {
        command,
        ..LaunchSpec::default()
    };
    let size = Resource::new(Bytes::from_mib(mib), Cpus::from_milli(500));
    PlacementRequest::new(request.parse().expect("a request"), size, launch)
}

impl ClientScenario {
    fn begin() -> ClientScenario {
        // First, because it may take longer than the heartbeat timeout of a master.
        let python = environment().expect("an environment with the clients");
        let cluster = Cluster::of_one().expect("a cluster");
        let client = cluster.client().clone();
        let submitted = cluster.register_master("scenario").expect("registers");
        let (app, attempt, epoch) = (submitted.app, submitted.attempt, submitted.epoch);
        // This request waits for a node that never joins. A request that waits for memory would get
        // a reservation.
        let huge = PlacementRequest {
            nodes: vec!["node-9".parse().expect("a name")],
            ..ask("huge", 1000, "true")
        };
        let asks = [
            ask("greedy", 32, GREEDY),
            ask("calm", 64, "echo calm; exec sleep 100"),
            huge,
        ];
        sync(&cluster, &attempt, epoch, asks.to_vec()).expect("asks");
        let find = |request: &str, state: &'static str| {
            until(&format!("{request} to be {state}"), SOON, || {
                sync(&cluster, &attempt, epoch, Vec::new())?;
                let all = cluster.call(client.containers(Some(&app)))?;
                let is_it = |c: &ContainerView| {
                    c.request.as_ref().is_some_and(|r| r.as_str() == request) && c.state == state
                };
                Ok(all.into_iter().find(is_it))
            })
            .expect("the state")
        };
        let (live, dead) = (find("calm", "running"), find("greedy", "exited"));
        assert_eq!(dead.reason, Some(ExitReason::OverheadOom), "{dead:?}");
        ClientScenario {
            python,
            cluster,
            attempt,
            epoch,
            dead,
            live,
        }
    }

    fn app(&self) -> &AppId {
        &self.attempt.app
    }

    fn name(container: &ContainerView) -> YarnContainerId {
        YarnContainerId::of(&container.id, 1)
    }

    /// Runs a script with the ids of this scenario and returns its JSON output.
    fn run(&self, script: &str) -> Value {
        let node = self
            .cluster
            .call(self.cluster.client().node(&self.live.node))
            .expect("a node");
        let facts = json!({
            "rm": self.cluster.url(), "nm": node.url, "app": YarnApplicationId::of(self.app()), "attempt": YarnAttemptId::of(&self.attempt),
            "live": ClientScenario::name(&self.live), "dead": ClientScenario::name(&self.dead), "node": node_id(&self.live, &node.url),
        });
        let output = self
            .output_of(script, &facts)
            .unwrap_or_else(|e| panic!("{script}: {e:#}"));
        serde_json::from_str(&output).unwrap_or_else(|e| panic!("{script}: {e}: {output}"))
    }

    /// Runs a script; the master sends heartbeats meanwhile.
    fn output_of(&self, script: &str, facts: &Value) -> Result<String> {
        let (out, err) = (
            self.cluster.dir().join("output"),
            self.cluster.dir().join("complaints"),
        );
        let mut child = Command::new(&self.python)
            .arg(folder().join(script))
            .arg(facts.to_string())
            .env("NO_PROXY", "*")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .spawn()?;
        let status = until("the script to end", SCRIPT, || {
            sync(&self.cluster, &self.attempt, self.epoch, Vec::new())?;
            Ok(child.try_wait()?)
        })?;
        ensure!(status.success(), "{status}: {}", fs::read_to_string(&err)?);
        Ok(fs::read_to_string(&out)?)
    }
}

fn node_id(container: &ContainerView, url: &str) -> String {
    format!(
        "{}:{}",
        container.node,
        url.rsplit_once(':').map_or("", |(_, port)| port)
    )
}

/// Sends a sync call that acknowledges all updates.
fn sync(
    cluster: &Cluster,
    attempt: &AttemptId,
    epoch: Epoch,
    asks: Vec<PlacementRequest>,
) -> Result<()> {
    let (drop, release) = (Vec::new(), Vec::new());
    let body = MasterSync {
        attempt: attempt.clone(),
        epoch,
        ack: u64::MAX,
        asks,
        drop,
        release,
        job: None,
    };
    Ok(cluster
        .call(cluster.client().sync_master(&attempt.app, &body))
        .map(|_| ())?)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/yarn")
}

/// The interpreter of an environment with the clients, created once for each list of requirements.
fn environment() -> Result<PathBuf> {
    let list = folder().join("requirements.txt");
    let text = fs::read_to_string(&list)?;
    let mark = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("yarn-clients-{mark:016x}"));
    fs::create_dir_all(&dir)?;
    // The other test of this file may be creating it at the same time.
    let lock = File::create(dir.join("lock"))?;
    lock.lock()
        .context("waiting for the lock of the environment")?;
    let (python, done) = (dir.join("venv/bin/python"), dir.join("done"));
    if !done.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(dir.join("venv")))?;
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-r",
        ];
        run(Command::new(&python).args(pip).arg(&list))?;
        File::create(done)?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The result of a call, which must be a success.
fn ok<'a>(results: &'a Value, call: &str) -> &'a Value {
    results[call]
        .get("ok")
        .unwrap_or_else(|| panic!("{call}: {}", results[call]))
}

/// The error of a call.
fn error<'a>(results: &'a Value, call: &str) -> &'a str {
    results[call]["error"]
        .as_str()
        .unwrap_or_else(|| panic!("{call} was answered: {}", results[call]))
}

/// Checks the values at these pointers.
fn are(value: &Value, expected: &[(&str, Value)]) {
    for (pointer, expected) in expected {
        assert_eq!(
            value.pointer(pointer),
            Some(expected),
            "{pointer} in {value:#}"
        );
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no list at {pointer} in {value:#}"))
}

fn number(value: &Value, pointer: &str) -> u64 {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number at {pointer} in {value:#}"))
}

/// Checks both clients' view of the cluster.
fn the_cluster(scenario: &ClientScenario, results: &Value) {
    let info = ok(results, "cluster_information");
    are(
        info,
        &[
            ("/clusterInfo/state", json!("STARTED")),
            ("/clusterInfo/haState", json!("ACTIVE")),
        ],
    );
    are(
        ok(results, "cluster_metrics"),
        &[
            ("/clusterMetrics/appsRunning", json!(1)),
            ("/clusterMetrics/activeNodes", json!(1)),
            ("/clusterMetrics/totalMB", json!(1024)),
            ("/clusterMetrics/allocatedMB", json!(64)),
            ("/clusterMetrics/availableMB", json!(960)),
            ("/clusterMetrics/pendingMB", json!(1000)),
            ("/clusterMetrics/containersAllocated", json!(1)),
            ("/clusterMetrics/containersPending", json!(1)),
            ("/clusterMetrics/totalVirtualCores", json!(8)),
        ],
    );
    let scheduler = ok(results, "cluster_scheduler");
    are(
        scheduler,
        &[
            ("/scheduler/schedulerInfo/type", json!("capacityScheduler")),
            (
                "/scheduler/schedulerInfo/queues/queue/0/queueName",
                json!("default"),
            ),
            (
                "/scheduler/schedulerInfo/queues/queue/0/queues/queue",
                json!([]),
            ),
            (
                "/scheduler/schedulerInfo/queues/queue/0/absoluteCapacity",
                json!(100.0),
            ),
            (
                "/scheduler/schedulerInfo/queues/queue/0/resourcesUsed/memory",
                json!(64),
            ),
            (
                "/scheduler/schedulerInfo/queues/queue/0/users/user/0/username",
                json!("ann"),
            ),
        ],
    );
    let node = ok(results, "cluster_node");
    are(
        node,
        &[
            ("/node/state", json!("RUNNING")),
            ("/node/nodeHostName", json!(scenario.live.node)),
            ("/node/numContainers", json!(1)),
            ("/node/usedMemoryMB", json!(64)),
        ],
    );
    assert_eq!(
        list(ok(results, "cluster_nodes"), "/nodes/node")[0]["id"],
        node["node"]["id"]
    );
}

/// Checks both clients' view of the application.
fn the_application(scenario: &ClientScenario, results: &Value) {
    let app = ok(results, "cluster_application");
    are(
        app,
        &[
            ("/app/id", json!(YarnApplicationId::of(scenario.app()))),
            ("/app/user", json!("ann")),
            ("/app/state", json!("RUNNING")),
            ("/app/finalStatus", json!("UNDEFINED")),
            ("/app/allocatedMB", json!(64)),
            ("/app/runningContainers", json!(1)),
            ("/app/unmanagedApplication", json!(true)),
            ("/app/amRPCAddress", json!("127.0.0.1:4711")),
            ("/app/resourceRequests/0/capability/memory", json!(1000)),
        ],
    );
    let expected = 64 * number(app, "/app/elapsedTime") / 1000;
    assert!(
        number(app, "/app/memorySeconds") <= expected + 32 * 20,
        "{app:#}"
    );
    let attempts = list(
        ok(results, "cluster_application_attempts"),
        "/appAttempts/appAttempt",
    );
    let (id, state) = (
        &attempts[0]["appAttemptId"],
        &attempts[0]["appAttemptState"],
    );
    assert_eq!(
        (attempts.len(), id, state),
        (
            1,
            &json!(YarnAttemptId::of(&scenario.attempt)),
            &json!("RUNNING")
        )
    );
}

#[test]
fn hadoop_yarn_rest_api() {
    let scenario = ClientScenario::begin();
    let results = scenario.run("hadoop_yarn_rest_api_calls.py");
    assert_eq!(
        results["left_out"],
        json!([]),
        "methods that were not called"
    );
    let yarn = &results["yarn"];
    the_cluster(&scenario, yarn);
    the_application(&scenario, yarn);
    assert_eq!(list(ok(yarn, "cluster_applications"), "/apps/app").len(), 1);
    let running = list(ok(yarn, "running"), "/apps/app");
    assert!(running.len() == 1 && running[0].get("resourceRequests").is_none());
    are(ok(yarn, "failed"), &[("/apps/app", json!([]))]);
    are(ok(yarn, "lost"), &[("/nodes/node", json!([]))]);
    assert_eq!(
        list(ok(yarn, "cluster_appstatistics"), "/appStatInfo/statItem").len(),
        8,
        "every state"
    );
    let count = |state: &str, count: u64| json!({"state": state, "type": "*", "count": count});
    are(
        ok(yarn, "two_states"),
        &[(
            "/appStatInfo/statItem",
            json!([count("RUNNING", 1), count("KILLED", 0)]),
        )],
    );
    are(
        ok(yarn, "no_application"),
        &[("/RemoteException/exception", json!("NotFoundException"))],
    );
    // This client does not check the status, so it parses the text of a refusal as XML.
    assert!(error(&results["xml"], "cluster_information").starts_with("ParseError"));
}

#[test]
fn yarn_api_client() {
    let scenario = ClientScenario::begin();
    let results = scenario.run("yarn_api_client_calls.py");
    assert_eq!(
        results["left_out"],
        json!([]),
        "methods that were not called"
    );
    let rm = &results["rm"];
    the_cluster(&scenario, rm);
    the_application(&scenario, rm);
    lists_and_parts(&scenario, rm);
    containers_of_the_attempt(&scenario, rm);
    what_was_changed(rm);
    what_was_submitted(&results);
    what_is_not_offered(rm);
    the_node(&scenario, &results["nm"]);
    let app = scenario.app();
    until("the signalled container to end", SOON, || {
        sync(
            &scenario.cluster,
            &scenario.attempt,
            scenario.epoch,
            Vec::new(),
        )?;
        let all = scenario
            .cluster
            .call(scenario.cluster.client().containers(Some(app)))?;
        Ok(all
            .iter()
            .find(|c| c.id == scenario.live.id && c.reason == Some(ExitReason::Stopped))
            .map(|_| ()))
    })
    .expect("ends");
}

fn the_running_node_is_listed(rm: &Value) {
    for call in ["cluster_nodes", "running_nodes"] {
        let nodes = list(ok(rm, call), "/nodes/node");
        assert!(
            nodes.len() == 1 && nodes[0]["state"] == "RUNNING",
            "{call}: {nodes:?}"
        );
    }
}

fn lists_and_parts(scenario: &ClientScenario, rm: &Value) {
    let id = json!(YarnApplicationId::of(scenario.app()));
    assert_eq!(
        *ok(rm, "get_active_endpoint"),
        json!(scenario.cluster.url())
    );
    for (call, found) in [
        ("cluster_applications", 1),
        ("running", 1),
        ("of_a_type", 1),
        ("killed", 0),
        ("started", 0),
    ] {
        let apps = list(ok(rm, call), "/apps/app");
        assert!(
            apps.len() == found && apps.iter().all(|app| app["id"] == id),
            "{call}: {apps:?}"
        );
    }
    assert!(
        list(ok(rm, "of_a_type"), "/apps/app")[0]
            .get("timeouts")
            .is_none()
    );
    let counted = json!([{"state": "RUNNING", "type": "HEADROOM", "count": 1}]);
    are(
        ok(rm, "statistics_of_running"),
        &[("/appStatInfo/statItem", counted)],
    );
    assert_eq!(
        ok(rm, "cluster_application_statistics")["appStatInfo"]["statItem"][4]["count"],
        1
    );
    the_running_node_is_listed(rm);
    assert_eq!(
        *ok(rm, "cluster_application_state"),
        json!({"state": "RUNNING"})
    );
    assert_eq!(
        *ok(rm, "cluster_get_application_queue"),
        json!({"queue": "default"})
    );
    assert_eq!(
        *ok(rm, "cluster_get_application_priority"),
        json!({"priority": 0})
    );
    are(
        ok(rm, "cluster_application_timeouts"),
        &[("/timeouts/timeout/0/expiryTime", json!("UNLIMITED"))],
    );
    are(
        ok(rm, "cluster_application_timeout"),
        &[("/timeout/remainingTimeInSeconds", json!(-1))],
    );
    are(
        ok(rm, "cluster_scheduler_queue"),
        &[
            ("/queuePath", json!("root.default")),
            ("/numApplications", json!(1)),
        ],
    );
    assert_eq!(*ok(rm, "no_queue"), Value::Null);
    are(
        ok(rm, "cluster_queue_partition"),
        &[
            ("/absoluteCapacity", json!(100.0)),
            ("/absoluteUsedCapacity", json!(6.2)),
        ],
    );
    assert_eq!(*ok(rm, "cluster_scheduler_queue_availability"), json!(true));
    let activities = ok(rm, "application_activities");
    let why = activities
        .pointer("/appActivities/allocations/0/requestAllocation/0/diagnostic")
        .and_then(Value::as_str);
    assert!(
        why.is_some_and(|why| why.starts_with("huge: ")),
        "{activities:#}"
    );
}

/// Ended containers are listed too, with the exit status and the text that programs look for.
fn containers_of_the_attempt(scenario: &ClientScenario, rm: &Value) {
    let all = list(
        ok(rm, "cluster_application_attempt_containers"),
        "/containers/container",
    );
    let seen = all.iter().map(|c| {
        (
            c["containerId"].clone(),
            c["containerState"].clone(),
            c["containerExitStatus"].clone(),
        )
    });
    let expected = [
        (&scenario.dead, "COMPLETE", -104),
        (&scenario.live, "RUNNING", -1000),
    ];
    let expected = expected
        .map(|(c, state, status)| (json!(ClientScenario::name(c)), json!(state), json!(status)));
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let dead = ok(rm, "cluster_application_attempt_container_info");
    are(
        dead,
        &[
            ("/container/allocatedMB", json!(32)),
            ("/container/allocatedVCores", json!(1)),
        ],
    );
    let words = dead["container"]["diagnosticsInfo"]
        .as_str()
        .expect("a text");
    assert!(
        words.contains("MB of 32.0 MB physical memory used"),
        "{words}"
    );
    assert!(
        number(dead, "/container/finishedTime") >= number(dead, "/container/startedTime"),
        "{dead:#}"
    );
    let attempt = ok(rm, "cluster_application_attempt_info");
    are(
        attempt,
        &[
            ("/appAttempt/id", json!(1)),
            ("/appAttempt/appAttemptState", json!("RUNNING")),
        ],
    );
}

fn what_was_changed(rm: &Value) {
    assert_eq!(
        *ok(rm, "cluster_change_application_priority"),
        json!({"priority": 3})
    );
    assert_eq!(
        *ok(rm, "cluster_change_application_queue"),
        json!({"queue": "default"})
    );
    are(
        ok(rm, "cluster_update_application_timeout"),
        &[("/timeout/expiryTime", json!("2090-01-01T00:00:00.000+0000"))],
    );
    assert_eq!(*ok(rm, "cluster_container_signal"), json!({}));
}

fn what_was_submitted(results: &Value) {
    let rm = &results["rm"];
    are(
        ok(rm, "cluster_new_application"),
        &[("/maximum-resource-capability/memory", json!(1024))],
    );
    assert_eq!(
        (
            ok(rm, "cluster_submit_application"),
            ok(rm, "submitted_again")
        ),
        (&json!({}), &json!({}))
    );
    are(
        ok(rm, "submitted"),
        &[
            ("/app/id", results["new"]["application-id"].clone()),
            ("/app/name", json!("by a client")),
            ("/app/applicationType", json!("SCRIPT")),
            ("/app/state", json!("ACCEPTED")),
            ("/app/runningContainers", json!(1)),
            ("/app/unmanagedApplication", json!(false)),
        ],
    );
    are(
        ok(rm, "cluster_application_kill"),
        &[("/state", json!("RUNNING"))],
    );
    are(ok(rm, "state_after_kill"), &[("/state", json!("KILLED"))]);
    are(ok(rm, "killed_again"), &[("/state", json!("KILLED"))]);
}

/// Checks that unsupported calls are refused with a reason that the client shows.
fn what_is_not_offered(rm: &Value) {
    let absent = [
        "cluster_node_update_resource",
        "cluster_reservations",
        "cluster_new_reservation",
        "cluster_submit_reservation",
        "cluster_update_reservation",
        "cluster_delete_reservation",
        "cluster_new_delegation_token",
        "cluster_scheduler_conf_mutation",
        "cluster_modify_scheduler_conf_mutation",
        "scheduler_activities",
    ];
    for call in absent {
        let text = error(rm, call);
        assert!(
            text.starts_with("APIError: Response finished with status: 501")
                && text.contains("RemoteException"),
            "{call}: {text}"
        );
    }
    assert!(
        error(rm, "thread_dump").contains("status: 400"),
        "{}",
        rm["thread_dump"]
    );
    // These two calls of the client fail before they send a request.
    for call in [
        "cluster_renew_delegation_token",
        "cluster_cancel_delegation_token",
    ] {
        assert!(
            error(rm, call).starts_with("TypeError"),
            "{call}: {}",
            rm[call]
        );
    }
}

fn the_node(scenario: &ClientScenario, nm: &Value) {
    are(
        ok(nm, "node_information"),
        &[
            ("/nodeInfo/nodeHostName", json!(scenario.live.node)),
            ("/nodeInfo/nodeHealthy", json!(true)),
            ("/nodeInfo/totalPmemAllocatedContainersMB", json!(1024)),
        ],
    );
    let id = json!(YarnApplicationId::of(scenario.app()));
    for call in ["node_applications", "running_applications"] {
        let apps = list(ok(nm, call), "/apps/app");
        assert!(
            apps.iter()
                .any(|app| app["id"] == id && app["state"] == "RUNNING"),
            "{call}: {apps:?}"
        );
    }
    are(ok(nm, "new_applications"), &[("/apps/app", json!([]))]);
    let app = ok(nm, "node_application");
    let both = [&scenario.live, &scenario.dead].map(|c| json!(ClientScenario::name(c)));
    assert!(
        both.iter()
            .all(|name| list(app, "/app/containerids").contains(name)),
        "{app:#}"
    );
    let all = list(ok(nm, "node_containers"), "/containers/container");
    assert!(
        both.iter().all(|name| all.iter().any(|c| c["id"] == *name)),
        "{all:?}"
    );
    are(
        ok(nm, "node_container"),
        &[
            ("/container/exitCode", json!(-104)),
            ("/container/headroomId", json!(scenario.dead.id)),
            ("/container/memoryLimitBytes", json!(32 << 20)),
        ],
    );
    assert!(number(ok(nm, "node_container"), "/container/memoryPeakBytes") > 8 << 20);
    are(
        ok(nm, "live_container"),
        &[
            ("/container/state", json!("RUNNING")),
            ("/container/exitCode", json!(-1000)),
            ("/container/containerLogFiles", json!(["stdout", "stderr"])),
        ],
    );
    are(
        ok(nm, "auxiliary_services"),
        &[("/services/services", json!([]))],
    );
    assert!(error(nm, "auxiliary_services_update").contains("status: 405"));
}

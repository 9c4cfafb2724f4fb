//! Every response of the YARN interface: it has the fields that YARN's clients read, and equals its
//! golden file.
//!
//! `HEADROOM_UPDATE_GOLDEN=1` rewrites the files in `golden`; look at the difference before
//! you commit it.

#![allow(missing_docs)] // tests are read, not imported

mod calls;
#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use std::collections::BTreeSet;
use std::path::Path;

use calls::*;
use fakes::*;
use headroom_types::ExitReason;
use serde_json::Value;

const INFO: &str = "id startedOn state haState rmStateStoreName resourceManagerVersion resourceManagerBuildVersion \
    resourceManagerVersionBuiltOn hadoopVersion hadoopBuildVersion hadoopVersionBuiltOn haZooKeeperConnectionState";
const METRICS: &str = "appsSubmitted appsCompleted appsPending appsRunning appsFailed appsKilled reservedMB availableMB \
    allocatedMB pendingMB reservedVirtualCores availableVirtualCores allocatedVirtualCores pendingVirtualCores \
    containersAllocated containersReserved containersPending totalMB utilizedMB totalVirtualCores utilizedVirtualCores \
    utilizedMBPercent utilizedVirtualCoresPercent rmSchedulerBusyPercent totalNodes lostNodes unhealthyNodes \
    decommissioningNodes decommissionedNodes rebootedNodes activeNodes shutdownNodes containerAssignedPerSecond \
    totalUsedResourcesAcrossPartition totalClusterResourcesAcrossPartition totalReservedResourcesAcrossPartition \
    totalAllocatedContainersAcrossPartition crossPartitionMetricsAvailable rmEventQueueSize schedulerEventQueueSize";
const NODE: &str = "rack state id nodeHostName nodeHTTPAddress lastHealthUpdate version healthReport numContainers \
    usedMemoryMB availMemoryMB usedVirtualCores availableVirtualCores memUtilization cpuUtilization \
    numRunningOpportContainers usedMemoryOpportGB usedVirtualCoresOpport numQueuedContainers nodeLabels allocationTags \
    resourceUtilization usedResource availableResource totalResource nodeAttributesInfo";
const UTILIZATION: &str = "nodePhysicalMemoryMB nodeVirtualMemoryMB nodeCPUUsage aggregatedContainersPhysicalMemoryMB \
    aggregatedContainersVirtualMemoryMB containersCPUUsage";
const APP: &str = "id user name queue state finalStatus progress trackingUI trackingUrl diagnostics clusterId rmClusterId \
    applicationType applicationTags priority startedTime launchTime finishedTime elapsedTime amContainerLogs \
    amHostHttpAddress amRPCAddress masterNodeId allocatedMB allocatedVCores reservedMB reservedVCores runningContainers \
    memorySeconds vcoreSeconds queueUsagePercentage clusterUsagePercentage resourceSecondsMap preemptedResourceMB \
    preemptedResourceVCores numNonAMContainerPreempted numAMContainerPreempted preemptedMemorySeconds \
    preemptedVcoreSeconds preemptedResourceSecondsMap resourceRequests logAggregationStatus unmanagedApplication \
    appNodeLabelExpression amNodeLabelExpression resourceInfo timeouts";
const REQUEST: &str = "priority resourceName capability numContainers relaxLocality nodeLabelExpression \
    allocationRequestId executionTypeRequest";
const RESOURCE: &str = "memory vCores resourceInformations";
const INFORMATION: &str =
    "name units value minimumAllocation maximumAllocation resourceType attributes";
const QUEUE: &str = "capacity usedCapacity maxCapacity absoluteCapacity absoluteMaxCapacity absoluteUsedCapacity weight \
    numApplications maxParallelApps queueName queuePath state queues resourcesUsed allocatedContainers \
    reservedContainers pendingContainers mode nodeLabels preemptionDisabled defaultPriority capacities resources";
const LEAF: &str = "type numActiveApplications numPendingApplications numContainers maxApplications \
    maxApplicationsPerUser userLimit userLimitFactor users AMResourceLimit usedAMResource userAMResourceLimit \
    orderingPolicyInfo";
const ATTEMPT: &str = "id startTime finishedTime containerId nodeHttpAddress nodeId logsLink blacklistedNodes \
    nodesBlacklistedBySystem appAttemptId appAttemptState exportPorts";
const CONTAINER: &str = "containerId allocatedMB allocatedVCores assignedNodeId priority startedTime finishedTime \
    elapsedTime logUrl containerExitStatus containerState diagnosticsInfo nodeHttpAddress nodeId allocatedResources";

fn words(list: &str) -> BTreeSet<&str> {
    list.split_whitespace().collect()
}

/// Checks that the object at `pointer` has exactly these fields.
fn has_fields(answer: &Value, pointer: &str, list: &str) {
    let object = answer
        .pointer(pointer)
        .and_then(Value::as_object)
        .unwrap_or_else(|| panic!("no object at {pointer} in {answer}"));
    let fields: BTreeSet<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(fields, words(list), "{pointer}");
}

/// Replaces times, durations and ports, which differ between runs.
fn normalized(mut value: Value) -> Value {
    normalize("", &mut value);
    value
}

fn normalize(key: &str, value: &mut Value) {
    let moment = [
        "Time",
        "startedOn",
        "lastHealthUpdate",
        "lastrun",
        "timestamp",
        "Seconds",
    ];
    match value {
        Value::Object(fields) => fields
            .iter_mut()
            .for_each(|(key, value)| normalize(key, value)),
        Value::Array(all) => all.iter_mut().for_each(|value| normalize(key, value)),
        Value::Number(_) if moment.iter().any(|m| key.ends_with(m)) => *value = Value::from(0),
        // Other tests check the text of diagnostics.
        Value::String(text) if matches!(key, "dateTime" | "value" | "diagnostic") => text.clear(),
        Value::String(text) if text.starts_with("http://127.0.0.1:") && !text.contains(":9/") => {
            let path = text.splitn(4, '/').nth(3).unwrap_or_default();
            *text = format!("http://here/{path}");
        }
        Value::Number(_) if matches!(key, "containerAssignedPerSecond" | "rmEventQueueSize") => {
            *value = Value::from(0)
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn golden(name: &str, answer: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    let text = serde_json::to_string_pretty(&normalized(answer.clone())).expect("writes") + "\n";
    let text = text.replace(
        concat!("headroom ", env!("CARGO_PKG_VERSION")),
        "headroom VERSION",
    );
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("writes the file");
    }
    let known =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(text, known, "{name}");
}

/// Name of the file, path, and lists of fields by pointer.
type Row = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

const TIMEOUT: &str = "type expiryTime remainingTimeInSeconds";
const LEAF_AT: &str = "/scheduler/schedulerInfo/queues/queue/0";
const USER_AT: &str = "/scheduler/schedulerInfo/queues/queue/0/users/user/0";
const USER: &str = "username resourcesUsed numActiveApplications numPendingApplications";
const USED_AT: &str = "/app/resourceInfo/resourceUsagesByPartition/0/used";
const INFORMATION_AT: &str =
    "/app/resourceInfo/resourceUsagesByPartition/0/used/resourceInformations/resourceInformation/0";
const REASON_AT: &str = "/appActivities/allocations/0/requestAllocation/0";
const REASON: &str = "requestPriority allocationRequestId allocationState diagnostic children";

const ROWS: [Row; 18] = [
    ("info", "info", &[("/clusterInfo", &[INFO])]),
    ("metrics", "metrics", &[("/clusterMetrics", &[METRICS])]),
    (
        "scheduler",
        "scheduler",
        &[
            (LEAF_AT, &[QUEUE, LEAF]),
            ("/scheduler/schedulerInfo", &[QUEUE, "type health"]),
            (USER_AT, &[USER]),
            (
                "/scheduler/schedulerInfo/health",
                &["lastrun operationsInfo lastRunDetails"],
            ),
        ],
    ),
    (
        "nodes",
        "nodes",
        &[
            ("/nodes/node/0", &[NODE]),
            ("/nodes/node/0/resourceUtilization", &[UTILIZATION]),
        ],
    ),
    (
        "node",
        "nodes/n1:9",
        &[("/node", &[NODE]), ("/node/totalResource", &[RESOURCE])],
    ),
    (
        "apps",
        "apps",
        &[("/apps/app/0", &[APP]), ("/apps/app/1", &[APP])],
    ),
    (
        "app",
        "APP",
        &[
            ("/app", &[APP]),
            ("/app/resourceRequests/0", &[REQUEST]),
            ("/app/resourceRequests/0/capability", &["memory vCores"]),
            (USED_AT, &[RESOURCE]),
            (INFORMATION_AT, &[INFORMATION]),
            ("/app/timeouts/timeout/0", &[TIMEOUT]),
        ],
    ),
    (
        "appattempts",
        "APP/appattempts",
        &[("/appAttempts/appAttempt/0", &[ATTEMPT])],
    ),
    (
        "appattempt",
        "MANAGED/appattempts/appattempt_1700000000000_0002_000001",
        &[("/appAttempt", &[ATTEMPT])],
    ),
    (
        "containers",
        "APP/appattempts/RUN/containers",
        &[
            ("/containers/container/0", &[CONTAINER]),
            ("/containers/container/1", &[CONTAINER]),
        ],
    ),
    (
        "container",
        "APP/appattempts/RUN/containers/container_e01_1700000000000_0001_01_000001",
        &[("/container", &[CONTAINER])],
    ),
    (
        "appstatistics",
        "appstatistics",
        &[("/appStatInfo/statItem/0", &["state type count"])],
    ),
    ("state", "APP/state", &[("", &["state"])]),
    ("queue", "APP/queue", &[("", &["queue"])]),
    ("priority", "APP/priority", &[("", &["priority"])]),
    (
        "timeouts",
        "APP/timeouts",
        &[("/timeouts/timeout/0", &[TIMEOUT])],
    ),
    (
        "timeout",
        "APP/timeouts/LIFETIME",
        &[("/timeout", &[TIMEOUT])],
    ),
    (
        "app_activities",
        "scheduler/app-activities/application_1700000000000_0001",
        &[
            (REASON_AT, &[REASON]),
            (
                "/appActivities",
                &["applicationId timestamp dateTime allocations"],
            ),
        ],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_the_fields_that_clients_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = yarn_resource_manager(dir.path()).await;
    let yarn = Yarn::new(&running.url);
    let mut node = FakeNode::join(&client, "n1", 1024).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    // The request waits for a node that does not exist. A request that only lacks free memory would
    // get a reservation after a while.
    let big = headroom_wire::v1::application_master::PlacementRequest {
        nodes: vec![id("n9")],
        ..master.ask("big", mib(1000), 1)
    };
    master
        .sync(vec![master.ask("main", mib(256), 2), big])
        .await
        .expect("asks");
    let containers = node.until_orders(2).await;
    node.run_all().await;
    node.end(&containers[0], ExitReason::OverheadOom);
    node.report().await.expect("reports");
    master
        .until("the verdict", |m| m.ended.get(&containers[0]).cloned())
        .await;
    master.sync(Vec::new()).await.expect("acknowledges");
    client
        .submit(&managed("script", mib(64), 2))
        .await
        .expect("submits");
    node.until_orders(3).await;
    node.run_all().await;

    for (name, path, fields) in ROWS {
        let path = path.replace("APP", "apps/application_1700000000000_0001");
        let path = path.replace("MANAGED", "apps/application_1700000000000_0002");
        let answer = yarn
            .get(&path.replace("RUN", "appattempt_1700000000000_0001_000001"))
            .await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        for (pointer, lists) in fields {
            has_fields(&answer.json(), pointer, &lists.join(" "));
        }
        golden(name, &answer.json());
    }
    let new = yarn.post("apps/new-application", None).await;
    has_fields(
        &new.json(),
        "",
        "application-id maximum-resource-capability",
    );
    golden("new_application", &new.json());
    let missing = yarn.get("apps/application_1700000000000_0099").await;
    has_fields(
        &missing.json(),
        "/RemoteException",
        "exception message javaClassName",
    );
    golden("error", &missing.json());
}

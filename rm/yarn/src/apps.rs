//! Applications.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{
    AppSelection, ApplicationReport, ContainerReport, SharedCluster, Use, sum,
};
use headroom_types::Bytes;
use headroom_wire::yarn::ids::{CLUSTER_TIMESTAMP, YarnApplicationId, YarnContainerId};
use headroom_wire::yarn::time;
use serde::Serialize;

use crate::app_kind::AppKind;
use crate::application::app;
use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::filter::{Filter, Part, app_states};
use crate::nodes::{Address, address};
use crate::request::{RequestBaseUrl, YarnPathParams, YarnQueryParams};
use crate::resource::{
    Bare, Entries, ResourceInfo, core_seconds, cores, mib, mib_seconds, percent,
};
use crate::state::{AppState, FinalStatus};

/// One application.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct App {
    id: YarnApplicationId,
    user: String,
    name: String,
    queue: String,
    state: AppState,
    final_status: FinalStatus,
    /// Percent, 0 to 100.
    progress: f64,
    #[serde(rename = "trackingUI")]
    tracking_ui: &'static str,
    tracking_url: String,
    diagnostics: String,
    cluster_id: u64,
    rm_cluster_id: &'static str,
    application_type: String,
    application_tags: String,
    priority: i32,
    started_time: u64,
    launch_time: u64,
    finished_time: u64,
    elapsed_time: u64,
    am_container_logs: String,
    am_host_http_address: String,
    #[serde(rename = "amRPCAddress")]
    am_rpc_address: String,
    master_node_id: String,
    #[serde(rename = "allocatedMB")]
    allocated_mb: u64,
    #[serde(rename = "allocatedVCores")]
    allocated_v_cores: u64,
    #[serde(rename = "reservedMB")]
    reserved_mb: u64,
    #[serde(rename = "reservedVCores")]
    reserved_v_cores: u64,
    running_containers: u32,
    memory_seconds: u64,
    vcore_seconds: u64,
    queue_usage_percentage: f64,
    cluster_usage_percentage: f64,
    resource_seconds_map: Entries,
    #[serde(rename = "preemptedResourceMB")]
    preempted_resource_mb: u64,
    #[serde(rename = "preemptedResourceVCores")]
    preempted_resource_v_cores: u64,
    #[serde(rename = "numNonAMContainerPreempted")]
    num_non_am_container_preempted: u32,
    #[serde(rename = "numAMContainerPreempted")]
    num_am_container_preempted: u32,
    preempted_memory_seconds: u64,
    preempted_vcore_seconds: u64,
    preempted_resource_seconds_map: Entries,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_requests: Option<Vec<ResourceRequest>>,
    log_aggregation_status: &'static str,
    unmanaged_application: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_node_label_expression: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    am_node_label_expression: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_info: Option<Field<Vec<PartitionUse>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeouts: Option<Field<Vec<Timeout>>>,
}

/// Containers that are not yet granted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRequest {
    priority: i32,
    resource_name: &'static str,
    capability: Bare,
    num_containers: u32,
    relax_locality: bool,
    node_label_expression: &'static str,
    allocation_request_id: i64,
    execution_type_request: ExecutionType,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecutionType {
    execution_type: &'static str,
    enforce_execution_type: bool,
}

/// Resources of a partition; there is one partition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionUse {
    partition_name: &'static str,
    used: ResourceInfo,
    reserved: ResourceInfo,
    pending: ResourceInfo,
    am_used: ResourceInfo,
}

/// Deadline of an application's lifetime.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeout {
    #[serde(rename = "type")]
    kind: &'static str,
    expiry_time: String,
    remaining_time_in_seconds: i64,
}

/// Values of the whole cluster that the view of one application needs.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// Memory of the nodes that accept containers. Bytes.
    pub(crate) memory: Bytes,
    /// Current time. Milliseconds since 1970.
    pub(crate) now: u64,
    /// Base URL for links.
    pub(crate) here: String,
}

impl Whole {
    pub(crate) async fn of(
        cluster: &SharedCluster,
        RequestBaseUrl(here): RequestBaseUrl,
    ) -> YarnResult<Self> {
        let memory = cluster.status().await?.memory;
        Ok(Whole {
            memory,
            now: cluster.time().unix_now().0,
            here,
        })
    }
}

/// `GET /ws/v1/cluster/apps`. An empty list is written as `[]`.
pub(crate) async fn list(
    State(cluster): State<SharedCluster>,
    asked: YarnQueryParams,
    here: RequestBaseUrl,
) -> YarnResult<Json<Field<Field<Vec<App>>>>> {
    let filter = Filter::of(&asked)?;
    let whole = Whole::of(&cluster, here).await?;
    let chosen = filter.choose(cluster.applications(AppSelection::All).await?);
    let app = chosen
        .iter()
        .map(|app| show(&cluster, app, &whole, &filter.without))
        .collect();
    Ok(Json(field("apps", field("app", app))))
}

/// `GET /ws/v1/cluster/apps/{app}`.
pub(crate) async fn one(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
    asked: YarnQueryParams,
    here: RequestBaseUrl,
) -> YarnResult<Json<Field<App>>> {
    let filter = Filter::of(&asked)?;
    let whole = Whole::of(&cluster, here).await?;
    let found = app(&cluster, id).await?;
    let shown = show(&cluster, &found, &whole, &filter.without);
    Ok(Json(field("app", shown)))
}

fn show(
    cluster: &SharedCluster,
    app: &ApplicationReport,
    whole: &Whole,
    without: &BTreeSet<Part>,
) -> App {
    let progress = progress(app, cluster.task_counts(&app.id));
    let mut shown = convert(app, whole, progress);
    for part in without {
        match part {
            Part::ResourceRequests => shown.resource_requests = None,
            Part::Timeouts => shown.timeouts = None,
            Part::AppNodeLabel => shown.app_node_label_expression = None,
            Part::AmNodeLabel => shown.am_node_label_expression = None,
            Part::ResourceInfo => shown.resource_info = None,
        }
    }
    shown
}

/// Progress in percent: the share of tasks that the master reports as done; 100 after success.
fn progress(app: &ApplicationReport, done: Option<(u32, u32)>) -> f64 {
    match FinalStatus::of(app.state) {
        FinalStatus::Succeeded => 100.0,
        FinalStatus::Undefined | FinalStatus::Failed | FinalStatus::Killed => {
            done.map_or(0.0, |(done, all)| percent(u64::from(done), u64::from(all)))
        }
    }
}

fn convert(app: &ApplicationReport, whole: &Whole, progress: f64) -> App {
    let AppKind { name, kind, tags } = AppKind::of(app);
    let master = app.masters.last_key_value().map(|(_, c)| c);
    let Address {
        id: master_node,
        http,
    } = master
        .map(|c| address(&c.node, c.node_url.as_deref()))
        .unwrap_or_default();
    let share = percent(app.allocated.memory.get(), whole.memory.get());
    let (started, ended) = (app.submitted.0, app.ended.map_or(0, |ended| ended.0));
    let (preempted, reserved) = (&app.preempted, sum(&app.reserved));
    App {
        id: YarnApplicationId::of(&app.id),
        user: app.user.clone(),
        name,
        queue: app.queue.short().to_owned(),
        state: AppState::of(app.state),
        final_status: FinalStatus::of(app.state),
        progress,
        tracking_ui: tracking(app),
        tracking_url: format!("{}/v1/apps/{}", whole.here, app.id),
        diagnostics: app.diagnostics.clone(),
        cluster_id: CLUSTER_TIMESTAMP,
        rm_cluster_id: "headroom",
        application_type: kind,
        application_tags: tags.join(","),
        priority: app.priority,
        started_time: started,
        launch_time: launched(app),
        finished_time: ended,
        elapsed_time: (if ended == 0 { whole.now } else { ended }).saturating_sub(started),
        am_container_logs: master.map(logs).unwrap_or_default(),
        am_host_http_address: http,
        am_rpc_address: app.master_url.as_deref().map(place).unwrap_or_default(),
        master_node_id: master_node,
        allocated_mb: mib(app.allocated.memory),
        allocated_v_cores: cores(app.allocated.cpus),
        reserved_mb: mib(reserved.memory),
        reserved_v_cores: cores(reserved.cpus),
        running_containers: app.live,
        memory_seconds: mib_seconds(app.used.memory),
        vcore_seconds: core_seconds(app.used.cpus),
        queue_usage_percentage: share,
        cluster_usage_percentage: share,
        resource_seconds_map: over_time(app.used),
        preempted_resource_mb: mib(preempted.memory),
        preempted_resource_v_cores: cores(preempted.cpus),
        num_non_am_container_preempted: preempted.others,
        num_am_container_preempted: preempted.masters,
        preempted_memory_seconds: mib_seconds(preempted.used.memory),
        preempted_vcore_seconds: core_seconds(preempted.used.cpus),
        preempted_resource_seconds_map: over_time(preempted.used),
        resource_requests: Some(requests(app)),
        log_aggregation_status: "DISABLED",
        unmanaged_application: app.environment.is_none(),
        app_node_label_expression: Some(""),
        am_node_label_expression: Some(""),
        resource_info: Some(used_resources(app)),
        timeouts: Some(timeouts(app, whole.now)),
    }
}

/// Start of the oldest application attempt that is kept.
fn launched(app: &ApplicationReport) -> u64 {
    app.runs
        .first()
        .and_then(|run| run.started)
        .map_or(0, |at| at.0)
}

fn tracking(app: &ApplicationReport) -> &'static str {
    match AppState::of(app.state) {
        AppState::New | AppState::NewSaving | AppState::Submitted | AppState::Accepted => {
            "UNASSIGNED"
        }
        AppState::Running => "ApplicationMaster",
        AppState::Finished | AppState::Failed | AppState::Killed => "History",
    }
}

/// URL of a container's logs; empty if its node is no longer known.
pub(crate) fn logs(c: &ContainerReport) -> String {
    let name = YarnContainerId::of(&c.id, c.attempt);
    let at = |url: &String| {
        format!(
            "{}/ws/v1/node/containers/{name}/logs",
            url.trim_end_matches('/')
        )
    };
    c.node_url.as_ref().map(at).unwrap_or_default()
}

/// Converts waiting requests. A request has a name here and a number in YARN: its position among
/// the waiting requests.
fn requests(app: &ApplicationReport) -> Vec<ResourceRequest> {
    let all = app.waiting.iter().zip(0..);
    let request = all.map(|(waiting, place)| ResourceRequest {
        priority: waiting.priority,
        resource_name: "*",
        capability: Bare::of(&waiting.size),
        num_containers: waiting.count,
        relax_locality: true,
        node_label_expression: "",
        allocation_request_id: place,
        execution_type_request: ExecutionType {
            execution_type: "GUARANTEED",
            enforce_execution_type: true,
        },
    });
    request.collect()
}

fn used_resources(app: &ApplicationReport) -> Field<Vec<PartitionUse>> {
    let live = |c: &&ContainerReport| app.run.container() == Some(&c.id);
    let master = app
        .masters
        .values()
        .find(live)
        .map(|c| c.size.clone())
        .unwrap_or_default();
    let one = PartitionUse {
        partition_name: "",
        used: ResourceInfo::of(&app.allocated),
        reserved: ResourceInfo::of(&sum(&app.reserved)),
        pending: ResourceInfo::of(&app.pending()),
        am_used: ResourceInfo::of(&master),
    };
    field("resourceUsagesByPartition", vec![one])
}

fn over_time(used: Use) -> Entries {
    Entries::of([
        ("memory-mb", mib_seconds(used.memory)),
        ("vcores", core_seconds(used.cpus)),
    ])
}

/// The lifetime, which is the only timeout.
pub(crate) fn lifetime(app: &ApplicationReport, now: u64) -> Timeout {
    let (expiry_time, remaining_time_in_seconds) = match app.until {
        None => ("UNLIMITED".to_owned(), -1),
        Some(until) => {
            // An ended application has no time left, however early it ended.
            let left = if app.ended.is_some() {
                0
            } else {
                until.0.saturating_sub(now) / 1000
            };
            (
                time::format_timestamp(until),
                i64::try_from(left).unwrap_or(i64::MAX),
            )
        }
    };
    Timeout {
        kind: "LIFETIME",
        expiry_time,
        remaining_time_in_seconds,
    }
}

/// All timeouts of an application.
pub(crate) fn timeouts(app: &ApplicationReport, now: u64) -> Field<Vec<Timeout>> {
    field("timeout", vec![lifetime(app, now)])
}

#[derive(Debug, Serialize)]
pub(crate) struct Item {
    state: AppState,
    #[serde(rename = "type")]
    kind: String,
    count: usize,
}

/// `GET /ws/v1/cluster/appstatistics`.
pub(crate) async fn statistics(
    State(cluster): State<SharedCluster>,
    asked: YarnQueryParams,
) -> YarnResult<Json<Field<Field<Vec<Item>>>>> {
    let wanted = app_states(&asked.all("states"))?;
    let wanted = if wanted.is_empty() {
        AppState::ALL.to_vec()
    } else {
        wanted
    };
    let types = asked.all("applicationTypes");
    if types.len() > 1 {
        return Err(YarnError::bad(format!(
            "applicationTypes: {} types are named; at most one is allowed",
            types.len()
        )));
    }
    let apps = cluster.applications(AppSelection::All).await?;
    let of_type = |app: &&ApplicationReport| {
        types
            .first()
            .is_none_or(|wanted| AppKind::of(app).kind.eq_ignore_ascii_case(wanted))
    };
    let count = |state: AppState| {
        apps.iter()
            .filter(|app| AppState::of(app.state) == state)
            .filter(of_type)
            .count()
    };
    let kind = types.first().copied().unwrap_or("*");
    let item = |state: &AppState| Item {
        state: *state,
        kind: kind.to_owned(),
        count: count(*state),
    };
    let items = wanted.iter().map(item).collect();
    Ok(Json(field("appStatInfo", field("statItem", items))))
}
/// `HOST:PORT` of a master.
fn place(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('#').next().unwrap_or_default().to_owned()
}

//! The JSON types of `/ws/v1/node`. Pure conversion from containers to fields.

use std::collections::BTreeMap;

use headroom_types::UnixMillis;
use headroom_wire::v1::nodes::NodeContainerPhase;
use headroom_wire::yarn::YARN_VERSION;
use headroom_wire::yarn::end::{NOT_ENDED_STATUS, YarnContainerEnd};
use headroom_wire::yarn::ids::{YarnApplicationId, YarnContainerId};
use headroom_wire::yarn::time;
use serde::Serialize;
use serde_json::{Value, json};

use super::handler_state::NodeSummary;
use super::yarn_container::{ShownContainer, ShownPhase};

/// `{"apps":{"app":[…]}}`.
#[derive(Debug, Serialize)]
pub(super) struct NodeApplicationsResponse {
    apps: NodeApplicationList,
}

#[derive(Debug, Serialize)]
struct NodeApplicationList {
    app: Vec<NodeApplication>,
}

/// `{"app":…}`.
#[derive(Debug, Serialize)]
pub(super) struct NodeApplicationResponse {
    pub(super) app: NodeApplication,
}

/// An application with containers on this node.
#[derive(Debug, Serialize)]
pub(super) struct NodeApplication {
    pub(super) id: YarnApplicationId,
    pub(super) user: String,
    pub(super) state: NodeApplicationState,
    #[serde(rename = "containerids")]
    containers: Vec<YarnContainerId>,
}

/// State of an application on this node. The node does not know whether more containers will
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum NodeApplicationState {
    /// Never returned, but clients may filter by it, as by `Initing` and
    /// `ApplicationResourcesCleaningup`.
    New,
    Initing,
    /// A container of the application is live.
    Running,
    /// No container is live, and an end is not acknowledged yet.
    FinishingContainersWait,
    ApplicationResourcesCleaningup,
    /// All containers have ended, and their reports are no longer needed.
    Finished,
}

const APP_STATES: [(&str, NodeApplicationState); 6] = [
    ("NEW", NodeApplicationState::New),
    ("INITING", NodeApplicationState::Initing),
    ("RUNNING", NodeApplicationState::Running),
    (
        "FINISHING_CONTAINERS_WAIT",
        NodeApplicationState::FinishingContainersWait,
    ),
    (
        "APPLICATION_RESOURCES_CLEANINGUP",
        NodeApplicationState::ApplicationResourcesCleaningup,
    ),
    ("FINISHED", NodeApplicationState::Finished),
];

/// Parses the name of a state.
pub(super) fn app_state(name: &str) -> Result<NodeApplicationState, String> {
    let found = APP_STATES
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, state)| *state).ok_or_else(|| {
        let names: Vec<&str> = APP_STATES.iter().map(|(word, _)| *word).collect();
        format!("state: {name:?} is none of {}", names.join(", "))
    })
}

impl NodeApplicationsResponse {
    /// The applications that match the filter.
    pub(super) fn of(held: &[ShownContainer], wanted: impl Fn(&NodeApplication) -> bool) -> Self {
        NodeApplicationsResponse {
            apps: NodeApplicationList {
                app: apps(held).into_iter().filter(wanted).collect(),
            },
        }
    }
}

/// Applications of these containers, sorted by number.
pub(super) fn apps(held: &[ShownContainer]) -> Vec<NodeApplication> {
    let mut by_app: BTreeMap<YarnApplicationId, Vec<&ShownContainer>> = BTreeMap::new();
    for one in held {
        by_app
            .entry(YarnApplicationId::of(&one.id.app))
            .or_default()
            .push(one);
    }
    let app = |(id, all): (YarnApplicationId, Vec<&ShownContainer>)| NodeApplication {
        id,
        user: user(),
        state: all
            .iter()
            .map(|one| state_through(&one.life))
            .min()
            .unwrap_or(NodeApplicationState::Finished),
        containers: all
            .iter()
            .map(|one| YarnContainerId::of(&one.id, one.attempt))
            .collect(),
    };
    by_app.into_iter().map(app).collect()
}

/// The application state that one container alone would imply.
fn state_through(life: &ShownPhase) -> NodeApplicationState {
    match life {
        ShownPhase::Live(_) => NodeApplicationState::Running,
        ShownPhase::Over(_) => NodeApplicationState::FinishingContainersWait,
        ShownPhase::Forgotten(_) => NodeApplicationState::Finished,
    }
}

/// The user of this agent, reported as the user of every container. Only the resource manager knows
/// the submitters.
fn user() -> String {
    let uid = nix::unistd::geteuid();
    let found = nix::unistd::User::from_uid(uid).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// `{"containers":{"container":[…]}}`.
#[derive(Debug, Serialize)]
pub(super) struct NodeContainersResponse {
    containers: ContainerList,
}

#[derive(Debug, Serialize)]
struct ContainerList {
    container: Vec<NodeContainer>,
}

impl NodeContainersResponse {
    pub(super) fn of(all: impl Iterator<Item = NodeContainer>) -> Self {
        NodeContainersResponse {
            containers: ContainerList {
                container: all.collect(),
            },
        }
    }
}

/// `{"container":…}`.
#[derive(Debug, Serialize)]
pub(super) struct OneContainer {
    pub(super) container: NodeContainer,
}

/// One container. The last four fields are not part of YARN: this node measured them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeContainer {
    id: YarnContainerId,
    state: &'static str,
    exit_code: i32,
    diagnostics: String,
    user: String,
    #[serde(rename = "totalMemoryNeededMB")]
    total_memory_needed_mb: u64,
    total_v_cores_needed: u32,
    execution_type: &'static str,
    container_logs_link: String,
    node_id: String,
    container_log_files: Vec<String>,
    #[serde(rename = "headroomId")]
    ours: String,
    memory_limit_bytes: u64,
    memory_used_bytes: Option<u64>,
    memory_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_reason: Option<&'static str>,
}

/// One container with all fields.
pub(super) fn container(
    held: &ShownContainer,
    about: &NodeSummary,
    files: Vec<String>,
) -> NodeContainer {
    let id = YarnContainerId::of(&held.id, held.attempt);
    let end = held.life.report().map(|report| YarnContainerEnd {
        reason: report.reason,
        exit_code: report.evidence.exit_code,
        limit: report.evidence.own.limit.unwrap_or(held.size.memory),
        peak: held.peak,
    });
    NodeContainer {
        id,
        state: state(&held.life, end.as_ref()),
        exit_code: end
            .as_ref()
            .map_or(NOT_ENDED_STATUS, YarnContainerEnd::status),
        diagnostics: end
            .as_ref()
            .map(|end| end.diagnostics(&id.to_string()))
            .unwrap_or_default(),
        user: user(),
        total_memory_needed_mb: held.size.memory.whole_mib(),
        total_v_cores_needed: held.size.cpus.milli().div_ceil(1000),
        execution_type: "GUARANTEED",
        container_logs_link: format!("{}/ws/v1/node/containers/{id}/logs", about.url),
        node_id: node_id(about),
        container_log_files: files,
        ours: held.id.to_string(),
        memory_limit_bytes: held.size.memory.get(),
        memory_used_bytes: held.used.map(headroom_types::Bytes::get),
        memory_peak_bytes: held.peak.map(headroom_types::Bytes::get),
        exit_reason: held.life.report().map(|report| report.reason.name()),
    }
}

fn state(life: &ShownPhase, end: Option<&YarnContainerEnd>) -> &'static str {
    match life {
        ShownPhase::Live(NodeContainerPhase::Preparing) => "LOCALIZING",
        ShownPhase::Live(NodeContainerPhase::Starting) => "SCHEDULED",
        ShownPhase::Live(NodeContainerPhase::Running) => "RUNNING",
        ShownPhase::Live(NodeContainerPhase::Stopping | NodeContainerPhase::Exited) => "KILLING",
        ShownPhase::Over(_) if end.is_some_and(|end| end.status() == 0) => "EXITED_WITH_SUCCESS",
        ShownPhase::Over(_) => "EXITED_WITH_FAILURE",
        ShownPhase::Forgotten(_) => "DONE",
    }
}

/// Name and port of this node, in the form that the resource manager uses.
pub(super) fn node_id(about: &NodeSummary) -> String {
    format!(
        "{}:{}",
        about.node,
        about
            .url
            .rsplit_once(':')
            .map_or("0", |(_, port)| port.trim_end_matches('/'))
    )
}

/// `{"nodeInfo":…}`. Memory is the offer of the node. Virtual memory is not limited, so the same
/// value is returned for it.
pub(super) fn info(
    about: &NodeSummary,
    (healthy, report): (bool, String),
    enforcer: &str,
    now: UnixMillis,
) -> Value {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let (memory, cores) = (
        about.offers.memory.whole_mib(),
        about.offers.cpus.milli().div_ceil(1000),
    );
    json!({"nodeInfo": {
        "id": node_id(about),
        "nodeHostName": about.node,
        "totalPmemAllocatedContainersMB": memory,
        "totalVmemAllocatedContainersMB": memory,
        "totalVCoresAllocatedContainers": cores,
        "pmemCheckEnabled": true,
        "vmemCheckEnabled": false,
        "lastNodeUpdateTime": now.0,
        "nodeHealthy": healthy,
        "healthReport": report,
        "nmStartupTime": about.started.0,
        "resourceTypes": "memory-mb (unit=Mi), vcores",
        "nodeManagerVersion": VERSION,
        "nodeManagerBuildVersion": format!("headroom {VERSION}, limits enforced by {enforcer}"),
        "nodeManagerVersionBuiltOn": "",
        "hadoopVersion": YARN_VERSION,
        "hadoopBuildVersion": format!("none; headroom {VERSION} answers as YARN {YARN_VERSION} does"),
        "hadoopVersionBuiltOn": "",
    }})
}

/// One log of a container.
pub(super) fn log_file(name: &str, size: u64, changed: UnixMillis) -> Value {
    json!({"fileName": name, "fileSize": size.to_string(), "lastModifiedTime": time::format_timestamp(changed)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, EnforcerKind, Evidence, ExitReason, ExitReport, Resource};

    fn held(seq: u64, life: ShownPhase) -> ShownContainer {
        let size = Resource::new(Bytes::from_mib(64), Cpus::from_milli(1500));
        let id = format!("job.7.e2.c{seq}").parse().expect("id");
        ShownContainer {
            id,
            attempt: 3,
            size,
            life,
            used: Some(Bytes::from_mib(5)),
            peak: Some(Bytes::from_mib(64)),
        }
    }

    fn report(reason: ExitReason) -> Box<ExitReport> {
        Box::new(ExitReport {
            container: "job.7.e2.c1".parse().expect("id"),
            node: "n".parse().expect("name"),
            reason,
            evidence: Evidence::empty(EnforcerKind::Poll),
            diagnosis: Vec::new(),
            started: None,
            ended: UnixMillis(1),
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks: Vec::new(),
        })
    }

    fn about() -> NodeSummary {
        let offers = Resource::new(Bytes::from_gib(1), Cpus::from_cores(2));
        NodeSummary {
            node: "n1".parse().expect("name"),
            url: "http://127.0.0.1:7072".into(),
            offers,
            started: UnixMillis(5),
        }
    }

    #[test]
    fn a_memory_kill_has_the_status_and_text_of_yarn() {
        let over = container(
            &held(1, ShownPhase::Over(report(ExitReason::OverheadOom))),
            &about(),
            vec!["stdout".into()],
        );
        assert_eq!(
            (over.exit_code, over.state, over.total_v_cores_needed),
            (-104, "EXITED_WITH_FAILURE", 2)
        );
        assert!(
            over.diagnostics
                .contains("64.0 MB of 64.0 MB physical memory used"),
            "{}",
            over.diagnostics
        );
        assert_eq!(
            over.id.to_string(),
            "container_e02_1700000000000_0007_03_000001"
        );
        let live = container(
            &held(2, ShownPhase::Live(NodeContainerPhase::Running)),
            &about(),
            Vec::new(),
        );
        assert_eq!(
            (live.exit_code, live.state, live.diagnostics.as_str()),
            (-1000, "RUNNING", "")
        );
        assert_eq!(
            (live.memory_used_bytes, live.node_id.as_str()),
            (Some(5 << 20), "n1:7072")
        );
    }

    #[test]
    fn the_state_of_an_application_is_that_of_its_last_container() {
        let states = |lives: Vec<ShownPhase>| {
            let all: Vec<ShownContainer> = lives
                .into_iter()
                .zip(1..)
                .map(|(life, seq)| held(seq, life))
                .collect();
            apps(&all).iter().map(|app| app.state).collect::<Vec<_>>()
        };
        let over = || ShownPhase::Over(report(ExitReason::Stopped));
        let gone = || ShownPhase::Forgotten(report(ExitReason::Stopped));
        assert_eq!(
            states(vec![
                gone(),
                ShownPhase::Live(NodeContainerPhase::Starting),
                over()
            ]),
            [NodeApplicationState::Running]
        );
        assert_eq!(
            states(vec![gone(), over()]),
            [NodeApplicationState::FinishingContainersWait]
        );
        assert_eq!(states(vec![gone()]), [NodeApplicationState::Finished]);
        assert!(
            app_state("running") == Ok(NodeApplicationState::Running)
                && app_state("ASLEEP").is_err()
        );
    }
}

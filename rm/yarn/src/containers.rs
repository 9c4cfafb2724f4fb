//! Containers of an application attempt: live ones, and ended ones while they are kept.

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{ContainerReport, ContainerStage, SharedCluster};
use headroom_wire::yarn::end::{NOT_ENDED_STATUS, YarnContainerEnd};
use headroom_wire::yarn::ids::{YarnApplicationId, YarnAttemptId, YarnContainerId};
use serde::Serialize;

use crate::application::id;
use crate::attempts::run_of;
use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::filter::word;
use crate::nodes::{Address, address};
use crate::request::YarnPathParams;
use crate::resource::{Entries, cores, mib};
use crate::{apps, state};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    container_id: YarnContainerId,
    #[serde(rename = "allocatedMB")]
    allocated_mb: u64,
    #[serde(rename = "allocatedVCores")]
    allocated_v_cores: u64,
    assigned_node_id: String,
    priority: i32,
    started_time: u64,
    finished_time: u64,
    elapsed_time: u64,
    log_url: String,
    container_exit_status: i32,
    container_state: &'static str,
    diagnostics_info: String,
    node_http_address: String,
    node_id: String,
    allocated_resources: Entries,
}

/// `GET …/appattempts/{attempt}/containers`.
pub(crate) async fn list(
    State(cluster): State<SharedCluster>,
    YarnPathParams((app, attempt)): YarnPathParams<(YarnApplicationId, YarnAttemptId)>,
) -> YarnResult<Json<Field<Field<Vec<Container>>>>> {
    let now = cluster.time().unix_now().0;
    let of_run = of_run(&cluster, app, attempt).await?;
    let all = of_run.iter().map(|c| convert(c, now)).collect();
    Ok(Json(field("containers", field("container", all))))
}

/// `GET …/appattempts/{attempt}/containers/{container}`.
pub(crate) async fn one(
    State(cluster): State<SharedCluster>,
    YarnPathParams((app, attempt, container)): YarnPathParams<(
        YarnApplicationId,
        YarnAttemptId,
        YarnContainerId,
    )>,
) -> YarnResult<Json<Field<Container>>> {
    let of_run = of_run(&cluster, app, attempt).await?;
    let found = of_run.iter().find(|c| container.identifies(&c.id));
    let found = found.ok_or_else(|| {
        YarnError::none(format!(
            "{attempt} has no container {container}, or it is no longer kept"
        ))
    })?;
    let shown = convert(found, cluster.time().unix_now().0);
    Ok(Json(field("container", shown)))
}

async fn of_run(
    cluster: &SharedCluster,
    app: YarnApplicationId,
    attempt: YarnAttemptId,
) -> YarnResult<Vec<ContainerReport>> {
    let id = run_of(cluster, app, attempt).await?.id;
    let mut all = cluster.containers(id).await?;
    all.retain(|c| c.attempt == attempt.attempt);
    Ok(all)
}

fn convert(c: &ContainerReport, now: u64) -> Container {
    let name = YarnContainerId::of(&c.id, c.attempt);
    let Address { id: node, http } = address(&c.node, c.node_url.as_deref());
    let (status, diagnostics, finished) = match &c.life {
        ContainerStage::Coming | ContainerStage::Running => (NOT_ENDED_STATUS, String::new(), 0),
        ContainerStage::Over {
            ended,
            reason,
            exit_code,
            peak,
        } => {
            let end = YarnContainerEnd {
                reason: *reason,
                exit_code: *exit_code,
                limit: c.size.memory,
                peak: *peak,
            };
            (end.status(), end.diagnostics(&name.to_string()), ended.0)
        }
    };
    let sizes = [
        ("memory-mb", mib(c.size.memory)),
        ("vcores", cores(c.size.cpus)),
    ];
    let extra = c.size.extra.iter().map(|(name, n)| (name.as_str(), *n));
    Container {
        container_id: name,
        allocated_mb: mib(c.size.memory),
        allocated_v_cores: cores(c.size.cpus),
        assigned_node_id: node.clone(),
        priority: 0,
        started_time: c.granted.0,
        finished_time: finished,
        elapsed_time: (if finished == 0 { now } else { finished }).saturating_sub(c.granted.0),
        log_url: apps::logs(c),
        container_exit_status: status,
        container_state: state::container(&c.life),
        diagnostics_info: diagnostics,
        node_http_address: http,
        node_id: node,
        allocated_resources: Entries::of(sizes.into_iter().chain(extra)),
    }
}

/// Signal commands.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// A thread dump. Refused: this interface can only stop containers.
    ThreadDump,
    /// SIGTERM, then SIGKILL after the grace period.
    Graceful,
    /// The same as `Graceful`: the application chooses the grace period at launch.
    Forceful,
}

const COMMANDS: [(&str, Command); 3] = [
    ("OUTPUT_THREAD_DUMP", Command::ThreadDump),
    ("GRACEFUL_SHUTDOWN", Command::Graceful),
    ("FORCEFUL_SHUTDOWN", Command::Forceful),
];

/// `POST /ws/v1/cluster/containers/{container}/signal/{command}`.
pub(crate) async fn signal(
    State(cluster): State<SharedCluster>,
    YarnPathParams((container, command)): YarnPathParams<(YarnContainerId, String)>,
) -> YarnResult<()> {
    match word("command", &COMMANDS, &command)? {
        Command::ThreadDump => Err(YarnError::bad(
            "OUTPUT_THREAD_DUMP is not supported; use GRACEFUL_SHUTDOWN or FORCEFUL_SHUTDOWN",
        )),
        Command::Graceful | Command::Forceful => {
            let container = container.to_container_id(id(&cluster, container.app).await?);
            Ok(cluster.stop(container).await?)
        }
    }
}

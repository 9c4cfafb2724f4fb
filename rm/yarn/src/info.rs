//! Identity and version of this resource manager.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use headroom_rm_reports::SharedCluster;
use headroom_wire::yarn::YARN_VERSION;
use headroom_wire::yarn::ids::CLUSTER_TIMESTAMP;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::YarnResult;
use crate::field::{Field, field};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Info {
    id: u64,
    started_on: u64,
    state: &'static str,
    ha_state: &'static str,
    rm_state_store_name: &'static str,
    resource_manager_version: &'static str,
    resource_manager_build_version: String,
    resource_manager_version_built_on: &'static str,
    hadoop_version: &'static str,
    hadoop_build_version: String,
    hadoop_version_built_on: &'static str,
    ha_zoo_keeper_connection_state: &'static str,
}

/// `GET /ws/v1/cluster`, `GET /ws/v1/cluster/info`.
pub(crate) async fn info(State(cluster): State<SharedCluster>) -> Json<Field<Info>> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let info = Info {
        id: CLUSTER_TIMESTAMP,
        started_on: cluster.time().started.0,
        state: "STARTED",
        ha_state: "ACTIVE",
        rm_state_store_name: "headroom-rm-store",
        resource_manager_version: VERSION,
        resource_manager_build_version: format!("headroom {VERSION}, epoch {}", cluster.epoch()),
        resource_manager_version_built_on: "",
        hadoop_version: YARN_VERSION,
        hadoop_build_version: format!(
            "none; headroom {VERSION} answers as YARN {YARN_VERSION} does"
        ),
        hadoop_version_built_on: "",
        ha_zoo_keeper_connection_state: "ZooKeeper is not used",
    };
    Json(field("clusterInfo", info))
}

/// `GET /cluster`: YARN clients call it to find the active resource manager.
pub(crate) async fn front() -> impl IntoResponse {
    let page = concat!(
        "<!doctype html><title>Headroom</title><p>Headroom ",
        env!("CARGO_PKG_VERSION"),
        ": the resource manager is active. Its interface begins at <a href=\"/v1/status\">/v1/status</a>; for programs written ",
        "for YARN at <a href=\"/ws/v1/cluster/info\">/ws/v1/cluster/info</a>.\n"
    );
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page)
}

/// `GET /jmx`: the few beans that have an equivalent here.
pub(crate) async fn jmx(State(cluster): State<SharedCluster>) -> YarnResult<Json<Value>> {
    let view = cluster.status().await?;
    Ok(Json(json!({"beans": [
        {"name": "java.lang:type=Runtime", "SpecName": "headroom", "SpecVersion": view.version, "Uptime": cluster.time().now.0},
        {"name": "Hadoop:service=ResourceManager,name=ClusterMetrics", "NumActiveNMs": view.nodes_ready},
        {"name": "Hadoop:service=ResourceManager,name=QueueMetrics,q0=root", "AllocatedMB": view.allocated.whole_mib(),
         "AllocatedContainers": view.containers, "PendingContainers": view.pending},
    ]})))
}

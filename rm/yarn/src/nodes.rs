//! Nodes.

use axum::Json;
use axum::extract::State;
use headroom_rm_reports::{ClusterNodeReport, ClusterTime, SharedCluster};
use headroom_types::{NodeId, millis};
use serde::Serialize;

use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::filter::word;
use crate::request::{YarnPathParams, YarnQueryParams};
use crate::resource::{ResourceInfo, cores, mib, percent};
use crate::state::NodeState;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    rack: String,
    state: NodeState,
    id: String,
    node_host_name: String,
    #[serde(rename = "nodeHTTPAddress")]
    node_http_address: String,
    last_health_update: u64,
    version: String,
    health_report: String,
    num_containers: u32,
    #[serde(rename = "usedMemoryMB")]
    used_memory_mb: u64,
    #[serde(rename = "availMemoryMB")]
    avail_memory_mb: u64,
    used_virtual_cores: u64,
    available_virtual_cores: u64,
    mem_utilization: f64,
    cpu_utilization: f64,
    num_running_opport_containers: u32,
    #[serde(rename = "usedMemoryOpportGB")]
    used_memory_opport_gb: u64,
    used_virtual_cores_opport: u64,
    num_queued_containers: u32,
    node_labels: Vec<String>,
    /// Always empty: there are no allocation tags.
    allocation_tags: Field<[u8; 0]>,
    resource_utilization: Utilization,
    used_resource: ResourceInfo,
    available_resource: ResourceInfo,
    total_resource: ResourceInfo,
    node_attributes_info: Field<Vec<Attribute>>,
}

/// Memory is measured. Virtual memory and processors are not, and are 0.
#[derive(Debug, Serialize)]
struct Utilization {
    #[serde(rename = "nodePhysicalMemoryMB")]
    host: u64,
    #[serde(rename = "nodeVirtualMemoryMB")]
    host_virtual: u64,
    #[serde(rename = "nodeCPUUsage")]
    host_cpu: f64,
    #[serde(rename = "aggregatedContainersPhysicalMemoryMB")]
    containers: u64,
    #[serde(rename = "aggregatedContainersVirtualMemoryMB")]
    containers_virtual: u64,
    #[serde(rename = "containersCPUUsage")]
    containers_cpu: f64,
}

#[derive(Debug, Serialize)]
struct Attribute {
    prefix: &'static str,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    value: String,
}

/// Node address in YARN's format: node name and port.
#[derive(Debug, Default)]
pub(crate) struct Address {
    pub(crate) id: String,
    pub(crate) http: String,
}

pub(crate) fn address(node: &NodeId, url: Option<&str>) -> Address {
    let http = url
        .map(|url| url.split_once("://").map_or(url, |(_, rest)| rest))
        .unwrap_or_default();
    let http = http.split('/').next().unwrap_or_default();
    let port = http.rsplit_once(':').map_or("0", |(_, port)| port);
    Address {
        id: format!("{node}:{port}"),
        http: http.to_owned(),
    }
}

/// `GET /ws/v1/cluster/nodes`. Without `states`, lost and decommissioned nodes are left out.
pub(crate) async fn list(
    State(cluster): State<SharedCluster>,
    asked: YarnQueryParams,
) -> YarnResult<Json<Field<Field<Vec<Node>>>>> {
    let words = NodeState::ALL.map(|state| (state.as_str(), state));
    let states = asked
        .all("states")
        .into_iter()
        .map(|state| word("states", &words, state))
        .collect::<Result<Vec<_>, _>>()?;
    let wanted = |node: &&ClusterNodeReport| match NodeState::of(node) {
        state if !states.is_empty() => states.contains(&state),
        state => state.is_member(),
    };
    let (nodes, time) = (cluster.nodes().await?, cluster.time());
    let all = nodes
        .iter()
        .filter(wanted)
        .map(|node| convert(node, time))
        .collect();
    Ok(Json(field("nodes", field("node", all))))
}

/// `GET /ws/v1/cluster/nodes/{node}`: by name, with any port or none.
pub(crate) async fn one(
    State(cluster): State<SharedCluster>,
    YarnPathParams(name): YarnPathParams<String>,
) -> YarnResult<Json<Field<Node>>> {
    let host = match name.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        Some(_) | None => &name,
    };
    let found = cluster
        .nodes()
        .await?
        .into_iter()
        .find(|node| node.id.as_str() == host);
    let found = found.ok_or_else(|| YarnError::none(format!("there is no node {name}")))?;
    Ok(Json(field("node", convert(&found, cluster.time()))))
}

fn convert(node: &ClusterNodeReport, time: ClusterTime) -> Node {
    let Address { id, http } = address(&node.id, Some(&node.url));
    let silent = millis(time.now.since(node.heard));
    let free = node.free();
    let state = NodeState::of(node);
    Node {
        rack: node
            .rack
            .as_ref()
            .map_or_else(|| "/default-rack".to_owned(), |rack| format!("/{rack}")),
        state,
        id,
        node_host_name: node.id.to_string(),
        node_http_address: http,
        last_health_update: time.unix_now().0.saturating_sub(silent),
        version: node.version.clone(),
        health_report: report(node),
        num_containers: node.containers,
        used_memory_mb: mib(node.allocated.memory),
        avail_memory_mb: mib(free.memory),
        used_virtual_cores: cores(node.allocated.cpus),
        available_virtual_cores: cores(node.offers.cpus).saturating_sub(cores(node.allocated.cpus)),
        mem_utilization: percent(node.allocated.memory.get(), node.offers.memory.get()),
        cpu_utilization: percent(
            u64::from(node.allocated.cpus.milli()),
            u64::from(node.offers.cpus.milli()),
        ),
        num_running_opport_containers: 0,
        used_memory_opport_gb: 0,
        used_virtual_cores_opport: 0,
        num_queued_containers: 0,
        node_labels: node.labels.iter().map(ToString::to_string).collect(),
        allocation_tags: field("allocationTagInfo", []),
        resource_utilization: Utilization {
            host: mib(node.host_used),
            host_virtual: 0,
            host_cpu: 0.0,
            containers: mib(node.used),
            containers_virtual: 0,
            containers_cpu: 0.0,
        },
        used_resource: ResourceInfo::of(&node.allocated),
        available_resource: ResourceInfo::of(&free),
        total_resource: ResourceInfo::of(&node.offers),
        node_attributes_info: field("nodeAttributeInfo", attributes(node)),
    }
}

/// Reason why the node accepts no containers: its own, or the operator's mark.
fn report(node: &ClusterNodeReport) -> String {
    let mark = node.mark.as_ref().map(|mark| mark.reason.as_str());
    node.state.reason().or(mark).unwrap_or_default().to_owned()
}

fn attributes(node: &ClusterNodeReport) -> Vec<Attribute> {
    let attribute = |(name, value): &(headroom_types::Name, String)| Attribute {
        prefix: "headroom",
        name: name.to_string(),
        kind: "STRING",
        value: value.clone(),
    };
    node.attributes.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_contains_the_port_of_its_agent() {
        let node: NodeId = "worker-1".parse().expect("a name");
        let Address { id, http } = address(&node, Some("http://10.0.0.7:7072/"));
        assert_eq!(
            (id.as_str(), http.as_str()),
            ("worker-1:7072", "10.0.0.7:7072")
        );
        assert_eq!(address(&node, None).id, "worker-1:0");
    }
}

//! The queries of HTTP handlers to the loop, and its replies.
//!
//! A reply is a copy: no handler changes the loop's state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use headroom_node_cgroup::EnforcedGroup;
use headroom_telemetry::MetricsPage;
use headroom_types::exit::MemorySample;
use headroom_types::{ContainerId, ExitReport, Name};
use headroom_wire::v1::nodes::{
    NodeContainerPhase, NodeHealthState, NodeTraits, ObservedContainer, RunOrder,
};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::doctor::DoctorFinding;
use crate::node_link_event::NodeMembership;

/// A query of a handler to the loop.
#[derive(Debug)]
pub(crate) enum AgentQuery {
    /// All containers.
    Containers(oneshot::Sender<Vec<ObservedContainer>>),
    /// All containers with their details.
    Details(oneshot::Sender<Vec<ContainerDetail>>),
    /// One container.
    Container(ContainerId, oneshot::Sender<Option<Box<ContainerDetail>>>),
    /// The enforcer, and how it was chosen.
    Doctor(oneshot::Sender<DoctorReport>),
    /// The data for access to one container.
    Inside(ContainerId, oneshot::Sender<Option<Box<AccessTarget>>>),
    /// The metrics of the loop.
    Metrics(oneshot::Sender<MetricsPage>),
}

/// `GET /v1/containers/{id}`.
#[derive(Debug, Serialize)]
pub(crate) struct ContainerDetail {
    #[serde(flatten)]
    pub(crate) observed: ObservedContainer,
    /// Memory since the start.
    pub(crate) timeline: Vec<MemorySample>,
    /// The exit report, after the end.
    pub(crate) report: Option<ExitReport>,
}

/// The data for access to a container.
#[derive(Debug)]
pub(crate) struct AccessTarget {
    pub(crate) phase: NodeContainerPhase,
    pub(crate) order: Option<RunOrder>,
    pub(crate) group: Option<Arc<EnforcedGroup>>,
}

/// `GET /v1/doctor`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoctorReport {
    /// The enforcer of the limits.
    pub(crate) enforcer: String,
    /// Directory of its groups.
    pub(crate) root: Option<PathBuf>,
    /// Whether the enforcer passed its proof.
    pub(crate) health: NodeHealthState,
    /// Membership of the node in the cluster.
    pub(crate) resource_manager: NodeMembership,
    /// Rack, labels and attributes of the node.
    pub(crate) traits: NodeTraits,
    /// Why this enforcer was chosen, and which features better ones lacked.
    pub(crate) notes: Vec<String>,
    /// Findings about the host at the start of the agent. Unattributed memory is current.
    pub(crate) host: Vec<DoctorFinding>,
    /// Auxiliary services with their phase: `stopped`, `starting`, `ready`, `failing`, `backoff` or
    /// `stopping`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) aux_services: BTreeMap<Name, &'static str>,
}

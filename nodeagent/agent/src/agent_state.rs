//! The state of the agent: its containers, counters and problems.
//!
//! Owned and changed by the loop alone; the views read it. It sends no message and starts no job.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_config::MetricsGranularity;
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::agent::AgentCore;
use headroom_node_core::aux_service::AuxServiceTimes;
use headroom_node_core::aux_services::AuxServices;
use headroom_node_core::fence::NodeFence;
use headroom_types::{ContainerId, Tick};
use headroom_wire::v1::attached::NodeReady;
use headroom_wire::v1::nodes::{ConfigReload, NodeTraits, RunOrder};
use tokio::sync::oneshot;

use crate::doctor::DoctorFinding;
use crate::host::HostUse;
use crate::metrics::AgentMetrics;
use crate::node_context::NodeContext;
use crate::sample::SharedSampler;
use crate::unattributed_memory::UnattributedFinding;

/// The state of the agent.
#[derive(Debug)]
pub(crate) struct AgentState {
    pub(crate) facts: AgentSetup,
    /// The containers, as the core knows them.
    pub(crate) core: AgentCore,
    /// Further data about the containers of the core.
    pub(crate) live: BTreeMap<ContainerId, LiveContainer>,
    /// The auxiliary services, and the launches that wait for them.
    pub(crate) services: AuxServices,
    pub(crate) counts: AgentMetrics,
    /// Problems of the host. While there are any, the node takes no work.
    pub(crate) ills: Vec<String>,
    pub(crate) unattributed: UnattributedFinding,
    pub(crate) host_use: HostUse,
    pub(crate) closing: Option<AgentShutdown>,
    /// The result of a configuration reload that the resource manager has not received yet.
    pub(crate) reload: Option<ConfigReload>,
}

impl AgentState {
    /// The state of an agent without containers.
    pub(crate) fn new(facts: AgentSetup, fence: NodeFence) -> Self {
        let times = facts.site.aux_services.iter().map(|(name, service)| {
            let times = AuxServiceTimes {
                start_timeout: service.start_timeout,
                stop_grace: service.stop_grace,
            };
            (name.clone(), times)
        });
        let services = AuxServices::new(facts.site.node.clone(), times);
        AgentState {
            facts,
            services,
            core: AgentCore::new(fence),
            live: BTreeMap::new(),
            counts: AgentMetrics::new(),
            ills: Vec::new(),
            unattributed: UnattributedFinding::default(),
            host_use: HostUse::default(),
            closing: None,
            reload: None,
        }
    }
}

/// Data of the loop about one container, in addition to the core's state.
#[derive(Debug, Default)]
pub(crate) struct LiveContainer {
    pub(crate) order: Option<RunOrder>,
    pub(crate) group: Option<Arc<EnforcedGroup>>,
    pub(crate) meter: Option<SharedSampler>,
    /// Start of the current launch step.
    pub(crate) step: Option<Tick>,
}

/// Data that does not change while the loop runs.
#[derive(Debug)]
pub(crate) struct AgentSetup {
    pub(crate) site: Arc<NodeContext>,
    /// Address, node, enforcer and resources of the agent.
    pub(crate) ready: NodeReady,
    /// Findings about the host at the start of the agent.
    pub(crate) host: Vec<DoctorFinding>,
    pub(crate) traits: NodeTraits,
    /// The key that the resource manager sends with each container access.
    pub(crate) key: String,
    /// Detail level of the metric series.
    pub(crate) cardinality: MetricsGranularity,
}

/// A shutdown in progress.
#[derive(Debug)]
pub(crate) struct AgentShutdown {
    /// Time at which the agent ends in any case.
    pub(crate) give_up_at: Tick,
    /// Time until which the agent tries to deliver the last exit reports. `None` until all
    /// containers have ended.
    pub(crate) report_deadline: Option<Tick>,
    /// Confirms the end to the caller.
    pub(crate) done: oneshot::Sender<()>,
}

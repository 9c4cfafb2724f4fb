//! The inputs of the loop: the vocabulary in which jobs, watchers and handlers report to it.
//!
//! Their senders own nothing of the loop's state, and the loop alone handles them.

use std::sync::Arc;

use headroom_container_shim::record::StartResult;
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::LaunchFailure;
use headroom_node_core::size::OrderedSize;
use headroom_types::{ContainerId, ExitReport, Name};
use headroom_wire::v1::nodes::ConfigReload;
use tokio::sync::oneshot;

use crate::agent_query::AgentQuery;
use crate::node_link_event::NodeLinkEvent;
use crate::sample::SamplerAction;
use crate::unattributed_memory::UnattributedFinding;

/// An input of the loop.
#[derive(Debug)]
pub(crate) enum AgentInput {
    /// The files and the cgroup of a container are ready, or an error.
    Prepared(ContainerId, Result<Arc<EnforcedGroup>, LaunchFailure>),
    /// The shim of a container could not be started.
    NotStarted(ContainerId, LaunchFailure),
    /// The single line of the shim arrived.
    Answered(ContainerId, StartResult),
    /// The shim did not report in time whether its program runs.
    Silent(ContainerId),
    ShimEnded(ContainerId),
    /// The container has another size, or the error that kept the old one.
    Resized(ContainerId, OrderedSize, Result<(), String>),
    /// The exit report of a container is written.
    Collected(Box<ExitReport>),
    Sampled(Vec<(ContainerId, SamplerAction)>),
    /// From the link to the resource manager.
    Link(NodeLinkEvent),
    /// From the process of an auxiliary service, with the number of its start.
    AuxService(Name, u32, AuxServiceReport),
    Health(Vec<String>),
    Unattributed(UnattributedFinding),
    Question(AgentQuery),
    Reloaded(ConfigReload),
    /// A caller requests SIGKILL for every process of a container. The reply is true if it runs.
    Kill(ContainerId, oneshot::Sender<bool>),
    Shutdown(ShutdownContainers, oneshot::Sender<()>),
}

/// A report about one start of an auxiliary service.
#[derive(Debug)]
pub(crate) enum AuxServiceReport {
    /// The service is ready.
    Ready,
    /// The service could not be started, or ended. No process of it is left. The text is one
    /// sentence with the cause, and the end of its log.
    Ended(String),
}

/// Treatment of the containers when the agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownContainers {
    /// The containers continue to run, and the next agent adopts them.
    Keep,
    /// The containers are ended, and the cgroups are removed.
    Kill,
}

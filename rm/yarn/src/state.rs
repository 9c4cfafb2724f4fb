//! States in YARN's terms. Every match of a state of Headroom is exhaustive, so that a new
//! state needs a term here.

use headroom_rm_core::app::ApplicationState;
use headroom_rm_core::{ApplicationOutcome, attempt, node};
use headroom_rm_reports::{ApplicationReport, ClusterNodeReport, ContainerStage};
use headroom_types::word_enum;
use serde::Serialize;

word_enum! {
    /// State of an application.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub(crate) enum AppState: "is not a state of an application; use" {
        /// Never returned, because an application is accepted when it is known; clients use it as a
        /// filter. The same is true for the two states after it.
        New = "NEW",
        NewSaving = "NEW_SAVING",
        Submitted = "SUBMITTED",
        Accepted = "ACCEPTED",
        Running = "RUNNING",
        Finished = "FINISHED",
        Failed = "FAILED",
        Killed = "KILLED",
    }
}

impl AppState {
    /// State in YARN's terms. A finishing application still has containers, so it is running until
    /// the last one ends.
    pub(crate) fn of(state: ApplicationState) -> Self {
        match state {
            ApplicationState::Accepted => AppState::Accepted,
            ApplicationState::Running | ApplicationState::Finishing { .. } => AppState::Running,
            ApplicationState::Ended { outcome } => match outcome {
                ApplicationOutcome::Succeeded => AppState::Finished,
                ApplicationOutcome::Failed => AppState::Failed,
                ApplicationOutcome::Killed => AppState::Killed,
            },
        }
    }
}

word_enum! {
    /// Final status of an application.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub(crate) enum FinalStatus: "is not a final status; use" {
        Undefined = "UNDEFINED",
        Succeeded = "SUCCEEDED",
        Failed = "FAILED",
        Killed = "KILLED",
    }
}

impl FinalStatus {
    pub(crate) fn of(state: ApplicationState) -> Self {
        match state {
            ApplicationState::Accepted
            | ApplicationState::Running
            | ApplicationState::Finishing { .. } => FinalStatus::Undefined,
            ApplicationState::Ended { outcome } => match outcome {
                ApplicationOutcome::Succeeded => FinalStatus::Succeeded,
                ApplicationOutcome::Failed => FinalStatus::Failed,
                ApplicationOutcome::Killed => FinalStatus::Killed,
            },
        }
    }
}

/// State of an application attempt. An attempt before the current one has failed, otherwise there
/// would be no later one.
pub(crate) fn attempt(app: &ApplicationReport, number: u32) -> &'static str {
    if number < app.attempt {
        return "FAILED";
    }
    match app.run {
        attempt::AttemptState::Scheduled => "SCHEDULED",
        attempt::AttemptState::Launched { .. } | attempt::AttemptState::Awaited => "LAUNCHED",
        attempt::AttemptState::Registered { .. } => "RUNNING",
        attempt::AttemptState::Recovering { .. } => match app.state {
            ApplicationState::Accepted => "LAUNCHED",
            ApplicationState::Running
            | ApplicationState::Finishing { .. }
            | ApplicationState::Ended { .. } => "RUNNING",
        },
        attempt::AttemptState::Over => match app.state {
            ApplicationState::Accepted | ApplicationState::Running => "FAILED",
            ApplicationState::Finishing { .. } => "FINISHING",
            ended @ ApplicationState::Ended { .. } => AppState::of(ended).as_str(),
        },
    }
}

/// State of a container.
pub(crate) fn container(life: &ContainerStage) -> &'static str {
    match life {
        ContainerStage::Coming => "NEW",
        ContainerStage::Running => "RUNNING",
        ContainerStage::Over { .. } => "COMPLETE",
    }
}

word_enum! {
    /// State of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub(crate) enum NodeState: "is not a state of a node; use" {
        /// Never returned, but clients use it as a filter; the same is true for `Rebooted` and
        /// `Shutdown`.
        New = "NEW",
        Running = "RUNNING",
        Unhealthy = "UNHEALTHY",
        Decommissioning = "DECOMMISSIONING",
        Decommissioned = "DECOMMISSIONED",
        Lost = "LOST",
        Rebooted = "REBOOTED",
        Shutdown = "SHUTDOWN",
    }
}

impl NodeState {
    /// State in YARN's terms. A silent node is a member until it is lost. YARN has no state for a
    /// node that is drained and stays.
    pub(crate) fn of(node: &ClusterNodeReport) -> Self {
        match (&node.state, &node.mark) {
            (node::ClusterNodeState::Lost, _) => NodeState::Lost,
            (node::ClusterNodeState::Decommissioned, _) => NodeState::Decommissioned,
            (
                node::ClusterNodeState::Unhealthy { .. }
                | node::ClusterNodeState::Unreachable { .. },
                _,
            ) => NodeState::Unhealthy,
            (node::ClusterNodeState::Ready | node::ClusterNodeState::Suspect { .. }, Some(_)) => {
                NodeState::Decommissioning
            }
            (node::ClusterNodeState::Ready | node::ClusterNodeState::Suspect { .. }, None) => {
                NodeState::Running
            }
        }
    }
    /// Whether the node belongs to the cluster.
    pub(crate) fn is_member(self) -> bool {
        matches!(
            self,
            NodeState::New | NodeState::Running | NodeState::Unhealthy | NodeState::Decommissioning
        )
    }
    /// Whether the node is a member that accepts containers.
    pub(crate) fn is_active(self) -> bool {
        self == NodeState::Running
    }
}

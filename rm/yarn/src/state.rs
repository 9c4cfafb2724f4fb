//! States in YARN's terms. Every match is exhaustive, so that a new state needs a term here.

use headroom_rm_core::app::ApplicationState;
use headroom_rm_core::{ApplicationOutcome, attempt, node};
use headroom_rm_reports::{ApplicationReport, ClusterNodeReport, ContainerStage};
use serde::Serialize;

/// State of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum AppState {
    /// Never returned, because an application is accepted when it is known; clients use it as a
    /// filter. The same is true for the two states after it.
    New,
    NewSaving,
    Submitted,
    Accepted,
    Running,
    Finished,
    Failed,
    Killed,
}

impl AppState {
    pub(crate) const ALL: [AppState; 8] = [
        AppState::New,
        AppState::NewSaving,
        AppState::Submitted,
        AppState::Accepted,
        AppState::Running,
        AppState::Finished,
        AppState::Failed,
        AppState::Killed,
    ];

    /// State in YARN's terms. A finishing application still has containers, so it is running until
    /// the last one ends.
    pub(crate) fn of(state: ApplicationState) -> Self {
        match state {
            ApplicationState::Accepted => AppState::Accepted,
            ApplicationState::Running | ApplicationState::Finishing { .. } => AppState::Running,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Succeeded,
            } => AppState::Finished,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Failed,
            } => AppState::Failed,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Killed,
            } => AppState::Killed,
        }
    }
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            AppState::New => "NEW",
            AppState::NewSaving => "NEW_SAVING",
            AppState::Submitted => "SUBMITTED",
            AppState::Accepted => "ACCEPTED",
            AppState::Running => "RUNNING",
            AppState::Finished => "FINISHED",
            AppState::Failed => "FAILED",
            AppState::Killed => "KILLED",
        }
    }
}

/// Final status of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum FinalStatus {
    Undefined,
    Succeeded,
    Failed,
    Killed,
}

impl FinalStatus {
    pub(crate) fn of(state: ApplicationState) -> Self {
        match state {
            ApplicationState::Accepted
            | ApplicationState::Running
            | ApplicationState::Finishing { .. } => FinalStatus::Undefined,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Succeeded,
            } => FinalStatus::Succeeded,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Failed,
            } => FinalStatus::Failed,
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Killed,
            } => FinalStatus::Killed,
        }
    }
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FinalStatus::Undefined => "UNDEFINED",
            FinalStatus::Succeeded => "SUCCEEDED",
            FinalStatus::Failed => "FAILED",
            FinalStatus::Killed => "KILLED",
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
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Succeeded,
            } => "FINISHED",
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Failed,
            } => "FAILED",
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Killed,
            } => "KILLED",
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

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum NodeState {
    /// Never returned, but clients use it as a filter; the same is true for `Rebooted` and
    /// `Shutdown`.
    New,
    Running,
    Unhealthy,
    Decommissioning,
    Decommissioned,
    Lost,
    Rebooted,
    Shutdown,
}

impl NodeState {
    pub(crate) const ALL: [NodeState; 8] = [
        NodeState::New,
        NodeState::Running,
        NodeState::Unhealthy,
        NodeState::Decommissioning,
        NodeState::Decommissioned,
        NodeState::Lost,
        NodeState::Rebooted,
        NodeState::Shutdown,
    ];

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
        match self {
            NodeState::New
            | NodeState::Running
            | NodeState::Unhealthy
            | NodeState::Decommissioning => true,
            NodeState::Decommissioned
            | NodeState::Lost
            | NodeState::Rebooted
            | NodeState::Shutdown => false,
        }
    }
    /// Whether the node is a member that accepts containers.
    pub(crate) fn is_active(self) -> bool {
        match self {
            NodeState::Running => true,
            NodeState::New
            | NodeState::Unhealthy
            | NodeState::Decommissioning
            | NodeState::Decommissioned => false,
            NodeState::Lost | NodeState::Rebooted | NodeState::Shutdown => false,
        }
    }
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            NodeState::New => "NEW",
            NodeState::Running => "RUNNING",
            NodeState::Unhealthy => "UNHEALTHY",
            NodeState::Decommissioning => "DECOMMISSIONING",
            NodeState::Decommissioned => "DECOMMISSIONED",
            NodeState::Lost => "LOST",
            NodeState::Rebooted => "REBOOTED",
            NodeState::Shutdown => "SHUTDOWN",
        }
    }
}

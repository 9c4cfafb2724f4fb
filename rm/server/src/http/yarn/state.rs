//! Our states in YARN's words. Every match is closed: a new state of ours has to find its word here.

use headroom_rm_core::app::State;
use headroom_rm_core::{Outcome, attempt, node};
use serde::Serialize;

use crate::facts::{AppFacts, Life, NodeFacts};

/// Where an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum AppState {
    /// Never shown: an application is accepted when it is known. Asked for by clients all the same, as the two after it.
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

    /// An application that is being wound down still has containers, so it runs until the last of them is gone.
    pub(crate) fn of(state: State) -> Self {
        match state {
            State::Accepted => AppState::Accepted,
            State::Running | State::Finishing { .. } => AppState::Running,
            State::Ended { outcome: Outcome::Succeeded } => AppState::Finished,
            State::Ended { outcome: Outcome::Failed } => AppState::Failed,
            State::Ended { outcome: Outcome::Killed } => AppState::Killed,
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

/// How an application ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum FinalStatus {
    Undefined,
    Succeeded,
    Failed,
    Killed,
}

impl FinalStatus {
    pub(crate) fn of(state: State) -> Self {
        match state {
            State::Accepted | State::Running | State::Finishing { .. } => FinalStatus::Undefined,
            State::Ended { outcome: Outcome::Succeeded } => FinalStatus::Succeeded,
            State::Ended { outcome: Outcome::Failed } => FinalStatus::Failed,
            State::Ended { outcome: Outcome::Killed } => FinalStatus::Killed,
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

/// Where a run of a master is. One before the current one has failed, or there would be no other.
pub(crate) fn attempt(app: &AppFacts, number: u32) -> &'static str {
    if number < app.attempt {
        return "FAILED";
    }
    match app.run {
        attempt::State::Scheduled => "SCHEDULED",
        attempt::State::Launched { .. } | attempt::State::Awaited => "LAUNCHED",
        attempt::State::Registered { .. } => "RUNNING",
        attempt::State::Recovering { .. } => match app.state {
            State::Accepted => "LAUNCHED",
            State::Running | State::Finishing { .. } | State::Ended { .. } => "RUNNING",
        },
        attempt::State::Over => match app.state {
            State::Accepted | State::Running => "FAILED",
            State::Finishing { .. } => "FINISHING",
            State::Ended { outcome: Outcome::Succeeded } => "FINISHED",
            State::Ended { outcome: Outcome::Failed } => "FAILED",
            State::Ended { outcome: Outcome::Killed } => "KILLED",
        },
    }
}

/// Where a container is.
pub(crate) fn container(life: &Life) -> &'static str {
    match life {
        Life::Coming => "NEW",
        Life::Running => "RUNNING",
        Life::Over { .. } => "COMPLETE",
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum NodeState {
    /// Never shown; asked for by clients all the same, as `Rebooted` and `Shutdown`.
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

    /// A node that is silent is still counted on, until it is given up. One that is drained and stays has no word of its own.
    pub(crate) fn of(node: &NodeFacts) -> Self {
        match (&node.state, &node.mark) {
            (node::State::Lost, _) => NodeState::Lost,
            (node::State::Decommissioned, _) => NodeState::Decommissioned,
            (node::State::Unhealthy { .. } | node::State::Unreachable { .. }, _) => NodeState::Unhealthy,
            (node::State::Ready | node::State::Suspect { .. }, Some(_)) => NodeState::Decommissioning,
            (node::State::Ready | node::State::Suspect { .. }, None) => NodeState::Running,
        }
    }
    /// It is counted on.
    pub(crate) fn is_member(self) -> bool {
        match self {
            NodeState::New | NodeState::Running | NodeState::Unhealthy | NodeState::Decommissioning => true,
            NodeState::Decommissioned | NodeState::Lost | NodeState::Rebooted | NodeState::Shutdown => false,
        }
    }
    /// It is a member that takes work.
    pub(crate) fn is_active(self) -> bool {
        match self {
            NodeState::Running => true,
            NodeState::New | NodeState::Unhealthy | NodeState::Decommissioning | NodeState::Decommissioned => false,
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

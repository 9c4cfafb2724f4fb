//! Node record and its state machine.
//!
//! The node table owns nodes. The ledger counts their resources. An operator's drain is a
//! separate mark (see `drain`), because a draining node can become silent; only the end of a
//! decommission is a state, because it ends the membership.
//!
//! ```text
//!             healthy / unhealthy
//!   registered ──► Ready ⇄ Unhealthy
//!       ▲            │ silent 3 s  │
//!       │            ▼             ▼
//!       │          Suspect (remembers its health) ──► Unreachable (10 s) ──► Lost (30 s)
//!       │            │  heartbeat                          │ heartbeat         │
//!       │            └──────────► Ready / Unhealthy ◄──────┘                   │
//!       └──────────────────────────────────────────────────────────────────────┘
//!
//!   any ── drained to leave ──► Decommissioned (cannot register) ── undrained ──► Lost
//! ```

use std::collections::BTreeMap;

use headroom_types::exit::LeftoverOwner;
use headroom_types::{Bytes, ContainerId, EnforcerKind, NodeId, Tick};

use crate::container_set::ContainerSet;
use crate::event::{NodeHealth, NodeProperties};

/// State of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterNodeState {
    /// It takes work.
    Ready,
    /// It sends heartbeats, and takes no work.
    Unhealthy {
        /// Reason.
        reason: String,
    },
    /// Short silence: it gets no new containers.
    Suspect {
        /// Health in its latest report.
        health: NodeHealth,
    },
    /// Long silence.
    Unreachable {
        /// Health in its latest report.
        health: NodeHealth,
    },
    /// Silent for too long: its containers are lost, and it must register again.
    Lost,
    /// An operator decommissioned it; it cannot register.
    Decommissioned,
}

/// Input of the node state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// It registered, for the first time or again.
    Registered(NodeHealth),
    /// It sent a heartbeat.
    Heard(NodeHealth),
    /// Its heartbeat timed out.
    Silent(SilenceStage),
    /// It is drained and must leave the cluster.
    Left,
    /// An operator allows it to return.
    Welcome,
}

/// Length of a node's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SilenceStage {
    /// Longer than `ClusterSettings::suspect`.
    Suspect,
    /// Longer than `ClusterSettings::unreachable`.
    Unreachable,
    /// Longer than `ClusterSettings::lost`.
    Lost,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAction {
    /// The node takes work again.
    Back,
    /// The node reported that it cannot take work.
    Sick(String),
    /// The node became suspect.
    Suspected,
    /// The node became unreachable.
    OutOfReach,
    /// The node is lost with its containers.
    GivenUp,
    /// The node left the cluster.
    Dismissed,
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node in state {state:?} cannot take {event:?}")]
pub struct InvalidNodeEvent {
    /// State before the event.
    pub state: ClusterNodeState,
    /// Rejected event.
    pub event: NodeEvent,
}

/// The only place where a node's state changes.
pub fn next_node_state(
    state: ClusterNodeState,
    event: NodeEvent,
    out: &mut Vec<NodeAction>,
) -> Result<ClusterNodeState, InvalidNodeEvent> {
    match &state {
        ClusterNodeState::Ready => match event {
            NodeEvent::Registered(health) | NodeEvent::Heard(health) => {
                Ok(speaks(&state, health, out))
            }
            NodeEvent::Silent(how) => Ok(silent(how, NodeHealth::Healthy, out)),
            NodeEvent::Left => Ok(left(out)),
            NodeEvent::Welcome => Ok(state), // it is a member already
        },
        ClusterNodeState::Unhealthy { reason } => match event {
            NodeEvent::Registered(health) | NodeEvent::Heard(health) => {
                Ok(speaks(&state, health, out))
            }
            NodeEvent::Silent(how) => Ok(silent(
                how,
                NodeHealth::Unhealthy {
                    reason: reason.clone(),
                },
                out,
            )),
            NodeEvent::Left => Ok(left(out)),
            NodeEvent::Welcome => Ok(state),
        },
        ClusterNodeState::Suspect { health } => match event {
            NodeEvent::Registered(now) | NodeEvent::Heard(now) => Ok(speaks(&state, now, out)),
            NodeEvent::Silent(SilenceStage::Suspect) => Ok(state),
            NodeEvent::Silent(how @ (SilenceStage::Unreachable | SilenceStage::Lost)) => {
                Ok(silent(how, health.clone(), out))
            }
            NodeEvent::Left => Ok(left(out)),
            NodeEvent::Welcome => Ok(state),
        },
        ClusterNodeState::Unreachable { .. } => match event {
            NodeEvent::Registered(now) | NodeEvent::Heard(now) => Ok(speaks(&state, now, out)),
            NodeEvent::Silent(SilenceStage::Suspect | SilenceStage::Unreachable) => Ok(state),
            NodeEvent::Silent(SilenceStage::Lost) => {
                Ok(silent(SilenceStage::Lost, NodeHealth::Healthy, out))
            }
            NodeEvent::Left => Ok(left(out)),
            NodeEvent::Welcome => Ok(state),
        },
        ClusterNodeState::Lost => match event {
            NodeEvent::Registered(now) => Ok(speaks(&state, now, out)),
            NodeEvent::Heard(_) => Err(InvalidNodeEvent { state, event }), // it must register first
            NodeEvent::Silent(_) | NodeEvent::Welcome => Ok(state),
            NodeEvent::Left => Ok(left(out)),
        },
        ClusterNodeState::Decommissioned => match event {
            // the caller rejects these before
            NodeEvent::Registered(_) | NodeEvent::Heard(_) => {
                Err(InvalidNodeEvent { state, event })
            }
            NodeEvent::Silent(_) | NodeEvent::Left => Ok(state),
            NodeEvent::Welcome => Ok(ClusterNodeState::Lost),
        },
    }
}

fn left(out: &mut Vec<NodeAction>) -> ClusterNodeState {
    out.push(NodeAction::Dismissed);
    ClusterNodeState::Decommissioned
}

fn speaks(
    before: &ClusterNodeState,
    health: NodeHealth,
    out: &mut Vec<NodeAction>,
) -> ClusterNodeState {
    match health {
        NodeHealth::Healthy => {
            if *before != ClusterNodeState::Ready {
                out.push(NodeAction::Back);
            }
            ClusterNodeState::Ready
        }
        NodeHealth::Unhealthy { reason } => {
            let now = ClusterNodeState::Unhealthy {
                reason: reason.clone(),
            };
            if *before != now {
                out.push(NodeAction::Sick(reason));
            }
            now
        }
    }
}

fn silent(how: SilenceStage, health: NodeHealth, out: &mut Vec<NodeAction>) -> ClusterNodeState {
    match how {
        SilenceStage::Suspect => {
            out.push(NodeAction::Suspected);
            ClusterNodeState::Suspect { health }
        }
        SilenceStage::Unreachable => {
            out.push(NodeAction::OutOfReach);
            ClusterNodeState::Unreachable { health }
        }
        SilenceStage::Lost => {
            out.push(NodeAction::GivenUp);
            ClusterNodeState::Lost
        }
    }
}

impl ClusterNodeState {
    /// State name that users see.
    pub fn as_str(&self) -> &'static str {
        match self {
            ClusterNodeState::Ready => "ready",
            ClusterNodeState::Unhealthy { .. } => "unhealthy",
            ClusterNodeState::Suspect { .. } => "suspect",
            ClusterNodeState::Unreachable { .. } => "unreachable",
            ClusterNodeState::Lost => "lost",
            ClusterNodeState::Decommissioned => "decommissioned",
        }
    }
    /// True when the scheduler may place containers on it.
    pub fn takes_work(&self) -> bool {
        match self {
            ClusterNodeState::Ready => true,
            ClusterNodeState::Unhealthy { .. }
            | ClusterNodeState::Suspect { .. }
            | ClusterNodeState::Unreachable { .. }
            | ClusterNodeState::Lost
            | ClusterNodeState::Decommissioned => false,
        }
    }
    /// True while its heartbeats arrive in time.
    pub fn is_heard(&self) -> bool {
        match self {
            ClusterNodeState::Ready | ClusterNodeState::Unhealthy { .. } => true,
            ClusterNodeState::Suspect { .. }
            | ClusterNodeState::Unreachable { .. }
            | ClusterNodeState::Lost
            | ClusterNodeState::Decommissioned => false,
        }
    }
    /// True while the node belongs to the cluster.
    pub fn is_member(&self) -> bool {
        match self {
            ClusterNodeState::Ready
            | ClusterNodeState::Unhealthy { .. }
            | ClusterNodeState::Suspect { .. }
            | ClusterNodeState::Unreachable { .. } => true,
            ClusterNodeState::Lost | ClusterNodeState::Decommissioned => false,
        }
    }
    /// Reason why it takes no work, if it reported one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            ClusterNodeState::Unhealthy { reason }
            | ClusterNodeState::Suspect {
                health: NodeHealth::Unhealthy { reason },
            }
            | ClusterNodeState::Unreachable {
                health: NodeHealth::Unhealthy { reason },
            } => Some(reason),
            ClusterNodeState::Ready
            | ClusterNodeState::Suspect {
                health: NodeHealth::Healthy,
            }
            | ClusterNodeState::Unreachable {
                health: NodeHealth::Healthy,
            }
            | ClusterNodeState::Lost
            | ClusterNodeState::Decommissioned => None,
        }
    }
}

/// One node.
#[derive(Clone, Debug)]
pub struct ClusterNode {
    /// Its name.
    pub id: NodeId,
    /// State of the node.
    pub state: ClusterNodeState,
    /// Mechanism that enforces container limits.
    pub enforcer: EnforcerKind,
    /// URL of its agent.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Rack, labels, attributes and taints as the node reported them.
    pub traits: NodeProperties,
    /// Latest time at which it was known to be alive, by a heartbeat or an open stream.
    pub heard: Tick,
    /// Time of its latest heartbeat.
    pub reported: Tick,
    /// Number of its latest registration; 0 when it sent none.
    pub serial: u64,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Ended containers to which unattributed memory belonged, largest first.
    pub left_by: Vec<LeftoverOwner>,
    /// Memory of its surplus containers, with the time of the latest report. Bytes.
    pub surplus: BTreeMap<ContainerId, (Bytes, Tick)>,
    /// Its containers in the table of allocations.
    pub containers: ContainerSet,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sick() -> NodeHealth {
        NodeHealth::Unhealthy {
            reason: "disk".into(),
        }
    }

    /// One cell per state and event: the next state's first letter (`.` same, `!` illegal; `U`
    /// unhealthy, `O` unreachable), then the actions: `b` back, `s` unhealthy, `q` suspected, `o`
    /// unreachable, `g` lost, `d` decommissioned.
    #[test]
    fn each_state_accepts_its_events() {
        let states = [
            ClusterNodeState::Ready,
            ClusterNodeState::Unhealthy {
                reason: "disk".into(),
            },
            ClusterNodeState::Suspect { health: sick() },
            ClusterNodeState::Unreachable {
                health: NodeHealth::Healthy,
            },
            ClusterNodeState::Lost,
            ClusterNodeState::Decommissioned,
        ];
        let events = [
            NodeEvent::Registered(NodeHealth::Healthy),
            NodeEvent::Registered(sick()),
            NodeEvent::Heard(NodeHealth::Healthy),
            NodeEvent::Heard(sick()),
            NodeEvent::Silent(SilenceStage::Suspect),
            NodeEvent::Silent(SilenceStage::Unreachable),
            NodeEvent::Silent(SilenceStage::Lost),
            NodeEvent::Left,
            NodeEvent::Welcome,
        ];
        let table = [
            ". Us . Us Sq Oo Lg Dd .",  // Ready
            "Rb . Rb . Sq Oo Lg Dd .",  // Unhealthy
            "Rb Us Rb Us . Oo Lg Dd .", // Suspect
            "Rb Us Rb Us . . Lg Dd .",  // Unreachable
            "Rb Us ! ! . . . Dd .",     // Lost
            "! ! ! ! . . . . L",        // Decommissioned
        ];
        for (state, row) in states.iter().zip(table) {
            for (event, cell) in events.iter().zip(row.split(' ')) {
                let mut out = Vec::new();
                let mut got = match next_node_state(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(ClusterNodeState::Ready) => "R".to_owned(),
                    Ok(ClusterNodeState::Unhealthy { .. }) => "U".to_owned(),
                    Ok(ClusterNodeState::Suspect { .. }) => "S".to_owned(),
                    Ok(ClusterNodeState::Unreachable { .. }) => "O".to_owned(),
                    Ok(ClusterNodeState::Lost) => "L".to_owned(),
                    Ok(ClusterNodeState::Decommissioned) => "D".to_owned(),
                };
                for act in &out {
                    got.push(match act {
                        NodeAction::Back => 'b',
                        NodeAction::Sick(_) => 's',
                        NodeAction::Suspected => 'q',
                        NodeAction::OutOfReach => 'o',
                        NodeAction::GivenUp => 'g',
                        NodeAction::Dismissed => 'd',
                    });
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }

    #[test]
    fn a_suspect_node_keeps_its_reported_health() {
        let gone = next_node_state(
            ClusterNodeState::Unhealthy {
                reason: "disk".into(),
            },
            NodeEvent::Silent(SilenceStage::Suspect),
            &mut vec![],
        )
        .expect("legal");
        assert_eq!(gone.reason(), Some("disk"));
    }
}

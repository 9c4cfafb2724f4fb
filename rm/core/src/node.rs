//! Node record and its state machine.
//!
//! The cluster's table owns nodes. The ledger counts their resources. An operator's drain is a
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

use headroom_types::exit::LeftBy;
use headroom_types::{Bytes, EnforcerKind, NodeId, Tick};

use crate::event::{Health, Traits};
use crate::holding::Holding;

/// State of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
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
        health: Health,
    },
    /// Long silence.
    Unreachable {
        /// Health in its latest report.
        health: Health,
    },
    /// Silent for too long: its containers are lost, and it must register again.
    Lost,
    /// An operator decommissioned it; it cannot register.
    Decommissioned,
}

/// Input of the node state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It registered, for the first time or again.
    Registered(Health),
    /// It sent a heartbeat.
    Heard(Health),
    /// Its heartbeat timed out.
    Silent(Silence),
    /// It is drained and must leave the cluster.
    Left,
    /// An operator allows it to return.
    Welcome,
}

/// Length of a node's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// Longer than `Settings::suspect`.
    Suspect,
    /// Longer than `Settings::unreachable`.
    Unreachable,
    /// Longer than `Settings::lost`.
    Lost,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
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
pub struct Illegal {
    /// State before the event.
    pub state: State,
    /// Rejected event.
    pub event: Event,
}

/// The only place where a node's state changes.
pub fn on(state: State, event: Event, out: &mut Vec<Act>) -> Result<State, Illegal> {
    match &state {
        State::Ready => match event {
            Event::Registered(health) | Event::Heard(health) => Ok(speaks(&state, health, out)),
            Event::Silent(how) => Ok(silent(how, Health::Healthy, out)),
            Event::Left => Ok(left(out)),
            Event::Welcome => Ok(state), // it is a member already
        },
        State::Unhealthy { reason } => match event {
            Event::Registered(health) | Event::Heard(health) => Ok(speaks(&state, health, out)),
            Event::Silent(how) => Ok(silent(how, Health::Unhealthy { reason: reason.clone() }, out)),
            Event::Left => Ok(left(out)),
            Event::Welcome => Ok(state),
        },
        State::Suspect { health } => match event {
            Event::Registered(now) | Event::Heard(now) => Ok(speaks(&state, now, out)),
            Event::Silent(Silence::Suspect) => Ok(state),
            Event::Silent(how @ (Silence::Unreachable | Silence::Lost)) => Ok(silent(how, health.clone(), out)),
            Event::Left => Ok(left(out)),
            Event::Welcome => Ok(state),
        },
        State::Unreachable { .. } => match event {
            Event::Registered(now) | Event::Heard(now) => Ok(speaks(&state, now, out)),
            Event::Silent(Silence::Suspect | Silence::Unreachable) => Ok(state),
            Event::Silent(Silence::Lost) => Ok(silent(Silence::Lost, Health::Healthy, out)),
            Event::Left => Ok(left(out)),
            Event::Welcome => Ok(state),
        },
        State::Lost => match event {
            Event::Registered(now) => Ok(speaks(&state, now, out)),
            Event::Heard(_) => Err(Illegal { state, event }), // it must register first
            Event::Silent(_) | Event::Welcome => Ok(state),
            Event::Left => Ok(left(out)),
        },
        State::Decommissioned => match event {
            // the caller rejects these before
            Event::Registered(_) | Event::Heard(_) => Err(Illegal { state, event }),
            Event::Silent(_) | Event::Left => Ok(state),
            Event::Welcome => Ok(State::Lost),
        },
    }
}

fn left(out: &mut Vec<Act>) -> State {
    out.push(Act::Dismissed);
    State::Decommissioned
}

fn speaks(before: &State, health: Health, out: &mut Vec<Act>) -> State {
    match health {
        Health::Healthy => {
            if *before != State::Ready {
                out.push(Act::Back);
            }
            State::Ready
        }
        Health::Unhealthy { reason } => {
            let now = State::Unhealthy { reason: reason.clone() };
            if *before != now {
                out.push(Act::Sick(reason));
            }
            now
        }
    }
}

fn silent(how: Silence, health: Health, out: &mut Vec<Act>) -> State {
    match how {
        Silence::Suspect => {
            out.push(Act::Suspected);
            State::Suspect { health }
        }
        Silence::Unreachable => {
            out.push(Act::OutOfReach);
            State::Unreachable { health }
        }
        Silence::Lost => {
            out.push(Act::GivenUp);
            State::Lost
        }
    }
}

impl State {
    /// State name that users see.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Unhealthy { .. } => "unhealthy",
            State::Suspect { .. } => "suspect",
            State::Unreachable { .. } => "unreachable",
            State::Lost => "lost",
            State::Decommissioned => "decommissioned",
        }
    }
    /// True when the scheduler may place containers on it.
    pub fn takes_work(&self) -> bool {
        match self {
            State::Ready => true,
            State::Unhealthy { .. } | State::Suspect { .. } | State::Unreachable { .. } | State::Lost | State::Decommissioned => {
                false
            }
        }
    }
    /// True while the node belongs to the cluster.
    pub fn is_member(&self) -> bool {
        match self {
            State::Ready | State::Unhealthy { .. } | State::Suspect { .. } | State::Unreachable { .. } => true,
            State::Lost | State::Decommissioned => false,
        }
    }
    /// Reason why it takes no work, if it reported one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            State::Unhealthy { reason }
            | State::Suspect { health: Health::Unhealthy { reason } }
            | State::Unreachable { health: Health::Unhealthy { reason } } => Some(reason),
            State::Ready
            | State::Suspect { health: Health::Healthy }
            | State::Unreachable { health: Health::Healthy }
            | State::Lost
            | State::Decommissioned => None,
        }
    }
}

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// State of the node.
    pub state: State,
    /// Mechanism that enforces container limits.
    pub enforcer: EnforcerKind,
    /// URL of its agent.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Rack, labels, attributes and taints as the node reported them.
    pub traits: Traits,
    /// Time of its latest heartbeat.
    pub heard: Tick,
    /// Number of its latest registration; 0 when it sent none.
    pub serial: u64,
    /// Memory in use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Ended containers to which unattributed memory belonged, largest first.
    pub left_by: Vec<LeftBy>,
    /// Its containers in the cluster's table.
    pub containers: Holding,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sick() -> Health {
        Health::Unhealthy { reason: "disk".into() }
    }

    /// One cell per state and event: the next state's first letter (`.` same, `!` illegal; `U`
    /// unhealthy, `O` unreachable), then the actions: `b` back, `s` unhealthy, `q` suspected, `o`
    /// unreachable, `g` lost, `d` decommissioned.
    #[test]
    fn every_cell() {
        let states = [
            State::Ready,
            State::Unhealthy { reason: "disk".into() },
            State::Suspect { health: sick() },
            State::Unreachable { health: Health::Healthy },
            State::Lost,
            State::Decommissioned,
        ];
        let events = [
            Event::Registered(Health::Healthy),
            Event::Registered(sick()),
            Event::Heard(Health::Healthy),
            Event::Heard(sick()),
            Event::Silent(Silence::Suspect),
            Event::Silent(Silence::Unreachable),
            Event::Silent(Silence::Lost),
            Event::Left,
            Event::Welcome,
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
                let mut got = match on(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(State::Ready) => "R".to_owned(),
                    Ok(State::Unhealthy { .. }) => "U".to_owned(),
                    Ok(State::Suspect { .. }) => "S".to_owned(),
                    Ok(State::Unreachable { .. }) => "O".to_owned(),
                    Ok(State::Lost) => "L".to_owned(),
                    Ok(State::Decommissioned) => "D".to_owned(),
                };
                for act in &out {
                    got.push(match act {
                        Act::Back => 'b',
                        Act::Sick(_) => 's',
                        Act::Suspected => 'q',
                        Act::OutOfReach => 'o',
                        Act::GivenUp => 'g',
                        Act::Dismissed => 'd',
                    });
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }

    #[test]
    fn a_suspect_node_keeps_what_it_said_of_itself() {
        let gone = on(State::Unhealthy { reason: "disk".into() }, Event::Silent(Silence::Suspect), &mut vec![]).expect("legal");
        assert_eq!(gone.reason(), Some("disk"));
    }
}

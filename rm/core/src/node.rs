//! One node: its record and the machine of its life.
//!
//! Owned by the cluster's table. What it offers and what is taken of it is the ledger's affair. What an operator wants of it is a
//! mark beside this machine (see `drain`), because a node can fall silent while it is drained; only the end of a decommission is
//! a state, for it ends the membership.
//!
//! ```text
//!             healthy / unhealthy
//!   registered ──► Ready ⇄ Unhealthy
//!       ▲            │ silent 3 s  │
//!       │            ▼             ▼
//!       │          Suspect (remembers its health) ──► Unreachable (10 s) ──► Lost (30 s)
//!       │            │  heard                              │ heard             │
//!       │            └──────────► Ready / Unhealthy ◄──────┘                   │
//!       └──────────────────────────────────────────────────────────────────────┘
//!
//!   any ── left ──► Decommissioned (cannot register) ── welcome ──► Lost
//! ```

use headroom_types::exit::LeftBy;
use headroom_types::{Bytes, EnforcerKind, NodeId, Tick};

use crate::event::{Health, Traits};
use crate::holding::Holding;

/// Where a node is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes work.
    Ready,
    /// It speaks, and takes no work.
    Unhealthy {
        /// Why.
        reason: String,
    },
    /// It has been silent for a moment.
    Suspect {
        /// What it said last.
        health: Health,
    },
    /// It has been silent for long.
    Unreachable {
        /// What it said last.
        health: Health,
    },
    /// It was given up; it has to register again.
    Lost,
    /// An operator took it out; it cannot register.
    Decommissioned,
}

/// What can happen to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It registered, for the first time or again.
    Registered(Health),
    /// A sign of life.
    Heard(Health),
    /// No sign of life.
    Silent(Silence),
    /// It is empty, and was to be taken out then.
    Left,
    /// It may come back.
    Welcome,
}

/// How long a node has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// For a moment.
    Suspect,
    /// For long.
    Unreachable,
    /// For too long.
    Lost,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It takes work again.
    Back,
    /// It says that it cannot take work.
    Sick(String),
    /// Silent for a moment.
    Suspected,
    /// Silent for long.
    OutOfReach,
    /// Given up: its containers are lost.
    GivenUp,
    /// No member any more.
    Dismissed,
}

/// The event has no meaning in this state; the state is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

/// The only place where a node's state changes.
pub fn on(state: State, event: Event, out: &mut Vec<Act>) -> Result<State, Illegal> {
    match &state {
        State::Ready => match event {
            Event::Registered(health) | Event::Heard(health) => Ok(speaks(&state, health, out)),
            Event::Silent(how) => Ok(silent(how, Health::Healthy, out)),
            Event::Left => Ok(left(out)),
            Event::Welcome => Ok(state), // it is here already
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
            Event::Heard(_) => Err(Illegal { state, event }), // it has to register first
            Event::Silent(_) | Event::Welcome => Ok(state),
            Event::Left => Ok(left(out)),
        },
        State::Decommissioned => match event {
            Event::Registered(_) | Event::Heard(_) => Err(Illegal { state, event }), // it was refused before
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
    /// The word people see.
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
    /// The scheduler may place on it.
    pub fn takes_work(&self) -> bool {
        match self {
            State::Ready => true,
            State::Unhealthy { .. } | State::Suspect { .. } | State::Unreachable { .. } | State::Lost | State::Decommissioned => {
                false
            }
        }
    }
    /// It is still counted on.
    pub fn is_member(&self) -> bool {
        match self {
            State::Ready | State::Unhealthy { .. } | State::Suspect { .. } | State::Unreachable { .. } => true,
            State::Lost | State::Decommissioned => false,
        }
    }
    /// Why it takes no work, where it said so.
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
    /// Where it is in its life.
    pub state: State,
    /// What holds its containers to their limits.
    pub enforcer: EnforcerKind,
    /// Where its own interface listens.
    pub url: String,
    /// Version of its agent.
    pub version: String,
    /// Where it stands and what it is.
    pub traits: Traits,
    /// Its last sign of life.
    pub heard: Tick,
    /// The number of its latest registration; 0 when it said none.
    pub serial: u64,
    /// In use on the whole host. Bytes.
    pub host_used: Bytes,
    /// Who left what the ledger counts as unattributed, largest first.
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

    /// One word a cell: next state's first letter (`.` same, `!` illegal; `U` unhealthy, `O` unreachable), then the acts:
    /// `b` back, `s` sick, `q` suspected, `o` out of reach, `g` given up, `d` dismissed.
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

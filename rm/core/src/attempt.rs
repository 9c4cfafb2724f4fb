//! Application attempt: one run of an application master, and its state machine.
//!
//! The application owns its attempt. This module only records how the attempt ended; the
//! application decides whether another attempt follows.
//!
//! ```text
//!  managed    Scheduled ──granted──► Launched ──registered──► Registered ──┐
//!  unmanaged  Awaited ─────────────────────────registered───►     │        │ exited, silent,
//!  restarted  Recovering ──────────────────────registered───►     ▼        │ lost, stop
//!                  │ found                                       Over ◄────┘
//!                  └─► Recovering{found}
//! ```

use headroom_types::{ContainerId, ExitReason};

/// State of an application attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Managed: waits for a container.
    Scheduled,
    /// Managed: has a container, has not registered.
    Launched {
        /// Its container.
        container: ContainerId,
    },
    /// Unmanaged: has not registered.
    Awaited,
    /// The master is connected.
    Registered {
        /// Its container, when managed.
        container: Option<ContainerId>,
    },
    /// The resource manager has restarted, and the master has not registered again.
    Recovering {
        /// Its container, when managed.
        container: Option<ContainerId>,
        /// True when a node has reported the container.
        found: bool,
    },
    /// The attempt has ended.
    Over,
}

/// Input of the attempt state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A container was granted to it.
    Granted(ContainerId),
    /// The master registered.
    Registered,
    /// After a restart: a node reported its container.
    Found,
    /// Its container ended.
    Exited(ExitReason),
    /// The master's heartbeat timed out.
    Silent,
    /// After a restart: the wait for nodes is over.
    NodesKnown,
    /// The application is ending.
    Stop,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The master registered.
    MasterThere,
    /// The attempt failed.
    Failed(Failure),
    /// Its container must be stopped.
    StopContainer(ContainerId),
}

/// Cause of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its container ended, and the master had not reported the end of the application.
    Exited(ExitReason),
    /// The master's heartbeat timed out.
    Silent,
    /// After a restart, no node reported its container.
    Lost,
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attempt in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// State before the event.
    pub state: State,
    /// Rejected event.
    pub event: Event,
}

impl State {
    /// Container of the attempt.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            State::Launched { container } => Some(container),
            State::Registered { container } | State::Recovering { container, .. } => container.as_ref(),
            State::Scheduled | State::Awaited | State::Over => None,
        }
    }
    /// True while the master is registered.
    pub fn is_registered(&self) -> bool {
        match self {
            State::Registered { .. } => true,
            State::Scheduled | State::Launched { .. } | State::Awaited | State::Recovering { .. } | State::Over => false,
        }
    }
}

/// The only place where an attempt's state changes.
pub fn on(state: State, event: Event, out: &mut Vec<Act>) -> Result<State, Illegal> {
    match &state {
        State::Scheduled => match event {
            Event::Granted(container) => Ok(State::Launched { container }),
            Event::Stop => Ok(State::Over),
            Event::NodesKnown => Ok(state),
            Event::Registered | Event::Found | Event::Exited(_) | Event::Silent => Err(Illegal { state, event }),
        },
        State::Launched { container } => match event {
            Event::Registered => Ok(registered(Some(container.clone()), out)),
            Event::Exited(reason) => Ok(failed(Failure::Exited(reason), None, out)),
            Event::Silent => Ok(failed(Failure::Silent, Some(container), out)),
            Event::Stop => Ok(State::Over),
            Event::NodesKnown => Ok(state),
            Event::Granted(_) | Event::Found => Err(Illegal { state, event }),
        },
        State::Awaited => match event {
            Event::Registered => Ok(registered(None, out)),
            Event::Silent => Ok(failed(Failure::Silent, None, out)),
            Event::Stop => Ok(State::Over),
            Event::NodesKnown => Ok(state),
            Event::Granted(_) | Event::Found | Event::Exited(_) => Err(Illegal { state, event }),
        },
        State::Registered { container } => match event {
            // it lost its connection and registered again
            Event::Registered => Ok(registered(container.clone(), out)),
            Event::Exited(reason) => Ok(failed(Failure::Exited(reason), None, out)),
            Event::Silent => Ok(failed(Failure::Silent, container.as_ref(), out)),
            Event::Stop => Ok(State::Over),
            // the master registered before its node did
            Event::NodesKnown | Event::Found => Ok(state),
            Event::Granted(_) => Err(Illegal { state, event }),
        },
        State::Recovering { container, found } => match event {
            Event::Registered => Ok(registered(container.clone(), out)),
            Event::Found => Ok(State::Recovering { container: container.clone(), found: true }),
            Event::Exited(reason) => Ok(failed(Failure::Exited(reason), None, out)),
            Event::Silent => Ok(failed(Failure::Silent, container.as_ref(), out)),
            Event::NodesKnown if container.is_some() && !found => Ok(failed(Failure::Lost, None, out)),
            Event::NodesKnown => Ok(state),
            Event::Stop => Ok(State::Over),
            Event::Granted(_) => Err(Illegal { state, event }),
        },
        State::Over => match event {
            Event::Granted(_) => Err(Illegal { state, event }),
            // late events are allowed
            Event::Registered | Event::Found | Event::Exited(_) | Event::Silent | Event::NodesKnown | Event::Stop => Ok(state),
        },
    }
}

fn registered(container: Option<ContainerId>, out: &mut Vec<Act>) -> State {
    out.push(Act::MasterThere);
    State::Registered { container }
}

fn failed(failure: Failure, stop: Option<&ContainerId>, out: &mut Vec<Act>) -> State {
    out.extend(stop.map(|c| Act::StopContainer(c.clone())));
    out.push(Act::Failed(failure));
    State::Over
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ContainerId {
        "job.1.e1.c1".parse().expect("id")
    }
    fn states() -> [State; 8] {
        [
            State::Scheduled,
            State::Launched { container: id() },
            State::Awaited,
            State::Registered { container: Some(id()) },
            State::Registered { container: None },
            State::Recovering { container: Some(id()), found: false },
            State::Recovering { container: Some(id()), found: true },
            State::Over,
        ]
    }
    fn events() -> [Event; 7] {
        [
            Event::Granted(id()),
            Event::Registered,
            Event::Found,
            Event::Exited(ExitReason::HeapOom),
            Event::Silent,
            Event::NodesKnown,
            Event::Stop,
        ]
    }

    /// One cell per state and event. `.` same state, `!` illegal, `O` over, `L` launched, `R`
    /// registered, `F` recovering and found; a failure adds `f`, a stop of the container adds `s`.
    #[test]
    fn every_cell() {
        let table = [
            "L ! ! ! ! . O",     // Scheduled
            "! R ! Of Osf . O",  // Launched
            "! R ! ! Of . O",    // Awaited
            "! . . Of Osf . O",  // Registered, managed
            "! . . Of Of . O",   // Registered, unmanaged
            "! R F Of Osf Of O", // Recovering
            "! R . Of Osf . O",  // Recovering, found
            "! . . . . . .",     // Over
        ];
        for (state, row) in states().into_iter().zip(table) {
            for (event, cell) in events().into_iter().zip(row.split(' ')) {
                let mut out = Vec::new();
                let mut got = match on(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == state => ".".to_owned(),
                    Ok(State::Over) => "O".to_owned(),
                    Ok(State::Launched { .. }) => "L".to_owned(),
                    Ok(State::Registered { .. }) => "R".to_owned(),
                    Ok(State::Recovering { .. }) => "F".to_owned(),
                    Ok(State::Scheduled | State::Awaited) => "?".to_owned(),
                };
                if out.iter().any(|a| matches!(a, Act::StopContainer(_))) {
                    got.push('s');
                }
                if out.iter().any(|a| matches!(a, Act::Failed(_))) {
                    got.push('f');
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }
}

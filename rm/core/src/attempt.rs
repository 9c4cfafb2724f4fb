//! One run of an application's master: the machine of its life.
//!
//! Owned by its application. Never decides whether another run follows; it only says how this one ended.
//!
//! ```text
//!  managed    Scheduled ──granted──► Launched ──registered──► Registered ──┐
//!  unmanaged  Awaited ─────────────────────────registered───►     │        │ exited, silent,
//!  restarted  Recovering ──────────────────────registered───►     ▼        │ lost, stop
//!                  │ found                                       Over ◄────┘
//!                  └─► Recovering{found}
//! ```

use headroom_types::{ContainerId, ExitReason};

/// Where a run of a master is in its life.
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
    /// It speaks.
    Registered {
        /// Its container, when managed.
        container: Option<ContainerId>,
    },
    /// The resource manager has restarted and the master has not registered again.
    Recovering {
        /// Its container, when managed.
        container: Option<ContainerId>,
        /// A node has told that the container lives.
        found: bool,
    },
    /// It is gone.
    Over,
}

/// What can happen to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A container was granted to it.
    Granted(ContainerId),
    /// It registered.
    Registered,
    /// After a restart: a node has its container.
    Found,
    /// Its container ended.
    Exited(ExitReason),
    /// It said nothing for too long.
    Silent,
    /// After a restart: all nodes that will come have come.
    NodesKnown,
    /// The application is ending.
    Stop,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The application has a master.
    MasterThere,
    /// The run failed.
    Failed(Failure),
    /// Its container must not go on.
    StopContainer(ContainerId),
}

/// How a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its container ended without a word from the master.
    Exited(ExitReason),
    /// It said nothing for too long.
    Silent,
    /// Its container is on no node that came back.
    Lost,
}

/// The event has no meaning in this state; the state is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attempt in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl State {
    /// The container it runs in.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            State::Launched { container } => Some(container),
            State::Registered { container } | State::Recovering { container, .. } => container.as_ref(),
            State::Scheduled | State::Awaited | State::Over => None,
        }
    }
    /// It has registered and is not gone.
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
            Event::Registered => Ok(registered(container.clone(), out)), // it lost its connection and came again
            Event::Exited(reason) => Ok(failed(Failure::Exited(reason), None, out)),
            Event::Silent => Ok(failed(Failure::Silent, container.as_ref(), out)),
            Event::Stop => Ok(State::Over),
            Event::NodesKnown | Event::Found => Ok(state), // it registered before its node did
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
            // late, on purpose
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

    /// One letter a cell. `.` same state, `!` illegal, `O` over, `L` launched, `R` registered, `F` recovering and found;
    /// a failure adds `f`, a stop of the container `s`.
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

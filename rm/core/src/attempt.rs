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
pub enum AttemptState {
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
pub enum AttemptEvent {
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
pub enum AttemptAction {
    /// The master registered.
    MasterThere,
    /// The attempt failed.
    Failed(AttemptFailure),
    /// Its container must be stopped.
    StopContainer(ContainerId),
}

/// Cause of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// Its container ended, and the master had not reported the end of the application.
    Exited(ExitReason),
    /// The master's heartbeat timed out.
    Silent,
    /// The master of a started container has not registered in time.
    NotRegistered,
    /// After a restart, no node reported its container.
    Lost,
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attempt in state {state:?} cannot take {event:?}")]
pub struct InvalidAttemptEvent {
    /// State before the event.
    pub state: AttemptState,
    /// Rejected event.
    pub event: AttemptEvent,
}

impl AttemptState {
    /// Container of the attempt.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            AttemptState::Launched { container } => Some(container),
            AttemptState::Registered { container } | AttemptState::Recovering { container, .. } => {
                container.as_ref()
            }
            AttemptState::Scheduled | AttemptState::Awaited | AttemptState::Over => None,
        }
    }
    /// True while the master is registered.
    pub fn is_registered(&self) -> bool {
        match self {
            AttemptState::Registered { .. } => true,
            AttemptState::Scheduled
            | AttemptState::Launched { .. }
            | AttemptState::Awaited
            | AttemptState::Recovering { .. }
            | AttemptState::Over => false,
        }
    }
}

/// The only place where an attempt's state changes.
pub fn next_attempt_state(
    state: AttemptState,
    event: AttemptEvent,
    out: &mut Vec<AttemptAction>,
) -> Result<AttemptState, InvalidAttemptEvent> {
    match &state {
        AttemptState::Scheduled => match event {
            AttemptEvent::Granted(container) => Ok(AttemptState::Launched { container }),
            AttemptEvent::Stop => Ok(AttemptState::Over),
            AttemptEvent::NodesKnown => Ok(state),
            AttemptEvent::Registered
            | AttemptEvent::Found
            | AttemptEvent::Exited(_)
            | AttemptEvent::Silent => Err(InvalidAttemptEvent { state, event }),
        },
        AttemptState::Launched { container } => match event {
            AttemptEvent::Registered => Ok(registered(Some(container.clone()), out)),
            AttemptEvent::Exited(reason) => Ok(failed(AttemptFailure::Exited(reason), None, out)),
            AttemptEvent::Silent => Ok(failed(AttemptFailure::NotRegistered, Some(container), out)),
            AttemptEvent::Stop => Ok(AttemptState::Over),
            AttemptEvent::NodesKnown => Ok(state),
            AttemptEvent::Granted(_) | AttemptEvent::Found => {
                Err(InvalidAttemptEvent { state, event })
            }
        },
        AttemptState::Awaited => match event {
            AttemptEvent::Registered => Ok(registered(None, out)),
            AttemptEvent::Silent => Ok(failed(AttemptFailure::Silent, None, out)),
            AttemptEvent::Stop => Ok(AttemptState::Over),
            AttemptEvent::NodesKnown => Ok(state),
            AttemptEvent::Granted(_) | AttemptEvent::Found | AttemptEvent::Exited(_) => {
                Err(InvalidAttemptEvent { state, event })
            }
        },
        AttemptState::Registered { container } => match event {
            // it lost its connection and registered again
            AttemptEvent::Registered => Ok(registered(container.clone(), out)),
            AttemptEvent::Exited(reason) => Ok(failed(AttemptFailure::Exited(reason), None, out)),
            AttemptEvent::Silent => Ok(failed(AttemptFailure::Silent, container.as_ref(), out)),
            AttemptEvent::Stop => Ok(AttemptState::Over),
            // the master registered before its node did
            AttemptEvent::NodesKnown | AttemptEvent::Found => Ok(state),
            AttemptEvent::Granted(_) => Err(InvalidAttemptEvent { state, event }),
        },
        AttemptState::Recovering { container, found } => match event {
            AttemptEvent::Registered => Ok(registered(container.clone(), out)),
            AttemptEvent::Found => Ok(AttemptState::Recovering {
                container: container.clone(),
                found: true,
            }),
            AttemptEvent::Exited(reason) => Ok(failed(AttemptFailure::Exited(reason), None, out)),
            AttemptEvent::Silent => Ok(failed(AttemptFailure::Silent, container.as_ref(), out)),
            AttemptEvent::NodesKnown if container.is_some() && !found => {
                Ok(failed(AttemptFailure::Lost, None, out))
            }
            AttemptEvent::NodesKnown => Ok(state),
            AttemptEvent::Stop => Ok(AttemptState::Over),
            AttemptEvent::Granted(_) => Err(InvalidAttemptEvent { state, event }),
        },
        AttemptState::Over => match event {
            AttemptEvent::Granted(_) => Err(InvalidAttemptEvent { state, event }),
            // late events are allowed
            AttemptEvent::Registered
            | AttemptEvent::Found
            | AttemptEvent::Exited(_)
            | AttemptEvent::Silent
            | AttemptEvent::NodesKnown
            | AttemptEvent::Stop => Ok(state),
        },
    }
}

fn registered(container: Option<ContainerId>, out: &mut Vec<AttemptAction>) -> AttemptState {
    out.push(AttemptAction::MasterThere);
    AttemptState::Registered { container }
}

fn failed(
    failure: AttemptFailure,
    stop: Option<&ContainerId>,
    out: &mut Vec<AttemptAction>,
) -> AttemptState {
    out.extend(stop.map(|c| AttemptAction::StopContainer(c.clone())));
    out.push(AttemptAction::Failed(failure));
    AttemptState::Over
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ContainerId {
        "job.1.e1.c1".parse().expect("id")
    }
    fn states() -> [AttemptState; 8] {
        [
            AttemptState::Scheduled,
            AttemptState::Launched { container: id() },
            AttemptState::Awaited,
            AttemptState::Registered {
                container: Some(id()),
            },
            AttemptState::Registered { container: None },
            AttemptState::Recovering {
                container: Some(id()),
                found: false,
            },
            AttemptState::Recovering {
                container: Some(id()),
                found: true,
            },
            AttemptState::Over,
        ]
    }
    fn events() -> [AttemptEvent; 7] {
        [
            AttemptEvent::Granted(id()),
            AttemptEvent::Registered,
            AttemptEvent::Found,
            AttemptEvent::Exited(ExitReason::HeapOom),
            AttemptEvent::Silent,
            AttemptEvent::NodesKnown,
            AttemptEvent::Stop,
        ]
    }

    /// One cell per state and event. `.` same state, `!` illegal, `O` over, `L` launched, `R`
    /// registered, `F` recovering and found; a failure adds `f`, a stop of the container adds `s`.
    #[test]
    fn each_state_accepts_its_events() {
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
                let mut got = match next_attempt_state(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == state => ".".to_owned(),
                    Ok(AttemptState::Over) => "O".to_owned(),
                    Ok(AttemptState::Launched { .. }) => "L".to_owned(),
                    Ok(AttemptState::Registered { .. }) => "R".to_owned(),
                    Ok(AttemptState::Recovering { .. }) => "F".to_owned(),
                    Ok(AttemptState::Scheduled | AttemptState::Awaited) => "?".to_owned(),
                };
                if out
                    .iter()
                    .any(|a| matches!(a, AttemptAction::StopContainer(_)))
                {
                    got.push('s');
                }
                if out.iter().any(|a| matches!(a, AttemptAction::Failed(_))) {
                    got.push('f');
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }
}

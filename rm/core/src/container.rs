//! One container: its record and the machine of its life.
//!
//! Owned by the cluster's table. Never adds up resources and never speaks to anybody: that comes out as [`Act`]s.
//!
//! ```text
//!             preparing              running
//!  Allocated ──────────► Launching ──────────► Running
//!      │ │ running           │  │                │  │
//!      │ └───────────────────┼──┼────────────►───┘  │
//!      └───── stop ──────────┴──┼──► Stopping ◄─────┤ stop / ending
//!                               │       │           │
//!                               └───────┴── exited ─┴──► Exited ──acked──► Done
//! ```

use std::sync::Arc;

use headroom_types::{Bytes, ContainerId, ExitReport, NodeId, RequestId, Resource, StopCause, Tick, UnixMillis};

use crate::event::{Launch, Phase, RunOrder};
use crate::size::{self, Sized};
use crate::table::Row;

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Granted; its node has not shown it yet.
    Allocated,
    /// Its node makes it.
    Launching,
    /// Its program runs.
    Running,
    /// It is to end.
    Stopping {
        /// Why; `None` when its node ends it on its own account.
        asked: Option<StopCause>,
    },
    /// It ended; its application has not said that it knows.
    Exited {
        /// The verdict.
        report: Arc<ExitReport>,
    },
    /// All is said and done.
    Done {
        /// The verdict.
        report: Arc<ExitReport>,
    },
}

/// What can happen to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its node makes it.
    Preparing,
    /// Its program runs.
    Running,
    /// Its node ends it.
    Ending,
    /// Somebody wants it to end.
    Stop(StopCause),
    /// It ended.
    Exited(Arc<ExitReport>),
    /// Its application knows of its end.
    Acked,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Its program runs for the first time.
    Started,
    /// Its node has to stop it.
    TellStop(StopCause),
    /// Its resources are free, and its application has to hear the verdict.
    Ended(Arc<ExitReport>),
    /// Its node may forget it, and so may the table.
    Forget,
}

/// The event has no meaning in this state; the state is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

/// The only place where a container's state changes.
pub fn on(state: State, event: Event, out: &mut Vec<Act>) -> Result<State, Illegal> {
    match &state {
        State::Allocated | State::Launching => match event {
            Event::Preparing => Ok(State::Launching),
            Event::Running => {
                out.push(Act::Started);
                Ok(State::Running)
            }
            Event::Ending => Ok(State::Stopping { asked: None }),
            Event::Stop(cause) => Ok(stop(cause, out)),
            Event::Exited(report) => Ok(ended(report, out)), // it ran between two reports
            Event::Acked => Err(Illegal { state, event }),
        },
        State::Running => match event {
            Event::Preparing | Event::Running => Ok(state), // an older report, or a sign of life
            Event::Ending => Ok(State::Stopping { asked: None }),
            Event::Stop(cause) => Ok(stop(cause, out)),
            Event::Exited(report) => Ok(ended(report, out)),
            Event::Acked => Err(Illegal { state, event }),
        },
        State::Stopping { asked } => match event {
            Event::Preparing | Event::Running | Event::Ending => Ok(state), // it takes a while
            Event::Stop(cause) if asked.is_none() => Ok(stop(cause, out)),
            Event::Stop(_) => Ok(state), // already asked
            Event::Exited(report) => Ok(ended(report, out)),
            Event::Acked => Err(Illegal { state, event }),
        },
        State::Exited { report } => match event {
            // a node that was given up has come back with it
            Event::Preparing | Event::Running => {
                out.push(Act::TellStop(StopCause::Asked));
                Ok(state)
            }
            Event::Ending | Event::Stop(_) | Event::Exited(_) => Ok(state), // late, on purpose
            Event::Acked => {
                out.push(Act::Forget);
                Ok(State::Done { report: report.clone() })
            }
        },
        State::Done { .. } => match event {
            Event::Preparing | Event::Running | Event::Ending | Event::Stop(_) | Event::Exited(_) | Event::Acked => Ok(state),
        },
    }
}

fn stop(cause: StopCause, out: &mut Vec<Act>) -> State {
    out.push(Act::TellStop(cause));
    State::Stopping { asked: Some(cause) }
}

fn ended(report: Arc<ExitReport>, out: &mut Vec<Act>) -> State {
    out.push(Act::Ended(report.clone()));
    State::Exited { report }
}

impl State {
    /// The word people see.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Allocated => "allocated",
            State::Launching => "launching",
            State::Running => "running",
            State::Stopping { .. } => "stopping",
            State::Exited { .. } | State::Done { .. } => "exited",
        }
    }
    /// It takes resources of its node.
    pub fn is_alive(&self) -> bool {
        match self {
            State::Allocated | State::Launching | State::Running | State::Stopping { .. } => true,
            State::Exited { .. } | State::Done { .. } => false,
        }
    }
    /// The verdict, once there is one.
    pub fn report(&self) -> Option<&Arc<ExitReport>> {
        match self {
            State::Exited { report } | State::Done { report } => Some(report),
            State::Allocated | State::Launching | State::Running | State::Stopping { .. } => None,
        }
    }
}

/// What a node shows of a container means this event; an end waits for its report.
pub fn seen(phase: Phase) -> Option<Event> {
    match phase {
        Phase::Preparing | Phase::Starting => Some(Event::Preparing),
        Phase::Running => Some(Event::Running),
        Phase::Stopping => Some(Event::Ending),
        Phase::Exited => None,
    }
}

/// One container.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Where it is.
    pub node: NodeId,
    /// The request it was granted for; `None` for a master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    pub attempt: u32,
    /// The size it has, as its node showed it last.
    pub resource: Resource,
    /// The version of that size; 1 for the one it was granted with.
    pub version: u32,
    /// What was ordered beyond that size.
    pub sizing: size::State,
    /// The latest version that was ordered or shown; no order gets it again.
    pub newest: u32,
    /// When its node was last told of the order.
    pub size_told: Tick,
    /// What runs in it.
    pub launch: Arc<Launch>,
    /// Who submitted its application.
    pub user: Arc<str>,
    /// When it was granted.
    pub granted: UnixMillis,
    /// Memory charged to it, as last told. Bytes.
    pub used: Option<Bytes>,
    /// When its node last showed it.
    pub seen: Option<Tick>,
    /// When it was asked to end.
    pub stop_asked: Option<Tick>,
    /// Where it is in its life.
    pub state: State,
    /// Where its application's record lies; that stays there for as long as it has containers.
    pub(crate) home: Row,
}

impl Container {
    /// The order for its node: the size on its way there, or the one it has.
    pub fn order(&self) -> RunOrder {
        let (resource, version, launch) = match self.sizing.order() {
            None => (self.resource.clone(), self.version, self.launch.clone()),
            Some(order) => (order.resource.clone(), order.version, with_heap(&self.launch, order.heap)),
        };
        let (app, request, attempt, granted) = (self.id.app.clone(), self.request.clone(), self.attempt, self.granted);
        RunOrder { app, request, attempt, resource, version, launch, user: self.user.clone(), granted }
    }
    /// The size it has.
    pub fn has(&self) -> Sized {
        Sized { resource: self.resource.clone(), heap: self.launch.heap, version: self.version }
    }
    /// From now on it has another one.
    pub(crate) fn take_size(&mut self, now: Sized) {
        self.launch = with_heap(&self.launch, now.heap);
        self.newest = self.newest.max(now.version);
        (self.resource, self.version) = (now.resource, now.version);
    }
    /// What the ledger counts for it: size and heap budget.
    pub fn counted(&self) -> (Resource, Bytes) {
        self.sizing.counted(&self.resource, self.launch.heap)
    }
}

fn with_heap(launch: &Arc<Launch>, heap: Option<Bytes>) -> Arc<Launch> {
    if launch.heap == heap {
        return launch.clone();
    }
    Arc::new(Launch { heap, ..Launch::clone(launch) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{EnforcerKind, Evidence, ExitReason};

    fn report(reason: ExitReason) -> Arc<ExitReport> {
        Arc::new(ExitReport {
            container: "job.1.e1.c1".parse().expect("id"),
            node: "n1".parse().expect("id"),
            reason,
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            diagnosis: vec![],
            started: None,
            ended: UnixMillis(1),
            timeline: vec![],
            log_tail: String::new(),
            tasks: vec![],
        })
    }

    /// One word a cell: next state's first letter (`.` same, `!` illegal), then the acts: `r` started, `s` stop, `e` ended, `f` forget.
    #[test]
    fn every_cell() {
        let ok = report(ExitReason::Exit { code: 0 });
        let states = [
            State::Allocated,
            State::Launching,
            State::Running,
            State::Stopping { asked: None },
            State::Stopping { asked: Some(StopCause::Preempted) },
            State::Exited { report: ok.clone() },
            State::Done { report: ok.clone() },
        ];
        let events = [
            Event::Preparing,
            Event::Running,
            Event::Ending,
            Event::Stop(StopCause::Asked),
            Event::Exited(report(ExitReason::NodeLost)),
            Event::Acked,
        ];
        let table = [
            "L Rr S Ss Ee !", // Allocated
            ". Rr S Ss Ee !", // Launching
            ". . S Ss Ee !",  // Running
            ". . . Ss Ee !",  // Stopping by its node
            ". . . . Ee !",   // Stopping on request
            ".s .s . . . Df", // Exited: the first verdict stands
            ". . . . . .",    // Done
        ];
        for (state, row) in states.iter().zip(table) {
            for (event, cell) in events.iter().zip(row.split(' ')) {
                let mut out = Vec::new();
                let mut got = match on(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(State::Allocated) => "A".to_owned(),
                    Ok(State::Launching) => "L".to_owned(),
                    Ok(State::Running) => "R".to_owned(),
                    Ok(State::Stopping { .. }) => "S".to_owned(),
                    Ok(State::Exited { .. }) => "E".to_owned(),
                    Ok(State::Done { .. }) => "D".to_owned(),
                };
                for act in &out {
                    got.push(match act {
                        Act::Started => 'r',
                        Act::TellStop(_) => 's',
                        Act::Ended(_) => 'e',
                        Act::Forget => 'f',
                    });
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }
}

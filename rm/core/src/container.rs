//! Container record and its state machine.
//!
//! The table of allocations owns containers. This module does no resource accounting and sends no
//! messages: it returns the required actions as [`ContainerAction`]s.
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

use headroom_types::{
    Bytes, ContainerId, ExitReport, LaunchSpec, NodeId, RequestId, Resource, StopCause, Tick,
    UnixMillis,
};

use crate::event::{ContainerPhase, GrantedContainer, LaunchOrder};
use crate::ledger::ContainerRole;
use crate::sched::node_ix::NodeNumber;
use crate::size::{self, VersionedSize};
use crate::table::RowPosition;

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Granted; its node has not reported it.
    Allocated,
    /// Its node prepares it.
    Launching,
    /// Its program runs.
    Running,
    /// It must end.
    Stopping {
        /// Cause of the stop; `None` when the node stops the container by itself.
        asked: Option<StopCause>,
    },
    /// It ended; its application has not acknowledged the end.
    Exited {
        /// Exit report with the verdict.
        report: Arc<ExitReport>,
    },
    /// Its application has acknowledged the end.
    Done {
        /// Exit report with the verdict.
        report: Arc<ExitReport>,
    },
}

/// Input of the container state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerEvent {
    /// Its node prepares it.
    Preparing,
    /// Its program runs.
    Running,
    /// Its node stops it.
    Ending,
    /// It must end, for this cause.
    Stop(StopCause),
    /// It ended.
    Exited(Arc<ExitReport>),
    /// Its application acknowledged the end.
    Acked,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerAction {
    /// Its program runs for the first time.
    Started,
    /// Its node must stop it.
    SendStop(StopCause),
    /// Its resources are free, and its application must receive the report.
    Ended(Arc<ExitReport>),
    /// Its node and the table may remove it.
    Forget,
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container in state {state:?} cannot take {event:?}")]
pub struct InvalidContainerEvent {
    /// State before the event.
    pub state: ContainerState,
    /// Rejected event.
    pub event: ContainerEvent,
}

/// The only place where a container's state changes.
pub fn next_container_state(
    state: ContainerState,
    event: ContainerEvent,
    out: &mut Vec<ContainerAction>,
) -> Result<ContainerState, InvalidContainerEvent> {
    match &state {
        ContainerState::Allocated | ContainerState::Launching => match event {
            ContainerEvent::Preparing => Ok(ContainerState::Launching),
            ContainerEvent::Running => {
                out.push(ContainerAction::Started);
                Ok(ContainerState::Running)
            }
            ContainerEvent::Ending => Ok(ContainerState::Stopping { asked: None }),
            ContainerEvent::Stop(cause) => Ok(stop(cause, out)),
            ContainerEvent::Exited(report) => Ok(ended(report, out)), // it ran between two reports
            ContainerEvent::Acked => Err(InvalidContainerEvent { state, event }),
        },
        ContainerState::Running => match event {
            // an older report, or a repeated heartbeat
            ContainerEvent::Preparing | ContainerEvent::Running => Ok(state),
            ContainerEvent::Ending => Ok(ContainerState::Stopping { asked: None }),
            ContainerEvent::Stop(cause) => Ok(stop(cause, out)),
            ContainerEvent::Exited(report) => Ok(ended(report, out)),
            ContainerEvent::Acked => Err(InvalidContainerEvent { state, event }),
        },
        ContainerState::Stopping { asked } => match event {
            ContainerEvent::Preparing | ContainerEvent::Running | ContainerEvent::Ending => {
                Ok(state)
            } // it takes a while
            ContainerEvent::Stop(cause) if asked.is_none() => Ok(stop(cause, out)),
            ContainerEvent::Stop(_) => Ok(state), // already asked
            ContainerEvent::Exited(report) => Ok(ended(report, out)),
            ContainerEvent::Acked => Err(InvalidContainerEvent { state, event }),
        },
        ContainerState::Exited { report } => match event {
            // a lost node has registered again with the container
            ContainerEvent::Preparing | ContainerEvent::Running => {
                out.push(ContainerAction::SendStop(StopCause::Asked));
                Ok(state)
            }
            // late events are allowed
            ContainerEvent::Ending | ContainerEvent::Stop(_) | ContainerEvent::Exited(_) => {
                Ok(state)
            }
            ContainerEvent::Acked => {
                out.push(ContainerAction::Forget);
                Ok(ContainerState::Done {
                    report: report.clone(),
                })
            }
        },
        ContainerState::Done { .. } => match event {
            ContainerEvent::Preparing
            | ContainerEvent::Running
            | ContainerEvent::Ending
            | ContainerEvent::Stop(_)
            | ContainerEvent::Exited(_)
            | ContainerEvent::Acked => Ok(state),
        },
    }
}

fn stop(cause: StopCause, out: &mut Vec<ContainerAction>) -> ContainerState {
    out.push(ContainerAction::SendStop(cause));
    ContainerState::Stopping { asked: Some(cause) }
}

fn ended(report: Arc<ExitReport>, out: &mut Vec<ContainerAction>) -> ContainerState {
    out.push(ContainerAction::Ended(report.clone()));
    ContainerState::Exited { report }
}

impl ContainerState {
    /// State name that users see.
    pub fn as_str(&self) -> &'static str {
        match self {
            ContainerState::Allocated => "allocated",
            ContainerState::Launching => "launching",
            ContainerState::Running => "running",
            ContainerState::Stopping { .. } => "stopping",
            ContainerState::Exited { .. } | ContainerState::Done { .. } => "exited",
        }
    }
    /// True while the container takes resources of its node.
    pub fn is_alive(&self) -> bool {
        match self {
            ContainerState::Allocated
            | ContainerState::Launching
            | ContainerState::Running
            | ContainerState::Stopping { .. } => true,
            ContainerState::Exited { .. } | ContainerState::Done { .. } => false,
        }
    }
    /// Exit report, once the container has ended.
    pub fn report(&self) -> Option<&Arc<ExitReport>> {
        match self {
            ContainerState::Exited { report } | ContainerState::Done { report } => Some(report),
            ContainerState::Allocated
            | ContainerState::Launching
            | ContainerState::Running
            | ContainerState::Stopping { .. } => None,
        }
    }
}

/// Converts a phase that a node reports into an event. `None` for an end, which is an event only
/// with its report.
pub fn event_for_phase(phase: ContainerPhase) -> Option<ContainerEvent> {
    match phase {
        ContainerPhase::Preparing | ContainerPhase::Starting => Some(ContainerEvent::Preparing),
        ContainerPhase::Running => Some(ContainerEvent::Running),
        ContainerPhase::Stopping => Some(ContainerEvent::Ending),
        ContainerPhase::Exited => None,
    }
}

/// One container. The fields that every report of a node reads come first and share cache lines:
/// reports are about any of all containers, and waiting for memory is most of their cost.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// State of the container.
    pub state: ContainerState,
    /// Number of its node.
    pub(crate) node_number: NodeNumber,
    /// Row of its application's record; the row does not change while the application has
    /// containers.
    pub(crate) home: RowPosition,
    /// Row of the counts of its request, in the record of its application; `None` for a master.
    pub(crate) counts: Option<RowPosition>,
    /// Place in the application's set of containers.
    pub(crate) place: u32,
    /// Version of the current size; 1 for the size of the grant.
    pub version: u32,
    /// Latest version that was ordered or reported; each order gets a higher one.
    pub newest: u32,
    /// State of an ordered resize.
    pub sizing: size::ResizeState,
    /// Charged memory in the latest report. Bytes.
    pub used: Option<Bytes>,
    /// Time of the node's latest report about it.
    pub seen: Option<Tick>,
    /// The request it was granted for; `None` for a master.
    pub request: Option<RequestId>,
    /// Current size, as its node reported it last.
    pub resource: Resource,
    /// Node of the container.
    pub node: NodeId,
    /// Command, environment and files.
    pub launch: Arc<LaunchSpec>,
    /// User who submitted its application.
    pub user: Arc<str>,
    /// Time of the grant.
    pub granted: UnixMillis,
    /// Attempt of its master for which it was granted; 1 for the first.
    pub attempt: u32,
    /// Time when the resize order was last sent to the node.
    pub size_sent: Tick,
    /// Time when it was first ordered to end.
    pub stop_asked: Option<Tick>,
}

impl Container {
    /// Reads one field of each cache line of the record; see `Cluster::prefetch_containers`.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let seen = self.seen.map_or(0, |seen| seen.0);
        let ends = self.granted.0 ^ self.size_sent.0 ^ u64::from(self.attempt);
        let report = self.state.report().map_or(0, |report| {
            let lists = report.tasks.len() ^ report.timeline.len() ^ report.diagnosis.len();
            (lists ^ report.log_tail.len() ^ report.evidence.missing.len()) as u64
        });
        report ^ self.id.seq ^ u64::from(self.place) ^ seen ^ self.resource.memory.get() ^ ends
    }
    /// Order for its node: the ordered size, or else the current one.
    pub fn order(&self) -> LaunchOrder {
        let (resource, version, launch) = match self.sizing.order() {
            None => (self.resource.clone(), self.version, self.launch.clone()),
            Some(order) => (
                order.resource.clone(),
                order.version,
                with_heap(&self.launch, order.heap),
            ),
        };
        let (app, request, attempt, granted) = (
            self.id.app.clone(),
            self.request.clone(),
            self.attempt,
            self.granted,
        );
        LaunchOrder {
            app,
            request,
            attempt,
            resource,
            version,
            launch,
            user: self.user.clone(),
            granted,
        }
    }
    /// The container in the form that its master receives.
    pub(crate) fn granted_for(&self, request: RequestId) -> GrantedContainer {
        GrantedContainer {
            container: self.id.clone(),
            request,
            node: self.node.clone(),
            resource: self.resource.clone(),
            attempt: self.attempt,
            running: self.state == ContainerState::Running,
        }
    }
    /// True when it is not a master's and was not ordered to stop.
    pub(crate) fn is_preemptable(&self) -> bool {
        match self.state {
            ContainerState::Allocated | ContainerState::Launching | ContainerState::Running => {
                self.request.is_some()
            }
            ContainerState::Stopping { .. }
            | ContainerState::Exited { .. }
            | ContainerState::Done { .. } => false,
        }
    }
    /// Role in its application.
    pub(crate) fn role(&self) -> ContainerRole {
        ContainerRole::of(self.request.as_ref())
    }
    /// True when its node has reported that it runs, in its latest size.
    pub(crate) fn runs_as_granted(&self) -> bool {
        self.state == ContainerState::Running
            && self.sizing == size::ResizeState::Stable
            && self.version == self.newest
    }
    /// Current size.
    pub fn has(&self) -> VersionedSize {
        VersionedSize {
            resource: self.resource.clone(),
            heap: self.launch.heap,
            version: self.version,
        }
    }
    /// Records a new current size.
    pub(crate) fn take_size(&mut self, now: VersionedSize) {
        self.launch = with_heap(&self.launch, now.heap);
        self.newest = self.newest.max(now.version);
        (self.resource, self.version) = (now.resource, now.version);
    }
    /// Size and heap budget that the ledger counts for it.
    pub fn counted(&self) -> (Resource, Bytes) {
        self.sizing.counted(&self.resource, self.launch.heap)
    }
}

fn with_heap(launch: &Arc<LaunchSpec>, heap: Option<Bytes>) -> Arc<LaunchSpec> {
    if launch.heap == heap {
        return launch.clone();
    }
    Arc::new(LaunchSpec {
        heap,
        ..LaunchSpec::clone(launch)
    })
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

    /// One cell per state and event: the next state's first letter (`.` same, `!` illegal), then
    /// the actions: `r` started, `s` stop, `e` ended, `f` forget.
    #[test]
    fn each_state_accepts_its_events() {
        let ok = report(ExitReason::Exit { code: 0 });
        let states = [
            ContainerState::Allocated,
            ContainerState::Launching,
            ContainerState::Running,
            ContainerState::Stopping { asked: None },
            ContainerState::Stopping {
                asked: Some(StopCause::Preempted),
            },
            ContainerState::Exited { report: ok.clone() },
            ContainerState::Done { report: ok.clone() },
        ];
        let events = [
            ContainerEvent::Preparing,
            ContainerEvent::Running,
            ContainerEvent::Ending,
            ContainerEvent::Stop(StopCause::Asked),
            ContainerEvent::Exited(report(ExitReason::NodeLost)),
            ContainerEvent::Acked,
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
                let mut got = match next_container_state(state.clone(), event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(ContainerState::Allocated) => "A".to_owned(),
                    Ok(ContainerState::Launching) => "L".to_owned(),
                    Ok(ContainerState::Running) => "R".to_owned(),
                    Ok(ContainerState::Stopping { .. }) => "S".to_owned(),
                    Ok(ContainerState::Exited { .. }) => "E".to_owned(),
                    Ok(ContainerState::Done { .. }) => "D".to_owned(),
                };
                for act in &out {
                    got.push(match act {
                        ContainerAction::Started => 'r',
                        ContainerAction::SendStop(_) => 's',
                        ContainerAction::Ended(_) => 'e',
                        ContainerAction::Forget => 'f',
                    });
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }
}

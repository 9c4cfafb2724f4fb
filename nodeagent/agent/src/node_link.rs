//! The link to the resource manager as a state machine: registers, receives desired state, reports
//! observed state.
//!
//! It opens no socket and reads no clock. The owner asks for due messages, provides their bodies,
//! and returns the answers as events. Nothing is polled: desired state arrives in one long
//! response, an end is reported at once. The agent and the simulation own the same link.
//!
//! ```text
//!            due            registered            HR0410, HR0404
//!   Down ──────────► Registering ──────────► Up ──────────────────► Down
//!     ▲                   │ failed            │ report or stream failed
//!     └───────────────────┘                   └──► retry after a wait, still Up
//! ```
//!
//! The resource manager refuses the registration of a decommissioned node. That is no connection
//! error: the link logs it once and retries slowly, because an operator may undrain the node.

use std::time::Duration;

use headroom_client::ClientError;
use headroom_client::retry::ExponentialBackoff;
use headroom_node_core::agent::AgentCore;
use headroom_node_core::report_schedule::{ReportDue, ReportSchedule, ReportScope};
use headroom_types::{ContainerId, Epoch, Tick, UnixMillis};
use headroom_wire::v1::error::{ErrorCode, ProblemReason};
use headroom_wire::v1::nodes::{DesiredStateLine, NodeRegistered, NodeReportReply, RegisterNode};
use tracing::{debug, info, warn};

use crate::node_link_event::{NodeLinkEvent, NodeMembership, RegistrationNumber};

/// Maximum wait between attempts to contact a lost resource manager.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Wait of a decommissioned node between two registrations.
const DECOMMISSIONED_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The message that the link needs next.
#[derive(Debug)]
pub enum NodeLinkRequest {
    /// A registration, see [`NodeLink::numbered`].
    Registration,
    /// Reading the stream of desired state with this epoch, instead of any other stream.
    Stream(RegistrationNumber, Epoch),
    /// A report.
    Report(RegistrationNumber, Epoch, ReportScope),
    /// Nothing until that time, or until an event arrives.
    Nothing(Option<Tick>),
}

/// News for the core.
#[derive(Debug)]
pub enum NodeLinkNews {
    /// The link registered: with another incarnation of the resource manager, or with the same one
    /// after a gap.
    Peer(NodeRegistered),
    /// Desired state.
    Desired(DesiredStateLine),
    /// Exit reports that the resource manager has received.
    Received(Vec<ContainerId>),
    /// Nothing for the core.
    Nothing,
}

/// The link.
#[derive(Debug)]
pub struct NodeLink {
    /// Address of the resource manager, for the log.
    rm: String,
    phase: RmLinkPhase,
    generation: RegistrationNumber,
    backoff: ExponentialBackoff,
    /// Whether the last call succeeded, so that a loss is logged once.
    well: bool,
    /// Whether the resource manager refuses this node as decommissioned.
    dismissed: bool,
    /// Serial number of the latest registration.
    serial: u64,
}

#[derive(Debug)]
enum RmLinkPhase {
    Down {
        retry_at: Tick,
    },
    Registering,
    Up {
        epoch: Epoch,
        sync: ReportSchedule,
        stream: OrderStreamState,
    },
}

#[derive(Debug)]
enum OrderStreamState {
    Open,
    Closed { retry_at: Tick },
}

impl NodeLink {
    /// A link to the resource manager at the address `rm` that is down.
    pub fn new(rm: String) -> Self {
        let backoff = ExponentialBackoff::new(Duration::from_millis(50), LONGEST_WAIT);
        let phase = RmLinkPhase::Down { retry_at: Tick(0) };
        NodeLink {
            rm,
            phase,
            generation: RegistrationNumber::default(),
            backoff,
            well: true,
            dismissed: false,
            serial: 0,
        }
    }

    /// The membership of the node.
    pub fn membership(&self) -> NodeMembership {
        match &self.phase {
            RmLinkPhase::Up { .. } => NodeMembership::Registered,
            RmLinkPhase::Down { .. } | RmLinkPhase::Registering if self.dismissed => {
                NodeMembership::Decommissioned
            }
            RmLinkPhase::Down { .. } | RmLinkPhase::Registering => NodeMembership::Searching,
        }
    }

    /// Whether the link reads its stream, or waits for it to open.
    pub fn has_stream(&self) -> bool {
        match &self.phase {
            RmLinkPhase::Up {
                stream: OrderStreamState::Open,
                ..
            } => true,
            RmLinkPhase::Up {
                stream: OrderStreamState::Closed { .. },
                ..
            }
            | RmLinkPhase::Down { .. }
            | RmLinkPhase::Registering => false,
        }
    }

    /// Marks a container whose phase changed.
    pub fn changed(&mut self, id: &ContainerId) {
        if let RmLinkPhase::Up { sync, .. } = &mut self.phase {
            sync.changed(id);
        }
    }

    /// Marks a change of the node itself that cannot wait for the next heartbeat.
    pub fn node_changed(&mut self) {
        if let RmLinkPhase::Up { sync, .. } = &mut self.phase {
            sync.node_changed();
        }
    }

    /// Marks a container with a new exit report.
    pub fn ended(&mut self, id: &ContainerId) {
        if let RmLinkPhase::Up { sync, .. } = &mut self.phase {
            sync.ended(id);
        }
    }

    /// Makes a report due if exit reports did not fit into the last message, or a new peer has not
    /// confirmed them.
    pub fn send_remaining_reports(&mut self, core: &AgentCore) {
        if let Some(report) = core.unreceived().next() {
            self.ended(&report.container);
        }
    }

    /// The message that is due now. It counts as under way.
    pub fn due(&mut self, now: Tick) -> NodeLinkRequest {
        match &mut self.phase {
            RmLinkPhase::Registering => NodeLinkRequest::Nothing(None),
            RmLinkPhase::Down { retry_at } if now < *retry_at => {
                NodeLinkRequest::Nothing(Some(*retry_at))
            }
            RmLinkPhase::Down { .. } => {
                self.phase = RmLinkPhase::Registering;
                NodeLinkRequest::Registration
            }
            RmLinkPhase::Up {
                epoch,
                sync,
                stream,
            } => {
                let stream_at = match stream {
                    OrderStreamState::Open => None,
                    OrderStreamState::Closed { retry_at } if now < *retry_at => Some(*retry_at),
                    OrderStreamState::Closed { .. } => {
                        *stream = OrderStreamState::Open;
                        return NodeLinkRequest::Stream(self.generation, *epoch);
                    }
                };
                match sync.due(now) {
                    ReportDue::Send(scope) => {
                        NodeLinkRequest::Report(self.generation, *epoch, scope)
                    }
                    ReportDue::At(at) => {
                        NodeLinkRequest::Nothing(Some(stream_at.map_or(at, |s| s.min(at))))
                    }
                    ReportDue::Wait => NodeLinkRequest::Nothing(stream_at),
                }
            }
        }
    }

    /// Gives a registration its serial number. It is the time, and above earlier ones of this
    /// agent; earlier agents used an earlier time.
    pub fn numbered(&mut self, body: RegisterNode, now: UnixMillis) -> RegisterNode {
        self.serial = self.serial.saturating_add(1).max(now.0);
        RegisterNode {
            serial: self.serial,
            ..body
        }
    }

    /// Processes an event.
    pub fn take(&mut self, now: Tick, event: NodeLinkEvent) -> NodeLinkNews {
        match event {
            NodeLinkEvent::Registered(Ok(answer)) => self.registered(now, answer),
            NodeLinkEvent::Registered(Err(error)) if is_dismissal(&error) => {
                if !self.dismissed {
                    warn!(%error, rm = self.rm.as_str(), "this node takes no work until it is undrained; retrying every 30 s");
                }
                self.dismissed = true;
                self.phase = RmLinkPhase::Down {
                    retry_at: now.plus(DECOMMISSIONED_RETRY_INTERVAL),
                };
                NodeLinkNews::Nothing
            }
            NodeLinkEvent::Registered(Err(error)) => {
                // The clock was set back, or another agent uses this node's name.
                self.serial = self.serial.max(above(&error));
                let retry_at = now.plus(self.failed("registration", &error));
                self.phase = RmLinkPhase::Down { retry_at };
                NodeLinkNews::Nothing
            }
            NodeLinkEvent::Line(generation, desired) if generation == self.generation => {
                self.line(now, desired)
            }
            NodeLinkEvent::StreamEnded(generation, error) if generation == self.generation => {
                self.stream_ended(now, error.as_ref());
                NodeLinkNews::Nothing
            }
            NodeLinkEvent::Reported(generation, answer) if generation == self.generation => {
                self.reported(now, answer)
            }
            NodeLinkEvent::Line(..)
            | NodeLinkEvent::StreamEnded(..)
            | NodeLinkEvent::Reported(..) => NodeLinkNews::Nothing,
        }
    }

    fn registered(&mut self, now: Tick, answer: NodeRegistered) -> NodeLinkNews {
        info!(epoch = %answer.epoch, rm = self.rm.as_str(), "registered with the resource manager");
        self.well = true;
        self.dismissed = false;
        self.backoff.reset();
        self.generation = self.generation.next();
        self.phase = RmLinkPhase::Up {
            epoch: answer.epoch,
            sync: ReportSchedule::registered(now, heartbeat(answer.heartbeat_ms)),
            stream: OrderStreamState::Closed { retry_at: now },
        };
        NodeLinkNews::Peer(answer)
    }

    fn line(&mut self, now: Tick, desired: DesiredStateLine) -> NodeLinkNews {
        self.went_well();
        match &self.phase {
            RmLinkPhase::Up { epoch, .. } if *epoch == desired.epoch => {
                NodeLinkNews::Desired(desired)
            }
            // Another incarnation of the resource manager answers now.
            RmLinkPhase::Up { .. } => {
                self.phase = RmLinkPhase::Down { retry_at: now };
                NodeLinkNews::Nothing
            }
            RmLinkPhase::Down { .. } | RmLinkPhase::Registering => NodeLinkNews::Nothing,
        }
    }

    fn stream_ended(&mut self, now: Tick, error: Option<&ClientError>) {
        if error.is_some_and(is_unknown_node_error) {
            self.phase = RmLinkPhase::Down { retry_at: now };
            return;
        }
        let wait = match error {
            Some(error) => self.failed("stream", error),
            None => self.backoff.wait(),
        };
        if let RmLinkPhase::Up { stream, .. } = &mut self.phase {
            *stream = OrderStreamState::Closed {
                retry_at: now.plus(wait),
            };
        }
    }

    fn reported(
        &mut self,
        now: Tick,
        answer: Result<NodeReportReply, ClientError>,
    ) -> NodeLinkNews {
        match answer {
            Ok(reply) => {
                self.went_well();
                if let RmLinkPhase::Up { sync, .. } = &mut self.phase {
                    sync.answered(now, heartbeat(reply.heartbeat_ms));
                }
                NodeLinkNews::Received(reply.received)
            }
            Err(error) if is_unknown_node_error(&error) => {
                info!(%error, "the resource manager does not know this node; the agent registers again");
                self.phase = RmLinkPhase::Down { retry_at: now };
                NodeLinkNews::Nothing
            }
            Err(error) => {
                let wait = self.failed("report", &error);
                if let RmLinkPhase::Up { sync, .. } = &mut self.phase {
                    sync.failed(now, wait);
                }
                NodeLinkNews::Nothing
            }
        }
    }

    fn went_well(&mut self) {
        if !self.well {
            info!(rm = self.rm.as_str(), "the resource manager answers again");
        }
        self.well = true;
        self.backoff.reset();
    }

    /// Logs the first failure and returns the wait before the next attempt.
    fn failed(&mut self, call: &str, error: &ClientError) -> Duration {
        if self.well {
            let cause = error.root_cause();
            warn!(call, %error, cause, rm = self.rm.as_str(), "the resource manager does not answer; containers continue");
        } else {
            debug!(call, %error, cause = error.root_cause(), "the resource manager still does not answer");
        }
        self.well = false;
        self.backoff.wait()
    }
}

/// Whether the resource manager does not know this node or this epoch.
/// The interval between heartbeats in an answer.
fn heartbeat(millis: Option<u64>) -> Option<Duration> {
    millis.map(Duration::from_millis)
}

fn is_unknown_node_error(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::HR0410 | ErrorCode::HR0404))
}

/// Whether the resource manager refuses the node as decommissioned. Other conflicts at registration
/// are faults.
fn is_dismissal(error: &ClientError) -> bool {
    let problem = error.problem();
    problem.is_some_and(|problem| problem.reason == Some(ProblemReason::NodeDecommissioned))
}

/// The serial number that a registration must exceed; 0 if the refusal had another reason.
fn above(error: &ClientError) -> u64 {
    let problem = error.problem();
    problem
        .and_then(|problem| problem.above)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use headroom_client::FailedAttempt;
    use headroom_wire::v1::error::ProblemDetails;

    use super::*;

    /// Errors of calls while no resource manager leads.
    fn without_leader() -> [ClientError; 3] {
        let problem = |code| ClientError::Problem(Box::new(ProblemDetails::new(code, "no")));
        let attempt = |address: &str, code| FailedAttempt {
            address: address.to_owned(),
            error: problem(code),
        };
        let all = ClientError::NoLeader {
            attempts: vec![
                attempt("http://rm1:7070", ErrorCode::HR0421),
                attempt("http://rm2:7070", ErrorCode::HR0503),
            ],
        };
        [problem(ErrorCode::HR0421), problem(ErrorCode::HR0503), all]
    }

    fn registered(link: &mut NodeLink, epoch: u32) {
        let answer = NodeRegistered {
            epoch: Epoch(epoch),
            acked: Vec::new(),
            heartbeat_ms: None,
        };
        link.take(Tick(0), NodeLinkEvent::Registered(Ok(answer)));
    }

    #[test]
    fn a_node_waits_for_the_next_leader_and_registers_there() {
        for error in without_leader() {
            let mut link = NodeLink::new("http://rm1:7070,http://rm2:7070".to_owned());
            link.take(Tick(0), NodeLinkEvent::Registered(Err(error)));
            assert_eq!(link.membership(), NodeMembership::Searching);
            assert!(matches!(
                link.due(Tick(1_000)),
                NodeLinkRequest::Registration
            ));
        }
        for error in without_leader() {
            let mut link = NodeLink::new("http://rm1:7070,http://rm2:7070".to_owned());
            registered(&mut link, 3);
            let NodeLinkRequest::Stream(number, epoch) = link.due(Tick(0)) else {
                panic!("the stream is opened first");
            };
            link.take(Tick(5), NodeLinkEvent::StreamEnded(number, Some(error)));
            assert_eq!(
                link.membership(),
                NodeMembership::Registered,
                "containers continue"
            );
            let mut again = link.due(Tick(1_005));
            assert!(
                matches!(again, NodeLinkRequest::Stream(_, same) if same == epoch),
                "{again:?}"
            );
            let stale = ProblemDetails::new(ErrorCode::HR0410, "another epoch");
            let stale = ClientError::Problem(Box::new(stale));
            link.take(Tick(1_010), NodeLinkEvent::StreamEnded(number, Some(stale)));
            again = link.due(Tick(1_010));
            assert!(matches!(again, NodeLinkRequest::Registration), "{again:?}");
            registered(&mut link, 4);
            again = link.due(Tick(1_010));
            assert!(
                matches!(again, NodeLinkRequest::Stream(_, Epoch(4))),
                "{again:?}"
            );
        }
    }

    #[test]
    fn only_the_reason_dismisses_a_node() {
        let problem = || ProblemDetails::new(ErrorCode::HR0409, "node n1 is decommissioned");
        let refused = |problem| ClientError::Problem(Box::new(problem));
        assert!(!is_dismissal(&refused(problem())));
        let dismissed = problem().reason(ProblemReason::NodeDecommissioned);
        assert!(is_dismissal(&refused(dismissed)));
        let unknown = problem().reason(ProblemReason::Unknown);
        assert!(!is_dismissal(&refused(unknown)));
    }
}

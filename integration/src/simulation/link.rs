//! A node agent's connection to the resource manager, with the core's own schedule of reports.

use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_node_core::agent;
use headroom_node_core::container::LifecyclePhase;
use headroom_node_core::report_schedule::{ReportDue, ReportSchedule, ReportScope};
use headroom_rm_core::{
    CallAnswer, CallRefusal, ClusterCall, ContainerPhase as Seen, NodeHealth, NodeHeartbeat,
    NodeRegistration, RefusedSize,
};
use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, NodeId, Tick};

use super::host::{Host, SimHostEvent};
use super::manager::SimManagerInput;
use super::network::{Caller, Line, SimCallResult};
use super::{Simulation, SimulationEvent as Any};

/// Interval of registration attempts of a decommissioned node. Milliseconds.
const DISMISSED: u64 = 30_000;
/// Maximum number of exit reports in one message.
const ENDS_AT_ONCE: usize = 32;

#[derive(Debug)]
enum Phase {
    Down {
        retry_at: u64,
    },
    Registering {
        number: u64,
    },
    Up {
        epoch: Epoch,
        sync: ReportSchedule,
        report: Option<u64>,
        stream: Stream,
    },
}

#[derive(Debug)]
enum Stream {
    Closed { retry_at: u64 },
    Opening { number: u64, stream: u64 },
    Open { stream: u64 },
}

/// The connection of one agent.
#[derive(Debug)]
pub(super) struct SimAgentConnection {
    phase: Phase,
    backoff: Backoff,
    /// Serial number of the latest registration.
    serial: u64,
}

impl Default for SimAgentConnection {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        SimAgentConnection {
            phase: Phase::Down { retry_at: 0 },
            backoff,
            serial: 0,
        }
    }
}

impl SimAgentConnection {
    pub(super) fn changed(&mut self, id: &ContainerId) {
        if let Phase::Up { sync, .. } = &mut self.phase {
            sync.changed(id);
        }
    }
    pub(super) fn ended(&mut self, id: &ContainerId) {
        if let Phase::Up { sync, .. } = &mut self.phase {
            sync.ended(id);
        }
    }
    pub(super) fn stream(&self) -> Option<u64> {
        match &self.phase {
            Phase::Up {
                stream: Stream::Open { stream } | Stream::Opening { stream, .. },
                ..
            } => Some(*stream),
            Phase::Up {
                stream: Stream::Closed { .. },
                ..
            }
            | Phase::Down { .. }
            | Phase::Registering { .. } => None,
        }
    }
    fn wait(&mut self) -> u64 {
        u64::try_from(self.backoff.wait().as_millis()).unwrap_or(0)
    }
}

enum ConnectionAction {
    Register,
    Watch(Epoch),
    Report(Epoch, ReportScope),
    Nothing(u64),
}

impl SimAgentConnection {
    fn due(&mut self, now: u64) -> ConnectionAction {
        match &mut self.phase {
            Phase::Registering { .. } => ConnectionAction::Nothing(now + 1_000),
            Phase::Down { retry_at } if now < *retry_at => ConnectionAction::Nothing(*retry_at),
            Phase::Down { .. } => ConnectionAction::Register,
            Phase::Up {
                epoch,
                sync,
                stream,
                ..
            } => {
                let again = match stream {
                    Stream::Closed { retry_at } if now < *retry_at => *retry_at,
                    Stream::Closed { .. } => return ConnectionAction::Watch(*epoch),
                    Stream::Opening { .. } | Stream::Open { .. } => now + 1_000,
                };
                match sync.due(Tick(now)) {
                    ReportDue::Send(scope) => ConnectionAction::Report(*epoch, scope),
                    ReportDue::At(at) => ConnectionAction::Nothing(at.0.min(again)),
                    ReportDue::Wait => ConnectionAction::Nothing(again),
                }
            }
        }
    }
}

impl Simulation {
    /// Sends due messages and schedules the next wake-up.
    pub(super) fn host_tends(&mut self, node: &NodeId) {
        let now = self.now;
        let wake = loop {
            let Some(host) = self.hosts.get_mut(node).filter(|h| h.up) else {
                return;
            };
            let caller = Caller::Host(node.clone(), host.life);
            let life = host.life;
            match host.link.due(now) {
                ConnectionAction::Register => {
                    host.link.serial = host.link.serial.saturating_add(1).max(now);
                    let call = ClusterCall::RegisterNode {
                        node: node.clone(),
                        facts: Box::new(registration(host)),
                    };
                    let number = self.call(caller, SimManagerInput::Call(Box::new(call)));
                    self.link_of(node, |link| link.phase = Phase::Registering { number });
                }
                ConnectionAction::Watch(epoch) => {
                    let stream = self.number();
                    let number = self.call(
                        caller,
                        SimManagerInput::WatchNode {
                            node: node.clone(),
                            epoch,
                            stream,
                            life,
                        },
                    );
                    self.link_of(node, |link| {
                        if let Phase::Up { stream: slot, .. } = &mut link.phase {
                            *slot = Stream::Opening { number, stream };
                        }
                    });
                }
                ConnectionAction::Report(epoch, scope) => {
                    let report = Box::new(report(host, epoch, &scope));
                    let number = self.call(
                        caller,
                        SimManagerInput::Call(Box::new(ClusterCall::Report {
                            node: node.clone(),
                            report,
                        })),
                    );
                    self.link_of(node, |link| {
                        if let Phase::Up { report, .. } = &mut link.phase {
                            *report = Some(number);
                        }
                    });
                }
                ConnectionAction::Nothing(at) => {
                    break host
                        .agent
                        .deadline()
                        .map_or(at, |d| d.0.min(at))
                        .max(now + 1);
                }
            }
        };
        if let Some(host) = self.hosts.get_mut(node)
            && host.wake.is_none_or(|w| wake < w)
        {
            host.wake = Some(wake);
            let life = host.life;
            self.at(wake, Any::Host(node.clone(), SimHostEvent::Wake { life }));
        }
    }

    fn link_of(&mut self, node: &NodeId, change: impl FnOnce(&mut SimAgentConnection)) {
        if let Some(host) = self.hosts.get_mut(node) {
            change(&mut host.link);
        }
    }

    pub(super) fn link_hears(&mut self, node: &NodeId, number: u64, heard: SimCallResult) {
        let Some(host) = self.hosts.get(node) else {
            return;
        };
        match &host.link.phase {
            Phase::Registering { number: waited } if *waited == number => {
                self.link_registered(node, heard);
            }
            Phase::Up {
                report: Some(waited),
                ..
            } if *waited == number => self.link_reported(node, heard),
            Phase::Up {
                stream:
                    Stream::Opening {
                        number: waited,
                        stream,
                    },
                ..
            } if *waited == number => {
                let stream = *stream;
                self.link_opened(node, stream, heard);
            }
            Phase::Down { .. } | Phase::Registering { .. } | Phase::Up { .. } => {}
        }
    }

    /// Handles the answer to a registration.
    fn link_registered(&mut self, node: &NodeId, heard: SimCallResult) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let link = &mut host.link;
        match heard {
            SimCallResult::Answer(answer, epoch) => {
                let CallAnswer::Node { acked } = *answer else {
                    return;
                };
                link.backoff.reset();
                let (sync, stream) = (
                    ReportSchedule::registered(Tick(now)),
                    Stream::Closed { retry_at: now },
                );
                link.phase = Phase::Up {
                    epoch,
                    sync,
                    report: None,
                    stream,
                };
                self.agent_steps(node, agent::AgentEvent::NewPeer { acked });
                self.tell_the_rest(node);
            }
            SimCallResult::Refused(CallRefusal::Overtaken { latest, .. }) => {
                link.serial = link.serial.max(latest);
                link.phase = Phase::Down {
                    retry_at: now + link.wait(),
                };
            }
            SimCallResult::Refused(CallRefusal::Decommissioned(_)) => {
                link.phase = Phase::Down {
                    retry_at: now + DISMISSED,
                }
            }
            SimCallResult::Listening
            | SimCallResult::Refused(_)
            | SimCallResult::TooOld
            | SimCallResult::Lost => {
                let wait = link.wait();
                link.phase = Phase::Down {
                    retry_at: now + wait,
                };
            }
        }
    }

    /// Handles the answer to the request for the stream of the desired state.
    fn link_opened(&mut self, node: &NodeId, stream: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let link = &mut host.link;
        let Phase::Up { stream: slot, .. } = &mut link.phase else {
            return;
        };
        match heard {
            SimCallResult::Listening => *slot = Stream::Open { stream },
            SimCallResult::Refused(refusal) if is_stranger(&refusal) => {
                link.phase = Phase::Down { retry_at: now }
            }
            SimCallResult::Answer(..)
            | SimCallResult::Refused(_)
            | SimCallResult::TooOld
            | SimCallResult::Lost => {
                let wait = link.backoff.wait().as_millis();
                *slot = Stream::Closed {
                    retry_at: now + u64::try_from(wait).unwrap_or(0),
                };
            }
        }
    }

    fn link_reported(&mut self, node: &NodeId, heard: SimCallResult) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let link = &mut host.link;
        let Phase::Up { sync, report, .. } = &mut link.phase else {
            return;
        };
        *report = None;
        match heard {
            SimCallResult::Answer(answer, _) => {
                let CallAnswer::Received { received } = *answer else {
                    return;
                };
                link.backoff.reset();
                sync.answered();
                let progress = !received.is_empty();
                self.agent_steps(node, agent::AgentEvent::Received(received));
                if progress {
                    self.tell_the_rest(node);
                }
            }
            SimCallResult::Refused(refusal) if is_stranger(&refusal) => {
                link.phase = Phase::Down { retry_at: now }
            }
            SimCallResult::Listening
            | SimCallResult::Refused(_)
            | SimCallResult::TooOld
            | SimCallResult::Lost => {
                sync.failed(Tick(now), link.backoff.wait());
            }
        }
    }

    fn tell_the_rest(&mut self, node: &NodeId) {
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        if let Some(id) = host
            .agent
            .unreceived()
            .next()
            .map(|report| report.container.clone())
        {
            host.link.ended(&id);
        }
    }

    pub(super) fn link_line(&mut self, node: &NodeId, number: u64, line: Line) {
        let now = self.now;
        let open = self.is_open(number);
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let link = &mut host.link;
        let Phase::Up { epoch, stream, .. } = &mut link.phase else {
            return;
        };
        let mine = match stream {
            Stream::Open { stream } | Stream::Opening { stream, .. } => *stream == number,
            Stream::Closed { .. } => false,
        };
        let Line::Desired {
            epoch: told,
            full,
            wants,
        } = line
        else {
            return;
        };
        if !mine || !open {
            return;
        }
        *stream = Stream::Open { stream: number };
        link.backoff.reset();
        if *epoch == told {
            self.agent_wanted(node, full, wants);
        } else {
            link.phase = Phase::Down { retry_at: now };
        }
    }

    pub(super) fn link_stream_ended(&mut self, node: &NodeId, number: u64) {
        let now = self.now;
        self.link_of(node, |link| {
            let wait = link.wait();
            if let Phase::Up { stream, .. } = &mut link.phase {
                let mine = match stream {
                    Stream::Open { stream } | Stream::Opening { stream, .. } => *stream == number,
                    Stream::Closed { .. } => false,
                };
                if mine {
                    *stream = Stream::Closed {
                        retry_at: now + wait,
                    };
                }
            }
        });
    }
}

/// True if the resource manager does not know this node or epoch.
fn is_stranger(refusal: &CallRefusal) -> bool {
    matches!(
        refusal,
        CallRefusal::StaleEpoch { .. }
            | CallRefusal::NodeNotRegistered(_)
            | CallRefusal::NoSuchApp(_)
            | CallRefusal::NoSuchContainer(_)
    )
}

fn registration(host: &Host) -> NodeRegistration {
    let exits = host
        .agent
        .containers()
        .filter_map(|(_, c)| report_of(&c.state))
        .take(ENDS_AT_ONCE)
        .cloned()
        .collect();
    NodeRegistration {
        offers: host.offers.clone(),
        enforcer: EnforcerKind::Cgroup2,
        url: format!("http://{}:1", host.id),
        version: "simulated".into(),
        traits: host.traits.clone(),
        health: NodeHealth::Healthy,
        seen: host
            .agent
            .containers()
            .filter_map(|(id, c)| seen(id, c))
            .collect(),
        exits,
        serial: host.link.serial,
        unattributed: Unattributed::default(),
    }
}

fn report(host: &Host, epoch: Epoch, scope: &ReportScope) -> NodeHeartbeat {
    let seen = match scope {
        ReportScope::All => host
            .agent
            .containers()
            .filter_map(|(id, c)| seen(id, c))
            .collect(),
        ReportScope::Changed(ids) => ids
            .iter()
            .filter_map(|id| seen(id, host.agent.get(id)?))
            .collect(),
    };
    let exits = host
        .agent
        .unreceived()
        .take(ENDS_AT_ONCE)
        .cloned()
        .collect();
    NodeHeartbeat {
        epoch,
        seen,
        exits,
        host_used: Bytes::ZERO,
        health: NodeHealth::Healthy,
        unattributed: Unattributed::default(),
    }
}

fn seen(
    id: &ContainerId,
    c: &agent::AgentContainer,
) -> Option<headroom_rm_core::ReportedContainer> {
    let phase = match &c.state {
        LifecyclePhase::New | LifecyclePhase::Preparing { .. } => Seen::Preparing,
        LifecyclePhase::Starting { .. } => Seen::Starting,
        LifecyclePhase::Running => Seen::Running,
        LifecyclePhase::Stopping { .. } => Seen::Stopping,
        LifecyclePhase::Exited { .. } => Seen::Exited,
        LifecyclePhase::Acked => return None,
    };
    Some(headroom_rm_core::ReportedContainer {
        container: id.clone(),
        request: c.order.request.clone(),
        attempt: c.order.attempt,
        resource: c.order.resource.clone(),
        version: c.order.version,
        refused: c.sizing.refused.as_ref().map(|r| RefusedSize {
            version: r.size.version,
            why: r.why.clone(),
        }),
        phase,
        used: None,
        granted: c.order.granted,
    })
}

fn report_of(state: &LifecyclePhase) -> Option<&ExitReport> {
    match state {
        LifecyclePhase::Exited { report, .. } => Some(report),
        LifecyclePhase::New
        | LifecyclePhase::Preparing { .. }
        | LifecyclePhase::Starting { .. }
        | LifecyclePhase::Running => None,
        LifecyclePhase::Stopping { .. } | LifecyclePhase::Acked => None,
    }
}

//! A node agent's connection to the resource manager: carries out the requests of its real link
//! over the simulated network, with the conversions of the real messages.

use headroom_client::ClientError;
use headroom_node_core::agent;
use headroom_node_core::report_schedule::ReportScope;
use headroom_nodeagent::node_link::{NodeLink, NodeLinkNews, NodeLinkRequest};
use headroom_nodeagent::node_link_event::{NodeLinkEvent, RegistrationNumber};
use headroom_nodeagent::node_messages::{self, MeasuredUse};
use headroom_rm_core::{CallAnswer, ClusterCall};
use headroom_rm_server::{from_wire, to_wire};
use headroom_types::{Bytes, ContainerId, EnforcerKind, Epoch, NodeId, Tick};
use headroom_wire::v1::nodes::{
    NodeHealthState, NodeRegistered, NodeReport, NodeReportReply, RegisterNode,
};

use super::call_result::{MANAGER_URL, SimCallResult, unexpected};
use super::host::{Host, SimHostEvent};
use super::manager::SimManagerInput;
use super::network::{Caller, Line};
use super::{Simulation, SimulationEvent as Any};

/// The connection of one agent.
#[derive(Debug)]
pub(super) struct SimNodeLink {
    link: NodeLink,
    /// Number of the registration in progress.
    registration: Option<u64>,
    /// Number of the last report.
    report: Option<(u64, RegistrationNumber)>,
    stream: Option<SimDesiredStream>,
}

/// A stream of desired state that the link reads.
#[derive(Debug)]
struct SimDesiredStream {
    generation: RegistrationNumber,
    /// Its number in the simulated network.
    line: u64,
    /// The call that opens it, until it is answered or the first line arrives.
    opening: Option<u64>,
}

impl Default for SimNodeLink {
    fn default() -> Self {
        SimNodeLink {
            link: NodeLink::new(MANAGER_URL.to_owned()),
            registration: None,
            report: None,
            stream: None,
        }
    }
}

impl SimNodeLink {
    pub(super) fn changed(&mut self, id: &ContainerId) {
        self.link.changed(id);
    }
    pub(super) fn ended(&mut self, id: &ContainerId) {
        self.link.ended(id);
    }
    /// The number of its stream in the simulated network.
    pub(super) fn stream_line(&self) -> Option<u64> {
        self.stream.as_ref().map(|stream| stream.line)
    }

    /// The event of the link from the result of a call; `None` if the link waits for no result.
    fn event_of(&mut self, number: u64, heard: SimCallResult) -> Option<NodeLinkEvent> {
        if self.registration == Some(number) {
            self.registration = None;
            return Some(NodeLinkEvent::Registered(
                heard.answer().and_then(registered),
            ));
        }
        if let Some((_, generation)) = self.report.take_if(|(waited, _)| *waited == number) {
            let answer = heard.answer().and_then(reported);
            return Some(NodeLinkEvent::Reported(generation, answer));
        }
        let stream = self.stream.as_mut().filter(|s| s.opening == Some(number))?;
        stream.opening = None;
        let generation = stream.generation;
        let error = heard.stream_error()?;
        self.stream = None;
        Some(NodeLinkEvent::StreamEnded(generation, Some(error)))
    }

    /// The event of a line; `None` if the link does not read that stream.
    fn line_event(&mut self, line: u64, text: Line) -> Option<NodeLinkEvent> {
        let Line::Desired { epoch, full, wants } = text else {
            return None;
        };
        let stream = self.stream.as_mut().filter(|s| s.line == line)?;
        stream.opening = None;
        let desired = to_wire::desired(epoch, full, wants);
        Some(NodeLinkEvent::Line(stream.generation, desired))
    }
}

fn registered((answer, epoch): (CallAnswer, Epoch)) -> Result<NodeRegistered, ClientError> {
    let CallAnswer::Node { acked } = answer else {
        return Err(unexpected());
    };
    Ok(NodeRegistered {
        epoch,
        acked,
        heartbeat_ms: None,
    })
}

fn reported((answer, _): (CallAnswer, Epoch)) -> Result<NodeReportReply, ClientError> {
    let CallAnswer::Received { received } = answer else {
        return Err(unexpected());
    };
    Ok(NodeReportReply {
        received,
        heartbeat_ms: None,
    })
}

impl Simulation {
    /// Sends due messages and schedules the next wake-up.
    pub(super) fn host_tends(&mut self, node: &NodeId) {
        let now = self.now;
        let wake = loop {
            let Some(host) = self.hosts.get_mut(node).filter(|h| h.up) else {
                return;
            };
            match host.link.link.due(Tick(now)) {
                NodeLinkRequest::Registration => self.link_registers(node),
                NodeLinkRequest::Stream(generation, epoch) => {
                    self.link_listens(node, generation, epoch)
                }
                NodeLinkRequest::Report(generation, epoch, scope) => {
                    self.link_reports(node, generation, epoch, &scope)
                }
                NodeLinkRequest::Nothing(at) => {
                    let at = at.map_or(now + 1_000, |at| at.0.min(now + 1_000));
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

    fn link_registers(&mut self, node: &NodeId) {
        let wall = self.wall();
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let body = registration(host);
        let body = host.link.link.numbered(body, wall);
        let caller = Caller::Host(node.clone(), host.life);
        let call = from_wire::register_node(node.clone(), body);
        let number = self.call_converted(caller, call);
        if let Some(host) = self.hosts.get_mut(node) {
            host.link.registration = number;
        }
    }

    fn link_reports(
        &mut self,
        node: &NodeId,
        generation: RegistrationNumber,
        epoch: Epoch,
        scope: &ReportScope,
    ) {
        let Some(host) = self.hosts.get(node) else {
            return;
        };
        let caller = Caller::Host(node.clone(), host.life);
        let body = report(host, epoch, scope);
        let call = from_wire::report(node, body).map(|report| ClusterCall::Report {
            node: node.clone(),
            report,
        });
        let number = self.call_converted(caller, call);
        if let Some(host) = self.hosts.get_mut(node) {
            host.link.report = number.map(|number| (number, generation));
        }
    }

    fn link_listens(&mut self, node: &NodeId, generation: RegistrationNumber, epoch: Epoch) {
        let Some(life) = self.hosts.get(node).map(|host| host.life) else {
            return;
        };
        let line = self.number();
        let opening = self.call(
            Caller::Host(node.clone(), life),
            SimManagerInput::WatchNode {
                node: node.clone(),
                epoch,
                stream: line,
                life,
            },
        );
        if let Some(host) = self.hosts.get_mut(node) {
            host.link.stream = Some(SimDesiredStream {
                generation,
                line,
                opening: Some(opening),
            });
        }
    }

    /// Handles the result of a call.
    pub(super) fn link_hears(&mut self, node: &NodeId, number: u64, heard: SimCallResult) {
        let host = self.hosts.get_mut(node);
        if let Some(event) = host.and_then(|host| host.link.event_of(number, heard)) {
            self.link_takes(node, event);
        }
    }

    pub(super) fn link_line(&mut self, node: &NodeId, line: u64, text: Line) {
        if !self.is_open(line) {
            return;
        }
        let host = self.hosts.get_mut(node);
        if let Some(event) = host.and_then(|host| host.link.line_event(line, text)) {
            self.link_takes(node, event);
        }
    }

    pub(super) fn link_stream_ended(&mut self, node: &NodeId, line: u64) {
        let host = self.hosts.get_mut(node);
        let ended = host.and_then(|host| host.link.stream.take_if(|stream| stream.line == line));
        if let Some(stream) = ended {
            self.link_takes(node, NodeLinkEvent::StreamEnded(stream.generation, None));
        }
    }

    fn link_takes(&mut self, node: &NodeId, event: NodeLinkEvent) {
        let now = Tick(self.now);
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let news = host.link.link.take(now, event);
        if !host.link.link.has_stream() {
            host.link.stream = None;
        }
        match news {
            NodeLinkNews::Peer(NodeRegistered {
                epoch: _,
                acked,
                heartbeat_ms: _,
            }) => {
                self.agent_steps(node, agent::AgentEvent::NewPeer { acked });
                self.link_reports_the_rest(node);
            }
            NodeLinkNews::Desired(desired) => self.agent_wanted(node, desired),
            NodeLinkNews::Received(received) => {
                let progress = !received.is_empty();
                self.agent_steps(node, agent::AgentEvent::Received(received));
                if progress {
                    self.link_reports_the_rest(node);
                }
            }
            NodeLinkNews::Nothing => {}
        }
    }

    fn link_reports_the_rest(&mut self, node: &NodeId) {
        if let Some(host) = self.hosts.get_mut(node) {
            host.link.link.send_remaining_reports(&host.agent);
        }
    }
}

fn registration(host: &Host) -> RegisterNode {
    RegisterNode {
        offers: host.offers.clone(),
        enforcer: EnforcerKind::Cgroup2,
        url: format!("http://{}:1", host.id),
        health: NodeHealthState::Healthy,
        version: "simulated".into(),
        traits: to_wire::traits(&host.traits),
        containers: node_messages::observed_in(&host.agent, &ReportScope::All, |_| {
            MeasuredUse::default()
        }),
        exits: node_messages::kept_exits(&host.agent),
        key: None,
        serial: 0,
        unattributed: Bytes::ZERO,
        left_by: Vec::new(),
    }
}

fn report(host: &Host, epoch: Epoch, scope: &ReportScope) -> NodeReport {
    NodeReport {
        epoch,
        containers: node_messages::observed_in(&host.agent, scope, |_| MeasuredUse::default()),
        exits: node_messages::unreceived_exits(&host.agent),
        host_used: Bytes::ZERO,
        health: NodeHealthState::Healthy,
        reload: None,
        unattributed: Bytes::ZERO,
        left_by: Vec::new(),
    }
}

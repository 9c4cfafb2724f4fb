//! A node agent's connection to the resource manager, with the core's own schedule of reports.

use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_node_core::agent;
use headroom_node_core::container::State;
use headroom_node_core::sync::{Due, Scope, Sync};
use headroom_rm_core::{Answer, Call, Health, Phase as Seen, Refusal, RefusedSize, Registration, Report};
use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, ContainerId, EnforcerKind, Epoch, ExitReport, NodeId, Tick};

use super::host::{Host, Thing};
use super::manager::Input;
use super::wire::{Caller, Heard, Line};
use super::{Thing as Any, World};

/// Interval of registration attempts of a decommissioned node. Milliseconds.
const DISMISSED: u64 = 30_000;
/// Maximum number of exit reports in one message.
const ENDS_AT_ONCE: usize = 32;

#[derive(Debug)]
enum Phase {
    Down { retry_at: u64 },
    Registering { number: u64 },
    Up { epoch: Epoch, sync: Sync, report: Option<u64>, stream: Stream },
}

#[derive(Debug)]
enum Stream {
    Closed { retry_at: u64 },
    Opening { number: u64, stream: u64 },
    Open { stream: u64 },
}

/// The connection of one agent.
#[derive(Debug)]
pub(super) struct Link {
    phase: Phase,
    backoff: Backoff,
    /// Serial number of the latest registration.
    serial: u64,
}

impl Default for Link {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        Link { phase: Phase::Down { retry_at: 0 }, backoff, serial: 0 }
    }
}

impl Link {
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
            Phase::Up { stream: Stream::Open { stream } | Stream::Opening { stream, .. }, .. } => Some(*stream),
            Phase::Up { stream: Stream::Closed { .. }, .. } | Phase::Down { .. } | Phase::Registering { .. } => None,
        }
    }
    fn wait(&mut self) -> u64 {
        u64::try_from(self.backoff.wait().as_millis()).unwrap_or(0)
    }
}

enum Wish {
    Register,
    Watch(Epoch),
    Report(Epoch, Scope),
    Nothing(u64),
}

impl Link {
    fn due(&mut self, now: u64) -> Wish {
        match &mut self.phase {
            Phase::Registering { .. } => Wish::Nothing(now + 1_000),
            Phase::Down { retry_at } if now < *retry_at => Wish::Nothing(*retry_at),
            Phase::Down { .. } => Wish::Register,
            Phase::Up { epoch, sync, stream, .. } => {
                let again = match stream {
                    Stream::Closed { retry_at } if now < *retry_at => *retry_at,
                    Stream::Closed { .. } => return Wish::Watch(*epoch),
                    Stream::Opening { .. } | Stream::Open { .. } => now + 1_000,
                };
                match sync.due(Tick(now)) {
                    Due::Send(scope) => Wish::Report(*epoch, scope),
                    Due::At(at) => Wish::Nothing(at.0.min(again)),
                    Due::Wait => Wish::Nothing(again),
                }
            }
        }
    }
}

impl World {
    /// Sends due messages and schedules the next wake-up.
    pub(super) fn host_tends(&mut self, node: &NodeId) {
        let now = self.now;
        let wake = loop {
            let Some(host) = self.hosts.get_mut(node).filter(|h| h.up) else { return };
            let caller = Caller::Host(node.clone(), host.life);
            let life = host.life;
            match host.link.due(now) {
                Wish::Register => {
                    host.link.serial = host.link.serial.saturating_add(1).max(now);
                    let call = Call::RegisterNode { node: node.clone(), facts: Box::new(registration(host)) };
                    let number = self.call(caller, Input::Call(Box::new(call)));
                    self.link_of(node, |link| link.phase = Phase::Registering { number });
                }
                Wish::Watch(epoch) => {
                    let stream = self.number();
                    let number = self.call(caller, Input::WatchNode { node: node.clone(), epoch, stream, life });
                    self.link_of(node, |link| {
                        if let Phase::Up { stream: slot, .. } = &mut link.phase {
                            *slot = Stream::Opening { number, stream };
                        }
                    });
                }
                Wish::Report(epoch, scope) => {
                    let report = Box::new(report(host, epoch, &scope));
                    let number = self.call(caller, Input::Call(Box::new(Call::Report { node: node.clone(), report })));
                    self.link_of(node, |link| {
                        if let Phase::Up { report, .. } = &mut link.phase {
                            *report = Some(number);
                        }
                    });
                }
                Wish::Nothing(at) => break host.agent.deadline().map_or(at, |d| d.0.min(at)).max(now + 1),
            }
        };
        if let Some(host) = self.hosts.get_mut(node)
            && host.wake.is_none_or(|w| wake < w)
        {
            host.wake = Some(wake);
            let life = host.life;
            self.at(wake, Any::Host(node.clone(), Thing::Wake { life }));
        }
    }

    fn link_of(&mut self, node: &NodeId, change: impl FnOnce(&mut Link)) {
        if let Some(host) = self.hosts.get_mut(node) {
            change(&mut host.link);
        }
    }

    pub(super) fn link_hears(&mut self, node: &NodeId, number: u64, heard: Heard) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else { return };
        let link = &mut host.link;
        match &mut link.phase {
            Phase::Registering { number: waited } if *waited == number => match heard {
                Heard::Answer(answer, epoch) => {
                    let Answer::Node { acked } = *answer else { return };
                    link.backoff.reset();
                    let (sync, stream) = (Sync::registered(Tick(now)), Stream::Closed { retry_at: now });
                    link.phase = Phase::Up { epoch, sync, report: None, stream };
                    self.agent_steps(node, agent::Event::NewPeer { acked });
                    self.tell_the_rest(node);
                }
                Heard::Refused(Refusal::Overtaken { latest, .. }) => {
                    link.serial = link.serial.max(latest);
                    link.phase = Phase::Down { retry_at: now + link.wait() };
                }
                Heard::Refused(Refusal::Decommissioned(_)) => link.phase = Phase::Down { retry_at: now + DISMISSED },
                Heard::Listening | Heard::Refused(_) | Heard::TooOld | Heard::Lost => {
                    let wait = link.wait();
                    link.phase = Phase::Down { retry_at: now + wait };
                }
            },
            Phase::Up { report: Some(waited), .. } if *waited == number => self.link_reported(node, heard),
            Phase::Up { stream: slot @ Stream::Opening { .. }, .. } => {
                let Stream::Opening { number: waited, stream } = *slot else { return };
                if waited == number {
                    match heard {
                        Heard::Listening => *slot = Stream::Open { stream },
                        Heard::Refused(refusal) if is_stranger(&refusal) => link.phase = Phase::Down { retry_at: now },
                        Heard::Answer(..) | Heard::Refused(_) | Heard::TooOld | Heard::Lost => {
                            let wait = link.backoff.wait().as_millis();
                            *slot = Stream::Closed { retry_at: now + u64::try_from(wait).unwrap_or(0) };
                        }
                    }
                }
            }
            Phase::Down { .. } | Phase::Registering { .. } | Phase::Up { .. } => {}
        }
    }

    fn link_reported(&mut self, node: &NodeId, heard: Heard) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else { return };
        let link = &mut host.link;
        let Phase::Up { sync, report, .. } = &mut link.phase else { return };
        *report = None;
        match heard {
            Heard::Answer(answer, _) => {
                let Answer::Received { received } = *answer else { return };
                link.backoff.reset();
                sync.answered();
                let progress = !received.is_empty();
                self.agent_steps(node, agent::Event::Received(received));
                if progress {
                    self.tell_the_rest(node);
                }
            }
            Heard::Refused(refusal) if is_stranger(&refusal) => link.phase = Phase::Down { retry_at: now },
            Heard::Listening | Heard::Refused(_) | Heard::TooOld | Heard::Lost => {
                sync.failed(Tick(now), link.backoff.wait());
            }
        }
    }

    fn tell_the_rest(&mut self, node: &NodeId) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        if let Some(id) = host.agent.unreceived().next().map(|report| report.container.clone()) {
            host.link.ended(&id);
        }
    }

    pub(super) fn link_line(&mut self, node: &NodeId, number: u64, line: Line) {
        let now = self.now;
        let open = self.is_open(number);
        let Some(host) = self.hosts.get_mut(node) else { return };
        let link = &mut host.link;
        let Phase::Up { epoch, stream, .. } = &mut link.phase else { return };
        let mine = match stream {
            Stream::Open { stream } | Stream::Opening { stream, .. } => *stream == number,
            Stream::Closed { .. } => false,
        };
        let Line::Desired { epoch: told, full, wants } = line else { return };
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
                    *stream = Stream::Closed { retry_at: now + wait };
                }
            }
        });
    }
}

/// True if the resource manager does not know this node or epoch.
fn is_stranger(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::StaleEpoch { .. } | Refusal::NodeNotRegistered(_) | Refusal::NoSuchApp(_) | Refusal::NoSuchContainer(_)
    )
}

fn registration(host: &Host) -> Registration {
    let exits = host.agent.containers().filter_map(|(_, c)| report_of(&c.state)).take(ENDS_AT_ONCE).cloned().collect();
    Registration {
        offers: host.offers.clone(),
        enforcer: EnforcerKind::Cgroup2,
        url: format!("http://{}:1", host.id),
        version: "simulated".into(),
        traits: host.traits.clone(),
        health: Health::Healthy,
        seen: host.agent.containers().filter_map(|(id, c)| seen(id, c)).collect(),
        exits,
        serial: host.link.serial,
        unattributed: Unattributed::default(),
    }
}

fn report(host: &Host, epoch: Epoch, scope: &Scope) -> Report {
    let seen = match scope {
        Scope::All => host.agent.containers().filter_map(|(id, c)| seen(id, c)).collect(),
        Scope::Changed(ids) => ids.iter().filter_map(|id| seen(id, host.agent.get(id)?)).collect(),
    };
    let exits = host.agent.unreceived().take(ENDS_AT_ONCE).cloned().collect();
    Report { epoch, seen, exits, host_used: Bytes::ZERO, health: Health::Healthy, unattributed: Unattributed::default() }
}

fn seen(id: &ContainerId, c: &agent::Container) -> Option<headroom_rm_core::Seen> {
    let phase = match &c.state {
        State::New | State::Preparing { .. } => Seen::Preparing,
        State::Starting { .. } => Seen::Starting,
        State::Running => Seen::Running,
        State::Stopping { .. } => Seen::Stopping,
        State::Exited { .. } => Seen::Exited,
        State::Acked => return None,
    };
    Some(headroom_rm_core::Seen {
        container: id.clone(),
        request: c.order.request.clone(),
        attempt: c.order.attempt,
        resource: c.order.resource.clone(),
        version: c.order.version,
        refused: c.sizing.refused.as_ref().map(|r| RefusedSize { version: r.size.version, why: r.why.clone() }),
        phase,
        used: None,
        granted: c.order.granted,
    })
}

fn report_of(state: &State) -> Option<&ExitReport> {
    match state {
        State::Exited { report, .. } => Some(report),
        State::New | State::Preparing { .. } | State::Starting { .. } | State::Running => None,
        State::Stopping { .. } | State::Acked => None,
    }
}

//! Calls, streams and connections: their delays and losses.
//!
//! A call is one request and one response. Either can be lost; then the caller gets nothing until
//! its timeout. A stream or a connection carries messages in order until it breaks.

use std::collections::BTreeMap;

use headroom_rm_core::{ClusterCall, ContainerCommand, MasterUpdate};
use headroom_types::{ContainerId, Epoch, NodeId};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::task::{FromExecutor, ToExecutor};

use super::call_result::{CALL_TIMEOUT, SimCallResult};
use super::manager::SimManagerInput;
use super::{Simulation, SimulationEvent, executor, host, manager, master, operator, tenant};

/// Longest time until a reader detects a broken silent stream. Milliseconds.
const SILENCE: u64 = 20_000;

/// The sender of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caller {
    Host(NodeId, u64),
    Process(u64),
    Client(usize),
    Tenant(usize),
    Operator,
    /// A duplicate of a call, whose response is dropped.
    Nobody,
}

/// A line of a stream.
#[derive(Clone, Debug)]
pub(super) enum Line {
    Desired {
        epoch: Epoch,
        full: bool,
        wants: Vec<(ContainerId, ContainerCommand)>,
    },
    Updates {
        epoch: Epoch,
        updates: Vec<MasterUpdate>,
    },
}

/// The reader of a stream.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Host(NodeId, u64),
    Process(u64),
    Tenant(usize),
}

#[derive(Debug)]
struct Stream {
    manager: usize,
    reader: Reader,
    ready: u64,
}

/// A connection between an executor and a master.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) container: ContainerId,
    pub(super) pid: u64,
    up_ready: u64,
    down_ready: u64,
}

/// All open streams and connections.
#[derive(Debug, Default)]
pub(super) struct Wires {
    streams: BTreeMap<u64, Stream>,
    pub(super) connections: BTreeMap<u64, Connection>,
}

impl Wires {
    /// Numbers of the open streams of a manager.
    pub(super) fn streams_of_manager(&self, manager: usize) -> Vec<u64> {
        let streams = self.streams.iter();
        streams
            .filter(|(_, s)| s.manager == manager)
            .map(|(n, _)| *n)
            .collect()
    }
}

impl Simulation {
    pub(super) fn delay(&mut self) -> u64 {
        let weather = &self.scenario.weather;
        let (low, high) = weather.delay_ms;
        let slow = weather.slow;
        if !self.is_calm() && self.chance.per_mille(slow) {
            return self.chance.between(high, 6_000);
        }
        self.chance.between(low, high)
    }
    pub(super) fn is_lost(&mut self) -> bool {
        let lost = self.scenario.weather.lost;
        !self.is_calm() && self.chance.per_mille(lost)
    }
    /// The host of a caller; `None` for callers that are never partitioned.
    pub(super) fn host_of(&self, caller: &Caller) -> Option<NodeId> {
        match caller {
            Caller::Host(node, _) => Some(node.clone()),
            Caller::Process(pid) => self.processes.get(pid).and_then(|p| p.node.clone()),
            Caller::Client(_) | Caller::Tenant(_) | Caller::Operator | Caller::Nobody => None,
        }
    }
    pub(super) fn is_cut(&self, node: Option<&NodeId>) -> bool {
        node.and_then(|n| self.hosts.get(n)).is_some_and(|h| h.cut)
    }

    /// Calls the resource manager. The response contains the returned number.
    pub(super) fn call(&mut self, caller: Caller, input: SimManagerInput) -> u64 {
        let number = self.number();
        if self.managers.len() > 1 {
            self.search_leader(caller, number, input);
            return number;
        }
        let there = self.delay();
        let node = self.host_of(&caller);
        self.reply_after(CALL_TIMEOUT, caller.clone(), number, SimCallResult::Lost);
        if self.is_cut(node.as_ref()) || self.is_lost() {
            return number;
        }
        // Serial numbers of registrations are known to one incarnation of the resource manager, and
        // so is their connection. No incarnation receives a registration that was sent to an
        // earlier one.
        let registration = matches!(&input, SimManagerInput::Call(call) if matches!(**call, ClusterCall::RegisterNode { .. }));
        let life = registration.then_some(self.managers[0].life);
        let twice = self.scenario.weather.twice;
        if !self.is_calm() && self.chance.per_mille(twice) {
            let again = there + self.chance.between(1, 4_000);
            let (caller, input) = (Caller::Nobody, Box::new(input.clone()));
            self.later(
                again,
                SimulationEvent::Manager(
                    0,
                    manager::SimManagerEvent::Call {
                        caller,
                        number: 0,
                        input,
                        life,
                    },
                ),
            );
        }
        self.later(
            there,
            SimulationEvent::Manager(
                0,
                manager::SimManagerEvent::Call {
                    caller,
                    number,
                    input: Box::new(input),
                    life,
                },
            ),
        );
        number
    }

    /// Calls the resource manager with a converted message. A message that it would refuse as not
    /// valid is a violation; then there is no number.
    pub(super) fn call_converted(
        &mut self,
        caller: Caller,
        call: Result<ClusterCall, ProblemDetails>,
    ) -> Option<u64> {
        match call {
            Ok(call) => Some(self.call(caller, SimManagerInput::Call(Box::new(call)))),
            Err(problem) => {
                self.oracle.fail(format!(
                    "{caller:?} sends a message that is not valid: {problem}"
                ));
                None
            }
        }
    }

    /// Sends the response to a call, unless it is lost.
    pub(super) fn reply(&mut self, caller: Caller, number: u64, heard: SimCallResult) {
        if self.managers.len() > 1 {
            return self.search_replies(number, heard);
        }
        let back = self.delay();
        let node = self.host_of(&caller);
        if self.is_cut(node.as_ref()) || self.is_lost() {
            return;
        }
        self.reply_after(back, caller, number, heard);
    }

    pub(super) fn reply_after(
        &mut self,
        after: u64,
        caller: Caller,
        number: u64,
        heard: SimCallResult,
    ) {
        let heard = Box::new(heard);
        let thing = match caller {
            Caller::Host(node, life) => SimulationEvent::Host(
                node,
                host::SimHostEvent::Heard {
                    life,
                    number,
                    heard,
                },
            ),
            Caller::Process(pid) => {
                SimulationEvent::Process(pid, master::SimMasterEvent::Heard { number, heard })
            }
            Caller::Client(job) => {
                SimulationEvent::Client(job, master::SimClientEvent::Heard { number, heard })
            }
            Caller::Tenant(n) => {
                SimulationEvent::Tenant(n, tenant::SimTenantEvent::Heard { number, heard })
            }
            Caller::Operator => {
                SimulationEvent::Operator(operator::SimOperatorEvent::Heard { number, heard })
            }
            Caller::Nobody => return,
        };
        self.later(after, thing);
    }

    /// Opens a stream of a manager with this number to `reader`.
    pub(super) fn open_stream(&mut self, manager: usize, number: u64, reader: Reader) {
        self.wires.streams.insert(
            number,
            Stream {
                manager,
                reader,
                ready: self.now,
            },
        );
    }

    /// Sends one line on a stream, in order.
    pub(super) fn send_line(&mut self, number: u64, line: Line) {
        let delay = self.delay();
        let Some(stream) = self.wires.streams.get_mut(&number) else {
            return;
        };
        let at = (self.now + delay).max(stream.ready);
        stream.ready = at;
        let line = Box::new(line);
        let thing = match &stream.reader {
            Reader::Host(node, life) => SimulationEvent::Host(
                node.clone(),
                host::SimHostEvent::Line {
                    life: *life,
                    stream: number,
                    line,
                },
            ),
            Reader::Process(pid) => SimulationEvent::Process(
                *pid,
                master::SimMasterEvent::Line {
                    stream: number,
                    line,
                },
            ),
            Reader::Tenant(n) => SimulationEvent::Tenant(
                *n,
                tenant::SimTenantEvent::Line {
                    stream: number,
                    line,
                },
            ),
        };
        self.at(at, thing);
    }
    pub(super) fn is_open(&self, stream: u64) -> bool {
        self.wires.streams.contains_key(&stream)
    }

    /// Breaks a stream; messages in flight are lost. The reader detects it later.
    pub(super) fn break_stream(&mut self, number: u64, quiet: bool) {
        let Some(stream) = self.wires.streams.remove(&number) else {
            return;
        };
        let after = if quiet {
            self.chance.between(1_000, SILENCE)
        } else {
            self.delay()
        };
        let thing = match stream.reader {
            Reader::Host(node, life) => SimulationEvent::Host(
                node,
                host::SimHostEvent::StreamEnded {
                    life,
                    stream: number,
                },
            ),
            Reader::Process(pid) => SimulationEvent::Process(
                pid,
                master::SimMasterEvent::StreamEnded { stream: number },
            ),
            Reader::Tenant(n) => {
                SimulationEvent::Tenant(n, tenant::SimTenantEvent::StreamEnded { stream: number })
            }
        };
        self.later(after, thing);
    }
    /// Numbers of the open streams, of one host or all.
    pub(super) fn streams_of(&self, node: Option<&NodeId>) -> Vec<u64> {
        let there = |reader: &Reader| match reader {
            Reader::Host(host, _) => Some(host.clone()),
            Reader::Process(pid) => self.processes.get(pid).and_then(|p| p.node.clone()),
            Reader::Tenant(_) => None,
        };
        let wanted = |s: &Stream| node.is_none_or(|n| there(&s.reader).as_ref() == Some(n));
        self.wires
            .streams
            .iter()
            .filter(|(_, s)| wanted(s))
            .map(|(n, _)| *n)
            .collect()
    }

    /// Opens a connection of an executor to the master with this process number.
    pub(super) fn open_connection(&mut self, container: &ContainerId, pid: u64) -> u64 {
        let number = self.number();
        let connection = Connection {
            container: container.clone(),
            pid,
            up_ready: self.now,
            down_ready: self.now,
        };
        self.wires.connections.insert(number, connection);
        number
    }
    pub(super) fn say_to_master(&mut self, line: u64, message: FromExecutor) {
        let delay = self.delay();
        let Some(c) = self.wires.connections.get_mut(&line) else {
            return;
        };
        let at = (self.now + delay).max(c.up_ready);
        c.up_ready = at;
        let (pid, container) = (c.pid, c.container.clone());
        self.at(
            at,
            SimulationEvent::Process(
                pid,
                master::SimMasterEvent::Said {
                    line,
                    container,
                    message: Box::new(message),
                },
            ),
        );
    }
    pub(super) fn say_to_executor(&mut self, line: u64, message: ToExecutor) {
        let delay = self.delay();
        let Some(c) = self.wires.connections.get_mut(&line) else {
            return;
        };
        let at = (self.now + delay).max(c.down_ready);
        c.down_ready = at;
        let container = c.container.clone();
        self.at(
            at,
            SimulationEvent::Executor(
                container,
                executor::SimExecutorEvent::Received {
                    line,
                    message: Box::new(message),
                },
            ),
        );
    }
    /// Breaks a connection; messages in flight are lost. Both sides detect it later.
    pub(super) fn break_connection(&mut self, line: u64, quiet: bool) {
        let Some(c) = self.wires.connections.remove(&line) else {
            return;
        };
        let (one, other) = if quiet {
            (
                self.chance.between(1_000, SILENCE),
                self.chance.between(1_000, SILENCE),
            )
        } else {
            (self.delay(), self.delay())
        };
        self.later(
            one,
            SimulationEvent::Process(
                c.pid,
                master::SimMasterEvent::LineDown {
                    line,
                    container: c.container.clone(),
                },
            ),
        );
        self.later(
            other,
            SimulationEvent::Executor(c.container, executor::SimExecutorEvent::LineDown { line }),
        );
    }
    /// Closes a connection after all sent messages have arrived.
    pub(super) fn close_connection(&mut self, line: u64) {
        let Some(c) = self.wires.connections.get(&line) else {
            return;
        };
        let (down, up) = (c.down_ready + 1, c.up_ready + 1);
        let (pid, container) = (c.pid, c.container.clone());
        self.at(
            up,
            SimulationEvent::Process(
                pid,
                master::SimMasterEvent::LineDown {
                    line,
                    container: container.clone(),
                },
            ),
        );
        self.at(
            down,
            SimulationEvent::Executor(container, executor::SimExecutorEvent::LineDown { line }),
        );
    }
    pub(super) fn connections_of(&self, wanted: impl Fn(&Connection) -> bool) -> Vec<u64> {
        self.wires
            .connections
            .iter()
            .filter(|(_, c)| wanted(c))
            .map(|(n, _)| *n)
            .collect()
    }
}

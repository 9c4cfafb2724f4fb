//! A host: the node agent's driver around its real core, the processes of its containers, and its
//! disk.
//!
//! The agent loses its state when it dies. Cells, which are the containers as seen by the kernel
//! and the disk, survive it.

use std::collections::{BTreeMap, BTreeSet};

use headroom_node_core::agent::{self, AdoptedState, AgentCore};
use headroom_node_core::container::{self, ContainerEffect, ContainerEnd, ContainerOrder};
use headroom_node_core::fence::{FenceTimeout, NodeFence};
use headroom_node_core::size::OrderedSize;
use headroom_node_core::{LaunchFailure, LaunchFailureKind, VerdictScope, classify};
use headroom_nodeagent::node_messages;
use headroom_rm_core::NodeProperties;
use headroom_types::exit::MemoryEvents;
use headroom_types::{
    Bytes, ContainerId, EnforcerKind, Epoch, Evidence, ExitReason, ExitReport, LaunchSpec, NodeId,
    Resource, StopCause, Tick, UnixMillis,
};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredContainer, DesiredStateLine, RunOrder,
};

use super::call_result::SimCallResult;
use super::network::Line;
use super::node_link::SimNodeLink;
use super::{Simulation, SimulationEvent as Any};
use crate::scenario::{PlantedBug, ScenarioCluster};

#[derive(Debug)]
pub(super) enum SimHostEvent {
    Start,
    /// A timer may be due.
    Wake {
        life: u64,
    },
    Heard {
        life: u64,
        number: u64,
        heard: Box<SimCallResult>,
    },
    Line {
        life: u64,
        stream: u64,
        line: Box<Line>,
    },
    StreamEnded {
        life: u64,
        stream: u64,
    },
    /// The agent has completed a job.
    Job {
        life: u64,
        id: ContainerId,
        job: Job,
    },
    /// A container changed its state.
    Fact {
        life: u64,
        id: ContainerId,
        event: Box<container::LifecycleEvent>,
    },
    /// The agent has changed a size or failed to.
    Resized {
        life: u64,
        id: ContainerId,
        version: u32,
        result: Result<(), String>,
    },
    /// A report reached a resource manager that never received it; see
    /// [`PlantedBug::EndForgotten`].
    Vanishes {
        life: u64,
        id: ContainerId,
    },
}

/// Work of the agent that takes time.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Prepare,
    Spawn,
    Stop(Vec<Step>),
    Resize(OrderedSize),
    Collect(ContainerEnd),
    Forget,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Record(StopCause),
    Terminate,
    Kill,
}

/// The end of a cell's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimProgramEnd {
    Code(i32),
    Killed,
    /// Killed by the kernel at the container's own limit.
    OutOfMemory,
}

/// A container as seen by the kernel and the disk.
#[derive(Debug)]
pub(super) struct HostContainer {
    pub(super) order: RunOrder,
    spawned: bool,
    pub(super) alive: bool,
    stop: Option<StopCause>,
    end: Option<SimProgramEnd>,
    report: Option<ExitReport>,
    forgotten: bool,
}

impl HostContainer {
    /// Memory use of its program before it exceeds its limit.
    fn used(&self) -> Bytes {
        self.order.resource.memory.mul_ratio(1, 2)
    }
}

/// A simulated host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) offers: Resource,
    pub(super) agent: AgentCore,
    pub(super) life: u64,
    pub(super) up: bool,
    /// It is partitioned from the network.
    pub(super) cut: bool,
    /// It was reset and is not back.
    off: bool,
    /// Its traits for placement.
    pub(super) traits: NodeProperties,
    /// Timeout of the self-fence.
    fence: FenceTimeout,
    /// It refuses all resizes.
    pub(super) rigid: bool,
    orders: BTreeMap<ContainerId, RunOrder>,
    /// The epochs of the leaders that ordered its containers.
    epochs: BTreeMap<ContainerId, Epoch>,
    pub(super) cells: BTreeMap<ContainerId, HostContainer>,
    pub(super) link: SimNodeLink,
    pub(super) wake: Option<u64>,
}

impl Host {
    pub(super) fn new(id: NodeId, offers: Resource, estate: &ScenarioCluster, n: usize) -> Self {
        let standing = estate.nodes.get(n).cloned().unwrap_or_default();
        Host {
            traits: standing.traits,
            fence: estate.fence,
            id,
            offers,
            agent: AgentCore::default(),
            life: 0,
            up: false,
            cut: false,
            off: false,
            rigid: standing.rigid,
            orders: BTreeMap::new(),
            epochs: BTreeMap::new(),
            cells: BTreeMap::new(),
            link: SimNodeLink::default(),
            wake: None,
        }
    }
    /// Number of leaders that ordered its live containers.
    fn leaders(&self) -> usize {
        let alive = self.cells.iter().filter(|(_, c)| c.alive);
        let epochs: BTreeSet<Epoch> = alive
            .filter_map(|(id, _)| self.epochs.get(id).copied())
            .collect();
        epochs.len()
    }
    /// Memory of all live containers.
    pub(super) fn lives(&self) -> Bytes {
        let alive = self.cells.values().filter(|c| c.alive);
        alive.fold(Bytes::ZERO, |sum, c| {
            sum.saturating_add(c.order.resource.memory)
        })
    }
}

impl Simulation {
    pub(super) fn host_thing(&mut self, node: &NodeId, thing: SimHostEvent) {
        if matches!(thing, SimHostEvent::Start) {
            return self.agent_starts(node);
        }
        let Some(host) = self.hosts.get_mut(node).filter(|h| h.up) else {
            return;
        };
        let current = host.life;
        match thing {
            SimHostEvent::Start => {}
            SimHostEvent::Wake { life } if life == current => {
                // An earlier timer replaced this one.
                if host.wake != Some(self.now) {
                    return;
                }
                host.wake = None;
                self.agent_steps(node, agent::AgentEvent::Time);
            }
            SimHostEvent::Heard {
                life,
                number,
                heard,
            } if life == current => self.link_hears(node, number, *heard),
            SimHostEvent::Line { life, stream, line } if life == current => {
                self.link_line(node, stream, *line)
            }
            SimHostEvent::StreamEnded { life, stream } if life == current => {
                self.link_stream_ended(node, stream)
            }
            SimHostEvent::Job { life, id, job } if life == current => {
                self.agent_does(node, id, job)
            }
            SimHostEvent::Fact { life, id, event } if life == current => {
                self.agent_steps(node, agent::AgentEvent::Container { id, event: *event });
            }
            SimHostEvent::Vanishes { life, id } if life == current => {
                let forget = agent::AgentEvent::Container {
                    id,
                    event: container::LifecycleEvent::Forget,
                };
                self.agent_steps(node, forget);
            }
            SimHostEvent::Resized {
                life,
                id,
                version,
                result,
            } if life == current => {
                self.agent_steps(
                    node,
                    agent::AgentEvent::Resized {
                        id,
                        version,
                        result,
                    },
                );
            }
            SimHostEvent::Wake { .. }
            | SimHostEvent::Heard { .. }
            | SimHostEvent::Line { .. }
            | SimHostEvent::StreamEnded { .. } => {}
            SimHostEvent::Job { .. }
            | SimHostEvent::Fact { .. }
            | SimHostEvent::Vanishes { .. }
            | SimHostEvent::Resized { .. } => {}
        }
        self.host_tends(node);
    }

    /// Starts the agent, which adopts the containers of an earlier one.
    fn agent_starts(&mut self, node: &NodeId) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node).filter(|h| !h.up) else {
            return;
        };
        host.up = true;
        host.off = false;
        host.link = SimNodeLink::default();
        host.agent = AgentCore::new(NodeFence::new(host.fence, Tick(now)));
        let kept = host.cells.iter().filter(|(_, c)| !c.forgotten);
        let found: Vec<(ContainerId, ContainerOrder, AdoptedState)> = kept
            .map(|(id, c)| {
                let order = node_messages::container_order(&c.order);
                (id.clone(), order, found(c))
            })
            .collect();
        host.orders = host
            .cells
            .iter()
            .filter(|(_, c)| !c.forgotten)
            .map(|(id, c)| (id.clone(), c.order.clone()))
            .collect();
        self.note(|| format!("{node} starts, {} found", found.len()));
        for (id, order, found) in found {
            self.agent_steps(node, agent::AgentEvent::Adopted { id, order, found });
        }
        self.host_tends(node);
    }

    pub(super) fn agent_dies(&mut self, node: &NodeId, down_ms: u64) {
        let Some(host) = self.hosts.get_mut(node).filter(|h| h.up) else {
            return;
        };
        host.up = false;
        host.life += 1;
        host.wake = None;
        host.agent = AgentCore::default();
        self.later(down_ms, Any::Host(node.clone(), SimHostEvent::Start));
        // Only the agent's own streams break; a master on the same host continues.
        let mine: Vec<u64> = self
            .hosts
            .get(node)
            .and_then(|h| h.link.stream_line())
            .into_iter()
            .collect();
        mine.into_iter()
            .for_each(|stream| self.break_stream(stream, false));
    }

    pub(super) fn host_resets(&mut self, node: &NodeId, down_ms: u64) {
        let Some(host) = self.hosts.get_mut(node).filter(|h| !h.off) else {
            return;
        };
        host.off = true;
        let lived: Vec<ContainerId> = host
            .cells
            .iter()
            .filter(|(_, c)| c.alive)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &lived {
            if let Some(cell) = host.cells.get_mut(id) {
                cell.alive = false;
            }
        }
        let was_up = host.up;
        if was_up {
            self.agent_dies(node, down_ms);
        }
        lived.iter().for_each(|id| self.program_gone(id));
    }

    pub(super) fn agent_steps(&mut self, node: &NodeId, event: agent::AgentEvent) {
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let outcome = host.agent.step(Tick(self.now), event);
        if let Some(silence) = outcome.fenced {
            self.diary
                .borrow_mut()
                .note(self.now, &format!("{node} fences itself after {silence:?}"));
        }
        if let Some((id, illegal)) = outcome.refused.first() {
            self.oracle
                .fail(format!("illegal on {node}, {id}: {illegal}"));
        }
        let mut actions = outcome.actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            let mut steps: Vec<Step> = step_of(&action.what).into_iter().collect();
            while let Some(next) = actions
                .next_if(|n| n.id == action.id && !steps.is_empty() && step_of(&n.what).is_some())
            {
                steps.extend(step_of(&next.what));
            }
            if steps.is_empty() {
                self.agent_acts(node, action.id, action.what);
            } else {
                self.agent_job(node, action.id, Job::Stop(steps));
            }
        }
    }

    fn agent_acts(&mut self, node: &NodeId, id: ContainerId, what: ContainerEffect) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        match what {
            ContainerEffect::Prepare => self.agent_job(node, id, Job::Prepare),
            ContainerEffect::Spawn => self.agent_job(node, id, Job::Spawn),
            ContainerEffect::Collect(end) => self.agent_job(node, id, Job::Collect(end)),
            ContainerEffect::Resize(size) => self.agent_job(node, id, Job::Resize(size)),
            ContainerEffect::Changed => host.link.changed(&id),
            ContainerEffect::ReportEnd => {
                host.link.ended(&id);
                if self.plant == PlantedBug::EndForgotten && self.chance.percent(10) {
                    let life = self.hosts.get(node).map_or(0, |h| h.life);
                    self.at(
                        now,
                        Any::Host(node.clone(), SimHostEvent::Vanishes { life, id }),
                    );
                }
            }
            ContainerEffect::Forget => self.agent_job(node, id, Job::Forget),
            // The simulation fetches no files.
            ContainerEffect::Abandon
            | ContainerEffect::RecordStop(_)
            | ContainerEffect::Terminate
            | ContainerEffect::Kill => {}
        }
    }

    fn agent_job(&mut self, node: &NodeId, id: ContainerId, job: Job) {
        let takes = self.chance.between(1, 30);
        let life = self.hosts.get(node).map_or(0, |h| h.life);
        self.later(
            takes,
            Any::Host(node.clone(), SimHostEvent::Job { life, id, job }),
        );
    }

    /// Completes a job.
    fn agent_does(&mut self, node: &NodeId, id: ContainerId, job: Job) {
        match job {
            Job::Prepare => self.agent_prepares(node, id),
            Job::Spawn => self.agent_spawns(node, id),
            Job::Stop(steps) => steps
                .into_iter()
                .for_each(|step| self.agent_stops(node, &id, step)),
            Job::Resize(size) => self.agent_resizes(node, &id, size),
            Job::Collect(end) => self.agent_collects(node, &id, &end),
            Job::Forget => {
                if let Some(cell) = self.hosts.get_mut(node).and_then(|h| h.cells.get_mut(&id)) {
                    cell.forgotten = true;
                }
            }
        }
    }

    fn agent_prepares(&mut self, node: &NodeId, id: ContainerId) {
        let fails = !self.is_calm() && self.chance.per_mille(self.scenario.weather.launch_fails);
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let Some(order) = host.orders.get(&id).cloned() else {
            return;
        };
        let new = HostContainer {
            order,
            spawned: false,
            alive: false,
            stop: None,
            end: None,
            report: None,
            forgotten: false,
        };
        host.cells.entry(id.clone()).or_insert(new);
        let event = if fails {
            container::LifecycleEvent::Failed(LaunchFailure::new(
                LaunchFailureKind::Cgroup,
                "no cgroup",
            ))
        } else {
            container::LifecycleEvent::Prepared
        };
        self.agent_steps(node, agent::AgentEvent::Container { id, event });
    }

    fn agent_spawns(&mut self, node: &NodeId, id: ContainerId) {
        let Some(cell) = self.hosts.get_mut(node).and_then(|h| h.cells.get_mut(&id)) else {
            return;
        };
        (cell.spawned, cell.alive) = (true, true);
        let order = cell.order.clone();
        self.note(|| format!("{node} launches {id}"));
        if let Some(host) = self.hosts.get(node) {
            self.oracle
                .launched(&id, &order, host.lives(), &host.id, &host.offers);
            if self.managers.len() > 1 && host.leaders() > 1 {
                let (lives, offers) = (host.lives(), &host.offers);
                self.oracle.ordered_by_several(node, lives, offers);
            }
        }
        let takes = self.chance.between(1, 40);
        let life = self.hosts.get(node).map_or(0, |h| h.life);
        let event = Box::new(container::LifecycleEvent::Started {
            now: Tick(self.now + takes),
        });
        self.later(
            takes,
            Any::Host(
                node.clone(),
                SimHostEvent::Fact {
                    life,
                    id: id.clone(),
                    event,
                },
            ),
        );
        self.program_starts(node, &id, &order);
    }

    /// Changes the limit now. The result arrives later, or never if the agent dies meanwhile.
    fn agent_resizes(&mut self, node: &NodeId, id: &ContainerId, size: OrderedSize) {
        let takes = self.chance.between(1, 20);
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let (life, rigid) = (host.life, host.rigid);
        let Some(cell) = host.cells.get_mut(id) else {
            return;
        };
        let version = size.version;
        let used = cell.used();
        let result = if rigid || !cell.alive {
            Err("this node changes no size".into())
        } else if size.resource.memory < used {
            Err(format!(
                "a limit of {} is below the {used} in use",
                size.resource.memory
            ))
        } else {
            (cell.order.version, cell.order.resource) = (version, size.resource);
            Ok(())
        };
        if result.is_ok() {
            let (lives, offers) = (host.lives(), host.offers.clone());
            self.oracle.lives(node, lives, &offers);
        }
        self.note(|| format!("{node} resizes {id} to version {version}: {result:?}"));
        self.later(
            takes,
            Any::Host(
                node.clone(),
                SimHostEvent::Resized {
                    life,
                    id: id.clone(),
                    version,
                    result,
                },
            ),
        );
    }

    fn agent_stops(&mut self, node: &NodeId, id: &ContainerId, step: Step) {
        let Some(cell) = self.hosts.get_mut(node).and_then(|h| h.cells.get_mut(id)) else {
            return;
        };
        match step {
            Step::Record(cause) => cell.stop = cell.stop.or(Some(cause)),
            Step::Terminate => self.program_terminated(id),
            Step::Kill => self.cell_ends(node, id, SimProgramEnd::Killed),
        }
    }

    /// Handles the end of a container's main process.
    pub(super) fn cell_ends(&mut self, node: &NodeId, id: &ContainerId, how: SimProgramEnd) {
        let after = self.chance.between(1, 10);
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let life = host.life;
        let Some(cell) = host.cells.get_mut(id).filter(|c| c.alive) else {
            return;
        };
        cell.alive = false;
        cell.end = Some(how);
        self.note(|| format!("{id} on {node} ends: {how:?}"));
        self.program_gone(id);
        self.later(
            after,
            Any::Host(
                node.clone(),
                SimHostEvent::Fact {
                    life,
                    id: id.clone(),
                    event: Box::new(container::LifecycleEvent::Ended),
                },
            ),
        );
    }

    fn agent_collects(&mut self, node: &NodeId, id: &ContainerId, end: &ContainerEnd) {
        let wall = self.wall();
        let blames = self.plant == PlantedBug::BlamesMemory;
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let cell = host.cells.get_mut(id);
        let mut report = report(id, node, end, cell.as_deref(), wall);
        if blames && report.reason == ExitReason::KilledExternally {
            report.reason = ExitReason::OverheadOom;
        }
        match cell {
            Some(cell) => cell.report = Some(report.clone()),
            // A stop for a container that never arrived here: its directory contains only the
            // report.
            None => {
                let order = unknown(id);
                let report = Some(report.clone());
                let cell = HostContainer {
                    order,
                    spawned: false,
                    alive: false,
                    stop: None,
                    end: None,
                    report,
                    forgotten: false,
                };
                host.cells.insert(id.clone(), cell);
            }
        }
        self.note(|| format!("{node} reports {id}: {}", report.reason));
        let event = container::LifecycleEvent::Reported(Box::new(report));
        self.agent_steps(
            node,
            agent::AgentEvent::Container {
                id: id.clone(),
                event,
            },
        );
    }

    /// Applies the desired state from the resource manager.
    pub(super) fn agent_wanted(&mut self, node: &NodeId, desired: DesiredStateLine) {
        let Some(host) = self.hosts.get_mut(node) else {
            return;
        };
        let extent = node_messages::extent(&desired);
        let mut wants = Vec::new();
        for DesiredContainer { container, want } in desired.containers {
            let wanted = node_messages::desired_state(&want);
            if let ContainerDesiredState::Run(order) = want
                && host.agent.get(&container).is_none()
            {
                host.orders.insert(container.clone(), *order);
                host.epochs.insert(container.clone(), desired.epoch);
            }
            wants.push((container, wanted));
        }
        self.agent_steps(node, agent::AgentEvent::Desired { extent, wants });
        if let Some(host) = self.hosts.get_mut(node) {
            let agent = &host.agent;
            host.orders.retain(|id, _| agent.get(id).is_some());
        }
    }
}

fn step_of(effect: &ContainerEffect) -> Option<Step> {
    match effect {
        ContainerEffect::RecordStop(cause) => Some(Step::Record(*cause)),
        ContainerEffect::Terminate => Some(Step::Terminate),
        ContainerEffect::Kill => Some(Step::Kill),
        ContainerEffect::Prepare
        | ContainerEffect::Spawn
        | ContainerEffect::Collect(_)
        | ContainerEffect::Resize(_) => None,
        ContainerEffect::Abandon
        | ContainerEffect::Changed
        | ContainerEffect::ReportEnd
        | ContainerEffect::Forget => None,
    }
}

fn found(cell: &HostContainer) -> AdoptedState {
    if let Some(report) = &cell.report {
        return AdoptedState::Reported(Box::new(report.clone()));
    }
    match (cell.alive, cell.spawned) {
        (true, _) => AdoptedState::Alive { asked: cell.stop },
        (false, true) => AdoptedState::Ended { asked: cell.stop },
        (false, false) => AdoptedState::Unstarted,
    }
}

fn unknown(id: &ContainerId) -> RunOrder {
    let (app, granted) = (id.app.clone(), UnixMillis::default());
    RunOrder {
        app,
        request: None,
        attempt: 1,
        resource: Resource::default(),
        version: 1,
        launch: LaunchSpec::default(),
        user: None,
        granted,
        token: None,
    }
}

fn report(
    id: &ContainerId,
    node: &NodeId,
    end: &ContainerEnd,
    cell: Option<&HostContainer>,
    wall: UnixMillis,
) -> ExitReport {
    let mut evidence = Evidence::empty(EnforcerKind::Cgroup2);
    let reason = match end {
        ContainerEnd::Failed { .. } => ExitReason::LaunchFailed,
        ContainerEnd::Never {
            cause: StopCause::Preempted,
        } => ExitReason::Preempted,
        ContainerEnd::Never {
            cause: StopCause::Timeout,
        } => ExitReason::Timeout,
        ContainerEnd::Never {
            cause: StopCause::Fenced,
        } => ExitReason::NodeLost,
        ContainerEnd::Never { .. } => ExitReason::Stopped,
        ContainerEnd::Ended { asked } => {
            evidence.stop_asked = *asked;
            let limit = cell.map(|c| c.order.resource.memory);
            (evidence.own.limit, evidence.own.peak) = (limit, limit.map(|l| l.mul_ratio(1, 2)));
            match cell.and_then(|c| c.end) {
                Some(SimProgramEnd::Code(code)) => evidence.exit_code = Some(code),
                Some(SimProgramEnd::Killed) => evidence.signal = Some(9),
                Some(SimProgramEnd::OutOfMemory) => {
                    evidence.signal = Some(9);
                    evidence.own.peak = limit;
                    let moved = MemoryEvents {
                        oom: 1,
                        oom_kill: 1,
                        oom_group_kill: 1,
                        ..MemoryEvents::default()
                    };
                    (evidence.own.events, evidence.own.local) = (moved, moved);
                }
                None => evidence.missing.push("the record of the end".into()),
            }
            classify(&evidence, VerdictScope::Container, &[]).reason
        }
    };
    ExitReport {
        container: id.clone(),
        node: node.clone(),
        reason,
        evidence,
        diagnosis: Vec::new(),
        started: None,
        ended: wall,
        timeline: Vec::new(),
        log_tail: String::new(),
        tasks: Vec::new(),
    }
}

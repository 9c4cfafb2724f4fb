//! All containers of this node: their desired and their observed state.
//!
//! The loop of the node agent owns this state. The input is one closed enum, the output a list of
//! actions. The desired state is level-triggered: an order can arrive twice, late, or in full after
//! a gap, and leads to the same state.
//!
//! - A container that is ordered and unknown is launched once. An id is never launched again.
//! - A container that a full list does not name is stopped.
//! - An order with a later size resizes the container as soon as it runs (see [`crate::size`]).
//! - An exit report is sent until the resource manager has received it, and kept until `forget`.
//! - All containers stop when the resource manager sends nothing for too long (see
//!   [`crate::fence`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headroom_types::{ContainerId, ExitReport, StopCause, Tick};

use crate::container::{
    self, ContainerEffect, ContainerOrder, IllegalEvent, LifecyclePhase, PhaseTransition,
    StopProgress,
};
use crate::fence::NodeFence;
use crate::size::{ContainerSizing, OrderedSize, SizingPhase};

/// Number of forgotten ids that are remembered, so that a late order does not launch one of them
/// again.
const MAX_FORGOTTEN_IDS: usize = 1024;

/// The desired state of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredState {
    /// The container runs.
    Run(ContainerOrder),
    /// The container is stopped.
    Stop(StopCause),
    /// The exit report has reached all its readers; the container can be deleted.
    Forget,
}

/// Extent of a list of desired states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredListExtent {
    /// A container that is not named is not desired.
    Full,
    /// A container that is not named stays unchanged.
    Changes,
}

/// State in which an earlier incarnation of the agent left a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptedState {
    /// It was ordered and never started. The agent prepares and starts it now.
    Unstarted,
    /// Its shim runs.
    Alive {
        /// The recorded cause of a stop.
        asked: Option<StopCause>,
    },
    /// Its shim has ended. There may be an exit record.
    Ended {
        /// The recorded cause of a stop.
        asked: Option<StopCause>,
    },
    /// Its exit report is written.
    Reported(Box<ExitReport>),
}

/// Input of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The desired state, as the resource manager sends it.
    Desired {
        /// Whether the list names all containers.
        extent: DesiredListExtent,
        /// Each container once.
        wants: Vec<(ContainerId, DesiredState)>,
    },
    /// A container that was found at the start of the agent.
    Adopted {
        /// The container.
        id: ContainerId,
        /// Its order.
        order: ContainerOrder,
        /// The state in which it was found.
        found: AdoptedState,
    },
    /// An event of one container.
    Container {
        /// The container.
        id: ContainerId,
        /// The event.
        event: container::LifecycleEvent,
    },
    /// The resource manager has received these exit reports.
    Received(Vec<ContainerId>),
    /// The agent registered with another incarnation of the resource manager.
    NewPeer {
        /// Containers whose exit reports the earlier incarnation had received. They are forgotten.
        acked: Vec<ContainerId>,
    },
    /// The driver has finished an [`ContainerEffect::Resize`].
    Resized {
        /// The container.
        id: ContainerId,
        /// The version of the size.
        version: u32,
        /// Success, or the reason in one sentence for the user.
        result: Result<(), String>,
    },
    /// All containers are stopped because the node shuts down.
    StopAll(StopCause),
    /// A deadline may have passed.
    Time,
}

/// One action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAction {
    /// The container.
    pub id: ContainerId,
    /// The action.
    pub what: ContainerEffect,
}

/// The state of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentContainer {
    /// The granted order.
    pub order: ContainerOrder,
    /// The phase.
    pub state: LifecyclePhase,
    /// The pending change of its size.
    pub sizing: ContainerSizing,
}

impl AgentContainer {
    fn new(order: ContainerOrder, state: LifecyclePhase) -> Self {
        AgentContainer {
            order,
            state,
            sizing: ContainerSizing::default(),
        }
    }
}

/// The result of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOutcome {
    /// Actions, to be carried out in this order.
    pub actions: Vec<AgentAction>,
    /// Events that a state does not accept. The driver logs them.
    pub refused: Vec<(ContainerId, IllegalEvent)>,
    /// The time since the last message of the resource manager, when the fence has just closed. The
    /// driver logs it; the containers are stopped.
    pub fenced: Option<Duration>,
}

/// The state of all containers of a node.
#[derive(Clone, Debug, Default)]
pub struct AgentCore {
    containers: BTreeMap<ContainerId, AgentContainer>,
    /// Containers that the current event has acknowledged. They are removed at its end.
    acked: Vec<ContainerId>,
    forgotten: VecDeque<ContainerId>,
    fence: NodeFence,
}

impl AgentCore {
    /// An agent without containers.
    pub fn new(fence: NodeFence) -> Self {
        AgentCore {
            fence,
            ..AgentCore::default()
        }
    }

    /// Applies one event.
    pub fn step(&mut self, now: Tick, event: AgentEvent) -> AgentOutcome {
        let mut out = AgentOutcome::default();
        if is_manager_message(&event) {
            self.fence.on_manager_message(now);
        }
        match event {
            AgentEvent::Desired { extent, wants } => self.desired(now, extent, wants, &mut out),
            AgentEvent::Adopted { id, order, found } => self.adopt(now, id, order, found, &mut out),
            AgentEvent::Container { id, event } => self.feed(&id, event, &mut out),
            AgentEvent::Received(ids) => ids
                .iter()
                .for_each(|id| self.feed(id, container::LifecycleEvent::Received, &mut out)),
            AgentEvent::NewPeer { acked } => {
                self.feed_all(|_| Some(container::LifecycleEvent::NewPeer), &mut out);
                acked
                    .iter()
                    .for_each(|id| self.feed(id, container::LifecycleEvent::Forget, &mut out));
            }
            AgentEvent::Resized {
                id,
                version,
                result,
            } => self.resized(&id, version, result, &mut out),
            AgentEvent::StopAll(cause) => self.feed_all(|c| stop_of(c, cause, now), &mut out),
            AgentEvent::Time => {
                let due = |c: &AgentContainer| c.state.deadline().is_some_and(|at| at <= now);
                self.feed_all(
                    |c| due(c).then_some(container::LifecycleEvent::Deadline { now }),
                    &mut out,
                );
                self.close_fence(now, &mut out);
            }
        }
        self.sweep();
        out
    }

    /// All containers that are not forgotten.
    pub fn containers(&self) -> impl Iterator<Item = (&ContainerId, &AgentContainer)> {
        self.containers.iter()
    }

    /// One container.
    pub fn get(&self, id: &ContainerId) -> Option<&AgentContainer> {
        self.containers.get(id)
    }

    /// The next time at which the driver must send [`AgentEvent::Time`].
    pub fn deadline(&self) -> Option<Tick> {
        let fence = if self.is_quiet() {
            None
        } else {
            self.fence.deadline()
        };
        self.containers
            .values()
            .filter_map(|c| c.state.deadline())
            .chain(fence)
            .min()
    }

    /// Exit reports that the resource manager has not received yet.
    pub fn unreceived(&self) -> impl Iterator<Item = &ExitReport> {
        self.containers.values().filter_map(|c| match &c.state {
            LifecyclePhase::Exited {
                report,
                received: false,
            } => Some(report.as_ref()),
            LifecyclePhase::Exited { received: true, .. }
            | LifecyclePhase::New
            | LifecyclePhase::Preparing { .. }
            | LifecyclePhase::Starting { .. } => None,
            LifecyclePhase::Running | LifecyclePhase::Stopping { .. } | LifecyclePhase::Acked => {
                None
            }
        })
    }

    /// True when no process of any container can be alive.
    pub fn is_quiet(&self) -> bool {
        self.containers.values().all(|c| match c.state {
            LifecyclePhase::Exited { .. } | LifecyclePhase::Acked | LifecyclePhase::New => true,
            LifecyclePhase::Preparing { .. }
            | LifecyclePhase::Starting { .. }
            | LifecyclePhase::Running
            | LifecyclePhase::Stopping { .. } => false,
        })
    }

    fn desired(
        &mut self,
        now: Tick,
        extent: DesiredListExtent,
        wants: Vec<(ContainerId, DesiredState)>,
        out: &mut AgentOutcome,
    ) {
        if extent == DesiredListExtent::Full {
            let named: std::collections::BTreeSet<&ContainerId> =
                wants.iter().map(|(id, _)| id).collect();
            let unnamed: Vec<ContainerId> = self
                .containers
                .keys()
                .filter(|id| !named.contains(id))
                .cloned()
                .collect();
            for id in unnamed {
                let stop = self
                    .containers
                    .get(&id)
                    .and_then(|c| stop_of(c, StopCause::Asked, now));
                stop.into_iter()
                    .for_each(|event| self.feed(&id, event, out));
            }
        }
        for (id, want) in wants {
            match want {
                DesiredState::Run(order) => self.ensure(id, order, out),
                DesiredState::Stop(cause) => self.stop(id, cause, now, out),
                DesiredState::Forget => self.feed(&id, container::LifecycleEvent::Forget, out),
            }
        }
    }

    fn ensure(&mut self, id: ContainerId, order: ContainerOrder, out: &mut AgentOutcome) {
        if let Some(c) = self.containers.get_mut(&id) {
            let size = OrderedSize {
                version: order.version,
                resource: order.resource,
            };
            let resize = c.sizing.on_order(c.order.version, size, life(&c.state));
            out.actions.extend(resize.map(|size| AgentAction {
                id,
                what: ContainerEffect::Resize(size),
            }));
            return;
        }
        if self.forgotten.contains(&id) {
            return;
        }
        self.containers
            .insert(id.clone(), AgentContainer::new(order, LifecyclePhase::New));
        self.feed(&id, container::LifecycleEvent::Launch, out);
    }

    fn resized(
        &mut self,
        id: &ContainerId,
        version: u32,
        result: Result<(), String>,
        out: &mut AgentOutcome,
    ) {
        let Some(c) = self.containers.get_mut(id) else {
            return;
        };
        let Some(done) = c.sizing.done(version, result) else {
            return;
        };
        if let Some(has) = done.has {
            (c.order.version, c.order.resource) = (has.version, has.resource);
        }
        let next = done.next.map(ContainerEffect::Resize);
        out.actions.extend(
            [ContainerEffect::Changed]
                .into_iter()
                .chain(next)
                .map(|what| AgentAction {
                    id: id.clone(),
                    what,
                }),
        );
    }

    fn close_fence(&mut self, now: Tick, out: &mut AgentOutcome) {
        if self.is_quiet() {
            return;
        }
        if let Some(silence) = self.fence.close(now) {
            out.fenced = Some(silence);
            self.feed_all(|c| stop_of(c, StopCause::Fenced, now), out);
        }
    }

    /// A stop for an unknown container is answered with an exit report. Otherwise the resource
    /// manager waits for the report for ever.
    fn stop(&mut self, id: ContainerId, cause: StopCause, now: Tick, out: &mut AgentOutcome) {
        if self.forgotten.contains(&id) {
            return;
        }
        self.containers
            .entry(id.clone())
            .or_insert_with(|| AgentContainer::new(ContainerOrder::unknown(), LifecyclePhase::New));
        self.feed(&id, container::LifecycleEvent::Stop { cause, now }, out);
    }

    fn adopt(
        &mut self,
        now: Tick,
        id: ContainerId,
        order: ContainerOrder,
        found: AdoptedState,
        out: &mut AgentOutcome,
    ) {
        if self.containers.contains_key(&id) {
            return;
        }
        let mut act = |what| {
            out.actions.push(AgentAction {
                id: id.clone(),
                what,
            })
        };
        let collecting = |asked| LifecyclePhase::Stopping {
            asked,
            step: StopProgress::Collecting,
        };
        let state = match found {
            AdoptedState::Unstarted => {
                act(ContainerEffect::Prepare);
                LifecyclePhase::Preparing { stop: None }
            }
            AdoptedState::Alive { asked: None } => LifecyclePhase::Running,
            AdoptedState::Alive { asked } => LifecyclePhase::Stopping {
                asked,
                step: StopProgress::Killing { again_at: now },
            },
            AdoptedState::Ended { asked } => {
                act(ContainerEffect::Collect(container::ContainerEnd::Ended {
                    asked,
                }));
                collecting(asked)
            }
            AdoptedState::Reported(report) => LifecyclePhase::Exited {
                report,
                received: false,
            },
        };
        self.containers
            .insert(id, AgentContainer::new(order, state));
    }

    fn feed_all(
        &mut self,
        event: impl Fn(&AgentContainer) -> Option<container::LifecycleEvent>,
        out: &mut AgentOutcome,
    ) {
        let events: Vec<_> = self
            .containers
            .iter()
            .filter_map(|(id, c)| event(c).map(|e| (id.clone(), e)))
            .collect();
        for (id, event) in events {
            self.feed(&id, event, out);
        }
    }

    fn feed(&mut self, id: &ContainerId, event: container::LifecycleEvent, out: &mut AgentOutcome) {
        // A late event of a forgotten container is dropped.
        let Some(c) = self.containers.get_mut(id) else {
            return;
        };
        let mut effects = Vec::new();
        match container::apply_event(&c.state, event, c.order.grace, &mut effects) {
            Ok(PhaseTransition::To(state)) => {
                c.state = state;
                if c.state == LifecyclePhase::Acked {
                    self.acked.push(id.clone());
                }
                effects.extend(
                    c.sizing
                        .on_phase(life(&c.state))
                        .map(ContainerEffect::Resize),
                );
            }
            Ok(PhaseTransition::Stay) => {}
            Err(illegal) => out.refused.push((id.clone(), illegal)),
        }
        out.actions
            .extend(effects.into_iter().map(|what| AgentAction {
                id: id.clone(),
                what,
            }));
    }

    fn sweep(&mut self) {
        for id in self.acked.drain(..) {
            self.containers.remove(&id);
            self.forgotten.push_back(id);
        }
        while self.forgotten.len() > MAX_FORGOTTEN_IDS {
            self.forgotten.pop_front();
        }
    }
}

/// True for events that carry a message of the resource manager.
fn is_manager_message(event: &AgentEvent) -> bool {
    match event {
        AgentEvent::Desired { .. } | AgentEvent::Received(_) | AgentEvent::NewPeer { .. } => true,
        AgentEvent::Adopted { .. } | AgentEvent::Container { .. } | AgentEvent::Resized { .. } => {
            false
        }
        AgentEvent::StopAll(_) | AgentEvent::Time => false,
    }
}

fn life(state: &LifecyclePhase) -> SizingPhase {
    match state {
        LifecyclePhase::New
        | LifecyclePhase::Preparing { .. }
        | LifecyclePhase::Starting { .. } => SizingPhase::Before,
        LifecyclePhase::Running => SizingPhase::Running,
        LifecyclePhase::Stopping { .. } | LifecyclePhase::Exited { .. } | LifecyclePhase::Acked => {
            SizingPhase::Over
        }
    }
}

fn stop_of(c: &AgentContainer, cause: StopCause, now: Tick) -> Option<container::LifecycleEvent> {
    match c.state {
        LifecyclePhase::New
        | LifecyclePhase::Preparing { .. }
        | LifecyclePhase::Starting { .. }
        | LifecyclePhase::Running
        | LifecyclePhase::Stopping { .. } => Some(container::LifecycleEvent::Stop { cause, now }),
        LifecyclePhase::Exited { .. } | LifecyclePhase::Acked => None,
    }
}

#[cfg(test)]
mod tests;

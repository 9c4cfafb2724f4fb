//! All containers of this node: what is wanted against what is there.
//!
//! Owned by the node agent's loop, fed by one closed enum, answers with actions. What is wanted is level-triggered: the same words
//! may come twice, late, or in full after a gap, and lead to the same end.
//!
//! - wanted and unknown: ensured, once. An id that was here before is never launched again.
//! - here and not named when everything was named: stopped.
//! - wanted with a later size than it has: given that size, once it runs (see [`crate::size`]).
//! - an end is told until the resource manager has it, and kept until it says `forget`.
//! - nothing heard of the resource manager for too long: everything is stopped (see [`crate::fence`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headroom_types::{ContainerId, ExitReport, StopCause, Tick};

use crate::container::{self, Answer, Effect, Illegal, Order, State, Step};
use crate::fence::Fence;
use crate::size::{Life, Size, Sizing};

/// How many forgotten ids are remembered, so that a late order does not run one of them again.
const REMEMBERED: usize = 1024;

/// What should become of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// It should run.
    Run(Order),
    /// It should end.
    Stop(StopCause),
    /// Its report is with everybody.
    Forget,
}

/// Whether a list of wants names everything or changes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What is not named is not wanted.
    Full,
    /// What is not named stays as it was.
    Changes,
}

/// What an earlier agent left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was ordered and never started: that is done now, by whoever found it.
    Unstarted,
    /// Its shim lives.
    Alive {
        /// A stop that was recorded.
        asked: Option<StopCause>,
    },
    /// Its shim is gone; there may be a record of the end.
    Ended {
        /// A stop that was recorded.
        asked: Option<StopCause>,
    },
    /// Its report is written.
    Reported(Box<ExitReport>),
}

/// What the loop learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What the resource manager wants.
    Desired {
        /// Whether all is named.
        extent: Extent,
        /// Each container once.
        wants: Vec<(ContainerId, Want)>,
    },
    /// Found at start.
    Adopted {
        /// Which one.
        id: ContainerId,
        /// What it was ordered as.
        order: Order,
        /// What is there.
        found: Found,
    },
    /// Something happened to one container.
    Container {
        /// Which one.
        id: ContainerId,
        /// What.
        event: container::Event,
    },
    /// The resource manager has taken these reports in.
    Received(Vec<ContainerId>),
    /// Registered with another life of the resource manager, which had taken these in.
    NewPeer {
        /// Nobody needs them any more.
        acked: Vec<ContainerId>,
    },
    /// The shell is done with a [`Effect::Resize`].
    Resized {
        /// Of which container.
        id: ContainerId,
        /// Of which version.
        version: u32,
        /// Whether it has that size now; why not, for people.
        result: Result<(), String>,
    },
    /// Everything should end: the node is closed down.
    StopAll(StopCause),
    /// Time has passed.
    Time,
}

/// One thing for the shell to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// For which container.
    pub id: ContainerId,
    /// What.
    pub what: Effect,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// What was granted.
    pub order: Order,
    /// Where it is.
    pub state: State,
    /// The change of its size.
    pub sizing: Sizing,
}

impl Container {
    fn new(order: Order, state: State) -> Self {
        Container { order, state, sizing: Sizing::default() }
    }
}

/// What came out of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// To be done, in this order.
    pub actions: Vec<Action>,
    /// To be logged: events that a state does not take.
    pub refused: Vec<(ContainerId, Illegal)>,
    /// To be logged: the node has just given up on the resource manager, after this silence, and ends its containers.
    pub fenced: Option<Duration>,
}

/// The state of a node.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    containers: BTreeMap<ContainerId, Container>,
    forgotten: VecDeque<ContainerId>,
    fence: Fence,
}

impl Agent {
    /// Without containers.
    pub fn new(fence: Fence) -> Self {
        Agent { fence, ..Agent::default() }
    }

    /// Takes in one event.
    pub fn step(&mut self, now: Tick, event: Event) -> Outcome {
        let mut out = Outcome::default();
        if is_word_of_the_peer(&event) {
            self.fence.heard(now);
        }
        match event {
            Event::Desired { extent, wants } => self.desired(now, extent, wants, &mut out),
            Event::Adopted { id, order, found } => self.adopt(now, id, order, found, &mut out),
            Event::Container { id, event } => self.feed(&id, event, &mut out),
            Event::Received(ids) => ids.iter().for_each(|id| self.feed(id, container::Event::Received, &mut out)),
            Event::NewPeer { acked } => {
                self.feed_all(|_| Some(container::Event::NewPeer), &mut out);
                acked.iter().for_each(|id| self.feed(id, container::Event::Forget, &mut out));
            }
            Event::Resized { id, version, result } => self.resized(&id, version, result, &mut out),
            Event::StopAll(cause) => self.feed_all(|c| stop_of(c, cause, now), &mut out),
            Event::Time => {
                let due = |c: &Container| c.state.deadline().is_some_and(|at| at <= now);
                self.feed_all(|c| due(c).then_some(container::Event::Deadline { now }), &mut out);
                self.close_fence(now, &mut out);
            }
        }
        self.sweep();
        out
    }

    /// All containers that are not forgotten.
    pub fn containers(&self) -> impl Iterator<Item = (&ContainerId, &Container)> {
        self.containers.iter()
    }

    /// One container.
    pub fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }

    /// When [`Event::Time`] is wanted next.
    pub fn deadline(&self) -> Option<Tick> {
        let fence = if self.is_quiet() { None } else { self.fence.deadline() };
        self.containers.values().filter_map(|c| c.state.deadline()).chain(fence).min()
    }

    /// Reports that the resource manager has not taken in.
    pub fn unreceived(&self) -> impl Iterator<Item = &ExitReport> {
        self.containers.values().filter_map(|c| match &c.state {
            State::Exited { report, received: false } => Some(report.as_ref()),
            State::Exited { received: true, .. } | State::New | State::Preparing { .. } | State::Starting { .. } => None,
            State::Running | State::Stopping { .. } | State::Acked => None,
        })
    }

    /// True when no process of any container can be alive.
    pub fn is_quiet(&self) -> bool {
        self.containers.values().all(|c| match c.state {
            State::Exited { .. } | State::Acked | State::New => true,
            State::Preparing { .. } | State::Starting { .. } | State::Running | State::Stopping { .. } => false,
        })
    }

    fn desired(&mut self, now: Tick, extent: Extent, wants: Vec<(ContainerId, Want)>, out: &mut Outcome) {
        if extent == Extent::Full {
            let named: std::collections::BTreeSet<&ContainerId> = wants.iter().map(|(id, _)| id).collect();
            let unnamed: Vec<ContainerId> = self.containers.keys().filter(|id| !named.contains(id)).cloned().collect();
            for id in unnamed {
                let stop = self.containers.get(&id).and_then(|c| stop_of(c, StopCause::Asked, now));
                stop.into_iter().for_each(|event| self.feed(&id, event, out));
            }
        }
        for (id, want) in wants {
            match want {
                Want::Run(order) => self.ensure(id, order, out),
                Want::Stop(cause) => self.stop(id, cause, now, out),
                Want::Forget => self.feed(&id, container::Event::Forget, out),
            }
        }
    }

    fn ensure(&mut self, id: ContainerId, order: Order, out: &mut Outcome) {
        if let Some(c) = self.containers.get_mut(&id) {
            let size = Size { version: order.version, resource: order.resource };
            let resize = c.sizing.wanted(c.order.version, size, life(&c.state));
            out.actions.extend(resize.map(|size| Action { id, what: Effect::Resize(size) }));
            return;
        }
        if self.forgotten.contains(&id) {
            return;
        }
        self.containers.insert(id.clone(), Container::new(order, State::New));
        self.feed(&id, container::Event::Launch, out);
    }

    fn resized(&mut self, id: &ContainerId, version: u32, result: Result<(), String>, out: &mut Outcome) {
        let Some(c) = self.containers.get_mut(id) else { return };
        let Some(done) = c.sizing.done(version, result) else { return };
        if let Some(has) = done.has {
            (c.order.version, c.order.resource) = (has.version, has.resource);
        }
        let next = done.next.map(Effect::Resize);
        out.actions.extend([Effect::Changed].into_iter().chain(next).map(|what| Action { id: id.clone(), what }));
    }

    fn close_fence(&mut self, now: Tick, out: &mut Outcome) {
        if self.is_quiet() {
            return;
        }
        if let Some(silence) = self.fence.close(now) {
            out.fenced = Some(silence);
            self.feed_all(|c| stop_of(c, StopCause::Fenced, now), out);
        }
    }

    /// A stop for something that never came here is answered too, or the asker would wait for ever.
    fn stop(&mut self, id: ContainerId, cause: StopCause, now: Tick, out: &mut Outcome) {
        if self.forgotten.contains(&id) {
            return;
        }
        self.containers.entry(id.clone()).or_insert_with(|| Container::new(Order::unknown(), State::New));
        self.feed(&id, container::Event::Stop { cause, now }, out);
    }

    fn adopt(&mut self, now: Tick, id: ContainerId, order: Order, found: Found, out: &mut Outcome) {
        if self.containers.contains_key(&id) {
            return;
        }
        let mut act = |what| out.actions.push(Action { id: id.clone(), what });
        let collecting = |asked| State::Stopping { asked, step: Step::Collecting };
        let state = match found {
            Found::Unstarted => {
                act(Effect::Prepare);
                State::Preparing { stop: None }
            }
            Found::Alive { asked: None } => State::Running,
            Found::Alive { asked } => State::Stopping { asked, step: Step::Killing { again_at: now } },
            Found::Ended { asked } => {
                act(Effect::Collect(container::End::Ended { asked }));
                collecting(asked)
            }
            Found::Reported(report) => State::Exited { report, received: false },
        };
        self.containers.insert(id, Container::new(order, state));
    }

    fn feed_all(&mut self, event: impl Fn(&Container) -> Option<container::Event>, out: &mut Outcome) {
        let events: Vec<_> = self.containers.iter().filter_map(|(id, c)| event(c).map(|e| (id.clone(), e))).collect();
        for (id, event) in events {
            self.feed(&id, event, out);
        }
    }

    fn feed(&mut self, id: &ContainerId, event: container::Event, out: &mut Outcome) {
        // Late words about what is forgotten find nobody.
        let Some(c) = self.containers.get_mut(id) else { return };
        let mut effects = Vec::new();
        match container::on(&c.state, event, c.order.grace, &mut effects) {
            Ok(Answer::To(state)) => {
                c.state = state;
                effects.extend(c.sizing.lives(life(&c.state)).map(Effect::Resize));
            }
            Ok(Answer::Stay) => {}
            Err(illegal) => out.refused.push((id.clone(), illegal)),
        }
        out.actions.extend(effects.into_iter().map(|what| Action { id: id.clone(), what }));
    }

    fn sweep(&mut self) {
        let acked: Vec<ContainerId> =
            self.containers.iter().filter(|(_, c)| c.state == State::Acked).map(|(id, _)| id.clone()).collect();
        for id in acked {
            self.containers.remove(&id);
            self.forgotten.push_back(id);
        }
        while self.forgotten.len() > REMEMBERED {
            self.forgotten.pop_front();
        }
    }
}

/// Each of these is the answer to a call, or came down the line.
fn is_word_of_the_peer(event: &Event) -> bool {
    match event {
        Event::Desired { .. } | Event::Received(_) | Event::NewPeer { .. } => true,
        Event::Adopted { .. } | Event::Container { .. } | Event::Resized { .. } => false,
        Event::StopAll(_) | Event::Time => false,
    }
}

fn life(state: &State) -> Life {
    match state {
        State::New | State::Preparing { .. } | State::Starting { .. } => Life::Before,
        State::Running => Life::Running,
        State::Stopping { .. } | State::Exited { .. } | State::Acked => Life::Over,
    }
}

fn stop_of(c: &Container, cause: StopCause, now: Tick) -> Option<container::Event> {
    match c.state {
        State::New | State::Preparing { .. } | State::Starting { .. } | State::Running | State::Stopping { .. } => {
            Some(container::Event::Stop { cause, now })
        }
        State::Exited { .. } | State::Acked => None,
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;

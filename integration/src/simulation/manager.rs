//! The resource manager's driver around its real core. It handles one batch after the other and
//! sends nothing before it is durable.

use std::collections::{BTreeMap, VecDeque};

use headroom_rm_core::{
    CallId, CallRefusal, Cluster, ClusterCall, ClusterEffect, ClusterEvent, ClusterSettings,
    ContainerCommand, DurableRecord,
};
use headroom_types::{AppId, ContainerId, Epoch, NodeId, Tick, UnixMillis};

use super::call_result::SimCallResult;
use super::disk::Disk;
use super::network::{Caller, Line, Reader};
use super::shares;
use super::{Simulation, SimulationEvent as Any, UNIX_AT_ZERO};
use crate::fault::{Fault, LastWrite};
use crate::scenario::PlantedBug;

/// Maximum number of inputs in one batch.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) enum SimManagerEvent {
    Start,
    Call {
        caller: Caller,
        number: u64,
        input: Box<SimManagerInput>,
        /// The only incarnation that receives it.
        life: Option<u64>,
    },
    /// A batch is durable.
    Durable {
        life: u64,
    },
    /// A deadline of the core is due.
    Due {
        life: u64,
    },
}

/// An input of the daemon.
#[derive(Clone, Debug)]
pub(super) enum SimManagerInput {
    Call(Box<ClusterCall>),
    WatchNode {
        node: NodeId,
        epoch: Epoch,
        stream: u64,
        life: u64,
    },
    WatchApp {
        app: AppId,
        epoch: Epoch,
        cursor: u64,
        stream: u64,
        reader: Reader,
    },
}

/// The simulated daemon.
#[derive(Debug, Default)]
pub(super) struct SimManager {
    pub(super) cluster: Option<Cluster>,
    pub(super) life: u64,
    started: u64,
    disk: Disk,
    inbox: VecDeque<(Caller, u64, SimManagerInput)>,
    writing: bool,
    effects: Vec<ClusterEffect>,
    later: Vec<(Caller, u64, SimManagerInput)>,
    open: BTreeMap<CallId, (Caller, u64)>,
    calls: u64,
    nodes: BTreeMap<NodeId, u64>,
    apps: BTreeMap<AppId, u64>,
    due: Option<Tick>,
    /// A fault that occurs during its next write.
    pub(super) doom: Option<Fault>,
}

impl SimManager {
    pub(super) fn is_over(&self, app: &AppId) -> bool {
        self.cluster
            .as_ref()
            .and_then(|c| c.app(app))
            .is_some_and(|a| a.state.is_over())
    }
    fn now(&self, now: u64) -> Tick {
        Tick(now - self.started)
    }
}

impl Simulation {
    pub(super) fn manager_thing(&mut self, thing: SimManagerEvent) {
        match thing {
            SimManagerEvent::Start => self.manager_starts(),
            SimManagerEvent::Call {
                caller,
                number,
                input,
                life,
            } => {
                if self.manager.cluster.is_none()
                    || life.is_some_and(|life| life != self.manager.life)
                {
                    return self.reply(caller, number, SimCallResult::Lost);
                }
                self.manager.inbox.push_back((caller, number, *input));
                self.manager_turn();
            }
            SimManagerEvent::Durable { life } if life == self.manager.life => {
                self.manager.writing = false;
                self.manager_written();
                self.manager_carries_out();
                self.manager_turn();
            }
            SimManagerEvent::Due { life } if life == self.manager.life => self.manager_turn(),
            SimManagerEvent::Durable { .. } | SimManagerEvent::Due { .. } => {}
        }
    }

    fn manager_starts(&mut self) {
        if self.manager.cluster.is_some() {
            return;
        }
        let restored = self.manager.disk.next_life();
        self.note(|| format!("resource manager starts, epoch {}", restored.epoch));
        let queues = self
            .scenario
            .estate
            .trees
            .first()
            .cloned()
            .unwrap_or_default();
        let settings = ClusterSettings {
            unix_at_zero: UnixMillis(UNIX_AT_ZERO + self.now),
            queues,
            ..ClusterSettings::default()
        };
        self.manager.started = self.now;
        self.manager.due = None;
        self.manager.cluster = Some(Cluster::new(settings, restored, Tick(0)));
        self.manager_steps(ClusterEvent::Time);
        self.manager_settles();
    }

    /// Kills the daemon: all data that is not durable is lost, and all connections break.
    pub(super) fn manager_dies(&mut self, write: LastWrite) {
        if self.manager.cluster.take().is_none() {
            return;
        }
        if write == LastWrite::Kept && self.manager.writing {
            self.manager_written();
        }
        let m = &mut self.manager;
        m.life += 1;
        m.writing = false;
        m.effects.clear();
        m.nodes.clear();
        m.apps.clear();
        let mut waiting: Vec<(Caller, u64)> = std::mem::take(&mut m.open).into_values().collect();
        waiting.extend(
            m.inbox
                .drain(..)
                .chain(m.later.drain(..))
                .map(|(caller, number, _)| (caller, number)),
        );
        for (caller, number) in waiting {
            self.reply(caller, number, SimCallResult::Lost);
        }
        for stream in self.streams_of(None) {
            self.break_stream(stream, false);
        }
    }

    /// Handles waiting inputs, unless a batch is being written.
    fn manager_turn(&mut self) {
        if self.manager.writing || self.manager.cluster.is_none() {
            return;
        }
        for _ in 0..BATCH {
            let Some((caller, number, input)) = self.manager.inbox.pop_front() else {
                break;
            };
            match input {
                SimManagerInput::Call(what) => {
                    self.manager.calls += 1;
                    let call = CallId(self.manager.calls);
                    self.manager.open.insert(call, (caller, number));
                    self.manager_steps(ClusterEvent::Call { call, what: *what });
                }
                SimManagerInput::WatchNode { .. } | SimManagerInput::WatchApp { .. } => {
                    self.manager.later.push((caller, number, input))
                }
            }
        }
        let now = self.manager.now(self.now);
        if self
            .manager
            .cluster
            .as_ref()
            .and_then(Cluster::next_deadline)
            .is_some_and(|due| due <= now)
        {
            self.manager_steps(ClusterEvent::Time);
        }
        self.manager_settles();
    }

    fn manager_steps(&mut self, event: ClusterEvent) {
        let now = self.manager.now(self.now);
        let Some(cluster) = &mut self.manager.cluster else {
            return;
        };
        let first = self.manager.effects.len();
        if let ClusterEvent::Call { what, .. } = &event {
            let words = call_words(what);
            self.diary.borrow_mut().note(self.now, &words);
        }
        cluster.step(now, event, &mut self.manager.effects);
        cluster.assert_invariants();
        if let Some(over) = shares::beyond_maximum(cluster, &self.manager.effects[first..]) {
            self.oracle.fail(over);
        }
        for effect in &self.manager.effects[first..] {
            match effect {
                ClusterEffect::Log(line) => {
                    let words = format!("rm: {} {} {}", line.reason, line.object, line.message());
                    self.diary.borrow_mut().note(self.now, &words);
                    self.oracle.logged(line);
                }
                ClusterEffect::Illegal { what } => self.oracle.fail(format!(
                    "illegal transition in the resource manager: {what}"
                )),
                ClusterEffect::SendCommand {
                    node,
                    want: ContainerCommand::Run(_),
                    ..
                } => {
                    let account = cluster.ledger().node(node);
                    if account.is_none_or(|a| !a.allocated.fits(&a.offers)) {
                        self.oracle
                            .fail(format!("{node} is allocated more than it offers"));
                    }
                }
                ClusterEffect::Save(_)
                | ClusterEffect::Answer { .. }
                | ClusterEffect::SendCommand { .. } => {}
                ClusterEffect::Update { .. } | ClusterEffect::UpdatesEnd { .. } => {}
            }
        }
    }

    fn manager_settles(&mut self) {
        let saves = self
            .manager
            .effects
            .iter()
            .any(|e| matches!(e, ClusterEffect::Save(_)));
        if saves {
            self.manager.writing = true;
            let takes = self.chance.between(0, 8);
            if let Some(doom) = self.manager.doom.take().filter(|_| !self.is_calm()) {
                self.later(takes / 2, Any::Strike(doom));
            }
            if self.plant == PlantedBug::AnswersBeforeWrite {
                self.manager_answers_too_early();
            }
            let life = self.manager.life;
            return self.later(takes, Any::Manager(SimManagerEvent::Durable { life }));
        }
        self.manager_carries_out();
    }

    fn manager_answers_too_early(&mut self) {
        let effects = std::mem::take(&mut self.manager.effects);
        let (saves, rest) = effects
            .into_iter()
            .partition(|e| matches!(e, ClusterEffect::Save(_)));
        self.manager.effects = rest;
        self.manager_carries_out();
        self.manager.effects = saves;
    }

    fn manager_written(&mut self) {
        let m = &mut self.manager;
        for effect in &m.effects {
            if let ClusterEffect::Save(save) = effect {
                m.disk.save(save);
                if let DurableRecord::State { app, .. } = &**save {
                    self.oracle.saved(app);
                }
            }
        }
    }

    fn manager_carries_out(&mut self) {
        let mut to_nodes: BTreeMap<NodeId, Vec<(ContainerId, ContainerCommand)>> = BTreeMap::new();
        let mut to_apps: BTreeMap<AppId, Vec<headroom_rm_core::MasterUpdate>> = BTreeMap::new();
        for effect in std::mem::take(&mut self.manager.effects) {
            match effect {
                ClusterEffect::Save(_) | ClusterEffect::Log(_) | ClusterEffect::Illegal { .. } => {}
                ClusterEffect::Answer { call, answer } => {
                    let epoch = self
                        .manager
                        .cluster
                        .as_ref()
                        .map(Cluster::epoch)
                        .unwrap_or_default();
                    if let Some((caller, number)) = self.manager.open.remove(&call) {
                        let heard = answer.map_or_else(SimCallResult::Refused, |a| {
                            SimCallResult::Answer(Box::new(a), epoch)
                        });
                        self.reply(caller, number, heard);
                    }
                }
                ClusterEffect::SendCommand {
                    node,
                    container,
                    want,
                } => to_nodes.entry(node).or_default().push((container, want)),
                ClusterEffect::Update { app, update } => {
                    to_apps.entry(app).or_default().push(update)
                }
                ClusterEffect::UpdatesEnd { app } => {
                    if let Some(stream) = self.manager.apps.remove(&app) {
                        self.break_stream(stream, false);
                    }
                }
            }
        }
        let epoch = self
            .manager
            .cluster
            .as_ref()
            .map(Cluster::epoch)
            .unwrap_or_default();
        for (node, wants) in to_nodes {
            self.order_to_two(epoch, &node, &wants);
            if let Some(stream) = self.manager.nodes.get(&node).copied() {
                self.send_line(
                    stream,
                    Line::Desired {
                        epoch,
                        full: false,
                        wants,
                    },
                );
            }
        }
        for (app, updates) in to_apps {
            if let Some(stream) = self.manager.apps.get(&app).copied() {
                self.send_line(stream, Line::Updates { epoch, updates });
            }
        }
        self.manager_opens_streams();
        self.manager_waits();
    }

    fn order_to_two(
        &mut self,
        epoch: Epoch,
        node: &NodeId,
        wants: &[(ContainerId, ContainerCommand)],
    ) {
        if self.plant != PlantedBug::OrderToTwoNodes {
            return;
        }
        let other = self
            .manager
            .nodes
            .iter()
            .find(|(n, _)| *n != node)
            .map(|(_, stream)| *stream);
        let runs: Vec<_> = wants
            .iter()
            .filter(|(_, w)| matches!(w, ContainerCommand::Run(_)))
            .cloned()
            .collect();
        if let (Some(stream), false) = (other, runs.is_empty()) {
            self.send_line(
                stream,
                Line::Desired {
                    epoch,
                    full: false,
                    wants: runs,
                },
            );
        }
    }

    /// Streams are opened after the batch is durable, from the durable state.
    fn manager_opens_streams(&mut self) {
        for (caller, number, input) in std::mem::take(&mut self.manager.later) {
            let Some(cluster) = &self.manager.cluster else {
                return;
            };
            let current = cluster.epoch();
            match input {
                SimManagerInput::Call(_) => {}
                SimManagerInput::WatchNode {
                    node,
                    epoch,
                    stream,
                    life,
                } => {
                    let member = cluster.node(&node).is_some_and(|n| n.state.is_member());
                    let heard = match (epoch == current, member) {
                        (false, _) => SimCallResult::Refused(CallRefusal::StaleEpoch {
                            given: epoch,
                            current,
                        }),
                        (true, false) => {
                            SimCallResult::Refused(CallRefusal::NodeNotRegistered(node.clone()))
                        }
                        (true, true) => SimCallResult::Listening,
                    };
                    if let (SimCallResult::Listening, false) = (&heard, caller == Caller::Nobody) {
                        let wants = cluster.desired(&node);
                        self.open_stream(stream, Reader::Host(node.clone(), life));
                        if let Some(before) = self.manager.nodes.insert(node, stream) {
                            self.break_stream(before, false);
                        }
                        self.send_line(
                            stream,
                            Line::Desired {
                                epoch,
                                full: true,
                                wants,
                            },
                        );
                    }
                    self.reply(caller, number, heard);
                }
                SimManagerInput::WatchApp {
                    app,
                    epoch,
                    cursor,
                    stream,
                    reader,
                } => {
                    let missed = missed(cluster, &app, epoch, cursor);
                    let heard = match missed {
                        Ok(updates) if caller != Caller::Nobody => {
                            self.open_stream(stream, reader);
                            if let Some(before) = self.manager.apps.insert(app, stream) {
                                self.break_stream(before, false);
                            }
                            self.send_line(stream, Line::Updates { epoch, updates });
                            SimCallResult::Listening
                        }
                        Ok(_) => SimCallResult::Listening,
                        Err(heard) => heard,
                    };
                    self.reply(caller, number, heard);
                }
            }
        }
    }

    fn manager_waits(&mut self) {
        let due = self
            .manager
            .cluster
            .as_ref()
            .and_then(Cluster::next_deadline);
        if due != self.manager.due {
            self.manager.due = due;
            let (life, started) = (self.manager.life, self.manager.started);
            if let Some(due) = due {
                self.at(
                    started.saturating_add(due.0),
                    Any::Manager(SimManagerEvent::Due { life }),
                );
            }
        }
    }
}

fn missed(
    cluster: &Cluster,
    app: &AppId,
    epoch: Epoch,
    cursor: u64,
) -> Result<Vec<headroom_rm_core::MasterUpdate>, SimCallResult> {
    let Some(found) = cluster.app(app) else {
        return Err(SimCallResult::Refused(CallRefusal::NoSuchApp(app.clone())));
    };
    if epoch != cluster.epoch() {
        return Err(SimCallResult::Refused(CallRefusal::StaleEpoch {
            given: epoch,
            current: cluster.epoch(),
        }));
    }
    if found.state.is_over() {
        return Err(SimCallResult::Refused(CallRefusal::AppEnding {
            app: app.clone(),
            state: found.state.as_str(),
        }));
    }
    cluster.updates(app, cursor).ok_or(SimCallResult::TooOld)
}

fn call_words(call: &ClusterCall) -> String {
    match call {
        ClusterCall::Submit(new) => format!("-> submit {}", new.name),
        ClusterCall::Reserve => "-> reserve a number".to_owned(),
        ClusterCall::SubmitAs { number, app } => format!("-> submit {} as {number}", app.name),
        ClusterCall::Kill { app, .. } => format!("-> kill {app}"),
        ClusterCall::Purge { app, how } => format!("-> purge {app} {how:?}"),
        ClusterCall::RegisterMaster { attempt, .. } => format!("-> register master {attempt}"),
        ClusterCall::Sync(sync) => {
            let asks: Vec<String> = sync
                .asks
                .iter()
                .map(|a| format!("{} {}/{}", a.request, a.ended, a.count))
                .collect();
            let release: Vec<String> = sync.release.iter().map(ToString::to_string).collect();
            format!(
                "-> sync {} epoch {} ack {} asks {asks:?} release {release:?}",
                sync.attempt, sync.epoch, sync.ack
            )
        }
        ClusterCall::Ask { app, ask, how } => format!("-> ask {app} {} {how:?}", ask.request),
        ClusterCall::Resize {
            container,
            version,
            size,
            how,
        } => {
            format!(
                "-> resize {container} {version:?} {} {how:?}",
                size.resource
            )
        }
        ClusterCall::SetQueues {
            generation, how, ..
        } => format!("-> set queues {generation:?} {how:?}"),
        ClusterCall::SetQueueState { queue, state } => format!("-> {queue} is {}", state.as_str()),
        ClusterCall::ChangeApp {
            app,
            queue,
            priority,
            lifetime,
        } => {
            format!("-> change {app} {queue:?} {priority:?} {lifetime:?}")
        }
        ClusterCall::Order { app, order } => format!("-> order {app} {order:?}"),
        ClusterCall::Drain {
            node, within, then, ..
        } => format!("-> drain {node} {within:?} {then:?}"),
        ClusterCall::Undrain { node } => format!("-> undrain {node}"),
        ClusterCall::Tag { node, change, how } => format!("-> tag {node} {change:?} {how:?}"),
        ClusterCall::Configure(_) => "-> configure".to_owned(),
        ClusterCall::Withdraw { app, request } => format!("-> withdraw {app} {request}"),
        ClusterCall::Finish {
            attempt, outcome, ..
        } => format!("-> finish {attempt} {outcome:?}"),
        ClusterCall::Stop { container } => format!("-> stop {container}"),
        ClusterCall::RegisterNode { node, facts } => {
            let seen: Vec<String> = facts
                .seen
                .iter()
                .map(|s| format!("{} {:?}", s.container, s.phase))
                .collect();
            format!("-> register node {node} {seen:?}")
        }
        ClusterCall::Report { node, report } => {
            let seen: Vec<String> = report
                .seen
                .iter()
                .map(|s| format!("{} {:?}", s.container, s.phase))
                .collect();
            let ends: Vec<String> = report
                .exits
                .iter()
                .map(|e| format!("{} {}", e.container, e.reason))
                .collect();
            format!("-> report {node} {seen:?} ends {ends:?}")
        }
    }
}

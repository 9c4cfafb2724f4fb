//! The drivers of the resource managers around their real core. A manager handles one batch after
//! the other and sends nothing before it is durable; one of several managers, also nothing after its
//! lease.

use std::collections::{BTreeMap, VecDeque};

use headroom_rm_core::{
    CallAnswer, CallId, CallRefusal, Cluster, ClusterCall, ClusterEffect, ClusterEvent,
    ClusterSettings, ContainerCommand, DurableRecord, RestoredCluster,
};
use headroom_types::{AppId, ContainerId, Epoch, NodeId, Tick, UnixMillis};

use super::call_result::SimCallResult;
use super::election::{SimElection, SimElectionEvent};
use super::leadership_checker::LeadershipChecker;
use super::manager_end::{ManagerPause, ManagerStop};
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
    /// An event of the election. Only with several managers.
    Election {
        life: u64,
        event: SimElectionEvent,
    },
    /// A paused manager continues.
    Continue {
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

/// A simulated daemon.
#[derive(Debug, Default)]
pub(super) struct SimManager {
    pub(super) cluster: Option<Cluster>,
    pub(super) life: u64,
    started: u64,
    pub(super) inbox: VecDeque<(Caller, u64, SimManagerInput)>,
    pub(super) writing: bool,
    pub(super) effects: Vec<ClusterEffect>,
    later: Vec<(Caller, u64, SimManagerInput)>,
    open: BTreeMap<CallId, (Caller, u64)>,
    calls: u64,
    nodes: BTreeMap<NodeId, u64>,
    apps: BTreeMap<AppId, u64>,
    due: Option<Tick>,
    /// A fault that occurs during its next write.
    pub(super) doom: Option<Fault>,
    /// Its part in the election, while its process runs; `None` if it is the only manager.
    pub(super) election: Option<SimElection>,
    pub(super) pause: Option<ManagerPause>,
    pub(super) stop: ManagerStop,
    /// Number of faults that cut it off from etcd at this time.
    pub(super) etcd_cuts: u32,
    /// Number of faults that cut it off from all others at this time.
    pub(super) caller_cuts: u32,
    /// A fault that cuts it off from etcd during its next write: whether the write takes effect, and
    /// the duration in milliseconds.
    pub(super) cut_at_write: Option<(LastWrite, u64)>,
    /// A pause after the next check of its lease. Milliseconds.
    pub(super) pause_at_check: Option<u64>,
}

impl SimManager {
    /// Whether its host accepts connections for it.
    pub(super) fn listens(&self) -> bool {
        let closed = matches!(self.stop, ManagerStop::Asked { listens: false, .. });
        self.election.is_some() && !closed
    }
    fn now(&self, now: u64) -> Tick {
        Tick(now - self.started)
    }
}

impl Simulation {
    pub(super) fn manager_thing(&mut self, m: usize, thing: SimManagerEvent) {
        let current = self.managers[m].life;
        if let Some(pause) = &mut self.managers[m].pause
            && !matches!(thing, SimManagerEvent::Continue { .. })
        {
            return pause.held.push_back(thing);
        }
        match thing {
            SimManagerEvent::Start => self.manager_starts(m),
            SimManagerEvent::Call {
                caller,
                number,
                input,
                life,
            } => {
                if life.is_some_and(|life| life != current) {
                    return self.reply(caller, number, SimCallResult::Lost);
                }
                if self.managers[m].cluster.is_none() {
                    return self.no_leader_replies(m, caller, number);
                }
                self.managers[m].inbox.push_back((caller, number, *input));
                self.manager_turn(m);
            }
            SimManagerEvent::Durable { life } if life == current => {
                self.manager_written(m);
                self.manager_is_durable(m);
            }
            SimManagerEvent::Due { life } if life == current => self.manager_turn(m),
            SimManagerEvent::Election { life, event } if life == current => {
                self.election_thing(m, event);
            }
            SimManagerEvent::Continue { life } if life == current => self.manager_continues(m),
            SimManagerEvent::Durable { .. }
            | SimManagerEvent::Due { .. }
            | SimManagerEvent::Election { .. }
            | SimManagerEvent::Continue { .. } => {}
        }
    }

    /// Answers a call to a manager that does not lead.
    fn no_leader_replies(&mut self, m: usize, caller: Caller, number: u64) {
        match &self.managers[m].election {
            None => self.reply(caller, number, SimCallResult::Lost),
            Some(election) => {
                let leader = election.view.map(|key| key.manager);
                self.standby_replies(m, &caller, number, leader);
            }
        }
    }

    /// Continues after the batch of a manager is durable.
    pub(super) fn manager_is_durable(&mut self, m: usize) {
        self.managers[m].writing = false;
        self.manager_releases(m);
        self.manager_turn(m);
    }

    /// Lets the effects of a batch leave, if this manager is sure to lead.
    fn manager_releases(&mut self, m: usize) {
        let now = self.now;
        if let Some(e) = &self.managers[m].election {
            let (left, grace, own) = (e.remaining(now), e.remaining_grace(now), e.key);
            if left == 0 && self.plant != PlantedBug::GrantsAfterLease {
                if grace > 0 {
                    return self.leader_waits(m);
                }
                return self.leader_ends(m, "its lease is not certain");
            }
            let leads = self.etcd.store.leader();
            let idle = self.managers[m].effects.is_empty() && self.managers[m].later.is_empty();
            if !idle && let Err(broken) = LeadershipChecker::on_effects(m, own, leads) {
                self.oracle.fail(broken);
            }
            if !idle && let Some(for_ms) = self.managers[m].pause_at_check.take() {
                return self.manager_pauses(m, for_ms, true);
            }
        }
        self.manager_carries_out(m);
        self.manager_may_end(m);
    }

    fn manager_starts(&mut self, m: usize) {
        if self.managers[m].cluster.is_some() || self.managers[m].election.is_some() {
            return;
        }
        if self.managers.len() > 1 {
            return self.standby_starts(m);
        }
        let restored = self.etcd.store.state.next_life();
        self.manager_leads(m, restored);
    }

    /// Begins to lead with the state of an earlier leader.
    pub(super) fn manager_leads(&mut self, m: usize, restored: RestoredCluster) {
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
        self.managers[m].started = self.now;
        self.managers[m].due = None;
        let mut cluster = Cluster::new(settings, restored, Tick(0));
        cluster.compare_passes();
        self.managers[m].cluster = Some(cluster);
        self.manager_steps(m, ClusterEvent::Time);
        self.manager_settles(m);
    }

    /// Kills the daemon: all data that is not durable is lost, and all connections break.
    pub(super) fn manager_dies(&mut self, m: usize, write: LastWrite) {
        let elects = self.managers[m].election.take().is_some();
        let led = self.managers[m].cluster.take().is_some();
        if !led && !elects {
            return;
        }
        if write == LastWrite::Kept && self.managers[m].writing && !elects {
            self.manager_written(m);
        }
        let manager = &mut self.managers[m];
        manager.life += 1;
        manager.writing = false;
        manager.stop = ManagerStop::NotAsked;
        manager.pause_at_check = None;
        manager.effects.clear();
        manager.nodes.clear();
        manager.apps.clear();
        let mut waiting: Vec<(Caller, u64)> =
            std::mem::take(&mut manager.open).into_values().collect();
        waiting.extend(
            manager
                .inbox
                .drain(..)
                .chain(manager.later.drain(..))
                .map(|(caller, number, _)| (caller, number)),
        );
        let held = manager.pause.take().map(|pause| pause.held);
        for event in held.into_iter().flatten() {
            if let SimManagerEvent::Call { caller, number, .. } = event {
                waiting.push((caller, number));
            }
        }
        for (caller, number) in waiting {
            self.reply(caller, number, SimCallResult::Lost);
        }
        if elects {
            self.break_streams_of_manager(m, false);
            return self.process_end_is_noticed(m);
        }
        for stream in self.streams_of(None) {
            self.break_stream(stream, false);
        }
    }

    /// A master may register before the nodes have whose containers it does not know. A container
    /// that an earlier leader granted there is granted again.
    fn note_early_registration(&mut self, m: usize, app: &AppId) {
        let manager = &self.managers[m];
        let is_accepted = manager.effects.iter().rev().any(|effect| {
            matches!(
                effect,
                ClusterEffect::Answer {
                    call,
                    answer: Ok(CallAnswer::Master { .. })
                } if call.0 == manager.calls
            )
        });
        let nodes = manager.cluster.as_ref().map(Cluster::node_table);
        let recovery = nodes.and_then(|nodes| nodes.recovery());
        if let Some(recovery) = recovery.filter(|_| is_accepted) {
            self.oracle.registered_early(app, &recovery.waiting);
        }
    }

    /// Handles waiting inputs, unless a batch is being written.
    pub(super) fn manager_turn(&mut self, m: usize) {
        let manager = &self.managers[m];
        if manager.writing || manager.cluster.is_none() || manager.pause.is_some() {
            return;
        }
        for _ in 0..BATCH {
            let Some((caller, number, input)) = self.managers[m].inbox.pop_front() else {
                break;
            };
            match input {
                SimManagerInput::Call(what) => {
                    self.managers[m].calls += 1;
                    let call = CallId(self.managers[m].calls);
                    self.managers[m].open.insert(call, (caller, number));
                    let registers = if let ClusterCall::RegisterMaster { attempt, .. } = &*what {
                        Some(attempt.app.clone())
                    } else {
                        None
                    };
                    self.manager_steps(m, ClusterEvent::Call { call, what: *what });
                    if let Some(app) = registers {
                        self.note_early_registration(m, &app);
                    }
                }
                SimManagerInput::WatchNode { .. } | SimManagerInput::WatchApp { .. } => {
                    self.managers[m].later.push((caller, number, input))
                }
            }
        }
        let now = self.managers[m].now(self.now);
        if self.managers[m]
            .cluster
            .as_ref()
            .and_then(Cluster::next_deadline)
            .is_some_and(|due| due <= now)
        {
            self.manager_steps(m, ClusterEvent::Time);
        }
        self.manager_settles(m);
    }

    pub(super) fn manager_steps(&mut self, m: usize, event: ClusterEvent) {
        let now = self.managers[m].now(self.now);
        let manager = &mut self.managers[m];
        let (Some(cluster), effects) = (&mut manager.cluster, &mut manager.effects) else {
            return;
        };
        let first = effects.len();
        if let ClusterEvent::Call { what, .. } = &event {
            let words = call_words(what);
            self.diary.borrow_mut().note(self.now, &words);
        }
        cluster.step(now, event, effects);
        cluster.assert_invariants();
        if let Some(over) = shares::beyond_maximum(cluster, &effects[first..]) {
            self.oracle.fail(over);
        }
        for effect in &effects[first..] {
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

    fn manager_settles(&mut self, m: usize) {
        let saves = self.managers[m]
            .effects
            .iter()
            .any(|e| matches!(e, ClusterEffect::Save(_)));
        if saves && self.managers[m].election.is_some() {
            self.managers[m].writing = true;
            return self.commit_effects(m);
        }
        if saves {
            self.managers[m].writing = true;
            let takes = self.chance.between(0, 8);
            if let Some(doom) = self.managers[m].doom.take().filter(|_| !self.is_calm()) {
                self.later(takes / 2, Any::Strike(doom));
            }
            if self.plant == PlantedBug::AnswersBeforeWrite {
                self.manager_answers_too_early(m);
            }
            let life = self.managers[m].life;
            return self.later(takes, Any::Manager(m, SimManagerEvent::Durable { life }));
        }
        self.manager_releases(m);
    }

    fn manager_answers_too_early(&mut self, m: usize) {
        let effects = std::mem::take(&mut self.managers[m].effects);
        let (saves, rest) = effects
            .into_iter()
            .partition(|e| matches!(e, ClusterEffect::Save(_)));
        self.managers[m].effects = rest;
        self.manager_carries_out(m);
        self.managers[m].effects = saves;
    }

    fn manager_written(&mut self, m: usize) {
        for effect in &self.managers[m].effects {
            if let ClusterEffect::Save(save) = effect {
                self.etcd.store.state.save(save);
                if let DurableRecord::State { app, .. } = &**save {
                    self.oracle.saved(app);
                }
            }
        }
    }

    pub(super) fn manager_carries_out(&mut self, m: usize) {
        let mut to_nodes: BTreeMap<NodeId, Vec<(ContainerId, ContainerCommand)>> = BTreeMap::new();
        let mut to_apps: BTreeMap<AppId, Vec<headroom_rm_core::MasterUpdate>> = BTreeMap::new();
        for effect in std::mem::take(&mut self.managers[m].effects) {
            match effect {
                ClusterEffect::Save(_) | ClusterEffect::Log(_) | ClusterEffect::Illegal { .. } => {}
                ClusterEffect::Answer { call, answer } => {
                    let epoch = self.managers[m]
                        .cluster
                        .as_ref()
                        .map(Cluster::epoch)
                        .unwrap_or_default();
                    if let Some((caller, number)) = self.managers[m].open.remove(&call) {
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
                    if let Some(stream) = self.managers[m].apps.remove(&app) {
                        self.break_stream(stream, false);
                    }
                }
            }
        }
        let epoch = self.managers[m]
            .cluster
            .as_ref()
            .map(Cluster::epoch)
            .unwrap_or_default();
        for (node, wants) in to_nodes {
            self.order_to_two(m, epoch, &node, &wants);
            if let Some(stream) = self.managers[m].nodes.get(&node).copied() {
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
            if let Some(stream) = self.managers[m].apps.get(&app).copied() {
                self.send_line(stream, Line::Updates { epoch, updates });
            }
        }
        self.manager_opens_streams(m);
        self.manager_waits(m);
    }

    fn order_to_two(
        &mut self,
        m: usize,
        epoch: Epoch,
        node: &NodeId,
        wants: &[(ContainerId, ContainerCommand)],
    ) {
        if self.plant != PlantedBug::OrderToTwoNodes {
            return;
        }
        let other = self.managers[m]
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
    fn manager_opens_streams(&mut self, m: usize) {
        for (caller, number, input) in std::mem::take(&mut self.managers[m].later) {
            let Some(cluster) = &self.managers[m].cluster else {
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
                        let wants = cluster.commands_for(&node);
                        self.open_stream(m, stream, Reader::Host(node.clone(), life));
                        if let Some(before) = self.managers[m].nodes.insert(node, stream) {
                            self.break_stream(before, false);
                        }
                        self.send_line(
                            stream,
                            Line::Desired {
                                epoch,
                                full: false,
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
                            self.open_stream(m, stream, reader);
                            if let Some(before) = self.managers[m].apps.insert(app, stream) {
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

    fn manager_waits(&mut self, m: usize) {
        let due = self.managers[m]
            .cluster
            .as_ref()
            .and_then(Cluster::next_deadline);
        if due != self.managers[m].due {
            self.managers[m].due = due;
            let (life, started) = (self.managers[m].life, self.managers[m].started);
            if let Some(due) = due {
                self.at(
                    started.saturating_add(due.0),
                    Any::Manager(m, SimManagerEvent::Due { life }),
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

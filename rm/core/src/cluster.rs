//! The cluster: owner of every table, and the one function that changes them.
//!
//! What an event does is told in `apps`, `masters`, `nodes` and `leases`; what is placed where in [`crate::sched`].
//!
//! *Architecture Invariant*: after every [`Cluster::step`] the invariants of [`crate::check`] hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, Epoch, NodeId, Reason, RequestId, Resource, Tick, UnixMillis};

use crate::app::App;
use crate::container::Container;
use crate::event::{
    Answer, Call, CallId, Effect, Event, Granted, Level, LogLine, NewApp, Object, QueuesFrom, Refusal, Update, Verdict, Want,
    Words,
};
use crate::explain::Said;
use crate::history::{Finished, History};
use crate::ledger::Ledger;
use crate::node::Node;
use crate::queue::spec::Tree;
use crate::queue::{Queues, Waiter};
use crate::save::{NodeMark, Save, SavedState};
use crate::sched::claim::Claims;
use crate::sched::index::FreeIndex;
use crate::sched::reserve::Reservations;
use crate::table::{Sorted, Table};
use crate::tags::NodeTags;
use crate::timer::{Key, Timers};

/// Most updates a master may leave unacknowledged before it gets no more containers.
pub const MAX_UNACKED: usize = 10_000;
/// Most requests of one application.
pub const MAX_REQUESTS: usize = 10_000;
/// Most applications that have not ended.
pub const MAX_LIVE_APPS: usize = 10_000;

/// What an operator can set. The defaults are those of the shipped configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Silence after which a node gets no more work.
    pub suspect: Duration,
    /// Silence after which a node is shown as unreachable.
    pub unreachable: Duration,
    /// Silence after which a node is given up.
    pub lost: Duration,
    /// Silence after which a master's attempt has failed.
    pub master_silence: Duration,
    /// After a restart: how long grants wait for nodes to come back.
    pub recovery_wait: Duration,
    /// How long a master that said it is done may take to leave.
    pub master_linger: Duration,
    /// Wall-clock time at tick 0.
    pub unix_at_zero: UnixMillis,
    /// Ended applications that are kept.
    pub keep_apps: usize,
    /// How long they are kept.
    pub keep_age: Duration,
    /// Ended containers that are kept.
    pub keep_containers: usize,
    /// The configured tree of queues; one that was set at run time goes before it.
    pub queues: Tree,
    /// How long the master of a container that is to be preempted is warned.
    pub preempt_warning: Duration,
    /// How often somebody may lose containers to preemption.
    pub preempt_every: Duration,
    /// Most of the cluster's memory that one round of preemption takes. Thousandths.
    pub preempt_part: u32,
    /// How long a request waits before a node is reserved for it.
    pub reserve_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            suspect: Duration::from_secs(3),
            unreachable: Duration::from_secs(10),
            lost: Duration::from_secs(30),
            master_silence: Duration::from_secs(30),
            recovery_wait: Duration::from_secs(10),
            master_linger: Duration::from_secs(5),
            unix_at_zero: UnixMillis(0),
            keep_apps: 500,
            keep_age: Duration::from_secs(30 * 86_400),
            keep_containers: 5000,
            queues: Tree::default(),
            preempt_warning: Duration::from_secs(15),
            preempt_every: Duration::from_secs(3),
            preempt_part: 100,
            reserve_after: Duration::from_secs(2),
        }
    }
}

/// What was saved by an earlier life.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The epoch of the new life: one more than any before.
    pub epoch: Epoch,
    /// Highest number ever given to an application.
    pub last_app: u32,
    /// All applications kept.
    pub apps: Vec<RestoredApp>,
    /// Containers that are over, oldest first.
    pub finished: Vec<Finished>,
    /// Nodes that were members.
    pub nodes: Vec<NodeId>,
    /// What operators decided about nodes.
    pub marks: Vec<(NodeId, NodeMark)>,
    /// What operators say of nodes.
    pub tags: Vec<(NodeId, NodeTags)>,
    /// The tree of queues that was set at run time, with its generation.
    pub queues: Option<(u64, Tree)>,
}

/// One application as saved.
#[derive(Clone, Debug)]
pub struct RestoredApp {
    /// Its id.
    pub id: AppId,
    /// As submitted.
    pub spec: Arc<NewApp>,
    /// When.
    pub submitted: UnixMillis,
    /// Where it was.
    pub state: SavedState,
}

/// After a restart: nodes that may still have containers nobody has told of.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Who has not come back.
    pub waiting: BTreeSet<NodeId>,
    /// Until when they are waited for.
    pub until: Tick,
}

/// All there is.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) epoch: Epoch,
    pub(crate) apps: Sorted<AppId, App>,
    pub(crate) nodes: Sorted<NodeId, Node>,
    pub(crate) containers: Table<ContainerId, Container>,
    pub(crate) history: History,
    pub(crate) ledger: Ledger,
    pub(crate) queue: Queues,
    /// Whose tree that is.
    pub(crate) queues_from: QueuesFrom,
    pub(crate) index: FreeIndex,
    pub(crate) reservations: Reservations,
    /// The application and how many of its requests were noted last of those that wait.
    pub(crate) noted: Option<(AppId, usize)>,
    /// What member nodes offer in all, by memory: answers whether something could ever fit.
    pub(crate) offers: BTreeSet<(headroom_types::Bytes, NodeId)>,
    /// What operators decided about nodes, whether or not they are here.
    pub(crate) marks: BTreeMap<NodeId, NodeMark>,
    /// What operators say of nodes, whether or not they are here.
    pub(crate) tags: BTreeMap<NodeId, NodeTags>,
    /// Room that is being made by preemption.
    pub(crate) claims: Claims,
    pub(crate) timers: Timers,
    pub(crate) keys: BTreeMap<String, AppId>,
    pub(crate) ended: VecDeque<AppId>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) last_app: u32,
    /// Numbers given out for applications that have not been submitted. Not saved: a later life gives them out again.
    pub(crate) reserved: BTreeSet<u32>,
    pub(crate) container_seq: u64,
    pub(crate) arrivals: u64,
    pub(crate) room_changed: bool,
    /// Nodes on which something went, and whose place in the index is still the one before.
    pub(crate) moved: Vec<NodeId>,
    /// Containers that were asked to end and have not, by node.
    pub(crate) stopping: BTreeMap<NodeId, BTreeSet<ContainerId>>,
    /// A size that some open member offers; forgotten whenever what is offered changes.
    pub(crate) roomy: Option<(headroom_types::Bytes, headroom_types::Cpus)>,
    /// Empty; kept for its space.
    pub(crate) acts: Vec<crate::container::Act>,
}

/// The moment of a step and where its effects go.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    pub(crate) now: Tick,
    pub(crate) wall: UnixMillis,
    pub(crate) out: &'a mut Vec<Effect>,
}

impl Ctx<'_> {
    pub(crate) fn save(&mut self, save: Save) {
        self.out.push(Effect::Save(Box::new(save)));
    }
    pub(crate) fn tell(&mut self, node: &NodeId, container: &ContainerId, want: Want) {
        self.out.push(Effect::Tell { node: node.clone(), container: container.clone(), want });
    }
    pub(crate) fn update(&mut self, app: &AppId, update: Update) {
        self.out.push(Effect::Update { app: app.clone(), update });
    }
    pub(crate) fn illegal(&mut self, what: String) {
        self.out.push(Effect::Illegal { what });
    }
    pub(crate) fn log(&mut self, line: LogLine) {
        self.out.push(Effect::Log(line));
    }
    pub(crate) fn log_app(&mut self, level: Level, reason: Reason, app: &AppId, message: String) {
        self.log(LogLine { level, reason, object: Object::App(app.clone()), node: None, words: Words::Text(message) });
    }
    pub(crate) fn log_node(&mut self, level: Level, reason: Reason, node: &NodeId, message: String) {
        let object = Object::Node(node.clone());
        self.log(LogLine { level, reason, object, node: Some(node.clone()), words: Words::Text(message) });
    }
}

/// What a call comes to, before the pass that follows it.
pub(crate) enum Reply {
    /// Known.
    Ready(Answer),
    /// The verdict follows from the pass.
    Verdict(AppId, RequestId),
    /// So do these; those that can never fit are known already.
    Verdicts(AppId, Vec<(RequestId, Option<Verdict>)>),
}

impl Cluster {
    /// A cluster with what an earlier life saved. The first [`Event::Time`] after it should come at once.
    pub fn new(settings: Settings, restored: Restored, now: Tick) -> Self {
        let mut history = History::new(settings.keep_containers);
        for finished in restored.finished {
            history.push(Arc::new(finished));
        }
        let until = now.plus(settings.recovery_wait);
        let waiting: BTreeSet<NodeId> = restored.nodes.into_iter().collect();
        let queues_from = if restored.queues.is_some() { QueuesFrom::Operator } else { QueuesFrom::Settings };
        let (generation, tree) = restored.queues.unwrap_or_else(|| (0, settings.queues.clone()));
        let mut cluster = Cluster {
            settings,
            epoch: restored.epoch,
            apps: Sorted::default(),
            nodes: Sorted::default(),
            containers: Table::default(),
            history,
            ledger: Ledger::default(),
            queue: Queues::new(tree, generation),
            queues_from,
            index: FreeIndex::default(),
            reservations: Reservations::default(),
            noted: None,
            offers: BTreeSet::new(),
            marks: BTreeMap::new(),
            tags: restored.tags.into_iter().collect(),
            claims: Claims::default(),
            timers: Timers::default(),
            keys: BTreeMap::new(),
            ended: VecDeque::new(),
            recovery: None,
            last_app: restored.last_app,
            reserved: BTreeSet::new(),
            container_seq: 0,
            arrivals: 0,
            room_changed: false,
            moved: Vec::new(),
            stopping: BTreeMap::new(),
            roomy: None,
            acts: Vec::new(),
        };
        cluster.ledger.regroup(&cluster.queue.parents(), |_| None);
        cluster.restore_marks(restored.marks, now);
        let restarted = !restored.apps.is_empty() || !waiting.is_empty();
        for app in restored.apps {
            cluster.restore_app(app, now);
        }
        if restarted {
            cluster.timers.set(Key::Recovery, if waiting.is_empty() { now } else { until });
            cluster.recovery = Some(Recovery { waiting, until });
        }
        cluster
    }

    /// Takes in one event at the moment `now`; what follows is added to `out`.
    pub fn step(&mut self, now: Tick, event: Event, out: &mut Vec<Effect>) {
        let wall = self.wall(now);
        let mut ctx = Ctx { now, wall, out };
        match event {
            Event::Time => {
                self.fire(&mut ctx);
                self.forget_old(&mut ctx);
            }
            Event::Stalled(by) => self.stalled(by),
            Event::Call { call, what } => {
                let reply = self.call(what, &mut ctx);
                self.schedule(&mut ctx);
                self.answer(call, reply, &mut ctx);
                return;
            }
        }
        self.schedule(&mut ctx);
    }

    /// The wall clock's time at a moment.
    pub(crate) fn wall(&self, now: Tick) -> UnixMillis {
        UnixMillis(self.settings.unix_at_zero.0.saturating_add(now.0))
    }

    /// When the next deadline is due.
    pub fn next_deadline(&self) -> Option<Tick> {
        self.timers.next()
    }

    fn call(&mut self, what: Call, ctx: &mut Ctx<'_>) -> Result<Reply, Refusal> {
        match what {
            Call::Submit(app) => self.submit(*app, None, ctx).map(Reply::Ready),
            Call::Reserve => Ok(Reply::Ready(self.reserve_number())),
            Call::SubmitAs { number, app } => self.submit(*app, Some(number), ctx).map(Reply::Ready),
            Call::Kill { app, reason } => self.kill(&app, reason, ctx).map(Reply::Ready),
            Call::Purge { app, how } => self.purge(&app, how, ctx).map(Reply::Ready),
            Call::RegisterMaster { attempt, url } => self.register_master(&attempt, url, ctx).map(Reply::Ready),
            Call::Sync(sync) => self.sync(*sync, ctx),
            Call::Ask { app, ask, how } => self.ask(&app, *ask, how, ctx),
            Call::Withdraw { app, request } => self.withdraw(&app, &request).map(Reply::Ready),
            Call::Finish { attempt, outcome, diagnostics } => self.finish(&attempt, outcome, diagnostics, ctx).map(Reply::Ready),
            Call::Stop { container } => self.stop_container(&container, ctx).map(Reply::Ready),
            Call::RegisterNode { node, facts } => self.register_node(&node, *facts, ctx).map(Reply::Ready),
            Call::Report { node, report } => self.report(&node, *report, ctx).map(Reply::Ready),
            Call::Resize { container, version, size, how } => self.resize(&container, version, size, how, ctx).map(Reply::Ready),
            Call::SetQueues { tree, generation, how } => self.set_queues(*tree, generation, how, ctx).map(Reply::Ready),
            Call::SetGate { queue, gate } => self.set_gate(&queue, gate, ctx).map(Reply::Ready),
            Call::ChangeApp { app, queue, priority, lifetime } => {
                self.change_app(&app, queue, priority, lifetime, ctx).map(Reply::Ready)
            }
            Call::Order { app, order } => self.order(&app, order, ctx).map(Reply::Ready),
            Call::Drain { node, within, reason, then } => self.drain(&node, within, reason, then, ctx).map(Reply::Ready),
            Call::Undrain { node } => self.undrain(&node, ctx).map(Reply::Ready),
            Call::Tag { node, change, how } => self.tag(&node, &change, how, ctx).map(Reply::Ready),
            Call::Configure(settings) => self.configure(*settings, ctx).map(Reply::Ready),
        }
    }

    fn answer(&mut self, call: CallId, reply: Result<Reply, Refusal>, ctx: &mut Ctx<'_>) {
        let answer = reply.map(|reply| match reply {
            Reply::Ready(answer) => answer,
            Reply::Verdict(app, request) => {
                Answer::Asked { verdict: self.decided(&app, &request, &mut Said::default(), ctx.now) }
            }
            Reply::Verdicts(app, asks) => {
                let stop = self.apps.get(&app).is_none_or(|a| a.state.is_ending());
                let mut said = Said::default();
                let verdicts = asks.into_iter().map(|(request, known)| {
                    let verdict = known.unwrap_or_else(|| self.decided(&app, &request, &mut said, ctx.now));
                    (request, verdict)
                });
                Answer::Synced { verdicts: verdicts.collect(), stop }
            }
        });
        ctx.out.push(Effect::Answer { call, answer });
    }

    fn fire(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(key) = self.timers.due(ctx.now) {
            self.reindex_moved(); // a deadline may ask where there is room
            self.reservations.doubt_all();
            match key {
                Key::Recovery => self.recovery_over(ctx),
                Key::Node(node) => self.node_silent(&node, ctx),
                Key::Master(app) => self.master_silent(&app, ctx),
                Key::Linger(app) => self.stop_masters(&app, ctx),
                Key::Resize(container) => self.resize_overdue(&container, ctx),
                Key::Drain(node) => self.drain_due(&node, ctx),
                Key::Lifetime(app) => self.lifetime_over(&app, ctx),
                Key::Preempt => self.preempt(ctx),
                Key::Claim(number) => self.claim_due(number, ctx),
                Key::Reach(app, request) => self.reach_farther(&app, &request, ctx),
                Key::Reserve => self.review_reservations(ctx),
                Key::Deadline(app, request) => self.deadline_over(&app, &request, ctx),
            }
        }
    }

    fn stalled(&mut self, by: Duration) {
        self.timers.postpone(by);
        for node in self.nodes.values_mut() {
            node.heard = node.heard.plus(by);
        }
    }

    /// This life's number.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
    /// All applications kept.
    pub fn apps(&self) -> impl Iterator<Item = &App> {
        self.apps.values()
    }
    /// One application.
    pub fn app(&self, id: &AppId) -> Option<&App> {
        self.apps.get(id)
    }
    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }
    /// One node.
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }
    /// All containers whose end is not known to their application; in an order that follows from what came and went.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }
    /// One of them.
    pub fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }
    /// Containers that are over.
    pub fn history(&self) -> &History {
        &self.history
    }
    /// Who has how much.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    /// Whether grants still wait for nodes to come back, for whom, and until when.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }
    /// The requests that wait, in the order they are served.
    pub fn waiting(&self) -> impl Iterator<Item = (&App, &RequestId)> {
        let all = self.queue.all(&self.ledger).into_iter();
        let known = |waiter: Waiter| {
            let app = self.apps.get(&waiter.app)?;
            Some((app, app.requests.get_key_value(&waiter.request?)?.0))
        };
        all.filter_map(known)
    }
    /// Updates of an application after `cursor`. `None` when some of them are no longer kept.
    pub fn updates(&self, app: &AppId, cursor: u64) -> Option<Vec<Update>> {
        let updates = &self.apps.get(app)?.updates;
        (cursor >= updates.acked()).then(|| updates.after(cursor).cloned().collect())
    }
    /// Everything a node should have: what is not in it is not wanted there.
    pub fn desired(&self, node: &NodeId) -> Vec<(ContainerId, Want)> {
        let ids = self.nodes.get(node).map(|n| n.containers.iter()).into_iter().flatten();
        ids.filter_map(|id| self.containers.get(id)).map(|c| (c.id.clone(), wanted(c))).collect()
    }
    /// The largest container that any member node could ever give.
    pub fn largest(&self) -> Option<(&NodeId, &Resource)> {
        let (_, node) = self.offers.last()?;
        Some((node, &self.ledger.node(node)?.offers))
    }
    /// Containers of an application that are alive, its master's left out.
    pub(crate) fn granted(&self, app: &App) -> Vec<Granted> {
        let alive = app.containers.iter().filter_map(|id| self.containers.get(id)).filter(|c| c.state.is_alive());
        alive.filter_map(|c| Some(granted(c, c.request.clone()?))).collect()
    }
}

/// A container as its master is told.
pub(crate) fn granted(c: &Container, request: RequestId) -> Granted {
    Granted { container: c.id.clone(), request, node: c.node.clone(), resource: c.resource.clone(), attempt: c.attempt }
}

fn wanted(c: &Container) -> Want {
    use crate::container::State;
    match &c.state {
        // a node that ends it on its own account knows best why
        State::Allocated | State::Launching | State::Running | State::Stopping { asked: None } => Want::Run(Box::new(c.order())),
        State::Stopping { asked: Some(cause) } => Want::Stop { cause: *cause },
        // its report is still wanted, and if it runs after all, it must not
        State::Exited { .. } | State::Done { .. } => Want::Stop { cause: headroom_types::StopCause::Asked },
    }
}

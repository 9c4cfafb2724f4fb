//! The cluster: owner of every table, with [`Cluster::step`], the one function that changes them.
//!
//! The modules `apps`, `masters`, `nodes` and `grant` handle the events; [`crate::sched`] chooses
//! nodes for containers.
//!
//! *Architecture Invariant*: after every [`Cluster::step`] the invariants of [`crate::check`] hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, Epoch, NodeId, RequestId, Resource, Tick, UnixMillis};

use crate::app::ClusterApplication;
use crate::container::Container;
use crate::event::{
    AppSubmission, CallAnswer, CallId, CallRefusal, ClusterCall, ClusterEffect, ClusterEvent,
    ContainerCommand, GrantedContainer, MasterUpdate, QueuesFrom, RequestVerdict,
};
use crate::explain::SentenceCache;
use crate::history::{ContainerHistory, EndedContainer};
use crate::ledger::ResourceLedger;
use crate::node::ClusterNode;
use crate::node_tags::NodeTags;
use crate::queue::{PlacementWaiter, QueueTree, SchedulerQueues};
use crate::save::{SavedDrainMark, SavedState};
use crate::sched::claim::PreemptionClaims;
use crate::sched::index::FreeIndex;
use crate::sched::reservation::Reservations;
use crate::settings::ClusterSettings;
use crate::step_context::StepContext;
use crate::table::{HashedTable, SortedTable};
use crate::timer::{TimerKey, TimerQueue};

/// Most unacknowledged updates of a master; beyond it, the application gets no more containers.
pub const MAX_UNACKED: usize = 10_000;
/// Most requests of one application.
pub const MAX_REQUESTS: usize = 10_000;
/// Most applications that have not ended.
pub const MAX_LIVE_APPS: usize = 10_000;

/// State that an earlier incarnation saved.
#[derive(Clone, Debug, Default)]
pub struct RestoredCluster {
    /// Epoch of the new incarnation: one more than every earlier epoch.
    pub epoch: Epoch,
    /// Highest application number that was ever used.
    pub last_app: u32,
    /// All kept applications.
    pub apps: Vec<RestoredApp>,
    /// Ended containers, oldest first.
    pub finished: Vec<EndedContainer>,
    /// Nodes that were members.
    pub nodes: Vec<NodeId>,
    /// Drain marks of operators.
    pub marks: Vec<(NodeId, SavedDrainMark)>,
    /// Labels, attributes, taints and cordons of operators.
    pub tags: Vec<(NodeId, NodeTags)>,
    /// Queue tree that was set at run time, with its generation.
    pub queues: Option<(u64, QueueTree)>,
}

/// A saved application.
#[derive(Clone, Debug)]
pub struct RestoredApp {
    /// Its id.
    pub id: AppId,
    /// Application as submitted.
    pub spec: Arc<AppSubmission>,
    /// Submission time.
    pub submitted: UnixMillis,
    /// Saved state.
    pub state: SavedState,
}

/// Recovery after a restart: nodes may still run containers that they have not reported.
#[derive(Clone, Debug)]
pub struct ClusterRecovery {
    /// Nodes that have not registered again.
    pub waiting: BTreeSet<NodeId>,
    /// End of the wait.
    pub until: Tick,
}

/// State of the whole cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) settings: ClusterSettings,
    pub(crate) epoch: Epoch,
    pub(crate) apps: SortedTable<AppId, ClusterApplication>,
    pub(crate) nodes: SortedTable<NodeId, ClusterNode>,
    pub(crate) containers: HashedTable<ContainerId, Container>,
    pub(crate) history: ContainerHistory,
    pub(crate) ledger: ResourceLedger,
    pub(crate) queue: SchedulerQueues,
    /// Source of the queue tree.
    pub(crate) queues_from: QueuesFrom,
    pub(crate) index: FreeIndex,
    pub(crate) reservations: Reservations,
    /// Application and request number where the last review of waiting requests stopped.
    pub(crate) noted: Option<(AppId, usize)>,
    /// Capacities of member nodes, ordered by memory; used to find infeasible requests.
    pub(crate) offers: BTreeSet<(headroom_types::Bytes, NodeId)>,
    /// Drain marks, also of nodes that are not registered.
    pub(crate) marks: BTreeMap<NodeId, SavedDrainMark>,
    /// Labels, attributes, taints and cordons of operators, also of nodes that are not registered.
    pub(crate) tags: BTreeMap<NodeId, NodeTags>,
    /// Claims of preemption.
    pub(crate) claims: PreemptionClaims,
    pub(crate) timers: TimerQueue,
    pub(crate) keys: BTreeMap<String, AppId>,
    pub(crate) ended: VecDeque<AppId>,
    pub(crate) recovery: Option<ClusterRecovery>,
    pub(crate) last_app: u32,
    /// Application numbers that are reserved and not used. Not saved: a later incarnation gives
    /// them out again.
    pub(crate) reserved: BTreeSet<u32>,
    pub(crate) container_seq: u64,
    pub(crate) arrivals: u64,
    pub(crate) room_changed: bool,
    /// Nodes whose allocation has changed and whose entry in the index is out of date.
    pub(crate) moved: Vec<NodeId>,
    /// Containers that must end and have not ended, by node.
    pub(crate) stopping: BTreeMap<NodeId, BTreeSet<ContainerId>>,
    /// A size that some member node can hold; reset whenever the offered resources change.
    pub(crate) roomy: Option<(headroom_types::Bytes, headroom_types::Cpus)>,
    /// Empty between steps; kept for its allocation.
    pub(crate) acts: Vec<crate::container::ContainerAction>,
}

/// Result of a call before the scheduling pass that follows it.
pub(crate) enum PendingReply {
    /// The answer is complete.
    Ready(CallAnswer),
    /// The verdict of one request follows from the pass.
    Verdict(AppId, RequestId),
    /// The verdicts of these requests follow from the pass; `Some` for infeasible requests.
    Verdicts(AppId, Vec<(RequestId, Option<RequestVerdict>)>),
}

impl Cluster {
    /// Creates a cluster from the state of an earlier incarnation. The first [`ClusterEvent::Time`]
    /// must follow immediately.
    pub fn new(settings: ClusterSettings, restored: RestoredCluster, now: Tick) -> Self {
        let mut history = ContainerHistory::new(settings.keep_containers);
        for finished in restored.finished {
            history.push(Arc::new(finished));
        }
        let until = now.plus(settings.recovery_wait);
        let waiting: BTreeSet<NodeId> = restored.nodes.into_iter().collect();
        let queues_from = if restored.queues.is_some() {
            QueuesFrom::Operator
        } else {
            QueuesFrom::Settings
        };
        let (generation, tree) = restored
            .queues
            .unwrap_or_else(|| (0, settings.queues.clone()));
        let mut cluster = Cluster {
            settings,
            epoch: restored.epoch,
            apps: SortedTable::default(),
            nodes: SortedTable::default(),
            containers: HashedTable::default(),
            history,
            ledger: ResourceLedger::default(),
            queue: SchedulerQueues::new(tree, generation),
            queues_from,
            index: FreeIndex::default(),
            reservations: Reservations::default(),
            noted: None,
            offers: BTreeSet::new(),
            marks: BTreeMap::new(),
            tags: restored.tags.into_iter().collect(),
            claims: PreemptionClaims::default(),
            timers: TimerQueue::default(),
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
            cluster.timers.set(
                TimerKey::Recovery,
                if waiting.is_empty() { now } else { until },
            );
            cluster.recovery = Some(ClusterRecovery { waiting, until });
        }
        cluster
    }

    /// Processes one event at the time `now` and appends the effects to `out`.
    pub fn step(&mut self, now: Tick, event: ClusterEvent, out: &mut Vec<ClusterEffect>) {
        let wall = self.wall(now);
        let mut ctx = StepContext { now, wall, out };
        match event {
            ClusterEvent::Time => {
                self.fire(&mut ctx);
                self.forget_old(&mut ctx);
            }
            ClusterEvent::Stalled(by) => self.stalled(by),
            ClusterEvent::Call { call, what } => {
                let reply = self.call(what, &mut ctx);
                self.schedule(&mut ctx);
                self.answer(call, reply, &mut ctx);
                return;
            }
        }
        self.schedule(&mut ctx);
    }

    /// Wall-clock time at a tick.
    pub(crate) fn wall(&self, now: Tick) -> UnixMillis {
        UnixMillis(self.settings.unix_at_zero.0.saturating_add(now.0))
    }

    /// Time of the next deadline.
    pub fn next_deadline(&self) -> Option<Tick> {
        self.timers.next()
    }

    fn call(
        &mut self,
        what: ClusterCall,
        ctx: &mut StepContext<'_>,
    ) -> Result<PendingReply, CallRefusal> {
        match what {
            ClusterCall::Submit(app) => self.submit(*app, None, ctx).map(PendingReply::Ready),
            ClusterCall::Reserve => Ok(PendingReply::Ready(self.reserve_number())),
            ClusterCall::SubmitAs { number, app } => self
                .submit(*app, Some(number), ctx)
                .map(PendingReply::Ready),
            ClusterCall::Kill { app, reason } => {
                self.kill(&app, reason, ctx).map(PendingReply::Ready)
            }
            ClusterCall::Purge { app, how } => self.purge(&app, how, ctx).map(PendingReply::Ready),
            ClusterCall::RegisterMaster { attempt, url } => self
                .register_master(&attempt, url, ctx)
                .map(PendingReply::Ready),
            ClusterCall::Sync(sync) => self.sync(*sync, ctx),
            ClusterCall::Ask { app, ask, how } => self.ask(&app, *ask, how, ctx),
            ClusterCall::Withdraw { app, request } => {
                self.withdraw(&app, &request).map(PendingReply::Ready)
            }
            ClusterCall::Finish {
                attempt,
                outcome,
                diagnostics,
            } => self
                .finish(&attempt, outcome, diagnostics, ctx)
                .map(PendingReply::Ready),
            ClusterCall::Stop { container } => self
                .stop_container(&container, ctx)
                .map(PendingReply::Ready),
            ClusterCall::RegisterNode { node, facts } => self
                .register_node(&node, *facts, ctx)
                .map(PendingReply::Ready),
            ClusterCall::Report { node, report } => {
                self.report(&node, *report, ctx).map(PendingReply::Ready)
            }
            ClusterCall::Resize {
                container,
                version,
                size,
                how,
            } => self
                .resize(&container, version, size, how, ctx)
                .map(PendingReply::Ready),
            ClusterCall::SetQueues {
                tree,
                generation,
                how,
            } => self
                .set_queues(*tree, generation, how, ctx)
                .map(PendingReply::Ready),
            ClusterCall::SetQueueState { queue, state } => self
                .set_queue_state(&queue, state, ctx)
                .map(PendingReply::Ready),
            ClusterCall::ChangeApp {
                app,
                queue,
                priority,
                lifetime,
            } => self
                .change_app(&app, queue, priority, lifetime, ctx)
                .map(PendingReply::Ready),
            ClusterCall::Order { app, order } => {
                self.order(&app, order, ctx).map(PendingReply::Ready)
            }
            ClusterCall::Drain {
                node,
                within,
                reason,
                then,
            } => self
                .drain(&node, within, reason, then, ctx)
                .map(PendingReply::Ready),
            ClusterCall::Undrain { node } => self.undrain(&node, ctx).map(PendingReply::Ready),
            ClusterCall::Tag { node, change, how } => {
                self.tag(&node, &change, how, ctx).map(PendingReply::Ready)
            }
            ClusterCall::Configure(settings) => {
                self.configure(*settings, ctx).map(PendingReply::Ready)
            }
        }
    }

    fn answer(
        &mut self,
        call: CallId,
        reply: Result<PendingReply, CallRefusal>,
        ctx: &mut StepContext<'_>,
    ) {
        let answer = reply.map(|reply| match reply {
            PendingReply::Ready(answer) => answer,
            PendingReply::Verdict(app, request) => CallAnswer::Asked {
                verdict: self.decided(&app, &request, &mut SentenceCache::default(), ctx.now),
            },
            PendingReply::Verdicts(app, asks) => {
                let stop = self.apps.get(&app).is_none_or(|a| a.state.is_ending());
                let mut said = SentenceCache::default();
                let verdicts = asks.into_iter().map(|(request, known)| {
                    let verdict =
                        known.unwrap_or_else(|| self.decided(&app, &request, &mut said, ctx.now));
                    (request, verdict)
                });
                CallAnswer::Synced {
                    verdicts: verdicts.collect(),
                    stop,
                }
            }
        });
        ctx.out.push(ClusterEffect::Answer { call, answer });
    }

    fn fire(&mut self, ctx: &mut StepContext<'_>) {
        while let Some(key) = self.timers.due(ctx.now) {
            self.reindex_moved(); // a timer's action may need current free capacities
            self.reservations.mark_all_dirty();
            match key {
                TimerKey::Recovery => self.recovery_over(ctx),
                TimerKey::Node(node) => self.node_silent(&node, ctx),
                TimerKey::Master(app) => self.master_silent(&app, ctx),
                TimerKey::Linger(app) => self.stop_masters(&app, ctx),
                TimerKey::Relaunch(app) => self.enqueue_master(&app),
                TimerKey::Resize(container) => self.resize_overdue(&container, ctx),
                TimerKey::Drain(node) => self.drain_due(&node, ctx),
                TimerKey::Lifetime(app) => self.lifetime_over(&app, ctx),
                TimerKey::Preempt => self.preempt(ctx),
                TimerKey::Claim(number) => self.claim_due(number, ctx),
                TimerKey::Reach(app, request) => self.relax_preference(&app, &request, ctx),
                TimerKey::Reserve => self.review_reservations(ctx),
                TimerKey::Deadline(app, request) => self.deadline_over(&app, &request, ctx),
            }
        }
    }

    fn stalled(&mut self, by: Duration) {
        self.timers.postpone(by);
        for node in self.nodes.values_mut() {
            node.heard = node.heard.plus(by);
        }
    }

    /// Epoch of this incarnation.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
    /// All kept applications.
    pub fn apps(&self) -> impl Iterator<Item = &ClusterApplication> {
        self.apps.values()
    }
    /// Looks up an application.
    pub fn app(&self, id: &AppId) -> Option<&ClusterApplication> {
        self.apps.get(id)
    }
    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.values()
    }
    /// Looks up a node.
    pub fn node(&self, id: &NodeId) -> Option<&ClusterNode> {
        self.nodes.get(id)
    }
    /// All containers whose end the application has not acknowledged. The order depends on
    /// insertions and removals.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }
    /// Looks up a container.
    pub fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }
    /// History of ended containers.
    pub fn history(&self) -> &ContainerHistory {
        &self.history
    }
    /// Allocated resources.
    pub fn ledger(&self) -> &ResourceLedger {
        &self.ledger
    }
    /// Recovery after a restart, while grants wait for nodes.
    pub fn recovery(&self) -> Option<&ClusterRecovery> {
        self.recovery.as_ref()
    }
    /// Waiting requests in scheduling order.
    pub fn waiting(&self) -> impl Iterator<Item = (&ClusterApplication, &RequestId)> {
        let all = self.queue.all(&self.ledger).into_iter();
        let known = |waiter: PlacementWaiter| {
            let app = self.apps.get(&waiter.app)?;
            Some((app, app.requests.get_key_value(&waiter.request?)?.0))
        };
        all.filter_map(known)
    }
    /// Updates of an application after `cursor`. `None` when some of them are no longer kept.
    pub fn updates(&self, app: &AppId, cursor: u64) -> Option<Vec<MasterUpdate>> {
        let updates = &self.apps.get(app)?.updates;
        (cursor >= updates.acked()).then(|| updates.after(cursor).cloned().collect())
    }
    /// Desired containers of a node; the node stops every other container.
    pub fn desired(&self, node: &NodeId) -> Vec<(ContainerId, ContainerCommand)> {
        let ids = self
            .nodes
            .get(node)
            .map(|n| n.containers.iter())
            .into_iter()
            .flatten();
        ids.filter_map(|id| self.containers.get(id))
            .map(|c| (c.id.clone(), wanted(c)))
            .collect()
    }
    /// Largest container that any member node could ever hold.
    pub fn largest(&self) -> Option<(&NodeId, &Resource)> {
        let (_, node) = self.offers.last()?;
        Some((node, &self.ledger.node(node)?.offers))
    }
    /// Live containers of an application, without its master's.
    pub(crate) fn granted(&self, app: &ClusterApplication) -> Vec<GrantedContainer> {
        let alive = app
            .containers
            .iter()
            .filter_map(|id| self.containers.get(id))
            .filter(|c| c.state.is_alive());
        alive
            .filter_map(|c| Some(granted(c, c.request.clone()?)))
            .collect()
    }
}

/// Converts a container into the form that its master receives.
pub(crate) fn granted(c: &Container, request: RequestId) -> GrantedContainer {
    GrantedContainer {
        container: c.id.clone(),
        request,
        node: c.node.clone(),
        resource: c.resource.clone(),
        attempt: c.attempt,
    }
}

fn wanted(c: &Container) -> ContainerCommand {
    use crate::container::ContainerState;
    match &c.state {
        // a node that stops a container by itself knows the cause best
        ContainerState::Allocated
        | ContainerState::Launching
        | ContainerState::Running
        | ContainerState::Stopping { asked: None } => ContainerCommand::Run(Box::new(c.order())),
        ContainerState::Stopping { asked: Some(cause) } => ContainerCommand::Stop { cause: *cause },
        // its report is still needed, and it must not run
        ContainerState::Exited { .. } | ContainerState::Done { .. } => ContainerCommand::Stop {
            cause: headroom_types::StopCause::Asked,
        },
    }
}

//! The cluster: the owners of its state, and [`Cluster::step`], the one function that changes it.
//!
//! The applications, the nodes, the allocations, the queues and the state of the scheduler are
//! values of their own. The modules `apps`, `masters`, `nodes` and `grant` handle the events, and
//! connect these values; [`crate::sched`] chooses nodes for containers.
//!
//! *Architecture Invariant*: after every [`Cluster::step`] the invariants of [`crate::check`] hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use headroom_types::{AppId, ContainerId, Epoch, NodeId, RequestId, StopCause, Tick, UnixMillis};

use crate::allocations::Allocations;
use crate::app::ClusterApplication;
use crate::applications::Applications;
use crate::attempt;
use crate::container::{Container, ContainerState};
use crate::event::{
    AppSubmission, CallAnswer, CallId, CallRefusal, ClusterCall, ClusterEffect, ClusterEvent,
    ContainerCommand, MasterUpdate, QueuesFrom, RequestVerdict,
};
use crate::explain::SentenceCache;
use crate::history::{ContainerHistory, EndedContainer};
use crate::ledger::ResourceLedger;
use crate::node::ClusterNode;
use crate::node_table::{ClusterRecovery, NodeTable};
use crate::node_tags::NodeTags;
use crate::queue::{PlacementWaiter, QueueTree, SchedulerQueues};
use crate::save::{SavedDrainMark, SavedState};
use crate::sched::scheduler_state::SchedulerState;
use crate::settings::ClusterSettings;
use crate::step_context::StepContext;
use crate::table::RowPosition;
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

/// State of the whole cluster. Each field owns its part of the state and keeps its invariants; the
/// functions of the cluster connect them.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) settings: ClusterSettings,
    pub(crate) epoch: Epoch,
    pub(crate) timers: TimerQueue,
    pub(crate) apps: Applications,
    pub(crate) nodes: NodeTable,
    pub(crate) allocations: Allocations,
    pub(crate) queue: SchedulerQueues,
    pub(crate) scheduler: SchedulerState,
}

/// Result of a call before the scheduling pass that follows it.
pub(crate) enum PendingReply {
    /// The answer is complete.
    Ready(CallAnswer),
    /// The verdict of one request of the application in this row.
    Verdict(RowPosition, PendingVerdict),
    /// The verdicts of requests of the application in this row.
    Verdicts(RowPosition, Vec<(RequestId, PendingVerdict)>),
}

/// Verdict on a request before the scheduling pass that follows it.
pub(crate) enum PendingVerdict {
    /// The pass does not change the verdict.
    Known(RequestVerdict),
    /// The verdict on the request in this row follows from the pass.
    Row(RowPosition),
}

impl Cluster {
    /// Creates a cluster from the state of an earlier incarnation. The first [`ClusterEvent::Time`]
    /// must follow immediately.
    pub fn new(settings: ClusterSettings, restored: RestoredCluster, now: Tick) -> Self {
        let mut history = ContainerHistory::new(settings.keep_containers);
        for finished in restored.finished {
            history.push(Arc::new(finished));
        }
        let waiting: BTreeSet<NodeId> = restored.nodes.into_iter().collect();
        let until = now.plus(settings.recovery_wait);
        let due = if waiting.is_empty() { now } else { until };
        let restarted = !restored.apps.is_empty() || !waiting.is_empty();
        let recovery = restarted.then_some(ClusterRecovery { waiting, until });
        let queue = match restored.queues {
            Some((generation, tree)) => {
                SchedulerQueues::new(tree, generation, QueuesFrom::Operator)
            }
            None => SchedulerQueues::new(settings.queues.clone(), 0, QueuesFrom::Settings),
        };
        let mut ledger = ResourceLedger::default();
        ledger.regroup(&queue.parents(), |_| None);
        let mut cluster = Cluster {
            settings,
            epoch: restored.epoch,
            timers: TimerQueue::default(),
            apps: Applications::new(restored.last_app),
            nodes: NodeTable::new(restored.tags, recovery),
            allocations: Allocations::new(ledger, history),
            queue,
            scheduler: SchedulerState::default(),
        };
        if restarted {
            cluster.timers.set(TimerKey::Recovery, due);
        }
        cluster.restore_marks(restored.marks, now);
        for app in restored.apps {
            cluster.restore_app(app, now);
        }
        cluster.queue.update_moved(cluster.allocations.ledger());
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
            ClusterEvent::Stalled(by) => {
                self.timers.postpone(by);
                self.nodes.postpone_silences(by);
            }
            ClusterEvent::StreamsOpen(nodes) => {
                self.streams_are_open(&nodes, now);
                return;
            }
            ClusterEvent::StreamsEnded(nodes) => {
                self.streams_ended(&nodes, now);
                return;
            }
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
        let answer = match what {
            ClusterCall::Submit(app) => self.submit(*app, None, ctx),
            ClusterCall::Reserve => Ok(CallAnswer::Reserved {
                number: self.apps.reserve_number(),
            }),
            ClusterCall::SubmitAs { number, app } => self.submit(*app, Some(number), ctx),
            ClusterCall::Kill { app, reason } => self.kill(&app, reason, ctx),
            ClusterCall::Purge { app, how } => self.purge(&app, how, ctx),
            ClusterCall::RegisterMaster {
                attempt,
                url,
                nodes,
            } => self.register_master(&attempt, (url, nodes.as_ref()), ctx),
            ClusterCall::Sync(sync) => return self.sync(*sync, ctx),
            ClusterCall::Ask { app, ask, how } => return self.ask(&app, *ask, how, ctx),
            ClusterCall::Withdraw { app, request } => self.withdraw(&app, &request),
            ClusterCall::Finish {
                attempt,
                outcome,
                diagnostics,
                rows,
            } => self.finish(&attempt, outcome, (diagnostics, rows), ctx),
            ClusterCall::Stop { container } => self.stop_container(&container, ctx),
            ClusterCall::RegisterNode { node, facts } => self.register_node(&node, *facts, ctx),
            ClusterCall::Report { node, report } => self.report(&node, *report, ctx),
            ClusterCall::Resize {
                container,
                version,
                size,
                how,
            } => self.resize(&container, version, size, how, ctx),
            ClusterCall::SetQueues {
                tree,
                generation,
                how,
            } => self.set_queues(*tree, generation, how, ctx),
            ClusterCall::SetQueueState { queue, state } => self.set_queue_state(&queue, state, ctx),
            ClusterCall::ChangeApp {
                app,
                queue,
                priority,
                lifetime,
            } => self.change_app(&app, queue, priority, lifetime, ctx),
            ClusterCall::Order { app, order } => self.apps.order(&app, order, ctx),
            ClusterCall::Drain {
                node,
                within,
                reason,
                then,
            } => self.drain(&node, within, reason, then, ctx),
            ClusterCall::Undrain { node } => self.undrain(&node, ctx),
            ClusterCall::Tag { node, change, how } => self.tag(&node, &change, how, ctx),
            ClusterCall::Configure(settings) => self.configure(*settings, ctx),
        };
        answer.map(PendingReply::Ready)
    }

    fn answer(
        &mut self,
        call: CallId,
        reply: Result<PendingReply, CallRefusal>,
        ctx: &mut StepContext<'_>,
    ) {
        let answer = reply.map(|reply| match reply {
            PendingReply::Ready(answer) => answer,
            PendingReply::Verdict(app, verdict) => CallAnswer::Asked {
                verdict: self.final_verdict(app, verdict, &mut SentenceCache::default(), ctx.now),
            },
            PendingReply::Verdicts(app, asks) => {
                let stop = self.apps.at(app).is_none_or(|a| a.state.is_ending());
                let mut said = SentenceCache::default();
                let verdicts = asks.into_iter().map(|(request, verdict)| {
                    let verdict = self.final_verdict(app, verdict, &mut said, ctx.now);
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

    /// Verdict on a request after the scheduling pass.
    fn final_verdict(
        &mut self,
        app: RowPosition,
        verdict: PendingVerdict,
        said: &mut SentenceCache,
        now: Tick,
    ) -> RequestVerdict {
        match verdict {
            PendingVerdict::Known(verdict) => verdict,
            PendingVerdict::Row(request) => self.decided(app, request, said, now),
        }
    }

    fn fire(&mut self, ctx: &mut StepContext<'_>) {
        while let Some(key) = self.timers.due(ctx.now) {
            self.reindex_moved(); // a timer's action may need current free capacities
            self.scheduler.reservations.mark_all_dirty();
            match key {
                TimerKey::Recovery => self.recovery_over(ctx),
                TimerKey::Node(node) => self.node_silent(&node, ctx),
                TimerKey::Master(app) => {
                    self.attempt_event(&app, attempt::AttemptEvent::Silent, ctx)
                }
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
    /// Nodes with the marks and tags of operators, and the index of free resources.
    pub fn node_table(&self) -> &NodeTable {
        &self.nodes
    }
    /// Looks up a node.
    pub fn node(&self, id: &NodeId) -> Option<&ClusterNode> {
        self.nodes.get(id)
    }
    /// All containers whose end the application has not acknowledged. The order depends on
    /// insertions and removals.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.allocations.values()
    }
    /// Looks up a container.
    pub fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.allocations.get(id)
    }
    /// History of ended containers.
    pub fn history(&self) -> &ContainerHistory {
        self.allocations.history()
    }
    /// Allocated resources.
    pub fn ledger(&self) -> &ResourceLedger {
        self.allocations.ledger()
    }
    /// Waiting requests in scheduling order.
    pub fn waiting(&self) -> impl Iterator<Item = (&ClusterApplication, &RequestId)> {
        let all = self.queue.all(self.ledger()).into_iter();
        let known = |waiter: PlacementWaiter| {
            let app = self.apps.get(&waiter.app)?;
            Some((app, app.requests.get_key_value(&waiter.request?)?.0))
        };
        all.filter_map(known)
    }
    /// Updates of an application after `cursor`. `None` when some of them are no longer kept.
    pub fn updates(&self, app: &AppId, cursor: u64) -> Option<Vec<MasterUpdate>> {
        let updates = &self.apps.get(app)?.updates;
        if cursor < updates.acked() {
            return None;
        }
        let kept = updates.after(cursor);
        let whole = kept.filter_map(|(cursor, kept)| {
            let what = self.allocations.whole_update(kept)?;
            Some(MasterUpdate { cursor, what })
        });
        Some(whole.collect())
    }
    /// Commands for a node that registered, beyond what it reported: containers to run or to stop.
    /// A container that it reported as running in its latest size needs none.
    pub fn commands_for(&self, node: &NodeId) -> Vec<(ContainerId, ContainerCommand)> {
        let surplus = self.nodes.get(node).into_iter();
        let surplus = surplus.flat_map(|node| node.surplus.keys());
        let stop = |container: &ContainerId| {
            let cause = StopCause::Asked;
            (container.clone(), ContainerCommand::Stop { cause })
        };
        let all = self.containers_on(node).filter(|c| !c.runs_as_granted());
        let own = all.map(|c| (c.id.clone(), wanted(c)));
        own.chain(surplus.map(stop)).collect()
    }
    /// Containers of a node whose end the application has not acknowledged, in the order of their
    /// grants; none for an unknown node.
    pub fn containers_on(&self, node: &NodeId) -> impl Iterator<Item = &Container> + use<'_> {
        let node = self.nodes.get(node).into_iter();
        node.flat_map(|node| self.allocations.in_order(&node.containers))
    }
    /// Containers of an application whose end it has not acknowledged, in the order of their
    /// grants; none for an unknown application.
    pub fn containers_of(&self, app: &AppId) -> impl Iterator<Item = &Container> + use<'_> {
        let app = self.apps.get(app).into_iter();
        app.flat_map(|app| self.allocations.in_order(&app.containers))
    }
}

fn wanted(c: &Container) -> ContainerCommand {
    match &c.state {
        // a node that stops a container by itself knows the cause best
        ContainerState::Allocated
        | ContainerState::Launching
        | ContainerState::Running
        | ContainerState::Stopping { asked: None } => ContainerCommand::Run(Box::new(c.order())),
        ContainerState::Stopping { asked: Some(cause) } => ContainerCommand::Stop { cause: *cause },
        // its report is still needed, and it must not run
        ContainerState::Exited { .. } | ContainerState::Done { .. } => ContainerCommand::Stop {
            cause: StopCause::Asked,
        },
    }
}

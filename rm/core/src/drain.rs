//! Drain and decommission of nodes.
//!
//! A mark records an operator's drain. The mark is separate from the node's state, because a
//! draining node can become silent, register again or be lost. The mark outlives the node's
//! membership and the incarnation of the resource manager.
//!
//! ```text
//!            drain                     empty               decommission
//!  no mark ─────────► draining ────────────────► drained ───────────────► decommissioned
//!     ▲                  │                          │                    (cannot register)
//!     │                  │ deadline: the remaining  │                           │
//!     │                  ▼ containers are stopped   │                           │
//!     └─────────────────────────── undrain ─────────┴───────────────────────────┘
//! ```
//!
//! A marked node gets no new containers. Running containers may still grow, so that they end
//! sooner. The node is drained when no container is alive on it and every end is acknowledged, so
//! that an operator can switch it off without the loss of a report. After the deadline, or once the
//! node is lost, the resource manager does not wait for reports. A master whose container is
//! stopped starts again on another node, and that attempt is not charged.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::spelling::counted_noun;
use headroom_types::{AppId, ContainerId, NodeId, Reason, StopCause, Tick, UnixMillis, millis};

use crate::cluster::Cluster;
use crate::event::{AfterDrain, CallAnswer, CallRefusal, LogSeverity, UpdateKind};
use crate::node;
use crate::save::{DurableRecord, SavedDrainMark};
use crate::sched::node_ix::NodeNumber;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

impl Cluster {
    pub(crate) fn drain(
        &mut self,
        id: &NodeId,
        within: Option<Duration>,
        reason: String,
        then: AfterDrain,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let known = self.nodes.mark(id);
        if known.is_none() && !self.nodes.contains(id) {
            return Err(CallRefusal::NoSuchNode(id.clone()));
        }
        let until = within.map(|within| UnixMillis(ctx.wall.0.saturating_add(millis(within))));
        // the latest order applies; a drained node stays drained
        let drained = known.is_some_and(|mark| mark.drained);
        let time = within.map_or_else(
            || "without a deadline".to_owned(),
            |within| format!("within {} s", within.as_secs()),
        );
        let message = format!("drains {time}: {reason}");
        ctx.log_node(LogSeverity::Normal, Reason::NodeDraining, id, message);
        let mark = SavedDrainMark {
            reason,
            until,
            then,
            drained,
        };
        self.put_mark(id, mark, ctx);
        if then == AfterDrain::Stay {
            self.node_event(id, node::NodeEvent::Welcome, ctx);
        }
        self.reindex(id);
        for app in self.apps_on(id) {
            self.send_drain(id, &app, ctx);
        }
        self.advance_drain(id, ctx);
        Ok(CallAnswer::Done)
    }

    pub(crate) fn undrain(
        &mut self,
        id: &NodeId,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        if !self.nodes.remove_mark(id) {
            let known = self.nodes.contains(id).then_some(CallAnswer::Done);
            return known.ok_or_else(|| CallRefusal::NoSuchNode(id.clone()));
        }
        ctx.save(DurableRecord::MarkGone(id.clone()));
        let message = "takes work again".into();
        ctx.log_node(LogSeverity::Normal, Reason::NodeUndrained, id, message);
        self.timers.cancel(&TimerKey::Drain(id.clone()));
        self.node_event(id, node::NodeEvent::Welcome, ctx);
        self.reindex(id);
        self.queue.note_room();
        Ok(CallAnswer::Done)
    }

    /// Restores drain marks from the store.
    pub(crate) fn restore_marks(&mut self, marks: Vec<(NodeId, SavedDrainMark)>, now: Tick) {
        for (id, mark) in marks {
            self.set_deadline(&id, &mark, now);
            self.nodes.set_mark(&id, mark);
        }
    }

    fn set_deadline(&mut self, id: &NodeId, mark: &SavedDrainMark, now: Tick) {
        match mark.until.filter(|_| !mark.drained) {
            Some(until) => {
                let at = Tick(until.0.saturating_sub(self.settings.unix_at_zero.0));
                self.timers.set(TimerKey::Drain(id.clone()), at.max(now));
            }
            None => self.timers.cancel(&TimerKey::Drain(id.clone())),
        }
    }

    /// Handles the deadline of a drain.
    pub(crate) fn drain_due(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let left = self.alive_on(id).len();
        if left > 0 {
            let message = format!("{} left: stopping", counted_noun(left, "container"));
            ctx.log_node(LogSeverity::Normal, Reason::DrainDeadline, id, message);
        }
        self.advance_drain(id, ctx);
    }

    /// Like [`Cluster::advance_drain`], by number.
    pub(crate) fn advance_drain_at(&mut self, node: NodeNumber, ctx: &mut StepContext<'_>) {
        if !self.nodes.has_marks() {
            return; // the usual case
        }
        if let Some(id) = self.nodes.at(node).map(|node| node.id.clone()) {
            self.advance_drain(&id, ctx);
        }
    }

    /// Advances a drain: stops the remaining containers after the deadline, and marks an empty node
    /// as drained.
    pub(crate) fn advance_drain(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let Some(mark) = self.nodes.mark(id) else {
            return;
        }; // the usual case
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let alive = self.alive_on(id);
        let over = mark.until.is_some_and(|until| ctx.wall >= until);
        let reports_lost = over || !node.state.is_member();
        let empty = node.containers.is_empty() || (alive.is_empty() && reports_lost);
        let mut mark = mark.clone();
        if over {
            for container in &alive {
                self.stop(container, StopCause::Preempted, ctx);
            }
        }
        if !alive.is_empty() && mark.drained {
            mark.drained = false; // it registered again after a long silence and has containers
            self.put_mark(id, mark, ctx);
        } else if empty && !mark.drained {
            mark.drained = true;
            self.drained(id, mark, ctx);
        } else if mark.drained && mark.then == AfterDrain::Decommission {
            // an operator drained it first and decommissions it now
            self.node_event(id, node::NodeEvent::Left, ctx);
        }
    }

    fn drained(&mut self, id: &NodeId, mark: SavedDrainMark, ctx: &mut StepContext<'_>) {
        let leaves = mark.then == AfterDrain::Decommission;
        let message = "has no containers left".into();
        ctx.log_node(LogSeverity::Normal, Reason::NodeDrained, id, message);
        self.put_mark(id, mark, ctx);
        if leaves {
            self.node_event(id, node::NodeEvent::Left, ctx);
        }
    }

    /// Removes a decommissioned node from the members.
    pub(crate) fn dismissed(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let message = "is not a member any more; undrain it to let it register again".into();
        ctx.log_node(LogSeverity::Normal, Reason::NodeDecommissioned, id, message);
        self.timers.cancel(&TimerKey::Node(id.clone()));
        self.close_node(id, ctx);
        self.reindex(id);
    }

    /// Marks a node as drained that did not register after a restart: its containers are lost.
    pub(crate) fn missing_is_empty(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let Some(mut mark) = self.nodes.mark(id).filter(|mark| !mark.drained).cloned() else {
            return;
        };
        mark.drained = true;
        self.drained(id, mark, ctx);
    }

    /// Sends the drain deadline of a node to a master that has containers on it.
    pub(crate) fn send_drain(&mut self, id: &NodeId, app: &AppId, ctx: &mut StepContext<'_>) {
        if let Some(until) = self.nodes.mark(id).map(|mark| mark.until) {
            self.apps.update(
                app,
                UpdateKind::NodeDraining {
                    node: id.clone(),
                    until,
                },
                ctx,
            );
        }
    }

    fn put_mark(&mut self, id: &NodeId, mark: SavedDrainMark, ctx: &mut StepContext<'_>) {
        ctx.save(DurableRecord::Mark {
            node: id.clone(),
            mark: mark.clone(),
        });
        self.set_deadline(id, &mark, ctx.now);
        self.nodes.set_mark(id, mark);
    }

    fn alive_on(&self, id: &NodeId) -> Vec<ContainerId> {
        let Some(node) = self.nodes.get(id) else {
            return Vec::new();
        };
        let alive = self.allocations.alive_in(&node.containers);
        alive.map(|c| c.id.clone()).collect()
    }

    fn apps_on(&self, id: &NodeId) -> BTreeSet<AppId> {
        self.alive_on(id).into_iter().map(|c| c.app).collect()
    }
}

//! Calls of nodes: registration and heartbeat, and the timeouts of their silence.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use headroom_types::exit::Unattributed;
use headroom_types::{ContainerId, ExitReason, ExitReport, NodeId, Reason, Resource, StopCause};

use crate::attempt;
use crate::cluster::Cluster;
use crate::container::{self, ContainerEvent, ContainerState};
use crate::event::{
    CallAnswer, CallRefusal, ContainerCommand, LogSeverity, NodeHeartbeat, NodeRegistration,
    ReportedContainer,
};
use crate::node::{self, ClusterNode, NodeAction, SilenceStage};
use crate::save::DurableRecord;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

/// Time after which a container that was ordered to stop, and that its node does not report, has
/// ended.
const STOP_UNSEEN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

impl Cluster {
    pub(crate) fn register_node(
        &mut self,
        id: &NodeId,
        facts: NodeRegistration,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        if self.is_barred(id) {
            return Err(CallRefusal::Decommissioned(id.clone()));
        }
        // An overtaken registration is out of date: containers that started after it would be
        // treated as gone.
        let latest = self.nodes.get(id).map_or(0, |n| n.serial);
        if facts.serial != 0 && facts.serial <= latest {
            return Err(CallRefusal::Overtaken {
                node: id.clone(),
                given: facts.serial,
                latest,
            });
        }
        self.enter_node(id, &facts, ctx);
        self.note_unattributed(id, facts.unattributed, ctx);
        self.node_event(id, node::NodeEvent::Registered(facts.health), ctx);
        for seen in &facts.seen {
            self.seen(id, seen, ctx);
        }
        let acked = self.take_exits(id, facts.exits, ctx).over;
        self.drop_unseen(id, &facts.seen, ctx);
        self.node_is_back(id, ctx);
        self.settle_mark(id, ctx);
        Ok(CallAnswer::Node { acked })
    }

    pub(crate) fn report(
        &mut self,
        id: &NodeId,
        report: NodeHeartbeat,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        if report.epoch != self.epoch {
            return Err(CallRefusal::StaleEpoch {
                given: report.epoch,
                current: self.epoch,
            });
        }
        let node = self.nodes.get_mut(id).filter(|n| n.state.is_member());
        let node = node.ok_or_else(|| CallRefusal::NodeNotRegistered(id.clone()))?;
        node.heard = ctx.now;
        node.host_used = report.host_used;
        self.note_unattributed(id, report.unattributed, ctx);
        self.node_event(id, node::NodeEvent::Heard(report.health), ctx);
        for seen in &report.seen {
            self.seen(id, seen, ctx);
        }
        let exits = self.take_exits(id, report.exits, ctx);
        for container in &exits.over {
            ctx.send_command(id, container, ContainerCommand::Forget);
        }
        self.drop_stopped_unseen(id, ctx);
        self.settle_mark(id, ctx);
        Ok(CallAnswer::Received {
            received: exits.all,
        })
    }

    fn enter_node(&mut self, id: &NodeId, facts: &NodeRegistration, ctx: &mut StepContext<'_>) {
        self.roomy = None;
        let fresh = !self.nodes.get(id).is_some_and(|n| n.state.is_member());
        let before = self.ledger.node(id).map(|a| a.offers.memory);
        if let Some(memory) = before {
            self.offers.remove(&(memory, id.clone()));
        }
        self.offers.insert((facts.offers.memory, id.clone()));
        self.ledger.offer(id, facts.offers.clone());
        let traits = self
            .tags
            .get(id)
            .map_or(Cow::Borrowed(&facts.traits), |tags| {
                tags.over(&facts.traits)
            });
        self.index.enter(id, &traits, &facts.offers);
        let containers = self
            .nodes
            .get(id)
            .map(|n| n.containers.clone())
            .unwrap_or_default();
        let state = self
            .nodes
            .get(id)
            .map_or(node::ClusterNodeState::Lost, |n| n.state.clone());
        let node = ClusterNode {
            id: id.clone(),
            state,
            enforcer: facts.enforcer,
            url: facts.url.clone(),
            version: facts.version.clone(),
            traits: facts.traits.clone(),
            heard: ctx.now,
            serial: facts.serial,
            host_used: Default::default(),
            left_by: Vec::new(),
            containers,
        };
        self.nodes.insert(id.clone(), node);
        if fresh {
            ctx.save(DurableRecord::Node(id.clone()));
            let message = format!("offers {}, enforcer {}", facts.offers, facts.enforcer);
            ctx.log_node(LogSeverity::Normal, Reason::NodeJoined, id, message);
        }
    }

    /// Counts memory that ended containers left charged as taken, until it is free.
    fn note_unattributed(&mut self, id: &NodeId, now: Unattributed, ctx: &mut StepContext<'_>) {
        let before = self
            .ledger
            .node(id)
            .map(|account| account.unattributed)
            .unwrap_or_default();
        let owners = now.owners_text();
        if let Some(node) = self
            .nodes
            .get_mut(id)
            .filter(|node| node.left_by != now.left_by)
        {
            node.left_by = now.left_by;
        }
        if now.memory == before {
            return; // the usual case
        }
        self.ledger.set_unattributed(id, now.memory);
        self.reindex(id);
        self.room_changed |= now.memory < before;
        if before.is_zero() {
            let message = format!(
                "{} of memory is charged, and no running container owns it; {owners}",
                now.memory
            );
            ctx.log_node(LogSeverity::Warning, Reason::NodeMemoryLeft, id, message);
        } else if now.memory.is_zero() {
            ctx.log_node(
                LogSeverity::Normal,
                Reason::NodeMemoryFreed,
                id,
                format!("{before} of memory that ended containers had left charged is free again"),
            );
        }
    }

    /// Applies an event to a node and carries out the resulting actions.
    pub(crate) fn node_event(
        &mut self,
        id: &NodeId,
        event: node::NodeEvent,
        ctx: &mut StepContext<'_>,
    ) {
        let heard = matches!(
            event,
            node::NodeEvent::Registered(_) | node::NodeEvent::Heard(_)
        );
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        let mut acts = Vec::new();
        let registered = matches!(event, node::NodeEvent::Registered(_));
        let changed = match node::next_node_state(node.state.clone(), event, &mut acts) {
            Ok(next) => std::mem::replace(&mut node.state, next) != node.state,
            Err(illegal) => return ctx.illegal(format!("{id}: {illegal}")),
        };
        if heard {
            self.timers.set(
                TimerKey::Node(id.clone()),
                ctx.now.plus(self.settings.suspect),
            );
        }
        if changed || registered {
            self.reindex(id);
        }
        for act in acts {
            match act {
                NodeAction::Back => {
                    self.room_changed = true;
                    ctx.log_node(
                        LogSeverity::Normal,
                        Reason::NodeReady,
                        id,
                        "takes work".into(),
                    );
                }
                NodeAction::Sick(reason) => {
                    ctx.log_node(LogSeverity::Warning, Reason::NodeUnhealthy, id, reason)
                }
                NodeAction::Suspected => {
                    let message = "sent no heartbeat; gets no new containers for now".into();
                    ctx.log_node(LogSeverity::Warning, Reason::NodeSuspect, id, message)
                }
                NodeAction::OutOfReach => ctx.log_node(
                    LogSeverity::Warning,
                    Reason::NodeUnreachable,
                    id,
                    "still sends no heartbeat".into(),
                ),
                NodeAction::GivenUp => self.give_up(id, ctx),
                NodeAction::Dismissed => self.dismissed(id, ctx),
            }
        }
    }

    pub(crate) fn node_silent(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let (heard, silent) = (node.heard, ctx.now.since(node.heard));
        if silent < self.settings.suspect {
            // The timeout was shorter when the timer was set.
            self.timers.set(
                TimerKey::Node(id.clone()),
                heard.plus(self.settings.suspect),
            );
            return;
        }
        let (how, next) = if silent >= self.settings.lost {
            (SilenceStage::Lost, None)
        } else if silent >= self.settings.unreachable {
            (SilenceStage::Unreachable, Some(self.settings.lost))
        } else {
            (SilenceStage::Suspect, Some(self.settings.unreachable))
        };
        if let Some(after) = next {
            self.timers
                .set(TimerKey::Node(id.clone()), heard.plus(after).max(ctx.now));
        }
        self.node_event(id, node::NodeEvent::Silent(how), ctx);
    }

    fn give_up(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let seconds = self.settings.lost.as_secs();
        let message = format!("sent no heartbeat for {seconds} s; its containers are lost");
        ctx.log_node(LogSeverity::Warning, Reason::NodeLost, id, message);
        self.close_node(id, ctx);
        let containers = self
            .nodes
            .get(id)
            .map(|n| n.containers.clone())
            .unwrap_or_default();
        for container in containers.iter() {
            self.create_exit_report(
                container,
                ExitReason::NodeLost,
                format!("{id} sent no heartbeat for {seconds} s"),
                ctx,
            );
        }
        self.reindex(id);
        self.settle_mark(id, ctx);
    }

    /// Removes the capacity and the membership of a node.
    pub(crate) fn close_node(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        self.roomy = None;
        ctx.save(DurableRecord::NodeGone(id.clone()));
        if let Some(account) = self.ledger.node(id) {
            self.offers.remove(&(account.offers.memory, id.clone()));
        }
        self.ledger.close(id);
        if let Some(ix) = self.index.ix(id) {
            self.index.leave(ix);
        }
    }

    /// Processes a node's report about one container.
    fn seen(&mut self, node: &NodeId, seen: &ReportedContainer, ctx: &mut StepContext<'_>) {
        let row = self.containers.row_of(&seen.container);
        if let Some((row, c)) = row.and_then(|row| Some((row, self.containers.at_mut(row)?))) {
            if c.node != *node {
                return ctx.illegal(format!(
                    "{} is reported by {node} and was granted on {}",
                    c.id, c.node
                ));
            }
            c.used = seen.used.or(c.used);
            c.seen = Some(ctx.now);
            if let Some(event) = container::event_for_phase(seen.phase) {
                self.container_event_at(row, event, ctx);
            }
            self.seen_size(row, seen, ctx);
        } else if self.may_adopt(seen) {
            self.adopt(node, seen, ctx);
        } else {
            self.unwanted(node, seen, ctx);
        }
    }

    /// True when an unknown container may be adopted: it is from an earlier incarnation, and its
    /// application needs it.
    fn may_adopt(&self, seen: &ReportedContainer) -> bool {
        let id = &seen.container;
        let Some(app) = self.apps.get(&id.app).filter(|app| !app.state.is_over()) else {
            return false;
        };
        if id.epoch == self.epoch || self.history.get(id).is_some() {
            return false;
        }
        let Some(request) = &seen.request else {
            return app.is_current_master(id);
        };
        // after recovery, the request may have been granted elsewhere
        let late = self.recovery.is_none();
        !(late && app.requests.contains_key(request) && app.missing(request) == 0)
    }

    fn unwanted(&mut self, node: &NodeId, seen: &ReportedContainer, ctx: &mut StepContext<'_>) {
        match seen.phase {
            // no application waits for it; the command is repeated with each report, because a
            // message can be lost
            crate::event::ContainerPhase::Exited => {
                ctx.send_command(node, &seen.container, ContainerCommand::Forget)
            }
            crate::event::ContainerPhase::Preparing
            | crate::event::ContainerPhase::Starting
            | crate::event::ContainerPhase::Running
            | crate::event::ContainerPhase::Stopping => ctx.send_command(
                node,
                &seen.container,
                ContainerCommand::Stop {
                    cause: StopCause::Asked,
                },
            ),
        }
    }

    fn take_exits(
        &mut self,
        node: &NodeId,
        exits: Vec<ExitReport>,
        ctx: &mut StepContext<'_>,
    ) -> ProcessedExits {
        let mut taken = ProcessedExits::default();
        for report in exits {
            let id = report.container.clone();
            let row = self.containers.row_of(&id);
            if let Some(row) =
                row.filter(|row| self.containers.at(*row).is_some_and(|c| c.node == *node))
            {
                self.container_event_at(row, ContainerEvent::Exited(Arc::new(report)), ctx);
            }
            // no application waits for its acknowledgement
            if row
                .and_then(|row| self.containers.at(row))
                .is_none_or(|c| c.id != id)
            {
                taken.over.push(id.clone());
            }
            taken.all.push(id);
        }
        taken
    }

    /// Ends containers that a registering node does not report any more.
    fn drop_unseen(&mut self, id: &NodeId, shown: &[ReportedContainer], ctx: &mut StepContext<'_>) {
        let shown: BTreeSet<&ContainerId> = shown.iter().map(|s| &s.container).collect();
        let mine = self
            .nodes
            .get(id)
            .map(|n| n.containers.clone())
            .unwrap_or_default();
        for container in mine.iter().filter(|c| !shown.contains(c)) {
            let gone = self
                .containers
                .get(container)
                .is_some_and(|c| match c.state {
                    ContainerState::Launching
                    | ContainerState::Running
                    | ContainerState::Stopping { .. } => true,
                    ContainerState::Allocated
                    | ContainerState::Exited { .. }
                    | ContainerState::Done { .. } => false,
                });
            if gone {
                let why = format!("{id} registered again without this container");
                self.create_exit_report(container, ExitReason::NodeLost, why, ctx);
            }
        }
    }

    /// Ends containers that were stopped before their node started them: no report will come.
    fn drop_stopped_unseen(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        let Some(stopping) = self.stopping.get(id) else {
            return;
        };
        let gone = |c: &&ContainerId| {
            let Some(c) = self.containers.get(*c) else {
                return false;
            };
            let Some(asked) = c.stop_asked.filter(|_| c.state.is_alive()) else {
                return false;
            };
            ctx.now.since(asked) >= STOP_UNSEEN_TIMEOUT && c.seen.is_none_or(|seen| seen < asked)
        };
        let gone: Vec<ContainerId> = stopping.iter().filter(gone).cloned().collect();
        for container in gone {
            let why = "the container was stopped before its node started it".into();
            self.create_exit_report(&container, ExitReason::Stopped, why, ctx);
        }
    }

    fn node_is_back(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        self.room_changed = true;
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.waiting.remove(id);
        if recovery.waiting.is_empty() {
            self.recovery_over(ctx);
        }
    }

    /// Ends the recovery: grants continue, and containers that no node reported are lost.
    pub(crate) fn recovery_over(&mut self, ctx: &mut StepContext<'_>) {
        let Some(recovery) = self.recovery.take() else {
            return;
        };
        self.timers.cancel(&TimerKey::Recovery);
        for node in recovery.waiting {
            let message = "did not register after a restart of the resource manager".into();
            ctx.log_node(LogSeverity::Warning, Reason::NodeMissing, &node, message);
            ctx.save(DurableRecord::NodeGone(node.clone()));
            self.missing_is_empty(&node, ctx);
        }
        self.room_changed = true;
        let live: Vec<_> = self
            .apps
            .values()
            .filter(|a| !a.state.is_over())
            .map(|a| a.id.clone())
            .collect();
        for app in live {
            if self.timers.of(&TimerKey::Master(app.clone())).is_some() {
                self.expect_master(&app, ctx.now); // it could not register before
            }
            self.attempt_event(&app, attempt::AttemptEvent::NodesKnown, ctx);
            self.maybe_over(&app, ctx);
        }
    }

    /// Capacities of member nodes, largest memory first.
    pub(crate) fn offers_down(&self) -> impl Iterator<Item = (&NodeId, &Resource)> {
        self.offers
            .iter()
            .rev()
            .filter_map(|(_, id)| Some((id, &self.ledger.node(id)?.offers)))
    }
}

/// Processed exit reports.
#[derive(Default)]
struct ProcessedExits {
    /// All processed reports.
    all: Vec<ContainerId>,
    /// Reports that no application waits for: the node may remove them immediately.
    over: Vec<ContainerId>,
}

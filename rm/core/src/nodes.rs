//! Calls of nodes: registration and heartbeat, and the timeouts of their silence.

use std::collections::BTreeSet;
use std::sync::Arc;

use headroom_types::exit::Unattributed;
use headroom_types::{ContainerId, ExitReason, ExitReport, NodeId, Reason, StopCause};

use crate::app::ApplicationOrigin;
use crate::attempt;
use crate::cluster::Cluster;
use crate::container::{self, ContainerEvent, ContainerState};
use crate::event::{
    CallAnswer, CallRefusal, ContainerCommand, ContainerPhase, LogSeverity, NodeHeartbeat,
    NodeRegistration, ReportedContainer,
};
use crate::node::{self, NodeAction, SilenceStage};
use crate::save::DurableRecord;
use crate::sched::node_ix::NodeNumber;
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
        if self.nodes.is_barred(id) {
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
        let number = self.enter_node(id, &facts, ctx);
        self.note_unattributed(number, id, facts.unattributed, ctx);
        self.node_event_at(number, id, node::NodeEvent::Registered(facts.health), ctx);
        for seen in &facts.seen {
            self.seen(number, id, seen, ctx);
        }
        let exits = self.take_exits(number, facts.exits, ctx);
        self.count_surplus(number, id, &facts.seen, exits.all.iter(), ctx.now);
        self.charge_surplus(number, id); // an earlier registration may have had others
        let acked = exits.over;
        self.drop_unseen(id, &facts.seen, ctx);
        self.node_is_back(id, ctx);
        self.advance_drain(id, ctx);
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
        let Some(number) = self.nodes.note_heartbeat(id, report.host_used, ctx.now) else {
            return Err(CallRefusal::NodeNotRegistered(id.clone()));
        };
        let seen = report.seen.iter().map(|seen| &seen.container);
        let ended = report.exits.iter().map(|exit| &exit.container);
        let known = seen.chain(ended);
        self.prefetch_containers(known.filter_map(|id| self.allocations.row_of(id)));
        self.note_unattributed(number, id, report.unattributed, ctx);
        self.node_event_at(number, id, node::NodeEvent::Heard(report.health), ctx);
        for seen in &report.seen {
            if self.is_received_end(seen, &report.exits) {
                ctx.send_command(id, &seen.container, ContainerCommand::Forget);
            } else {
                self.seen(number, id, seen, ctx);
            }
        }
        let exits = self.take_exits(number, report.exits, ctx);
        self.count_surplus(number, id, &report.seen, exits.all.iter(), ctx.now);
        for container in &exits.over {
            ctx.send_command(id, container, ContainerCommand::Forget);
        }
        self.drop_stopped_unseen(id, ctx);
        self.advance_drain_at(number, ctx);
        Ok(CallAnswer::Received {
            received: exits.all,
        })
    }

    fn enter_node(
        &mut self,
        id: &NodeId,
        facts: &NodeRegistration,
        ctx: &mut StepContext<'_>,
    ) -> NodeNumber {
        let offers = facts.offers.clone();
        self.allocations.ledger_mut().offer(id, offers);
        let (number, fresh) = self.nodes.enter(id, facts, ctx.now);
        if fresh {
            ctx.save(DurableRecord::Node(id.clone()));
            let message = format!("offers {}, enforcer {}", facts.offers, facts.enforcer);
            ctx.log_node(LogSeverity::Normal, Reason::NodeJoined, id, message);
        }
        number
    }

    /// Counts memory that ended containers left charged as taken, until it is free.
    fn note_unattributed(
        &mut self,
        number: NodeNumber,
        id: &NodeId,
        now: Unattributed,
        ctx: &mut StepContext<'_>,
    ) {
        let account = self.ledger().account(number);
        let before = account
            .map(|account| account.unattributed)
            .unwrap_or_default();
        if now.memory == before {
            self.nodes.note_leftover_owners(number, now.left_by);
            return; // the usual case
        }
        let owners = now.owners_text();
        self.nodes.note_leftover_owners(number, now.left_by);
        self.allocations
            .ledger_mut()
            .set_unattributed(id, now.memory);
        self.reindex_at(number);
        if now.memory < before {
            self.queue.note_room();
        }
        if before.is_zero() {
            let message = format!(
                "{} of memory is charged, and no running container owns it; {owners}",
                now.memory
            );
            ctx.log_node(LogSeverity::Warning, Reason::NodeMemoryLeft, id, message);
        } else if now.memory.is_zero() {
            let message =
                format!("{before} of memory that ended containers had left charged is free again");
            ctx.log_node(LogSeverity::Normal, Reason::NodeMemoryFreed, id, message);
        }
    }

    /// Applies an event to a node and carries out the resulting actions.
    pub(crate) fn node_event(
        &mut self,
        id: &NodeId,
        event: node::NodeEvent,
        ctx: &mut StepContext<'_>,
    ) {
        if let Some(number) = self.nodes.number(id) {
            self.node_event_at(number, id, event, ctx);
        }
    }

    /// Like [`Cluster::node_event`], by number.
    fn node_event_at(
        &mut self,
        number: NodeNumber,
        id: &NodeId,
        event: node::NodeEvent,
        ctx: &mut StepContext<'_>,
    ) {
        let heard = matches!(
            event,
            node::NodeEvent::Registered(_) | node::NodeEvent::Heard(_)
        );
        let mut acts = Vec::new();
        let registered = matches!(event, node::NodeEvent::Registered(_));
        let changed = match self.nodes.apply(number, event, &mut acts) {
            None => return,
            Some(Ok(changed)) => changed,
            Some(Err(illegal)) => return ctx.illegal(format!("{id}: {illegal}")),
        };
        if heard {
            self.timers.set(
                TimerKey::Node(id.clone()),
                ctx.now.plus(self.settings.suspect),
            );
        }
        if changed || registered {
            self.reindex_at(number);
        }
        for act in acts {
            match act {
                NodeAction::Back => {
                    self.queue.note_room();
                    let message = "takes work".into();
                    ctx.log_node(LogSeverity::Normal, Reason::NodeReady, id, message);
                }
                NodeAction::Sick(reason) => {
                    ctx.log_node(LogSeverity::Warning, Reason::NodeUnhealthy, id, reason)
                }
                NodeAction::Suspected => {
                    let message = "sent no heartbeat; gets no new containers for now".into();
                    ctx.log_node(LogSeverity::Warning, Reason::NodeSuspect, id, message)
                }
                NodeAction::OutOfReach => {
                    let message = "still sends no heartbeat".into();
                    ctx.log_node(LogSeverity::Warning, Reason::NodeUnreachable, id, message)
                }
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
        let containers: Vec<_> = self.containers_on(id).map(|c| c.id.clone()).collect();
        for container in &containers {
            self.create_exit_report(
                container,
                ExitReason::NodeLost,
                format!("{id} sent no heartbeat for {seconds} s"),
                ctx,
            );
        }
        self.reindex(id);
        self.advance_drain(id, ctx);
    }

    /// Removes the capacity and the membership of a node.
    pub(crate) fn close_node(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        ctx.save(DurableRecord::NodeGone(id.clone()));
        self.allocations.ledger_mut().close(id);
        self.nodes.leave(id);
    }

    /// Processes a node's report about one container.
    fn seen(
        &mut self,
        number: NodeNumber,
        node: &NodeId,
        seen: &ReportedContainer,
        ctx: &mut StepContext<'_>,
    ) {
        let row = self.allocations.row_of(&seen.container);
        if let Some((row, c)) = row.and_then(|row| Some((row, self.allocations.at(row)?))) {
            if c.node_number != number {
                return ctx.illegal(format!(
                    "{} is reported by {node} and was granted on {}",
                    c.id, c.node
                ));
            }
            self.allocations.note_report(row, seen.used, ctx.now);
            if let Some(event) = container::event_for_phase(seen.phase) {
                self.container_event_at(row, event, ctx);
            }
            self.seen_size(row, seen, ctx);
        } else if self.may_adopt(seen) {
            self.adopt(node, seen, ctx);
        } else {
            // no application needs it; the command is repeated with each report, because a
            // message can be lost
            let command = match seen.phase {
                ContainerPhase::Exited => ContainerCommand::Forget,
                ContainerPhase::Preparing
                | ContainerPhase::Starting
                | ContainerPhase::Running
                | ContainerPhase::Stopping => ContainerCommand::Stop {
                    cause: StopCause::Asked,
                },
            };
            ctx.send_command(node, &seen.container, command);
        }
    }

    /// True for the end of an unknown container that was received before. An application would wait
    /// for its exit report in vain, so the container is not adopted. The command to forget it may
    /// have been lost.
    fn is_received_end(&self, seen: &ReportedContainer, exits: &[Arc<ExitReport>]) -> bool {
        seen.phase == ContainerPhase::Exited
            && self.allocations.row_of(&seen.container).is_none()
            && exits.iter().all(|exit| exit.container != seen.container)
    }

    /// True when an unknown container may be adopted: it is from an earlier incarnation, and its
    /// application needs it.
    fn may_adopt(&self, seen: &ReportedContainer) -> bool {
        let id = &seen.container;
        let Some(app) = self.apps.get(&id.app).filter(|app| !app.state.is_over()) else {
            return false;
        };
        if id.epoch == self.epoch || self.allocations.history().get(id).is_some() {
            return false;
        }
        let Some(request) = &seen.request else {
            return app.is_current_master(id);
        };
        // The request may have been granted elsewhere.
        let late = self.nodes.recovery().is_none() || app.origin == ApplicationOrigin::Registered;
        !(late && app.requests.contains_key(request) && app.missing(request) == 0)
    }

    fn take_exits(
        &mut self,
        node: NodeNumber,
        exits: Vec<Arc<ExitReport>>,
        ctx: &mut StepContext<'_>,
    ) -> ProcessedExits {
        let mut taken = ProcessedExits::default();
        taken.all.reserve_exact(exits.len());
        for report in exits {
            let id = report.container.clone();
            let row = self.allocations.row_of(&id);
            if let Some(row) = row.filter(|row| {
                self.allocations
                    .at(*row)
                    .is_some_and(|c| c.node_number == node)
            }) {
                self.container_event_at(row, ContainerEvent::Exited(report), ctx);
            }
            // no application waits for its acknowledgement
            if row
                .and_then(|row| self.allocations.at(row))
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
        let all = self.containers_on(id).map(|c| &c.id);
        let unseen: Vec<_> = all.filter(|c| !shown.contains(c)).cloned().collect();
        for container in &unseen {
            let c = self.allocations.get(container);
            let gone = c.is_some_and(|c| match c.state {
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
        let gone = self
            .allocations
            .stopped_unseen(id, STOP_UNSEEN_TIMEOUT, ctx.now);
        for container in gone {
            let why = "the container was stopped before its node started it".into();
            self.create_exit_report(&container, ExitReason::Stopped, why, ctx);
        }
    }

    fn node_is_back(&mut self, id: &NodeId, ctx: &mut StepContext<'_>) {
        self.queue.note_room();
        if self.nodes.note_return(id) {
            self.recovery_over(ctx);
        }
    }

    /// Ends the recovery: grants continue, and containers that no node reported are lost.
    pub(crate) fn recovery_over(&mut self, ctx: &mut StepContext<'_>) {
        let Some(recovery) = self.nodes.end_recovery() else {
            return;
        };
        self.timers.cancel(&TimerKey::Recovery);
        for node in recovery.waiting {
            let message = "did not register after a restart of the resource manager".into();
            ctx.log_node(LogSeverity::Warning, Reason::NodeMissing, &node, message);
            ctx.save(DurableRecord::NodeGone(node.clone()));
            self.missing_is_empty(&node, ctx);
        }
        self.queue.note_room();
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
}

/// Processed exit reports.
#[derive(Default)]
struct ProcessedExits {
    /// All processed reports.
    all: Vec<ContainerId>,
    /// Reports that no application waits for: the node may remove them immediately.
    over: Vec<ContainerId>,
}

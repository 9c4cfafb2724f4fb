//! Containers: grant, adoption from an earlier incarnation, end, acknowledgement and removal.

use std::sync::Arc;

use headroom_types::{
    AppId, ContainerId, Epoch, Evidence, ExitCharge, ExitReason, ExitReport, LaunchSpec, NodeId,
    Reason, RequestId, Resource, StopCause, Tick,
};

use crate::cluster::{Cluster, MAX_UNACKED};
use crate::container::{Container, ContainerAction, ContainerEvent, ContainerState};
use crate::event::{
    CallAnswer, CallRefusal, ContainerCommand, ContainerPhase, EventLogLine, LogMessage, LogObject,
    LogSeverity, MasterKind, ReportedContainer, UpdateKind,
};
use crate::placement::LocalityLevel;
use crate::request::GrantIncarnation;
use crate::step_context::StepContext;
use crate::table::RowPosition;
use crate::timer::TimerKey;
use crate::{attempt, size};

impl Cluster {
    /// Grants one container of a request on a node with enough free resources.
    pub(crate) fn grant_request(
        &mut self,
        app_id: &AppId,
        request: &RequestId,
        node: &NodeId,
        ctx: &mut StepContext<'_>,
    ) {
        let id = self.allocations.next_id(app_id, self.epoch);
        let Some(home) = self.apps.row_of(app_id) else {
            return;
        };
        let Some(asked) = self.apps.at(home).and_then(|app| app.requests.get(request)) else {
            return;
        };
        if !self.may_take(app_id, request, &asked.ask.resource, node) {
            ctx.illegal(format!(
                "{id} is placed on {node}, into resources that are set aside for another request"
            ));
        }
        let Some(app) = self.apps.at_mut(home) else {
            return;
        };
        let Some(asked) = app.requests.get_mut(request) else {
            return;
        };
        let waited = ctx.now.since(asked.waiting);
        (asked.waiting, asked.served) = (ctx.now, id.seq);
        asked.reach = LocalityLevel::first(&asked.ask.place);
        let gives_way = asked.reach.next(&asked.ask.place).is_some();
        let whom = (asked.ask.launch.clone(), app.user.clone(), home);
        let c = new_container(
            id,
            node,
            (Some(request.clone()), app.attempt),
            asked.ask.resource.clone(),
            whom,
            ctx,
        );
        app.tallies.entry(request).count_grant();
        ctx.send_command(node, &c.id, ContainerCommand::Run(Box::new(c.order())));
        ctx.log(EventLogLine {
            level: LogSeverity::Normal,
            reason: Reason::RequestGranted,
            object: LogObject::App(app_id.clone()),
            node: Some(node.clone()),
            words: LogMessage::Granted(request.clone(), c.id.clone(), waited),
        });
        app.queue_update(UpdateKind::Allocated(c.granted_for(request.clone())), ctx);
        self.enter_grant(c, node, ctx);
        if let Some((kept, _)) = self.scheduler.reservations.of(app_id, request) {
            self.unreserve(kept, "the request was granted", ctx);
        }
        if gives_way {
            self.arm_reach(app_id, request, ctx.now);
        }
        self.requeue(app_id, request);
    }

    /// Grants the container of a managed master.
    pub(crate) fn grant_master(
        &mut self,
        app_id: &AppId,
        node: &NodeId,
        ctx: &mut StepContext<'_>,
    ) {
        let id = self.allocations.next_id(app_id, self.epoch);
        let Some(home) = self.apps.row_of(app_id) else {
            return;
        };
        let Some(app) = self.apps.at_mut(home) else {
            return;
        };
        let (Some(size), MasterKind::Managed { launch, .. }) =
            (app.master.clone(), &app.spec.master)
        else {
            return;
        };
        let mut launch = LaunchSpec::clone(launch);
        launch.heap = size.heap;
        launch
            .env
            .insert("HEADROOM_ATTEMPT".to_owned(), app.attempt.to_string());
        app.master_node = Some(node.clone());
        app.runs.granted(&id, node, &size.resource, ctx.wall);
        let message = format!(
            "attempt {} of the master is placed on {node} with {}",
            app.attempt, size.resource
        );
        let c = new_container(
            id.clone(),
            node,
            (None, app.attempt),
            size.resource,
            (Arc::new(launch), app.user.clone(), home),
            ctx,
        );
        let order = Box::new(c.order());
        self.queue.remove(app_id, None, self.allocations.ledger());
        self.enter_grant(c, node, ctx);
        self.attempt_event(app_id, attempt::AttemptEvent::Granted(id.clone()), ctx);
        self.apps.save(app_id, ctx);
        ctx.log_app(LogSeverity::Normal, Reason::MasterLaunched, app_id, message);
        ctx.send_command(node, &id, ContainerCommand::Run(order));
    }

    fn enter_grant(&mut self, c: Container, node: &NodeId, ctx: &mut StepContext<'_>) {
        let grants = &mut self.scheduler.reservations.recent_grants;
        grants.granted(c.id.seq, &c.resource);
        self.enter(c, node, ctx);
    }

    fn enter(&mut self, c: Container, node: &NodeId, ctx: &mut StepContext<'_>) {
        self.nodes.add_container(node, &c.id);
        if let Some(app) = self.apps.at_mut(c.home) {
            app.containers.insert(c.id.clone());
            if let (Some(spots), Some(request)) = (&mut app.spots, &c.request)
                && let Some(ix) = self.nodes.index().ix(node)
            {
                spots.came(request, ix);
            }
        }
        self.allocations.insert(c, ctx);
        self.reindex(node);
    }

    /// Records that resources became free on a node.
    pub(crate) fn note_freed(&mut self, node: &NodeId) {
        self.queue.note_room();
        self.nodes.mark_moved(node);
    }

    /// Updates the index for all nodes whose allocation has changed.
    pub(crate) fn reindex_moved(&mut self) {
        self.nodes
            .reindex_moved(self.allocations.ledger(), &mut self.scheduler);
    }

    /// Adopts a container of an earlier incarnation that only its node knows.
    pub(crate) fn adopt(
        &mut self,
        node: &NodeId,
        seen: &ReportedContainer,
        ctx: &mut StepContext<'_>,
    ) {
        let origin = (seen.request.clone(), seen.attempt);
        let Some(home) = self.apps.row_of(&seen.container.app) else {
            return;
        };
        let user = self
            .apps
            .at(home)
            .map_or_else(Arc::default, |app| app.user.clone());
        let mut c = new_container(
            seen.container.clone(),
            node,
            origin,
            seen.resource.clone(),
            (Arc::default(), user, home),
            ctx,
        );
        c.granted = seen.granted;
        c.used = seen.used;
        c.seen = Some(ctx.now);
        c.version = seen.version;
        c.newest = seen
            .refused
            .as_ref()
            .map_or(seen.version, |r| r.version.max(seen.version));
        c.state = match seen.phase {
            ContainerPhase::Preparing | ContainerPhase::Starting => ContainerState::Launching,
            ContainerPhase::Running => ContainerState::Running,
            ContainerPhase::Stopping | ContainerPhase::Exited => {
                ContainerState::Stopping { asked: None }
            }
        };
        let (running, id, app_id) = (
            c.state == ContainerState::Running,
            c.id.clone(),
            c.id.app.clone(),
        );
        if let (Some(app), Some(request)) = (self.apps.at_mut(home), &seen.request) {
            app.tallies.entry(request).count_grant();
            app.queue_update(UpdateKind::Allocated(c.granted_for(request.clone())), ctx);
            if running {
                let container = id.clone();
                app.queue_update(UpdateKind::Running { container }, ctx);
            }
        }
        self.enter(c, node, ctx);
        self.queue.run(&app_id);
        match &seen.request {
            None => self.attempt_event(&app_id, attempt::AttemptEvent::Found, ctx),
            Some(request) => self.requeue(&app_id, request),
        }
        self.send_drain(node, &app_id, ctx);
        if self
            .apps
            .get(&app_id)
            .is_some_and(|app| app.state.is_ending())
        {
            self.stop(&id, StopCause::Asked, ctx);
        }
    }

    /// Orders a container to stop.
    pub(crate) fn stop(&mut self, id: &ContainerId, cause: StopCause, ctx: &mut StepContext<'_>) {
        self.container_event(id, ContainerEvent::Stop(cause), ctx);
    }

    /// Applies an event to a container and carries out the resulting actions.
    pub(crate) fn container_event(
        &mut self,
        id: &ContainerId,
        event: ContainerEvent,
        ctx: &mut StepContext<'_>,
    ) {
        if let Some(row) = self.allocations.row_of(id) {
            self.container_event_at(row, event, ctx);
        }
    }

    /// Like [`Cluster::container_event`], for a known row.
    pub(crate) fn container_event_at(
        &mut self,
        row: RowPosition,
        event: ContainerEvent,
        ctx: &mut StepContext<'_>,
    ) {
        let mut acts = match self.allocations.apply(row, event) {
            Ok(acts) => acts,
            Err(illegal) => return ctx.illegal(illegal),
        };
        for act in acts.drain(..) {
            match act {
                ContainerAction::Started => self.container_started(row, ctx),
                ContainerAction::SendStop(cause) => self.allocations.send_stop(row, cause, ctx),
                ContainerAction::Ended(report) => self.container_ended(row, &report, ctx),
                ContainerAction::Forget => self.forget(row, ctx),
            }
        }
        self.allocations.recycle(acts);
    }

    fn container_started(&mut self, row: RowPosition, ctx: &mut StepContext<'_>) {
        let Some(c) = self.allocations.at(row) else {
            return;
        };
        ctx.log(container_line(
            LogSeverity::Normal,
            Reason::ContainerStarted,
            &c.id,
            &c.node,
            LogMessage::Runs(c.request.clone()),
        ));
        let Some(app) = self.apps.at_mut(c.home) else {
            return;
        };
        if c.request.is_some() {
            app.queue_update(
                UpdateKind::Running {
                    container: c.id.clone(),
                },
                ctx,
            );
        } else if app.is_current_master(&c.id) && !app.run.is_registered() {
            let app = c.id.app.clone();
            self.expect_master(&app, ctx.now);
        }
    }

    fn container_ended(
        &mut self,
        row: RowPosition,
        report: &Arc<ExitReport>,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(c) = self.allocations.release(row, ctx) else {
            return;
        };
        let (id, node, home, request) = (c.id.clone(), c.node.clone(), c.home, c.request.clone());
        let resizing = c.sizing != size::ResizeState::Stable;
        self.note_freed(&node);
        if resizing {
            self.timers.cancel(&TimerKey::Resize(id.clone()));
        }
        ctx.log(exit_line(&id, report));
        if report.reason == ExitReason::NodeOom {
            let message = format!("the host ran out of memory and killed {id}");
            ctx.log_node(LogSeverity::Warning, Reason::NodeOom, &report.node, message);
        }
        let Some(app) = self.apps.at_mut(home) else {
            return;
        };
        match request {
            Some(request) => {
                if let Some(spots) = &mut app.spots
                    && let Some(ix) = self.nodes.index().ix(&node)
                {
                    spots.went(&request, ix);
                }
                let counts = app.tallies.entry(&request);
                counts.ended();
                if app.state.is_ending() {
                    counts.acked(life(&id, self.epoch));
                    self.container_event_at(row, ContainerEvent::Acked, ctx);
                    self.maybe_over(&id.app, ctx);
                } else {
                    app.queue_update(
                        UpdateKind::Exited {
                            request,
                            report: report.clone(),
                        },
                        ctx,
                    );
                }
            }
            None => {
                app.runs.exited(&id, report.reason, report.ended);
                let current = app.is_current_master(&id);
                self.container_event_at(row, ContainerEvent::Acked, ctx);
                if current {
                    self.attempt_event(&id.app, attempt::AttemptEvent::Exited(report.reason), ctx);
                }
                self.maybe_over(&id.app, ctx);
            }
        }
        self.settle_mark(&node, ctx);
    }

    fn forget(&mut self, row: RowPosition, ctx: &mut StepContext<'_>) {
        let Some((id, node, home)) = self.allocations.retire(row, ctx) else {
            return;
        };
        self.nodes.remove_container(&node, &id);
        if let Some(app) = self.apps.at_mut(home) {
            app.containers.remove(&id);
        }
        ctx.send_command(&node, &id, ContainerCommand::Forget);
        self.settle_mark(&node, ctx);
    }

    /// Processes a master's acknowledgement of every update up to `cursor`.
    pub(crate) fn ack_updates(&mut self, app_id: &AppId, cursor: u64, ctx: &mut StepContext<'_>) {
        let Some(row) = self.apps.row_of(app_id) else {
            return;
        };
        let was_held = self
            .apps
            .at(row)
            .is_some_and(|app| app.updates.len() >= MAX_UNACKED);
        while let Some(update) = self
            .apps
            .at_mut(row)
            .and_then(|app| app.updates.take_acked(cursor))
        {
            if let UpdateKind::Exited { request, report } = update.what {
                if let Some(app) = self.apps.at_mut(row) {
                    let life = life(&report.container, self.epoch);
                    app.tallies.entry(&request).acked(life);
                }
                self.container_event(&report.container, ContainerEvent::Acked, ctx);
            }
        }
        if was_held {
            self.queue.note_room();
        }
    }

    /// Stops one container on request.
    pub(crate) fn stop_container(
        &mut self,
        id: &ContainerId,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let known = self.allocations.row_of(id).is_some();
        if !known && self.allocations.history().get(id).is_none() {
            return Err(CallRefusal::NoSuchContainer(id.clone()));
        }
        self.stop(id, StopCause::Asked, ctx);
        Ok(CallAnswer::Done)
    }

    /// Creates an exit report for an end that no node reported: the node is lost, or has lost the
    /// container.
    pub(crate) fn create_exit_report(
        &mut self,
        id: &ContainerId,
        reason: ExitReason,
        why: String,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(c) = self.allocations.get(id) else {
            return;
        };
        let Some(node) = self.nodes.get(&c.node) else {
            return;
        };
        let mut evidence = Evidence::empty(node.enforcer);
        evidence.missing.push(why);
        let report = ExitReport {
            container: id.clone(),
            node: c.node.clone(),
            reason,
            evidence,
            diagnosis: Vec::new(),
            started: None,
            ended: ctx.wall,
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks: Vec::new(),
        };
        self.container_event(id, ContainerEvent::Exited(Arc::new(report)), ctx);
    }

    /// Updates the index entry of a node from the ledger and the node's state.
    pub(crate) fn reindex(&mut self, id: &NodeId) {
        self.nodes
            .reindex(id, self.allocations.ledger(), &mut self.scheduler);
    }

    /// Restarts the heartbeat timeout of the master. A master that is not registered may take
    /// longer, if its submission says so.
    pub(crate) fn expect_master(&mut self, app: &AppId, now: Tick) {
        let starting = self.apps.get(app).filter(|app| !app.run.is_registered());
        let timeout = starting
            .and_then(crate::app::ClusterApplication::start_timeout)
            .unwrap_or(self.settings.master_silence);
        self.timers.set(
            crate::timer::TimerKey::Master(app.clone()),
            now.plus(timeout),
        );
    }
}

fn new_container(
    id: ContainerId,
    node: &NodeId,
    (request, attempt): (Option<RequestId>, u32),
    resource: Resource,
    (launch, user, home): (Arc<LaunchSpec>, Arc<str>, RowPosition),
    ctx: &StepContext<'_>,
) -> Container {
    let granted = ctx.wall;
    let node = node.clone();
    Container {
        id,
        node,
        request,
        attempt,
        resource,
        version: 1,
        sizing: size::ResizeState::Stable,
        newest: 1,
        size_sent: ctx.now,
        launch,
        user,
        granted,
        used: None,
        seen: None,
        stop_asked: None,
        state: ContainerState::Allocated,
        home,
    }
}

fn life(id: &ContainerId, now: Epoch) -> GrantIncarnation {
    if id.epoch == now {
        GrantIncarnation::This
    } else {
        GrantIncarnation::Earlier
    }
}

pub(crate) fn container_line(
    level: LogSeverity,
    reason: Reason,
    id: &ContainerId,
    node: &NodeId,
    words: impl Into<LogMessage>,
) -> EventLogLine {
    EventLogLine {
        level,
        reason,
        object: LogObject::Container(id.clone()),
        node: Some(node.clone()),
        words: words.into(),
    }
}

fn exit_line(id: &ContainerId, report: &ExitReport) -> EventLogLine {
    let (level, word) = match report.reason.charge() {
        ExitCharge::Memory => (LogSeverity::Warning, Reason::OomKilled),
        ExitCharge::Plain => (LogSeverity::Warning, Reason::ContainerExited),
        ExitCharge::Free if report.reason == ExitReason::Stopped => {
            (LogSeverity::Normal, Reason::ContainerExited)
        }
        ExitCharge::Free => (LogSeverity::Warning, Reason::ContainerExited),
        ExitCharge::Success => (LogSeverity::Normal, Reason::ContainerExited),
    };
    container_line(
        level,
        word,
        id,
        &report.node,
        LogMessage::Ended(report.reason),
    )
}

//! Containers: grant, adoption from an earlier incarnation, end, acknowledgement and removal.

use std::sync::Arc;

use headroom_types::{
    AppId, ContainerId, Epoch, Evidence, ExitCharge, ExitReason, ExitReport, LaunchSpec, NodeId,
    Reason, RequestId, Resource, StopCause, Tick,
};

use crate::app::KeptUpdate;
use crate::cluster::{Cluster, MAX_UNACKED};
use crate::container::{Container, ContainerAction, ContainerEvent, ContainerState};
use crate::event::{
    CallAnswer, CallRefusal, ContainerCommand, ContainerPhase, EventLogLine, LogMessage, LogObject,
    LogSeverity, MasterKind, ReportedContainer, UpdateKind,
};
use crate::placement::LocalityLevel;
use crate::request::GrantIncarnation;
use crate::sched::QueueAttempt;
use crate::sched::node_ix::NodeNumber;
use crate::step_context::StepContext;
use crate::table::RowPosition;
use crate::timer::TimerKey;
use crate::{attempt, size};

impl Cluster {
    /// Grants one container of a request on a node with enough free resources.
    pub(crate) fn grant_request(
        &mut self,
        home: RowPosition,
        row: RowPosition,
        number: NodeNumber,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self.apps.at(home) else {
            return;
        };
        let id = self.allocations.next_id(&app.id, self.epoch);
        let (Some(node), Some((request, asked))) =
            (self.nodes.at(number), app.requests.entry_at(row))
        else {
            return;
        };
        let (node, request) = (node.id.clone(), request.clone());
        let is_kept = self.scheduler.reservations.of(&app.id, &request).is_some();
        if !self.may_take(&app.id, &request, &asked.ask.resource, number) {
            ctx.illegal(format!(
                "{id} is placed on {node}, into resources that are set aside for another request"
            ));
        }
        let Some(app) = self.apps.at_mut(home) else {
            return;
        };
        let Some(asked) = app.requests.at_mut(row) else {
            return;
        };
        let waited = ctx.now.since(asked.waiting);
        (asked.waiting, asked.served) = (ctx.now, id.seq);
        asked.reach = LocalityLevel::first(&asked.ask.place);
        let gives_way = asked.reach.next(&asked.ask.place).is_some();
        let whose = ContainerHome {
            launch: asked.ask.launch.clone(),
            user: app.user.clone(),
            home,
            counts: Some(asked.counts),
        };
        let c = new_container(
            id,
            (&node, number),
            (Some(request.clone()), app.attempt),
            asked.ask.resource.clone(),
            whose,
            ctx,
        );
        if let Some(counts) = app.counts_at(c.counts) {
            counts.count_grant();
        }
        ctx.send_command(&node, &c.id, ContainerCommand::Run(Box::new(c.order())));
        ctx.log(EventLogLine {
            level: LogSeverity::Normal,
            reason: Reason::RequestGranted,
            object: LogObject::App(c.id.app.clone()),
            words: LogMessage::Granted(request.clone(), c.id.clone(), waited),
            node: Some(node),
        });
        let what = UpdateKind::Allocated(c.granted_for(request));
        let container = self.enter_grant(c, ctx);
        if let Some(app) = self.apps.at_mut(home) {
            app.queue_container_update(KeptUpdate::Allocated(container), what, ctx);
        }
        if is_kept || gives_way {
            self.after_special_grant(home, row, gives_way, ctx);
        }
        self.requeue_at(home, row, QueueAttempt::IfNew);
    }

    /// Grants one container of a request, or of the master when no request is named.
    pub(crate) fn grant_by_id(
        &mut self,
        app: &AppId,
        request: Option<&RequestId>,
        node: NodeNumber,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(home) = self.apps.row_of(app) else {
            return;
        };
        let Some(request) = request else {
            return self.grant_master(home, node, ctx);
        };
        let app = self.apps.at(home);
        if let Some(row) = app.and_then(|app| app.requests.row_of(request)) {
            self.grant_request(home, row, node, ctx);
        }
    }

    /// Ends the reservation of a granted request, and restarts the wait for a preferred place.
    fn after_special_grant(
        &mut self,
        home: RowPosition,
        row: RowPosition,
        gives_way: bool,
        ctx: &mut StepContext<'_>,
    ) {
        let app = self.apps.at(home);
        let Some((app, request)) =
            app.and_then(|app| Some((app.id.clone(), app.requests.entry_at(row)?.0.clone())))
        else {
            return;
        };
        if let Some((kept, _)) = self.scheduler.reservations.of(&app, &request) {
            self.unreserve(kept, "the request was granted", ctx);
        }
        if gives_way {
            self.arm_reach(&app, &request, ctx.now);
            // It waits for its preferred place again, so it no longer shares a line.
            self.requeue_at(home, row, QueueAttempt::Always);
        }
    }

    /// Grants the container of a managed master.
    pub(crate) fn grant_master(
        &mut self,
        home: RowPosition,
        number: NodeNumber,
        ctx: &mut StepContext<'_>,
    ) {
        let (Some(app), Some(node)) = (self.apps.at_mut(home), self.nodes.at(number)) else {
            return;
        };
        let (app_id, node) = (&app.id.clone(), &node.id.clone());
        let id = self.allocations.next_id(app_id, self.epoch);
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
            (node, number),
            (None, app.attempt),
            size.resource,
            ContainerHome {
                launch: Arc::new(launch),
                user: app.user.clone(),
                home,
                counts: None,
            },
            ctx,
        );
        let order = Box::new(c.order());
        self.queue.remove(app_id, None);
        self.enter_grant(c, ctx);
        self.attempt_event(app_id, attempt::AttemptEvent::Granted(id.clone()), ctx);
        self.apps.save(app_id, ctx);
        ctx.log_app(LogSeverity::Normal, Reason::MasterLaunched, app_id, message);
        ctx.send_command(node, &id, ContainerCommand::Run(order));
        self.take_first_request(home, ctx);
    }

    #[inline] // a container is large, and a call copies it
    fn enter_grant(&mut self, c: Container, ctx: &mut StepContext<'_>) -> RowPosition {
        let grants = &mut self.scheduler.reservations.recent_grants;
        grants.granted(c.id.seq, &c.resource);
        self.enter(c, ctx)
    }

    #[inline]
    fn enter(&mut self, mut c: Container, ctx: &mut StepContext<'_>) -> RowPosition {
        let (home, node) = (c.home, c.node_number);
        if let Some(app) = self.apps.at_mut(home) {
            c.place = u32::try_from(app.containers.len()).unwrap_or(u32::MAX);
            if let (Some(spots), Some(request)) = (&mut app.spots, &c.request) {
                spots.came(request, node);
            }
        }
        let row = self.allocations.insert(c, ctx);
        if let Some(app) = self.apps.at_mut(home) {
            app.containers.push(row);
        }
        self.nodes.add_container(node, row);
        self.reindex_at(node);
        row
    }

    /// Records that resources became free on a node.
    pub(crate) fn note_freed(&mut self, node: NodeNumber) {
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
        let (Some(number), Some(app)) = (self.nodes.number(node), self.apps.at_mut(home)) else {
            return;
        };
        let counts = seen.request.as_ref();
        let counts = counts.map(|request| app.tallies.row_or_default(request));
        let mut c = new_container(
            seen.container.clone(),
            (node, number),
            origin,
            seen.resource.clone(),
            ContainerHome {
                launch: Arc::default(),
                user: app.user.clone(),
                home,
                counts,
            },
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
        let grant = seen
            .request
            .as_ref()
            .map(|request| c.granted_for(request.clone()));
        let counts = c.counts;
        let row = self.enter(c, ctx);
        if let (Some(app), Some(grant)) = (self.apps.at_mut(home), grant) {
            if let Some(counts) = app.counts_at(counts) {
                counts.count_grant();
            }
            // Otherwise the answer to the next registration lists the container, as running or not.
            if app.run.is_registered() {
                let what = UpdateKind::Allocated(grant);
                app.queue_container_update(KeptUpdate::Allocated(row), what, ctx);
                if running {
                    let container = id.clone();
                    let what = UpdateKind::Running { container };
                    app.queue_container_update(KeptUpdate::Running(row), what, ctx);
                }
            }
        }
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
            let container = c.id.clone();
            let what = UpdateKind::Running { container };
            app.queue_container_update(KeptUpdate::Running(row), what, ctx);
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
        let (id, node, home, request) = (c.id.clone(), c.node_number, c.home, c.request.clone());
        let counts = c.counts;
        let resizing = c.sizing != size::ResizeState::Stable;
        self.note_freed(node);
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
                if let Some(spots) = &mut app.spots {
                    spots.went(&request, node);
                }
                let ending = app.state.is_ending();
                if let Some(counts) = app.counts_at(counts) {
                    counts.ended();
                    if ending {
                        counts.acked(life(&id, self.epoch));
                    }
                }
                if ending {
                    self.container_event_at(row, ContainerEvent::Acked, ctx);
                    self.maybe_over(&id.app, ctx);
                } else {
                    // No registration will list it, and a grant precedes each end.
                    if !app.run.is_registered()
                        && id.epoch != self.epoch
                        && let Some(c) = self.allocations.at(row)
                    {
                        let what = UpdateKind::Allocated(c.granted_for(request.clone()));
                        app.queue_container_update(KeptUpdate::Allocated(row), what, ctx);
                    }
                    let report = report.clone();
                    let what = UpdateKind::Exited { request, report };
                    app.queue_container_update(KeptUpdate::Exited(row), what, ctx);
                }
            }
            None => {
                app.runs.exited(&id, report);
                let current = app.is_current_master(&id);
                self.container_event_at(row, ContainerEvent::Acked, ctx);
                if current {
                    self.attempt_event(&id.app, attempt::AttemptEvent::Exited(report.reason), ctx);
                }
                self.maybe_over(&id.app, ctx);
            }
        }
        self.advance_drain_at(node, ctx);
    }

    fn forget(&mut self, row: RowPosition, ctx: &mut StepContext<'_>) {
        let Some(retired) = self.allocations.retire(row, ctx) else {
            return;
        };
        self.nodes.remove_container(retired.node_number, row);
        if let Some(app) = self.apps.at_mut(retired.home)
            && let Some(moved) = app.containers.remove_at(retired.place)
        {
            self.allocations.note_place(moved, retired.place);
        }
        self.advance_drain_at(retired.node_number, ctx);
    }

    /// Reads the records that the end of these containers will need. The reads do not depend on each
    /// other, so the processor waits for the memory of many containers at once. Without this, each
    /// container would wait alone.
    pub(crate) fn prefetch_containers(&self, rows: impl Iterator<Item = RowPosition>) {
        let touch = |row: RowPosition| {
            let c = self.allocations.at(row)?;
            let app = self.apps.at(c.home)?;
            let counts = c.counts.and_then(|counts| app.tallies.at(counts));
            let live = counts.map_or(0, |counts| counts.live);
            Some(c.touch() ^ app.updates.touch() ^ u64::from(live))
        };
        std::hint::black_box(rows.filter_map(touch).fold(0, |all, one| all ^ one));
    }

    /// Processes a master's acknowledgement of every update up to `cursor`.
    pub(crate) fn ack_updates(&mut self, app_id: &AppId, cursor: u64, ctx: &mut StepContext<'_>) {
        let Some(row) = self.apps.row_of(app_id) else {
            return;
        };
        let Some(app) = self.apps.at(row) else {
            return;
        };
        let was_held = app.updates.len() >= MAX_UNACKED;
        self.prefetch_containers(app.updates.ended_until(cursor));
        let ended = app.updates.ended_until(cursor).count();
        self.allocations.history().prefetch_oldest(ended);
        while let Some(update) = self
            .apps
            .at_mut(row)
            .and_then(|app| app.updates.take_acked(cursor))
        {
            if let KeptUpdate::Exited(container) = update {
                if let (Some(app), Some(c)) =
                    (self.apps.at_mut(row), self.allocations.at(container))
                    && let Some(counts) = app.counts_at(c.counts)
                {
                    counts.acked(life(&c.id, self.epoch));
                }
                self.container_event_at(container, ContainerEvent::Acked, ctx);
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
        if let Some(number) = self.nodes.number(id) {
            self.reindex_at(number);
        }
    }

    /// Like [`Cluster::reindex`], by number.
    pub(crate) fn reindex_at(&mut self, node: NodeNumber) {
        self.nodes
            .reindex(node, self.allocations.ledger(), &mut self.scheduler);
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

/// Record of the application of a new container, and what the container takes from it.
struct ContainerHome {
    launch: Arc<LaunchSpec>,
    user: Arc<str>,
    home: RowPosition,
    counts: Option<RowPosition>,
}

#[inline]
fn new_container(
    id: ContainerId,
    (node, node_number): (&NodeId, NodeNumber),
    (request, attempt): (Option<RequestId>, u32),
    resource: Resource,
    whose: ContainerHome,
    ctx: &StepContext<'_>,
) -> Container {
    Container {
        id,
        state: ContainerState::Allocated,
        node_number,
        home: whose.home,
        counts: whose.counts,
        place: 0,
        version: 1,
        newest: 1,
        sizing: size::ResizeState::Stable,
        used: None,
        seen: None,
        request,
        resource,
        node: node.clone(),
        launch: whose.launch,
        user: whose.user,
        granted: ctx.wall,
        attempt,
        size_sent: ctx.now,
        stop_asked: None,
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

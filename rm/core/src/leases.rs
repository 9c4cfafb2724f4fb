//! Containers: granted, taken over from an earlier life, ended, acknowledged, forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_types::{
    AppId, Bytes, Charge, ContainerId, Epoch, Evidence, ExitReason, ExitReport, NodeId, RequestId, Resource, StopCause, Tick,
};

use crate::ask::Life;
use crate::attempt;
use crate::cluster::{Cluster, Ctx, MAX_UNACKED, granted};
use crate::container::{self, Act, Container, Event, State};
use crate::event::{Answer, Launch, Level, LogLine, Master, Phase, Refusal, Seen, UpdateKind, Want};
use crate::history::Finished;
use crate::ledger::Part;
use crate::save::Save;
use crate::sched::part;
use crate::size;
use crate::timer::Key;

impl Cluster {
    /// One container of a request, on a node that has the room.
    pub(crate) fn grant_request(&mut self, app_id: &AppId, request: &RequestId, node: &NodeId, ctx: &mut Ctx<'_>) {
        let id = self.next_container_id(app_id);
        let Some(app) = self.apps.get_mut(app_id) else { return };
        let Some(asked) = app.requests.get(request) else { return };
        let (resource, launch) = (asked.ask.resource.clone(), asked.ask.launch.clone());
        if !self.may_take(app_id, request, &resource, node) {
            ctx.illegal(format!("{id} is placed into what is kept for another on {node}"));
        }
        let Some(app) = self.apps.get_mut(app_id) else { return };
        let c = new_container(id, node, (Some(request.clone()), app.attempt), resource, launch, ctx);
        app.tallies.entry(request.clone()).or_default().took();
        let told = UpdateKind::Allocated(granted(&c, request.clone()));
        let order = Box::new(c.order());
        ctx.tell(node, &c.id, Want::Run(order));
        self.reservations.lately.granted(c.id.seq, &c.resource);
        self.enter(c, ctx);
        self.update(app_id, told, ctx);
        if let Some((kept, _)) = self.reservations.of(app_id, request) {
            self.unreserve(kept, "it was served", ctx);
        }
        self.begin_wait(app_id, request, ctx.now);
        self.requeue(app_id, request);
    }

    /// The container of a managed master.
    pub(crate) fn grant_master(&mut self, app_id: &AppId, node: &NodeId, ctx: &mut Ctx<'_>) {
        let id = self.next_container_id(app_id);
        let Some(app) = self.apps.get_mut(app_id) else { return };
        let (Some(size), Master::Managed { launch, .. }) = (app.master.clone(), &app.spec.master) else { return };
        let mut launch = Launch::clone(launch);
        launch.heap = size.heap;
        launch.env.insert("HEADROOM_ATTEMPT".to_owned(), app.attempt.to_string());
        app.master_node = Some(node.clone());
        app.runs.granted(&id, node, &size.resource, ctx.wall);
        let message = format!("attempt {} of the master goes to {node} with {}", app.attempt, size.resource);
        let c = new_container(id.clone(), node, (None, app.attempt), size.resource, Arc::new(launch), ctx);
        let order = Box::new(c.order());
        self.queue.remove(&crate::queue::Waiter { app: app_id.clone(), request: None }, &self.ledger);
        self.reservations.lately.granted(c.id.seq, &c.resource);
        self.enter(c, ctx);
        self.attempt_event(app_id, attempt::Event::Granted(id.clone()), ctx);
        self.save_app(app_id, ctx);
        ctx.log_app(Level::Normal, "MasterLaunched", app_id, message);
        ctx.tell(node, &id, Want::Run(order));
    }

    fn enter(&mut self, c: Container, ctx: &mut Ctx<'_>) {
        self.count_in(&c.id, &c.node, part(c.request.as_ref()), c.counted(), ctx);
        if let Some(node) = self.nodes.get_mut(&c.node) {
            node.containers.insert(c.id.clone());
        }
        if let Some(app) = self.apps.get_mut(&c.id.app) {
            app.containers.insert(c.id.clone());
            if let (Some(spots), Some(request), Some(ix)) = (&mut app.spots, &c.request, self.index.ix(&c.node)) {
                spots.came(request, ix);
            }
        }
        self.containers.insert(c.id.clone(), c);
    }

    /// A container's size is taken from its node and application.
    pub(crate) fn count_in(
        &mut self,
        id: &ContainerId,
        node: &NodeId,
        part: Part,
        (size, heap): (Resource, Bytes),
        ctx: &mut Ctx<'_>,
    ) {
        if !self.ledger.take(node, &id.app, part, &size, heap) {
            ctx.illegal(format!("{id}: its size {size} cannot be added to {node}"));
        }
        self.reindex(node);
    }

    /// A container's size goes back.
    pub(crate) fn count_out(
        &mut self,
        id: &ContainerId,
        node: &NodeId,
        part: Part,
        (size, heap): (Resource, Bytes),
        ctx: &mut Ctx<'_>,
    ) {
        if !self.ledger.give(node, &id.app, part, &size, heap) {
            ctx.illegal(format!("{id}: its size {size} was not taken on {node}"));
        }
        self.room_changed = true;
        self.reindex(node);
    }

    /// A container that only its node knows of, from an earlier life of the resource manager.
    pub(crate) fn adopt(&mut self, node: &NodeId, seen: &Seen, ctx: &mut Ctx<'_>) {
        let origin = (seen.request.clone(), seen.attempt);
        let mut c = new_container(seen.container.clone(), node, origin, seen.resource.clone(), Arc::default(), ctx);
        c.granted = seen.granted;
        c.used = seen.used;
        c.seen = Some(ctx.now);
        c.version = seen.version;
        c.newest = seen.refused.as_ref().map_or(seen.version, |r| r.version.max(seen.version));
        c.state = match seen.phase {
            Phase::Preparing | Phase::Starting => State::Launching,
            Phase::Running => State::Running,
            Phase::Stopping | Phase::Exited => State::Stopping { asked: None },
        };
        let (running, id, app_id) = (c.state == State::Running, c.id.clone(), c.id.app.clone());
        if let (Some(app), Some(request)) = (self.apps.get_mut(&app_id), &seen.request) {
            app.tallies.entry(request.clone()).or_default().took();
            self.update(&app_id, UpdateKind::Allocated(granted(&c, request.clone())), ctx);
            if running {
                self.update(&app_id, UpdateKind::Running { container: id.clone() }, ctx);
            }
        }
        self.enter(c, ctx);
        self.queue.run(&app_id);
        match &seen.request {
            None => self.attempt_event(&app_id, attempt::Event::Found, ctx),
            Some(request) => self.requeue(&app_id, request),
        }
        self.tell_of_drain(node, &app_id, ctx);
        if self.apps.get(&app_id).is_some_and(|app| app.state.is_ending()) {
            self.container_event(&id, Event::Stop(StopCause::Asked), ctx);
        }
    }

    /// Lets something happen to a container, and carries out what follows.
    pub(crate) fn container_event(&mut self, id: &ContainerId, event: Event, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.get_mut(id) else { return };
        let mut acts = Vec::new();
        match container::on(c.state.clone(), event, &mut acts) {
            Ok(next) => c.state = next,
            Err(illegal) => return ctx.illegal(format!("{id}: {illegal}")),
        }
        for act in acts {
            match act {
                Act::Started => self.container_started(id, ctx),
                Act::TellStop(cause) => self.tell_stop(id, cause, ctx),
                Act::Ended(report) => self.container_ended(id, &report, ctx),
                Act::Forget => self.forget(id, ctx),
            }
        }
    }

    fn tell_stop(&mut self, id: &ContainerId, cause: StopCause, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.get_mut(id) else { return };
        c.stop_asked = Some(ctx.now);
        self.stopping.entry(c.node.clone()).or_default().insert(id.clone());
        ctx.tell(&c.node, id, Want::Stop { cause });
    }

    fn no_longer_stopping(&mut self, id: &ContainerId, node: &NodeId) {
        let Some(stopping) = self.stopping.get_mut(node) else { return };
        stopping.remove(id);
        if stopping.is_empty() {
            self.stopping.remove(node);
        }
    }

    fn container_started(&mut self, id: &ContainerId, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.get(id) else { return };
        let what = format!("{} runs on {}", c.request.as_ref().map_or("master", RequestId::as_str), c.node);
        ctx.log(container_line(Level::Normal, "ContainerStarted", id, &c.node, what));
        let Some(app) = self.apps.get(&id.app) else { return };
        if c.request.is_some() {
            self.update(&id.app, UpdateKind::Running { container: id.clone() }, ctx);
        } else if app.is_current_master(id) && !app.run.is_registered() {
            self.expect_master(&id.app.clone(), ctx.now);
        }
    }

    fn container_ended(&mut self, id: &ContainerId, report: &Arc<ExitReport>, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.get(id) else { return };
        let (node, request, counted) = (c.node.clone(), c.request.clone(), c.counted());
        self.no_longer_stopping(id, &node);
        self.count_out(id, &node, part(request.as_ref()), counted, ctx);
        self.timers.cancel(&Key::Resize(id.clone()));
        ctx.log(exit_line(id, report));
        let Some(app) = self.apps.get_mut(&id.app) else { return };
        let ending = app.state.is_ending();
        match request {
            Some(request) => {
                if let (Some(spots), Some(ix)) = (&mut app.spots, self.index.ix(&node)) {
                    spots.went(&request, ix);
                }
                let tally = app.tallies.entry(request.clone()).or_default();
                tally.ended();
                if ending {
                    tally.acked(life(id, self.epoch));
                    self.container_event(id, Event::Acked, ctx);
                } else {
                    self.update(&id.app, UpdateKind::Exited { request, report: report.clone() }, ctx);
                }
            }
            None => {
                app.runs.exited(id, report.reason, report.ended);
                let current = app.is_current_master(id);
                self.container_event(id, Event::Acked, ctx);
                if current {
                    self.attempt_event(&id.app, attempt::Event::Exited(report.reason), ctx);
                }
            }
        }
        self.maybe_over(&id.app, ctx);
        self.settle_mark(&node, ctx);
    }

    fn forget(&mut self, id: &ContainerId, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.remove(id) else { return };
        self.no_longer_stopping(id, &c.node);
        if let Some(node) = self.nodes.get_mut(&c.node) {
            node.containers.remove(id);
        }
        if let Some(app) = self.apps.get_mut(&id.app) {
            app.containers.remove(id);
        }
        if let State::Done { report } = &c.state {
            let finished = finished(&c, report);
            ctx.save(Save::Container(finished.clone()));
            if let Some(oldest) = self.history.push(finished) {
                ctx.save(Save::ContainerGone(oldest));
            }
        }
        ctx.tell(&c.node, id, Want::Forget);
        self.settle_mark(&c.node, ctx);
    }

    /// Tells a master something, unless nobody listens any more.
    pub(crate) fn update(&mut self, app_id: &AppId, what: UpdateKind, ctx: &mut Ctx<'_>) {
        if let Some(app) = self.apps.get_mut(app_id).filter(|app| !app.state.is_ending()) {
            ctx.update(app_id, app.updates.push(what));
        }
    }

    /// A master has taken in every update up to `cursor`.
    pub(crate) fn ack_updates(&mut self, app_id: &AppId, cursor: u64, ctx: &mut Ctx<'_>) {
        let Some(app) = self.apps.get_mut(app_id) else { return };
        let was_held = app.updates.len() >= MAX_UNACKED;
        for update in app.updates.ack(cursor) {
            if let UpdateKind::Exited { request, report } = update.what {
                if let Some(app) = self.apps.get_mut(app_id) {
                    let life = life(&report.container, self.epoch);
                    app.tallies.entry(request).or_default().acked(life);
                }
                self.container_event(&report.container, Event::Acked, ctx);
            }
        }
        self.room_changed |= was_held;
    }

    /// Somebody wants one container to end.
    pub(crate) fn stop_container(&mut self, id: &ContainerId, ctx: &mut Ctx<'_>) -> Result<Answer, Refusal> {
        if !self.containers.contains_key(id) {
            let over = self.history.get(id).is_some();
            return if over { Ok(Answer::Done) } else { Err(Refusal::NoSuchContainer(id.clone())) };
        }
        self.container_event(id, Event::Stop(StopCause::Asked), ctx);
        Ok(Answer::Done)
    }

    /// An end that no node reported: the node, or its memory of the container, is gone.
    pub(crate) fn invent_exit(&mut self, id: &ContainerId, reason: ExitReason, why: String, ctx: &mut Ctx<'_>) {
        let Some(c) = self.containers.get(id) else { return };
        let Some(node) = self.nodes.get(&c.node) else { return };
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
        self.container_event(id, Event::Exited(Arc::new(report)), ctx);
    }

    /// The scheduler's index follows the ledger and the node's state.
    pub(crate) fn reindex(&mut self, id: &NodeId) {
        let (Some(node), Some(account)) = (self.nodes.get(id), self.ledger.node(id)) else { return };
        let Some(ix) = self.index.ix(id) else { return };
        if self.is_open(node) && !account.overdrawn {
            self.index.put(ix, self.room_for_all(id));
        } else {
            self.index.remove(ix);
        }
    }

    /// From now on the master has to speak within its time.
    pub(crate) fn expect_master(&mut self, app: &AppId, now: Tick) {
        self.timers.set(crate::timer::Key::Master(app.clone()), now.plus(self.settings.master_silence));
    }
}

fn new_container(
    id: ContainerId,
    node: &NodeId,
    (request, attempt): (Option<RequestId>, u32),
    resource: Resource,
    launch: Arc<Launch>,
    ctx: &Ctx<'_>,
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
        sizing: size::State::Settled,
        newest: 1,
        size_told: ctx.now,
        launch,
        granted,
        used: None,
        seen: None,
        stop_asked: None,
        state: State::Allocated,
    }
}

fn life(id: &ContainerId, now: Epoch) -> Life {
    if id.epoch == now { Life::This } else { Life::Earlier }
}

fn finished(c: &Container, report: &ExitReport) -> Finished {
    Finished {
        container: c.id.clone(),
        node: c.node.clone(),
        request: c.request.clone(),
        attempt: c.attempt,
        resource: c.resource.clone(),
        granted: c.granted,
        ended: report.ended,
        reason: report.reason,
        exit_code: report.evidence.exit_code,
        peak: report.evidence.own.peak,
        why: because(report),
    }
}

/// Longest sentence kept with an ended container. Characters.
const LONGEST_WHY: usize = 300;

fn because(report: &ExitReport) -> String {
    let diagnosed = report.diagnosis.first().map(|d| &d.cause);
    let missing = report.evidence.missing.first().filter(|_| report.started.is_none());
    diagnosed.or(missing).map(|why| why.chars().take(LONGEST_WHY).collect()).unwrap_or_default()
}

pub(crate) fn container_line(level: Level, reason: &'static str, id: &ContainerId, node: &NodeId, message: String) -> LogLine {
    LogLine { level, reason, object: id.to_string(), app: Some(id.app.clone()), node: Some(node.clone()), message }
}

fn exit_line(id: &ContainerId, report: &ExitReport) -> LogLine {
    let (level, word) = match report.reason.charge() {
        Charge::Memory => (Level::Warning, "OomKilled"),
        Charge::Plain => (Level::Warning, "ContainerExited"),
        Charge::Free if report.reason == ExitReason::Stopped => (Level::Normal, "ContainerExited"),
        Charge::Free => (Level::Warning, "ContainerExited"),
        Charge::Success => (Level::Normal, "ContainerExited"),
    };
    container_line(level, word, id, &report.node, report.reason.sentence())
}

/// How many containers of each request an application has alive; for the invariants.
pub(crate) fn live_by_request<'a>(containers: impl Iterator<Item = &'a Container>) -> BTreeMap<RequestId, (u32, u32)> {
    let mut counts: BTreeMap<RequestId, (u32, u32)> = BTreeMap::new();
    for c in containers {
        let Some(request) = &c.request else { continue };
        let slot = counts.entry(request.clone()).or_default();
        if c.state.is_alive() { slot.0 += 1 } else { slot.1 += 1 }
    }
    counts
}

//! The main loop: one task owns the whole state of the agent, processes one input at a time, and
//! starts jobs.
//!
//! Inputs are events (a shim ended, a job is done, desired state arrived, a timer fired). The core
//! turns them into actions, an action becomes a job, and the job's result is an input again. The
//! loop waits only for the next input.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_container_shim::record::StartResult;
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::agent::{self, AgentOutcome};
use headroom_node_core::aux_services::AuxServicesEvent;
use headroom_node_core::container::{self, ContainerEffect, ContainerOrder, LifecyclePhase};
use headroom_node_core::fence::{FenceTimeout, NodeFence};
use headroom_node_core::size::OrderedSize;
use headroom_node_core::{LaunchFailure, LaunchFailureKind};
use headroom_transport::deadline;
use headroom_types::unattributed::owners;
use headroom_types::{ContainerId, ExitCharge, ExitReport, StopCause, Tick, UnixMillis};
use headroom_wire::v1::nodes::{ContainerDesiredState, DesiredStateLine};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use crate::adopt::AdoptedContainer;
use crate::agent_input::{AgentInput, ShutdownContainers};
use crate::agent_state::{AgentSetup, AgentShutdown, AgentState, LiveContainer};
use crate::clock::{self, AgentClock};
use crate::crash;
use crate::jobs::JobStarter;
use crate::metrics::{FailedOperation, TimedLaunchStep};
use crate::node_link::{NodeLinkNews, NodeLinkRequest};
use crate::node_link_event::NodeLinkEvent;
use crate::node_messages;
use crate::notify::{self, AgentWatchdog};
use crate::rm_link::ResourceManagerLink;
use crate::sample::{self, ContainerSampler, SampledContainer, SamplerAction, SharedSampler};
use crate::stop;
use crate::unattributed_memory::UnattributedFinding;
use crate::view;

mod aux_services;

/// Time that a closing node waits for its containers beyond their grace.
const CONTAINERS_END_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of waiting inputs that are processed before messages are sent.
const MAX_WAITING_INPUTS: usize = 256;
/// Time that a closing node tries to deliver the last exit reports.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct NodeAgentLoop {
    pub(crate) state: AgentState,
    clock: AgentClock,
    link: ResourceManagerLink,
    jobs: JobStarter,
    watchdog: AgentWatchdog,
    sampling: bool,
    /// Time of the reload that the current report contains.
    sent_reload: Option<UnixMillis>,
    /// The container that is killed without grace.
    at_once: Option<ContainerId>,
    /// The cgroup of all containers is gone. Only a restarted agent can create another one.
    homeless: bool,
}

impl NodeAgentLoop {
    pub(crate) fn new(
        facts: AgentSetup,
        fence_timeout: FenceTimeout,
        clock: AgentClock,
        link: ResourceManagerLink,
        inputs: mpsc::Sender<AgentInput>,
    ) -> Self {
        let jobs = JobStarter::new(Arc::clone(&facts.site), clock, inputs);
        NodeAgentLoop {
            state: AgentState::new(facts, NodeFence::new(fence_timeout, clock.now())),
            clock,
            link,
            jobs,
            watchdog: AgentWatchdog::from_environment(),
            sampling: false,
            sent_reload: None,
            at_once: None,
            homeless: false,
        }
    }

    /// Takes over the containers of an earlier agent.
    pub(crate) fn adopt(&mut self, found: Vec<AdoptedContainer>) {
        for a in found {
            info!(container_id = %a.id, found = ?a.found, "the agent adopted a container");
            let order = a
                .order
                .as_ref()
                .map_or_else(ContainerOrder::unknown, node_messages::container_order);
            let live = self.state.live.entry(a.id.clone()).or_default();
            *live = LiveContainer {
                order: a.order,
                group: a.group,
                ..LiveContainer::default()
            };
            if let Some(shim) = a.shim {
                self.jobs.watch_found(a.id.clone(), shim);
                self.start_meter(&a.id);
            }
            self.step(agent::AgentEvent::Adopted {
                id: a.id,
                order,
                found: a.found,
            });
        }
    }

    pub(crate) async fn run(mut self, mut inputs: mpsc::Receiver<AgentInput>) {
        let mut sampler = tokio::time::interval(sample::SAMPLE_INTERVAL);
        sampler.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            self.update_aux_service_use();
            let wake = self.clock.instant(self.send_due_messages());
            if self.homeless || self.is_closed() {
                break;
            }
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => {
                        self.on_input(input);
                        self.on_waiting_inputs(&mut inputs);
                    }
                    None => break,
                },
                _ = sampler.tick() => self.sample(),
                () = deadline::ticked(wake) => {
                    self.step(agent::AgentEvent::Time);
                    self.step_aux_services(AuxServicesEvent::Time);
                }
            }
            self.watchdog.feed(self.clock.now());
        }
        if let Some(closing) = self.state.closing {
            closing.done.send(()).ok();
        }
    }

    /// Processes inputs that wait already, so that one message reports all of them.
    fn on_waiting_inputs(&mut self, inputs: &mut mpsc::Receiver<AgentInput>) {
        for _ in 0..MAX_WAITING_INPUTS {
            match inputs.try_recv() {
                Ok(input) => self.on_input(input),
                Err(_) => return,
            }
        }
    }

    /// Sends due messages to the resource manager. Returns the time of the next check.
    fn send_due_messages(&mut self) -> Tick {
        let now = self.clock.now();
        let mut wake = now.plus(Duration::from_secs(1));
        loop {
            match self.link.due(now) {
                NodeLinkRequest::Registration => self
                    .link
                    .register(view::registration(&self.state), clock::unix_now()),
                NodeLinkRequest::Stream(generation, epoch) => {
                    self.link.read_stream(generation, epoch)
                }
                NodeLinkRequest::Report(generation, epoch, scope) => {
                    self.sent_reload = self.state.reload.as_ref().map(|reload| reload.at);
                    let used = self.state.host_use.at(now);
                    let body = view::report(&self.state, epoch, &scope, used);
                    self.link.report(generation, body);
                }
                NodeLinkRequest::Nothing(at) => {
                    wake = at.map_or(wake, |at| at.min(wake));
                    break;
                }
            }
        }
        let deadlines = [self.state.core.deadline(), self.state.services.deadline()];
        deadlines.into_iter().flatten().fold(wake, Tick::min)
    }

    fn on_input(&mut self, input: AgentInput) {
        match input {
            AgentInput::Prepared(id, Ok(group)) => {
                self.timed(&id, TimedLaunchStep::Prepare);
                self.state.live.entry(id.clone()).or_default().group = Some(group);
                self.on_container_event(id, container::LifecycleEvent::Prepared);
            }
            AgentInput::Prepared(id, Err(failure)) => {
                self.not_launched(id, FailedOperation::Prepare, failure)
            }
            AgentInput::NotStarted(id, failure) => {
                self.not_launched(id, FailedOperation::Start, failure)
            }
            AgentInput::Answered(id, answer) => self.answered(id, answer),
            AgentInput::Silent(id) => {
                warn!(container_id = %id, "the shim did not report the start of the program");
                // The silent and killed shim may have started processes.
                self.jobs.kill(id.clone(), self.group(&id));
                self.on_container_event(
                    id,
                    container::LifecycleEvent::Failed(LaunchFailure::new(
                        LaunchFailureKind::Internal,
                        "the shim did not report the start of the program",
                    )),
                );
            }
            AgentInput::ShimEnded(id) => {
                crash::at("shim-ended");
                self.on_container_event(id, container::LifecycleEvent::Ended);
            }
            AgentInput::Resized(id, size, result) => self.resized(id, size, result),
            AgentInput::Collected(report) => self.collected(report),
            AgentInput::Sampled(findings) => self.sampled(findings),
            AgentInput::Link(event) => self.linked(event),
            AgentInput::AuxService(service, run, report) => {
                self.aux_service_reported(service, run, report);
            }
            AgentInput::Health(ills) => self.felt(ills),
            AgentInput::Unattributed(found) => self.left_behind(found),
            AgentInput::Question(question) => {
                view::reply(&self.state, self.link.standing(), question)
            }
            AgentInput::Reloaded(reload) => self.state.reload = Some(reload),
            AgentInput::Kill(id, reply) => drop(reply.send(self.kill_now(id))),
            AgentInput::Shutdown(containers, done) => self.shut_down(containers, done),
        }
    }

    /// Kills a container without grace. The cause is recorded first, as for every kill.
    fn kill_now(&mut self, id: ContainerId) -> bool {
        let now = self.clock.now();
        match self.state.core.get(&id).map(|c| &c.state) {
            Some(LifecyclePhase::Running) => {
                self.at_once = Some(id.clone());
                self.on_container_event(
                    id,
                    container::LifecycleEvent::Stop {
                        cause: StopCause::Asked,
                        now,
                    },
                );
                self.at_once = None;
                true
            }
            Some(LifecyclePhase::Stopping { .. }) => {
                self.jobs.kill(id.clone(), self.group(&id));
                true
            }
            Some(
                LifecyclePhase::New
                | LifecyclePhase::Preparing { .. }
                | LifecyclePhase::Starting { .. }
                | LifecyclePhase::Exited { .. }
                | LifecyclePhase::Acked,
            )
            | None => false,
        }
    }

    fn not_launched(&mut self, id: ContainerId, step: FailedOperation, failure: LaunchFailure) {
        let why = &failure.why;
        if !self.state.facts.site.enforcer.has_containers_dir() {
            // Every later order would fail in the same way, and charge an attempt each time.
            error!(container_id = %id, why, "the cgroup of all containers was removed; this agent ends, the next creates it");
            self.homeless = true;
            return;
        }
        warn!(container_id = %id, why, "the container could not be launched");
        self.state.counts.failed(step);
        self.on_container_event(id, container::LifecycleEvent::Failed(failure));
    }

    /// Records the duration of a finished launch step and starts the next one.
    fn timed(&mut self, id: &ContainerId, stage: TimedLaunchStep) {
        let now = self.clock.now();
        let started = self
            .state
            .live
            .get_mut(id)
            .and_then(|live| live.step.replace(now));
        if let Some(started) = started {
            self.state.counts.launched(stage, now.since(started));
        }
    }

    fn felt(&mut self, ills: Vec<String>) {
        match ills.as_slice() {
            [] => info!("this host is healthy again"),
            ills => {
                warn!(name: "node-unhealthy", ills = ills.join("; "), "this host takes no work until the problem is solved")
            }
        }
        self.state.ills = ills;
    }

    /// Reports the memory at once, because the resource manager counts it as allocated.
    fn left_behind(&mut self, found: UnattributedFinding) {
        let bytes = found.memory.get();
        match &found.ill {
            Some(ill) => {
                warn!(name: "node-unhealthy", ill, bytes, "this host takes no work until the memory is freed")
            }
            None if found.memory.is_zero() => info!("the memory of ended containers is free again"),
            None => warn!(
                bytes,
                owners = owners(&found.left_by),
                "ended containers left memory behind"
            ),
        }
        self.state.unattributed = found;
        self.link.node_changed();
    }

    fn answered(&mut self, id: ContainerId, answer: StartResult) {
        match answer {
            StartResult::Started { pid } => {
                crash::at("answered");
                info!(container_id = %id, pid, "the container runs");
                if let Some(group) = self
                    .state
                    .live
                    .get(&id)
                    .and_then(|live| live.group.as_ref())
                {
                    group.set_root_pid(pid);
                }
                self.timed(&id, TimedLaunchStep::Start);
                let order = self
                    .state
                    .live
                    .get(&id)
                    .and_then(|live| live.order.as_ref());
                self.state
                    .counts
                    .started(order.and_then(|order| order.request.as_ref()));
                self.start_meter(&id);
                let now = self.clock.now();
                self.on_container_event(id, container::LifecycleEvent::Started { now });
            }
            // The exit record of a shim that could not start its program has more detail than its
            // line. The end of that shim follows as an input.
            StartResult::Failed { step, errno } => {
                info!(container_id = %id, %step, errno, "the program could not be started")
            }
        }
    }

    fn collected(&mut self, report: Box<ExitReport>) {
        crash::at("collected");
        log_container_end(&report);
        let id = report.container.clone();
        let order = self
            .state
            .live
            .get(&id)
            .and_then(|live| live.order.as_ref());
        let (request, granted) = (
            order.and_then(|o| o.request.clone()),
            order.map(|o| o.granted),
        );
        self.state
            .counts
            .ended(request.as_ref(), granted, clock::unix_now(), &report);
        if let Some(live) = self.state.live.get_mut(&id) {
            live.group = None;
            live.meter = None;
        }
        self.on_container_event(id, container::LifecycleEvent::Reported(report));
    }

    fn resized(&mut self, id: ContainerId, size: OrderedSize, result: Result<(), String>) {
        let version = size.version;
        if result.is_err() {
            self.state.counts.failed(FailedOperation::Resize);
        }
        match &result {
            Ok(()) => {
                info!(container_id = %id, version, size = %size.resource, "the container was resized");
                if let Some(live) = self.state.live.get_mut(&id) {
                    if let Some(meter) = &live.meter {
                        sample::locked(meter).set_limit(size.resource.memory);
                    }
                    if let Some(order) = &mut live.order {
                        (order.version, order.resource) = (version, size.resource);
                    }
                }
            }
            Err(why) => {
                info!(container_id = %id, version, size = %size.resource, why, "the container keeps its size")
            }
        }
        self.step(agent::AgentEvent::Resized {
            id,
            version,
            result,
        });
    }

    fn start_meter(&mut self, id: &ContainerId) {
        let now = self.clock.now();
        let Some(live) = self.state.live.get_mut(id) else {
            return;
        };
        if let (Some(group), Some(order)) = (&live.group, &live.order) {
            let subject = SampledContainer {
                group: Arc::clone(group),
                limit: order.resource.memory,
                has_heap: order.launch.heap.is_some(),
                task_groups: order.launch.task_groups,
            };
            live.meter = Some(ContainerSampler::new(subject, now));
        }
    }

    fn sample(&mut self) {
        let meters: Vec<(ContainerId, SharedSampler)> = self
            .state
            .live
            .iter()
            .filter_map(|(id, live)| Some((id.clone(), Arc::clone(live.meter.as_ref()?))))
            .collect();
        if self.sampling {
            return;
        }
        if meters.is_empty() {
            self.state.facts.site.leftovers.set_bound(None);
            return;
        }
        self.sampling = true;
        self.jobs.sample(meters);
    }

    fn sampled(&mut self, findings: Vec<(ContainerId, SamplerAction)>) {
        self.sampling = false;
        let now = self.clock.now();
        for (id, finding) in findings {
            match finding {
                SamplerAction::Stop(cause) => {
                    info!(container_id = %id, ?cause, "the agent ends the container");
                    self.on_container_event(id, container::LifecycleEvent::Stop { cause, now });
                }
                SamplerAction::FinishOff => self.jobs.kill(id.clone(), self.group(&id)),
            }
        }
    }

    fn linked(&mut self, event: NodeLinkEvent) {
        let now = self.clock.now();
        match self.link.take(now, event) {
            NodeLinkNews::Peer(answer) => {
                self.step(agent::AgentEvent::NewPeer {
                    acked: answer.acked,
                });
                self.link.send_remaining_reports(&self.state.core);
            }
            NodeLinkNews::Desired(desired) => self.desired(desired),
            NodeLinkNews::Received(ids) => {
                if self.state.reload.as_ref().map(|reload| reload.at) == self.sent_reload {
                    self.state.reload = None;
                }
                let progress = !ids.is_empty();
                if progress {
                    crash::at("received");
                }
                self.step(agent::AgentEvent::Received(ids));
                // Without progress the next heartbeat is soon enough.
                if progress {
                    self.link.send_remaining_reports(&self.state.core);
                }
            }
            NodeLinkNews::Nothing => {}
        }
    }

    fn desired(&mut self, desired: DesiredStateLine) {
        // A closing node takes no work and has already stopped all of its containers.
        if self.state.closing.is_some() {
            return;
        }
        let extent = node_messages::extent(&desired);
        let mut wants = Vec::new();
        for d in desired.containers {
            let want = node_messages::desired_state(&d.want);
            if let ContainerDesiredState::Run(order) = d.want
                && self.state.core.get(&d.container).is_none()
            {
                self.state.live.insert(
                    d.container.clone(),
                    LiveContainer {
                        order: Some(*order),
                        step: Some(self.clock.now()),
                        ..LiveContainer::default()
                    },
                );
            }
            wants.push((d.container, want));
        }
        self.step(agent::AgentEvent::Desired { extent, wants });
        // The core ignores an order for a container that it already knows. Such an order leaves no
        // entry.
        self.state
            .live
            .retain(|id, _| self.state.core.get(id).is_some());
    }

    fn on_container_event(&mut self, id: ContainerId, event: container::LifecycleEvent) {
        self.step(agent::AgentEvent::Container { id, event });
    }

    fn step(&mut self, event: agent::AgentEvent) {
        let AgentOutcome {
            actions,
            refused,
            fenced,
        } = self.state.core.step(self.clock.now(), event);
        if let Some(silence) = fenced {
            let seconds = silence.as_secs();
            error!(name: "self-fenced", seconds, "the resource manager did not answer in time; all containers are ended");
        }
        for (id, illegal) in refused {
            error!(container_id = %id, %illegal, "an event is illegal in this state, ignoring");
        }
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            // Steps of one stop are one job, so that the cause is durable before the signal is
            // sent.
            let mut steps: Vec<stop::StopStep> = stop_step(&action.what).into_iter().collect();
            while let Some(next) = actions
                .next_if(|n| n.id == action.id && !steps.is_empty() && stop_step(&n.what).is_some())
            {
                steps.extend(stop_step(&next.what));
            }
            if !steps.is_empty() && self.at_once.as_ref() == Some(&action.id) {
                steps.push(stop::StopStep::Kill);
            }
            if steps.is_empty() {
                self.act(action.id, action.what);
            } else {
                let task_groups = self
                    .state
                    .live
                    .get(&action.id)
                    .and_then(|l| l.order.as_ref())
                    .is_some_and(|o| o.launch.task_groups);
                self.jobs.stop(
                    action.id.clone(),
                    self.group(&action.id),
                    task_groups,
                    steps,
                );
            }
        }
    }

    fn act(&mut self, id: ContainerId, what: ContainerEffect) {
        match what {
            ContainerEffect::Prepare => self.prepare(id),
            ContainerEffect::Abandon => self.abandon(id),
            ContainerEffect::Spawn => self.jobs.start_shim(id),
            ContainerEffect::Collect(end) => {
                let (group, meter) = self
                    .state
                    .live
                    .get(&id)
                    .map(|l| (l.group.clone(), l.meter.clone()))
                    .unwrap_or_default();
                self.jobs.collect(crate::collect::ContainerRemains {
                    id,
                    end,
                    known: Instant::now(),
                    group,
                    meter,
                });
            }
            ContainerEffect::Resize(size) => self.jobs.resize(id.clone(), self.group(&id), size),
            ContainerEffect::Changed => self.link.changed(&id),
            ContainerEffect::ReportEnd => self.link.ended(&id),
            ContainerEffect::Forget => {
                self.state.live.remove(&id);
                self.jobs.forget(id);
            }
            // Gathered by `step`.
            ContainerEffect::RecordStop(_) | ContainerEffect::Terminate | ContainerEffect::Kill => {
            }
        }
    }

    fn group(&self, id: &ContainerId) -> Option<Arc<EnforcedGroup>> {
        self.state.live.get(id)?.group.clone()
    }

    fn shut_down(&mut self, containers: ShutdownContainers, done: oneshot::Sender<()>) {
        notify::stopping();
        let now = self.clock.now();
        let grace = self
            .state
            .core
            .containers()
            .map(|(_, c)| c.order.grace)
            .max()
            .unwrap_or_default();
        let services = &self.state.facts.site.aux_services;
        let service_grace = services.values().map(|service| service.stop_grace).max();
        let give_up_at = match containers {
            ShutdownContainers::Keep => now,
            ShutdownContainers::Kill => now
                .plus(grace)
                .plus(service_grace.unwrap_or_default())
                .plus(CONTAINERS_END_TIMEOUT),
        };
        self.state.closing = Some(AgentShutdown {
            give_up_at,
            report_deadline: None,
            done,
        });
        match containers {
            ShutdownContainers::Keep => {}
            ShutdownContainers::Kill => self.step(agent::AgentEvent::StopAll(StopCause::Asked)),
        }
    }

    /// Whether nothing is left to wait for.
    fn is_closed(&mut self) -> bool {
        if self.state.closing.is_none() {
            return false;
        }
        let now = self.clock.now();
        let quiet = self.state.core.is_quiet();
        if quiet
            && self
                .state
                .closing
                .as_ref()
                .is_some_and(|c| now < c.give_up_at)
        {
            // Containers may use the services until they end.
            self.step_aux_services(AuxServicesEvent::StopAll);
        }
        let quiet = quiet && self.state.services.is_quiet();
        let reported = self.state.core.unreceived().next().is_none();
        let Some(closing) = &mut self.state.closing else {
            return false;
        };
        if closing.give_up_at <= now {
            return true;
        }
        if !quiet {
            return false;
        }
        let report_deadline = *closing
            .report_deadline
            .get_or_insert(now.plus(FINAL_REPORT_TIMEOUT));
        reported || report_deadline <= now
    }
}

/// Logs an end. Memory kills of a container have their own event name.
fn log_container_end(report: &ExitReport) {
    let (container_id, reason, evidence) = (&report.container, &report.reason, &report.evidence);
    let (code, signal, peak) = (
        evidence.exit_code,
        evidence.signal,
        evidence.own.peak.map(headroom_types::Bytes::get),
    );
    match report.reason.charge() {
        ExitCharge::Memory => {
            info!(name: "container-killed", %container_id, %reason, code, signal, peak, "the container ended")
        }
        ExitCharge::Plain | ExitCharge::Free | ExitCharge::Success => {
            info!(%container_id, %reason, code, signal, peak, "the container ended")
        }
    }
}

fn stop_step(effect: &ContainerEffect) -> Option<stop::StopStep> {
    match effect {
        ContainerEffect::RecordStop(cause) => Some(stop::StopStep::Record(*cause)),
        ContainerEffect::Terminate => Some(stop::StopStep::Terminate),
        ContainerEffect::Kill => Some(stop::StopStep::Kill),
        ContainerEffect::Prepare
        | ContainerEffect::Spawn
        | ContainerEffect::Collect(_)
        | ContainerEffect::Resize(_) => None,
        ContainerEffect::Abandon
        | ContainerEffect::Changed
        | ContainerEffect::ReportEnd
        | ContainerEffect::Forget => None,
    }
}

//! Jobs of the loop: each performs one blocking call or waits for one descriptor, and sends its
//! result as an input.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use headroom_container_shim::launcher_protocol::LauncherPacket;
use headroom_container_shim::record::{self, StartResult};
use headroom_node_cgroup::{CgroupError, EnforcedGroup};
use headroom_node_core::size::OrderedSize;
use headroom_node_core::{LaunchFailure, LaunchFailureKind};
use headroom_node_exec::{ChildProcess, WatchedProcess};
use headroom_types::{ContainerId, Name};
use headroom_wire::v1::nodes::RunOrder;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{error, warn};

use crate::adopt;
use crate::agent_input::AgentInput;
use crate::aux_service::{self, AuxServiceRun};
use crate::clock::AgentClock;
use crate::collect::{self, CollectedContainer, ContainerRemains, REMOVAL_TIMEOUT};
use crate::containers_unit::EmptyUnit;
use crate::crash;
use crate::kill_turns::KillTurns;
use crate::launch::{self, StartedShim};
use crate::launch_failure;
use crate::launcher::Conversation;
use crate::node_context::NodeContext;
use crate::process_wait;
use crate::recorded_process;
use crate::resize;
use crate::sample::{self, SharedSampler};
use crate::shim_process::{self, SHIM_ANSWER_TIMEOUT, ShimLineResult};
use crate::stop::{self, StopStep};
use crate::unattributed;

/// Maximum number of shims per processor that start at the same time. More would delay all of them:
/// if a hundred start together on one busy processor, most report nothing for half a minute.
const STARTING: usize = 8;
/// Time for which a removal of files, or of a group whose processes have just ended, holds up
/// others.
const QUICK_REMOVAL_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum time that a removal waits for the reports of other ends.
const REPORTS_TIMEOUT: Duration = Duration::from_millis(200);
/// Interval between looks for the record of a program that starts.
const RECORD_INTERVAL: Duration = Duration::from_millis(50);
/// SIGKILL.
const KILL: i32 = 9;
/// Number of requests for a shim if launchers or shims are lost.
const LAUNCHERS: u32 = 3;

/// Result of a launch through the launcher.
enum LaunchOutcome {
    /// The result is sent.
    All,
    /// Nothing was started.
    Nothing,
}

/// Counts one end that is being collected, until it is dropped.
struct CollectionCount(watch::Sender<usize>);

impl CollectionCount {
    fn new(collecting: &watch::Sender<usize>) -> Self {
        collecting.send_modify(|number| *number += 1);
        CollectionCount(collecting.clone())
    }
}

impl Drop for CollectionCount {
    fn drop(&mut self) {
        self.0
            .send_modify(|number| *number = number.saturating_sub(1));
    }
}

fn internal(why: impl Into<String>) -> LaunchFailure {
    LaunchFailure::new(LaunchFailureKind::Internal, why)
}

/// Starts jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobStarter {
    site: Arc<NodeContext>,
    clock: AgentClock,
    inputs: mpsc::Sender<AgentInput>,
    /// Permits to start a shim.
    starting: Arc<Semaphore>,
    /// The permit to remove a group or files.
    removing: Arc<Semaphore>,
    /// Number of ends that are being collected.
    collecting: watch::Sender<usize>,
    kills: KillTurns,
}

impl JobStarter {
    /// Jobs that send their results to `inputs`.
    pub(crate) fn new(
        site: Arc<NodeContext>,
        clock: AgentClock,
        inputs: mpsc::Sender<AgentInput>,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        JobStarter {
            site,
            clock,
            inputs,
            starting: Arc::new(Semaphore::new(processors.saturating_mul(STARTING))),
            removing: Arc::new(Semaphore::new(1)),
            collecting: watch::Sender::new(0),
            kills: KillTurns::default(),
        }
    }

    /// Creates directory, files and cgroup.
    pub(crate) fn prepare(&self, id: ContainerId, order: RunOrder) {
        let (jobs, of) = (self.clone(), id.clone());
        let has_files = !order.launch.fetch.is_empty();
        let job = move || {
            let known = std::time::Instant::now();
            jobs.blocking(move |site| {
                let result = launch::prepare(site, &id, &order, known)
                    .map_err(|e| launch_failure::from_error(&e));
                if let Err(failure) = &result {
                    Handle::current().block_on(site.disk_checks.check_after(failure));
                }
                Some(AgentInput::Prepared(id, result))
            })
        };
        let empty_unit = EmptyUnit::of(self.site.enforcer.root());
        if !has_files && empty_unit.is_none() {
            drop(job());
            return;
        }
        // Containers that need files wait here, so that threads remain for jobs that end
        // containers.
        let site = Arc::clone(&self.site);
        let (turns, given_up) = (site.localizer.turns(), site.localizer.expect(&of));
        tokio::spawn(async move {
            if let Some(unit) = empty_unit {
                unit.restarted().await;
            }
            // An abandoned container needs no permit.
            let _turn = tokio::select! {
                turn = turns.acquire_owned() => turn.ok(),
                () = given_up.cancelled() => None,
            };
            job().await.ok();
            site.localizer.done(&of);
        });
    }

    /// Starts the shim and waits for its answer.
    pub(crate) fn start_shim(&self, id: ContainerId) {
        let jobs = self.clone();
        tokio::spawn(async move {
            // Held until the shim has answered. The semaphore is never closed, so the permit is
            // always granted.
            let _turn = Arc::clone(&jobs.starting).acquire_owned().await;
            // Retries only if nothing was started: then the launcher was lost before it processed the
            // request, or the shim before it took the container.
            for _ in 0..LAUNCHERS {
                let (site, of) = (Arc::clone(&jobs.site), id.clone());
                let started =
                    match tokio::task::spawn_blocking(move || launch::start_shim(&site, &of)).await
                    {
                        Ok(started) => started.map_err(|e| launch_failure::from_error(&e)),
                        Err(_) => Err(internal(
                            "the start of the shim failed inside the agent; see its log",
                        )),
                    };
                match started {
                    Ok(StartedShim::Own(child, line)) => {
                        return jobs.listen_to_own(id, child, line).await;
                    }
                    Ok(StartedShim::Asked(conversation)) => {
                        match jobs.listen(&id, conversation).await {
                            LaunchOutcome::All => return,
                            LaunchOutcome::Nothing => {
                                warn!(container_id = %id, "the launcher or the shim was lost before the program was started; trying again")
                            }
                        }
                    }
                    Err(failure) => {
                        jobs.site.disk_checks.check_after(&failure).await;
                        return jobs.send(AgentInput::NotStarted(id, failure)).await;
                    }
                }
            }
            let failure = internal(
                "three times the launcher or the shim was lost before the program was started",
            );
            jobs.send(AgentInput::NotStarted(id, failure)).await;
        });
    }

    async fn listen_to_own(&self, id: ContainerId, child: ChildProcess, line: OwnedFd) {
        let child = Arc::new(child);
        let reap = |shim: &Arc<ChildProcess>| shim.wait().map(drop);
        let result = shim_process::listen(line).await;
        if let ShimLineResult::Line(answer) = &result
            && answer.is_second_shim()
        {
            process_wait::ended(child, reap).await.ok();
            self.look_for(&id).await;
            return self.clone().report_start(id).await;
        }
        self.watch(id.clone(), Arc::clone(&child), reap);
        match result {
            ShimLineResult::Line(answer) => self.send(AgentInput::Answered(id, answer)).await,
            ShimLineResult::Silence => {
                // By its descriptor: the shim may not have written its identity yet.
                if let Err(error) = child.signal(KILL) {
                    warn!(container_id = %id, %error, "a shim that sends no answer cannot be killed");
                }
                self.send(AgentInput::Silent(id)).await;
            }
            // The end of the shim is a separate input and arrives through its descriptor.
            ShimLineResult::Nothing => {}
        }
    }

    /// Receives the packets of the launcher and the shim until both have answered.
    async fn listen(&self, id: &ContainerId, socket: OwnedFd) -> LaunchOutcome {
        let Ok(conversation) = Conversation::new(socket) else {
            return LaunchOutcome::Nothing;
        };
        let (mut shim, mut forked, mut answered, mut runs) = (None, false, false, false);
        while !forked || !answered {
            let Ok(word) = timeout(SHIM_ANSWER_TIMEOUT, conversation.next()).await else {
                // By its descriptor: the shim may not have written its identity yet.
                if let Some(Err(error)) = shim
                    .as_ref()
                    .map(|shim| pidfd_send_signal(shim, Signal::KILL))
                {
                    warn!(container_id = %id, %error, "a shim that sends no answer cannot be killed");
                }
                self.send(AgentInput::Silent(id.clone())).await;
                runs = false;
                break;
            };
            match word {
                // Without a free descriptor in this process, the pidfd is lost.
                Some((LauncherPacket::Forked, pidfd)) => (shim, forked) = (pidfd, true),
                Some((LauncherPacket::Answer(answer), _)) if answer.is_second_shim() => {
                    tokio::spawn(self.clone().report_start(id.clone()));
                    return self.look_for(id).await;
                }
                Some((LauncherPacket::Answer(answer), _)) => {
                    answered = true;
                    runs = matches!(answer, StartResult::Started { .. });
                    self.send(AgentInput::Answered(id.clone(), answer)).await;
                }
                Some((LauncherPacket::Refused { errno }, _)) => {
                    let why = format!(
                        "the launcher cannot fork the shim: {}",
                        io::Error::from_raw_os_error(errno)
                    );
                    self.send(AgentInput::NotStarted(id.clone(), internal(why)))
                        .await;
                    return LaunchOutcome::All;
                }
                // Launcher and shim have closed the socket. Without a fork packet the launcher was
                // lost, before or after the fork.
                None => {
                    if let Some(shim) = shim {
                        // A lost shim may have started processes, until it has ended.
                        process_wait::ended(shim, |_| Ok(())).await.ok();
                    }
                    return self.look_for(id).await;
                }
            }
        }
        if forked {
            let container = runs.then_some(conversation);
            tokio::spawn(self.clone().watch_launched(id.clone(), shim, container));
        }
        LaunchOutcome::All
    }

    /// Waits until the shim has written its exit record and closed the socket of the running container.
    /// Then it may serve another one. Without a record, its end counts: a shim of an earlier release
    /// closes the socket at once.
    async fn watch_launched(
        self,
        id: ContainerId,
        shim: Option<OwnedFd>,
        running: Option<Conversation>,
    ) {
        if let Some(conversation) = running {
            while conversation.next().await.is_some() {}
            if self.site.layout.has_exit_record(&id) {
                return self.send(AgentInput::ShimEnded(id)).await;
            }
        }
        match shim {
            Some(shim) => self.watch(id, shim, |_| Ok(())),
            None => {
                self.look_for(&id).await;
            }
        }
    }

    /// Reports the start of a program whose shim has no connection to this agent: the identity of
    /// the program follows that of the shim.
    async fn report_start(self, id: ContainerId) {
        let dir = self.site.layout.container(&id);
        let deadline = Instant::now() + SHIM_ANSWER_TIMEOUT;
        while Instant::now() < deadline && !self.site.layout.has_exit_record(&id) {
            if let Some(program) = recorded_process::identity(&dir, record::file::PID) {
                let started = StartResult::Started { pid: program.pid };
                return self.send(AgentInput::Answered(id, started)).await;
            }
            sleep(RECORD_INTERVAL).await;
        }
    }

    /// Looks for a shim that was forked but not reported, or that ended without an answer. One that
    /// its directory does not name has started nothing.
    async fn look_for(&self, id: &ContainerId) -> LaunchOutcome {
        if self.site.layout.was_never_started(id) {
            return LaunchOutcome::Nothing;
        }
        // The shim of a container with a record may serve another one.
        let named =
            (!self.site.layout.has_exit_record(id)).then(|| adopt::named_shim(&self.site, id));
        match named.flatten() {
            Some(shim) => self.watch_found(id.clone(), shim),
            None => self.send(AgentInput::ShimEnded(id.clone())).await,
        }
        LaunchOutcome::All
    }

    /// Waits for the end of a shim of an earlier agent or launcher.
    pub(crate) fn watch_found(&self, id: ContainerId, shim: WatchedProcess) {
        self.watch(id, shim, |_| Ok(()));
    }

    /// Waits for the end of a shim. `reap` reaps it if it is a child of this agent.
    fn watch<F: AsRawFd + Send + Sync + 'static>(
        &self,
        id: ContainerId,
        shim: F,
        reap: fn(&F) -> io::Result<()>,
    ) {
        let jobs = self.clone();
        tokio::spawn(async move {
            if let Err(error) = process_wait::ended(shim, reap).await {
                warn!(container_id = %id, %error, "the shim cannot be watched and counts as ended");
            }
            jobs.send(AgentInput::ShimEnded(id)).await;
        });
    }

    /// Carries out steps of a stop. A kill is left out while another one of this container runs.
    pub(crate) fn stop(
        &self,
        id: ContainerId,
        group: Option<Arc<EnforcedGroup>>,
        task_groups: bool,
        mut steps: Vec<StopStep>,
    ) {
        let turn = self.kills.take_for(&id, &mut steps);
        if steps.is_empty() {
            return;
        }
        self.blocking(move |site| {
            stop::carry_out(site, &id, group.as_ref(), task_groups, &steps);
            drop(turn);
            None
        });
    }

    /// Changes the size of a container.
    pub(crate) fn resize(
        &self,
        id: ContainerId,
        group: Option<Arc<EnforcedGroup>>,
        size: OrderedSize,
    ) {
        self.blocking(move |site| {
            let result = resize::resize(site, &id, group.as_deref(), &size);
            Some(AgentInput::Resized(id, size, result))
        });
    }

    /// Kills every process of a container, unless such a kill runs already.
    pub(crate) fn kill(&self, id: ContainerId, group: Option<Arc<EnforcedGroup>>) {
        let Some(turn) = self.kills.take(&id) else {
            return;
        };
        self.blocking(move |site| {
            stop::kill(site, &id, group.as_ref());
            drop(turn);
            None
        });
    }

    /// Writes the report, and removes the group afterwards.
    pub(crate) fn collect(&self, remains: ContainerRemains) {
        let (jobs, runtime) = (self.clone(), Handle::current());
        let turn = CollectionCount::new(&self.collecting);
        tokio::task::spawn_blocking(move || {
            let id = remains.id.clone();
            let CollectedContainer { report, group } = collect::collect(&jobs.site, remains);
            drop(turn);
            // A closed queue means that the agent is ending. The next agent finds the report.
            jobs.inputs
                .blocking_send(AgentInput::Collected(report))
                .ok();
            if let Some(group) = group {
                runtime.spawn(jobs.remove_group(id, group));
            }
        });
    }

    /// Removes the group of a container that has ended. One that is still busy does not hold up the
    /// others.
    async fn remove_group(self, id: ContainerId, group: Arc<EnforcedGroup>) {
        let turn = self.removal_turn().await;
        let quick = self.removal(&id, &group, QUICK_REMOVAL_TIMEOUT).await;
        drop(turn);
        if quick.is_err()
            && let Err(error) = self.removal(&id, &group, REMOVAL_TIMEOUT).await
        {
            collect::log_failed_removal(&id, &error);
        }
    }

    /// Waits until it may remove something of a container that has ended. Reports of other ends come
    /// first, and one removal runs at a time.
    async fn removal_turn(&self) -> Option<OwnedSemaphorePermit> {
        let deadline = Instant::now() + REPORTS_TIMEOUT;
        // The semaphore is never closed, so the permit is always granted.
        let turn = Arc::clone(&self.removing).acquire_owned().await;
        let mut collecting = self.collecting.subscribe();
        let no_other = collecting.wait_for(|number| *number == 0);
        // At the deadline, the removal runs beside the reports.
        let _ = timeout_at(deadline, no_other).await;
        turn.ok()
    }

    async fn removal(
        &self,
        id: &ContainerId,
        group: &Arc<EnforcedGroup>,
        within: Duration,
    ) -> Result<(), CgroupError> {
        let (site, id, group) = (Arc::clone(&self.site), id.clone(), Arc::clone(group));
        tokio::task::spawn_blocking(move || collect::remove_empty_group(&site, &id, &group, within))
            .await
            // A panic is already in the log.
            .unwrap_or(Ok(()))
    }

    /// Starts an auxiliary service and follows it to its end.
    pub(crate) fn start_aux_service(&self, service: Name, run: u32) {
        if let Some(process) = self.aux_service_run(service, run) {
            tokio::spawn(process.start());
        }
    }

    /// Follows an auxiliary service of an earlier agent to its end.
    pub(crate) fn resume_aux_service(&self, service: Name, run: u32) {
        if let Some(process) = self.aux_service_run(service, run) {
            tokio::spawn(process.resume());
        }
    }

    fn aux_service_run(&self, service: Name, run: u32) -> Option<AuxServiceRun> {
        let config = self.site.aux_services.get(&service)?.clone();
        Some(AuxServiceRun {
            site: Arc::clone(&self.site),
            service,
            config,
            run,
            inputs: self.inputs.clone(),
        })
    }

    /// Sends SIGTERM to the program of an auxiliary service.
    pub(crate) fn terminate_aux_service(&self, service: Name) {
        self.blocking(move |site| {
            aux_service::terminate(site, &service);
            None
        });
    }

    /// Sends SIGKILL to all processes of an auxiliary service.
    pub(crate) fn kill_aux_service(&self, service: Name) {
        self.blocking(move |site| {
            aux_service::kill(site, &service);
            None
        });
    }

    /// Marks a container as no longer needed.
    pub(crate) fn forget(&self, id: ContainerId) {
        let jobs = self.clone();
        tokio::spawn(async move {
            let turn = jobs.removal_turn().await;
            let job = jobs.blocking(move |site| {
                crash::at("forget-wanted");
                if let Err(error) = site.layout.forget(&id) {
                    error!(container_id = %id, %error, "the container cannot be forgotten; a restart sends its report again");
                }
                crash::at("forgotten");
                None
            });
            // A directory with many files does not hold up other removals.
            let _ = timeout(QUICK_REMOVAL_TIMEOUT, job).await;
            drop(turn);
        });
    }

    /// Measures all containers.
    pub(crate) fn sample(&self, meters: Vec<(ContainerId, SharedSampler)>) {
        let now = self.clock.now();
        self.blocking(move |site| {
            let round = sample::look_at_all(now, &meters);
            site.leftovers
                .set_bound(unattributed::bound(site, round.held));
            Some(AgentInput::Sampled(round.actions))
        });
    }

    fn blocking(
        &self,
        job: impl FnOnce(&NodeContext) -> Option<AgentInput> + Send + 'static,
    ) -> JoinHandle<()> {
        let (site, inputs) = (Arc::clone(&self.site), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(input) = job(&site) {
                // A closed queue means that the agent is ending. The next agent finds the state on
                // disk.
                inputs.blocking_send(input).ok();
            }
        })
    }

    fn send(&self, input: AgentInput) -> impl Future<Output = ()> + '_ {
        let sent = self.inputs.send(input);
        async move { drop(sent.await) }
    }
}

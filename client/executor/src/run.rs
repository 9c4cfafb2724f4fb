//! The executor's loop: one owner of the session and the tasks.
//!
//! The session decides, see [`ExecutorSession`]; the loop carries out its effects. The loop sends a
//! result in the same iteration in which its task delivers it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, TaskAttemptId, Tick};
use headroom_wire::v1::task::{FromExecutor, TaskStart, TaskUsage};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::environment::ExecutorSettings;
use crate::kept_process::KeptProcess;
use crate::launch::LaunchContext;
use crate::link::{self, LinkEvent, MasterTarget, MasterWriter, SendError};
use crate::session::{
    ExecutorEffect, ExecutorIdentity, ExecutorOutcome, ExecutorSession, FreezePressure, TaskControl,
};
use crate::task::{self, FinishedTask, TaskChannels, TaskNotification};
use crate::taskgroup::remove_unused;
use crate::verdict::not_started;
use crate::warm_start::end_all;

/// Maximum time for the last messages, and for the removal of the last cgroups.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between two usage messages.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum memory left behind by ended tasks that is reported. Bytes.
const LEFTOVER_FLOOR: Bytes = Bytes::from_mib(8);

/// Runs until the executor is ordered to end, or has been without a master for `without_master`.
pub async fn run(
    environment: ExecutorSettings,
    without_master: Duration,
) -> anyhow::Result<ExecutorOutcome> {
    let target = target(&environment);
    let (link_events, link) = mpsc::channel(256);
    let linked = tokio::spawn(link::maintain_connection(target, link_events));
    // It opens files of the kernel; the connection is made meanwhile.
    let launching = spawn_blocking(|| LaunchContext::new(environment)).await?;
    let context = launching.inspect_err(|_| linked.abort())?;
    let mut executor = ExecutorLoop::new(context, without_master);
    let outcome = executor.run_loop(link).await?;
    executor.flush_and_close(linked).await;
    Ok(outcome)
}

/// The addresses of the master and of the resource manager. Without access to the resource manager,
/// only a master with an unchanged address is found.
fn target(environment: &ExecutorSettings) -> MasterTarget {
    let trust = headroom_client::ClientCredentials::of_a_container(
        environment.ca.clone(),
        environment.token_file.as_deref(),
    );
    let rm = environment
        .rm
        .as_deref()
        .map(|url| headroom_client::Client::with_credentials(url, trust?))
        .transpose();
    let rm = rm.unwrap_or_else(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the resource manager cannot be queried for the address of the master, going on"
        );
        None
    });
    MasterTarget {
        master: environment.master.clone(),
        rm,
        app: environment.app.clone(),
    }
}

/// A running task, as seen by the loop.
#[derive(Debug)]
struct RunningTask {
    orders: mpsc::Sender<TaskControl>,
    usage: watch::Receiver<Option<TaskUsage>>,
    pressed: watch::Receiver<Option<FreezePressure>>,
}

impl RunningTask {
    /// The freeze near its limit.
    fn pressure(&self) -> Option<FreezePressure> {
        *self.pressed.borrow()
    }
}

struct ExecutorLoop {
    site: Arc<LaunchContext>,
    session: ExecutorSession,
    effects: Vec<ExecutorEffect>,
    started: Instant,
    running: BTreeMap<TaskAttemptId, RunningTask>,
    tasks: JoinSet<FinishedTask>,
    /// Attempt of each tokio task, in case that the task panics.
    names: BTreeMap<tokio::task::Id, TaskAttemptId>,
    news: mpsc::Sender<TaskNotification>,
    heard: mpsc::Receiver<TaskNotification>,
    removals: TaskTracker,
    writer: Option<MasterWriter>,
}

impl ExecutorLoop {
    fn new(site: LaunchContext, without_master: Duration) -> ExecutorLoop {
        let (news, heard) = mpsc::channel(1024);
        let environment = &site.environment;
        let identity = ExecutorIdentity {
            container: environment.container.clone(),
            token: environment.token.clone(),
            slots: environment.slots,
            enforcer: environment.enforcer,
        };
        ExecutorLoop {
            session: ExecutorSession::new(identity, without_master, Tick(0)),
            effects: Vec::new(),
            started: Instant::now(),
            site: Arc::new(site),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
            news,
            heard,
            removals: TaskTracker::new(),
            writer: None,
        }
    }

    fn now(&self) -> Tick {
        Tick(0).plus(self.started.elapsed())
    }

    async fn run_loop(
        &mut self,
        mut link: mpsc::Receiver<LinkEvent>,
    ) -> anyhow::Result<ExecutorOutcome> {
        let mut terminate: Signal = signal(SignalKind::terminate())?;
        let mut interrupt: Signal = signal(SignalKind::interrupt())?;
        let mut clock: Interval = interval(USAGE_INTERVAL);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut linked = true;
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => self.stop("SIGTERM"),
                _ = interrupt.recv() => self.stop("SIGINT"),
                Some(ended) = self.tasks.join_next_with_id() => self.on_end(ended),
                Some(news) = self.heard.recv() => self.on_news(news),
                event = link.recv(), if linked => match event {
                    Some(event) => self.on_link(event),
                    None => linked = false,
                },
                _ = clock.tick() => self.on_tick(),
            }
            self.carry_out();
            let now = self.now();
            if let Some(outcome) = self.session.outcome(now) {
                return Ok(outcome);
            }
        }
    }

    /// Carries out the effects of the session. A task that cannot run ends by itself, as an input.
    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                ExecutorEffect::Send(message) => self.send(&message),
                ExecutorEffect::Start(start) => self.spawn_task(*start),
                ExecutorEffect::Order(attempt, order) => self.order(&attempt, order),
            }
        }
    }

    fn stop(&mut self, why: &str) {
        self.session
            .stop(ExecutorOutcome::Done, why, &mut self.effects);
    }

    fn on_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(writer) => {
                self.writer = Some(writer);
                let frozen = self
                    .running
                    .iter()
                    .filter_map(|(attempt, task)| Some((attempt.clone(), task.pressure()?)));
                self.session
                    .on_connected(frozen.collect(), &mut self.effects);
            }
            LinkEvent::Got(message) => {
                self.session
                    .on_message(*message, clock::now(), &mut self.effects)
            }
            LinkEvent::Down { why, good } => {
                self.writer = None;
                let now = self.now();
                self.session.on_disconnected(now, good);
                tracing::info!(why, "the connection to the master ended; tasks continue");
            }
            LinkEvent::AppOver => self.session.on_app_ended(&mut self.effects),
        }
    }

    fn spawn_task(&mut self, start: TaskStart) {
        let (orders, for_task) = mpsc::channel(4);
        let (usage, shown) = watch::channel(None);
        let (pressed, held) = watch::channel(None);
        let attempt = start.attempt.clone();
        let lines = TaskChannels {
            orders: for_task,
            news: self.news.clone(),
            usage,
            pressed,
        };
        let handle = self
            .tasks
            .spawn(task::run(self.site.clone(), Arc::new(start), lines));
        self.names.insert(handle.id(), attempt.clone());
        self.running.insert(
            attempt,
            RunningTask {
                orders,
                usage: shown,
                pressed: held,
            },
        );
    }

    fn on_end(&mut self, ended: Result<(tokio::task::Id, FinishedTask), JoinError>) {
        let (attempt, report) = match ended {
            Ok((id, finished)) => {
                self.names.remove(&id);
                if let Some(group) = finished.group {
                    let site = self.site.clone();
                    let news = self.news.clone();
                    self.removals.spawn_blocking(move || {
                        match site.container.give_back(group) {
                            Ok(false) => return,
                            Ok(true) => {}
                            Err(e) => {
                                tracing::warn!(error = %e, "the cgroup of an ended task cannot be removed");
                            }
                        }
                        look_for_leftovers(&site, &news);
                    });
                }
                (finished.report.attempt.clone(), finished.report)
            }
            Err(broken) => {
                let Some(attempt) = self.names.remove(&broken.id()) else {
                    return;
                };
                tracing::error!(%attempt, error = %broken, "the executor failed to supervise a task");
                let (container, kind) =
                    (&self.site.environment.container, self.site.container.kind());
                let why = format!("the executor failed to supervise the task: {broken}");
                (
                    attempt.clone(),
                    not_started(container, &attempt, kind, clock::now(), &why),
                )
            }
        };
        self.running.remove(&attempt);
        self.session.on_task_ended(&report, &mut self.effects);
    }

    fn on_news(&mut self, news: TaskNotification) {
        match news {
            TaskNotification::Started { attempt, at } => {
                let message = FromExecutor::Started { attempt, at };
                self.session.send(message, &mut self.effects);
            }
            TaskNotification::Near => {
                let tasks = self.usage();
                self.session
                    .send(FromExecutor::Usage { tasks }, &mut self.effects);
            }
            TaskNotification::Leftover(left) => self.session.on_leftover(left, &mut self.effects),
            TaskNotification::Pressed { attempt } => {
                let pressure = self.running.get(&attempt).and_then(RunningTask::pressure);
                if let Some(pressure) = pressure {
                    self.session
                        .send_pressure(attempt, pressure, &mut self.effects);
                }
            }
            TaskNotification::Resized {
                attempt,
                limit,
                held,
                error,
            } => {
                let frozen_us =
                    held.map(|held| u64::try_from(held.as_micros()).unwrap_or(u64::MAX));
                let message = FromExecutor::Resized {
                    attempt,
                    limit,
                    frozen_us,
                    error,
                };
                self.session.send(message, &mut self.effects);
            }
        }
    }

    fn on_tick(&mut self) {
        if self.site.container.take_unmeasured() || self.session.has_leftover() {
            let (site, news) = (self.site.clone(), self.news.clone());
            self.removals
                .spawn_blocking(move || look_for_leftovers(&site, &news));
        }
        self.end_kept(self.site.kept.take_expired());
        let unused = self.site.container.take_expired();
        if !unused.is_empty() {
            self.removals.spawn_blocking(move || remove_unused(unused));
        }
        self.site.children.reap_orphans();
        let (now, usage) = (self.now(), self.usage());
        self.session.send_heartbeat(usage, &mut self.effects);
        self.session.check_master(now, &mut self.effects);
    }

    /// Ends processes that wait for an attempt.
    fn end_kept(&self, processes: Vec<KeptProcess>) {
        if !processes.is_empty() {
            let site = self.site.clone();
            self.removals
                .spawn_blocking(move || end_all(&site, processes));
        }
    }

    /// Last measured use of the running tasks.
    fn usage(&self) -> Vec<TaskUsage> {
        self.running
            .values()
            .filter_map(|running| running.usage.borrow().clone())
            .collect()
    }

    /// Sends a message without waiting. A full connection is closed: everything important is
    /// repeated on the next one.
    fn send(&mut self, message: &FromExecutor) {
        let Some(writer) = &self.writer else { return };
        match writer.send(message) {
            Ok(()) => return,
            Err(SendError::Closed) => {}
            Err(why @ (SendError::Full | SendError::TooLong)) => {
                tracing::warn!(?why, "the executor closes the connection to the master");
            }
        }
        self.writer = None;
        self.session.on_closed();
    }

    fn order(&self, attempt: &TaskAttemptId, order: TaskControl) {
        if let Some(running) = self.running.get(attempt) {
            let _ = running.orders.try_send(order); // full or closed: the task is ending already, or has pending orders
        }
    }

    /// Waits until the last messages are sent and the last cgroups are removed.
    async fn flush_and_close(self, linked: tokio::task::JoinHandle<()>) {
        self.site.fork_servers.close();
        self.end_kept(self.site.kept.take_all());
        let site = self.site.clone();
        self.removals.spawn_blocking(move || site.container.close());
        self.removals.close();
        drop(self.writer);
        let _ = timeout(FINAL_FLUSH_TIMEOUT, self.removals.wait()).await;
        let _ = timeout(FINAL_FLUSH_TIMEOUT, linked).await;
    }
}

/// Measures the memory that ended tasks left in the container. Blocking. If the channel is full,
/// the message is dropped; a later measurement repeats it.
fn look_for_leftovers(site: &LaunchContext, news: &mpsc::Sender<TaskNotification>) {
    if let Some(left) = site.container.unattributed(LEFTOVER_FLOOR) {
        let memory = Bytes::from_mib(left.memory.get() >> 20);
        let _ = news.try_send(TaskNotification::Leftover(Unattributed { memory, ..left }));
    }
}

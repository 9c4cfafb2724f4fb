//! The executor's loop: one owner of slots, results and tasks.
//!
//! ```text
//!             Shutdown                      idle and all acknowledged, or 10 s
//!  Working ───────────────► Draining ──────────────────────────────────────────► exit 0
//!     │  │                     │
//!     │  └── SIGTERM, the application has ended ──► Stopping ── idle ──► exit 0
//!     ├───── no master for too long ──────────────► Stopping ── idle ──► exit 1
//!     └───── no common version of the protocol ────► Stopping ── idle ──► exit 3
//! ```
//!
//! The loop sends a result in the same iteration in which its task delivers it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, StopCause, TaskAttemptId, TaskReport};
use headroom_wire::v1::task::{
    FromExecutor, MAX_LINE_BYTES, TaskStart, TaskUsage, ToExecutor, VERSION,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::environment::ExecutorSettings;
use crate::launch::LaunchContext;
use crate::link::{self, LinkEvent, MasterTarget, MasterWriter, SendError};
use crate::report_truncation::truncate_report;
use crate::results::UnackedResults;
use crate::slots::{Slots, StartDecision, StartRefusal};
use crate::task::{
    self, FinishedTask, FreezePressure, GRACE_TIMEOUT, TaskChannels, TaskControl, TaskNotification,
};
use crate::verdict::not_started;

/// The same time when the executor itself is stopped: the node agent allows little more for the
/// whole executor.
const FINAL_GRACE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Maximum time for which a draining executor waits for the last acknowledgements.
const FINAL_ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the last messages, and for the removal of the last cgroups.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between two usage messages.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum memory left behind by ended tasks that is reported. Bytes.
const LEFTOVER_FLOOR: Bytes = Bytes::from_mib(8);
/// Bytes of a line that are reserved for everything besides results.
const FRAME: usize = 192 << 10;

/// The outcome of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutorOutcome {
    /// It was ordered to end.
    Done,
    /// There was no master for too long.
    NoMaster,
    /// The master supports other versions of the task channel only.
    Refused,
}

/// The phase of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutorPhase {
    Working,
    Draining { idle_since: Option<Instant> },
    Stopping { outcome: ExecutorOutcome },
}

/// Runs until the executor is ordered to end, or has been without a master for `without_master`.
pub async fn run(
    environment: ExecutorSettings,
    without_master: Duration,
) -> anyhow::Result<ExecutorOutcome> {
    let target = target(&environment);
    let (link_events, link) = mpsc::channel(256);
    let mut executor = ExecutorLoop::new(LaunchContext::new(environment)?, without_master);
    let linked = tokio::spawn(link::maintain_connection(target, link_events));
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

struct ExecutorLoop {
    site: Arc<LaunchContext>,
    slots: Slots,
    results: UnackedResults,
    running: BTreeMap<TaskAttemptId, RunningTask>,
    tasks: JoinSet<FinishedTask>,
    /// Attempt of each tokio task, in case that the task panics.
    names: BTreeMap<tokio::task::Id, TaskAttemptId>,
    news: mpsc::Sender<TaskNotification>,
    heard: mpsc::Receiver<TaskNotification>,
    removals: TaskTracker,
    /// Memory that ended tasks left in the container, as last reported.
    left: Unattributed,
    writer: Option<MasterWriter>,
    /// Start of the time without a master: without a message and without a connection of some
    /// duration. Counts only without a connection.
    alone_since: Option<Instant>,
    /// Maximum time without a master.
    without_master: Duration,
    phase: ExecutorPhase,
}

impl ExecutorLoop {
    fn new(site: LaunchContext, without_master: Duration) -> ExecutorLoop {
        let (news, heard) = mpsc::channel(1024);
        ExecutorLoop {
            slots: Slots::new(site.environment.slots),
            site: Arc::new(site),
            results: UnackedResults::default(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
            news,
            heard,
            removals: TaskTracker::new(),
            left: Unattributed::default(),
            writer: None,
            alone_since: Some(Instant::now()),
            without_master,
            phase: ExecutorPhase::Working,
        }
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
                _ = terminate.recv() => self.stop_all(ExecutorOutcome::Done, "SIGTERM"),
                _ = interrupt.recv() => self.stop_all(ExecutorOutcome::Done, "SIGINT"),
                Some(ended) = self.tasks.join_next_with_id() => self.on_end(ended),
                Some(news) = self.heard.recv() => self.on_news(news),
                event = link.recv(), if linked => match event {
                    Some(event) => self.on_link(event),
                    None => linked = false,
                },
                _ = clock.tick() => self.on_tick(),
            }
            if let Some(outcome) = self.finished_outcome() {
                return Ok(outcome);
            }
        }
    }

    fn on_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(writer) => self.send_hello(writer),
            LinkEvent::Got(message) => {
                if !matches!(*message, ToExecutor::Refused { .. }) {
                    self.alone_since = None;
                }
                self.on_message(*message);
            }
            LinkEvent::Down { why, good } => {
                self.writer = None;
                if good || self.alone_since.is_none() {
                    self.alone_since = Some(Instant::now());
                }
                tracing::info!(why, "the connection to the master ended; tasks continue");
            }
            LinkEvent::AppOver => self.stop_all(ExecutorOutcome::Done, "the application has ended"),
        }
    }

    fn send_hello(&mut self, writer: MasterWriter) {
        let environment = &self.site.environment;
        let hello = FromExecutor::Hello {
            version: VERSION,
            container: environment.container.clone(),
            token: environment.token.clone(),
            slots: self.slots.total(),
            task_groups: environment.enforcer.is_kernel(),
            running: self.slots.running().cloned().collect(),
            unacked: self.results.for_hello(MAX_LINE_BYTES - FRAME),
        };
        tracing::info!(
            running = self.running.len(),
            unacked = self.results.len(),
            "connected to the master"
        );
        self.writer = Some(writer);
        self.send(&hello);
        let held: Vec<TaskAttemptId> = self.running.keys().cloned().collect();
        held.iter().for_each(|attempt| self.send_pressed(attempt));
        if !self.left.memory.is_zero() {
            self.send_leftover();
        }
    }

    fn on_message(&mut self, message: ToExecutor) {
        match message {
            ToExecutor::Start(start) => self.on_start(*start),
            ToExecutor::Stop { attempt } => self.order(
                &attempt,
                TaskControl::Stop {
                    cause: StopCause::Asked,
                    grace: GRACE_TIMEOUT,
                },
            ),
            ToExecutor::Resize { attempt, limit } => {
                self.order(&attempt, TaskControl::Limit(limit))
            }
            ToExecutor::LetGo { attempt } => self.order(&attempt, TaskControl::LetGo),
            ToExecutor::Ack { attempt } => {
                self.results.ack(&attempt); // idempotent
            }
            ToExecutor::Shutdown => {
                if self.phase == ExecutorPhase::Working {
                    tracing::info!(
                        running = self.running.len(),
                        "the master orders the executor to end when it is idle"
                    );
                    self.phase = ExecutorPhase::Draining { idle_since: None };
                }
            }
            ToExecutor::Refused {
                why,
                oldest,
                newest,
            } => {
                tracing::error!(why, oldest, newest, "the master refused this executor");
                if !(oldest..=newest).contains(&VERSION) {
                    self.stop_all(
                        ExecutorOutcome::Refused,
                        "the master supports other versions",
                    );
                }
            }
            ToExecutor::Alive => {}
        }
    }

    fn on_start(&mut self, start: TaskStart) {
        if let Some(result) = self.results.get(&start.attempt) {
            let again = FromExecutor::Ended {
                report: Box::new(result.clone()),
            };
            return self.send(&again);
        }
        if self.results.knows(&start.attempt) {
            return;
        }
        match self.admit(&start) {
            StartDecision::Start => self.spawn_task(start),
            StartDecision::Known => {}
            StartDecision::Refused(why) => {
                tracing::warn!(attempt = %start.attempt, %why, "a start is refused");
                let (container, kind) =
                    (&self.site.environment.container, self.site.container.kind());
                let report = not_started(
                    container,
                    &start.attempt,
                    kind,
                    clock::now(),
                    &why.to_string(),
                );
                match why {
                    // The result cannot be kept. If the message is lost, the master notices the
                    // missing attempt at the next connection.
                    StartRefusal::Unacked(_) => self.send(&FromExecutor::Ended {
                        report: Box::new(report),
                    }),
                    StartRefusal::Slots { .. }
                    | StartRefusal::NoSlots
                    | StartRefusal::Ending
                    | StartRefusal::NoCommand
                    | StartRefusal::Text(_) => {
                        self.report_result(report);
                    }
                }
            }
        }
    }

    fn admit(&mut self, start: &TaskStart) -> StartDecision {
        if self.running.contains_key(&start.attempt) {
            return StartDecision::Known;
        }
        if self.phase != ExecutorPhase::Working {
            return StartDecision::Refused(StartRefusal::Ending);
        }
        if self.results.is_full(self.running.len()) {
            return StartDecision::Refused(StartRefusal::Unacked(self.results.len()));
        }
        if let Err(why) = check_texts(start) {
            return StartDecision::Refused(why);
        }
        self.slots.take(&start.attempt, start.slots)
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
                        if let Err(e) = site.container.remove(&group) {
                            tracing::warn!(error = %e, "the cgroup of an ended task cannot be removed");
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
        self.slots.release(&attempt);
        tracing::info!(%attempt, reason = %report.reason, "task ended");
        self.report_result(report);
    }

    fn on_news(&mut self, news: TaskNotification) {
        match news {
            TaskNotification::Started { attempt, at } => {
                self.send(&FromExecutor::Started { attempt, at })
            }
            TaskNotification::Near => self.send_usage(),
            TaskNotification::Leftover(left) => self.on_leftover(left),
            TaskNotification::Pressed { attempt } => self.send_pressed(&attempt),
            TaskNotification::Resized {
                attempt,
                limit,
                held,
                error,
            } => {
                let held_us = held.map(|held| u64::try_from(held.as_micros()).unwrap_or(u64::MAX));
                self.send(&FromExecutor::Resized {
                    attempt,
                    limit,
                    held_us,
                    error,
                });
            }
        }
    }

    /// Reports memory that ended tasks left, if the amount has changed.
    fn on_leftover(&mut self, left: Unattributed) {
        if left == self.left {
            return;
        }
        if left.memory.is_zero() {
            tracing::info!("the memory that ended tasks left in the container is free again");
        } else {
            tracing::warn!(
                bytes = left.memory.get(),
                owners = left.owners_text(),
                "ended tasks left memory in the container"
            );
        }
        self.left = left;
        self.send_leftover();
    }

    fn send_leftover(&mut self) {
        let Unattributed { memory, left_by } = self.left.clone();
        self.send(&FromExecutor::Leftover { memory, left_by });
    }

    fn on_tick(&mut self) {
        if !self.left.memory.is_zero() {
            let (site, news) = (self.site.clone(), self.news.clone());
            self.removals
                .spawn_blocking(move || look_for_leftovers(&site, &news));
        }
        if self.running.is_empty() {
            self.send(&FromExecutor::Alive)
        } else {
            self.send_usage()
        }
        let alone = self.writer.is_none()
            && self
                .alone_since
                .is_some_and(|since| since.elapsed() >= self.without_master);
        if alone {
            self.stop_all(ExecutorOutcome::NoMaster, "no master was reachable in time");
        }
    }

    fn send_usage(&mut self) {
        let tasks = self
            .running
            .values()
            .filter_map(|running| running.usage.borrow().clone())
            .collect();
        self.send(&FromExecutor::Usage { tasks });
    }

    fn send_pressed(&mut self, attempt: &TaskAttemptId) {
        let held = self
            .running
            .get(attempt)
            .and_then(|running| *running.pressed.borrow());
        if let Some(FreezePressure { limit, current }) = held {
            self.send(&FromExecutor::Pressure {
                attempt: attempt.clone(),
                limit,
                current,
            });
        }
    }

    /// Keeps a result and sends it at once.
    fn report_result(&mut self, report: TaskReport) {
        let report = truncate_report(&report, MAX_LINE_BYTES - FRAME);
        self.send(&FromExecutor::Ended {
            report: Box::new(report.clone()),
        });
        self.results.add(report);
    }

    /// Sends a message without waiting. A full connection is closed: everything important is
    /// repeated on the next one.
    fn send(&mut self, message: &FromExecutor) {
        let Some(writer) = &self.writer else { return };
        match writer.send(message) {
            Ok(()) => {}
            Err(SendError::Closed) => self.writer = None,
            Err(why @ (SendError::Full | SendError::TooLong)) => {
                tracing::warn!(?why, "the executor closes the connection to the master");
                self.writer = None;
            }
        }
    }

    fn order(&self, attempt: &TaskAttemptId, order: TaskControl) {
        if let Some(running) = self.running.get(attempt) {
            let _ = running.orders.try_send(order); // full or closed: the task is ending already, or has pending orders
        }
    }

    fn stop_all(&mut self, outcome: ExecutorOutcome, why: &str) {
        if matches!(self.phase, ExecutorPhase::Stopping { .. }) {
            return;
        }
        tracing::info!(why, running = self.running.len(), "the executor ends");
        self.phase = ExecutorPhase::Stopping { outcome };
        let order = TaskControl::Stop {
            cause: StopCause::Asked,
            grace: FINAL_GRACE_TIMEOUT,
        };
        self.running
            .keys()
            .for_each(|attempt| self.order(attempt, order));
    }

    /// The outcome, if nothing is left to do.
    fn finished_outcome(&mut self) -> Option<ExecutorOutcome> {
        let idle = self.slots.is_idle();
        match self.phase {
            ExecutorPhase::Working => None,
            ExecutorPhase::Stopping { outcome } => idle.then_some(outcome),
            ExecutorPhase::Draining { idle_since: None } if idle => {
                self.phase = ExecutorPhase::Draining {
                    idle_since: Some(Instant::now()),
                };
                self.results.is_empty().then_some(ExecutorOutcome::Done)
            }
            ExecutorPhase::Draining { idle_since: None } => None,
            ExecutorPhase::Draining {
                idle_since: Some(since),
            } => (self.results.is_empty() || since.elapsed() >= FINAL_ACK_TIMEOUT)
                .then_some(ExecutorOutcome::Done),
        }
    }

    /// Waits until the last messages are sent and the last cgroups are removed.
    async fn flush_and_close(self, linked: tokio::task::JoinHandle<()>) {
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

/// Checks that the texts of a start can be passed to a program.
fn check_texts(start: &TaskStart) -> Result<(), StartRefusal> {
    if start.command.first().is_none_or(String::is_empty) {
        return Err(StartRefusal::NoCommand);
    }
    if start.command.iter().any(|word| word.contains('\0')) {
        return Err(StartRefusal::Text("command"));
    }
    let odd = |(key, value): (&String, &String)| {
        key.is_empty() || key.contains(['=', '\0']) || value.contains('\0')
    };
    if start.env.iter().any(odd) {
        return Err(StartRefusal::Text("environment"));
    }
    if start.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(StartRefusal::Text("working directory"));
    }
    if start
        .output
        .as_ref()
        .is_some_and(|output| output.contains('\0'))
    {
        return Err(StartRefusal::Text("output directory"));
    }
    Ok(())
}

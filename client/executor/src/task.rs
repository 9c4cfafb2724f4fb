//! One task from its start to its report.
//!
//! The task owns its state; the executor's loop sends it orders and receives its report. Blocking
//! steps (start, last reads, removal of the cgroup) run on separate threads, so that no task waits
//! for another.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use headroom_node_cgroup::inspect;
use headroom_node_core::gclog;
use headroom_node_exec::{ChildProcess, ProcessEnd};
use headroom_transport::deadline;
use headroom_types::exit::{CgroupStats, MemoryEvents, OuterLevel, Unattributed};
use headroom_types::{
    Bytes, EnforcerKind, Evidence, ExitReason, StopCause, TaskAttemptId, TaskReport, UnixMillis,
};
use headroom_wire::v1::task::{TaskStart, TaskUsage};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::children::RegisteredChild;
use crate::clock;
use crate::fork_server::watched;
use crate::growth::{self, GrowthState, TaskGrowth, UsageWatchResult, usage_watch};
use crate::heap::HeapMonitor;
use crate::kept_process::{KeptProcess, ProcessPurpose, done, max_kept_use};
use crate::launch::{LaunchContext, LaunchedTask, arm_growth, launch, program_code, tmp_on_disk};
use crate::logs::TaskFiles;
use crate::payload::{PayloadFiles, TaskValue};
use crate::sampler::{TaskSample, TaskSampler};
use crate::session::{FreezePressure, GRACE_TIMEOUT, TaskControl};
use crate::spawn_failure;
use crate::task_state::{TaskAction, TaskEvent, TaskPhase};
use crate::taskgroup::TaskGroup;
use crate::verdict::{TaskEndEvidence, not_started, report_of_end};
use crate::warm_start::{WarmStart, end_all, start_by_fork_server};

/// Interval between two samples of a task whose limit the kernel enforces.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// The interval in its first second: short tasks get a timeline too, and a JVM is found before it
/// fails.
const FIRST_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
const FIRST: Duration = Duration::from_secs(1);
/// Interval between two samples if only the executor enforces the limit.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Age of a task at which its use near the limit is watched on cgroup v1. The kernel takes 10 ms and
/// more to create a watch, and cannot remove its group meanwhile, so tasks that are shorter have
/// none. Until then, only the pause at the limit holds a task.
const WATCH_DELAY: Duration = Duration::from_millis(20);

const SIGTERM: i32 = 15;
/// Exit code that a shell returns for a child ended by SIGTERM.
const SHELL_OF_SIGTERM: i32 = 128 + SIGTERM;
/// Maximum time for which a task that ended by SIGTERM waits for a stop of the executor. A host
/// shutdown or a unit stop sends SIGTERM to all processes of a container at once.
const STOP_ORDER_TIMEOUT: Duration = Duration::from_millis(300);
const SIGKILL: i32 = 9;

/// A notification of a running task.
#[derive(Debug)]
pub enum TaskNotification {
    /// The program runs.
    Started {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// Start time.
        at: UnixMillis,
    },
    /// The task came near its limit: report its usage at once.
    Near,
    /// Memory that ended tasks left in the container.
    Leftover(Unattributed),
    /// The task is frozen near its limit: the master must decide.
    Pressed {
        /// The task attempt.
        attempt: TaskAttemptId,
    },
    /// The result of a new limit.
    Resized {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// The limit in force.
        limit: Bytes,
        /// Duration of the freeze.
        held: Option<Duration>,
        /// Reason that the requested limit is not in force.
        error: Option<String>,
    },
}

/// The channels of a task.
#[derive(Debug)]
pub struct TaskChannels {
    /// Orders to the task.
    pub orders: mpsc::Receiver<TaskControl>,
    /// Notifications of the task.
    pub news: mpsc::Sender<TaskNotification>,
    /// Memory use; only the last value matters.
    pub usage: watch::Sender<Option<TaskUsage>>,
    /// Freeze near the limit; only the last value matters.
    pub pressed: watch::Sender<Option<FreezePressure>>,
}

/// A report, and the cgroup that is still to be removed.
#[derive(Debug)]
pub struct FinishedTask {
    /// The verdict.
    pub report: TaskReport,
    /// `None` if the task did not start, or if its process is kept.
    pub group: Option<Arc<TaskGroup>>,
}

/// Runs one task to its end.
pub async fn run(
    site: Arc<LaunchContext>,
    start: Arc<TaskStart>,
    mut lines: TaskChannels,
) -> FinishedTask {
    let started = if start.fork_server.is_empty() {
        start_program(&site, &start).await
    } else {
        start_by_fork_server(&site, &start, &mut lines.orders).await
    };
    let (why, code, stopped) = match started {
        Ok(WarmStart::Launched(launched, early)) => {
            match TaskRunner::new(site.clone(), start.clone(), *launched, lines) {
                Ok(task) => return task.supervise(early).await,
                Err(e) => {
                    let why = format!("the process of the task cannot be watched: {e}");
                    (why, None, None)
                }
            }
        }
        Ok(WarmStart::Stopped(cause)) => {
            let why = "it was stopped before it ran".to_owned();
            (why, None, Some(cause))
        }
        Err(e) => (spawn_failure::sentence(&e), program_code(&e), None),
    };
    let container = &site.environment.container;
    let kind = site.container.kind();
    let mut report = not_started(container, &start.attempt, kind, clock::now(), &why);
    report.evidence.exit_code = code;
    if let Some(cause) = stopped {
        report.reason = ExitReason::Stopped;
        report.evidence.stop_asked = Some(cause);
        report.diagnosis.clear();
    }
    FinishedTask {
        report,
        group: None,
    }
}

/// Starts a task as a program, on a separate thread.
async fn start_program(
    site: &Arc<LaunchContext>,
    start: &Arc<TaskStart>,
) -> anyhow::Result<WarmStart> {
    let (site, start) = (site.clone(), start.clone());
    let launched = spawn_blocking(move || {
        let (_, unfit) = site.kept.take(&start);
        end_all(&site, unfit);
        launch(&site, &start)
    })
    .await
    .context("the start failed inside the executor")??;
    Ok(WarmStart::Launched(Box::new(launched), Vec::new()))
}

/// A task whose process runs.
struct TaskRunner {
    site: Arc<LaunchContext>,
    start: Arc<TaskStart>,
    child: AsyncFd<ChildProcess>,
    /// Dropped after the process was reaped.
    registered: RegisteredChild,
    /// On which a forked process may offer itself for another attempt.
    gate: Option<AsyncFd<OwnedFd>>,
    /// Whether it did: its attempt ended as with exit code 0.
    is_offered: bool,
    /// Bytes that its process read for earlier attempts.
    read_before: Bytes,
    group: Arc<TaskGroup>,
    files: TaskFiles,
    started: UnixMillis,
    started_at: Instant,
    lines: TaskChannels,
    life: TaskPhase,
    meter: TaskSampler,
    /// Set if the task may grow.
    growth: Option<TaskGrowth>,
    /// Time at which its use near the limit is watched.
    watch_due: Option<Instant>,
    /// That watch, while it is created on a separate thread.
    usage_watch: Option<JoinHandle<UsageWatchResult>>,
    /// Time at which SIGKILL follows SIGTERM.
    grace_ends: Option<Instant>,
    missing: Vec<String>,
}

impl TaskRunner {
    fn new(
        site: Arc<LaunchContext>,
        start: Arc<TaskStart>,
        launched: LaunchedTask,
        lines: TaskChannels,
    ) -> std::io::Result<TaskRunner> {
        let LaunchedTask {
            child,
            registered,
            group,
            files,
            gate,
            growth: grown,
            read_before,
            started,
            started_at,
        } = launched;
        // Without the descriptors its end would go unnoticed.
        let unwatched = |_: &std::io::Error| {
            let _ = group.clear().and_then(|_| site.container.remove(&group));
        };
        let child = watched(child, Interest::READABLE).inspect_err(unwatched)?;
        let gate = gate
            .map(|gate| watched(gate, Interest::READABLE))
            .transpose()
            .inspect_err(unwatched)?;
        let managed = start.heap.is_some() || !start.heap_exit_codes.is_empty();
        let meter = TaskSampler::new(started_at, start.limit, managed.then(HeapMonitor::default))
            .with_limits_of(&start);
        let (life, started_at) = (TaskPhase::Running, Instant::from_std(started_at));
        let growth = grown.or_else(|| arm_growth(&start, &group));
        let watched = growth
            .as_ref()
            .filter(|_| group.kind() == EnforcerKind::Cgroup1);
        let watch_due = watched.map(|_| started_at + WATCH_DELAY);
        let (grace_ends, missing) = (None, site.namespaces.missing().into_iter().collect());
        Ok(TaskRunner {
            site,
            start,
            child,
            registered,
            gate,
            is_offered: false,
            read_before,
            group,
            files,
            started,
            started_at,
            lines,
            life,
            meter,
            growth,
            watch_due,
            usage_watch: None,
            grace_ends,
            missing,
        })
    }

    /// Supervises the process to its end. `early` are orders that arrived before it ran.
    async fn supervise(mut self, early: Vec<TaskControl>) -> FinishedTask {
        let _ = self
            .lines
            .news
            .send(TaskNotification::Started {
                attempt: self.start.attempt.clone(),
                at: self.started,
            })
            .await;
        let timeout = self
            .start
            .timeout_ms
            .map(|ms| self.started_at + Duration::from_millis(ms));
        let mut next_sample = self.started_at + self.period();
        for order in early {
            self.on_order(order).await;
        }
        let mut ordered = true;
        loop {
            tokio::select! {
                biased;
                ended = self.child.readable() => match ended {
                    Ok(_) => break,
                    Err(e) => {
                        self.missing.push(format!("the end of the task: {e}"));
                        self.kill();
                        break;
                    }
                },
                is_done = done(&mut self.gate) => if is_done {
                    self.is_offered = true;
                    break;
                },
                order = self.lines.orders.recv(), if ordered => match order {
                    Some(order) => self.on_order(order).await,
                    None => ordered = false,
                },
                () = deadline::reached(self.watch_due) => {
                    self.watch_due = None;
                    let growth = self.growth.as_ref();
                    self.usage_watch = growth.map(|growth| create_watch(&self.group, growth.limit));
                }
                watch = created(&mut self.usage_watch) => {
                    self.usage_watch = None;
                    if let Some(growth) = &mut self.growth {
                        growth.watch_usage(watch);
                    }
                }
                () = alarm(self.growth.as_ref()) => self.sample().await,
                () = deadline::ticked(self.growth.as_ref().and_then(TaskGrowth::deadline)) => self.grow(growth::GrowthEvent::FreezeTimeout),
                () = deadline::ticked(timeout), if self.life == TaskPhase::Running => {
                    self.stop(StopCause::Timeout, GRACE_TIMEOUT);
                }
                () = deadline::reached(self.grace_ends), if self.grace_ends.is_some() => {
                    self.grace_ends = None;
                    self.handle_event(TaskEvent::GraceOver);
                }
                () = deadline::reached(next_sample) => {
                    self.sample().await;
                    next_sample = Instant::now() + self.period();
                }
            }
        }
        self.classify_sigterm().await;
        self.finish().await
    }

    async fn on_order(&mut self, order: TaskControl) {
        match order {
            TaskControl::Stop { cause, grace } => self.stop(cause, grace),
            TaskControl::Limit(limit) => self.resize(limit).await,
            TaskControl::Unfreeze => self.grow(growth::GrowthEvent::Unfreeze),
        }
    }

    /// Finds the origin of a SIGTERM that the executor did not send. If the executor receives a
    /// stop too, the end is not charged to the task.
    async fn classify_sigterm(&mut self) {
        let by_sigterm = matches!(
            self.child.get_ref().peek(),
            Ok(Some(
                ProcessEnd::Signal(SIGTERM) | ProcessEnd::Code(SHELL_OF_SIGTERM)
            ))
        );
        if self.life != TaskPhase::Running || !by_sigterm {
            return;
        }
        let word = async {
            while let Some(order) = self.lines.orders.recv().await {
                if let TaskControl::Stop { cause, .. } = order {
                    return Some(cause);
                }
            }
            None
        };
        if let Ok(Some(cause)) = tokio::time::timeout(STOP_ORDER_TIMEOUT, word).await {
            (self.life, _) = self.life.on(TaskEvent::Stop(cause));
        }
    }

    fn period(&self) -> Duration {
        match self.group.kind() {
            EnforcerKind::Poll => POLL_INTERVAL,
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 if self.started_at.elapsed() < FIRST => {
                FIRST_SAMPLE_INTERVAL
            }
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 => SAMPLE_INTERVAL,
        }
    }

    async fn sample(&mut self) {
        let reading = match self.group.kind() {
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 => self.meter.measure(&self.group),
            EnforcerKind::Poll => self.sample_slowly().await,
        };
        let usage = self.meter.usage(&self.start.attempt, reading.current);
        self.lines.usage.send_replace(Some(usage));
        if reading.newly_near {
            let _ = self.lines.news.try_send(TaskNotification::Near); // the next usage message repeats it
        }
        if reading.pressed && self.life == TaskPhase::Running {
            self.grow(growth::GrowthEvent::Pressure);
        }
        if reading.victim {
            self.handle_event(TaskEvent::VictimSeen);
        }
        if let Some(cause) = reading.end {
            self.handle_event(TaskEvent::Enforce(cause));
        }
        if let Some(pid) = reading.look_into {
            // The inspection takes milliseconds, so it runs on a separate thread. An ended process
            // gives no result.
            if let Ok(Ok(found)) = spawn_blocking(move || inspect::inspect_process(pid)).await {
                self.meter.store_inspection(&found);
            }
        }
    }

    /// Samples on a separate thread, because proportional set sizes take milliseconds to read.
    async fn sample_slowly(&mut self) -> TaskSample {
        let empty = TaskSampler::new(self.started_at.into_std(), None, None);
        let (mut meter, group) = (
            std::mem::replace(&mut self.meter, empty),
            self.group.clone(),
        );
        let measured = spawn_blocking(move || {
            let reading = meter.measure(&group);
            (meter, reading)
        });
        match measured.await {
            Ok((meter, reading)) => {
                self.meter = meter;
                reading
            }
            Err(e) => {
                self.missing.push(format!("measurements: {e}"));
                TaskSample::default()
            }
        }
    }

    /// Handles an event of growth.
    fn grow(&mut self, event: growth::GrowthEvent) {
        let Some(growth) = &mut self.growth else {
            return;
        };
        let done = growth.handle_event(event, self.group.group());
        if let Err(error) = &done {
            tracing::warn!(attempt = %self.start.attempt, %error, ?event, "the task cannot be frozen or released");
        }
        let limit = growth.limit;
        self.show_hold();
        if matches!(done, Ok(growth::GrowthAction::Freeze)) {
            tracing::debug!(attempt = %self.start.attempt, %limit, "the task is frozen near its limit");
            let _ = self.lines.news.try_send(TaskNotification::Pressed {
                attempt: self.start.attempt.clone(),
            }); // repeated on reconnect
        }
    }

    fn show_hold(&self) {
        let current = self
            .lines
            .usage
            .borrow()
            .as_ref()
            .map(|usage| usage.current)
            .unwrap_or_default();
        let held = self
            .growth
            .as_ref()
            .filter(|growth| growth.state == GrowthState::Frozen);
        self.lines
            .pressed
            .send_replace(held.map(|growth| FreezePressure {
                limit: growth.limit,
                current,
            }));
    }

    /// Applies a new limit of the master.
    async fn resize(&mut self, limit: Bytes) {
        // The watch exists before the task runs with the new limit.
        let watch = created(&mut Some(create_watch(&self.group, limit))).await;
        (self.watch_due, self.usage_watch) = (None, None);
        let attempt = self.start.attempt.clone();
        let Some(growth) = &mut self.growth else {
            let error = Some("the task was not started with growth".to_owned());
            let limit = self.start.limit.unwrap_or_default();
            let _ = self.lines.news.try_send(TaskNotification::Resized {
                attempt,
                limit,
                held: None,
                error,
            }); // repeated if necessary
            return;
        };
        let (held, error) = match growth.raise(self.group.group(), limit, watch) {
            Ok(held) => (held, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let limit = growth.limit;
        self.meter.set_limit(limit);
        let failed = error.is_some();
        tracing::info!(%attempt, %limit, ?held, error, "a change of the limit was requested");
        let _ = self.lines.news.try_send(TaskNotification::Resized {
            attempt,
            limit,
            held,
            error,
        }); // the report contains the limit
        if failed {
            self.grow(growth::GrowthEvent::Unfreeze)
        } else {
            self.show_hold()
        }
    }

    fn stop(&mut self, cause: StopCause, grace: Duration) {
        // A kill of the kernel that is not yet noticed happened first.
        let killed = self
            .group
            .group()
            .facts()
            .is_ok_and(|facts| facts.events.oom_kill > 0);
        let event = if killed {
            TaskEvent::VictimSeen
        } else {
            TaskEvent::Stop(cause)
        };
        self.grace_ends.get_or_insert(Instant::now() + grace);
        self.handle_event(event);
        // A frozen process cannot handle SIGTERM.
        self.grow(growth::GrowthEvent::Unfreeze);
    }

    fn handle_event(&mut self, event: TaskEvent) {
        let (life, action) = self.life.on(event);
        tracing::debug!(attempt = %self.start.attempt, ?event, from = ?self.life, to = ?life, "task");
        self.life = life;
        match action {
            TaskAction::Nothing => {}
            TaskAction::Terminate => {
                if let Err(e) = self.child.get_ref().signal(SIGTERM) {
                    tracing::warn!(attempt = %self.start.attempt, error = %e, "SIGTERM was not delivered; SIGKILL follows");
                }
            }
            TaskAction::Kill => self.kill(),
        }
    }

    fn kill(&mut self) {
        // The main process first: its descriptor works even if the cgroup is unreadable. A process
        // may outlive the signal in the kernel, and this thread serves all tasks: `close` waits for
        // the ends.
        let main = self.child.get_ref().signal(SIGKILL);
        let rest = self.group.group().send_kill();
        for error in [
            main.err().map(|e| e.to_string()),
            rest.err().map(|e| e.to_string()),
        ]
        .into_iter()
        .flatten()
        {
            tracing::warn!(attempt = %self.start.attempt, %error, "a process of the task was not killed");
            self.missing.push(format!("the kill of the task: {error}"));
        }
    }

    async fn finish(self) -> FinishedTask {
        let (site, start) = (self.site.clone(), self.start.clone());
        let group = self.group.clone();
        match spawn_blocking(move || self.close()).await {
            Ok((ending, kept)) => {
                let group = kept.is_none().then_some(group);
                kept.into_iter().for_each(|process| site.kept.add(process));
                FinishedTask {
                    report: report_of_end(&site.environment.container, &start, ending),
                    group,
                }
            }
            Err(e) => {
                let why = format!("the evidence could not be read inside the executor: {e}");
                let (container, kind) = (&site.environment.container, site.container.kind());
                FinishedTask {
                    report: not_started(container, &start.attempt, kind, clock::now(), &why),
                    group: Some(group),
                }
            }
        }
    }

    /// Reads all evidence, then kills the processes that the main process left behind. The evidence
    /// is read first: later changes do not belong to the task.
    fn close(mut self) -> (TaskEndEvidence, Option<KeptProcess>) {
        let mut missing = std::mem::take(&mut self.missing);
        let mut end = self.read_end(&mut missing);
        let ended = clock::now();
        let all_ended = self.clean_up(&end, &mut missing);
        let empty = TaskSampler::new(self.started_at.into_std(), None, None);
        let mut measured = std::mem::replace(&mut self.meter, empty).close(&mut end.own);
        missing.append(&mut measured.missing);
        if let Some(heap) = &mut measured.heap {
            if let Some(log) = self.files.gc_log() {
                gclog::add(&log, heap);
            }
            heap.cached = self.files.cached();
        }
        let (exit_code, signal, heap_marker) = match end.how {
            ProcessEnd::Code(0) => (Some(0), None, None),
            ProcessEnd::Code(code) => (Some(code), None, self.files.heap_marker()),
            ProcessEnd::Signal(signal) => (None, Some(signal), self.files.heap_marker()),
        };
        let evidence = Evidence {
            exit_code,
            signal,
            stop_asked: self.life.cause(),
            own: end.own,
            outer: end.outer,
            heap: measured.heap,
            heap_marker,
            victims: measured.victims,
            inside: measured.inside,
            own_limits: measured.own_limits,
            missing,
            ..Evidence::empty(self.group.kind())
        };
        let payload = self.files.payload.as_ref();
        let silent = all_ended && self.files.are_empty();
        let ending = TaskEndEvidence {
            evidence,
            started: self.started,
            ended,
            timeline: measured.timeline,
            log_tail: self.files.log_tail(),
            read: end
                .read_so_far
                .map(|bytes| bytes.saturating_sub(self.read_before)),
            value: payload.map_or(TaskValue::Absent, PayloadFiles::value),
            silent,
        };
        if all_ended {
            self.files.give_back();
        }
        let kept = end.is_kept.then(|| self.into_kept(end.read_so_far));
        (ending, kept.flatten())
    }

    /// Reads the counters of the kernel, and the end of the main process.
    fn read_end(&mut self, missing: &mut Vec<String>) -> TaskEndCounters {
        let own = self.group.group().facts().unwrap_or_else(|e| {
            missing.push(format!("counters of the task: {e}"));
            Default::default()
        });
        let main = self.child.get_ref().pid;
        let succeeded =
            self.is_offered || matches!(self.child.get_ref().peek(), Ok(Some(ProcessEnd::Code(0))));
        if !succeeded {
            self.meter.last_limits(main);
        }
        let pids = self.group.group().pids().unwrap_or_default();
        let read_so_far = self.meter.last_reads(main, &pids);
        let how = if self.is_offered {
            ProcessEnd::Code(0)
        } else {
            self.wait_for_process(missing)
        };
        let outer = match how {
            // A success needs no search for a cause.
            ProcessEnd::Code(0) if own.events.oom_kill == 0 => Vec::new(),
            ProcessEnd::Code(_) | ProcessEnd::Signal(_) => {
                self.group.outer(&own, &self.site.container, missing)
            }
        };
        let is_kept = self.is_offered && pids == [main] && self.can_serve_another(&own);
        TaskEndCounters {
            own,
            outer,
            how,
            read_so_far,
            is_kept,
        }
    }

    /// Ends what is left of the task, except a process that is kept. True if none is left.
    fn clean_up(&mut self, end: &TaskEndCounters, missing: &mut Vec<String>) -> bool {
        let mut all_ended = !end.is_kept;
        if !end.is_kept {
            match self.group.clear() {
                Ok(false) if self.leaves_clean_group(&end.own) => self.group.mark_unchanged(),
                Ok(_) => {}
                Err(e) => {
                    all_ended = false;
                    missing.push(format!("processes that the main process left behind: {e}"));
                    let payload = self.files.payload.as_mut();
                    payload.map(PayloadFiles::forbid_reuse);
                }
            }
        }
        if self.is_offered && !end.is_kept {
            // It was killed just now; its attempt has ended well before.
            let _ = self.child.get_ref().wait();
        }
        if let Some(dir) = tmp_on_disk(&self.site.environment.dir, &self.start)
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::debug!(attempt = %self.start.attempt, %error, "the directory for temporary files cannot be removed now");
        }
        all_ended
    }

    /// The process, for the next attempt.
    fn into_kept(self, read_so_far: Option<Bytes>) -> Option<KeptProcess> {
        Some(KeptProcess {
            purpose: ProcessPurpose::of(&self.start)?,
            gate: self.gate?.into_inner(),
            child: self.child.into_inner(),
            registered: self.registered,
            group: self.group,
            growth: self.growth,
            read: read_so_far.unwrap_or(self.read_before),
            since: std::time::Instant::now(),
        })
    }

    fn wait_for_process(&self, missing: &mut Vec<String>) -> ProcessEnd {
        self.child.get_ref().wait().unwrap_or_else(|e| {
            missing.push(format!("exit status of the task: {e}"));
            ProcessEnd::Signal(SIGKILL)
        })
    }

    /// True if the limit of the cgroup was never reached or changed, and nothing watches it.
    fn is_group_unchanged(&self, own: &CgroupStats) -> bool {
        let unwatched = match self.group.kind() {
            EnforcerKind::Cgroup1 => self.growth.is_none() || self.watch_due.is_some(),
            EnforcerKind::Cgroup2 => true,
            EnforcerKind::Poll => false,
        };
        let unchanged = self.growth.as_ref().is_none_or(|growth| {
            growth.state == GrowthState::Below && Some(growth.limit) == self.start.limit
        });
        unwatched && unchanged && own.events == MemoryEvents::default()
    }

    /// True if the cgroup can serve another task, provided that no process is left. After
    /// `cgroup.kill`, Linux 6.1 also kills the next process that starts in the same cgroup.
    fn leaves_clean_group(&self, own: &CgroupStats) -> bool {
        self.life == TaskPhase::Running
            && self.is_group_unchanged(own)
            && self.group.forgets_peak(own.peak)
    }

    /// True if the process can be kept: the attempt was short, nothing in the kernel shows more of
    /// it than a little memory. Its process must be alone.
    fn can_serve_another(&self, own: &CgroupStats) -> bool {
        self.life == TaskPhase::Running
            && self.is_group_unchanged(own)
            && ProcessPurpose::of(&self.start).is_some()
            && own.current <= max_kept_use(self.start.limit)
            && self.group.reset()
    }
}

/// The counters at the end of a task.
struct TaskEndCounters {
    own: CgroupStats,
    outer: Vec<OuterLevel>,
    how: ProcessEnd,
    /// Bytes that the processes have read since their start.
    read_so_far: Option<Bytes>,
    /// Whether its process serves the next attempt.
    is_kept: bool,
}

/// Creates a watch of the use of a group on a separate thread, because the kernel may take long.
fn create_watch(group: &Arc<TaskGroup>, limit: Bytes) -> JoinHandle<UsageWatchResult> {
    let group = group.clone();
    spawn_blocking(move || usage_watch(group.group(), limit))
}

/// Waits for the watch; pending forever if none is created.
async fn created(watch: &mut Option<JoinHandle<UsageWatchResult>>) -> UsageWatchResult {
    match watch {
        Some(watch) => watch.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the executor failed to watch the use of a task");
            Ok(None)
        }),
        None => std::future::pending().await,
    }
}

async fn alarm(growth: Option<&TaskGrowth>) {
    match growth {
        Some(growth) => growth.alarm().await,
        None => std::future::pending().await,
    }
}

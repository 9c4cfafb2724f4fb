//! One task from its start to its report.
//!
//! Owned by itself: the executor's loop only sends it orders and takes its report. What blocks (starting, reading the last
//! facts, removing the cgroup) runs on a thread of its own, so that no task waits for another.

use std::sync::Arc;
use std::time::Duration;

use headroom_node_cgroup::inside;
use headroom_node_core::gclog;
use headroom_node_exec::{Child, Ended};
use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, EnforcerKind, StopCause, TaskAttemptId, TaskReport, UnixMillis};
use headroom_wire::v1::task::{TaskStart, TaskUsage};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::clock;
use crate::growth::{self, Growth, Hold};
use crate::heap::HeapWatch;
use crate::launch::{Launched, Site, launch, program_code, tmp_on_disk};
use crate::life::{Action, Event, Life};
use crate::logs::TaskFiles;
use crate::meter::{Meter, Reading};
use crate::taskgroup::TaskGroup;
use crate::verdict::{Ending, not_started, of_ending};

/// Between two measurements of a task that the kernel holds to its limit.
const SAMPLE: Duration = Duration::from_millis(250);
/// The same in its first second: a short life has a timeline too, and a JVM is found before it fails.
const FIRST_SAMPLES: Duration = Duration::from_millis(50);
const FIRST: Duration = Duration::from_secs(1);
/// Between two measurements where nobody but us holds the limit.
const POLL: Duration = Duration::from_millis(50);

const SIGTERM: i32 = 15;
/// As a shell tells it.
const SHELL_OF_SIGTERM: i32 = 128 + SIGTERM;
/// A host that goes down, or a unit that is stopped, sends SIGTERM to every process of a container at once: a task that ended by it waits so
/// long for the word that the executor was sent one too.
const SENT_TO_ALL: Duration = Duration::from_millis(300);
const SIGKILL: i32 = 9;

/// An order to it.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// To end.
    Stop {
        /// Who wants it.
        cause: StopCause,
        /// Between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// To have this limit.
    Limit(Bytes),
    /// Not to be held at its limit any more.
    LetGo,
}

/// What a task tells while it runs.
#[derive(Debug)]
pub enum News {
    /// Its program runs.
    Started {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// Since when.
        at: UnixMillis,
    },
    /// It came near its limit: tell the master at once.
    Near,
    /// What ended tasks have left in the container.
    Leftover(Unattributed),
    /// It is held near its limit: the master is to decide.
    Pressed {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// What became of another limit.
    Resized {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// The one it has.
        limit: Bytes,
        /// How long it was held.
        held: Option<Duration>,
        /// Why it is not the one that was wanted.
        error: Option<String>,
    },
}

/// A task that is held near its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// The limit. Bytes.
    pub limit: Bytes,
    /// Charged to it. Bytes.
    pub current: Bytes,
}

/// The ends of a task's lines.
#[derive(Debug)]
pub struct Lines {
    /// Orders to it.
    pub orders: mpsc::Receiver<Order>,
    /// News from it.
    pub news: mpsc::Sender<News>,
    /// What it uses; only the last value matters.
    pub usage: watch::Sender<Option<TaskUsage>>,
    /// Whether it is held near its limit; only the last value matters.
    pub pressed: watch::Sender<Option<Pressed>>,
}

/// A report, and the group that is still to be removed.
#[derive(Debug)]
pub struct Finished {
    /// The verdict.
    pub report: TaskReport,
    /// `None` when it never ran.
    pub group: Option<Arc<TaskGroup>>,
}

/// Runs one task to its end.
pub async fn run(site: Arc<Site>, start: Arc<TaskStart>, lines: Lines) -> Finished {
    let (at_site, to_start) = (site.clone(), start.clone());
    let mut code = None;
    let why = match spawn_blocking(move || launch(&at_site, &to_start)).await {
        Ok(Ok(launched)) => match Task::new(site.clone(), start.clone(), launched, lines) {
            Ok(task) => return task.live().await,
            Err(e) => format!("its process cannot be watched: {e}"),
        },
        Ok(Err(e)) => {
            code = program_code(&e);
            format!("{e:#}")
        }
        Err(e) => format!("starting it failed inside the executor: {e}"),
    };
    let kind = site.container.kind();
    let mut report = not_started(&site.environment.container, &start.attempt, kind, clock::now(), &why);
    report.evidence.exit_code = code;
    Finished { report, group: None }
}

/// A task whose process runs.
struct Task {
    site: Arc<Site>,
    start: Arc<TaskStart>,
    child: AsyncFd<Child>,
    group: Arc<TaskGroup>,
    files: TaskFiles,
    started: UnixMillis,
    born: Instant,
    lines: Lines,
    life: Life,
    meter: Meter,
    /// Where it may be given more.
    growth: Option<Growth>,
    /// When SIGTERM becomes SIGKILL.
    grace_ends: Option<Instant>,
    missing: Vec<String>,
}

impl Task {
    fn new(site: Arc<Site>, start: Arc<TaskStart>, launched: Launched, lines: Lines) -> std::io::Result<Task> {
        let Launched { child, group, files, started, born } = launched;
        let group = Arc::new(group);
        let child = watched(child).inspect_err(|_| {
            // Without its descriptor nobody would learn of its end.
            let _ = group.clear().and_then(|_| site.container.remove(&group));
        })?;
        let managed = start.heap.is_some() || !start.heap_exit_codes.is_empty();
        let meter = Meter::new(born, start.limit, managed.then(HeapWatch::default)).with_limits_of(&start);
        let (life, born) = (Life::Running, Instant::from_std(born));
        let growth = growth(&start, &group);
        let (grace_ends, missing) = (None, site.no_namespaces.iter().cloned().collect());
        Ok(Task { site, start, child, group, files, started, born, lines, life, meter, growth, grace_ends, missing })
    }

    async fn live(mut self) -> Finished {
        let _ = self.lines.news.send(News::Started { attempt: self.start.attempt.clone(), at: self.started }).await;
        let timeout = self.start.timeout_ms.map(|ms| self.born + Duration::from_millis(ms));
        let mut next_sample = self.born + self.period();
        let mut ordered = true;
        loop {
            tokio::select! {
                biased;
                ended = self.child.readable() => match ended {
                    Ok(_) => break,
                    Err(e) => {
                        self.missing.push(format!("its end: {e}"));
                        self.kill();
                        break;
                    }
                },
                order = self.lines.orders.recv(), if ordered => match order {
                    Some(Order::Stop { cause, grace }) => self.stop(cause, grace),
                    Some(Order::Limit(limit)) => self.resize(limit),
                    Some(Order::LetGo) => self.grow(growth::Event::LetGo),
                    None => ordered = false,
                },
                () = alarm(self.growth.as_ref()) => self.sample().await,
                () = at(self.growth.as_ref().and_then(Growth::deadline)) => self.grow(growth::Event::HoldOver),
                () = at(timeout), if self.life == Life::Running => {
                    self.stop(StopCause::Timeout, crate::run::GRACE);
                }
                () = at(self.grace_ends), if self.grace_ends.is_some() => {
                    self.grace_ends = None;
                    self.happen(Event::GraceOver);
                }
                () = sleep_until(next_sample) => {
                    self.sample().await;
                    next_sample = Instant::now() + self.period();
                }
            }
        }
        self.doubt().await;
        self.finish().await
    }

    /// Whose SIGTERM it was that nobody here has sent: with the executor's own it is not the task's affair.
    async fn doubt(&mut self) {
        let by_sigterm = matches!(self.child.get_ref().peek(), Ok(Some(Ended::Signal(SIGTERM) | Ended::Code(SHELL_OF_SIGTERM))));
        if self.life != Life::Running || !by_sigterm {
            return;
        }
        let word = async {
            while let Some(order) = self.lines.orders.recv().await {
                if let Order::Stop { cause, .. } = order {
                    return Some(cause);
                }
            }
            None
        };
        if let Ok(Some(cause)) = tokio::time::timeout(SENT_TO_ALL, word).await {
            (self.life, _) = self.life.on(Event::Stop(cause));
        }
    }

    fn period(&self) -> Duration {
        match self.group.kind() {
            EnforcerKind::Poll => POLL,
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 if self.born.elapsed() < FIRST => FIRST_SAMPLES,
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 => SAMPLE,
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
            let _ = self.lines.news.try_send(News::Near); // the next regular report tells it as well
        }
        if reading.pressed && self.life == Life::Running {
            self.grow(growth::Event::Pressure);
        }
        if reading.victim {
            self.happen(Event::VictimSeen);
        }
        if let Some(cause) = reading.end {
            self.happen(Event::Enforce(cause));
        }
        if let Some(pid) = reading.look_into {
            // Takes milliseconds, so on a thread of its own; a process that is gone by then tells nothing.
            if let Ok(Ok(found)) = spawn_blocking(move || inside::look(pid)).await {
                self.meter.looked_into(&found);
            }
        }
    }

    /// Shares of resident memory take milliseconds to read.
    async fn sample_slowly(&mut self) -> Reading {
        let empty = Meter::new(self.born.into_std(), None, None);
        let (mut meter, group) = (std::mem::replace(&mut self.meter, empty), self.group.clone());
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
                Reading::default()
            }
        }
    }

    /// Something happened to its growth.
    fn grow(&mut self, event: growth::Event) {
        let Some(growth) = &mut self.growth else { return };
        let done = growth.happen(event, self.group.group());
        if let Err(error) = &done {
            tracing::warn!(attempt = %self.start.attempt, %error, ?event, "holding it near its limit, or letting it go, failed");
        }
        let limit = growth.limit;
        self.show_hold();
        if matches!(done, Ok(growth::Action::Hold)) {
            tracing::debug!(attempt = %self.start.attempt, %limit, "held near its limit");
            let _ = self.lines.news.try_send(News::Pressed { attempt: self.start.attempt.clone() }); // told again on the next line
        }
    }

    fn show_hold(&self) {
        let current = self.lines.usage.borrow().as_ref().map(|usage| usage.current).unwrap_or_default();
        let held = self.growth.as_ref().filter(|growth| growth.hold == Hold::Held);
        self.lines.pressed.send_replace(held.map(|growth| Pressed { limit: growth.limit, current }));
    }

    /// The master wants it to have this limit.
    fn resize(&mut self, limit: Bytes) {
        let attempt = self.start.attempt.clone();
        let Some(growth) = &mut self.growth else {
            let error = Some("it was not started as one that may be given more".to_owned());
            let limit = self.start.limit.unwrap_or_default();
            let _ = self.lines.news.try_send(News::Resized { attempt, limit, held: None, error }); // asked again if it matters
            return;
        };
        let (held, error) = match growth.raise(self.group.group(), limit) {
            Ok(held) => (held, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let limit = growth.limit;
        self.meter.set_limit(limit);
        let failed = error.is_some();
        tracing::info!(%attempt, %limit, ?held, error, "its limit was to change");
        let _ = self.lines.news.try_send(News::Resized { attempt, limit, held, error }); // the master sees the limit in the report
        if failed { self.grow(growth::Event::LetGo) } else { self.show_hold() }
    }

    fn stop(&mut self, cause: StopCause, grace: Duration) {
        // A kill by the kernel that is on its way came first.
        let killed = self.group.group().facts().is_ok_and(|facts| facts.events.oom_kill > 0);
        let event = if killed { Event::VictimSeen } else { Event::Stop(cause) };
        self.grace_ends.get_or_insert(Instant::now() + grace);
        self.happen(event);
        // What is held cannot hear of it.
        self.grow(growth::Event::LetGo);
    }

    fn happen(&mut self, event: Event) {
        let (life, action) = self.life.on(event);
        tracing::debug!(attempt = %self.start.attempt, ?event, from = ?self.life, to = ?life, "task");
        self.life = life;
        match action {
            Action::Nothing => {}
            Action::Terminate => {
                if let Err(e) = self.child.get_ref().signal(SIGTERM) {
                    tracing::warn!(attempt = %self.start.attempt, error = %e, "SIGTERM was not delivered; SIGKILL follows");
                }
            }
            Action::Kill => self.kill(),
        }
    }

    fn kill(&mut self) {
        // The main process first: it is ours by descriptor even when the group cannot be read.
        let main = self.child.get_ref().signal(SIGKILL);
        let rest = self.group.group().kill();
        for error in [main.err().map(|e| e.to_string()), rest.err().map(|e| e.to_string())].into_iter().flatten() {
            tracing::warn!(attempt = %self.start.attempt, %error, "a process of the task was not killed");
            self.missing.push(format!("killing it: {error}"));
        }
    }

    async fn finish(self) -> Finished {
        let (site, start) = (self.site.clone(), self.start.clone());
        let group = self.group.clone();
        match spawn_blocking(move || self.close()).await {
            Ok(ending) => Finished { report: of_ending(&site.environment.container, &start, ending), group: Some(group) },
            Err(e) => {
                let why = format!("reading its end failed inside the executor: {e}");
                let (container, kind) = (&site.environment.container, site.container.kind());
                Finished { report: not_started(container, &start.attempt, kind, clock::now(), &why), group: Some(group) }
            }
        }
    }

    /// Reads everything there is to know and ends what the main process left behind. Facts before anything else: what happens
    /// later is not the task's.
    fn close(mut self) -> Ending {
        let mut missing = self.missing;
        let mut own = self.group.group().facts().unwrap_or_else(|e| {
            missing.push(format!("its own counters: {e}"));
            Default::default()
        });
        let read = self.meter.last_reads(self.child.get_ref().pid, &self.group);
        let how = self.child.get_ref().wait().unwrap_or_else(|e| {
            missing.push(format!("its exit status: {e}"));
            Ended::Signal(SIGKILL)
        });
        let outer = match how {
            // Nobody asks whose fault a good end is.
            Ended::Code(0) if own.events.oom_kill == 0 => Vec::new(),
            Ended::Code(_) | Ended::Signal(_) => self.group.outer(&own, &self.site.container, &mut missing),
        };
        let ended = clock::now();
        if let Err(e) = self.group.clear() {
            missing.push(format!("what its main process left behind: {e}"));
        }
        if let Some(dir) = tmp_on_disk(&self.site.environment.dir, &self.start)
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::debug!(attempt = %self.start.attempt, %error, "its directory for temporary files stays until its container goes");
        }
        let mut measured = self.meter.close(&mut own);
        missing.append(&mut measured.missing);
        if let (Some(heap), Some(log)) = (&mut measured.heap, self.files.gc_log()) {
            gclog::add(&log, heap);
        }
        if let Some(heap) = &mut measured.heap {
            heap.cached = self.files.cached();
        }
        let (heap_marker, log_tail) = match how {
            Ended::Code(0) => (None, self.files.log_tail()),
            Ended::Code(_) | Ended::Signal(_) => (self.files.heap_marker(), self.files.log_tail()),
        };
        Ending {
            enforcer: self.group.kind(),
            how,
            cause: self.life.cause(),
            own,
            outer,
            heap: measured.heap,
            heap_marker,
            victims: measured.victims,
            inside: measured.inside,
            own_limits: measured.own_limits,
            missing,
            started: self.started,
            ended,
            timeline: measured.timeline,
            log_tail,
            read,
        }
    }
}

/// What lets it be given more, where that was asked for and the kernel holds its limit.
fn growth(start: &TaskStart, group: &TaskGroup) -> Option<Growth> {
    let (limit, hold_ms) = (start.limit?, start.hold_ms.filter(|_| group.kind().is_kernel())?);
    match Growth::arm(group.group(), limit, hold_ms) {
        Ok(growth) => Some(growth),
        Err(error) => {
            tracing::warn!(attempt = %start.attempt, %error, "it cannot be given more while it runs");
            if let Err(error) = group.group().let_go() {
                tracing::warn!(attempt = %start.attempt, %error, "it may be held at its limit until it is stopped");
            }
            None
        }
    }
}

async fn alarm(growth: Option<&Growth>) {
    match growth {
        Some(growth) => growth.alarm().await,
        None => std::future::pending().await,
    }
}

/// The process, readable when it has ended.
#[expect(
    deprecated,
    reason = "its successor is an unsafe fn; `Child` owns its descriptor and never closes or replaces it, which is all that one asks"
)]
fn watched(child: Child) -> std::io::Result<AsyncFd<Child>> {
    AsyncFd::with_interest(child, Interest::READABLE)
}

/// Waits for a moment; for ever when there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

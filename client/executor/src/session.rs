//! The executor's session with its master as a state machine: slots, results that the master has
//! not acknowledged, the phase of the executor, and the time without a master: pure.
//!
//! The session opens no socket, starts no process and reads no clock. Its inputs are connections,
//! messages of the master, ends of tasks, and the time. Its effects are messages, starts, and
//! orders to tasks. The loop and the simulation carry them out.
//!
//! ```text
//!             Shutdown                      idle and all acknowledged, or 10 s
//!  Working ───────────────► Draining ──────────────────────────────────────────► exit 0
//!     │  │                     │
//!     │  └── SIGTERM, the application has ended ──► Stopping ── idle ──► exit 0
//!     ├───── no master for too long ──────────────► Stopping ── idle ──► exit 1
//!     └───── no common version of the protocol ────► Stopping ── idle ──► exit 3
//! ```

use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{
    Bytes, ContainerId, EnforcerKind, StopCause, TaskAttemptId, TaskReport, Tick, UnixMillis,
};
use headroom_wire::v1::task::{
    FromExecutor, MAX_LINE_BYTES, TaskStart, TaskUsage, ToExecutor, VERSION,
};

use crate::report_truncation::truncate_report;
use crate::results::{HelloResults, UnackedResults};
use crate::slots::{ExecutorSlots, StartDecision, StartRefusal};
use crate::verdict::not_started;

/// Time between SIGTERM and SIGKILL of a stopped task.
pub const GRACE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same time when the executor itself is stopped: the node agent allows little more for the
/// whole executor.
const FINAL_GRACE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Maximum time for which a draining executor waits for the last acknowledgements.
const FINAL_ACK_TIMEOUT: Duration = Duration::from_secs(10);
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

impl ExecutorOutcome {
    /// The program's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            ExecutorOutcome::Done => 0,
            ExecutorOutcome::NoMaster => 1,
            ExecutorOutcome::Refused => 3,
        }
    }
}

/// The phase of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutorPhase {
    Working,
    Draining { idle_since: Option<Tick> },
    Stopping { outcome: ExecutorOutcome },
}

/// An order to a task.
#[derive(Clone, Copy, Debug)]
pub enum TaskControl {
    /// End the task.
    Stop {
        /// Cause of the end.
        cause: StopCause,
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// Apply this limit.
    Limit(Bytes),
    /// End the freeze near the limit.
    Unfreeze,
}

/// A task that is frozen near its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezePressure {
    /// The limit. Bytes.
    pub limit: Bytes,
    /// Charged memory. Bytes.
    pub current: Bytes,
}

/// An action for the shell of the session. The order is binding.
#[derive(Debug)]
pub enum ExecutorEffect {
    /// Send this message to the master, if it is connected. A message that is lost is repeated on
    /// the next connection, where that matters.
    Send(Box<FromExecutor>),
    /// Start this task, and report its end.
    Start(Box<TaskStart>),
    /// Pass this order to a running task. A task that is ending ignores it.
    Order(TaskAttemptId, TaskControl),
}

/// Properties of the executor in its first message.
pub struct ExecutorIdentity {
    /// Container of the executor.
    pub container: ContainerId,
    /// Secret of the application.
    pub token: String,
    /// Number of slots.
    pub slots: u32,
    /// The mechanism that enforces the limits.
    pub enforcer: EnforcerKind,
}

// Omits the secret.
headroom_types::debug_fields!(ExecutorIdentity {
    container,
    slots,
    enforcer
});

/// The session of one executor.
#[derive(Debug)]
pub struct ExecutorSession {
    identity: ExecutorIdentity,
    slots: ExecutorSlots,
    results: UnackedResults,
    /// Memory that ended tasks left in the container, as last reported.
    left: Unattributed,
    connected: bool,
    /// Start of the time without a master: without a message and without a connection of some
    /// duration. Counts only without a connection.
    alone_since: Option<Tick>,
    /// Maximum time without a master.
    without_master: Duration,
    phase: ExecutorPhase,
}

/// True for a message that shows a working master. A master that sends only refusals does not count
/// as a master.
pub fn shows_master(message: &ToExecutor) -> bool {
    !matches!(message, ToExecutor::Refused { .. })
}

impl ExecutorSession {
    /// The session of an executor without tasks that ends after `without_master` without a master.
    pub fn new(identity: ExecutorIdentity, without_master: Duration, now: Tick) -> Self {
        ExecutorSession {
            slots: ExecutorSlots::new(identity.slots),
            identity,
            results: UnackedResults::default(),
            left: Unattributed::default(),
            connected: false,
            alone_since: Some(now),
            without_master,
            phase: ExecutorPhase::Working,
        }
    }

    /// Attempts that run, ordered by id.
    pub fn running(&self) -> impl Iterator<Item = &TaskAttemptId> {
        self.slots.running()
    }

    /// Whether ended tasks left memory in the container, as last reported.
    pub fn has_leftover(&self) -> bool {
        !self.left.memory.is_zero()
    }

    /// Time at which [`ExecutorSession::check_master`] or [`ExecutorSession::outcome`] may end the
    /// executor without another input.
    pub fn next_timer(&self) -> Option<Tick> {
        let alone = self.alone_since.filter(|_| !self.connected);
        let alone = alone.map(|since| since.plus(self.without_master));
        match self.phase {
            ExecutorPhase::Working | ExecutorPhase::Draining { idle_since: None } => alone,
            ExecutorPhase::Draining {
                idle_since: Some(since),
            } => alone
                .into_iter()
                .chain([since.plus(FINAL_ACK_TIMEOUT)])
                .min(),
            ExecutorPhase::Stopping { .. } => None,
        }
    }

    /// Sends a message, if a master is connected.
    pub fn send(&self, message: FromExecutor, out: &mut Vec<ExecutorEffect>) {
        if self.connected {
            out.push(ExecutorEffect::Send(Box::new(message)));
        }
    }

    /// Reports the state on a new connection. `frozen` are the tasks that are frozen near their
    /// limits.
    pub fn on_connected(
        &mut self,
        frozen: Vec<(TaskAttemptId, FreezePressure)>,
        out: &mut Vec<ExecutorEffect>,
    ) {
        tracing::info!(
            running = self.running().count(),
            unacked = self.results.len(),
            "connected to the master"
        );
        self.connected = true;
        let HelloResults { listed, following } = self.results.for_hello(MAX_LINE_BYTES - FRAME);
        let ended = following.iter().map(|report| &report.attempt);
        let hello = FromExecutor::Hello {
            version: VERSION,
            container: self.identity.container.clone(),
            token: self.identity.token.clone(),
            slots: self.slots.total(),
            task_groups: self.identity.enforcer.is_kernel(),
            inputs: true,
            fork_servers: true,
            running: self.slots.running().chain(ended).cloned().collect(),
            unacked: listed,
        };
        self.send(hello, out);
        for report in following {
            let report = Box::new(report);
            self.send(FromExecutor::Ended { report }, out);
        }
        for (attempt, pressure) in frozen {
            self.send_pressure(attempt, pressure, out);
        }
        if self.has_leftover() {
            self.send_leftover(out);
        }
    }

    /// The connection takes no more messages.
    pub fn on_closed(&mut self) {
        self.connected = false;
    }

    /// The connection has ended. `good` is true if a master was there.
    pub fn on_disconnected(&mut self, now: Tick, good: bool) {
        self.connected = false;
        if good || self.alone_since.is_none() {
            self.alone_since = Some(now);
        }
    }

    /// The application has ended: no master will follow.
    pub fn on_app_ended(&mut self, out: &mut Vec<ExecutorEffect>) {
        self.stop(ExecutorOutcome::Done, "the application has ended", out);
    }

    /// Processes a message of the master. `at` is the time of a start that is refused.
    pub fn on_message(
        &mut self,
        message: ToExecutor,
        at: UnixMillis,
        out: &mut Vec<ExecutorEffect>,
    ) {
        if shows_master(&message) {
            self.alone_since = None;
        }
        match message {
            ToExecutor::Start(start) => self.on_start(start, at, out),
            ToExecutor::Stop { attempt } => {
                let order = TaskControl::Stop {
                    cause: StopCause::Asked,
                    grace: GRACE_TIMEOUT,
                };
                out.push(ExecutorEffect::Order(attempt, order));
            }
            ToExecutor::Resize { attempt, limit } => {
                out.push(ExecutorEffect::Order(attempt, TaskControl::Limit(limit)))
            }
            ToExecutor::Unfreeze { attempt } => {
                out.push(ExecutorEffect::Order(attempt, TaskControl::Unfreeze))
            }
            ToExecutor::Ack { attempt } => {
                self.results.ack(&attempt); // idempotent
            }
            ToExecutor::Shutdown => {
                if self.phase == ExecutorPhase::Working {
                    tracing::info!(
                        running = self.running().count(),
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
                    let why = "the master supports other versions";
                    self.stop(ExecutorOutcome::Refused, why, out);
                }
            }
            ToExecutor::Alive => {}
        }
    }

    fn on_start(&mut self, start: Box<TaskStart>, at: UnixMillis, out: &mut Vec<ExecutorEffect>) {
        if let Some(result) = self.results.get(&start.attempt) {
            let report = Box::new(result.clone());
            return self.send(FromExecutor::Ended { report }, out);
        }
        if self.results.knows(&start.attempt) {
            return;
        }
        match self.admit(&start) {
            StartDecision::Start => out.push(ExecutorEffect::Start(start)),
            StartDecision::Known => {}
            StartDecision::Refused(why) => {
                tracing::warn!(attempt = %start.attempt, %why, "a start is refused");
                let (container, kind) = (&self.identity.container, self.identity.enforcer);
                let report = not_started(container, &start.attempt, kind, at, &why.to_string());
                match why {
                    // The result cannot be kept. If the message is lost, the master notices the
                    // missing attempt at the next connection.
                    StartRefusal::Unacked(_) => {
                        let report = Box::new(report);
                        self.send(FromExecutor::Ended { report }, out);
                    }
                    StartRefusal::Slots { .. }
                    | StartRefusal::NoSlots
                    | StartRefusal::Ending
                    | StartRefusal::NoCommand
                    | StartRefusal::Text(_) => self.keep_result(&report, out),
                }
            }
        }
    }

    fn admit(&mut self, start: &TaskStart) -> StartDecision {
        if self.slots.running().any(|held| *held == start.attempt) {
            return StartDecision::Known;
        }
        if self.phase != ExecutorPhase::Working {
            return StartDecision::Refused(StartRefusal::Ending);
        }
        if self.results.is_full(self.slots.running().count()) {
            return StartDecision::Refused(StartRefusal::Unacked(self.results.len()));
        }
        if let Err(why) = check_texts(start) {
            return StartDecision::Refused(why);
        }
        self.slots.take(&start.attempt, start.slots)
    }

    /// A task has ended. Its slots are free, and its result is kept.
    pub fn on_task_ended(&mut self, report: &TaskReport, out: &mut Vec<ExecutorEffect>) {
        self.slots.release(&report.attempt);
        tracing::info!(attempt = %report.attempt, reason = %report.reason, "task ended");
        self.keep_result(report, out);
    }

    /// Keeps a result and sends it at once.
    fn keep_result(&mut self, report: &TaskReport, out: &mut Vec<ExecutorEffect>) {
        let report = truncate_report(report, MAX_LINE_BYTES - FRAME);
        let copy = Box::new(report.clone());
        self.send(FromExecutor::Ended { report: copy }, out);
        self.results.add(report);
    }

    /// Reports memory that ended tasks left, if the amount has changed.
    pub fn on_leftover(&mut self, left: Unattributed, out: &mut Vec<ExecutorEffect>) {
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
        self.send_leftover(out);
    }

    fn send_leftover(&self, out: &mut Vec<ExecutorEffect>) {
        let Unattributed { memory, left_by } = self.left.clone();
        self.send(FromExecutor::Leftover { memory, left_by }, out);
    }

    /// Reports a task that is frozen near its limit.
    pub fn send_pressure(
        &self,
        attempt: TaskAttemptId,
        pressure: FreezePressure,
        out: &mut Vec<ExecutorEffect>,
    ) {
        let FreezePressure { limit, current } = pressure;
        let message = FromExecutor::Pressure {
            attempt,
            limit,
            current,
        };
        self.send(message, out);
    }

    /// Sends the memory use of the running tasks, or a heartbeat without tasks.
    pub fn send_heartbeat(&self, tasks: Vec<TaskUsage>, out: &mut Vec<ExecutorEffect>) {
        if self.slots.is_idle() {
            self.send(FromExecutor::Alive, out)
        } else {
            self.send(FromExecutor::Usage { tasks }, out)
        }
    }

    /// Stops the executor if it has been without a master for too long.
    pub fn check_master(&mut self, now: Tick, out: &mut Vec<ExecutorEffect>) {
        let alone = !self.connected
            && self
                .alone_since
                .is_some_and(|since| now.since(since) >= self.without_master);
        if alone {
            let why = "no master was reachable in time";
            self.stop(ExecutorOutcome::NoMaster, why, out);
        }
    }

    /// Ends the executor after its tasks, which are ordered to stop. The first outcome stands.
    pub fn stop(&mut self, outcome: ExecutorOutcome, why: &str, out: &mut Vec<ExecutorEffect>) {
        if matches!(self.phase, ExecutorPhase::Stopping { .. }) {
            return;
        }
        tracing::info!(why, running = self.running().count(), "the executor ends");
        self.phase = ExecutorPhase::Stopping { outcome };
        let order = TaskControl::Stop {
            cause: StopCause::Asked,
            grace: FINAL_GRACE_TIMEOUT,
        };
        let running = self.slots.running().cloned();
        out.extend(running.map(|attempt| ExecutorEffect::Order(attempt, order)));
    }

    /// The outcome, if nothing is left to do.
    pub fn outcome(&mut self, now: Tick) -> Option<ExecutorOutcome> {
        let idle = self.slots.is_idle();
        match self.phase {
            ExecutorPhase::Working => None,
            ExecutorPhase::Stopping { outcome } => idle.then_some(outcome),
            ExecutorPhase::Draining { idle_since: None } if idle => {
                self.phase = ExecutorPhase::Draining {
                    idle_since: Some(now),
                };
                self.results.is_empty().then_some(ExecutorOutcome::Done)
            }
            ExecutorPhase::Draining { idle_since: None } => None,
            ExecutorPhase::Draining {
                idle_since: Some(since),
            } => (self.results.is_empty() || now.since(since) >= FINAL_ACK_TIMEOUT)
                .then_some(ExecutorOutcome::Done),
        }
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
    if start.fork_server.iter().any(|word| word.contains('\0')) {
        return Err(StartRefusal::Text("command of the fork server"));
    }
    let odd = |(key, value): (&String, &String)| {
        key.is_empty() || key.contains(['=', '\0']) || value.contains('\0')
    };
    if start.env.iter().any(odd) {
        return Err(StartRefusal::Text("environment"));
    }
    let directories = [
        (&start.cwd, "working directory"),
        (&start.output, "output directory"),
    ];
    let has_nul = |path: &Option<String>| path.as_ref().is_some_and(|path| path.contains('\0'));
    match directories.into_iter().find(|(path, _)| has_nul(path)) {
        Some((_, name)) => Err(StartRefusal::Text(name)),
        None => Ok(()),
    }
}

//! The program in a container: a simulated executor with the real slot and result bookkeeping, and
//! tasks with the behaviour of the scenario.
//!
//! It keeps a connection to its master and reconnects when it breaks. It exits on request, or when
//! it has had no master for too long.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_executor::results::UnackedResults;
use headroom_executor::slots::{Slots, StartDecision};
use headroom_executor::verdict::not_started;
use headroom_node_core::{VerdictScope, classify};
use headroom_rm_core::RunOrder;
use headroom_types::{Bytes, ContainerId, EnforcerKind, NodeId, TaskAttemptId, TaskReport};
use headroom_wire::v1::task::{FromExecutor, TaskStart, TaskUsage, ToExecutor, VERSION};

use super::host::SimProgramEnd;
use super::task_evidence::{SimTaskEnd, evidence, exceeds_limit};
use super::{Simulation, SimulationEvent as Any};
use crate::invariant_checker::RealTaskEnd;
use crate::scenario::{PlantedBug, SimTaskPlan};

/// Time for which it continues without a master. Milliseconds.
const WITHOUT_MASTER: u64 = 120_000;
/// Time for which a draining executor waits for acknowledgements. Milliseconds.
const LAST_ACKS: u64 = 10_000;
/// Memory use of the executor itself.
const OWN_USE: Bytes = Bytes::from_mib(16);
/// A connection of this duration resets the backoff. Milliseconds.
const GOOD: u64 = 2_000;

#[derive(Debug)]
pub(super) enum SimExecutorEvent {
    /// Time to connect to the master.
    Try,
    /// The connection attempt failed.
    NoAnswer,
    Up {
        line: u64,
    },
    Told {
        line: u64,
        message: Box<ToExecutor>,
    },
    LineDown {
        line: u64,
    },
    /// A task has allocated its memory.
    Full {
        attempt: TaskAttemptId,
    },
    /// A task has completed its work.
    Over {
        attempt: TaskAttemptId,
    },
    /// The hold time of a frozen task at this limit is over.
    HoldOver {
        attempt: TaskAttemptId,
        limit: Bytes,
    },
    /// A task was killed from outside.
    Killed {
        attempt: TaskAttemptId,
    },
    /// A timeout may have expired.
    Look,
    Exit {
        code: i32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    Draining { idle_since: Option<u64> },
    Stopping { code: i32 },
    Leaving,
}

#[derive(Debug)]
struct Task {
    start: TaskStart,
    full: bool,
    /// Start of the freeze near its limit.
    held: Option<u64>,
    /// Its work time ended during a freeze.
    late: bool,
}

/// One executor.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) node: NodeId,
    memory: Bytes,
    token: String,
    url: String,
    slots: Slots,
    results: UnackedResults,
    running: BTreeMap<TaskAttemptId, Task>,
    phase: Phase,
    line: Option<u64>,
    up_since: u64,
    heard: bool,
    backoff: Backoff,
    alone_since: Option<u64>,
    stubborn: bool,
}

impl Executor {
    fn new(node: &NodeId, order: &RunOrder, now: u64, stubborn: bool) -> Self {
        let said = |key: &str| order.launch.env.get(key).cloned().unwrap_or_default();
        Executor {
            node: node.clone(),
            memory: order.resource.memory,
            token: said("HEADROOM_APP_TOKEN"),
            url: said("HEADROOM_MASTER_URL"),
            slots: Slots::new(said("HEADROOM_SLOTS").parse().unwrap_or(1)),
            results: UnackedResults::default(),
            running: BTreeMap::new(),
            phase: Phase::Working,
            line: None,
            up_since: 0,
            heard: false,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            alone_since: Some(now),
            stubborn,
        }
    }
    pub(super) fn tasks(&self) -> impl Iterator<Item = &TaskAttemptId> {
        self.running.keys()
    }
}

impl Simulation {
    /// Starts the program of a container.
    pub(super) fn program_starts(&mut self, node: &NodeId, id: &ContainerId, order: &RunOrder) {
        if order.request.is_none() {
            return self.managed_master_starts(node, id, order);
        }
        if self.sitter_starts(node, id, order) {
            return;
        }
        let stubborn = self.chance.percent(self.scenario.weather.stubborn);
        self.executors
            .insert(id.clone(), Executor::new(node, order, self.now, stubborn));
        let takes = self.chance.between(5, 200);
        self.later(takes, Any::Executor(id.clone(), SimExecutorEvent::Try));
        self.later(
            WITHOUT_MASTER,
            Any::Executor(id.clone(), SimExecutorEvent::Look),
        );
    }

    /// Removes the program of a container whose processes ended, for any reason.
    pub(super) fn program_gone(&mut self, id: &ContainerId) {
        self.managed_master_gone(id);
        self.sitters.remove(id);
        let Some(executor) = self.executors.remove(id) else {
            return;
        };
        for attempt in executor.running.keys() {
            self.oracle.task_lost(&executor.token, attempt);
        }
        for line in self.connections_of(|c| c.container == *id) {
            self.break_connection(line, false);
        }
    }

    /// Handles SIGTERM.
    pub(super) fn program_terminated(&mut self, id: &ContainerId) {
        if self.managed_master_leaves(id) || self.sitter_terminated(id) {
            return;
        }
        if self.executors.get(id).is_some_and(|e| !e.stubborn) {
            self.executor_stops(id, 0);
        }
    }

    pub(super) fn executor_thing(&mut self, id: &ContainerId, thing: SimExecutorEvent) {
        if !self.executors.contains_key(id) {
            return;
        }
        match thing {
            SimExecutorEvent::Try => self.executor_tries(id),
            SimExecutorEvent::NoAnswer => self.executor_waits(id),
            SimExecutorEvent::Up { line } => self.executor_greets(id, line),
            SimExecutorEvent::Told { line, message } => {
                let open = self.wires.connections.contains_key(&line);
                if let Some(e) = self
                    .executors
                    .get_mut(id)
                    .filter(|e| open && e.line == Some(line))
                {
                    (e.heard, e.alone_since) = (true, None);
                    self.executor_told(id, *message);
                }
            }
            SimExecutorEvent::LineDown { line } => self.executor_line_down(id, line),
            SimExecutorEvent::Full { attempt } => self.task_full(id, &attempt),
            SimExecutorEvent::Over { attempt } => self.task_over(id, &attempt),
            SimExecutorEvent::HoldOver { attempt, limit } => self.hold_over(id, &attempt, limit),
            SimExecutorEvent::Killed { attempt } => {
                self.task_ends(id, &attempt, SimTaskEnd::Killed)
            }
            SimExecutorEvent::Look => {}
            SimExecutorEvent::Exit { code } => {
                let node = self.executors.get(id).map(|e| e.node.clone());
                if let Some(node) = node {
                    return self.cell_ends(&node, id, SimProgramEnd::Code(code));
                }
            }
        }
        self.executor_looks(id);
    }

    fn executor_tries(&mut self, id: &ContainerId) {
        let Some(e) = self.executors.get(id).filter(|e| e.line.is_none()) else {
            return;
        };
        let (node, url) = (e.node.clone(), e.url.clone());
        let found = self
            .processes
            .iter()
            .find(|(_, p)| p.url == url)
            .map(|(pid, p)| (*pid, p.node.clone()));
        let cut = |there: &Option<NodeId>| {
            *there != Some(node.clone())
                && (self.is_cut(Some(&node)) || self.is_cut(there.as_ref()))
        };
        match found {
            Some((pid, there)) if !cut(&there) => {
                let line = self.open_connection(id, pid);
                if let Some(e) = self.executors.get_mut(id) {
                    e.line = Some(line);
                }
                let takes = self.chance.between(1, 5);
                self.later(
                    takes,
                    Any::Executor(id.clone(), SimExecutorEvent::Up { line }),
                );
            }
            Some(_) | None => {
                let takes = if self.is_cut(Some(&node)) {
                    3_000
                } else {
                    self.chance.between(1, 5)
                };
                self.later(takes, Any::Executor(id.clone(), SimExecutorEvent::NoAnswer));
            }
        }
    }

    /// Waits, gets the master's address from the resource manager, and reconnects.
    fn executor_waits(&mut self, id: &ContainerId) {
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let wait = u64::try_from(e.backoff.wait().as_millis()).unwrap_or(0);
        let cut = e.node.clone();
        if !self.is_cut(Some(&cut))
            && let Some(app) = self.manager.cluster.as_ref().and_then(|c| c.app(&id.app))
        {
            if app.state.is_over() {
                return self.executor_stops(id, 0);
            }
            let url = app.master_url.clone();
            if let (Some(url), Some(e)) = (url, self.executors.get_mut(id)) {
                e.url = url;
            }
        }
        self.later(wait, Any::Executor(id.clone(), SimExecutorEvent::Try));
    }

    fn executor_greets(&mut self, id: &ContainerId, line: u64) {
        let now = self.now;
        let Some(e) = self.executors.get_mut(id).filter(|e| e.line == Some(line)) else {
            return;
        };
        (e.up_since, e.heard) = (now, false);
        let hello = FromExecutor::Hello {
            version: VERSION,
            container: id.clone(),
            token: e.token.clone(),
            slots: e.slots.total(),
            task_groups: true,
            running: e.slots.running().cloned().collect(),
            unacked: e.results.for_hello(1 << 19),
        };
        let held: Vec<TaskAttemptId> = e
            .running
            .iter()
            .filter(|(_, t)| t.held.is_some())
            .map(|(a, _)| a.clone())
            .collect();
        self.say_to_master(line, hello);
        held.iter()
            .for_each(|attempt| self.say_pressure(id, attempt));
    }

    fn executor_line_down(&mut self, id: &ContainerId, line: u64) {
        let now = self.now;
        self.wires.connections.remove(&line);
        let Some(e) = self.executors.get_mut(id).filter(|e| e.line == Some(line)) else {
            return;
        };
        e.line = None;
        let good = e.heard || now >= e.up_since + GOOD;
        if good {
            e.backoff.reset();
        }
        if good || e.alone_since.is_none() {
            e.alone_since = Some(now);
            self.later(
                WITHOUT_MASTER,
                Any::Executor(id.clone(), SimExecutorEvent::Look),
            );
        }
        self.executor_waits(id);
    }

    fn executor_told(&mut self, id: &ContainerId, message: ToExecutor) {
        match message {
            ToExecutor::Start(start) => self.executor_starts(id, *start),
            ToExecutor::Stop { .. } | ToExecutor::LetGo { .. }
                if self.plant == PlantedBug::NobodyGivesWay => {}
            ToExecutor::Stop { attempt } => self.task_ends(id, &attempt, SimTaskEnd::Stopped),
            ToExecutor::Ack { attempt } => {
                if let Some(e) = self.executors.get_mut(id) {
                    e.results.ack(&attempt);
                }
            }
            ToExecutor::Shutdown => {
                if let Some(e) = self
                    .executors
                    .get_mut(id)
                    .filter(|e| e.phase == Phase::Working)
                {
                    e.phase = Phase::Draining { idle_since: None };
                }
            }
            ToExecutor::Resize { attempt, limit } => self.task_grows(id, &attempt, limit),
            ToExecutor::LetGo { attempt } => self.task_let_go(id, &attempt),
            ToExecutor::Refused { .. } | ToExecutor::Alive => {}
        }
    }

    fn executor_starts(&mut self, id: &ContainerId, start: TaskStart) {
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let attempt = start.attempt.clone();
        if let Some(result) = e.results.get(&attempt).cloned() {
            return self.executor_says(
                id,
                FromExecutor::Ended {
                    report: Box::new(result),
                },
            );
        }
        if e.results.knows(&attempt) || e.running.contains_key(&attempt) {
            return;
        }
        let why = match e.phase {
            Phase::Working => match e.slots.take(&attempt, start.slots) {
                StartDecision::Start => None,
                StartDecision::Known => return,
                StartDecision::Refused(why) => Some(why.to_string()),
            },
            Phase::Draining { .. } | Phase::Stopping { .. } | Phase::Leaving => {
                Some("the executor is ending".to_owned())
            }
        };
        if let Some(why) = why {
            let report = not_started(id, &attempt, EnforcerKind::Cgroup2, self.wall(), &why);
            return self.executor_keeps(id, report);
        }
        let (token, node) = (e.token.clone(), e.node.clone());
        let idle = e.running.is_empty();
        e.running.insert(
            attempt.clone(),
            Task {
                start,
                full: false,
                held: None,
                late: false,
            },
        );
        self.note(|| {
            format!(
                "{attempt} of {} begins in {id} on {node}, idle before: {idle}",
                id.app
            )
        });
        self.oracle.task_began(&token, &attempt);
        let runs = self.habit(id, &attempt).runs_ms;
        self.later(
            runs / 2,
            Any::Executor(
                id.clone(),
                SimExecutorEvent::Full {
                    attempt: attempt.clone(),
                },
            ),
        );
        self.later(
            runs,
            Any::Executor(
                id.clone(),
                SimExecutorEvent::Over {
                    attempt: attempt.clone(),
                },
            ),
        );
        let at = self.wall();
        self.executor_says(id, FromExecutor::Started { attempt, at });
    }

    fn habit(&self, id: &ContainerId, attempt: &TaskAttemptId) -> SimTaskPlan {
        let client = self
            .clients
            .iter()
            .find(|c| c.app.as_ref() == Some(&id.app));
        let none = SimTaskPlan {
            heap: Bytes::ZERO,
            off_heap: Bytes::ZERO,
            runs_ms: 10,
            fails: 0,
        };
        client
            .and_then(|c| c.job.habits.get(&attempt.task))
            .cloned()
            .unwrap_or(none)
    }

    /// Handles a task that has allocated its memory. It may exceed its limit.
    fn task_full(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
        let habit = self.habit(id, attempt);
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let Some(task) = e.running.get_mut(attempt) else {
            return;
        };
        task.full = true;
        let limit = task.start.limit;
        let usage = TaskUsage {
            attempt: attempt.clone(),
            current: habit.memory(),
            peak: habit.memory(),
            heap: None,
            starved: false,
        };
        match limit {
            Some(limit) if exceeds_limit(&habit, &task.start) => {
                return self.task_near_limit(id, attempt, limit);
            }
            Some(_) => return,
            None => self.executor_says(id, FromExecutor::Usage { tasks: vec![usage] }),
        }
        let Some(e) = self.executors.get(id) else {
            return;
        };
        let full = e
            .running
            .iter()
            .filter(|(_, t)| t.full)
            .map(|(a, _)| self.habit(id, a).memory());
        let used = full.fold(OWN_USE, Bytes::saturating_add);
        if used > e.memory {
            let (token, node) = (e.token.clone(), e.node.clone());
            let all: Vec<TaskAttemptId> = e.running.keys().cloned().collect();
            all.iter().for_each(|a| {
                self.oracle
                    .task_ended(&token, a, RealTaskEnd::WithItsExecutor)
            });
            self.cell_ends(&node, id, SimProgramEnd::OutOfMemory);
        }
    }

    /// Handles a task that exceeds its limit: it is frozen if it can grow, else killed. A heap that
    /// is too small does not grow.
    fn task_near_limit(&mut self, id: &ContainerId, attempt: &TaskAttemptId, limit: Bytes) {
        let (habit, now) = (self.habit(id, attempt), self.now);
        let Some(task) = self
            .executors
            .get_mut(id)
            .and_then(|e| e.running.get_mut(attempt))
        else {
            return;
        };
        let heap_is_full = task.start.heap.is_some_and(|budget| habit.heap > budget);
        let Some(hold) = task.start.hold_ms.filter(|_| !heap_is_full) else {
            return self.task_ends(id, attempt, SimTaskEnd::OutOfMemory);
        };
        task.held = Some(now);
        self.later(
            hold,
            Any::Executor(
                id.clone(),
                SimExecutorEvent::HoldOver {
                    attempt: attempt.clone(),
                    limit,
                },
            ),
        );
        self.say_pressure(id, attempt);
    }

    fn say_pressure(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
        let limit = self
            .executors
            .get(id)
            .and_then(|e| e.running.get(attempt))
            .and_then(|task| task.start.limit);
        if let Some(limit) = limit {
            self.executor_says(
                id,
                FromExecutor::Pressure {
                    attempt: attempt.clone(),
                    limit,
                    current: limit,
                },
            );
        }
    }

    fn task_grows(&mut self, id: &ContainerId, attempt: &TaskAttemptId, limit: Bytes) {
        let (habit, now) = (self.habit(id, attempt), self.now);
        let Some(task) = self
            .executors
            .get_mut(id)
            .and_then(|e| e.running.get_mut(attempt))
        else {
            return;
        };
        if task.start.limit.is_none_or(|has| limit <= has) {
            return;
        }
        task.start.limit = Some(limit);
        let held = task.held.take();
        let late = std::mem::take(&mut task.late);
        let too_small = held.is_some() && exceeds_limit(&habit, &task.start);
        let held_us = held.map(|since| (now - since) * 1_000);
        self.executor_says(
            id,
            FromExecutor::Resized {
                attempt: attempt.clone(),
                limit,
                held_us,
                error: None,
            },
        );
        if too_small {
            self.task_near_limit(id, attempt, limit);
            if let Some(task) = self
                .executors
                .get_mut(id)
                .and_then(|e| e.running.get_mut(attempt))
            {
                task.late = late;
            }
        } else if late {
            self.later(
                habit.runs_ms / 2,
                Any::Executor(
                    id.clone(),
                    SimExecutorEvent::Over {
                        attempt: attempt.clone(),
                    },
                ),
            );
        }
    }

    /// Ends the freeze of a task: the kernel kills it.
    fn task_let_go(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
        let held = self
            .executors
            .get(id)
            .and_then(|e| e.running.get(attempt))
            .is_some_and(|task| task.held.is_some());
        if held {
            self.task_ends(id, attempt, SimTaskEnd::OutOfMemory);
        }
    }

    fn hold_over(&mut self, id: &ContainerId, attempt: &TaskAttemptId, limit: Bytes) {
        let task = self.executors.get(id).and_then(|e| e.running.get(attempt));
        let for_ever = self.plant == PlantedBug::NobodyGivesWay;
        if !for_ever
            && task.is_some_and(|task| task.held.is_some() && task.start.limit == Some(limit))
        {
            self.task_let_go(id, attempt);
        }
    }

    /// Nodes on which at least two tasks run and all are frozen, with the time since when.
    pub(super) fn standstills(&self) -> BTreeMap<NodeId, u64> {
        let mut nodes: BTreeMap<NodeId, Vec<Option<u64>>> = BTreeMap::new();
        for e in self.executors.values() {
            nodes
                .entry(e.node.clone())
                .or_default()
                .extend(e.running.values().map(|task| task.held));
        }
        let still = |held: &[Option<u64>]| {
            held.iter()
                .copied()
                .collect::<Option<Vec<u64>>>()
                .filter(|held| held.len() > 1)
        };
        let since = |held: Vec<u64>| held.into_iter().max();
        nodes
            .into_iter()
            .filter_map(|(node, held)| Some((node, still(&held).and_then(since)?)))
            .collect()
    }

    fn task_over(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
        let habit = self.habit(id, attempt);
        if let Some(task) = self
            .executors
            .get_mut(id)
            .and_then(|e| e.running.get_mut(attempt))
            .filter(|task| task.held.is_some())
        {
            task.late = true;
            return;
        }
        let Some(e) = self.executors.get(id) else {
            return;
        };
        let failed = self.oracle.plain_failures(&e.token, &attempt.task);
        let code = i32::from(failed < habit.fails);
        self.task_ends(id, attempt, SimTaskEnd::Code(code));
    }

    fn task_ends(&mut self, id: &ContainerId, attempt: &TaskAttemptId, how: SimTaskEnd) {
        let habit = self.habit(id, attempt);
        let wall = self.wall();
        let blames = self.plant == PlantedBug::BlamesMemory;
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let Some(task) = e.running.remove(attempt) else {
            return;
        };
        e.slots.release(attempt);
        let truth = match how {
            SimTaskEnd::Code(0) => RealTaskEnd::Success,
            SimTaskEnd::Code(_) => RealTaskEnd::Plain,
            SimTaskEnd::OutOfMemory => RealTaskEnd::OwnMemory,
            SimTaskEnd::Killed | SimTaskEnd::Stopped => RealTaskEnd::NotItsFault,
        };
        let token = e.token.clone();
        let evidence = evidence(
            &task.start,
            &habit,
            if blames && matches!(how, SimTaskEnd::Killed) {
                SimTaskEnd::OutOfMemory
            } else {
                how
            },
        );
        let verdict = classify(&evidence, VerdictScope::Task, &task.start.heap_exit_codes);
        let report = TaskReport {
            attempt: attempt.clone(),
            container: id.clone(),
            reason: verdict.reason,
            dimension: verdict.dimension,
            evidence,
            diagnosis: Vec::new(),
            started: Some(wall),
            ended: wall,
            timeline: Vec::new(),
            log_tail: String::new(),
            read: None,
        };
        self.note(|| format!("{attempt} of {} ends in {id}: {}", id.app, report.reason));
        self.oracle.task_ended(&token, attempt, truth);
        self.executor_keeps(id, report);
    }

    fn executor_keeps(&mut self, id: &ContainerId, report: TaskReport) {
        self.executor_says(
            id,
            FromExecutor::Ended {
                report: Box::new(report.clone()),
            },
        );
        if let Some(e) = self.executors.get_mut(id) {
            e.results.add(report);
        }
    }

    fn executor_says(&mut self, id: &ContainerId, message: FromExecutor) {
        if let Some(line) = self.executors.get(id).and_then(|e| e.line) {
            self.say_to_master(line, message);
        }
    }

    /// Stops all tasks and then exits.
    fn executor_stops(&mut self, id: &ContainerId, code: i32) {
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        match e.phase {
            Phase::Working | Phase::Draining { .. } => e.phase = Phase::Stopping { code },
            Phase::Stopping { .. } | Phase::Leaving => return,
        }
        let running: Vec<TaskAttemptId> = e.running.keys().cloned().collect();
        running
            .iter()
            .for_each(|attempt| self.task_ends(id, attempt, SimTaskEnd::Stopped));
        self.executor_looks(id);
    }

    /// Exits if no work is left.
    fn executor_looks(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let idle = e.slots.is_idle();
        let exit = match e.phase {
            Phase::Stopping { code } if idle => Some(code),
            Phase::Draining { idle_since: None } if idle => {
                e.phase = Phase::Draining {
                    idle_since: Some(now),
                };
                let none = e.results.is_empty();
                self.later(LAST_ACKS, Any::Executor(id.clone(), SimExecutorEvent::Look));
                none.then_some(0)
            }
            Phase::Draining {
                idle_since: Some(since),
            } if e.results.is_empty() || now >= since + LAST_ACKS => Some(0),
            Phase::Draining { .. } | Phase::Stopping { .. } | Phase::Working | Phase::Leaving => {
                None
            }
        };
        if let (Some(code), Some(e)) = (exit, self.executors.get_mut(id)) {
            e.phase = Phase::Leaving;
            let takes = self.chance.between(10, 100);
            return self.later(
                takes,
                Any::Executor(id.clone(), SimExecutorEvent::Exit { code }),
            );
        }
        let lonely = |e: &Executor| {
            e.line.is_none()
                && e.alone_since
                    .is_some_and(|since| now >= since + WITHOUT_MASTER)
        };
        if self.executors.get(id).is_some_and(lonely) {
            self.executor_stops(id, 1);
        }
    }
}

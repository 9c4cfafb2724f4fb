//! The program in a container: an executor with its real session and search for the master, and
//! tasks with the behaviour of the scenario.
//!
//! It keeps a connection to its master and reconnects when it breaks. It exits on request, or when
//! it has had no master for too long.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_executor::master_search::{MasterLocation, MasterSearch, is_good_connection};
use headroom_executor::session::{
    ExecutorEffect, ExecutorIdentity, ExecutorOutcome, ExecutorSession, FreezePressure,
    TaskControl, shows_master,
};
use headroom_node_core::{VerdictScope, classify};
use headroom_rm_server::to_wire;
use headroom_transport::MasterAddress;
use headroom_types::{Bytes, ContainerId, EnforcerKind, NodeId, TaskAttemptId, TaskReport, Tick};
use headroom_wire::v1::nodes::RunOrder;
use headroom_wire::v1::task::{FromExecutor, TaskStart, TaskUsage, ToExecutor};

use super::host::SimProgramEnd;
use super::task_evidence::{SimTaskEnd, evidence, exceeds_limit};
use super::{Simulation, SimulationEvent as Any};
use crate::invariant_checker::RealTaskEnd;
use crate::scenario::{PlantedBug, SimTaskPlan};

/// Time for which it continues without a master.
const WITHOUT_MASTER: Duration = Duration::from_secs(120);
/// Memory use of the executor itself.
const OWN_USE: Bytes = Bytes::from_mib(16);

#[derive(Debug)]
pub(super) enum SimExecutorEvent {
    /// Time to connect to the master.
    Try,
    /// Time to query the resource manager for the address of the master, and then to connect.
    Search,
    /// The connection attempt failed.
    NoAnswer,
    Up {
        line: u64,
    },
    Received {
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
    FreezeTimeout {
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

#[derive(Debug)]
struct Task {
    start: TaskStart,
    full: bool,
    /// Start of the freeze near its limit.
    held: Option<u64>,
    /// Its work time ended during a freeze.
    late: bool,
}

impl Task {
    /// A freeze near its limit.
    fn pressure(&self) -> Option<FreezePressure> {
        let limit = self.start.limit?;
        Some(FreezePressure {
            limit,
            current: limit,
        })
    }
}

/// One executor.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) node: NodeId,
    memory: Bytes,
    token: String,
    session: ExecutorSession,
    search: MasterSearch,
    running: BTreeMap<TaskAttemptId, Task>,
    /// Its program exits soon.
    leaving: bool,
    line: Option<u64>,
    up_since: u64,
    heard: bool,
    /// Time of the next [`SimExecutorEvent::Look`].
    look: Option<u64>,
    stubborn: bool,
}

impl Executor {
    fn new(node: &NodeId, id: &ContainerId, order: &RunOrder, now: u64, stubborn: bool) -> Self {
        let said = |key: &str| order.launch.env.get(key).cloned().unwrap_or_default();
        let address: Option<MasterAddress> = said("HEADROOM_MASTER_URL").parse().ok();
        let identity = ExecutorIdentity {
            container: id.clone(),
            token: said("HEADROOM_APP_TOKEN"),
            slots: said("HEADROOM_SLOTS").parse().unwrap_or(1),
            enforcer: EnforcerKind::Cgroup2,
        };
        Executor {
            node: node.clone(),
            memory: order.resource.memory,
            token: identity.token.clone(),
            session: ExecutorSession::new(identity, WITHOUT_MASTER, Tick(now)),
            search: MasterSearch::new(address),
            running: BTreeMap::new(),
            leaving: false,
            line: None,
            up_since: 0,
            heard: false,
            look: None,
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
        let executor = Executor::new(node, id, order, self.now, stubborn);
        self.executors.insert(id.clone(), executor);
        let takes = self.chance.between(5, 200);
        self.later(takes, Any::Executor(id.clone(), SimExecutorEvent::Try));
        self.executor_looks(id);
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
        let mut effects = Vec::new();
        if let Some(e) = self.executors.get_mut(id).filter(|e| !e.stubborn) {
            e.session
                .stop(ExecutorOutcome::Done, "SIGTERM", &mut effects);
            self.executor_carries_out(id, effects);
            self.executor_looks(id);
        }
    }

    pub(super) fn executor_thing(&mut self, id: &ContainerId, thing: SimExecutorEvent) {
        if !self.executors.contains_key(id) {
            return;
        }
        match thing {
            SimExecutorEvent::Try => self.executor_tries(id),
            SimExecutorEvent::Search => self.executor_searches(id),
            SimExecutorEvent::NoAnswer => self.executor_waits(id),
            SimExecutorEvent::Up { line } => self.executor_greets(id, line),
            SimExecutorEvent::Received { line, message } => {
                self.executor_received(id, line, *message)
            }
            SimExecutorEvent::LineDown { line } => self.executor_line_down(id, line),
            SimExecutorEvent::Full { attempt } => self.task_full(id, &attempt),
            SimExecutorEvent::Over { attempt } => self.task_over(id, &attempt),
            SimExecutorEvent::FreezeTimeout { attempt, limit } => {
                self.hold_over(id, &attempt, limit)
            }
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
        let url = e.search.address().map(ToString::to_string);
        let node = e.node.clone();
        let found = self
            .processes
            .iter()
            .find(|(_, p)| Some(&p.url) == url.as_ref())
            .map(|(pid, p)| (*pid, p.node.clone()));
        let cut = |there: &Option<NodeId>| {
            *there != Some(node.clone())
                && (self.is_cut(Some(&node)) || self.is_cut(there.as_ref()))
        };
        match found {
            Some((pid, there)) if !cut(&there) => {
                let line = self.open_connection(id, pid);
                let now = self.now;
                if let Some(e) = self.executors.get_mut(id) {
                    (e.line, e.up_since, e.heard) = (Some(line), now, false);
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

    /// Waits before the next search for the master.
    fn executor_waits(&mut self, id: &ContainerId) {
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let wait = Tick(0).plus(e.search.wait()).0;
        self.later(wait, Any::Executor(id.clone(), SimExecutorEvent::Search));
    }

    /// Gets the master's address from the resource manager, and reconnects.
    fn executor_searches(&mut self, id: &ContainerId) {
        let Some(node) = self.executors.get(id).map(|e| e.node.clone()) else {
            return;
        };
        let reached = self.leading_cluster();
        let location = reached
            .filter(|_| !self.is_cut(Some(&node)))
            .and_then(|cluster| cluster.app(&id.app))
            .map_or(MasterLocation::Unknown, |app| {
                MasterLocation::of(to_wire::app_state(app.state), app.master_url.as_deref())
            });
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        if e.search.on_location(location) {
            return self.executor_tries(id);
        }
        let mut effects = Vec::new();
        e.session.on_app_ended(&mut effects);
        self.executor_carries_out(id, effects);
    }

    fn executor_greets(&mut self, id: &ContainerId, line: u64) {
        let Some(e) = self.executors.get_mut(id).filter(|e| e.line == Some(line)) else {
            return;
        };
        let frozen = e.running.iter().filter(|(_, task)| task.held.is_some());
        let frozen = frozen
            .filter_map(|(attempt, task)| Some((attempt.clone(), task.pressure()?)))
            .collect();
        let mut effects = Vec::new();
        e.session.on_connected(frozen, &mut effects);
        self.executor_carries_out(id, effects);
    }

    fn executor_line_down(&mut self, id: &ContainerId, line: u64) {
        let now = self.now;
        self.wires.connections.remove(&line);
        let Some(e) = self.executors.get_mut(id).filter(|e| e.line == Some(line)) else {
            return;
        };
        e.line = None;
        let good = is_good_connection(e.heard, Tick(now).since(Tick(e.up_since)));
        e.search.on_disconnected(good);
        e.session.on_disconnected(Tick(now), good);
        self.executor_waits(id);
    }

    fn executor_received(&mut self, id: &ContainerId, line: u64, message: ToExecutor) {
        let (wall, open) = (self.wall(), self.wires.connections.contains_key(&line));
        let Some(e) = self.executors.get_mut(id).filter(|e| e.line == Some(line)) else {
            return;
        };
        let evicts = matches!(
            message,
            ToExecutor::Stop { .. } | ToExecutor::Unfreeze { .. }
        );
        if !open || (evicts && self.plant == PlantedBug::NobodyGivesWay) {
            return;
        }
        e.heard |= shows_master(&message);
        let mut effects = Vec::new();
        e.session.on_message(message, wall, &mut effects);
        self.executor_carries_out(id, effects);
    }

    /// Carries out the effects of the session.
    fn executor_carries_out(&mut self, id: &ContainerId, effects: Vec<ExecutorEffect>) {
        for effect in effects {
            match effect {
                ExecutorEffect::Send(message) => {
                    if let Some(line) = self.executors.get(id).and_then(|e| e.line) {
                        self.say_to_master(line, *message);
                    }
                }
                ExecutorEffect::Start(start) => self.task_begins(id, *start),
                ExecutorEffect::Order(attempt, TaskControl::Stop { .. }) => {
                    self.task_ends(id, &attempt, SimTaskEnd::Stopped)
                }
                ExecutorEffect::Order(attempt, TaskControl::Limit(limit)) => {
                    self.task_grows(id, &attempt, limit)
                }
                ExecutorEffect::Order(attempt, TaskControl::Unfreeze) => {
                    self.task_unfreeze(id, &attempt)
                }
            }
        }
    }

    fn task_begins(&mut self, id: &ContainerId, start: TaskStart) {
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        let attempt = start.attempt.clone();
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
        let Some(hold) = task.start.freeze_timeout_ms.filter(|_| !heap_is_full) else {
            return self.task_ends(id, attempt, SimTaskEnd::OutOfMemory);
        };
        task.held = Some(now);
        self.later(
            hold,
            Any::Executor(
                id.clone(),
                SimExecutorEvent::FreezeTimeout {
                    attempt: attempt.clone(),
                    limit,
                },
            ),
        );
        self.say_pressure(id, attempt);
    }

    fn say_pressure(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
        let Some(e) = self.executors.get(id) else {
            return;
        };
        let mut effects = Vec::new();
        if let Some(pressure) = e.running.get(attempt).and_then(Task::pressure) {
            e.session
                .send_pressure(attempt.clone(), pressure, &mut effects);
        }
        self.executor_carries_out(id, effects);
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
        let frozen_us = held.map(|since| (now - since) * 1_000);
        self.executor_says(
            id,
            FromExecutor::Resized {
                attempt: attempt.clone(),
                limit,
                frozen_us,
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
    fn task_unfreeze(&mut self, id: &ContainerId, attempt: &TaskAttemptId) {
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
            self.task_unfreeze(id, attempt);
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
            value: None,
            value_too_large: None,
            silent: false,
        };
        self.note(|| format!("{attempt} of {} ends in {id}: {}", id.app, report.reason));
        self.oracle.task_ended(&token, attempt, truth);
        let mut effects = Vec::new();
        if let Some(e) = self.executors.get_mut(id) {
            e.session.on_task_ended(&report, &mut effects);
        }
        self.executor_carries_out(id, effects);
    }

    fn executor_says(&mut self, id: &ContainerId, message: FromExecutor) {
        let mut effects = Vec::new();
        if let Some(e) = self.executors.get(id) {
            e.session.send(message, &mut effects);
        }
        self.executor_carries_out(id, effects);
    }

    /// Exits if no work is left.
    fn executor_looks(&mut self, id: &ContainerId) {
        let now = Tick(self.now);
        let Some(e) = self.executors.get_mut(id).filter(|e| !e.leaving) else {
            return;
        };
        let mut effects = Vec::new();
        e.session.check_master(now, &mut effects);
        self.executor_carries_out(id, effects);
        let Some(e) = self.executors.get_mut(id) else {
            return;
        };
        if let Some(outcome) = e.session.outcome(now) {
            e.leaving = true;
            let code = i32::from(outcome.exit_code());
            let takes = self.chance.between(10, 100);
            return self.later(
                takes,
                Any::Executor(id.clone(), SimExecutorEvent::Exit { code }),
            );
        }
        let next = e.session.next_timer().map(|at| at.0.max(self.now + 1));
        let earlier = |at: &u64| e.look.is_none_or(|look| *at < look || look <= now.0);
        if let Some(at) = next.filter(earlier) {
            e.look = Some(at);
            self.at(at, Any::Executor(id.clone(), SimExecutorEvent::Look));
        }
    }
}

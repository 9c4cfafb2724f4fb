//! The invariant checker of the simulation. It observes processes instead of messages and compares
//! them with the records.
//!
//! It runs after each step and once more at the end. The cores' own invariants are checked
//! separately.
//!
//! - A container is launched once, for a request with sufficient count, on a node with sufficient
//!   memory.
//! - An attempt of a task starts once. A task that is not idempotent starts once.
//! - An end is charged according to its real reason: memory only for memory, success only for
//!   success and once per task.
//! - A task fails only for a reason that is true.
//! - A task killed for memory gets its own container within a bound, if the scenario has one.
//! - A task is evicted for a frozen one at most once. If the scenario has a bound, no node is
//!   blocked for longer.
//! - An accepted application ends. After all have ended, no object is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_appmaster::event::JobEndKind;
use headroom_appmaster::policy::{AttemptPlace, ChargeAccount, GiveUpCause, TaskDecision};
use headroom_appmaster::record::JournalRecord;
use headroom_appmaster::taskset::TaskPosition;
use headroom_config::{Idempotent, JobSpec, MemoryQuantities, StageSpec, TaskLimit};
use headroom_rm_core::{EventLogLine, LogObject};
use headroom_types::{
    AppId, Bytes, ContainerId, NodeId, RequestId, Resource, TaskAttemptId, TaskId,
};
use headroom_wire::v1::job::MemoryFailureMode;
use headroom_wire::v1::nodes::RunOrder;

use crate::scenario::{Scenario, SimTaskPlan};
use crate::simulation::Client;

/// The real end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RealTaskEnd {
    /// It runs, or it ran when its container ended.
    Lost,
    /// It succeeded.
    Success,
    /// By itself, with exit code 1.
    Plain,
    /// The kernel killed it at its own limit.
    OwnMemory,
    /// The kernel killed its executor for memory.
    WithItsExecutor,
    /// It was stopped or killed from outside.
    NotItsFault,
}

/// The state of the tasks of one journal.
#[derive(Debug, Default)]
struct JournalState {
    job: usize,
    attempts: BTreeMap<TaskAttemptId, RealTaskEnd>,
    /// Ends that executors reported to the running master.
    heard: BTreeSet<TaskAttemptId>,
    successes: BTreeMap<TaskId, u32>,
    losses: BTreeMap<TaskId, u32>,
    evicted: BTreeSet<TaskPosition>,
    /// Memory of the largest node that the resource manager reported to the masters of this
    /// journal.
    reported_largest: Bytes,
}

/// The state of the invariant checker.
#[derive(Debug)]
pub(crate) struct InvariantChecker {
    violation: Option<String>,
    jobs: Vec<JobSpec>,
    habits: Vec<BTreeMap<TaskId, SimTaskPlan>>,
    /// Largest task that the cluster can ever place, by job.
    caps: Vec<Bytes>,
    largest: Bytes,
    launched: BTreeSet<ContainerId>,
    /// Requested containers by the token of the master. A master that lost its journal starts at
    /// zero.
    asked: BTreeMap<(String, RequestId), u32>,
    /// The nodes of the launched containers.
    given: BTreeMap<(String, RequestId), Vec<NodeId>>,
    /// Nodes that were missing when a master of the application registered with a new leader.
    missing: BTreeMap<AppId, BTreeSet<NodeId>>,
    /// The resource manager declared a node lost. Its containers are replaced while they may still
    /// run.
    nodes_given_up: bool,
    /// These nodes.
    given_up: BTreeSet<NodeId>,
    /// Nodes that left the cluster on request. A later leader refuses their reports.
    decommissioned: BTreeSet<NodeId>,
    /// A node accepted no work for a while.
    drained: bool,
    saved: BTreeSet<AppId>,
    by_token: BTreeMap<String, JournalState>,
    /// See [`Scenario::own_container_within`].
    own_container_within: Option<Duration>,
    /// Tasks killed for memory that wait for their own container, with the start of the wait.
    /// Milliseconds.
    own_waits: BTreeMap<(String, TaskPosition), u64>,
}

impl JournalState {
    /// The largest size that a master can assume: the cluster's cap, or less if only smaller nodes
    /// were reported to it.
    fn cap(&self, cap: Bytes, largest: Bytes) -> Bytes {
        cap.min(cap.saturating_sub(largest.saturating_sub(self.reported_largest)))
    }
}

impl InvariantChecker {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let largest = scenario.largest();
        let cap = |managed: Option<Bytes>, spec: &JobSpec| {
            let reserve = spec
                .executors
                .iter()
                .map(|e| e.reserve)
                .max()
                .unwrap_or_default();
            largest
                .saturating_sub(managed.unwrap_or_default())
                .saturating_sub(reserve)
        };
        InvariantChecker {
            violation: None,
            jobs: scenario.jobs.iter().map(|j| j.spec.clone()).collect(),
            habits: scenario.jobs.iter().map(|j| j.habits.clone()).collect(),
            caps: scenario
                .jobs
                .iter()
                .map(|j| cap(j.managed, &j.spec))
                .collect(),
            largest,
            launched: BTreeSet::new(),
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            missing: BTreeMap::new(),
            nodes_given_up: false,
            given_up: BTreeSet::new(),
            decommissioned: BTreeSet::new(),
            drained: false,
            saved: BTreeSet::new(),
            by_token: BTreeMap::new(),
            own_container_within: scenario.own_container_within,
            own_waits: BTreeMap::new(),
        }
    }
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }
    /// Records a violation; the first one is kept.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    pub(crate) fn logged(&mut self, line: &EventLogLine) {
        if matches!(line.reason.as_str(), "NodeLost" | "NodeMissing") {
            self.nodes_given_up = true;
            self.given_up
                .extend(line.node.iter().chain(node_of(&line.object)).cloned());
        }
        if line.reason.as_str() == "NodeDecommissioned" {
            self.decommissioned.extend(node_of(&line.object).cloned());
        }
    }
    /// Records the total count of a master's request.
    pub(crate) fn asked(&mut self, token: &str, request: &RequestId, count: u32) {
        let most = self
            .asked
            .entry((token.to_owned(), request.clone()))
            .or_default();
        *most = (*most).max(count);
    }
    /// Checks the memory of the live containers on a host.
    pub(crate) fn lives(&mut self, node: &NodeId, lives: Bytes, offers: &Resource) {
        if lives > offers.memory && !self.nodes_given_up {
            self.fail(format!(
                "{node} offers {} and containers of {lives} run on it",
                offers.memory
            ));
        }
    }
    /// Checks the memory of live containers that several leaders ordered. A node that was declared
    /// lost has containers that are stopped and no longer booked.
    pub(crate) fn ordered_by_several(&mut self, node: &NodeId, lives: Bytes, offers: &Resource) {
        if lives > offers.memory && !self.given_up.contains(node) {
            self.fail(format!(
                "{node} offers {}, and containers of {lives} that several leaders ordered run on it",
                offers.memory
            ));
        }
    }
    /// Whether the resource manager declared a node lost. Its containers are replaced while they
    /// may still run.
    pub(crate) fn gave_up_a_node(&self) -> bool {
        self.nodes_given_up
    }
    /// Records a drain: the cluster is smaller for a while.
    pub(crate) fn drained(&mut self) {
        self.drained = true;
    }
    /// Records that a master registered with a leader that does not know the containers of these
    /// nodes.
    pub(crate) fn registered_early(&mut self, app: &AppId, missing: &BTreeSet<NodeId>) {
        let nodes = self.missing.entry(app.clone()).or_default();
        nodes.extend(missing.iter().cloned());
    }
    /// Records the launch of a container on a host whose live containers then use `lives`.
    pub(crate) fn launched(
        &mut self,
        id: &ContainerId,
        order: &RunOrder,
        lives: Bytes,
        node: &NodeId,
        offers: &Resource,
    ) {
        if !self.launched.insert(id.clone()) {
            self.fail(format!("{id} is launched twice"));
        }
        self.lives(node, lives, offers);
        let Some(request) = &order.request else {
            return;
        };
        let token = order
            .launch
            .env
            .get("HEADROOM_APP_TOKEN")
            .cloned()
            .unwrap_or_default();
        let key = (token, request.clone());
        let given = self.given.entry(key.clone()).or_default();
        given.push(node.clone());
        let missing = self.missing.get(&id.app);
        let unknown = |node: &&NodeId| {
            missing.is_some_and(|missing| missing.contains(*node))
                || self.decommissioned.contains(*node)
        };
        // The containers on those nodes are granted again at most once each.
        let (again, given) = (given.iter().filter(unknown).count(), given.len());
        let asked = self.asked.get(&key).map_or(0, |asked| *asked as usize);
        if given > asked + again && !self.nodes_given_up {
            self.fail(format!(
                "{}/{request}: {asked} asked for, {given} launched",
                id.app
            ));
        }
    }

    pub(crate) fn saved(&mut self, app: &AppId) {
        self.saved.insert(app.clone());
    }
    /// Checks that an application whose acceptance was acknowledged is stored.
    pub(crate) fn accepted(&mut self, app: &AppId) {
        if !self.saved.contains(app) {
            self.fail(format!("{app} was accepted but is not on disk"));
        }
    }

    /// Records the start or restart of a master with the journal of this token.
    pub(crate) fn master_begins(&mut self, token: &str, job: usize) {
        let book = self.by_token.entry(token.to_owned()).or_default();
        (book.job, book.reported_largest) = (job, Bytes::ZERO);
        book.heard.clear();
    }
    /// Records the size of the largest node as reported to a master.
    pub(crate) fn record_largest(&mut self, token: &str, largest: Bytes) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.reported_largest = book.reported_largest.max(largest);
        }
    }
    pub(crate) fn task_began(&mut self, token: &str, attempt: &TaskAttemptId) {
        let Some(book) = self.by_token.get_mut(token) else {
            return self.fail(format!("{attempt} starts without a master"));
        };
        let again = book
            .attempts
            .insert(attempt.clone(), RealTaskEnd::Lost)
            .is_some();
        let job = book.job;
        let before = book
            .attempts
            .keys()
            .filter(|a| a.task == attempt.task)
            .count();
        if again {
            self.fail(format!("{attempt} starts twice"));
        }
        if before > 1
            && stage_of(&self.jobs[job], &attempt.task)
                .is_some_and(|s| s.idempotent == Idempotent::No)
        {
            self.fail(format!("{attempt} starts, but its task must not run twice"));
        }
    }
    pub(crate) fn task_ended(&mut self, token: &str, attempt: &TaskAttemptId, truth: RealTaskEnd) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.attempts.insert(attempt.clone(), truth);
        }
    }
    /// Records that an executor reported the end of this attempt to its master.
    pub(crate) fn task_heard(&mut self, token: &str, attempt: &TaskAttemptId) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.heard.insert(attempt.clone());
        }
    }
    /// Records that the container of this attempt ended with the attempt inside.
    pub(crate) fn task_lost(&mut self, token: &str, attempt: &TaskAttemptId) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.attempts
                .entry(attempt.clone())
                .or_insert(RealTaskEnd::Lost);
        }
    }
    /// Number of failures of a task by its own exit code.
    pub(crate) fn plain_failures(&self, token: &str, task: &TaskId) -> u32 {
        let Some(book) = self.by_token.get(token) else {
            return 0;
        };
        let plain = book
            .attempts
            .iter()
            .filter(|(a, t)| a.task == *task && **t == RealTaskEnd::Plain)
            .count();
        u32::try_from(plain).unwrap_or(u32::MAX)
    }

    /// Checks a new journal record of a master.
    pub(crate) fn recorded(&mut self, token: &str, record: &JournalRecord, now: u64) {
        self.waited(token, record, now);
        match record {
            JournalRecord::Ended {
                row, account, next, ..
            } => {
                self.charged(token, &row.attempt, *account);
                if let TaskDecision::GiveUp { cause, message } = next {
                    self.given_up(token, &row.attempt.task, *cause, message);
                }
            }
            JournalRecord::GivenUp {
                cause,
                message,
                task,
            } => {
                let job = self.by_token.get(token).map_or(0, |b| b.job);
                let stage = self.jobs[job].stages.get(task.stage);
                let id = stage.and_then(|s| {
                    let index = s.first.checked_add(task.index)?;
                    Some(TaskId {
                        stage: s.name.clone(),
                        index,
                    })
                });
                if let Some(id) = id {
                    self.given_up(token, &id, *cause, message);
                }
            }
            JournalRecord::Begin(_)
            | JournalRecord::JobStarted { .. }
            | JournalRecord::Run { .. }
            | JournalRecord::Gained { .. }
            | JournalRecord::Gone { .. } => {}
            JournalRecord::Placed { .. }
            | JournalRecord::Committing { .. }
            | JournalRecord::Grown { .. }
            | JournalRecord::Cancelled { .. } => {}
            JournalRecord::Evicted { task, .. } => self.evicted(token, *task),
            JournalRecord::Scaled { .. } | JournalRecord::Ranked { .. } => {}
            // The simulation has no live jobs.
            JournalRecord::StageDeclared { .. }
            | JournalRecord::TasksAccepted { .. }
            | JournalRecord::SubmitterJoined { .. }
            | JournalRecord::SubmitterForgotten { .. }
            | JournalRecord::ResultsAcknowledged { .. }
            | JournalRecord::ValueReturned { .. }
            | JournalRecord::TasksCancelled { .. }
            | JournalRecord::JobClosed { .. } => {}
            JournalRecord::Moved { .. }
            | JournalRecord::Known { .. }
            | JournalRecord::Inputs { .. }
            | JournalRecord::Over { .. } => {}
        }
    }

    /// Checks that no task is evicted twice.
    fn evicted(&mut self, token: &str, task: TaskPosition) {
        let Some(book) = self.by_token.get_mut(token) else {
            return;
        };
        if !book.evicted.insert(task) {
            self.fail(format!(
                "task {} of stage {} is evicted a second time",
                task.index, task.stage
            ));
        }
    }

    /// Checks the wait of a task that was killed for memory for its own container.
    fn waited(&mut self, token: &str, record: &JournalRecord, now: u64) {
        let Some(within) = self.own_container_within else {
            return;
        };
        if let JournalRecord::Ended {
            task,
            account: ChargeAccount::Memory,
            next: TaskDecision::Again { size, .. },
            ..
        } = record
            && size.place == AttemptPlace::Own
        {
            self.own_waits.insert((token.to_owned(), *task), now);
        }
        if let JournalRecord::Placed { task, row } = record
            && let Some(since) = self.own_waits.remove(&(token.to_owned(), *task))
            && Duration::from_millis(now - since) > within
        {
            let waited = now - since;
            self.fail(format!(
                "{} waited {waited} ms behind its own job, the bound is {} ms",
                row.attempt,
                within.as_millis()
            ));
        }
    }

    fn charged(&mut self, token: &str, attempt: &TaskAttemptId, account: ChargeAccount) {
        let Some(book) = self.by_token.get_mut(token) else {
            return;
        };
        let truth = book.attempts.get(attempt).copied();
        // If only the executor has a limit, unreported ends are judged together with the end of the
        // executor.
        let together = stage_of(&self.jobs[book.job], &attempt.task)
            .is_some_and(|s| s.enforce == TaskLimit::Executor);
        let by_itself = matches!(
            truth,
            Some(RealTaskEnd::Success | RealTaskEnd::Plain | RealTaskEnd::NotItsFault)
        );
        let unheard = together && by_itself && !book.heard.contains(attempt);
        let right = match account {
            ChargeAccount::Success => {
                *book.successes.entry(attempt.task.clone()).or_default() += 1;
                truth == Some(RealTaskEnd::Success)
            }
            ChargeAccount::Memory | ChargeAccount::Spike => {
                unheard
                    || matches!(
                        truth,
                        Some(RealTaskEnd::OwnMemory | RealTaskEnd::WithItsExecutor)
                    )
            }
            ChargeAccount::Plain => truth == Some(RealTaskEnd::Plain),
            ChargeAccount::Bystander => unheard || truth == Some(RealTaskEnd::WithItsExecutor),
            ChargeAccount::Collateral => unheard || truth == Some(RealTaskEnd::NotItsFault),
            // The real end was not reported.
            ChargeAccount::Taken => true,
            ChargeAccount::Transient => {
                *book.losses.entry(attempt.task.clone()).or_default() += 1;
                true
            }
        };
        let twice = book.successes.get(&attempt.task).is_some_and(|n| *n > 1);
        if !right {
            self.fail(format!(
                "{attempt} is charged as {account:?}, but it ended as {truth:?}"
            ));
        }
        if twice {
            self.fail(format!("{} is recorded as done twice", attempt.task));
        }
    }

    /// Checks the reason for which a task failed.
    fn given_up(&mut self, token: &str, task: &TaskId, cause: GiveUpCause, message: &str) {
        let Some(book) = self.by_token.get(token) else {
            return;
        };
        let (spec, cap) = (
            &self.jobs[book.job],
            book.cap(self.caps[book.job], self.largest),
        );
        let (Some(stage), Some(habit)) = (stage_of(spec, task), self.habits[book.job].get(task))
        else {
            return;
        };
        let losses = book.losses.get(task).copied().unwrap_or(0);
        let unused = message.contains("before their executor was ready");
        let right = match cause {
            GiveUpCause::Plain => {
                self.plain_failures(token, task) > 0
                    && (spec.mode == MemoryFailureMode::Fixed
                        || habit.fails >= spec.retry.max_attempts)
            }
            GiveUpCause::Transient => losses > spec.retry.transient || unused,
            GiveUpCause::NotIdempotent => stage.idempotent == Idempotent::No,
            GiveUpCause::NeverFits => {
                spec.mode != MemoryFailureMode::Headroom
                    || self.nodes_given_up
                    || self.drained
                    || needed(habit, stage) > cap
            }
            // The scenarios never cancel tasks.
            GiveUpCause::Cancelled => false,
            GiveUpCause::Memory => {
                let sure =
                    spec.mode == MemoryFailureMode::Headroom && stage.enforce == TaskLimit::Task;
                !sure || needed(habit, stage) > cap
            }
        };
        if !right {
            self.fail(format!(
                "{task} is given up as {cause:?} but should not be (needs {} of {cap}, lost {losses} times): {message}",
                habit.memory()
            ));
        }
    }

    /// Checks the result of a job after the end of the run.
    pub(crate) fn judge_job(&mut self, client: &Client) {
        let Some(outcome) = &client.outcome else {
            return;
        };
        let journals: Vec<&str> = client.journals.values().map(|j| j.token.as_str()).collect();
        let done = |book: &JournalState| book.successes.len();
        let most = journals
            .iter()
            .filter_map(|t| self.by_token.get(*t))
            .map(done)
            .max()
            .unwrap_or(0);
        let tasks = usize::try_from(client.job.spec.tasks()).unwrap_or(usize::MAX);
        if outcome.ending == JobEndKind::Succeeded && most != tasks {
            self.fail(format!(
                "{} has succeeded, but only {most} of {tasks} tasks have",
                client.job.spec.name
            ));
        }
        if outcome.ending == JobEndKind::Stopped
            && !client.killed
            && !self.nodes_given_up
            && client.job.managed.is_none()
        {
            // An application fails if its master is absent for too long, but not after it has
            // ended.
            let journal = client.journals.values().next();
            let over = journal.is_some_and(|j| {
                j.records
                    .iter()
                    .any(|r| matches!(r, JournalRecord::Over { .. }))
            });
            if over {
                self.fail(format!(
                    "{} was stopped after it had ended",
                    client.job.spec.name
                ));
            }
        }
    }

    pub(crate) fn none_left(&mut self, place: &str, left: &[String]) {
        if !left.is_empty() {
            self.fail(format!(
                "all jobs have ended, but {place} still has {left:?}"
            ));
        }
    }
}

fn node_of(object: &LogObject) -> Option<&NodeId> {
    if let LogObject::Node(node) = object {
        Some(node)
    } else {
        None
    }
}

fn stage_of<'a>(spec: &'a JobSpec, task: &TaskId) -> Option<&'a StageSpec> {
    spec.stages.iter().find(|s| s.name == task.stage)
}

/// The size at which a task fits for certain. A ladder that doubles heap and overhead separately
/// can reach the cap with twice the need of one of them.
fn needed(habit: &SimTaskPlan, stage: &StageSpec) -> Bytes {
    match stage.runtime.memory() {
        MemoryQuantities::One => habit.memory(),
        MemoryQuantities::HeapAndOverhead => habit
            .memory()
            .mul_ratio(5, 2)
            .saturating_add(Bytes::from_mib(128)),
    }
}

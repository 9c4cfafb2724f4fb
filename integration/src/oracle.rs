//! What must hold in every run, whatever went wrong. It sees what really happened (processes, not messages) and compares that with
//! what was written down.
//!
//! Asked after every step, and once more when everything is over. The cores' own invariants are checked beside it.
//!
//! - A container is launched once, for a request that was asked for so often, where there is room.
//! - An attempt at a task begins once, and so does a task that must not run twice.
//! - An end goes to the account of what really happened: no memory failure but by memory, no success but by success, once a task.
//! - A task is given up only for a reason that is true.
//! - A task killed for memory gets a container of its own within a bound, where the scenario has one.
//! - A task gives way to a held one at most once; where the scenario has a bound, no node stands still beyond it.
//! - An accepted application ends; when all have, nothing is left anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_appmaster::event::Ending;
use headroom_appmaster::policy::{Account, Cause, Next, Place};
use headroom_appmaster::record::Record;
use headroom_appmaster::taskset::TaskKey;
use headroom_config::{Idempotent, JobSpec, Memory, StageSpec, TaskLimit};
use headroom_rm_core::{LogLine, RunOrder};
use headroom_types::{AppId, Bytes, ContainerId, NodeId, RequestId, Resource, TaskAttemptId, TaskId};
use headroom_wire::v1::job::Mode;

use crate::scenario::{Habit, Scenario};
use crate::world::Client;

/// How an attempt really ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// It runs, or ran when its container went.
    Lost,
    /// It did what it should.
    Success,
    /// By itself, with exit code 1.
    Plain,
    /// The kernel killed it at its own limit.
    OwnMemory,
    /// The kernel killed its executor for memory.
    WithItsExecutor,
    /// Somebody stopped or killed it.
    NotItsFault,
}

/// What is known of one journal's tasks.
#[derive(Debug, Default)]
struct Book {
    job: usize,
    attempts: BTreeMap<TaskAttemptId, Truth>,
    /// Ends that the master that lives now was told of by their executor.
    heard: BTreeSet<TaskAttemptId>,
    successes: BTreeMap<TaskId, u32>,
    losses: BTreeMap<TaskId, u32>,
    gave_way: BTreeSet<TaskKey>,
    /// Memory of the largest node that the masters of this journal were told of.
    told: Bytes,
}

/// The books.
#[derive(Debug)]
pub(crate) struct Oracle {
    violation: Option<String>,
    jobs: Vec<JobSpec>,
    habits: Vec<BTreeMap<TaskId, Habit>>,
    /// Largest task that could ever be given room, by job.
    caps: Vec<Bytes>,
    largest: Bytes,
    launched: BTreeSet<ContainerId>,
    /// By the secret of the master that asked: one that lost its journal counts from the beginning.
    asked: BTreeMap<(String, RequestId), u32>,
    given: BTreeMap<(String, RequestId), u32>,
    /// The resource manager gave up a node: what it had there is replaced while it may still live.
    nodes_given_up: bool,
    /// Some node took no work for a while.
    drained: bool,
    saved: BTreeSet<AppId>,
    by_token: BTreeMap<String, Book>,
    /// See [`Scenario::own_container_within`].
    own_container_within: Option<Duration>,
    /// Tasks killed for memory that wait for a container of their own, and since when. Milliseconds.
    own_waits: BTreeMap<(String, TaskKey), u64>,
}

impl Book {
    /// What a master knows: the cap of the cluster, or less when it was only told of smaller nodes.
    fn cap(&self, cap: Bytes, largest: Bytes) -> Bytes {
        cap.min(cap.saturating_sub(largest.saturating_sub(self.told)))
    }
}

impl Oracle {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let largest = scenario.largest();
        let cap = |managed: Option<Bytes>, spec: &JobSpec| {
            let reserve = spec.executors.iter().map(|e| e.reserve).max().unwrap_or_default();
            largest.saturating_sub(managed.unwrap_or_default()).saturating_sub(reserve)
        };
        Oracle {
            violation: None,
            jobs: scenario.jobs.iter().map(|j| j.spec.clone()).collect(),
            habits: scenario.jobs.iter().map(|j| j.habits.clone()).collect(),
            caps: scenario.jobs.iter().map(|j| cap(j.managed, &j.spec)).collect(),
            largest,
            launched: BTreeSet::new(),
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            nodes_given_up: false,
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
    /// The first one stands.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    pub(crate) fn logged(&mut self, line: &LogLine) {
        self.nodes_given_up |= matches!(line.reason.as_str(), "NodeLost" | "NodeMissing");
    }
    /// A master asked for so many in all.
    pub(crate) fn asked(&mut self, token: &str, request: &RequestId, count: u32) {
        let most = self.asked.entry((token.to_owned(), request.clone())).or_default();
        *most = (*most).max(count);
    }
    /// So much lives on a host now.
    pub(crate) fn lives(&mut self, node: &NodeId, lives: Bytes, offers: &Resource) {
        if lives > offers.memory && !self.nodes_given_up {
            self.fail(format!("{node} offers {} and containers of {lives} live on it", offers.memory));
        }
    }
    /// The resource manager gave up a node: what it had there is replaced while it may still live.
    pub(crate) fn gave_up_a_node(&self) -> bool {
        self.nodes_given_up
    }
    /// A node is to be emptied: for a while the cluster is smaller than it was.
    pub(crate) fn drained(&mut self) {
        self.drained = true;
    }
    /// Processes of a container begin on a host where so much lives then.
    pub(crate) fn launched(&mut self, id: &ContainerId, order: &RunOrder, lives: Bytes, node: &NodeId, offers: &Resource) {
        if !self.launched.insert(id.clone()) {
            self.fail(format!("{id} is launched twice"));
        }
        self.lives(node, lives, offers);
        let Some(request) = &order.request else { return };
        let token = order.launch.env.get("HEADROOM_APP_TOKEN").cloned().unwrap_or_default();
        let key = (token, request.clone());
        let given = self.given.entry(key.clone()).or_default();
        *given += 1;
        let (given, asked) = (*given, self.asked.get(&key).copied().unwrap_or(0));
        if given > asked && !self.nodes_given_up {
            self.fail(format!("{}/{request}: {asked} asked for, {given} launched", id.app));
        }
    }

    pub(crate) fn saved(&mut self, app: &AppId) {
        self.saved.insert(app.clone());
    }
    /// Somebody was told that this application exists.
    pub(crate) fn accepted(&mut self, app: &AppId) {
        if !self.saved.contains(app) {
            self.fail(format!("{app} was accepted and is not on disk"));
        }
    }

    /// A master begins, or goes on, with the journal of this secret.
    pub(crate) fn master_begins(&mut self, token: &str, job: usize) {
        let book = self.by_token.entry(token.to_owned()).or_default();
        (book.job, book.told) = (job, Bytes::ZERO);
        book.heard.clear();
    }
    /// A master is told how large the largest node is.
    pub(crate) fn told_largest(&mut self, token: &str, largest: Bytes) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.told = book.told.max(largest);
        }
    }
    pub(crate) fn task_began(&mut self, token: &str, attempt: &TaskAttemptId) {
        let Some(book) = self.by_token.get_mut(token) else { return self.fail(format!("{attempt} begins for nobody")) };
        let again = book.attempts.insert(attempt.clone(), Truth::Lost).is_some();
        let job = book.job;
        let before = book.attempts.keys().filter(|a| a.task == attempt.task).count();
        if again {
            self.fail(format!("{attempt} begins twice"));
        }
        if before > 1 && stage_of(&self.jobs[job], &attempt.task).is_some_and(|s| s.idempotent == Idempotent::No) {
            self.fail(format!("{attempt} begins, and its task must not run twice"));
        }
    }
    pub(crate) fn task_ended(&mut self, token: &str, attempt: &TaskAttemptId, truth: Truth) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.attempts.insert(attempt.clone(), truth);
        }
    }
    /// Its container went with it inside.
    /// A master was told by the executor how this one ended.
    pub(crate) fn task_heard(&mut self, token: &str, attempt: &TaskAttemptId) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.heard.insert(attempt.clone());
        }
    }
    pub(crate) fn task_lost(&mut self, token: &str, attempt: &TaskAttemptId) {
        if let Some(book) = self.by_token.get_mut(token) {
            book.attempts.entry(attempt.clone()).or_insert(Truth::Lost);
        }
    }
    /// How often a task has ended by itself with an error.
    pub(crate) fn plain_failures(&self, token: &str, task: &TaskId) -> u32 {
        let Some(book) = self.by_token.get(token) else { return 0 };
        let plain = book.attempts.iter().filter(|(a, t)| a.task == *task && **t == Truth::Plain).count();
        u32::try_from(plain).unwrap_or(u32::MAX)
    }

    /// A master has written something down.
    pub(crate) fn recorded(&mut self, token: &str, record: &Record, now: u64) {
        self.waited(token, record, now);
        match record {
            Record::Ended { row, account, next, .. } => {
                self.charged(token, &row.attempt, *account);
                if let Next::GiveUp { cause, message } = next {
                    self.given_up(token, &row.attempt.task, *cause, message);
                }
            }
            Record::GivenUp { cause, message, task } => {
                let job = self.by_token.get(token).map_or(0, |b| b.job);
                let stage = self.jobs[job].stages.get(task.stage);
                let id = stage.and_then(|s| {
                    let index = s.first.checked_add(task.index)?;
                    Some(TaskId { stage: s.name.clone(), index })
                });
                if let Some(id) = id {
                    self.given_up(token, &id, *cause, message);
                }
            }
            Record::Begin(_) | Record::JobStarted { .. } | Record::Run { .. } | Record::Gained { .. } | Record::Gone { .. } => {}
            Record::Placed { .. } | Record::Committing { .. } | Record::Grown { .. } | Record::Cancelled { .. } => {}
            Record::GaveWay { task, .. } => self.gave_way(token, *task),
            Record::Scaled { .. } | Record::Ranked { .. } => {}
            Record::Moved { .. } | Record::Known { .. } | Record::Inputs { .. } | Record::Over { .. } => {}
        }
    }

    /// No task gives way twice.
    fn gave_way(&mut self, token: &str, task: TaskKey) {
        let Some(book) = self.by_token.get_mut(token) else { return };
        if !book.gave_way.insert(task) {
            self.fail(format!("task {} of stage {} gives way a second time", task.index, task.stage));
        }
    }

    /// A task that was killed for memory has not waited too long for a container of its own.
    fn waited(&mut self, token: &str, record: &Record, now: u64) {
        let Some(within) = self.own_container_within else { return };
        if let Record::Ended { task, account: Account::Memory, next: Next::Again { size, .. }, .. } = record
            && size.place == Place::Own
        {
            self.own_waits.insert((token.to_owned(), *task), now);
        }
        if let Record::Placed { task, row } = record
            && let Some(since) = self.own_waits.remove(&(token.to_owned(), *task))
            && Duration::from_millis(now - since) > within
        {
            let waited = now - since;
            self.fail(format!("{} waited {waited} ms behind its own job, the bound is {} ms", row.attempt, within.as_millis()));
        }
    }

    fn charged(&mut self, token: &str, attempt: &TaskAttemptId, account: Account) {
        let Some(book) = self.by_token.get_mut(token) else { return };
        let truth = book.attempts.get(attempt).copied();
        // Where only the executor has a limit, ends that nobody heard of are judged together with its death.
        let together = stage_of(&self.jobs[book.job], &attempt.task).is_some_and(|s| s.enforce == TaskLimit::Executor);
        let by_itself = matches!(truth, Some(Truth::Success | Truth::Plain | Truth::NotItsFault));
        let unheard = together && by_itself && !book.heard.contains(attempt);
        let right = match account {
            Account::Success => {
                *book.successes.entry(attempt.task.clone()).or_default() += 1;
                truth == Some(Truth::Success)
            }
            Account::Memory | Account::Spike => unheard || matches!(truth, Some(Truth::OwnMemory | Truth::WithItsExecutor)),
            Account::Plain => truth == Some(Truth::Plain),
            Account::Innocent => unheard || truth == Some(Truth::WithItsExecutor),
            Account::Collateral => unheard || truth == Some(Truth::NotItsFault),
            // Nobody heard how it really ended.
            Account::Taken => true,
            Account::Transient => {
                *book.losses.entry(attempt.task.clone()).or_default() += 1;
                true
            }
        };
        let twice = book.successes.get(&attempt.task).is_some_and(|n| *n > 1);
        if !right {
            self.fail(format!("{attempt} is entered as {account:?}, and the truth is {truth:?}"));
        }
        if twice {
            self.fail(format!("{} is entered as done twice", attempt.task));
        }
    }

    /// A task is given up: was that right?
    fn given_up(&mut self, token: &str, task: &TaskId, cause: Cause, message: &str) {
        let Some(book) = self.by_token.get(token) else { return };
        let (spec, cap) = (&self.jobs[book.job], book.cap(self.caps[book.job], self.largest));
        let (Some(stage), Some(habit)) = (stage_of(spec, task), self.habits[book.job].get(task)) else { return };
        let losses = book.losses.get(task).copied().unwrap_or(0);
        let unused = message.contains("before their executor was ready");
        let right = match cause {
            Cause::Plain => {
                self.plain_failures(token, task) > 0 && (spec.mode == Mode::Fixed || habit.fails >= spec.retry.max_attempts)
            }
            Cause::Transient => losses > spec.retry.transient || unused,
            Cause::NotIdempotent => stage.idempotent == Idempotent::No,
            Cause::NeverFits => spec.mode != Mode::Headroom || self.nodes_given_up || self.drained || needed(habit, stage) > cap,
            // Nobody asks for that here.
            Cause::Cancelled => false,
            Cause::Memory => {
                let sure = spec.mode == Mode::Headroom && stage.enforce == TaskLimit::Task;
                !sure || needed(habit, stage) > cap
            }
        };
        if !right {
            self.fail(format!(
                "{task} is given up as {cause:?} and should not be (needs {} of {cap}, lost {losses} times): {message}",
                habit.memory()
            ));
        }
    }

    /// Everything is over: has this job got what it is owed?
    pub(crate) fn judge_job(&mut self, client: &Client) {
        let Some(outcome) = &client.outcome else { return };
        let journals: Vec<&str> = client.journals.values().map(|j| j.token.as_str()).collect();
        let done = |book: &Book| book.successes.len();
        let most = journals.iter().filter_map(|t| self.by_token.get(*t)).map(done).max().unwrap_or(0);
        let tasks = usize::try_from(client.job.spec.tasks()).unwrap_or(usize::MAX);
        if outcome.ending == Ending::Succeeded && most != tasks {
            self.fail(format!("{} has succeeded, and {most} of {tasks} tasks have", client.job.spec.name));
        }
        if outcome.ending == Ending::Stopped && !client.killed && !self.nodes_given_up && client.job.managed.is_none() {
            // A master that was away for too long finds its application failed; one that was not does not.
            let journal = client.journals.values().next();
            let over = journal.is_some_and(|j| j.records.iter().any(|r| matches!(r, Record::Over { .. })));
            if over {
                self.fail(format!("{} was stopped after it had ended", client.job.spec.name));
            }
        }
    }

    pub(crate) fn none_left(&mut self, place: &str, left: &[String]) {
        if !left.is_empty() {
            self.fail(format!("everything is over, and {place} still has {left:?}"));
        }
    }
}

fn stage_of<'a>(spec: &'a JobSpec, task: &TaskId) -> Option<&'a StageSpec> {
    spec.stages.iter().find(|s| s.name == task.stage)
}

/// What a size must have so that a task surely fits. A ladder that doubles heap and overhead apart from each other may reach the
/// cap with twice of what one of them needs.
fn needed(habit: &Habit, stage: &StageSpec) -> Bytes {
    match stage.runtime.memory() {
        Memory::One => habit.memory(),
        Memory::HeapAndOverhead => habit.memory().mul_ratio(5, 2).saturating_add(Bytes::from_mib(128)),
    }
}

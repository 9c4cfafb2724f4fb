//! The submitted tasks of a live job: their keys, their dependencies and their results, and the
//! clients that read the results. The core owns it and changes it by applying records.
//!
//! ```text
//!  accepted ──► waits for earlier tasks ──► open ──► ended: result with a cursor
//!                                                      └──acknowledged by all clients──► forgotten
//! ```
//!
//! A forgotten task takes a key digest here and one slot in its stage, some 80 bytes together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headroom_types::Bytes;
use headroom_wire::v1::submission::{MAX_OPEN_TASKS, SubmittedTask};
use sha2::{Digest as _, Sha256};

use crate::taskset::TaskPosition;

/// Maximum size of all inputs, arguments and values that the master keeps. Beyond it the job
/// accepts no task until results are acknowledged. Bytes.
const MAX_HELD_BYTES: u64 = 256 << 20;
/// Number of acknowledged tasks with failed attempts that keep their rows, the most recent ones.
const MAX_DISPLAYED_TASKS: usize = 1_000;

/// Digest of a task's key: 128 bits of SHA-256.
type TaskKeyDigest = u128;

fn digest(key: &str) -> TaskKeyDigest {
    let whole: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    whole
        .iter()
        .take(16)
        .fold(0, |sum, byte| (sum << 8) | u128::from(*byte))
}

/// A task whose result is not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedTask {
    /// The task as submitted; only its key after its end.
    pub(super) submitted: Box<SubmittedTask>,
    /// The earlier tasks that must succeed before.
    pub(super) waits_for: BTreeSet<TaskPosition>,
    /// The value that its last attempt returned.
    pub(super) value: Option<String>,
    /// Size of a value that is too large. Bytes.
    pub(super) too_large: Option<Bytes>,
}

impl AcceptedTask {
    /// Size of its texts. Bytes.
    fn held(&self) -> u64 {
        let task = &self.submitted;
        let texts = task
            .args
            .iter()
            .chain(task.env.values())
            .chain(task.env.keys());
        let texts = texts.chain(&task.input).chain(&self.value);
        texts.fold(0u64, |sum, text| {
            sum.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX))
        })
    }
}

/// The end of a submitted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubmittedTaskEnd {
    /// It succeeded.
    Succeeded,
    /// It was given up after failures.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The submitted tasks of a live job, and its clients. Durable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SubmittedTasks {
    /// All tasks that were ever accepted, by key.
    keys: BTreeMap<TaskKeyDigest, TaskPosition>,
    tasks: BTreeMap<TaskPosition, AcceptedTask>,
    /// The tasks that wait for a task.
    followers: BTreeMap<TaskPosition, Vec<TaskPosition>>,
    /// Waiting tasks that cannot run, each with the earlier task that did not succeed.
    doomed: BTreeMap<TaskPosition, TaskPosition>,
    /// Ended tasks by the cursor of their result.
    results: BTreeMap<u64, TaskPosition>,
    last_cursor: u64,
    /// For each client, the cursor up to which it has processed the results.
    clients: BTreeMap<String, u64>,
    /// Acknowledged tasks that keep their rows.
    displayed: VecDeque<TaskPosition>,
    closed: bool,
    expired: bool,
    cancelled: u32,
    first_failure: Option<String>,
    /// Number of tasks that have not ended.
    open: u32,
    /// Size of all kept texts. Bytes.
    held: u64,
}

impl SubmittedTasks {
    /// The task with this key.
    pub(super) fn find(&self, key: &str) -> Option<TaskPosition> {
        self.keys.get(&digest(key)).copied()
    }
    /// A task whose result is not acknowledged.
    pub(super) fn get(&self, key: TaskPosition) -> Option<&AcceptedTask> {
        self.tasks.get(&key)
    }
    /// Number of tasks that were ever accepted.
    pub(super) fn accepted(&self) -> usize {
        self.keys.len()
    }
    /// Number of further tasks that the job accepts: the number of open tasks and of results that
    /// are not acknowledged is limited, and so is the size of their texts.
    pub(super) fn credit(&self) -> u32 {
        let results = u32::try_from(self.results.len()).unwrap_or(u32::MAX);
        let room = MAX_OPEN_TASKS
            .saturating_sub(self.open)
            .saturating_sub(results);
        if self.closed || self.held >= MAX_HELD_BYTES {
            0
        } else {
            room
        }
    }
    /// Adds a task. `doomed_by` is an earlier task that did not succeed.
    pub(super) fn accept(
        &mut self,
        key: TaskPosition,
        task: &SubmittedTask,
        waits_for: BTreeSet<TaskPosition>,
        doomed_by: Option<TaskPosition>,
    ) {
        self.keys.insert(digest(&task.key), key);
        for earlier in &waits_for {
            self.followers.entry(*earlier).or_default().push(key);
        }
        self.doomed.extend(doomed_by.map(|earlier| (key, earlier)));
        let accepted = AcceptedTask {
            submitted: Box::new(task.clone()),
            waits_for,
            value: None,
            too_large: None,
        };
        self.open = self.open.saturating_add(1);
        self.held = self.held.saturating_add(accepted.held());
        self.tasks.insert(key, accepted);
    }
    /// Stores the value of a task that is about to end.
    pub(super) fn set_value(
        &mut self,
        key: TaskPosition,
        value: Option<&str>,
        too_large: Option<Bytes>,
    ) {
        self.change_task(key, |task| {
            (task.value, task.too_large) = (value.map(str::to_owned), too_large);
        });
    }
    /// Removes the value of an earlier attempt, because another one starts.
    pub(super) fn clear_value(&mut self, key: TaskPosition) {
        let has_value = |task: &AcceptedTask| task.value.is_some() || task.too_large.is_some();
        if self.tasks.get(&key).is_some_and(has_value) {
            self.set_value(key, None, None);
        }
    }
    /// Changes a task and the size of the kept texts.
    fn change_task(&mut self, key: TaskPosition, change: impl FnOnce(&mut AcceptedTask)) {
        if let Some(task) = self.tasks.get_mut(&key) {
            self.held = self.held.saturating_sub(task.held());
            change(task);
            self.held = self.held.saturating_add(task.held());
        }
    }
    /// Gives the result of a task its cursor, and returns the tasks that may start now.
    pub(super) fn end(&mut self, key: TaskPosition, end: SubmittedTaskEnd) -> Vec<TaskPosition> {
        if !self.tasks.contains_key(&key) {
            return Vec::new();
        }
        self.open = self.open.saturating_sub(1);
        self.last_cursor += 1;
        self.results.insert(self.last_cursor, key);
        self.doomed.remove(&key);
        let mut earlier = BTreeSet::new();
        self.change_task(key, |task| {
            earlier = std::mem::take(&mut task.waits_for);
            let name = std::mem::take(&mut task.submitted.key);
            *task.submitted = SubmittedTask {
                key: name,
                ..SubmittedTask::default()
            };
            if end == SubmittedTaskEnd::Cancelled {
                (task.value, task.too_large) = (None, None);
            }
        });
        for before in earlier {
            if let Some(followers) = self.followers.get_mut(&before) {
                followers.retain(|follower| *follower != key);
            }
        }
        let followers = self.followers.remove(&key).unwrap_or_default();
        let mut free = Vec::new();
        for follower in followers {
            let Some(task) = self.tasks.get_mut(&follower) else {
                continue;
            };
            if end == SubmittedTaskEnd::Succeeded {
                task.waits_for.remove(&key);
                if task.waits_for.is_empty() && !self.doomed.contains_key(&follower) {
                    free.push(follower);
                }
            } else {
                self.doomed.insert(follower, key);
            }
        }
        free
    }
    /// A waiting task that cannot run, and the earlier task that did not succeed.
    pub(super) fn next_doomed(&self) -> Option<(TaskPosition, TaskPosition)> {
        self.doomed
            .first_key_value()
            .map(|(task, earlier)| (*task, *earlier))
    }
    /// Counts a cancelled task, or keeps the message of the first failure.
    pub(super) fn count_failure(&mut self, end: SubmittedTaskEnd, message: &str) {
        match end {
            SubmittedTaskEnd::Succeeded => {}
            SubmittedTaskEnd::Cancelled => self.cancelled = self.cancelled.saturating_add(1),
            SubmittedTaskEnd::Failed => {
                self.first_failure.get_or_insert_with(|| message.to_owned());
            }
        }
    }
    /// Number of cancelled tasks.
    pub(super) fn cancelled(&self) -> u32 {
        self.cancelled
    }
    /// The message of the first task that failed.
    pub(super) fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    /// The results after this cursor that are not acknowledged by all clients.
    pub(super) fn results_after(
        &self,
        cursor: u64,
    ) -> impl Iterator<Item = (u64, TaskPosition, &AcceptedTask)> {
        let later = self.results.range(cursor.saturating_add(1)..);
        later.filter_map(|(cursor, key)| Some((*cursor, *key, self.tasks.get(key)?)))
    }
    /// Cursor of the last result.
    pub(super) fn last_cursor(&self) -> u64 {
        self.last_cursor
    }
    /// True when a client has not acknowledged all results.
    pub(super) fn has_awaited_results(&self) -> bool {
        !self.results.is_empty() && !self.clients.is_empty()
    }
    /// Names of the clients that read the results.
    pub(super) fn clients(&self) -> impl Iterator<Item = &String> {
        self.clients.keys()
    }
    /// True for a client that reads the results.
    pub(super) fn knows_client(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }
    /// Cursor up to which a client has processed the results.
    pub(super) fn acknowledged_by(&self, client: &str) -> u64 {
        self.clients.get(client).copied().unwrap_or_default()
    }
    /// Adds a client; it reads all results that are kept.
    pub(super) fn add_client(&mut self, client: &str) {
        let first = self.results.first_key_value();
        let before = first.map_or(self.last_cursor, |(cursor, _)| cursor.saturating_sub(1));
        self.clients.entry(client.to_owned()).or_insert(before);
    }
    /// Removes a client, for which results no longer wait.
    pub(super) fn remove_client(&mut self, client: &str) {
        self.clients.remove(client);
    }
    /// Notes that a client has processed the results up to this cursor.
    pub(super) fn acknowledge(&mut self, client: &str, cursor: u64) {
        let last = self.last_cursor;
        if let Some(done) = self.clients.get_mut(client) {
            *done = cursor.min(last).max(*done);
        }
    }
    /// Removes the first result that all clients have acknowledged, and returns its task.
    pub(super) fn take_acknowledged(&mut self) -> Option<TaskPosition> {
        let floor = *self.clients.values().min()?;
        let (cursor, key) = self.results.first_key_value()?;
        let (cursor, key) = (*cursor, *key);
        if cursor > floor {
            return None;
        }
        self.results.remove(&cursor);
        if let Some(task) = self.tasks.remove(&key) {
            self.held = self.held.saturating_sub(task.held());
        }
        Some(key)
    }
    /// Keeps the row of an acknowledged task, and returns the task whose row is kept no longer.
    pub(super) fn display(&mut self, key: TaskPosition) -> Option<TaskPosition> {
        self.displayed.push_back(key);
        if self.displayed.len() > MAX_DISPLAYED_TASKS {
            self.displayed.pop_front()
        } else {
            None
        }
    }

    /// Accepts no more tasks. `expired` is true after the lease has passed without a client.
    pub(super) fn close(&mut self, expired: bool) {
        self.closed = true;
        self.expired |= expired;
    }
    /// True when no more tasks are accepted.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
    /// True after the lease has passed without a client.
    pub(super) fn is_expired(&self) -> bool {
        self.expired
    }

    /// True for a waiting task that cannot run.
    #[cfg(any(test, feature = "testkit"))]
    pub(super) fn is_doomed(&self, key: TaskPosition) -> bool {
        self.doomed.contains_key(&key)
    }
    /// Panics with the name of a violated invariant; `ended` is false for a task that has not
    /// ended.
    #[cfg(any(test, feature = "testkit"))]
    pub(super) fn assert_invariants(&self, ended: impl Fn(TaskPosition) -> Option<bool>) {
        let held: u64 = self.tasks.values().map(AcceptedTask::held).sum();
        assert_eq!(self.held, held, "size of the kept texts");
        let with_result: BTreeSet<TaskPosition> = self.results.values().copied().collect();
        assert_eq!(
            with_result.len(),
            self.results.len(),
            "a task has two results"
        );
        let cursors: Vec<u64> = self.results.keys().copied().collect();
        assert!(
            cursors.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "cursors have gaps: {cursors:?}"
        );
        assert!(
            cursors.last().is_none_or(|last| *last == self.last_cursor),
            "the last result has the last cursor"
        );
        let mut open = 0;
        for (key, task) in &self.tasks {
            assert_eq!(
                ended(*key),
                Some(with_result.contains(key)),
                "{key:?}: a task has a result if, and only if, it has ended"
            );
            open += u32::from(!with_result.contains(key));
            for earlier in &task.waits_for {
                assert!(
                    self.doomed.contains_key(key) || ended(*earlier) == Some(false),
                    "{key:?} waits for {earlier:?}, which has ended"
                );
            }
        }
        assert_eq!(self.open, open, "number of open tasks");
        for task in self.displayed.iter().chain(&with_result) {
            assert!(ended(*task).is_some(), "{task:?} is forgotten too early");
        }
        assert!(
            self.clients.values().all(|done| *done <= self.last_cursor),
            "a client has acknowledged a result that does not exist"
        );
    }
}

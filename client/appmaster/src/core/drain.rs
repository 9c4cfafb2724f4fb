//! Drains of executors of the same job, which make room for the container of an escalated task.
//!
//! ```text
//!  container requested (own_waits)
//!   └─drain_after──► one executor takes no more tasks (drained)
//!      └─its tasks end──► it ends, and is not replaced until the container is granted
//! ```
//!
//! Each request drains one executor at a time. The requests that have waited longest come first. At
//! most half of the executors, or two, drain at once. If one executor is not enough, the next one
//! follows on the same node. If the drains lead to no grant, the executors are replaced, and the
//! next drain for that request waits twice as long. At each step, the note of the task states the
//! reason for its wait.
//!
//! [`MasterCore::next_drain`] and [`MasterCore::drain_executor`] choose and drain an executor for
//! any task that waits for memory of a node.
//!
//! None of this state is durable: a master that takes over measures the waits from its own start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{Bytes, ContainerId, NodeId, Reason, RequestId, Tick, millis};

use super::MasterCore;
use crate::executors::{DrainedRoom, ExecutorEntry, OwnContainerWait, RequestPurpose};
use crate::ledger;
use crate::taskset::TaskPosition;

/// Timeout from the end of a drained executor to the grant. In this time its node reports the end
/// and the resource manager grants the container.
const GRANT_TIMEOUT: Duration = Duration::from_secs(2);
/// The same timeout if the drained executors freed less than the task needs, so that only other
/// free memory of the node can complete the room.
const PARTIAL_GRANT_TIMEOUT: Duration = Duration::from_millis(200);
/// Minimum delay of a drain. Where memory is free, the grant arrives sooner than that.
const MIN_DRAIN_DELAY: Duration = Duration::from_millis(50);
/// First pause after the drains for a request failed; the pause doubles each time.
const FAILED_DRAIN_PAUSE: Duration = Duration::from_secs(30);
/// Maximum number of doublings of that pause.
const MAX_PAUSE_DOUBLINGS: u32 = 5;

/// An executor that could make room.
struct DrainCandidate<'a> {
    container: &'a ContainerId,
    node: &'a NodeId,
    memory: Bytes,
    /// Estimated time until its tasks have ended, by the mean run time of tasks.
    remaining: Duration,
}

impl MasterCore {
    /// Drains executors for the escalated tasks whose containers have waited longest.
    pub(super) fn make_room(&mut self) {
        if self.own.is_empty() {
            self.fleet.own_waits.clear();
            self.fleet.own_live.clear();
            self.fleet.drained.clear();
            return;
        }
        self.note_own_waits();
        let (mut kept, mut in_vain) = (BTreeMap::new(), Vec::new());
        for (request, drained) in std::mem::take(&mut self.fleet.drained) {
            if !self.fleet.own_waits.contains_key(&request) {
                continue;
            }
            if self.fleet.executors.contains_key(&drained.container) {
                kept.insert(request, drained);
                continue;
            }
            let gone_at = drained.gone_at.unwrap_or(self.now.tick);
            let drained = DrainedRoom {
                gone_at: Some(gone_at),
                ..drained
            };
            if self.now.tick.since(gone_at) < self.grant_patience(&request, &drained) {
                kept.insert(request, drained);
            } else {
                in_vain.push((request, drained));
            }
        }
        self.fleet.drained = kept;
        for (request, before) in in_vain {
            self.drain_further(&request, &before);
        }
        self.drain_first();
    }

    /// True when executors of this set left to make room for an escalated task and must not be
    /// replaced.
    pub(super) fn withholds(&self, set: usize) -> bool {
        let mut of_drained = self
            .fleet
            .drained
            .keys()
            .filter_map(|request| self.fleet.own_waits.get(request));
        of_drained.any(|wait| self.is_placed_alike(wait.task, set))
    }

    /// Time at which [`MasterCore::make_room`] has work if no other event occurs.
    pub(super) fn next_drain_check(&self) -> Option<Tick> {
        let grant_due = |(request, drained): (&RequestId, &DrainedRoom)| {
            Some(drained.gone_at?.plus(self.grant_patience(request, drained)))
        };
        let undrained = self
            .fleet
            .own_waits
            .iter()
            .filter(|(request, _)| !self.fleet.drained.contains_key(*request));
        let begins = undrained
            .filter(|(_, wait)| !wait.takes_turns)
            .map(|(_, wait)| wait.drain_at);
        self.fleet
            .drained
            .iter()
            .filter_map(grant_due)
            .chain(begins)
            .min()
    }

    /// Maximum number of executors that drain at once. At least half of them stay available for
    /// tasks that do not wait, except in a very small set.
    fn most_drains(&self) -> usize {
        let in_sets = self
            .fleet
            .executors
            .values()
            .filter(|e| matches!(e.purpose, RequestPurpose::Set(_)))
            .count();
        (in_sets / 2).max(2)
    }

    fn grant_patience(&self, request: &RequestId, drained: &DrainedRoom) -> Duration {
        let needs = self
            .fleet
            .own_waits
            .get(request)
            .map(|wait| self.own_memory(wait.task));
        if needs.is_some_and(|needs| needs > drained.freed) {
            PARTIAL_GRANT_TIMEOUT
        } else {
            GRANT_TIMEOUT
        }
    }

    /// Updates the list of escalated tasks' containers that are requested and not granted, each
    /// with its start time.
    fn note_own_waits(&mut self) {
        let there: BTreeSet<&RequestId> = self
            .fleet
            .executors
            .values()
            .filter(|e| e.needs_no_replacement())
            .map(|e| &e.request)
            .collect();
        let waits = self
            .fleet
            .requests
            .iter()
            .filter_map(|(id, request)| match request.purpose {
                RequestPurpose::Own(key) if request.wanted > 0 && !there.contains(id) => {
                    Some((id.clone(), key))
                }
                RequestPurpose::Own(_) | RequestPurpose::Set(_) => None,
            });
        let escalated =
            |key: TaskPosition| self.tasks.get(key).is_some_and(|task| task.size.rung > 1);
        let waits: BTreeMap<RequestId, TaskPosition> =
            waits.filter(|(_, key)| escalated(*key)).collect();
        self.fleet.own_waits.retain(|id, _| waits.contains_key(id));
        self.end_pauses(self.now.tick);
        for (id, task) in waits
            .into_iter()
            .filter(|(id, _)| !self.fleet.own_waits.contains_key(id))
            .collect::<Vec<_>>()
        {
            let delay = self.drain_delay(task);
            let (since, drain_at) = (self.now.tick, self.now.tick.plus(delay));
            self.fleet.own_waits.insert(
                id,
                OwnContainerWait {
                    task,
                    since,
                    drain_at,
                    failed_drains: 0,
                    takes_turns: false,
                },
            );
            if self.drain_candidates(task).next().is_some() {
                let (memory, delay) = (self.own_memory(task), in_words(delay));
                self.note(task, format!("waits for a container of {memory}; after {delay}, the job drains an executor for it"));
            }
        }
    }

    /// Sets the displayed note of a task.
    fn note(&mut self, key: TaskPosition, note: String) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.note != note) else {
            return;
        };
        task.note = note;
        self.view.mark_dirty(key);
    }

    /// Ends the pauses of failed drains when a task's own container has ended: its memory may now
    /// complete the room.
    fn end_pauses(&mut self, now: Tick) {
        let own = |e: &ExecutorEntry| matches!(e.purpose, RequestPurpose::Own(_));
        let live: BTreeSet<ContainerId> = self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| own(e))
            .map(|(id, _)| id.clone())
            .collect();
        if !self.fleet.own_live.is_subset(&live) {
            for wait in self
                .fleet
                .own_waits
                .values_mut()
                .filter(|wait| wait.failed_drains > 0)
            {
                (wait.drain_at, wait.failed_drains) = (now, 0);
            }
        }
        self.fleet.own_live = live;
    }

    /// The delay before a drain for this task. Short tasks get a shorter delay, because their
    /// executors run dry sooner. Until a task has succeeded, the run time of the killed attempt is
    /// the estimate.
    fn drain_delay(&self, key: TaskPosition) -> Duration {
        let killed = || self.tasks.get(key)?.attempts.last().map(ledger::runtime_ms);
        let run = self
            .ledger
            .mean_task_time()
            .or_else(|| killed().map(Duration::from_millis));
        let configured = self.job.retry.drain_after;
        run.map_or(configured, |run| {
            configured.min((run / 2).max(MIN_DRAIN_DELAY))
        })
    }

    /// Starts drains for the requests that have waited longest. Of requests with the same start,
    /// the higher rung comes first.
    fn drain_first(&mut self) {
        let due = self
            .fleet
            .own_waits
            .iter()
            .filter(|(_, wait)| wait.drain_at <= self.now.tick);
        let due = due.filter(|(request, _)| !self.fleet.drained.contains_key(*request));
        let rung = |wait: &OwnContainerWait| self.tasks.get(wait.task).map(|task| task.size.rung);
        let mut due: Vec<(RequestId, OwnContainerWait)> =
            due.map(|(id, wait)| (id.clone(), *wait)).collect();
        due.sort_by_key(|(_, wait)| (wait.since, Reverse(rung(wait))));
        for (request, wait) in due {
            let first = self
                .fleet
                .drained
                .keys()
                .find_map(|request| self.fleet.own_waits.get(request))
                .map(|wait| wait.task);
            let full = self.fleet.drained.len() >= self.most_drains();
            let next = if full {
                None
            } else {
                self.next_drain(wait.task, self.own_memory(wait.task), None)
            };
            match (next, first) {
                (Some(container), _) => self.drain((&request, wait.task, Bytes::ZERO), &container),
                (None, Some(first)) => self.mark_waiting_for_turn(&request, first),
                (None, None) => self.pause_drains(
                    self.now.tick,
                    &request,
                    "the job has no executor that it can drain",
                ),
            }
        }
    }

    /// Marks a request for which no executor is left to drain, because other requests drain them.
    /// Every event checks it again.
    fn mark_waiting_for_turn(&mut self, request: &RequestId, first: TaskPosition) {
        let Some(wait) = self.fleet.own_waits.get_mut(request) else {
            return;
        };
        wait.takes_turns = true;
        let key = wait.task;
        let Some(first) = self.tasks.get(first).map(|task| task.id.clone()) else {
            return;
        };
        self.note(
            key,
            format!("waits for an executor of its job to drain for {first} first"),
        );
    }

    /// Drains the next executor on the same node after the freed memory was not enough, or pauses
    /// the request.
    fn drain_further(&mut self, request: &RequestId, before: &DrainedRoom) {
        let Some(wait) = self.fleet.own_waits.get(request).copied() else {
            return;
        };
        match self.next_drain(wait.task, self.own_memory(wait.task), Some(&before.node)) {
            Some(container) => self.drain((request, wait.task, before.freed), &container),
            None => {
                self.pause_drains(
                    self.now.tick,
                    request,
                    "the memory of the drained executors is not enough",
                );
            }
        }
    }

    fn pause_drains(&mut self, now: Tick, request: &RequestId, why: &str) {
        let Some(wait) = self.fleet.own_waits.get_mut(request) else {
            return;
        };
        let pause =
            FAILED_DRAIN_PAUSE.saturating_mul(1 << wait.failed_drains.min(MAX_PAUSE_DOUBLINGS));
        wait.drain_at = now.plus(pause);
        wait.takes_turns = false;
        wait.failed_drains = wait.failed_drains.saturating_add(1);
        let task = wait.task;
        let memory = self.own_memory(task);
        self.note(
            task,
            format!(
                "waits for a container of {memory}: {why}; checked again after {}",
                in_words(pause)
            ),
        );
    }

    fn drain(&mut self, who: (&RequestId, TaskPosition, Bytes), container: &ContainerId) {
        let (request, key, before) = who;
        let Some(executor) = self.fleet.executors.get(container) else {
            return;
        };
        let (node, freed) = (
            executor.node.clone(),
            before.saturating_add(memory_of(executor)),
        );
        let memory = self.own_memory(key);
        let Some(task) = self.tasks.get(key).map(|task| task.id.clone()) else {
            return;
        };
        self.note(
            key,
            format!("waits for an executor of its job to drain: {container}, to free {memory}"),
        );
        let room = DrainedRoom {
            container: container.clone(),
            node,
            freed,
            gone_at: None,
        };
        self.fleet.drained.insert(request.clone(), room);
        self.drain_executor(container, &format!("{memory} for {task}"));
    }

    /// Drains an executor: it starts no more tasks and ends after those in it. An immediate end
    /// would lose their work.
    pub(super) fn drain_executor(&mut self, container: &ContainerId, what_for: &str) {
        let message =
            format!("{container} starts no more tasks and ends when idle, to free {what_for}");
        self.view
            .add_event(self.now, Reason::ContainerDraining, &container, message);
        self.warn(container, None);
        self.apply_warnings();
    }

    /// The executor to drain so that a task gets the memory that it `needs`. It is on the node that
    /// makes room with the fewest executors. There, it is the one that runs dry first and, among
    /// equals, the newest. `None` if none may be drained.
    pub(super) fn next_drain(
        &self,
        key: TaskPosition,
        needs: Bytes,
        node: Option<&NodeId>,
    ) -> Option<ContainerId> {
        let mut by_node: BTreeMap<&NodeId, Vec<DrainCandidate<'_>>> = BTreeMap::new();
        for candidate in self
            .drain_candidates(key)
            .filter(|c| node.is_none_or(|node| node == c.node))
        {
            by_node.entry(candidate.node).or_default().push(candidate);
        }
        let (_, mut best) = by_node.into_iter().min_by_key(|(_, candidates)| {
            let (mut short, mut count) = (needs, 0usize);
            for candidate in candidates {
                count += usize::from(!short.is_zero());
                short = short.saturating_sub(candidate.memory);
            }
            (short, count, candidates.iter().map(|c| c.remaining).min())
        })?;
        best.sort_by_key(|c| (c.remaining, Reverse(c.container.clone())));
        best.first().map(|c| c.container.clone())
    }

    /// Executors that could make room for a task on nodes where it may run. Executors on nodes that
    /// it avoids, and reserved executors, are included only if there are no others.
    fn drain_candidates<'a>(
        &'a self,
        key: TaskPosition,
    ) -> impl Iterator<Item = DrainCandidate<'a>> {
        let avoided = move |e: &ExecutorEntry| {
            let task = self.tasks.get(key);
            task.is_some_and(|t| {
                t.avoid.node.as_ref() == Some(&e.node) || t.failed_to_start_on(&e.node)
            }) || self.fleet.failures(&e.node) > 0
                || e.reserved.is_some()
        };
        let may_leave = move |e: &ExecutorEntry| match e.purpose {
            RequestPurpose::Set(set) => {
                e.needs_no_replacement() && e.warning.is_none() && self.is_placed_alike(key, set)
            }
            RequestPurpose::Own(_) => false,
        };
        let all = move || {
            self.fleet
                .executors
                .iter()
                .filter(move |(_, e)| may_leave(e))
        };
        let elsewhere = all().any(|(_, e)| !avoided(e));
        all()
            .filter(move |(_, e)| !elsewhere || !avoided(e))
            .map(move |(container, e)| DrainCandidate {
                container,
                node: &e.node,
                memory: memory_of(e),
                remaining: self.remaining(e),
            })
    }

    /// Estimated remaining time of the tasks in an executor, by the mean run time of ended tasks.
    pub(super) fn remaining(&self, executor: &ExecutorEntry) -> Duration {
        let mean = self.ledger.mean_task_time().unwrap_or(Duration::MAX);
        let left = |key: TaskPosition| {
            let started = self
                .tasks
                .get(key)
                .and_then(|task| task.open_attempt())
                .map(|row| row.started);
            mean.saturating_sub(
                started.map_or(Duration::ZERO, |started| self.now.unix.since(started)),
            )
        };
        executor
            .seats
            .values()
            .map(|seat| left(seat.task))
            .max()
            .unwrap_or(Duration::ZERO)
    }

    /// True when executors of this set have the same placement rules as the task's set.
    fn is_placed_alike(&self, key: TaskPosition, set: usize) -> bool {
        let (own, other) = (self.set_of(key), self.job.executors.get(set));
        own.zip(other)
            .is_some_and(|(own, other)| own.place == other.place)
    }
}

/// Formats a wait with a resolution of one millisecond.
fn in_words(wait: Duration) -> String {
    format!("{:?}", Duration::from_millis(millis(wait)))
}

/// The memory that a container frees when it ends.
fn memory_of(executor: &ExecutorEntry) -> Bytes {
    executor
        .resource
        .as_ref()
        .map_or(executor.base, |has| has.memory)
}

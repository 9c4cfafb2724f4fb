//! Room for the container of an escalated task, made by executors of its own job.
//!
//! ```text
//!  container asked for ──drain_after──► one executor takes no more ──its tasks end──► it leaves, and is not replaced
//!  (own_waits)                          tasks (drained)                               until the container is granted
//! ```
//!
//! One executor at a time for each request, those that have waited longest first, and no more at once than half of the executors or
//! two. Where one is not enough, the next one follows on the same node. Where all of that leads to no grant, the executors come back,
//! and the next drain for that request waits twice as long. The note of the task says at each step what it waits for.
//!
//! [`Core::next_drain`] and [`Core::run_dry`] choose and empty an executor for any task that waits for memory of a node.
//!
//! Nothing here lasts: a master that takes over measures the waits from its start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{Bytes, ContainerId, NodeId, Reason, RequestId, Tick};

use super::Core;
use crate::event::{Effect, Now};
use crate::executors::{DrainedRoom, Executor, OwnWait, Purpose};
use crate::ledger;
use crate::taskset::TaskKey;

/// From the end of a drained executor to the grant: its node reports the end, the resource manager grants.
const GRANT_PATIENCE: Duration = Duration::from_secs(2);
/// The same where what has left is less than the task needs, and only free memory of the node could make up for it.
const SHORT_PATIENCE: Duration = Duration::from_millis(200);
/// Where there is room, the grant comes sooner than that.
const LEAST_DELAY: Duration = Duration::from_millis(50);
/// First pause of a request for which executors were drained in vain; it doubles.
const FAILED_DRAIN_PAUSE: Duration = Duration::from_secs(30);
/// Most doublings of that pause.
const MOST_DOUBLINGS: u32 = 5;

/// An executor that could make room.
struct Candidate<'a> {
    container: &'a ContainerId,
    node: &'a NodeId,
    memory: Bytes,
    /// Until it runs dry, by the mean run time of tasks.
    remaining: Duration,
}

impl Core {
    /// Drains executors for the escalated tasks whose containers have waited longest.
    pub(super) fn make_room(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.own.is_empty() {
            self.fleet.own_waits.clear();
            self.fleet.own_live.clear();
            self.fleet.drained.clear();
            return;
        }
        self.note_own_waits(now);
        let (mut kept, mut in_vain) = (BTreeMap::new(), Vec::new());
        for (request, drained) in std::mem::take(&mut self.fleet.drained) {
            if !self.fleet.own_waits.contains_key(&request) {
                continue;
            }
            if self.fleet.executors.contains_key(&drained.container) {
                kept.insert(request, drained);
                continue;
            }
            let gone_at = drained.gone_at.unwrap_or(now.tick);
            let drained = DrainedRoom { gone_at: Some(gone_at), ..drained };
            if now.tick.since(gone_at) < self.grant_patience(&request, &drained) {
                kept.insert(request, drained);
            } else {
                in_vain.push((request, drained));
            }
        }
        self.fleet.drained = kept;
        for (request, before) in in_vain {
            self.drain_further(now, &request, &before, out);
        }
        self.drain_first(now, out);
    }

    /// True when executors that left this set make room for an escalated task and are not to be replaced.
    pub(super) fn withholds(&self, set: usize) -> bool {
        let mut of_drained = self.fleet.drained.keys().filter_map(|request| self.fleet.own_waits.get(request));
        of_drained.any(|wait| self.is_placed_alike(wait.task, set))
    }

    /// When [`Core::make_room`] has something to do, if nothing else happens.
    pub(super) fn next_drain_check(&self) -> Option<Tick> {
        let grant_due =
            |(request, drained): (&RequestId, &DrainedRoom)| Some(drained.gone_at?.plus(self.grant_patience(request, drained)));
        let undrained = self.fleet.own_waits.iter().filter(|(request, _)| !self.fleet.drained.contains_key(*request));
        let begins = undrained.filter(|(_, wait)| !wait.takes_turns).map(|(_, wait)| wait.drain_at);
        self.fleet.drained.iter().filter_map(grant_due).chain(begins).min()
    }

    /// How many executors may be drained at once: the tasks that do not wait keep half of them.
    fn most_drains(&self) -> usize {
        let in_sets = self.fleet.executors.values().filter(|e| matches!(e.purpose, Purpose::Set(_))).count();
        (in_sets / 2).max(2)
    }

    fn grant_patience(&self, request: &RequestId, drained: &DrainedRoom) -> Duration {
        let needs = self.fleet.own_waits.get(request).map(|wait| self.own_memory(wait.task));
        if needs.is_some_and(|needs| needs > drained.freed) { SHORT_PATIENCE } else { GRANT_PATIENCE }
    }

    /// Which containers of escalated tasks are waited for, and since when.
    fn note_own_waits(&mut self, now: Now) {
        let there: BTreeSet<&RequestId> =
            self.fleet.executors.values().filter(|e| e.holds_its_place()).map(|e| &e.request).collect();
        let waits = self.fleet.requests.iter().filter_map(|(id, request)| match request.purpose {
            Purpose::Own(key) if request.wanted > 0 && !there.contains(id) => Some((id.clone(), key)),
            Purpose::Own(_) | Purpose::Set(_) => None,
        });
        let escalated = |key: TaskKey| self.tasks.get(key).is_some_and(|task| task.size.rung > 1);
        let waits: BTreeMap<RequestId, TaskKey> = waits.filter(|(_, key)| escalated(*key)).collect();
        self.fleet.own_waits.retain(|id, _| waits.contains_key(id));
        self.end_pauses(now.tick);
        for (id, task) in waits.into_iter().filter(|(id, _)| !self.fleet.own_waits.contains_key(id)).collect::<Vec<_>>() {
            let delay = self.drain_delay(task);
            let (since, drain_at) = (now.tick, now.tick.plus(delay));
            self.fleet.own_waits.insert(id, OwnWait { task, since, drain_at, failed_drains: 0, takes_turns: false });
            if self.drain_candidates(now, task).next().is_some() {
                let (memory, delay) = (self.own_memory(task), in_words(delay));
                self.note(
                    task,
                    format!("waits for a container of {memory}; after {delay} an executor of its own job is drained for it"),
                );
            }
        }
    }

    /// What the task waits for, for people.
    fn note(&mut self, key: TaskKey, note: String) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.note != note) else { return };
        task.note = note;
        self.view.touch(key);
    }

    /// The end of a container of one task makes room on its node: what was drained in vain beside it may not be so now.
    fn end_pauses(&mut self, now: Tick) {
        let own = |e: &Executor| matches!(e.purpose, Purpose::Own(_));
        let live: BTreeSet<ContainerId> = self.fleet.executors.iter().filter(|(_, e)| own(e)).map(|(id, _)| id.clone()).collect();
        if !self.fleet.own_live.is_subset(&live) {
            for wait in self.fleet.own_waits.values_mut().filter(|wait| wait.failed_drains > 0) {
                (wait.drain_at, wait.failed_drains) = (now, 0);
            }
        }
        self.fleet.own_live = live;
    }

    /// Short tasks make room sooner: their executors run dry sooner, and a second would be many of them. As long as no task has ended
    /// well, what is known is how long the killed attempt ran.
    fn drain_delay(&self, key: TaskKey) -> Duration {
        let killed = || self.tasks.get(key)?.attempts.last().map(ledger::runtime_ms);
        let run = self.ledger.mean_task_time().or_else(|| killed().map(Duration::from_millis));
        let wished = self.job.retry.drain_after;
        run.map_or(wished, |run| wished.min((run / 2).max(LEAST_DELAY)))
    }

    /// For the requests that have waited longest; of those that began together, the one with the higher rung.
    fn drain_first(&mut self, now: Now, out: &mut Vec<Effect>) {
        let due = self.fleet.own_waits.iter().filter(|(_, wait)| wait.drain_at <= now.tick);
        let due = due.filter(|(request, _)| !self.fleet.drained.contains_key(*request));
        let rung = |wait: &OwnWait| self.tasks.get(wait.task).map(|task| task.size.rung);
        let mut due: Vec<(RequestId, OwnWait)> = due.map(|(id, wait)| (id.clone(), *wait)).collect();
        due.sort_by_key(|(_, wait)| (wait.since, Reverse(rung(wait))));
        for (request, wait) in due {
            let first = self.fleet.drained.keys().find_map(|request| self.fleet.own_waits.get(request)).map(|wait| wait.task);
            let full = self.fleet.drained.len() >= self.most_drains();
            let next = if full { None } else { self.next_drain(now, wait.task, self.own_memory(wait.task), None) };
            match (next, first) {
                (Some(container), _) => self.drain(now, (&request, wait.task, Bytes::ZERO), &container, out),
                (None, Some(first)) => self.take_turns(&request, first),
                (None, None) => self.pause_drains(now.tick, &request, "no executor of its own job can be drained for it"),
            }
        }
    }

    /// There are no more executors to drain than those that others wait for. It is looked at again whenever something happens.
    fn take_turns(&mut self, request: &RequestId, first: TaskKey) {
        let Some(wait) = self.fleet.own_waits.get_mut(request) else { return };
        wait.takes_turns = true;
        let key = wait.task;
        let Some(first) = self.tasks.get(first).map(|task| task.id.clone()) else { return };
        self.note(key, format!("waits for executors of its own job, one is being drained for {first} first"));
    }

    /// What has left was not enough: the next one on its node, if any is left there.
    fn drain_further(&mut self, now: Now, request: &RequestId, before: &DrainedRoom, out: &mut Vec<Effect>) {
        let Some(wait) = self.fleet.own_waits.get(request).copied() else { return };
        match self.next_drain(now, wait.task, self.own_memory(wait.task), Some(&before.node)) {
            Some(container) => self.drain(now, (request, wait.task, before.freed), &container, out),
            None => {
                self.pause_drains(now.tick, request, "executors of its own job were drained, and their room is not enough");
            }
        }
    }

    fn pause_drains(&mut self, now: Tick, request: &RequestId, why: &str) {
        let Some(wait) = self.fleet.own_waits.get_mut(request) else { return };
        let pause = FAILED_DRAIN_PAUSE.saturating_mul(1 << wait.failed_drains.min(MOST_DOUBLINGS));
        wait.drain_at = now.plus(pause);
        wait.takes_turns = false;
        wait.failed_drains = wait.failed_drains.saturating_add(1);
        let task = wait.task;
        let memory = self.own_memory(task);
        self.note(task, format!("waits for a container of {memory}: {why}; looked at again after {}", in_words(pause)));
    }

    fn drain(&mut self, now: Now, who: (&RequestId, TaskKey, Bytes), container: &ContainerId, out: &mut Vec<Effect>) {
        let (request, key, before) = who;
        let Some(executor) = self.fleet.executors.get(container) else { return };
        let (node, freed) = (executor.node.clone(), before.saturating_add(memory_of(executor)));
        let memory = self.own_memory(key);
        let Some(task) = self.tasks.get(key).map(|task| task.id.clone()) else { return };
        self.note(
            key,
            format!("waits for executors of its own job, one is being drained: {container}, to make room for {memory}"),
        );
        let room = DrainedRoom { container: container.clone(), node, freed, gone_at: None };
        self.fleet.drained.insert(request.clone(), room);
        self.run_dry(now, container, &format!("{memory} of {task}"), out);
    }

    /// An executor begins no more tasks and leaves when those in it have ended: to leave at once would lose what they have done.
    pub(super) fn run_dry(&mut self, now: Now, container: &ContainerId, what_for: &str, out: &mut Vec<Effect>) {
        let message = format!("{container} takes no more tasks and leaves, to make room for {what_for}");
        self.view.tell(now, Reason::ContainerLeaving, container.to_string(), message);
        self.warn(container, None);
        self.heed_warnings(now, out);
    }

    /// The executor to drain so that a task gets what it `needs`: on the node that can make the room with the fewest of them, the one
    /// that runs dry first, the newest of those. `None` where none may be drained.
    pub(super) fn next_drain(&self, now: Now, key: TaskKey, needs: Bytes, node: Option<&NodeId>) -> Option<ContainerId> {
        let mut by_node: BTreeMap<&NodeId, Vec<Candidate<'_>>> = BTreeMap::new();
        for candidate in self.drain_candidates(now, key).filter(|c| node.is_none_or(|node| node == c.node)) {
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

    /// Executors that could make room for a task where it may go; those on nodes that it avoids, and those that are kept free for
    /// another task, only where there are no others.
    fn drain_candidates<'a>(&'a self, now: Now, key: TaskKey) -> impl Iterator<Item = Candidate<'a>> {
        let avoided = move |e: &Executor| {
            let task = self.tasks.get(key);
            task.is_some_and(|t| t.avoid.node.as_ref() == Some(&e.node) || t.failed_to_start_on(&e.node))
                || self.fleet.failures(&e.node) > 0
                || e.reserved.is_some()
        };
        let may_leave = move |e: &Executor| match e.purpose {
            Purpose::Set(set) => e.holds_its_place() && e.warning.is_none() && self.is_placed_alike(key, set),
            Purpose::Own(_) => false,
        };
        let all = move || self.fleet.executors.iter().filter(move |(_, e)| may_leave(e));
        let elsewhere = all().any(|(_, e)| !avoided(e));
        all().filter(move |(_, e)| !elsewhere || !avoided(e)).map(move |(container, e)| Candidate {
            container,
            node: &e.node,
            memory: memory_of(e),
            remaining: self.remaining(now, e),
        })
    }

    /// How long the tasks of an executor will still run, by the mean of those that have ended.
    pub(super) fn remaining(&self, now: Now, executor: &Executor) -> Duration {
        let mean = self.ledger.mean_task_time().unwrap_or(Duration::MAX);
        let left = |key: TaskKey| {
            let started = self.tasks.get(key).and_then(|task| task.open_attempt()).map(|row| row.started);
            mean.saturating_sub(started.map_or(Duration::ZERO, |started| now.unix.since(started)))
        };
        executor.seats.values().map(|seat| left(seat.task)).max().unwrap_or(Duration::ZERO)
    }

    /// True when executors of this set are placed by the rules that hold for the task too.
    fn is_placed_alike(&self, key: TaskKey, set: usize) -> bool {
        let (own, other) = (self.set_of(key), self.job.executors.get(set));
        own.zip(other).is_some_and(|(own, other)| own.place == other.place)
    }
}

/// Milliseconds are exact enough for people.
fn in_words(wait: Duration) -> String {
    format!("{:?}", Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

/// What a container gives back when it leaves.
fn memory_of(executor: &Executor) -> Bytes {
    executor.resource.as_ref().map_or(executor.base, |has| has.memory)
}

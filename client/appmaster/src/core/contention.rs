//! Memory for frozen tasks on a full node.
//!
//! ```text
//!  the resource manager refuses a larger container
//!   ├─► an executor of this job on that node ends in time: it is drained
//!   ├─► all tasks of this job on that node are frozen, or half of the oldest freeze
//!   │   has passed: attempts are evicted
//!   └─► no attempt may be evicted, or the freeze ends: the task is unfrozen, and the
//!       kernel decides
//! ```
//!
//! Each node makes room for one task at a time, the one that has been frozen longest.
//! [`contention::choose`] selects the attempts to evict. It may select the frozen task itself if
//! another task on the node is frozen and that eviction costs less. An evicted attempt runs again
//! without charge, with the size that it had reached. Its container is requested only after the
//! task for which it was evicted has its memory or is no longer frozen.
//!
//! The master asks the resource manager again at each step and after each pause. Every wait is
//! bounded: freezes end, each task is evicted at most once, and a drained executor ends with its
//! tasks.

use std::collections::BTreeSet;

use headroom_config::Idempotent;
use headroom_types::{Bytes, ContainerId, ExitReason, NodeId, Reason, TaskAttemptId, Tick};
use headroom_wire::v1::job::AttemptRow;

use super::MasterCore;
use crate::executors::{
    Contention, ExecutorEntry, PendingRoom, RequestPurpose, SlotAssignment, TaskFreeze,
};
use crate::policy::contention::{self, EvictionCandidate};
use crate::policy::{AttemptPlace, AttemptSize, AvoidScope, ChargeAccount, TaskDecision};
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;

/// Refusals before a node counts as full. A size change in progress, or a program that is about to
/// run, ends before that many.
const MIN_REFUSALS: u32 = 2;

/// A time that never comes.
const NEVER: Tick = Tick(u64::MAX);

/// A frozen task for which its node has no free memory.
#[derive(Clone, Debug)]
struct FrozenTask {
    container: ContainerId,
    attempt: TaskAttemptId,
    held: TaskFreeze,
    needs: Bytes,
}

/// Attempts that would be evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EvictionGroup {
    container: ContainerId,
    attempts: Vec<(TaskAttemptId, TaskPosition)>,
    /// Their container ends with them.
    leaves: bool,
}

impl MasterCore {
    /// Makes room on nodes that are too full for the needs of frozen tasks. Derived from the state
    /// after every event.
    pub(super) fn make_room_for_growth(&mut self) {
        let held = |e: &ExecutorEntry| {
            e.resizing.is_some() && e.seats.values().any(|seat| seat.held.is_some())
        };
        let short: BTreeSet<NodeId> = self
            .fleet
            .executors
            .values()
            .filter(|e| held(e))
            .map(|e| e.node.clone())
            .collect();
        self.fleet.contention.retain(|node, _| short.contains(node));
        self.fleet
            .contention
            .values_mut()
            .for_each(|contention| contention.evict_at = NEVER);
        let waiters = self.waiters();
        let mut nodes: Vec<NodeId> = waiters.iter().map(|(node, _)| node.clone()).collect();
        nodes.dedup();
        let mut asks_again = false;
        for node in nodes {
            let here: Vec<FrozenTask> = waiters
                .iter()
                .filter(|(at, _)| *at == node)
                .map(|(_, waiter)| waiter.clone())
                .collect();
            if self.is_room_on_its_way(&node) {
                let contention = self.fleet.contention.get(&node);
                asks_again |= contention.is_some_and(|c| c.makes_room.is_none());
            } else {
                self.make_room_on(&node, &here);
            }
        }
        // Otherwise the deadline of the next request would lie in the past.
        if asks_again {
            self.grow_frozen_tasks();
        }
    }

    /// Time at which [`MasterCore::make_room_for_growth`] has work if no other event occurs.
    pub(super) fn next_contention_check(&self) -> Option<Tick> {
        self.fleet
            .contention
            .values()
            .map(|c| c.evict_at)
            .filter(|at| *at < NEVER)
            .min()
    }

    /// True when an executor of this set has left for a frozen task and must not be replaced yet.
    pub(super) fn withholds_for_growth(&self, set: usize) -> bool {
        self.fleet
            .contention
            .values()
            .any(|contention| contention.sets.contains(&set))
    }

    /// True when the container of this task waits until the task for which it was evicted has its
    /// memory.
    pub(super) fn waits_for_contention(&self, key: TaskPosition) -> bool {
        self.fleet
            .contention
            .values()
            .any(|contention| contention.evicted.contains(&key))
    }

    /// Frozen tasks whose containers were refused a larger size, by node. On each node, the one
    /// that has been frozen longest is first.
    fn waiters(&self) -> Vec<(NodeId, FrozenTask)> {
        let mut all = Vec::new();
        for (id, executor) in self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| e.may_run_tasks())
        {
            let Some(resizing) = executor.resizing.filter(|r| r.tries >= MIN_REFUSALS) else {
                continue;
            };
            let has = self.memory_of(executor);
            let needs = resizing.to.saturating_sub(has);
            let held = executor
                .seats
                .iter()
                .filter_map(|(attempt, seat)| Some((attempt, seat.held?)));
            let oldest = held
                .filter(|(_, held)| held.until > self.now.tick)
                .min_by_key(|(attempt, held)| (held.since, (*attempt).clone()));
            if let Some((attempt, held)) = oldest.filter(|_| !needs.is_zero()) {
                let (container, attempt) = (id.clone(), attempt.clone());
                all.push((
                    executor.node.clone(),
                    FrozenTask {
                        container,
                        attempt,
                        held,
                        needs,
                    },
                ));
            }
        }
        all.sort_by(|(a, x), (b, y)| {
            (a, x.held.since, &x.attempt).cmp(&(b, y.held.since, &y.attempt))
        });
        all
    }

    /// True when a drain or an eviction on this node is still in progress. When it has completed,
    /// its entry is removed and the resource manager is asked again at once.
    fn is_room_on_its_way(&mut self, node: &NodeId) -> bool {
        let Some(contention) = self.fleet.contention.get(node) else {
            return false;
        };
        let Some(makes_room) = &contention.makes_room else {
            return false;
        };
        let executor = self.fleet.executors.get(&makes_room.container);
        let runs = |e: &ExecutorEntry| {
            makes_room
                .attempts
                .iter()
                .any(|attempt| e.seats.contains_key(attempt))
        };
        // An executor with a frozen task does not drain.
        let drains = makes_room.attempts.is_empty();
        let stuck =
            executor.is_some_and(|e| drains && e.seats.values().any(|seat| seat.held.is_some()));
        if !stuck && executor.is_some_and(|e| makes_room.leaves || runs(e)) {
            return true;
        }
        if let Some(contention) = self.fleet.contention.get_mut(node) {
            contention.makes_room = None;
        }
        if stuck {
            return false;
        }
        for executor in self
            .fleet
            .executors
            .values_mut()
            .filter(|e| e.node == *node)
        {
            if let Some(resizing) = executor.resizing.as_mut() {
                (resizing.again_at, resizing.tries) = (self.now.tick, 0);
            }
        }
        true
    }

    fn make_room_on(&mut self, node: &NodeId, waiters: &[FrozenTask]) {
        let Some(first) = waiters.first() else { return };
        let evict_at = if self.all_are_frozen(node) {
            self.now.tick
        } else {
            first.held.half()
        };
        let new = || Contention {
            evict_at,
            ..Contention::default()
        };
        self.fleet
            .contention
            .entry(node.clone())
            .or_insert_with(new)
            .evict_at = evict_at;
        if let Some(container) = self.runs_dry_in_time(node, first) {
            self.drain_for_growth(node, first, &container);
        } else if evict_at > self.now.tick {
            return;
        } else {
            match self.choose_eviction(node, waiters) {
                Some((group, waiter)) => self.evict(node, &group, &waiter),
                None if self.all_are_frozen(node) => self.unfreeze_newest(node),
                None => {}
            }
        }
        // The next check of this node waits for a change.
        if let Some(contention) = self.fleet.contention.get_mut(node) {
            contention.evict_at = NEVER;
        }
    }

    /// Unfreezes the newest task on a node where all tasks are frozen and none may be evicted. The
    /// kernel and the ladder decide on that task.
    fn unfreeze_newest(&mut self, node: &NodeId) {
        let here = self.fleet.executors.iter().filter(|(_, e)| e.node == *node);
        let seats = here.flat_map(|(id, e)| {
            e.seats
                .iter()
                .map(move |(attempt, seat)| (id, attempt, seat.task))
        });
        let started = |key: TaskPosition| {
            self.tasks
                .get(key)
                .and_then(|task| task.open_attempt())
                .map(|row| row.started)
        };
        let newest = seats.max_by_key(|(_, attempt, key)| (started(*key), (*attempt).clone()));
        if let Some((container, attempt, _)) =
            newest.map(|(id, attempt, key)| (id.clone(), attempt.clone(), key))
        {
            self.unfreeze_task(
                &container,
                &attempt,
                "all tasks on the node wait for memory, and none may be evicted",
            );
        }
    }

    /// True when every task of this job on the node is frozen, and there are at least two.
    fn all_are_frozen(&self, node: &NodeId) -> bool {
        let seats = || {
            self.fleet
                .executors
                .values()
                .filter(|e| e.node == *node)
                .flat_map(|e| e.seats.values())
        };
        seats().count() > 1 && seats().all(|seat| seat.held.is_some())
    }

    /// An executor on the node, other than that of the frozen task, whose tasks end before the
    /// freeze does. The estimate is the mean run time of ended tasks. A drain of it loses no work.
    fn runs_dry_in_time(&self, node: &NodeId, waiter: &FrozenTask) -> Option<ContainerId> {
        let left = waiter.held.until.since(self.now.tick);
        let may = |e: &ExecutorEntry| {
            *node == e.node
                && matches!(e.purpose, RequestPurpose::Set(_))
                && e.needs_no_replacement()
                && e.warning.is_none()
                && e.seats.values().all(|seat| seat.held.is_none())
        };
        let others = self
            .fleet
            .executors
            .iter()
            .filter(|(id, e)| **id != waiter.container && may(e));
        let times = others.map(|(id, e)| (self.remaining(e), std::cmp::Reverse(id.clone())));
        times
            .filter(|(remaining, _)| *remaining < left)
            .min()
            .map(|(_, id)| id.0)
    }

    fn drain_for_growth(&mut self, node: &NodeId, waiter: &FrozenTask, container: &ContainerId) {
        let Some(RequestPurpose::Set(set)) = self.fleet.executors.get(container).map(|e| e.purpose)
        else {
            return;
        };
        if let Some(contention) = self.fleet.contention.get_mut(node) {
            contention.sets.insert(set);
            contention.makes_room = Some(PendingRoom {
                container: container.clone(),
                attempts: Vec::new(),
                leaves: true,
            });
        }
        self.drain_executor(
            container,
            &format!("{} more for {}", waiter.needs, waiter.attempt),
        );
    }

    /// The attempts to evict for the task that has been frozen longest. They may be that task
    /// itself if this is cheaper and another task is frozen there.
    fn choose_eviction(
        &self,
        node: &NodeId,
        waiters: &[FrozenTask],
    ) -> Option<(EvictionGroup, FrozenTask)> {
        let first = waiters.first()?;
        let others = self.groups(node, first);
        let other = contention::choose(&others, first.needs).map(|c| (c.clone(), first));
        let own = waiters
            .iter()
            .find(|w| w.container != first.container)
            .and_then(|second| {
                let mut groups = self.groups(node, second);
                groups.retain(|c| {
                    c.who
                        .attempts
                        .iter()
                        .any(|(attempt, _)| *attempt == first.attempt)
                });
                contention::choose(&groups, second.needs).map(|c| (c.clone(), second))
            });
        let chosen = contention::cheaper(other, own, |(candidate, _)| candidate.lost);
        chosen.map(|(candidate, waiter)| (candidate.who, waiter.clone()))
    }

    /// Candidates for eviction on a node, the oldest first: single tasks in the executor of the
    /// frozen one, and all tasks of another container, which then ends.
    fn groups(&self, node: &NodeId, waiter: &FrozenTask) -> Vec<EvictionCandidate<EvictionGroup>> {
        let mut all = Vec::new();
        for (id, executor) in self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| e.node == *node && e.may_run_tasks() && e.ended.is_none())
        {
            if *id == waiter.container {
                let beside = executor
                    .seats
                    .iter()
                    .filter(|(attempt, _)| **attempt != waiter.attempt);
                all.extend(
                    beside
                        .filter(|(_, seat)| self.may_be_evicted(seat.task))
                        .map(|(attempt, seat)| {
                            let frees = executor
                                .share
                                .mul_ratio(u64::from(seat.slots), 1)
                                .saturating_add(seat.extra);
                            self.candidate(id, &[(attempt, seat.task)], frees, false)
                        }),
                );
                continue;
            }
            let seats: Vec<(&TaskAttemptId, TaskPosition)> = executor
                .seats
                .iter()
                .map(|(attempt, seat)| (attempt, seat.task))
                .collect();
            if !seats.is_empty() && seats.iter().all(|(_, key)| self.may_be_evicted(*key)) {
                all.push(self.candidate(id, &seats, self.memory_of(executor), true));
            }
        }
        all.sort_by_key(|(started, _)| *started);
        all.into_iter().map(|(_, candidate)| candidate).collect()
    }

    fn may_be_evicted(&self, key: TaskPosition) -> bool {
        let (Some(task), Some(stage)) = (self.tasks.get(key), self.stage_of(key)) else {
            return false;
        };
        task.cancelled.is_none()
            && stage.idempotent != Idempotent::No
            && !self.commits.contains_key(&key)
    }

    fn candidate(
        &self,
        container: &ContainerId,
        seats: &[(&TaskAttemptId, TaskPosition)],
        frees: Bytes,
        leaves: bool,
    ) -> (headroom_types::UnixMillis, EvictionCandidate<EvictionGroup>) {
        let row = |key: TaskPosition| self.tasks.get(key).and_then(|task| task.open_attempt());
        let started = |key: TaskPosition| row(key).map_or(self.now.unix, |row| row.started);
        let lost = seats
            .iter()
            .map(|(_, key)| self.now.unix.since(started(*key)))
            .sum();
        let gave_way = seats.iter().any(|(_, key)| {
            self.tasks
                .get(*key)
                .is_some_and(|task| task.gave_way.is_some())
        });
        let attempts = seats
            .iter()
            .map(|(attempt, key)| ((*attempt).clone(), *key))
            .collect();
        let newest = seats
            .iter()
            .map(|(_, key)| started(*key))
            .max()
            .unwrap_or(self.now.unix);
        (
            newest,
            EvictionCandidate {
                who: EvictionGroup {
                    container: container.clone(),
                    attempts,
                    leaves,
                },
                lost,
                frees,
                gave_way,
            },
        )
    }

    /// Evicts a group of attempts. The record precedes the stop message, so that an eviction
    /// happens once even if the master or an executor restarts in between.
    fn evict(&mut self, node: &NodeId, group: &EvictionGroup, waiter: &FrozenTask) {
        let Some(executor) = self.fleet.executors.get(&group.container) else {
            return;
        };
        let (purpose, needs) = (executor.purpose, waiter.needs);
        if let Some(contention) = self.fleet.contention.get_mut(node) {
            let attempts = group
                .attempts
                .iter()
                .map(|(attempt, _)| attempt.clone())
                .collect();
            contention.makes_room = Some(PendingRoom {
                container: group.container.clone(),
                attempts,
                leaves: group.leaves,
            });
            contention
                .evicted
                .extend(group.attempts.iter().map(|(_, key)| *key));
            if let (RequestPurpose::Set(set), true) = (purpose, group.leaves) {
                contention.sets.insert(set);
            }
        }
        for (attempt, key) in &group.attempts {
            let message = format!(
                "{attempt} is evicted on {node}: {} is frozen for {needs} more and no memory is free",
                waiter.attempt
            );
            let Some(size) = self.size_after_eviction(&group.container, attempt, *key) else {
                continue;
            };
            let record = JournalRecord::Evicted {
                task: *key,
                attempt: attempt.attempt,
                size,
                why: message.clone(),
            };
            self.record(record);
            self.view
                .add_event(self.now, Reason::TaskEvicted, &attempt, message);
            self.stop_attempt(*key);
        }
        if group.leaves && matches!(purpose, RequestPurpose::Set(_)) {
            self.drain_executor(
                &group.container,
                &format!("{needs} more for {}", waiter.attempt),
            );
        }
    }

    /// The size of an evicted task for its next attempt: the size that it had reached or, if it is
    /// frozen, the step for which it waits.
    fn size_after_eviction(
        &self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        key: TaskPosition,
    ) -> Option<AttemptSize> {
        let seat = self.fleet.seat(container, attempt)?;
        let proposed = self
            .growth_proposal(container, attempt)
            .filter(|_| seat.held.is_some())
            .and_then(|(_, profile)| profile.ok());
        let reached = self.size_after(key)?;
        let size = match proposed {
            Some(profile) => AttemptSize {
                profile,
                slots: 1,
                place: AttemptPlace::Own,
                ..reached
            },
            None => reached,
        };
        // A task's own container ends when the task requests the container of another rung.
        let rung = if size.place == AttemptPlace::Own {
            size.rung.saturating_add(1)
        } else {
            size.rung
        };
        Some(AttemptSize { rung, ..size })
    }

    /// The decision on a task whose attempt was evicted.
    pub(super) fn decision_after_eviction(
        &self,
        key: TaskPosition,
        row: &AttemptRow,
    ) -> Option<(ChargeAccount, TaskDecision)> {
        let gave_way = self
            .tasks
            .get(key)?
            .gave_way
            .as_ref()
            .filter(|gave_way| gave_way.attempt == row.attempt.attempt)?;
        if row.reason != Some(ExitReason::Stopped) {
            return None;
        }
        let size = gave_way.size.clone();
        let why = format!(
            "evicted on {}: restarts with {}, not charged",
            row.node,
            size.profile.memory()
        );
        Some((
            ChargeAccount::Taken,
            TaskDecision::Again {
                size,
                wait_ms: 0,
                elsewhere: AvoidScope::Node,
                why,
            },
        ))
    }

    /// Repeats the stop messages of evicted attempts after an executor reconnects: they may have
    /// been lost with the connection.
    pub(super) fn stop_evicted(&mut self, container: &ContainerId) {
        let Some(executor) = self.fleet.executors.get(container) else {
            return;
        };
        let evicted = |(attempt, seat): (&TaskAttemptId, &SlotAssignment)| {
            let gave_way = self.tasks.get(seat.task)?.gave_way.as_ref()?;
            (gave_way.attempt == attempt.attempt).then_some(seat.task)
        };
        let evicted: Vec<TaskPosition> = executor.seats.iter().filter_map(evicted).collect();
        evicted.into_iter().for_each(|key| self.stop_attempt(key));
    }
}

//! Placement of waiting tasks in free slots, and reservation of executors for wide tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{ContainerId, RequestId, Tick};
use headroom_wire::v1::job::{AttemptRow, DataLocality};
use headroom_wire::v1::task::ToExecutor;

use super::{MasterCore, send};
use crate::event::MasterEffect;
use crate::executors::{ExecutorEntry, ExecutorRequest, RequestPurpose};
use crate::policy::{AttemptPlace, AttemptSize};
use crate::record::JournalRecord;
use crate::spec::{self, StartParameters};
use crate::taskset::{LifecycleState, TaskInstance, TaskPosition, TaskSlotQueue};

/// Timeout after which a wide task that waits for slots gets its own container.
pub(super) const WIDE_TASK_TIMEOUT: Duration = Duration::from_secs(20);

/// An executor with free slots.
#[derive(Clone, Debug)]
struct FreeExecutor {
    container: ContainerId,
    free: u32,
    reserved: Option<TaskPosition>,
}

/// Number of executors that may still be reserved: half of them, and at least one.
fn reservations_left(rooms: &[FreeExecutor]) -> usize {
    let reserved = rooms.iter().filter(|r| r.reserved.is_some()).count();
    (rooms.len() / 2).max(1).saturating_sub(reserved)
}

impl MasterCore {
    /// Time at which the next task that waits for slots reaches its timeout. Escalated tasks come
    /// first.
    pub(super) fn next_wide_timeout(&self) -> Option<Tick> {
        let escalated = self.queues.iter().flat_map(|q| {
            q.ready()
                .map_while(|key| self.tasks.get(key).filter(|t| t.size.rung > 1))
        });
        escalated
            .filter_map(|task| task.wide_since)
            .map(|since| since.plus(WIDE_TASK_TIMEOUT))
            .min()
    }

    pub(super) fn place_shared(&mut self) {
        for set in 0..self.queues.len() {
            if let Some(queue) = self.queues.get_mut(set) {
                let tasks = &self.tasks;
                queue.wake(self.now.tick, |key| tasks.get(key));
            }
            self.place_in_set(set);
        }
    }

    fn place_in_set(&mut self, set: usize) {
        self.move_timed_out_tasks(set);
        let mut rooms = self.rooms(set);
        let mut turn = None;
        while let Some(next) = self
            .queues
            .get(set)
            .filter(|_| !rooms.is_empty())
            .and_then(|q| q.next_after(turn))
        {
            turn = Some(next);
            if self.is_open(next.key) {
                if !self.may_begin(next.key) {
                    turn = Some(TaskSlotQueue::behind_stage(next));
                    continue;
                }
                self.size_now(next.key);
                if self
                    .tasks
                    .get(next.key)
                    .is_some_and(|t| t.size.place == AttemptPlace::Own)
                {
                    continue;
                }
            }
            let Some(slots) = self.tasks.get(next.key).map(|t| t.size.slots) else {
                continue;
            };
            if let Some(container) = self
                .best_room(next.key, &rooms)
                .map(|r| r.container.clone())
            {
                for room in &mut rooms {
                    room.free = if room.container == container {
                        room.free.saturating_sub(slots)
                    } else {
                        room.free
                    };
                    room.reserved = room.reserved.filter(|task| *task != next.key);
                }
                self.place(next.key, &container);
            } else if slots > 1 {
                self.wait_wide(next.key, &mut rooms);
            }
            // All following tasks have the size of their stage, and neither slots nor a reservation
            // are left for any of them.
            let last = |q: &TaskSlotQueue| q.is_among_the_last(next);
            if self.queues.get(set).is_some_and(last) && self.no_room_left(set, &rooms) {
                break;
            }
        }
    }

    fn no_room_left(&self, set: usize, rooms: &[FreeExecutor]) -> bool {
        let open = rooms
            .iter()
            .filter(|r| r.reserved.is_none())
            .map(|r| r.free)
            .max()
            .unwrap_or(0);
        let narrowest = self
            .queues
            .get(set)
            .and_then(crate::taskset::TaskSlotQueue::narrowest)
            .unwrap_or(1);
        let reserved_room = rooms.iter().any(|r| {
            r.reserved
                .is_some_and(|key| self.tasks.get(key).is_some_and(|t| t.size.slots <= r.free))
        });
        open < narrowest && !reserved_room && (narrowest == 1 || reservations_left(rooms) == 0)
    }

    fn rooms(&self, set: usize) -> Vec<FreeExecutor> {
        // Of more executors than the set may have now, the newest start no new tasks.
        let most = self
            .job
            .executors
            .get(set)
            .map_or(0, |spec| usize::try_from(spec.count).unwrap_or(usize::MAX));
        // Excluded nodes are used only if the job has no other node.
        let elsewhere = self
            .fleet
            .staying(set)
            .any(|(_, e)| !self.fleet.collateral.is_excluded(&e.node));
        let allowed = |e: &ExecutorEntry| !elsewhere || !self.fleet.collateral.is_excluded(&e.node);
        let up = self
            .fleet
            .staying(set)
            .take(most)
            .filter(|(_, e)| self.fleet.takes_work(e) && allowed(e));
        up.map(|(id, e)| FreeExecutor {
            container: id.clone(),
            free: e.free(),
            reserved: e.reserved.map(|(t, _)| t),
        })
        .collect()
    }

    /// The best executor for a task: one that is reserved for it, else one on a node that holds its
    /// input, else the one with the most free slots. Executors that are reserved for other tasks or
    /// to be avoided do not count. A task that failed by itself waits for another executor as long
    /// as one exists. A task that was lost with its executor does not wait: if no other slot is
    /// free, a later executor on that node is accepted.
    fn best_room<'r>(
        &self,
        key: TaskPosition,
        rooms: &'r [FreeExecutor],
    ) -> Option<&'r FreeExecutor> {
        let task = self.tasks.get(key)?;
        let elsewhere = rooms.iter().any(|r| !self.is_avoided(key, &r.container));
        let fits = || {
            rooms
                .iter()
                .filter(|r| r.free >= task.size.slots && r.reserved.is_none_or(|t| t == key))
        };
        let local = |r: &&FreeExecutor| {
            let node = self.fleet.executors.get(&r.container).map(|e| &e.node);
            node.is_some_and(|node| self.locality(key, node) == Some(DataLocality::Local))
        };
        let worth = |r: &&FreeExecutor| {
            (
                r.reserved == Some(key),
                local(r),
                r.free,
                std::cmp::Reverse(r.container.clone()),
            )
        };
        let later = |r: &&FreeExecutor| {
            let failed = self
                .fleet
                .executors
                .get(&r.container)
                .is_some_and(|e| task.failed_to_start_on(&e.node));
            task.avoid.node.is_some()
                && task.avoid.container.as_ref() != Some(&r.container)
                && !failed
        };
        let other = fits()
            .filter(|r| !self.is_avoided(key, &r.container))
            .max_by_key(worth);
        other.or_else(|| fits().filter(|r| !elsewhere || later(r)).max_by_key(worth))
    }

    /// Reserves an executor for a task for which no executor has enough free slots. The wait of an
    /// escalated task ends after a timeout. A task that was wide from the start waits for the
    /// executors like all tasks of its stage.
    fn wait_wide(&mut self, key: TaskPosition, rooms: &mut [FreeExecutor]) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        let slots = task.size.slots;
        let until = if task.size.rung > 1 {
            let since = *task.wide_since.get_or_insert(self.now.tick);
            if self.now.tick.since(since) >= WIDE_TASK_TIMEOUT {
                self.move_to_own_container(key);
                return;
            }
            since.plus(WIDE_TASK_TIMEOUT)
        } else {
            Tick(u64::MAX)
        };
        if reservations_left(rooms) == 0 || rooms.iter().any(|r| r.reserved == Some(key)) {
            return;
        }
        let able = |id: &ContainerId| {
            self.fleet
                .executors
                .get(id)
                .is_some_and(|e| e.slots >= slots)
        };
        // An executor in which the task will not be placed is reserved only if there is no other.
        let worth = |r: &&mut FreeExecutor| (!self.is_avoided(key, &r.container), r.free);
        let best = rooms
            .iter_mut()
            .filter(|r| r.reserved.is_none() && able(&r.container))
            .max_by_key(worth);
        let Some(room) = best else { return };
        room.reserved = Some(key);
        let container = room.container.clone();
        if let Some(executor) = self.fleet.executors.get_mut(&container) {
            executor.reserved = Some((key, until));
        }
        if let Some(task) = self.tasks.get_mut(key) {
            task.note = format!("waits for {slots} free slots of {container}");
        }
        self.view.mark_dirty(key);
    }

    /// Moves tasks whose wait has reached its timeout, whether an executor is available or not.
    fn move_timed_out_tasks(&mut self, set: usize) {
        let waited = |task: &TaskInstance| {
            task.wide_since
                .is_some_and(|since| self.now.tick.since(since) >= WIDE_TASK_TIMEOUT)
        };
        let escalated = self
            .queues
            .get(set)
            .into_iter()
            .flat_map(TaskSlotQueue::ready);
        let escalated = escalated.map_while(|key| {
            self.tasks
                .get(key)
                .filter(|t| t.size.rung > 1)
                .map(|t| (key, t))
        });
        let due: Vec<TaskPosition> = escalated
            .filter(|(_, t)| waited(t))
            .map(|(key, _)| key)
            .collect();
        due.into_iter()
            .for_each(|key| self.move_to_own_container(key));
    }

    /// Moves a task to its own container with the same size. If no node can ever hold that
    /// container, the wait for slots starts again.
    fn move_to_own_container(&mut self, key: TaskPosition) {
        let Some(task) = self.tasks.get(key) else {
            return;
        };
        let size = AttemptSize {
            place: AttemptPlace::Own,
            slots: 1,
            ..task.size.clone()
        };
        if self.own_fits(key, size.memory()) == Some(false) {
            if let Some(task) = self.tasks.get_mut(key) {
                task.wide_since = Some(self.now.tick);
            }
            return;
        }
        let why = format!(
            "no executor had enough free slots within {} s: {} in a container of its own",
            WIDE_TASK_TIMEOUT.as_secs(),
            size.profile
        );
        self.move_task(key, size, why);
    }

    /// Records the attempt and sends the start to the executor.
    pub(super) fn place(&mut self, key: TaskPosition, container: &ContainerId) {
        let shadow = self.shadow(key);
        let Some(node) = self.fleet.executors.get(container).map(|e| e.node.clone()) else {
            return;
        };
        let input = self.input_on(key, &node);
        let Some(task) = self.tasks.pending(key) else {
            return;
        };
        let row = AttemptRow {
            attempt: task.next_attempt(),
            profile: task.size.profile.clone(),
            slots: task.size.slots,
            rung: task.size.rung,
            container: container.clone(),
            node,
            started: self.now.unix,
            ended: None,
            peak: None,
            used: None,
            reason: None,
            dimension: None,
            evidence: None,
            diagnosis: Vec::new(),
            decision: String::new(),
            timeline: Vec::new(),
            log_tail: String::new(),
            grown: Vec::new(),
            why: if task.why.is_empty() {
                "the size of its stage".to_owned()
            } else {
                task.why.clone()
            },
            shadow,
            input,
            treatment: None,
            remedies: super::treat::remedies(task),
            log_marker: None,
            silent: false,
        };
        self.record(JournalRecord::Placed {
            task: key,
            row: Box::new(row),
        });
        self.out.extend(self.start_message(key));
    }

    /// The start message of a task's open attempt. It is sent again if the executor does not know
    /// the attempt.
    pub(super) fn start_message(&self, key: TaskPosition) -> Option<MasterEffect> {
        let (stage, task) = (self.stage_of(key)?, self.tasks.get(key)?);
        let open = task.open_attempt()?;
        let previous = task.previous_reason().map(|r| r.name()).unwrap_or_default();
        let output = self.attempt_dir(stage, &open.attempt);
        let output = output.as_deref().and_then(|p| p.to_str());
        let attempt = StartParameters {
            id: &open.attempt,
            size: &task.size,
            previous,
            output,
            remedies: &open.remedies,
            submitted: self.submitted.get(key).map(|task| &*task.submitted),
        };
        let start = spec::task_start(&self.job, stage, attempt, self.setup.base_dir.as_deref());
        Some(send(&open.container, ToExecutor::Start(Box::new(start))))
    }

    /// Whether the cluster can ever provide a container for this task alone; `None` if that is
    /// unknown.
    pub(super) fn own_fits(
        &self,
        key: TaskPosition,
        memory: headroom_types::Bytes,
    ) -> Option<bool> {
        let (stage, set) = (self.stage_of(key)?, self.set_of(key)?);
        let rung = self.tasks.get(key)?.size.rung;
        let needs = spec::own_resource(&self.job.retry, set, stage, (memory, rung));
        self.largest.as_ref().map(|largest| needs.fits(largest))
    }

    /// Requests a container for each task that needs its own, and starts the tasks whose container
    /// is ready.
    pub(super) fn own_containers(&mut self) {
        let keys: Vec<TaskPosition> = self.own.iter().copied().collect();
        let ready: BTreeMap<RequestId, ContainerId> = self
            .fleet
            .ready_own()
            .into_iter()
            .map(|(id, container)| (id.clone(), container.clone()))
            .collect();
        for key in keys {
            let Some(task) = self.tasks.get(key) else {
                continue;
            };
            let Some(id) = spec::own_request(&task.id, task.size.rung) else {
                continue;
            };
            let (pending, memory) = (
                matches!(task.state, LifecycleState::Pending { .. }),
                self.own_memory(key),
            );
            let held_back = pending && self.waits_for_contention(key);
            let now = self.now.tick;
            if let Some(request) = self.request_mut(&id) {
                request.wanted = u32::from(!held_back && request.hold_until <= now);
                request.memory = memory;
                if request.hold_until <= now {
                    request.hold_until = Tick(0);
                }
            }
            if let Some(container) = ready.get(&id).filter(|_| pending && self.is_ready(key)) {
                self.place(key, container);
            }
        }
        self.leave_unneeded_own();
    }

    /// Time at which the next task may start whose own container is ready already.
    pub(super) fn next_own_start(&self) -> Option<Tick> {
        let there = self.fleet.ready_own();
        let start = |key: &TaskPosition| {
            let task = self.tasks.get(*key)?;
            let LifecycleState::Pending { ready } = task.state else {
                return None;
            };
            let id = spec::own_request(&task.id, task.size.rung)?;
            there.contains_key(&id).then_some(ready)
        };
        self.own.iter().filter_map(start).min()
    }

    fn is_ready(&self, key: TaskPosition) -> bool {
        self.tasks.get(key).is_some_and(|t| match t.state {
            LifecycleState::Pending { ready } => ready <= self.now.tick,
            LifecycleState::Blocked
            | LifecycleState::Running { .. }
            | LifecycleState::Done
            | LifecycleState::Failed => false,
        })
    }

    /// Ends own containers whose task is final or has moved to another rung.
    fn leave_unneeded_own(&mut self) {
        let needed = |purpose: RequestPurpose, id: &RequestId| match purpose {
            RequestPurpose::Set(_) => true,
            RequestPurpose::Own(key) => {
                let task = self.tasks.get(key).filter(|_| self.own.contains(&key));
                task.is_some_and(|t| spec::own_request(&t.id, t.size.rung).as_ref() == Some(id))
            }
        };
        // Most requests of a long job are finished: they have no live container and request none.
        let live: BTreeSet<&RequestId> =
            self.fleet.executors.values().map(|e| &e.request).collect();
        let open = |id: &RequestId, r: &ExecutorRequest| {
            r.wanted > 0 || r.hold_until > Tick(0) || live.contains(id)
        };
        let over: Vec<RequestId> = self
            .fleet
            .requests
            .iter()
            .filter(|(id, r)| open(id, r) && !needed(r.purpose, id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            if let Some(request) = self.fleet.requests.get_mut(&id) {
                request.wanted = 0;
                // No task waits for it, so no timer is due at the end of the wait.
                request.hold_until = Tick(0);
            }
            let leave: Vec<ContainerId> = self
                .fleet
                .of_request(&id)
                .filter(|(_, e)| e.may_run_tasks())
                .map(|(c, _)| c.clone())
                .collect();
            leave
                .iter()
                .for_each(|container| self.end_executor(container));
        }
    }
}

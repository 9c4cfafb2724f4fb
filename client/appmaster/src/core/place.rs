//! Which waiting task goes into which free slots, and how a wide one gets its room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{ContainerId, RequestId, Tick};
use headroom_wire::v1::job::{AttemptRow, Locality};
use headroom_wire::v1::task::ToExecutor;

use super::{Core, send};
use crate::event::{Effect, Now};
use crate::executors::{Executor, Purpose, Request};
use crate::policy::{Place, Size};
use crate::record::Record;
use crate::spec::{self, Attempt};
use crate::taskset::{Queue, State, Task, TaskKey};

/// How long a wide task waits for slots to come free together before it gets a container of its own.
pub(super) const WIDE_PATIENCE: Duration = Duration::from_secs(20);

/// An executor with room.
#[derive(Clone, Debug)]
struct Room {
    container: ContainerId,
    free: u32,
    reserved: Option<TaskKey>,
}

/// How many more executors may be kept from other work: half of them, and at least one.
fn reservations_left(rooms: &[Room]) -> usize {
    let reserved = rooms.iter().filter(|r| r.reserved.is_some()).count();
    (rooms.len() / 2).max(1).saturating_sub(reserved)
}

impl Core {
    /// When the next task that waits for slots to come free together has waited long enough. Escalated tasks come first.
    pub(super) fn next_patience_end(&self) -> Option<Tick> {
        let escalated =
            self.queues.iter().flat_map(|q| q.ready().map_while(|key| self.tasks.get(key).filter(|t| t.size.rung > 1)));
        escalated.filter_map(|task| task.wide_since).map(|since| since.plus(WIDE_PATIENCE)).min()
    }

    pub(super) fn place_shared(&mut self, now: Now, out: &mut Vec<Effect>) {
        for set in 0..self.queues.len() {
            if let Some(queue) = self.queues.get_mut(set) {
                let tasks = &self.tasks;
                queue.wake(now.tick, |key| tasks.get(key));
            }
            self.place_in_set(now, set, out);
        }
    }

    fn place_in_set(&mut self, now: Now, set: usize, out: &mut Vec<Effect>) {
        self.end_patience(now, set, out);
        let mut rooms = self.rooms(set);
        let mut turn = None;
        while let Some(next) = self.queues.get(set).filter(|_| !rooms.is_empty()).and_then(|q| q.next_after(turn)) {
            turn = Some(next);
            if self.is_open(next.key) {
                if !self.may_begin(next.key) {
                    turn = Some(Queue::behind_stage(next));
                    continue;
                }
                self.size_now(next.key);
                if self.tasks.get(next.key).is_some_and(|t| t.size.place == Place::Own) {
                    continue;
                }
            }
            let Some(slots) = self.tasks.get(next.key).map(|t| t.size.slots) else { continue };
            if let Some(container) = self.best_room(next.key, &rooms).map(|r| r.container.clone()) {
                for room in &mut rooms {
                    room.free = if room.container == container { room.free.saturating_sub(slots) } else { room.free };
                    room.reserved = room.reserved.filter(|task| *task != next.key);
                }
                self.place(now, next.key, &container, out);
            } else if slots > 1 {
                self.wait_wide(now, next.key, &mut rooms, out);
            }
            // What follows has the size of its stage, and neither room nor reservation is left for any of it.
            if next.is_among_the_last() && self.no_room_left(set, &rooms) {
                break;
            }
        }
    }

    fn no_room_left(&self, set: usize, rooms: &[Room]) -> bool {
        let open = rooms.iter().filter(|r| r.reserved.is_none()).map(|r| r.free).max().unwrap_or(0);
        let narrowest = self.queues.get(set).and_then(crate::taskset::Queue::narrowest).unwrap_or(1);
        let reserved_room =
            rooms.iter().any(|r| r.reserved.is_some_and(|key| self.tasks.get(key).is_some_and(|t| t.size.slots <= r.free)));
        open < narrowest && !reserved_room && (narrowest == 1 || reservations_left(rooms) == 0)
    }

    fn rooms(&self, set: usize) -> Vec<Room> {
        // More than there may be from now on: the newest begin nothing new.
        let most = self.job.executors.get(set).map_or(0, |spec| usize::try_from(spec.count).unwrap_or(usize::MAX));
        // Excluded nodes are for jobs that have no other one.
        let elsewhere = self.fleet.staying(set).any(|(_, e)| !self.fleet.collateral.is_excluded(&e.node));
        let allowed = |e: &Executor| !elsewhere || !self.fleet.collateral.is_excluded(&e.node);
        let up = self.fleet.staying(set).take(most).filter(|(_, e)| self.fleet.takes_work(e) && allowed(e));
        up.map(|(id, e)| Room { container: id.clone(), free: e.free(), reserved: e.reserved.map(|(t, _)| t) }).collect()
    }

    /// The room on a node that holds its input, else that with most free slots, among those that are not reserved for another task and not to be avoided. A task that
    /// failed by itself waits for another executor as long as there is one. One that was lost with its executor waits for nobody: where no
    /// other room is free, an executor that came to that node later will do.
    fn best_room<'r>(&self, key: TaskKey, rooms: &'r [Room]) -> Option<&'r Room> {
        let task = self.tasks.get(key)?;
        let elsewhere = rooms.iter().any(|r| !self.is_avoided(key, &r.container));
        let fits = || rooms.iter().filter(|r| r.free >= task.size.slots && r.reserved.is_none_or(|t| t == key));
        let local = |r: &&Room| {
            let node = self.fleet.executors.get(&r.container).map(|e| &e.node);
            node.is_some_and(|node| self.locality(key, node) == Some(Locality::Local))
        };
        let worth = |r: &&Room| (r.reserved == Some(key), local(r), r.free, std::cmp::Reverse(r.container.clone()));
        let later = |r: &&Room| {
            let failed = self.fleet.executors.get(&r.container).is_some_and(|e| task.failed_to_start_on(&e.node));
            task.avoid.node.is_some() && task.avoid.container.as_ref() != Some(&r.container) && !failed
        };
        let other = fits().filter(|r| !self.is_avoided(key, &r.container)).max_by_key(worth);
        other.or_else(|| fits().filter(|r| !elsewhere || later(r)).max_by_key(worth))
    }

    /// No executor has enough free slots: one is kept from taking other work until it has. The patience of an escalated task
    /// ends; one that was wide from the start waits for its executors like all of its stage.
    fn wait_wide(&mut self, now: Now, key: TaskKey, rooms: &mut [Room], out: &mut Vec<Effect>) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let slots = task.size.slots;
        let until = if task.size.rung > 1 {
            let since = *task.wide_since.get_or_insert(now.tick);
            if now.tick.since(since) >= WIDE_PATIENCE {
                self.fall_to_own(now, key, out);
                return;
            }
            since.plus(WIDE_PATIENCE)
        } else {
            Tick(u64::MAX)
        };
        if reservations_left(rooms) == 0 || rooms.iter().any(|r| r.reserved == Some(key)) {
            return;
        }
        let able = |id: &ContainerId| self.fleet.executors.get(id).is_some_and(|e| e.slots >= slots);
        // One where it will not be placed is kept for it only where there is no other.
        let worth = |r: &&mut Room| (!self.is_avoided(key, &r.container), r.free);
        let best = rooms.iter_mut().filter(|r| r.reserved.is_none() && able(&r.container)).max_by_key(worth);
        let Some(room) = best else { return };
        room.reserved = Some(key);
        let container = room.container.clone();
        if let Some(executor) = self.fleet.executors.get_mut(&container) {
            executor.reserved = Some((key, until));
        }
        if let Some(task) = self.tasks.get_mut(key) {
            task.note = format!("waits for {slots} slots of {container} to come free");
        }
        self.view.touch(key);
    }

    /// Tasks that have waited long enough, whether an executor is there or not.
    fn end_patience(&mut self, now: Now, set: usize, out: &mut Vec<Effect>) {
        let waited = |task: &Task| task.wide_since.is_some_and(|since| now.tick.since(since) >= WIDE_PATIENCE);
        let escalated = self.queues.get(set).into_iter().flat_map(Queue::ready);
        let escalated = escalated.map_while(|key| self.tasks.get(key).filter(|t| t.size.rung > 1).map(|t| (key, t)));
        let due: Vec<TaskKey> = escalated.filter(|(_, t)| waited(t)).map(|(key, _)| key).collect();
        due.into_iter().for_each(|key| self.fall_to_own(now, key, out));
    }

    /// The same size in a container of its own. When none could ever be had, it waits for slots once more.
    fn fall_to_own(&mut self, now: Now, key: TaskKey, out: &mut Vec<Effect>) {
        let Some(task) = self.tasks.get(key) else { return };
        let size = Size { place: Place::Own, slots: 1, ..task.size.clone() };
        if self.own_fits(key, size.memory()) == Some(false) {
            if let Some(task) = self.tasks.get_mut(key) {
                task.wide_since = Some(now.tick);
            }
            return;
        }
        let why = format!("no executor drained within {} s: {} in a container of its own", WIDE_PATIENCE.as_secs(), size.profile);
        self.record(now, Record::Moved { task: key, size, why: why.clone() }, out);
        self.tell_moved(now, key, &why);
    }

    /// Writes the attempt down and tells the executor.
    pub(super) fn place(&mut self, now: Now, key: TaskKey, container: &ContainerId, out: &mut Vec<Effect>) {
        let shadow = self.shadow(key);
        let Some(node) = self.fleet.executors.get(container).map(|e| e.node.clone()) else { return };
        let input = self.input_on(key, &node);
        let Some(task) = self.tasks.get(key).filter(|t| matches!(t.state, State::Pending { .. })) else { return };
        let row = AttemptRow {
            attempt: task.next_attempt(),
            profile: task.size.profile.clone(),
            slots: task.size.slots,
            rung: task.size.rung,
            container: container.clone(),
            node,
            started: now.unix,
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
            why: if task.why.is_empty() { "the size of its stage".to_owned() } else { task.why.clone() },
            shadow,
            input,
            treatment: None,
            remedies: super::treat::remedies(task),
        };
        self.record(now, Record::Placed { task: key, row: Box::new(row) }, out);
        out.extend(self.start_message(key));
    }

    /// The start of a task's open attempt. Sent again when the executor does not know it.
    pub(super) fn start_message(&self, key: TaskKey) -> Option<Effect> {
        let (stage, task) = (self.stage_of(key)?, self.tasks.get(key)?);
        let open = task.open_attempt()?;
        let previous = task.previous_reason().map(|r| r.name()).unwrap_or_default();
        let output = self.attempt_dir(stage, &open.attempt);
        let output = output.as_deref().and_then(|p| p.to_str());
        let attempt = Attempt { id: &open.attempt, size: &task.size, previous, output, remedies: &open.remedies };
        let start = spec::task_start(&self.job, stage, attempt, self.setup.base_dir.as_deref());
        Some(send(&open.container, ToExecutor::Start(Box::new(start))))
    }

    /// Whether a container for this task alone could ever be had; `None` when that is not known.
    pub(super) fn own_fits(&self, key: TaskKey, memory: headroom_types::Bytes) -> Option<bool> {
        let (stage, set) = (self.stage_of(key)?, self.set_of(key)?);
        let rung = self.tasks.get(key)?.size.rung;
        let needs = spec::own_resource(&self.job.retry, set, stage, (memory, rung));
        self.largest.as_ref().map(|largest| needs.fits(largest))
    }

    /// Asks for a container for each task that needs one of its own, and starts those whose container is ready.
    pub(super) fn own_containers(&mut self, now: Now, out: &mut Vec<Effect>) {
        let keys: Vec<TaskKey> = self.own.iter().copied().collect();
        let ready: BTreeMap<RequestId, ContainerId> =
            self.fleet.ready_own().into_iter().map(|(id, container)| (id.clone(), container.clone())).collect();
        for key in keys {
            let Some(task) = self.tasks.get(key) else { continue };
            let Some(id) = spec::own_request(&task.id, task.size.rung) else { continue };
            let (pending, memory) = (matches!(task.state, State::Pending { .. }), self.own_memory(key));
            let held_back = pending && self.waits_for_contention(key);
            if let Some(request) = self.request_mut(&id) {
                request.wanted = u32::from(!held_back && request.hold_until <= now.tick);
                request.memory = memory;
                if request.hold_until <= now.tick {
                    request.hold_until = Tick(0);
                }
            }
            if let Some(container) = ready.get(&id).filter(|_| pending && self.is_ready(key, now)) {
                self.place(now, key, container, out);
            }
        }
        self.leave_unneeded_own(out);
    }

    /// When the next task may start whose own container is there already.
    pub(super) fn next_own_start(&self) -> Option<Tick> {
        let there = self.fleet.ready_own();
        let start = |key: &TaskKey| {
            let task = self.tasks.get(*key)?;
            let State::Pending { ready } = task.state else { return None };
            let id = spec::own_request(&task.id, task.size.rung)?;
            there.contains_key(&id).then_some(ready)
        };
        self.own.iter().filter_map(start).min()
    }

    fn is_ready(&self, key: TaskKey, now: Now) -> bool {
        self.tasks.get(key).is_some_and(|t| match t.state {
            State::Pending { ready } => ready <= now.tick,
            State::Blocked | State::Running { .. } | State::Done | State::Failed => false,
        })
    }

    /// Own containers whose task is done, was given up, or has moved to another rung.
    fn leave_unneeded_own(&mut self, out: &mut Vec<Effect>) {
        let needed = |purpose: Purpose, id: &RequestId| match purpose {
            Purpose::Set(_) => true,
            Purpose::Own(key) => {
                let task = self.tasks.get(key).filter(|_| self.own.contains(&key));
                task.is_some_and(|t| spec::own_request(&t.id, t.size.rung).as_ref() == Some(id))
            }
        };
        // Most requests of a long job are over for good: nothing lives of them, and nothing is wanted.
        let live: BTreeSet<&RequestId> = self.fleet.executors.values().map(|e| &e.request).collect();
        let open = |id: &RequestId, r: &Request| r.wanted > 0 || r.hold_until > Tick(0) || live.contains(id);
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
                // Nobody waits for it, so nothing is due when the wait would be over.
                request.hold_until = Tick(0);
            }
            let leave: Vec<ContainerId> = self.fleet.of_request(&id).filter(|(_, e)| e.stays()).map(|(c, _)| c.clone()).collect();
            leave.iter().for_each(|container| self.leave(container, out));
        }
    }
}

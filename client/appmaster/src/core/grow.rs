//! More memory for a task that runs: from its executor's word that it is near its limit to its new one.
//!
//! ```text
//!  Pressure ──► room in its executor ───────────────────────► written down ──► told to the executor ──► confirmed
//!           │                                                     ▲
//!           ├─► no room: the container is to be larger ──► Resized ┘
//!           │          ▲                              ├──► refused: asked again as long as it is held; room is made on its node
//!           │          └──────────────────────────────┘    (see `contention`); then let go
//!           └─► the policy has no more, or its node cannot ──► let go: the kernel decides, the ladder goes on
//! ```
//!
//! What a task was given beyond the size it was placed with is taken from free slots of its executor, or from what its container
//! was enlarged by; a container that has more than its tasks need gives it back. Only what was given is lasting state: a task that
//! is held when its master is started again says so again.

use std::time::Duration;

use headroom_types::{Bytes, ContainerId, Profile, Reason, Resource, TaskAttemptId};
use headroom_wire::v1::job::HeldTask;
use headroom_wire::v1::task::ToExecutor;

use super::{Core, send};
use crate::event::{Effect, LimitSet, Now, SizeRefusal};
use crate::executors::{Executor, Held, Purpose, Resizing, Seat};
use crate::policy::{Place, Size, grow};
use crate::record::Record;
use crate::taskset::TaskKey;

/// A larger container that nothing was heard of is asked for again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// A container that cannot be larger just now, because its program is about to run or its size is being changed, is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// So often where the node could not; each time twice as long later.
const MOST_TRIES: u32 = 3;
/// Most doublings of that pause while there is no room: 1.6 s.
const MOST_DOUBLINGS: u32 = 5;

impl Core {
    /// A task is held near its limit.
    pub(super) fn on_pressure(
        &mut self,
        now: Now,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        limit: Bytes,
        out: &mut Vec<Effect>,
    ) {
        let hold = |key: TaskKey| self.stage_of(key).and_then(|stage| self.job.hold_of(stage));
        let Some(seat) = self.fleet.executors.get(container).and_then(|e| e.seats.get(attempt)).copied() else { return };
        if limit < seat.memory {
            // It was given more, and the message was lost.
            out.push(send(container, ToExecutor::Resize { attempt: attempt.clone(), limit: seat.memory }));
            return;
        }
        let Some(hold) = hold(seat.task) else {
            out.push(send(container, ToExecutor::LetGo { attempt: attempt.clone() }));
            return;
        };
        if let Some(seat) = self.seat_mut(container, attempt) {
            let (since, until) = (now.tick, now.tick.plus(hold));
            seat.held.get_or_insert(Held { since, until, short: None, at: now.unix });
            self.fleet.growing.insert(container.clone());
        }
    }

    /// An executor has given a task another limit, or could not.
    pub(super) fn on_limit_set(&mut self, now: Now, container: &ContainerId, set: &LimitSet, out: &mut Vec<Effect>) {
        let Some(seat) = self.fleet.executors.get(container).and_then(|e| e.seats.get(&set.attempt)).copied() else { return };
        if set.limit < seat.memory && set.error.is_some() {
            let (Some(runtime), Some(profile)) = (self.stage_of(seat.task).map(|s| s.runtime), self.open_profile(seat.task))
            else {
                return;
            };
            let profile = grow::filled(runtime, &profile, set.limit);
            let why = set.error.clone().unwrap_or_default();
            self.given(now, seat.task, &set.attempt, profile, out);
            self.tell_not_grown(now, &set.attempt, set.limit, &why);
            return;
        }
        let row = self.tasks.get_mut(seat.task).and_then(|t| t.open_attempt_mut()).filter(|row| row.attempt == set.attempt);
        let step = row.and_then(|row| row.grown.iter_mut().rev().find(|g| g.to == set.limit));
        if let Some(step) = step {
            step.held_us = step.held_us.or(set.held_us);
            self.view.touch(seat.task);
        }
    }

    /// The resource manager, or its node, has told what size a container has.
    pub(super) fn on_container_size(&mut self, container: &ContainerId, resource: Resource) {
        if let Some(executor) = self.fleet.executors.get_mut(container) {
            executor.resource = Some(resource);
            executor.resizing = None;
            self.fleet.growing.insert(container.clone());
        }
    }

    /// A container keeps its size, for good or for now.
    pub(super) fn on_resize_refused(&mut self, now: Now, container: &ContainerId, refusal: &SizeRefusal, out: &mut Vec<Effect>) {
        let Some(executor) = self.fleet.executors.get_mut(container) else { return };
        let grows = executor.resource.as_ref().zip(executor.resizing).is_some_and(|(has, wanted)| has.memory < wanted.to);
        let Some(resizing) = executor.resizing.as_mut() else { return };
        let (why, most) = match refusal {
            SizeRefusal::Manager(why) if grows => (why, u32::MAX),
            SizeRefusal::NoAnswer(_) if grows => {
                resizing.again_at = now.tick.plus(ASK_AGAIN);
                return;
            }
            SizeRefusal::Manager(why) | SizeRefusal::Node(why) | SizeRefusal::NoAnswer(why) => (why, MOST_TRIES),
        };
        if resizing.tries < most {
            resizing.again_at = now.tick.plus(TRY_AGAIN * (1 << resizing.tries.min(MOST_DOUBLINGS)));
            resizing.tries += 1;
            if grows && resizing.tries == MOST_TRIES {
                self.tell_short(now, container, why);
            }
            return;
        }
        if executor.resource.as_ref().is_some_and(|has| resizing.to < has.memory) {
            executor.keeps = Some(resizing.to);
        }
        executor.resizing = None;
        let spare = executor.spare();
        let held: Vec<TaskAttemptId> = executor.seats.iter().filter(|(_, s)| s.held.is_some()).map(|(a, _)| a.clone()).collect();
        for attempt in held {
            let needs = self.wish(now, container, &attempt).and_then(|(seat, wish)| Some(more(&seat, &wish.ok()?)));
            if needs.is_some_and(|needs| needs > spare) {
                self.let_go(now, container, &attempt, why, out);
            }
        }
    }

    /// Gives more to those that wait for it and asks for what is missing; follows from the state, after every event.
    pub(super) fn grow_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        for container in self.fleet.growing.clone() {
            let missing = self.give_what_is_there(now, &container, out);
            let has = self.fleet.executors.get(&container).and_then(|e| e.resource.as_ref()).map(|r| r.memory);
            if let Some(has) = has.filter(|_| !missing.is_zero()) {
                self.ask_for_size(now, &container, has.saturating_add(missing), out);
            }
        }
    }

    /// Gives back what containers were enlarged by and their tasks do not need any more.
    pub(super) fn shrink_back(&mut self, now: Now, out: &mut Vec<Effect>) {
        for container in self.fleet.growing.clone() {
            let Some(executor) = self.fleet.executors.get_mut(&container) else {
                self.fleet.growing.remove(&container);
                continue;
            };
            if executor.seats.values().any(|s| s.held.is_some()) {
                continue;
            }
            let wanted = executor.needs();
            if executor.has_too_much() && executor.keeps != Some(wanted) {
                self.ask_for_size(now, &container, wanted, out);
            } else if executor.resizing.is_none_or(|r| r.again_at <= now.tick) {
                executor.resizing = None;
                if executor.seats.values().all(|s| s.extra.is_zero()) {
                    self.fleet.growing.remove(&container);
                }
            }
        }
    }

    /// What those who still wait need beyond what is there.
    fn give_what_is_there(&mut self, now: Now, container: &ContainerId, out: &mut Vec<Effect>) -> Bytes {
        let mut missing = Bytes::ZERO;
        let seats = self.fleet.executors.get(container).map(|e| e.seats.clone()).unwrap_or_default();
        let mut held: Vec<(Held, TaskAttemptId)> =
            seats.into_iter().filter_map(|(attempt, seat)| Some((seat.held?, attempt))).collect();
        held.sort_by_key(|(held, _)| held.since);
        for (held, attempt) in held {
            if held.until <= now.tick {
                self.hold_is_over(now, container, &attempt, held);
                continue;
            }
            let Some((seat, wish)) = self.wish(now, container, &attempt) else { continue };
            let profile = match wish {
                Ok(profile) => profile,
                Err(why) => {
                    self.let_go(now, container, &attempt, &why, out);
                    continue;
                }
            };
            let spare = self.fleet.executors.get(container).map(Executor::spare).unwrap_or_default();
            if more(&seat, &profile) > spare.saturating_sub(missing) {
                missing = missing.saturating_add(more(&seat, &profile));
                continue;
            }
            let limit = profile.memory();
            self.given(now, seat.task, &attempt, profile, out);
            self.tell_grown(now, &attempt, seat.memory, limit);
            out.push(send(container, ToExecutor::Resize { attempt, limit }));
        }
        let spare = self.fleet.executors.get(container).map(Executor::spare).unwrap_or_default();
        missing.saturating_sub(spare)
    }

    /// Its executor does not hold it any longer.
    pub(super) fn hold_is_over(&mut self, now: Now, container: &ContainerId, attempt: &TaskAttemptId, held: Held) {
        let Some(seat) = self.seat_mut(container, attempt) else { return };
        let (task, memory) = (seat.task, seat.memory);
        seat.held = None;
        if let Some(short) = held.short {
            let seconds = held.until.min(now.tick).since(held.since).as_secs();
            self.tell_not_grown(now, attempt, memory, &format!("no room for {short} more in {seconds} s"));
        }
        self.view.touch(task);
    }

    /// There is no room for what the held tasks of a container need: said once of each.
    fn tell_short(&mut self, now: Now, container: &ContainerId, why: &str) {
        let seats = self.fleet.executors.get(container).map(|e| e.seats.clone()).unwrap_or_default();
        for (attempt, seat) in seats {
            let Some(held) = seat.held.filter(|held| held.short.is_none()) else { continue };
            let Some((seat, Ok(profile))) = self.wish(now, container, &attempt) else { continue };
            let short = more(&seat, &profile);
            if let Some(seat) = self.seat_mut(container, &attempt) {
                seat.held = Some(Held { short: Some(short), ..held });
            }
            let message = format!("{attempt} is held for {short} more: {why}");
            self.view.tell(now, Reason::GrowthWaits, attempt.to_string(), message);
            self.view.touch(seat.task);
        }
    }

    /// What the running attempt of a task is held for, for people.
    pub(super) fn held_task(&self, key: TaskKey) -> Option<HeldTask> {
        let row = self.tasks.get(key)?.open_attempt()?;
        let held = self.fleet.executors.get(&row.container)?.seats.get(&row.attempt)?.held?;
        Some(HeldTask { since: held.at, more: held.short? })
    }

    /// Asks for another size of a container, now and then until there is an answer. What is not known cannot be changed.
    fn ask_for_size(&mut self, now: Now, container: &ContainerId, wanted: Bytes, out: &mut Vec<Effect>) {
        let Some(executor) = self.fleet.executors.get_mut(container) else { return };
        let Some(has) = executor.resource.clone().filter(|_| executor.stays()) else {
            executor.resizing = None;
            return;
        };
        let tries = match executor.resizing {
            Some(resizing) if resizing.again_at > now.tick => return,
            Some(resizing) if resizing.to == wanted => resizing.tries,
            Some(_) | None => 0,
        };
        executor.resizing = Some(Resizing { to: wanted, again_at: now.tick.plus(ASK_AGAIN), tries });
        out.push(Effect::Resize { container: container.clone(), resource: Resource { memory: wanted, ..has } });
    }

    /// What the policy wants a held task to have.
    pub(super) fn wish(
        &self,
        now: Now,
        container: &ContainerId,
        attempt: &TaskAttemptId,
    ) -> Option<(Seat, Result<Profile, String>)> {
        let seat = *self.fleet.executors.get(container)?.seats.get(attempt)?;
        let (stage, set) = (self.stage_of(seat.task)?, self.set_of(seat.task)?);
        let row = self.tasks.get(seat.task)?.open_attempt().filter(|row| row.attempt == *attempt)?;
        let pressed = grow::Pressed {
            mode: self.job.mode,
            profile: &row.profile,
            runtime: stage.runtime,
            cap: self.cap(set),
            steps: row.grown.len(),
        };
        let bound = self.budget_spent().or_else(|| self.breaker(seat.task.stage));
        let bound = bound.or_else(|| self.leaks_while_it_grows(now, seat.task, row));
        Some((seat, bound.map_or_else(|| grow::next(&pressed), Err)))
    }

    fn given(&mut self, now: Now, task: TaskKey, attempt: &TaskAttemptId, profile: Profile, out: &mut Vec<Effect>) {
        self.record(now, Record::Grown { task, attempt: attempt.clone(), profile, at: now.unix }, out);
    }

    pub(super) fn let_go(
        &mut self,
        now: Now,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(seat) = self.seat_mut(container, attempt) else { return };
        let memory = seat.memory;
        seat.held = None;
        out.push(send(container, ToExecutor::LetGo { attempt: attempt.clone() }));
        self.tell_not_grown(now, attempt, memory, why);
    }

    fn seat_mut(&mut self, container: &ContainerId, attempt: &TaskAttemptId) -> Option<&mut Seat> {
        self.fleet.executors.get_mut(container)?.seats.get_mut(attempt)
    }

    fn open_profile(&self, key: TaskKey) -> Option<Profile> {
        Some(self.tasks.get(key)?.open_attempt()?.profile.clone())
    }

    /// The size that an attempt which has ended leaves to the next one: what grew in shared slots needs more of them, or a container
    /// of its own.
    pub(super) fn size_after(&self, key: TaskKey) -> Option<Size> {
        let (task, set) = (self.tasks.get(key)?, self.set_of(key)?);
        let size = task.size.clone();
        let grew = task.attempts.last().is_some_and(|row| !row.grown.is_empty());
        if !grew || size.place == Place::Own {
            return Some(size);
        }
        let slots = set.slots_for(size.memory()).max(size.slots);
        Some(if slots <= set.slots { Size { slots, ..size } } else { Size { slots: 1, place: Place::Own, ..size } })
    }

    /// Memory of a container as it is; as it was asked for when that is not known.
    pub(super) fn memory_of(&self, executor: &Executor) -> Bytes {
        executor.resource.as_ref().map_or_else(|| self.container_memory(executor.purpose), |r| r.memory)
    }

    /// What a container of this purpose has at first, and what a slot of it is worth.
    pub(super) fn base_of(&self, purpose: Purpose) -> (Bytes, Bytes) {
        let share = match purpose {
            Purpose::Set(set) => self.job.executors.get(set).map_or(Bytes::ZERO, headroom_config::ExecutorSpec::share),
            Purpose::Own(_) => Bytes::ZERO,
        };
        (self.container_memory(purpose), share)
    }
}

fn more(seat: &Seat, profile: &Profile) -> Bytes {
    profile.memory().saturating_sub(seat.memory)
}

//! Growth of a running task, from the pressure message of its executor to the confirmed new limit.
//!
//! ```text
//!  Pressure ──► memory in its executor ──────────► recorded ──► sent to executor ──► confirmed
//!           │                                         ▲
//!           ├─► none: a larger container ──► Resized ─┘
//!           │          ▲            ├──► refused: requested again while the task is frozen;
//!           │          └────────────┘    room is made on its node (see `contention`)
//!           └─► the policy or the node allows no more ──► unfrozen: the kernel decides, and the
//!                                                         ladder continues
//! ```
//!
//! Memory that a task gets beyond its initial size comes from free slots of its executor, or from
//! the enlargement of its container. A container with more memory than its tasks need returns it.
//! Only granted growth is durable state: a task that is frozen when its master restarts is reported
//! again.

use std::time::Duration;

use headroom_types::{Bytes, ContainerId, Profile, Reason, Resource, TaskAttemptId};
use headroom_wire::v1::job::FrozenTaskView;
use headroom_wire::v1::task::ToExecutor;

use super::{MasterCore, send};
use crate::event::{MasterEffect, SizeRefusal, TaskLimitResult};
use crate::executors::{ExecutorEntry, PendingResize, RequestPurpose, SlotAssignment, TaskFreeze};
use crate::policy::{AttemptPlace, AttemptSize, grow};
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;

/// Interval after which a larger container is requested again if no answer arrived.
const RESIZE_REQUEST_INTERVAL: Duration = Duration::from_secs(2);
/// First pause after a refusal that may be brief: the program is about to run, or the size is being
/// changed.
const RESIZE_RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// Maximum number of attempts after refusals of the node; the pause doubles each time.
const MAX_RESIZE_TRIES: u32 = 3;
/// Maximum number of doublings of that pause while there is no free memory: 1.6 s.
const MAX_BACKOFF_DOUBLINGS: u32 = 5;

impl MasterCore {
    /// Processes the message that a task is frozen near its limit.
    pub(super) fn on_pressure(
        &mut self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        limit: Bytes,
    ) {
        let hold = |key: TaskPosition| {
            self.stage_of(key)
                .and_then(|stage| self.job.freeze_timeout(stage))
        };
        let Some(seat) = self.fleet.seat(container, attempt).copied() else {
            return;
        };
        if limit < seat.memory {
            // The task already has more memory, and the message to the executor was lost.
            self.out.push(send(
                container,
                ToExecutor::Resize {
                    attempt: attempt.clone(),
                    limit: seat.memory,
                },
            ));
            return;
        }
        let Some(hold) = hold(seat.task) else {
            self.out.push(send(
                container,
                ToExecutor::Unfreeze {
                    attempt: attempt.clone(),
                },
            ));
            return;
        };
        let freeze = TaskFreeze {
            since: self.now.tick,
            until: self.now.tick.plus(hold),
            short: None,
            at: self.now.unix,
        };
        if let Some(seat) = self.fleet.seat_mut(container, attempt) {
            seat.held.get_or_insert(freeze);
            self.fleet.growing.insert(container.clone());
        }
    }

    /// Processes the result of a limit change in an executor.
    pub(super) fn on_limit_set(&mut self, container: &ContainerId, set: &TaskLimitResult) {
        let Some(seat) = self.fleet.seat(container, &set.attempt).copied() else {
            return;
        };
        if set.limit < seat.memory && set.error.is_some() {
            let (Some(runtime), Some(profile)) = (
                self.stage_of(seat.task).map(|s| s.runtime),
                self.open_profile(seat.task),
            ) else {
                return;
            };
            let profile = grow::filled(runtime, &profile, set.limit);
            let why = set.error.clone().unwrap_or_default();
            self.record_growth(seat.task, &set.attempt, profile);
            self.report_refused_growth(&set.attempt, set.limit, &why);
            return;
        }
        let row = self
            .tasks
            .get_mut(seat.task)
            .and_then(|t| t.open_attempt_mut())
            .filter(|row| row.attempt == set.attempt);
        let step = row.and_then(|row| row.grown.iter_mut().rev().find(|g| g.to == set.limit));
        if let Some(step) = step {
            step.frozen_us = step.frozen_us.or(set.frozen_us);
            self.view.mark_dirty(seat.task);
        }
    }

    /// Processes the size of a container as the resource manager or its node reports it.
    pub(super) fn on_container_size(&mut self, container: &ContainerId, resource: Resource) {
        if let Some(executor) = self.fleet.executors.get_mut(container) {
            executor.resource = Some(resource);
            executor.resizing = None;
            self.fleet.growing.insert(container.clone());
        }
    }

    /// Processes a refused change of a container's size, which may be final or temporary.
    pub(super) fn on_resize_refused(&mut self, container: &ContainerId, refusal: &SizeRefusal) {
        let Some(executor) = self.fleet.executors.get_mut(container) else {
            return;
        };
        let grows = executor
            .resource
            .as_ref()
            .zip(executor.resizing)
            .is_some_and(|(has, wanted)| has.memory < wanted.to);
        let Some(resizing) = executor.resizing.as_mut() else {
            return;
        };
        let (why, most) = match refusal {
            SizeRefusal::Manager(why) if grows => (why, u32::MAX),
            SizeRefusal::NoAnswer(_) if grows => {
                resizing.again_at = self.now.tick.plus(RESIZE_REQUEST_INTERVAL);
                return;
            }
            SizeRefusal::Manager(why) | SizeRefusal::Node(why) | SizeRefusal::NoAnswer(why) => {
                (why, MAX_RESIZE_TRIES)
            }
        };
        if resizing.tries < most {
            resizing.again_at = self
                .now
                .tick
                .plus(RESIZE_RETRY_BACKOFF * (1 << resizing.tries.min(MAX_BACKOFF_DOUBLINGS)));
            resizing.tries += 1;
            if grows && resizing.tries == MAX_RESIZE_TRIES {
                self.report_missing_memory(container, why);
            }
            return;
        }
        if executor
            .resource
            .as_ref()
            .is_some_and(|has| resizing.to < has.memory)
        {
            executor.keeps = Some(resizing.to);
        }
        executor.resizing = None;
        let spare = executor.spare();
        let held: Vec<TaskAttemptId> = executor
            .seats
            .iter()
            .filter(|(_, s)| s.held.is_some())
            .map(|(a, _)| a.clone())
            .collect();
        for attempt in held {
            let needs = self
                .growth_proposal(container, &attempt)
                .and_then(|(seat, profile)| Some(more(&seat, &profile.ok()?)));
            if needs.is_some_and(|needs| needs > spare) {
                self.unfreeze_task(container, &attempt, why);
            }
        }
    }

    /// Gives more memory to frozen tasks and requests the missing memory. Derived from the state
    /// after every event.
    pub(super) fn grow_frozen_tasks(&mut self) {
        for container in self.fleet.growing.clone() {
            let missing = self.grant_available_growth(&container);
            let has = self
                .fleet
                .executors
                .get(&container)
                .and_then(|e| e.resource.as_ref())
                .map(|r| r.memory);
            if let Some(has) = has.filter(|_| !missing.is_zero()) {
                self.ask_for_size(&container, has.saturating_add(missing));
            }
        }
    }

    /// Returns memory by which containers were enlarged and that their tasks do not need any more.
    pub(super) fn shrink_back(&mut self) {
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
                self.ask_for_size(&container, wanted);
            } else if executor
                .resizing
                .is_none_or(|r| r.again_at <= self.now.tick)
            {
                executor.resizing = None;
                if executor.seats.values().all(|s| s.extra.is_zero()) {
                    self.fleet.growing.remove(&container);
                }
            }
        }
    }

    /// Grants growth from the memory at hand; returns the memory that is still missing.
    fn grant_available_growth(&mut self, container: &ContainerId) -> Bytes {
        let mut missing = Bytes::ZERO;
        let seats = self.fleet.seats_of(container);
        let mut held: Vec<(TaskFreeze, TaskAttemptId)> = seats
            .into_iter()
            .filter_map(|(attempt, seat)| Some((seat.held?, attempt)))
            .collect();
        held.sort_by_key(|(held, _)| held.since);
        for (held, attempt) in held {
            if held.until <= self.now.tick {
                self.end_freeze(container, &attempt, held);
                continue;
            }
            let Some((seat, profile)) = self.growth_proposal(container, &attempt) else {
                continue;
            };
            let profile = match profile {
                Ok(profile) => profile,
                Err(why) => {
                    self.unfreeze_task(container, &attempt, &why);
                    continue;
                }
            };
            let spare = self
                .fleet
                .executors
                .get(container)
                .map(ExecutorEntry::spare)
                .unwrap_or_default();
            if more(&seat, &profile) > spare.saturating_sub(missing) {
                missing = missing.saturating_add(more(&seat, &profile));
                continue;
            }
            let limit = profile.memory();
            self.record_growth(seat.task, &attempt, profile);
            self.report_growth(&attempt, seat.memory, limit);
            self.out
                .push(send(container, ToExecutor::Resize { attempt, limit }));
        }
        let spare = self
            .fleet
            .executors
            .get(container)
            .map(ExecutorEntry::spare)
            .unwrap_or_default();
        missing.saturating_sub(spare)
    }

    /// Ends the freeze of a task that its executor no longer keeps frozen.
    pub(super) fn end_freeze(
        &mut self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        held: TaskFreeze,
    ) {
        let Some(seat) = self.fleet.seat_mut(container, attempt) else {
            return;
        };
        let (task, memory) = (seat.task, seat.memory);
        seat.held = None;
        if let Some(short) = held.short {
            let seconds = held.until.min(self.now.tick).since(held.since).as_secs();
            self.report_refused_growth(
                attempt,
                memory,
                &format!("no free memory for {short} more in {seconds} s"),
            );
        }
        self.view.mark_dirty(task);
    }

    /// Reports, once for each frozen task of a container, that there is no free memory for it.
    fn report_missing_memory(&mut self, container: &ContainerId, why: &str) {
        let seats = self.fleet.seats_of(container);
        for (attempt, seat) in seats {
            let Some(held) = seat.held.filter(|held| held.short.is_none()) else {
                continue;
            };
            let Some((seat, Ok(profile))) = self.growth_proposal(container, &attempt) else {
                continue;
            };
            let short = more(&seat, &profile);
            if let Some(seat) = self.fleet.seat_mut(container, &attempt) {
                seat.held = Some(TaskFreeze {
                    short: Some(short),
                    ..held
                });
            }
            let message = format!("{attempt} is frozen for {short} more: {why}");
            self.view
                .add_event(self.now, Reason::TaskFrozen, &attempt, message);
            self.view.mark_dirty(seat.task);
        }
    }

    /// The displayed state of the freeze of a task's running attempt.
    pub(super) fn frozen_task(&self, key: TaskPosition) -> Option<FrozenTaskView> {
        let row = self.tasks.get(key)?.open_attempt()?;
        let held = self.fleet.seat(&row.container, &row.attempt)?.held?;
        Some(FrozenTaskView {
            since: held.at,
            more: held.short?,
        })
    }

    /// Requests another size of a container, periodically until there is an answer. A container of
    /// unknown size is left unchanged.
    fn ask_for_size(&mut self, container: &ContainerId, wanted: Bytes) {
        let Some(executor) = self.fleet.executors.get_mut(container) else {
            return;
        };
        let Some(has) = executor
            .resource
            .clone()
            .filter(|_| executor.may_run_tasks())
        else {
            executor.resizing = None;
            return;
        };
        let tries = match executor.resizing {
            Some(resizing) if resizing.again_at > self.now.tick => return,
            Some(resizing) if resizing.to == wanted => resizing.tries,
            Some(_) | None => 0,
        };
        executor.resizing = Some(PendingResize {
            to: wanted,
            again_at: self.now.tick.plus(RESIZE_REQUEST_INTERVAL),
            tries,
        });
        self.out.push(MasterEffect::Resize {
            container: container.clone(),
            resource: Resource {
                memory: wanted,
                ..has
            },
        });
    }

    /// The profile that the policy proposes for a frozen task, or the reason for no growth.
    pub(super) fn growth_proposal(
        &self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
    ) -> Option<(SlotAssignment, Result<Profile, String>)> {
        let seat = *self.fleet.seat(container, attempt)?;
        let (stage, set) = (self.stage_of(seat.task)?, self.set_of(seat.task)?);
        let row = self
            .tasks
            .get(seat.task)?
            .open_attempt()
            .filter(|row| row.attempt == *attempt)?;
        let pressed = grow::GrowthInput {
            mode: self.job.mode,
            profile: &row.profile,
            runtime: stage.runtime,
            cap: self.cap(set),
            steps: row.grown.len(),
        };
        let bound = self
            .budget_spent()
            .or_else(|| self.breaker(seat.task.stage));
        let bound = bound.or_else(|| self.leaks_while_it_grows(seat.task, row));
        Some((seat, bound.map_or_else(|| grow::next(&pressed), Err)))
    }

    fn record_growth(&mut self, task: TaskPosition, attempt: &TaskAttemptId, profile: Profile) {
        self.record(JournalRecord::Grown {
            task,
            attempt: attempt.clone(),
            profile,
            at: self.now.unix,
        });
    }

    pub(super) fn unfreeze_task(
        &mut self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
        why: &str,
    ) {
        let Some(seat) = self.fleet.seat_mut(container, attempt) else {
            return;
        };
        let memory = seat.memory;
        seat.held = None;
        self.out.push(send(
            container,
            ToExecutor::Unfreeze {
                attempt: attempt.clone(),
            },
        ));
        self.report_refused_growth(attempt, memory, why);
    }

    fn open_profile(&self, key: TaskPosition) -> Option<Profile> {
        Some(self.tasks.get(key)?.open_attempt()?.profile.clone())
    }

    /// The size that an ended attempt passes on to the next one. A task that grew in shared slots
    /// needs more slots, or its own container.
    pub(super) fn size_after(&self, key: TaskPosition) -> Option<AttemptSize> {
        let (task, set) = (self.tasks.get(key)?, self.set_of(key)?);
        let size = task.size.clone();
        let grew = task
            .attempts
            .last()
            .is_some_and(|row| !row.grown.is_empty());
        if !grew || size.place == AttemptPlace::Own {
            return Some(size);
        }
        let slots = set.slots_for(size.memory()).max(size.slots);
        Some(if slots <= set.slots {
            AttemptSize { slots, ..size }
        } else {
            AttemptSize {
                slots: 1,
                place: AttemptPlace::Own,
                ..size
            }
        })
    }

    /// Current memory of a container; the requested memory if the current one is unknown.
    pub(super) fn memory_of(&self, executor: &ExecutorEntry) -> Bytes {
        executor
            .resource
            .as_ref()
            .map_or_else(|| self.container_memory(executor.purpose), |r| r.memory)
    }

    /// Initial memory of a container of this purpose, and the memory of one of its slots.
    pub(super) fn base_of(&self, purpose: RequestPurpose) -> (Bytes, Bytes) {
        let share = match purpose {
            RequestPurpose::Set(set) => self
                .job
                .executors
                .get(set)
                .map_or(Bytes::ZERO, headroom_config::ExecutorSpec::slot_memory),
            RequestPurpose::Own(_) => Bytes::ZERO,
        };
        (self.container_memory(purpose), share)
    }
}

fn more(seat: &SlotAssignment, profile: &Profile) -> Bytes {
    profile.memory().saturating_sub(seat.memory)
}

//! The number of shared executors to keep and to request, and the consequences of passed deadlines.

use std::time::Duration;

use headroom_types::{Bytes, ContainerId, ExitReason, Resource, Tick};
use headroom_wire::v1::task::ToExecutor;

use super::{MasterCore, send};
use crate::executors::{ConnectionState, ContainerListing, ExecutorEntry, RequestPurpose};
use crate::policy::classify::AttemptEndClass;
use crate::policy::{AttemptPlace, AttemptSize, GiveUpCause, ladder};
use crate::spec;
use crate::taskset::{LifecycleState, TaskPosition};

/// Timeout for the report of the end of a container that was ordered to end; then the container
/// counts as gone.
const CONTAINER_END_TIMEOUT: Duration = Duration::from_secs(60);

impl MasterCore {
    /// Memory of one container of this purpose. Bytes.
    pub(super) fn container_memory(&self, purpose: RequestPurpose) -> Bytes {
        match purpose {
            RequestPurpose::Set(set) => self
                .job
                .executors
                .get(set)
                .map_or(Bytes::ZERO, |s| s.profile.memory()),
            RequestPurpose::Own(key) => self.own_memory(key),
        }
    }

    pub(super) fn own_memory(&self, key: TaskPosition) -> Bytes {
        let (Some(task), Some(set), Some(stage)) =
            (self.tasks.get(key), self.set_of(key), self.stage_of(key))
        else {
            return Bytes::ZERO;
        };
        spec::own_resource(
            &self.job.retry,
            set,
            stage,
            (task.size.memory(), task.size.rung),
        )
        .memory
    }

    pub(super) fn set_of_purpose(
        &self,
        purpose: RequestPurpose,
    ) -> Option<&headroom_config::ExecutorSpec> {
        match purpose {
            RequestPurpose::Set(set) => self.job.executors.get(set),
            RequestPurpose::Own(key) => self.set_of(key),
        }
    }

    /// Orders an executor to end as soon as no task runs in it.
    pub(super) fn end_executor(&mut self, container: &ContainerId) {
        let Some(executor) = self.fleet.executors.get_mut(container) else {
            return;
        };
        executor.leaving = true;
        executor.reserved = None;
        if executor.line == ConnectionState::Up {
            self.out.push(send(container, ToExecutor::Shutdown));
        }
    }

    /// Processes passed deadlines: lost connections, reservations, and container ends whose final
    /// task reports did not arrive.
    pub(super) fn pass_deadlines(&mut self) {
        let due: Vec<(ContainerId, ExecutorEntry)> = self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| {
                e.ended
                    .as_ref()
                    .is_some_and(|(_, at, _)| *at <= self.now.tick)
                    || line_is_over(e, self.now.tick)
            })
            .map(|(id, e)| (id.clone(), e.clone()))
            .collect();
        for (container, executor) in due {
            match &executor.ended {
                Some((report, _, _)) => self.container_gone(&container, report),
                None if executor.leaving => self.forget_container(&container, &executor, None),
                None => self.line_lost(&container, &executor),
            }
        }
        for executor in self
            .fleet
            .executors
            .values_mut()
            .filter(|e| e.reserved.is_some_and(|(_, at)| at <= self.now.tick))
        {
            executor.reserved = None;
        }
        for shunned in self
            .fleet
            .shunned
            .values_mut()
            .filter(|shunned| shunned.until <= self.now.tick)
        {
            shunned.until = Tick(0);
        }
    }

    fn line_lost(&mut self, container: &ContainerId, executor: &ExecutorEntry) {
        self.lose_attempts(
            executor,
            (ExitReason::NodeLost, AttemptEndClass::Transient),
            "its executor did not reconnect",
        );
        self.end_executor(container);
        if let Some(executor) = self.fleet.executors.get_mut(container) {
            let until = self.now.tick.plus(CONTAINER_END_TIMEOUT);
            executor.line = ConnectionState::Down { until };
            executor.was_silent = !executor.greeted && executor.listing == ContainerListing::Listed;
            if executor.was_silent
                && let Some(request) = self.fleet.requests.get_mut(&executor.request)
            {
                // The end of the container counts as unused. A replacement that is granted before
                // would belong to the same round, and the limit would never be reached.
                request.hold_until = until;
            }
        }
    }

    /// Gives up infeasible requests as soon as the largest node is known.
    pub(super) fn give_up_impossible(&mut self) {
        let Some(largest) = self.largest.clone() else {
            return;
        };
        for set in 0..self.job.executors.len() {
            let Some(spec) = self.job.executors.get(set) else {
                continue;
            };
            let needs = spec::set_resource(spec);
            let waits = self.queues.get(set).is_some_and(|q| q.slots() > 0);
            if waits && !needs.fits(&largest) {
                let sentence = format!("its executor needs {}", infeasible_text(&needs, &largest));
                self.give_up_request(RequestPurpose::Set(set), GiveUpCause::NeverFits, &sentence);
            }
        }
        for key in self.own.iter().copied().collect::<Vec<_>>() {
            let (Some(stage), Some(set), Some(task)) =
                (self.stage_of(key), self.set_of(key), self.tasks.get(key))
            else {
                continue;
            };
            let needs = spec::own_resource(
                &self.job.retry,
                set,
                stage,
                (task.size.memory(), task.size.rung),
            );
            if !matches!(task.state, LifecycleState::Pending { .. }) || needs.fits(&largest) {
                continue;
            }
            if !self.shrink_to_cap(key) {
                let sentence = format!("it needs {}", infeasible_text(&needs, &largest));
                self.give_up_request(RequestPurpose::Own(key), GiveUpCause::NeverFits, &sentence);
            }
        }
    }

    /// Reduces a size that exceeds every node to the largest possible one, if the task has never
    /// had that. Such a size results from a decision before the largest node was known, for example
    /// after a restart, or from an added input.
    pub(super) fn shrink_to_cap(&mut self, key: TaskPosition) -> bool {
        let (Some(set), Some(task)) = (self.set_of(key), self.tasks.get(key)) else {
            return false;
        };
        let cap = self.cap(set).task;
        let stated = || {
            self.stage_of(key)
                .filter(|_| !self.first_charge(key).is_zero())
                .map(|stage| &stage.profile)
        };
        let last = task
            .attempts
            .last()
            .map(|last| &last.profile)
            .or_else(stated);
        let Some(last) = last.filter(|last| last.memory() < cap && cap < task.size.memory()) else {
            return false;
        };
        let profile = if task.size.profile.overhead > last.overhead {
            ladder::with_overhead_filling(last, cap)
        } else {
            ladder::with_heap_filling(last, cap)
        };
        let why = format!(
            "no node can hold a container of {}: {profile} instead",
            task.size.memory()
        );
        let size = AttemptSize {
            profile,
            ..task.size.clone()
        };
        self.move_task(key, size, why);
        true
    }

    /// Requests as many shared executors as there is work for, and ends idle ones.
    pub(super) fn size_sets(&mut self) {
        let own_waits = self.fleet.own_missing();
        self.note_idle(self.now.tick);
        self.fleet.idle_until = None;
        for set in 0..self.job.executors.len() {
            let Some(spec) = self.job.executors.get(set) else {
                continue;
            };
            let Some(id) = spec::set_request(spec) else {
                continue;
            };
            let most = |slots: u64| {
                u32::try_from(slots.div_ceil(u64::from(spec.slots.max(1))))
                    .unwrap_or(u32::MAX)
                    .min(spec.count)
            };
            let now_needed = self.slots_needed(set);
            // A container that is waited for may need the memory of executors that are only kept.
            let (least, patience) = if own_waits {
                (0, Duration::ZERO)
            } else {
                (spec.min, spec.idle)
            };
            let ask = most(now_needed).max(least);
            // Executors that only later stages need make room for an awaited container: those
            // stages may depend on its task.
            let later = if own_waits {
                0
            } else {
                self.slots_needed_later(set)
            };
            let keep = most(now_needed.saturating_add(later)).max(ask);
            let staying = self.fleet.staying(set);
            let staying: Vec<(ContainerId, Option<Tick>)> =
                staying.map(|(c, e)| (c.clone(), e.idle_since)).collect();
            let surplus = staying
                .len()
                .saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
            // The newest end first.
            let idle = staying
                .iter()
                .rev()
                .filter_map(|(c, since)| Some((c, since.as_ref()?.plus(patience))))
                .take(surplus);
            let (due, waiting): (Vec<_>, Vec<_>) = idle.partition(|(_, at)| *at <= self.now.tick);
            let leave: Vec<ContainerId> = due.into_iter().map(|(c, _)| c.clone()).collect();
            let until = waiting.into_iter().map(|(_, at)| at);
            self.fleet.idle_until = self.fleet.idle_until.into_iter().chain(until).min();
            leave
                .iter()
                .for_each(|container| self.end_executor(container));
            let live = u32::try_from(staying.len() - leave.len()).unwrap_or(u32::MAX);
            // Memory that drained executors freed for another task is not taken by a new executor.
            let most = if self.withholds(set) || self.withholds_for_growth(set) {
                live
            } else {
                u32::MAX
            };
            self.set_requested_count(&id, ask.max(live.min(keep)).min(most), live);
        }
    }

    /// Updates for each executor the time since when it has neither tasks nor a reservation.
    fn note_idle(&mut self, now: Tick) {
        for executor in self.fleet.executors.values_mut() {
            let idle = executor.seats.is_empty() && executor.reserved.is_none();
            executor.idle_since = idle.then(|| executor.idle_since.unwrap_or(now));
        }
    }

    fn set_requested_count(&mut self, id: &headroom_types::RequestId, wanted: u32, live: u32) {
        if wanted == 0 && !self.fleet.requests.contains_key(id) {
            return;
        }
        let now = self.now.tick;
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let held = request.hold_until > now;
        if !held {
            request.hold_until = Tick(0);
        }
        request.wanted = if held { live.min(wanted) } else { wanted };
    }

    /// Slots that shared tasks occupy or wait for.
    fn slots_needed(&self, set: usize) -> u64 {
        let waiting = self
            .queues
            .get(set)
            .map_or(0, crate::taskset::TaskSlotQueue::slots);
        let of_set = self
            .fleet
            .executors
            .values()
            .filter(|e| e.purpose == RequestPurpose::Set(set) && e.may_run_tasks());
        // A task that may finish in its warned container needs no other slot.
        let moves = |e: &&ExecutorEntry| e.warning.is_none_or(|warning| warning.until.is_some());
        let running: u64 = of_set.filter(moves).map(|e| u64::from(e.used())).sum();
        waiting.saturating_add(running)
    }

    /// Slots that stages which have not started will need.
    fn slots_needed_later(&self, set: usize) -> u64 {
        let stages = self.job.stages.iter().enumerate().zip(self.tasks.stages());
        let later = stages.filter(|((i, _), s)| !s.begun && self.set_of.get(*i) == Some(&set));
        later
            .map(|((_, spec), _)| {
                let size = spec::first_size(&self.job, spec);
                if size.place == AttemptPlace::Shared {
                    u64::from(size.slots).saturating_mul(u64::from(spec.count))
                } else {
                    0
                }
            })
            .fold(0, u64::saturating_add)
    }
}

fn line_is_over(executor: &ExecutorEntry, now: Tick) -> bool {
    match executor.line {
        ConnectionState::Silent { until } | ConnectionState::Down { until } => until <= now,
        ConnectionState::Up => false,
    }
}

fn infeasible_text(needs: &Resource, largest: &Resource) -> String {
    format!(
        "a container of {needs}, and the largest container here is {largest}; use a smaller size, split the input, or add a larger node"
    )
}

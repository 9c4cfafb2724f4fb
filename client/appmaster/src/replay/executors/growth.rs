//! Growth in shared executors: each task has its own limit, and a task that reaches it is frozen.
//!
//! A frozen task first gets free memory of its executor, then an enlargement of its container if
//! the node has free memory. On a full node it waits. After half of its freeze, or when all
//! attempts on the node are frozen, other attempts are evicted. At the end of the freeze the task
//! alone is killed.

use std::cmp::Reverse;
use std::time::Duration;

use headroom_config::TaskRuntime;
use headroom_types::{Bytes, Profile};

use super::super::hold::{CONTENTION_AFTER, FREEZE_TIMEOUT};
use super::super::ticks::{moment, seconds, ticks};
use super::container::{AttemptFreeze, SlotAttempt};
use super::{ExecutorRun, STEPS, SlotEvent, slack};
use crate::policy::blame::AttemptFate;
use crate::policy::contention::{EvictionCandidate, cheaper, choose};
use crate::policy::grow::{self, GrowthInput};
use crate::policy::{AttemptPlace, AttemptSize};

impl ExecutorRun<'_> {
    /// Raises the use of a task. True when memory became free.
    pub(super) fn rises_in_its_limit(&mut self, id: u64, n: usize, step: u32, now: u64) -> bool {
        let Some(used) = self.use_at(n, step) else {
            return false;
        };
        let Some(attempt) = self.attempt_mut(id, n) else {
            return false;
        };
        attempt.charged = used.saturating_add(slack(n)).min(attempt.size.memory());
        if used <= attempt.size.memory() {
            return false;
        }
        attempt.hold = Some(AttemptFreeze { since: now, step });
        let number = self.next_try(id, n);
        self.held.push(n);
        let freed = self.grow_held(now);
        if self.held.contains(&n) {
            self.sums.frozen += 1;
            self.events.push(Reverse((
                now + CONTENTION_AFTER,
                n,
                number,
                SlotEvent::Contention,
            )));
            self.events.push(Reverse((
                now + FREEZE_TIMEOUT,
                n,
                number,
                SlotEvent::FreezeTimeout,
            )));
        }
        freed
    }

    /// Kills an attempt at its limit when its freeze ends without more memory.
    pub(super) fn on_hold_over(&mut self, id: u64, n: usize, now: u64) {
        if self
            .attempt_mut(id, n)
            .is_none_or(|attempt| attempt.hold.is_none())
        {
            return;
        }
        if let Some(attempt) = self.take_attempt(id, n, now) {
            self.sums.kills += 1;
            let size = self.size_reached(&attempt);
            self.decides(n, &SlotAttempt { size, ..attempt }, AttemptFate::Own, false);
        }
    }

    /// Grows the frozen attempts for which there is free memory, the longest frozen first. If all
    /// attempts on a node are frozen, some are evicted at once. True when memory became free.
    pub(super) fn grow_held(&mut self, now: u64) -> bool {
        let mut freed = false;
        loop {
            for n in self.held.clone() {
                freed |= self.grow(n, now);
            }
            let stuck = self.held.iter().copied().find(|n| self.stands_still(*n));
            let Some(stuck) = stuck else { return freed };
            freed = true;
            if !self.evict_for(stuck, now) {
                self.kill_newest(stuck, now);
            }
        }
    }

    /// Evicts attempts for a frozen one, one after the other until it grows. False when none may be
    /// evicted.
    pub(super) fn evict_for(&mut self, n: usize, now: u64) -> bool {
        let mut any = false;
        while let Some(evicted) = self.to_evict(n, now) {
            any = true;
            self.evict(evicted, now);
            self.grow(n, now);
        }
        any
    }

    /// The next attempt to evict: another one on the node, or the frozen one itself if another is
    /// frozen there and less work is lost.
    fn to_evict(&self, n: usize, now: u64) -> Option<usize> {
        let host = self.host_of(n)?;
        let other = self
            .candidates(n, now)
            .into_iter()
            .filter(|one| one.who != n)
            .collect::<Vec<_>>();
        let other = choose(&other, self.needed(n)?.1).cloned();
        let second = self
            .held
            .iter()
            .copied()
            .find(|held| *held != n && self.host_of(*held) == Some(host));
        let own = second.and_then(|second| {
            let own: Vec<_> = self
                .candidates(second, now)
                .into_iter()
                .filter(|one| one.who == n)
                .collect();
            choose(&own, self.needed(second)?.1).cloned()
        });
        cheaper(other, own, |one| one.lost).map(|one| one.who)
    }

    /// Attempts on the node of a frozen one, the oldest first, each with the memory that its
    /// eviction would make available.
    fn candidates(&self, n: usize, now: u64) -> Vec<EvictionCandidate<usize>> {
        let Some(id) = self.at.get(&n) else {
            return Vec::new();
        };
        let host = self.host_of(n);
        let mut there: Vec<(u64, EvictionCandidate<usize>)> = Vec::new();
        for (other, container) in self
            .boxes
            .iter()
            .filter(|(_, container)| Some(container.host) == host)
        {
            let alone = container.attempts.len() == 1;
            for (task, attempt) in &container.attempts {
                let frees = match (other == id, alone) {
                    (true, _) => container.freed_by(attempt),
                    (false, true) => container.memory,
                    // The other attempts in its container keep the memory of their slots.
                    (false, false) => continue,
                };
                let lost = Duration::from_micros(now - attempt.began);
                let gave_way = self.evicted.contains(task);
                there.push((
                    attempt.began,
                    EvictionCandidate {
                        who: *task,
                        lost,
                        frees,
                        gave_way,
                    },
                ));
            }
        }
        there.sort_by_key(|(began, one)| (*began, one.who));
        there.into_iter().map(|(_, one)| one).collect()
    }

    fn host_of(&self, n: usize) -> Option<usize> {
        self.at
            .get(&n)
            .and_then(|id| self.boxes.get(id))
            .map(|container| container.host)
    }

    /// True when a frozen attempt has priority for the free memory of this node.
    pub(super) fn has_held(&self, host: usize) -> bool {
        self.held.iter().any(|n| self.host_of(*n) == Some(host))
    }

    /// Removes an attempt from its container and returns memory that the container no longer needs.
    pub(super) fn take_attempt(&mut self, id: u64, n: usize, now: u64) -> Option<SlotAttempt> {
        let container = self.boxes.get_mut(&id)?;
        let attempt = container.attempts.remove(&n)?;
        let (needs, place) = (container.needs(), container.place);
        self.held.retain(|held| *held != n);
        self.sums.frozen_s += attempt.hold.map_or(0.0, |hold| seconds(now - hold.since));
        self.leaves(n);
        match place {
            AttemptPlace::Own if self.growth => self.close(id, now),
            // The container is closed with the idle ones.
            AttemptPlace::Own => {}
            AttemptPlace::Shared => self.shrink(id, needs, now),
        }
        Some(attempt)
    }

    /// Grows a frozen attempt if there is free memory. True when memory became free because the
    /// attempt was killed: the policy allows no further growth.
    fn grow(&mut self, n: usize, now: u64) -> bool {
        let Some((id, needs)) = self.needed(n) else {
            return false;
        };
        let Some((profile, steps)) = self.wanted(id, n) else {
            self.on_hold_over(id, n, now);
            return true;
        };
        if !needs.is_zero() && !self.enlarge(id, needs, now) {
            return false;
        }
        let Some(attempt) = self.attempt_mut(id, n) else {
            return false;
        };
        let Some(hold) = attempt.hold.take() else {
            return false;
        };
        attempt.extra = attempt
            .extra
            .saturating_add(profile.memory().saturating_sub(attempt.size.memory()));
        attempt.size.profile = profile;
        attempt.grown += steps;
        let number = attempt.try_;
        self.held.retain(|held| *held != n);
        self.sums.grown += u64::try_from(steps).unwrap_or(u64::MAX);
        self.sums.frozen_s += seconds(now - hold.since);
        self.schedule(n, number, now, hold.step);
        false
    }

    /// The container of a frozen attempt, and the memory that is missing there.
    fn needed(&self, n: usize) -> Option<(u64, Bytes)> {
        let id = *self.at.get(&n)?;
        let container = self.boxes.get(&id)?;
        let attempt = container
            .attempts
            .get(&n)
            .filter(|attempt| attempt.hold.is_some())?;
        let more = self.wanted(id, n).map_or(Bytes::ZERO, |(profile, _)| {
            profile.memory().saturating_sub(attempt.size.memory())
        });
        Some((id, more.saturating_sub(container.spare())))
    }

    /// The size that holds the use of a frozen attempt, with the growth steps up to it; `None` if
    /// the policy allows no more.
    fn wanted(&self, id: u64, n: usize) -> Option<(Profile, usize)> {
        let attempt = self.boxes.get(&id)?.attempts.get(&n)?;
        let used = self.use_at(n, attempt.hold?.step)?;
        let (mut profile, mut steps) = (attempt.size.profile.clone(), 0);
        while profile.memory() < used {
            let (runtime, cap) = (TaskRuntime::Native, self.cap());
            let pressed = GrowthInput {
                mode: self.mode,
                profile: &profile,
                runtime,
                cap,
                steps: attempt.grown + steps,
            };
            profile = grow::next(&pressed).ok()?;
            steps += 1;
        }
        Some((profile, steps))
    }

    /// True when all attempts on the node of a frozen one, at least two, are frozen and wait for
    /// each other's memory.
    fn stands_still(&self, n: usize) -> bool {
        let Some(host) = self.host_of(n) else {
            return false;
        };
        let there = || {
            self.boxes
                .values()
                .filter(|b| b.host == host)
                .flat_map(|b| b.attempts.values())
        };
        there().count() > 1 && there().all(|attempt| attempt.hold.is_some())
    }

    /// Kills the newest attempt on a node where none may be evicted.
    fn kill_newest(&mut self, n: usize, now: u64) {
        let host = self.host_of(n);
        let there = self
            .boxes
            .iter()
            .filter(|(_, container)| Some(container.host) == host);
        let all = there.flat_map(|(id, container)| {
            container
                .attempts
                .iter()
                .map(|(task, one)| (one.began, *task, *id))
        });
        if let Some((_, task, id)) = all.max() {
            self.on_hold_over(id, task, now);
        }
    }

    fn evict(&mut self, n: usize, now: u64) {
        let Some(id) = self.at.get(&n).copied() else {
            return;
        };
        let Some(attempt) = self.take_attempt(id, n, now) else {
            return;
        };
        self.sums.evictions += 1;
        self.evicted.insert(n);
        let size = self.size_reached(&attempt);
        self.past.entry(n).or_default().size = Some(size);
        self.again.insert(n);
        if self
            .boxes
            .get(&id)
            .is_some_and(|b| b.attempts.is_empty() && b.kept_for.is_none())
        {
            self.close(id, now);
        }
    }

    /// The size that an attempt passes on to the next one. An attempt that grew in shared slots
    /// needs more slots, or its own container.
    fn size_reached(&self, attempt: &SlotAttempt) -> AttemptSize {
        let (size, set) = (attempt.size.clone(), &self.site.set);
        if attempt.grown == 0 || size.place == AttemptPlace::Own {
            return size;
        }
        let slots = set.slots_for(size.memory()).max(size.slots);
        if slots <= set.slots {
            AttemptSize { slots, ..size }
        } else {
            AttemptSize {
                slots: 1,
                place: AttemptPlace::Own,
                ..size
            }
        }
    }

    /// Takes free memory of the node for a container. False when there is too little.
    fn enlarge(&mut self, id: u64, by: Bytes, now: u64) -> bool {
        let Some(container) = self.boxes.get_mut(&id) else {
            return false;
        };
        let Some((_, free)) = self
            .hosts
            .get_mut(container.host)
            .filter(|(_, free)| *free >= by)
        else {
            return false;
        };
        *free = free.saturating_sub(by);
        container.resize(container.memory.saturating_add(by), now);
        true
    }

    fn shrink(&mut self, id: u64, to: Bytes, now: u64) {
        let Some(container) = self
            .boxes
            .get_mut(&id)
            .filter(|container| container.memory > to)
        else {
            return;
        };
        if let Some((_, free)) = self.hosts.get_mut(container.host) {
            *free = free.saturating_add(container.memory.saturating_sub(to));
        }
        container.resize(to, now);
    }

    /// The memory use of a task at a step.
    fn use_at(&self, n: usize, step: u32) -> Option<Bytes> {
        Some(
            self.tasks
                .get(n)?
                .peak
                .mul_ratio(u64::from(step), u64::from(STEPS)),
        )
    }

    fn attempt_mut(&mut self, id: u64, n: usize) -> Option<&mut SlotAttempt> {
        self.boxes.get_mut(&id)?.attempts.get_mut(&n)
    }

    /// Invalidates the scheduled events of an attempt.
    fn next_try(&mut self, id: u64, n: usize) -> u32 {
        let past = self.past.entry(n).or_default();
        past.tries += 1;
        let number = past.tries;
        if let Some(attempt) = self.attempt_mut(id, n) {
            attempt.try_ = number;
        }
        number
    }

    /// Schedules the steps of an attempt after this one, and its end.
    pub(super) fn schedule(&mut self, n: usize, number: u32, now: u64, after: u32) {
        let Some(task) = self.tasks.get(n) else {
            return;
        };
        let failures = self.past.get(&n).map_or(0, |past| past.spent.memory);
        let full = task.runtime_s * moment(n, failures);
        let until = |step: u32| full * f64::from(step - after) / f64::from(STEPS);
        for step in after + 1..=STEPS {
            self.events.push(Reverse((
                now + ticks(until(step)),
                n,
                number,
                SlotEvent::Step(step),
            )));
        }
        let rest = task.runtime_s - full * f64::from(after) / f64::from(STEPS);
        self.events
            .push(Reverse((now + ticks(rest), n, number, SlotEvent::End)));
    }
}

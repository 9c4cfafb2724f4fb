//! Growth in shared executors: each task has a limit of its own, and one that comes to it is held.
//!
//! It is first given what is free in its executor, then what its container is enlarged by, if the node has that. Where the node is full
//! it waits; after half its hold, or when all on the node are held, others give way; at the end of the hold it alone is killed.

use std::cmp::Reverse;
use std::time::Duration;

use headroom_config::Runtime;
use headroom_types::{Bytes, Profile};

use super::super::growth::{CONTENTION_AFTER, HOLD};
use super::super::run::{moment, seconds, ticks};
use super::container::{SlotAttempt, SlotHold};
use super::{ExecutorRun, STEPS, SlotEvent, slack};
use crate::policy::blame::Fate;
use crate::policy::contention::{Candidate, cheaper, choose};
use crate::policy::grow::{self, Pressed};
use crate::policy::{Place, Size};

impl ExecutorRun<'_> {
    /// The use of a task rises. True when something came free.
    pub(super) fn rises_in_its_limit(&mut self, id: u64, n: usize, step: u32, now: u64) -> bool {
        let Some(used) = self.use_at(n, step) else { return false };
        let Some(attempt) = self.attempt_mut(id, n) else { return false };
        attempt.charged = used.saturating_add(slack(n)).min(attempt.size.memory());
        if used <= attempt.size.memory() {
            return false;
        }
        attempt.hold = Some(SlotHold { since: now, step });
        let number = self.next_try(id, n);
        self.held.push(n);
        let freed = self.grow_held(now);
        if self.held.contains(&n) {
            self.sums.held += 1;
            self.events.push(Reverse((now + CONTENTION_AFTER, n, number, SlotEvent::Contention)));
            self.events.push(Reverse((now + HOLD, n, number, SlotEvent::HoldOver)));
        }
        freed
    }

    /// The hold of an attempt has ended without more memory: it is killed at its limit.
    pub(super) fn on_hold_over(&mut self, id: u64, n: usize, now: u64) {
        if self.attempt_mut(id, n).is_none_or(|attempt| attempt.hold.is_none()) {
            return;
        }
        if let Some(attempt) = self.take_attempt(id, n, now) {
            self.sums.kills += 1;
            let size = self.size_reached(&attempt);
            self.decides(n, &SlotAttempt { size, ..attempt }, Fate::Own, false);
        }
    }

    /// Gives more to the held attempts for which there is room, the longest held first. Where all on a node are held, some give way at
    /// once. True when something came free.
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

    /// Attempts give way to one that is held, one after the other until it grows. False when none does.
    pub(super) fn evict_for(&mut self, n: usize, now: u64) -> bool {
        let mut any = false;
        while let Some(evicted) = self.to_evict(n, now) {
            any = true;
            self.evict(evicted, now);
            self.grow(n, now);
        }
        any
    }

    /// The next to give way: another one on the node, or the held one itself where another is held beside it and less work is lost.
    fn to_evict(&self, n: usize, now: u64) -> Option<usize> {
        let host = self.host_of(n)?;
        let other = self.candidates(n, now).into_iter().filter(|one| one.who != n).collect::<Vec<_>>();
        let other = choose(&other, self.needed(n)?.1).cloned();
        let second = self.held.iter().copied().find(|held| *held != n && self.host_of(*held) == Some(host));
        let own = second.and_then(|second| {
            let own: Vec<_> = self.candidates(second, now).into_iter().filter(|one| one.who == n).collect();
            choose(&own, self.needed(second)?.1).cloned()
        });
        cheaper(other, own, |one| one.lost).map(|one| one.who)
    }

    /// Attempts on the node of a held one, the oldest first, each with the memory that it would free for that one.
    fn candidates(&self, n: usize, now: u64) -> Vec<Candidate<usize>> {
        let Some(id) = self.at.get(&n) else { return Vec::new() };
        let host = self.host_of(n);
        let mut there: Vec<(u64, Candidate<usize>)> = Vec::new();
        for (other, container) in self.boxes.iter().filter(|(_, container)| Some(container.host) == host) {
            let alone = container.attempts.len() == 1;
            for (task, attempt) in &container.attempts {
                let frees = match (other == id, alone) {
                    (true, _) => container.freed_by(attempt),
                    (false, true) => container.memory,
                    // The others in its container keep the memory of their slots.
                    (false, false) => continue,
                };
                let lost = Duration::from_micros(now - attempt.began);
                let gave_way = self.evicted.contains(task);
                there.push((attempt.began, Candidate { who: *task, lost, frees, gave_way }));
            }
        }
        there.sort_by_key(|(began, one)| (*began, one.who));
        there.into_iter().map(|(_, one)| one).collect()
    }

    fn host_of(&self, n: usize) -> Option<usize> {
        self.at.get(&n).and_then(|id| self.boxes.get(id)).map(|container| container.host)
    }

    /// True where something held must not find the room of this node taken.
    pub(super) fn has_held(&self, host: usize) -> bool {
        self.held.iter().any(|n| self.host_of(*n) == Some(host))
    }

    /// Takes an attempt out of its container, which gives back what it does not need any longer.
    pub(super) fn take_attempt(&mut self, id: u64, n: usize, now: u64) -> Option<SlotAttempt> {
        let container = self.boxes.get_mut(&id)?;
        let attempt = container.attempts.remove(&n)?;
        let (needs, place) = (container.needs(), container.place);
        self.held.retain(|held| *held != n);
        self.sums.held_s += attempt.hold.map_or(0.0, |hold| seconds(now - hold.since));
        self.leaves(n);
        match place {
            Place::Own if self.growth => self.close(id, now),
            // It is closed with the idle ones.
            Place::Own => {}
            Place::Shared => self.shrink(id, needs, now),
        }
        Some(attempt)
    }

    /// Grows a held attempt if there is room. True when something came free: it is killed because it can have no more.
    fn grow(&mut self, n: usize, now: u64) -> bool {
        let Some((id, needs)) = self.needed(n) else { return false };
        let Some((profile, steps)) = self.wanted(id, n) else {
            self.on_hold_over(id, n, now);
            return true;
        };
        if !needs.is_zero() && !self.enlarge(id, needs, now) {
            return false;
        }
        let Some(attempt) = self.attempt_mut(id, n) else { return false };
        let Some(hold) = attempt.hold.take() else { return false };
        attempt.extra = attempt.extra.saturating_add(profile.memory().saturating_sub(attempt.size.memory()));
        attempt.size.profile = profile;
        attempt.grown += steps;
        let number = attempt.try_;
        self.held.retain(|held| *held != n);
        self.sums.grown += u64::try_from(steps).unwrap_or(u64::MAX);
        self.sums.held_s += seconds(now - hold.since);
        self.schedule(n, number, now, hold.step);
        false
    }

    /// The container of a held attempt, and the memory that is missing there: beyond what is spare in it.
    fn needed(&self, n: usize) -> Option<(u64, Bytes)> {
        let id = *self.at.get(&n)?;
        let container = self.boxes.get(&id)?;
        let attempt = container.attempts.get(&n).filter(|attempt| attempt.hold.is_some())?;
        let more = self.wanted(id, n).map_or(Bytes::ZERO, |(profile, _)| profile.memory().saturating_sub(attempt.size.memory()));
        Some((id, more.saturating_sub(container.spare())))
    }

    /// The size that holds what a held attempt uses, with the steps of the policy up to it; `None` where it has no more.
    fn wanted(&self, id: u64, n: usize) -> Option<(Profile, usize)> {
        let attempt = self.boxes.get(&id)?.attempts.get(&n)?;
        let used = self.use_at(n, attempt.hold?.step)?;
        let (mut profile, mut steps) = (attempt.size.profile.clone(), 0);
        while profile.memory() < used {
            let (runtime, cap) = (Runtime::Native, self.cap());
            let pressed = Pressed { mode: self.mode, profile: &profile, runtime, cap, steps: attempt.grown + steps };
            profile = grow::next(&pressed).ok()?;
            steps += 1;
        }
        Some((profile, steps))
    }

    /// True when all attempts on the node of a held one, at least two, are held for the memory of each other.
    fn stands_still(&self, n: usize) -> bool {
        let Some(host) = self.host_of(n) else { return false };
        let there = || self.boxes.values().filter(|b| b.host == host).flat_map(|b| b.attempts.values());
        there().count() > 1 && there().all(|attempt| attempt.hold.is_some())
    }

    /// None on this node may give way: the newest is left to its limit.
    fn kill_newest(&mut self, n: usize, now: u64) {
        let host = self.host_of(n);
        let there = self.boxes.iter().filter(|(_, container)| Some(container.host) == host);
        let all = there.flat_map(|(id, container)| container.attempts.iter().map(|(task, one)| (one.began, *task, *id)));
        if let Some((_, task, id)) = all.max() {
            self.on_hold_over(id, task, now);
        }
    }

    fn evict(&mut self, n: usize, now: u64) {
        let Some(id) = self.at.get(&n).copied() else { return };
        let Some(attempt) = self.take_attempt(id, n, now) else { return };
        self.sums.evictions += 1;
        self.evicted.insert(n);
        let size = self.size_reached(&attempt);
        self.past.entry(n).or_default().size = Some(size);
        self.again.insert(n);
        if self.boxes.get(&id).is_some_and(|b| b.attempts.is_empty() && b.kept_for.is_none()) {
            self.close(id, now);
        }
    }

    /// The size that an attempt leaves to the next one: what grew in shared slots needs more of them, or a container of its own.
    fn size_reached(&self, attempt: &SlotAttempt) -> Size {
        let (size, set) = (attempt.size.clone(), &self.site.set);
        if attempt.grown == 0 || size.place == Place::Own {
            return size;
        }
        let slots = set.slots_for(size.memory()).max(size.slots);
        if slots <= set.slots { Size { slots, ..size } } else { Size { slots: 1, place: Place::Own, ..size } }
    }

    /// Takes memory of its node for a container. False when there is none.
    fn enlarge(&mut self, id: u64, by: Bytes, now: u64) -> bool {
        let Some(container) = self.boxes.get_mut(&id) else { return false };
        let Some((_, free)) = self.hosts.get_mut(container.host).filter(|(_, free)| *free >= by) else { return false };
        *free = free.saturating_sub(by);
        container.resize(container.memory.saturating_add(by), now);
        true
    }

    fn shrink(&mut self, id: u64, to: Bytes, now: u64) {
        let Some(container) = self.boxes.get_mut(&id).filter(|container| container.memory > to) else { return };
        if let Some((_, free)) = self.hosts.get_mut(container.host) {
            *free = free.saturating_add(container.memory.saturating_sub(to));
        }
        container.resize(to, now);
    }

    /// What a task needs at a step of its use.
    fn use_at(&self, n: usize, step: u32) -> Option<Bytes> {
        Some(self.tasks.get(n)?.peak.mul_ratio(u64::from(step), u64::from(STEPS)))
    }

    fn attempt_mut(&mut self, id: u64, n: usize) -> Option<&mut SlotAttempt> {
        self.boxes.get_mut(&id)?.attempts.get_mut(&n)
    }

    /// Makes the events of an attempt void.
    fn next_try(&mut self, id: u64, n: usize) -> u32 {
        let past = self.past.entry(n).or_default();
        past.tries += 1;
        let number = past.tries;
        if let Some(attempt) = self.attempt_mut(id, n) {
            attempt.try_ = number;
        }
        number
    }

    /// The steps of an attempt after this one, and its end, from now on.
    pub(super) fn schedule(&mut self, n: usize, number: u32, now: u64, after: u32) {
        let Some(task) = self.tasks.get(n) else { return };
        let failures = self.past.get(&n).map_or(0, |past| past.spent.memory);
        let full = task.runtime_s * moment(n, failures);
        let until = |step: u32| full * f64::from(step - after) / f64::from(STEPS);
        for step in after + 1..=STEPS {
            self.events.push(Reverse((now + ticks(until(step)), n, number, SlotEvent::Step(step))));
        }
        let rest = task.runtime_s - full * f64::from(after) / f64::from(STEPS);
        self.events.push(Reverse((now + ticks(rest), n, number, SlotEvent::End)));
    }
}

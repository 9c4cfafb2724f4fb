//! Attempts at their limit in a replay: they grow in place, are frozen until their node has free
//! memory, or are killed.
//!
//! ```text
//!  at the limit ──► the policy allows no more ───────────────────────► killed
//!        │
//!        ├─► its node has free memory ───────────────────────────────► grown
//!        └─► frozen ──► memory becomes free on the node ─────────────► grown
//!              ├─► after half the freeze, or with the whole node frozen:
//!              │   other attempts are evicted ───────────────────────► grown
//!              └─► the freeze ends ──────────────────────────────────► killed
//! ```
//!
//! Memory that becomes free on a node with frozen attempts goes to them before any new attempt
//! starts there.

use std::cmp::Reverse;
use std::time::Duration;

use headroom_types::Bytes;

use super::hold::{CONTENTION_AFTER, FREEZE_TIMEOUT, ReplayHold};
use super::run::{NextAttemptSize, ReplayEvent, ReplayRunState, SizeSource, asks};
use super::ticks::{moment, seconds, ticks};
use crate::policy::contention::{EvictionCandidate, cheaper, choose};

impl ReplayRunState<'_> {
    /// Processes an attempt that has reached its limit.
    pub(super) fn on_limit(&mut self, n: usize, now: u64) {
        let Some((to, steps)) = self.size_to_grow_to(n) else {
            return self.kill(n, now);
        };
        let Some(run) = self.running.get_mut(&n) else {
            return;
        };
        run.hold = Some(ReplayHold {
            to,
            steps,
            since: now,
        });
        let (node, serial) = (run.node, run.serial);
        self.nodes.hold(node, n);
        self.grow_held(node, now);
        if self.nodes.held_on(node).contains(&n) {
            self.sums.frozen += 1;
            self.events.push(Reverse((
                now + CONTENTION_AFTER,
                n,
                serial,
                ReplayEvent::Contention,
            )));
            self.events.push(Reverse((
                now + FREEZE_TIMEOUT,
                n,
                serial,
                ReplayEvent::FreezeTimeout,
            )));
        }
    }

    /// Kills an attempt whose freeze ends without more memory.
    pub(super) fn on_hold_over(&mut self, n: usize, now: u64) {
        if self.running.get(&n).is_some_and(|run| run.hold.is_some()) {
            self.kill(n, now);
        }
    }

    /// Evicts other attempts for one that has been frozen for long.
    pub(super) fn on_contention(&mut self, n: usize, now: u64) {
        let Some(run) = self.running.get(&n).filter(|run| run.hold.is_some()) else {
            return;
        };
        let node = run.node;
        self.evict_for(n, node, now);
        self.grow_held(node, now);
    }

    /// Grows the frozen attempts of a node for which there is free memory, the longest frozen
    /// first. If every attempt is frozen, no memory becomes free by itself: some are evicted at
    /// once or, if none may be, the newest is killed.
    pub(super) fn grow_held(&mut self, node: usize, now: u64) {
        loop {
            for n in self.nodes.held_on(node).to_vec() {
                self.grow(n, now);
            }
            let Some(first) = self.nodes.held_on(node).first().copied() else {
                return;
            };
            if !self.nodes.stands_still(node) {
                return;
            }
            if !self.evict_for(first, node, now) {
                return self.kill_newest(node, now);
            }
        }
    }

    fn kill_newest(&mut self, node: usize, now: u64) {
        let began = |n: &usize| self.running.get(n).map(|run| (run.began, *n));
        if let Some(newest) = self.nodes.held_on(node).iter().copied().max_by_key(began) {
            self.kill(newest, now);
        }
    }

    /// Grows a frozen attempt if its node has the memory.
    fn grow(&mut self, n: usize, now: u64) {
        let (Some(task), Some(run)) = (self.tasks.get(n), self.running.get_mut(&n)) else {
            return;
        };
        let Some(hold) = run
            .hold
            .filter(|hold| self.nodes.grow(run.node, hold.to.saturating_sub(run.size)))
        else {
            return;
        };
        self.nodes.resume(run.node, n);
        self.sums.grown += hold.steps;
        self.sums.frozen_s += hold.seconds(now);
        run.before += run.size.as_gib_f64() * seconds(now - run.resized);
        (run.resized, run.size, run.at_limit, run.hold) = (now, hold.to, false, None);
        let failures = self.next_sizes.get(&n).map_or(0, |next| next.failures);
        let rest = task.runtime_s * (1.0 - moment(n, failures));
        self.events.push(Reverse((
            now + ticks(rest),
            n,
            run.serial,
            ReplayEvent::End,
        )));
    }

    /// Evicts attempts for a frozen one, one after the other until it grows. False when none may be
    /// evicted.
    fn evict_for(&mut self, n: usize, node: usize, now: u64) -> bool {
        let mut any = false;
        while let Some(evicted) = self.to_evict(n, node, now) {
            any = true;
            self.evict(evicted, now);
            self.grow(n, now);
        }
        any
    }

    /// The next attempt to evict: another one on the node, or the frozen one itself if another is
    /// frozen there and less work is lost.
    fn to_evict(&self, n: usize, node: usize, now: u64) -> Option<usize> {
        let candidate = |id: usize| {
            let run = self.running.get(&id)?;
            let lost = Duration::from_micros(now - run.began);
            Some((
                run.began,
                EvictionCandidate {
                    who: id,
                    lost,
                    frees: run.size,
                    gave_way: self.evicted.contains(&id),
                },
            ))
        };
        let mut there: Vec<(u64, EvictionCandidate<usize>)> =
            self.nodes.running_on(node).filter_map(candidate).collect();
        there.sort_by_key(|(began, one)| (*began, one.who));
        let (own, others): (Vec<_>, Vec<_>) = there
            .into_iter()
            .map(|(_, one)| one)
            .partition(|one| one.who == n);
        let other = choose(&others, self.missing(n, node)?);
        let second = self
            .nodes
            .held_on(node)
            .iter()
            .copied()
            .find(|held| *held != n);
        let own = second.and_then(|second| choose(&own, self.missing(second, node)?));
        cheaper(other, own, |one| one.lost).map(|one| one.who)
    }

    /// Memory that a frozen attempt needs beyond the free memory of its node.
    fn missing(&self, n: usize, node: usize) -> Option<Bytes> {
        let run = self.running.get(&n)?;
        Some(
            run.hold?
                .to
                .saturating_sub(run.size)
                .saturating_sub(self.nodes.free_on(node)),
        )
    }

    /// Ends an attempt; its task waits for a container elsewhere, with the size that it had
    /// reached.
    fn evict(&mut self, n: usize, now: u64) {
        let Some(run) = self.leave(n, now) else {
            return;
        };
        self.sums.evictions += 1;
        self.evicted.insert(n);
        let failures = self.next_sizes.get(&n).map_or(0, |next| next.failures);
        self.next_sizes.insert(
            n,
            NextAttemptSize {
                size: run.size,
                failures,
            },
        );
        self.wait_again(n, now);
    }

    /// A size that is enough, with the growth steps up to it; `None` if the policy allows no more.
    fn size_to_grow_to(&mut self, n: usize) -> Option<(Bytes, u64)> {
        let whole = self.nodes.memory();
        let (task, run) = (self.tasks.get(n)?, self.running.get(&n)?);
        let SizeSource::Mode(giver) = &mut self.sizes else {
            return None;
        };
        if !self.growth {
            return None;
        }
        let (mut size, mut steps) = (run.size, 0);
        while task.peak > size {
            steps += 1;
            size = giver.grown(&asks(task), size, whole)?;
        }
        Some((size, steps))
    }
}

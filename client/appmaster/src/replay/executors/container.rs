//! The containers of a replay with shared executors, and the attempts in their slots.

use std::collections::BTreeMap;

use headroom_types::Bytes;

use super::super::run::seconds;
use crate::policy::{Place, Size};

/// A container: an executor of several slots, or one for a single task.
#[derive(Debug)]
pub(super) struct ReplayContainer {
    /// Its node.
    pub(super) host: usize,
    /// What it has now.
    pub(super) memory: Bytes,
    /// What it had at first.
    base: Bytes,
    /// Since when it has this memory. Ticks.
    resized: u64,
    /// What it had before, times how long. GiB·s.
    before: f64,
    pub(super) slots: u32,
    /// Memory of a slot; zero in a container for one task.
    share: Bytes,
    pub(super) place: Place,
    /// Attempts in its slots, by task.
    pub(super) attempts: BTreeMap<usize, SlotAttempt>,
    /// Nothing new starts in it but this task.
    pub(super) kept_for: Option<usize>,
}

impl ReplayContainer {
    /// A container on this node; `share` is the memory of one of its slots.
    pub(super) fn new(host: usize, memory: Bytes, (slots, share): (u32, Bytes), place: Place, now: u64) -> Self {
        let attempts = BTreeMap::new();
        ReplayContainer { host, memory, base: memory, resized: now, before: 0.0, slots, share, place, attempts, kept_for: None }
    }
    /// Slots that are free and have their memory: attempts that grew may have taken that of others.
    pub(super) fn free(&self) -> u32 {
        let borrowed = self.extra().saturating_sub(self.enlarged());
        if self.share.is_zero() || borrowed.is_zero() {
            return self.empty();
        }
        self.empty().saturating_sub(u32::try_from(borrowed.div_ceil(self.share)).unwrap_or(u32::MAX))
    }
    /// Memory that the attempts in it are charged with.
    pub(super) fn used(&self) -> Bytes {
        self.attempts.values().fold(Bytes::ZERO, |sum, attempt| sum.saturating_add(attempt.charged))
    }
    /// Memory that could be given to an attempt in it.
    pub(super) fn spare(&self) -> Bytes {
        self.enlarged().saturating_add(self.share.mul_ratio(u64::from(self.empty()), 1)).saturating_sub(self.extra())
    }
    /// Memory that would be spare if this attempt were not in it.
    pub(super) fn freed_by(&self, attempt: &SlotAttempt) -> Bytes {
        self.share.mul_ratio(u64::from(attempt.size.slots), 1).saturating_add(attempt.extra)
    }
    /// Memory that it needs for what was given to its attempts.
    pub(super) fn needs(&self) -> Bytes {
        self.base.saturating_add(self.extra())
    }
    /// Changes its memory.
    pub(super) fn resize(&mut self, to: Bytes, now: u64) {
        self.before = self.gib_s(now);
        (self.memory, self.resized) = (to, now);
    }
    /// Memory that it had, times how long. GiB·s.
    pub(super) fn gib_s(&self, now: u64) -> f64 {
        self.before + self.memory.as_gib_f64() * seconds(now - self.resized)
    }
    fn empty(&self) -> u32 {
        self.slots.saturating_sub(self.attempts.values().map(|attempt| attempt.size.slots).sum())
    }
    fn extra(&self) -> Bytes {
        self.attempts.values().fold(Bytes::ZERO, |sum, attempt| sum.saturating_add(attempt.extra))
    }
    fn enlarged(&self) -> Bytes {
        self.memory.saturating_sub(self.base)
    }
}

/// An attempt in slots of a container.
#[derive(Clone, Debug)]
pub(super) struct SlotAttempt {
    /// Its size now.
    pub(super) size: Size,
    /// Its number; it changes when the attempt is held, so that events from before are void.
    pub(super) try_: u32,
    /// What it is charged with.
    pub(super) charged: Bytes,
    /// When it started. Ticks.
    pub(super) began: u64,
    /// What it was given while it ran.
    pub(super) extra: Bytes,
    /// How often.
    pub(super) grown: usize,
    /// It is held at its limit.
    pub(super) hold: Option<SlotHold>,
}

/// An attempt is held at its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotHold {
    /// Since when. Ticks.
    pub(super) since: u64,
    /// The step of its use that does not fit.
    pub(super) step: u32,
}

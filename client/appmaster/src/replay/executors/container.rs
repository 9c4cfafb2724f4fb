//! Containers of a replay with shared executors, and the attempts in their slots.

use std::collections::BTreeMap;

use headroom_types::Bytes;

use super::super::ticks::seconds;
use crate::policy::{AttemptPlace, AttemptSize};

/// A container: an executor with several slots, or one for a single task.
#[derive(Debug)]
pub(super) struct ReplayContainer {
    /// Index of its node.
    pub(super) host: usize,
    /// Current memory.
    pub(super) memory: Bytes,
    /// Initial memory.
    base: Bytes,
    /// Time of its last change of memory. Ticks.
    resized: u64,
    /// Memory over time before that change. GiB·s.
    before: f64,
    pub(super) slots: u32,
    /// Memory of a slot; zero in a container for one task.
    share: Bytes,
    pub(super) place: AttemptPlace,
    /// Attempts in its slots, by task.
    pub(super) attempts: BTreeMap<usize, SlotAttempt>,
    /// The only task that may start in it, if it is reserved.
    pub(super) kept_for: Option<usize>,
}

impl ReplayContainer {
    /// A container on this node; `share` is the memory of one of its slots.
    pub(super) fn new(
        host: usize,
        memory: Bytes,
        (slots, share): (u32, Bytes),
        place: AttemptPlace,
        now: u64,
    ) -> Self {
        let attempts = BTreeMap::new();
        ReplayContainer {
            host,
            memory,
            base: memory,
            resized: now,
            before: 0.0,
            slots,
            share,
            place,
            attempts,
            kept_for: None,
        }
    }
    /// Free slots whose memory is available: attempts that grew may use the memory of other slots.
    pub(super) fn free(&self) -> u32 {
        let borrowed = self.extra().saturating_sub(self.enlarged());
        if self.share.is_zero() || borrowed.is_zero() {
            return self.empty();
        }
        self.empty()
            .saturating_sub(u32::try_from(borrowed.div_ceil(self.share)).unwrap_or(u32::MAX))
    }
    /// Memory that is charged for its attempts.
    pub(super) fn used(&self) -> Bytes {
        self.attempts.values().fold(Bytes::ZERO, |sum, attempt| {
            sum.saturating_add(attempt.charged)
        })
    }
    /// Memory that is available for growth of its attempts.
    pub(super) fn spare(&self) -> Bytes {
        self.enlarged()
            .saturating_add(self.share.mul_ratio(u64::from(self.empty()), 1))
            .saturating_sub(self.extra())
    }
    /// Memory that would be available without this attempt.
    pub(super) fn freed_by(&self, attempt: &SlotAttempt) -> Bytes {
        self.share
            .mul_ratio(u64::from(attempt.size.slots), 1)
            .saturating_add(attempt.extra)
    }
    /// Memory that it needs for its attempts.
    pub(super) fn needs(&self) -> Bytes {
        self.base.saturating_add(self.extra())
    }
    /// Changes its memory.
    pub(super) fn resize(&mut self, to: Bytes, now: u64) {
        self.before = self.gib_s(now);
        (self.memory, self.resized) = (to, now);
    }
    /// Memory over time. GiB·s.
    pub(super) fn gib_s(&self, now: u64) -> f64 {
        self.before + self.memory.as_gib_f64() * seconds(now - self.resized)
    }
    fn empty(&self) -> u32 {
        self.slots.saturating_sub(
            self.attempts
                .values()
                .map(|attempt| attempt.size.slots)
                .sum(),
        )
    }
    fn extra(&self) -> Bytes {
        self.attempts.values().fold(Bytes::ZERO, |sum, attempt| {
            sum.saturating_add(attempt.extra)
        })
    }
    fn enlarged(&self) -> Bytes {
        self.memory.saturating_sub(self.base)
    }
}

/// An attempt in the slots of a container.
#[derive(Clone, Debug)]
pub(super) struct SlotAttempt {
    /// Current size.
    pub(super) size: AttemptSize,
    /// Number of the try; it changes when the attempt is frozen, which invalidates earlier events.
    pub(super) try_: u32,
    /// Charged memory.
    pub(super) charged: Bytes,
    /// Start time. Ticks.
    pub(super) began: u64,
    /// Memory that it got while it ran.
    pub(super) extra: Bytes,
    /// Number of growth steps.
    pub(super) grown: usize,
    /// Set while it is frozen at its limit.
    pub(super) hold: Option<AttemptFreeze>,
}

/// The freeze of an attempt at its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptFreeze {
    /// Start of the freeze. Ticks.
    pub(super) since: u64,
    /// The step of its use that exceeds the limit.
    pub(super) step: u32,
}

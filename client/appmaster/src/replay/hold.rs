//! The freeze of an attempt at its limit in a replay, and the limits of its duration. The running
//! attempt owns it.

use headroom_types::Bytes;

use super::ticks::seconds;

/// Maximum freeze of an attempt: the default of a stage. Ticks.
pub(super) const FREEZE_TIMEOUT: u64 = 30_000_000;
/// Part of the freeze after which other attempts are evicted. Ticks.
pub(super) const CONTENTION_AFTER: u64 = FREEZE_TIMEOUT / 2;

/// The freeze of an attempt at its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayHold {
    /// The size that it needs.
    pub(super) to: Bytes,
    /// Growth steps up to that size.
    pub(super) steps: u64,
    /// Start of the freeze. Ticks.
    pub(super) since: u64,
}

impl ReplayHold {
    /// Duration so far. Seconds.
    pub(super) fn seconds(self, now: u64) -> f64 {
        seconds(now - self.since)
    }
}

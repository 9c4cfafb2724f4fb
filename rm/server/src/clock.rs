//! The only clock of the resource manager.

use std::time::{Duration, Instant, SystemTime};

use headroom_types::{Tick, UnixMillis};

/// Monotonic time since the start of this incarnation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagerClock {
    start: Instant,
    unix_at_zero: UnixMillis,
}

impl ManagerClock {
    /// Starts the clock at tick 0.
    pub(crate) fn start() -> Self {
        ManagerClock {
            start: Instant::now(),
            unix_at_zero: SystemTime::now().into(),
        }
    }
    /// Current tick.
    pub(crate) fn now(self) -> Tick {
        Tick(0).plus(self.start.elapsed())
    }
    /// Wall-clock time at tick 0. Wall-clock time is derived from it, so that it never decreases
    /// within an incarnation.
    pub(crate) fn unix_at_zero(self) -> UnixMillis {
        self.unix_at_zero
    }
    /// Current wall-clock time.
    pub(crate) fn unix_now(self) -> UnixMillis {
        UnixMillis(self.unix_at_zero.0.saturating_add(self.now().0))
    }
    /// Runtime instant of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

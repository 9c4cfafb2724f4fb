//! The only clock of the resource manager.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_types::{Tick, UnixMillis};

/// Monotonic time since the start of this life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    unix_at_zero: UnixMillis,
}

impl Clock {
    /// Starts to count.
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), unix_at_zero: UnixMillis(millis(unix)) }
    }
    /// Now.
    pub(crate) fn now(self) -> Tick {
        Tick(millis(self.start.elapsed()))
    }
    /// Wall-clock time at tick 0. Time of day is counted on from there, so that it never goes back within a life.
    pub(crate) fn unix_at_zero(self) -> UnixMillis {
        self.unix_at_zero
    }
    /// Time of day.
    pub(crate) fn unix_now(self) -> UnixMillis {
        UnixMillis(self.unix_at_zero.0.saturating_add(self.now().0))
    }
    /// The moment of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

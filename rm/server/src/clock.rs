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
    /// Wall-clock time of the host, which other hosts share: for the lifetimes of tokens and
    /// certificates. It follows corrections of the host's clock, and counts the time for which the
    /// host was suspended.
    pub(crate) fn host_time(self) -> UnixMillis {
        SystemTime::now().into()
    }
    /// Runtime instant of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_the_host_follows_a_corrected_clock() {
        let begin = SystemTime::now().into();
        let clock = ManagerClock {
            unix_at_zero: UnixMillis(0),
            ..ManagerClock::start()
        };
        assert!(clock.host_time() >= begin, "{:?}", clock.host_time());
        assert!(clock.unix_now() < begin, "{:?}", clock.unix_now());
    }
}

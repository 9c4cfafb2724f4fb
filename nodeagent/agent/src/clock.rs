//! The clock of the agent. No other module reads the time of the loop.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_types::{Tick, UnixMillis};

/// Monotonic time since the agent started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentClock {
    start: Instant,
}

impl AgentClock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        AgentClock {
            start: Instant::now(),
        }
    }
    /// The current time.
    pub(crate) fn now(self) -> Tick {
        Tick(millis(self.start.elapsed()))
    }
    /// The instant of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

/// The current wall-clock time, for records that outlive the agent.
pub(crate) fn unix_now() -> UnixMillis {
    UnixMillis(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(millis)
            .unwrap_or_default(),
    )
}

/// The wall-clock time of a file, for API responses.
pub(crate) fn unix_of(time: SystemTime) -> UnixMillis {
    UnixMillis(
        time.duration_since(UNIX_EPOCH)
            .map(millis)
            .unwrap_or_default(),
    )
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

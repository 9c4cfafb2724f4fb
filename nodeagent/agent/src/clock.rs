//! The clock of the agent. No other module reads the time of the loop.

use std::time::{Duration, Instant, SystemTime};

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
        Tick(0).plus(self.start.elapsed())
    }
    /// The instant of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

/// The current wall-clock time, for records that outlive the agent.
pub(crate) fn unix_now() -> UnixMillis {
    SystemTime::now().into()
}

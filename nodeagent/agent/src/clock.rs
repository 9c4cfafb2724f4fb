//! The only clock of the agent.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_types::{Tick, UnixMillis};

/// Monotonic time since the agent started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts to count.
    pub(crate) fn start() -> Self {
        Clock { start: Instant::now() }
    }
    /// Now.
    pub(crate) fn now(self) -> Tick {
        Tick(millis(self.start.elapsed()))
    }
    /// The moment of `tick`.
    pub(crate) fn instant(self, tick: Tick) -> tokio::time::Instant {
        (self.start + Duration::from_millis(tick.0)).into()
    }
}

/// Now, for records that outlive the agent.
pub(crate) fn unix_now() -> UnixMillis {
    UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).map(millis).unwrap_or_default())
}

/// A file's time, for those who ask for it.
pub(crate) fn unix_of(time: SystemTime) -> UnixMillis {
    UnixMillis(time.duration_since(UNIX_EPOCH).map(millis).unwrap_or_default())
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

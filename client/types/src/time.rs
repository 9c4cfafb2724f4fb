//! Time as data. Cores receive the time as a parameter and never read a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A time in whole milliseconds; saturates.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Monotonic milliseconds since the owner of the loop started. Not comparable between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment `after` later; saturates.
    pub fn plus(self, after: Duration) -> Tick {
        Tick(self.0.saturating_add(millis(after)))
    }
    /// The time since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since 1970-01-01 UTC, for records that outlive a process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl From<SystemTime> for UnixMillis {
    /// A time before 1970 becomes zero.
    fn from(time: SystemTime) -> UnixMillis {
        UnixMillis(time.duration_since(UNIX_EPOCH).map_or(0, millis))
    }
}

impl UnixMillis {
    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

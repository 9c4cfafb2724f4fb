//! Time as data. Cores are told the time; they never ask.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Monotonic milliseconds since the owner of the loop started. Not comparable between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment `after` later; saturates.
    pub fn plus(self, after: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
    }
    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since 1970-01-01 UTC, for records that outlive a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// How long after `earlier` this is; zero when it is before.
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

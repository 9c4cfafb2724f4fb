//! The only clock of the executor that tells the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use headroom_types::UnixMillis;

/// Now.
pub fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

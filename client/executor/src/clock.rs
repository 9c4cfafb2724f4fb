//! The only wall clock of the executor.

use std::time::{SystemTime, UNIX_EPOCH};

use headroom_types::UnixMillis;

/// The current time.
pub fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

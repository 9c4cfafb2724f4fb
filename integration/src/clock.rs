//! The wall clock in nanoseconds, and a bounded wait, for the programs of this package.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970-01-01 UTC (CLOCK_REALTIME), comparable between processes of one machine.
pub fn realtime_nanos() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos())
}

/// Waits between two polls of a condition that has no event.
pub fn pause(time: Duration) {
    let time = rustix::event::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    // A signal can end the wait early; the caller then polls sooner.
    let _ = rustix::event::poll(&mut [], Some(&time));
}

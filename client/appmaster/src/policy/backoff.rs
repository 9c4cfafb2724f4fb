//! The wait after failures. A pure function of their number.

use std::time::Duration;

/// The wait after failures: 1 s after the first, doubled after each further one, at most 30 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(30))
}

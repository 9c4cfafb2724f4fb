//! Sees a program that is stuck at its limit: nothing can be taken from it, and it reads its own pages again for ever.
//!
//! Owned by whoever samples a group. The kernel may leave such a program alone for minutes, because reclaim does make progress:
//! of pages that are needed again at once. A program that merely reads a lot of files at its limit is not stuck; what tells them
//! apart is that here almost everything is memory that cannot be given back.

use std::time::Duration;

use headroom_types::exit::MemoryStat;
use headroom_types::{Bytes, Tick};

/// How long it must last.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Pages read again a second from which on it is no accident; measured while stuck: 118,000 and more.
pub const REFAULTS: u64 = 10_000;
/// In use, of the limit. Per cent.
const AT_LIMIT: u64 = 97;
/// Not to be given back, of the limit. Per cent.
const DEMAND: u64 = 80;

/// Watches one group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    before: Option<(Tick, u64)>,
    since: Option<Tick>,
}

impl Stall {
    /// Takes in one sample; true when it has been stuck for [`PATIENCE`].
    pub fn is_stuck(&mut self, now: Tick, current: Bytes, limit: Bytes, stat: &MemoryStat) -> bool {
        let Some(refaults) = stat.workingset_refault_file else { return false };
        let rate = self.rate(now, refaults);
        let full = current >= limit.mul_ratio(AT_LIMIT, 100);
        let held = stat.demand().is_some_and(|demand| demand >= limit.mul_ratio(DEMAND, 100));
        if rate < REFAULTS || !full || !held {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.since(since) >= PATIENCE
    }

    fn rate(&mut self, now: Tick, refaults: u64) -> u64 {
        let before = self.before.replace((now, refaults));
        let Some((then, count)) = before else { return 0 };
        let ms = u64::try_from(now.since(then).as_millis()).unwrap_or(u64::MAX).max(1);
        refaults.saturating_sub(count).saturating_mul(1000) / ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes::from_mib(256);

    fn stat(anon: u64, refaults: u64) -> MemoryStat {
        MemoryStat { anon: Some(Bytes::from_mib(anon)), workingset_refault_file: Some(refaults), ..MemoryStat::default() }
    }

    /// Feeds `seconds` of samples at 4 Hz and says when it was first seen as stuck. Milliseconds.
    fn stuck_at(current: u64, anon: u64, a_second: u64, seconds: u64) -> Option<u64> {
        let mut s = Stall::default();
        (0..seconds * 4)
            .map(|i| i * 250)
            .find(|ms| s.is_stuck(Tick(*ms), Bytes::from_mib(current), LIMIT, &stat(anon, a_second * ms / 1000)))
    }

    #[test]
    fn a_full_heap_without_room_for_its_code_is_stuck_after_the_patience() {
        assert_eq!(stuck_at(256, 240, 120_000, 20), Some(5250), "the first rate is known with the second sample");
    }

    #[test]
    fn readers_of_large_files_and_programs_below_the_limit_are_not() {
        assert_eq!(stuck_at(256, 20, 150_000, 60), None, "page cache can be given back");
        assert_eq!(stuck_at(200, 190, 150_000, 60), None, "not at its limit");
        assert_eq!(stuck_at(256, 240, 500, 60), None, "few refaults");
    }

    #[test]
    fn a_moment_of_rest_starts_the_patience_anew() {
        let mut s = Stall::default();
        let mut count = 0;
        for i in 0..80u64 {
            count += if i % 16 == 15 { 0 } else { 30_000 };
            assert!(!s.is_stuck(Tick(i * 250), LIMIT, LIMIT, &stat(240, count)), "sample {i}");
        }
    }
}

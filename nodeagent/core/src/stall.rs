//! Detects a program that is stalled at its limit: it reads its own pages again and again.
//!
//! The sampler of a group owns it. The kernel may leave such a program alone for minutes, because
//! reclaim makes progress with pages that are needed again at once. A program that only reads many
//! files at its limit, as every long-running reader does, must not match. Three conditions together
//! separate the two:
//!
//! - almost all its memory cannot be reclaimed;
//! - the little that is left for file pages was read again as a whole;
//! - the program *waited* for such pages while it ran, which counts as a major fault (a `read` does
//!   not).
//!
//! All three are counted over one window, because a slow or busy disk makes a stalled program slow,
//! but not free.

use std::collections::VecDeque;
use std::time::Duration;

use headroom_types::exit::MemoryStat;
use headroom_types::{Bytes, Tick, millis};

/// Minimum duration of a stall. With the samples around it and the end itself, the report exists
/// within five seconds.
pub const MIN_STALL_DURATION: Duration = Duration::from_secs(3);
/// Minimum number of file pages read again in that time. A quick disk showed 118,000 per second in
/// a stall.
pub const REFAULTS: u64 = 1_500;
/// Minimum number of major faults in that time. Measured stalls had 110 per second and more.
pub const MAJOR_FAULTS: u64 = 15;
/// Time without pages read again after which a stall counts as over. A stalled runtime still
/// computes for some tenths of a second during a collection.
const REST: Duration = Duration::from_secs(1);
/// Minimum use, as a share of the limit. In percent.
const AT_LIMIT: u64 = 97;
/// Minimum memory that cannot be reclaimed, as a share of the limit. In percent.
const DEMAND: u64 = 80;
/// The usual page size. In bytes.
const PAGE: u64 = 4096;
/// Maximum number of samples in the window. More frequent samples shorten the window and never
/// lengthen it.
const LOOKS: usize = 64;

/// One sample of a group.
#[derive(Clone, Copy, Debug)]
pub struct StallSample<'a> {
    /// The time of the sample.
    pub now: Tick,
    /// Memory in use.
    pub current: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// Memory by kind.
    pub stat: &'a MemoryStat,
    /// Major faults so far; `None` where the kernel does not report them.
    pub major_faults: Option<u64>,
}

/// Counters of one sample.
#[derive(Clone, Copy, Debug)]
struct StallCounters {
    at: Tick,
    refaults: u64,
    faults: u64,
}

/// The detector of one group.
#[derive(Clone, Debug, Default)]
pub struct StallDetector {
    /// The samples since the group became full, oldest first.
    window: VecDeque<StallCounters>,
}

/// True when memory that cannot be reclaimed fills the group so far that it could stall. The major
/// faults are read only then.
pub fn is_tight(current: Bytes, limit: Bytes, stat: &MemoryStat) -> bool {
    let held = stat
        .demand()
        .is_some_and(|demand| demand >= limit.mul_ratio(DEMAND, 100));
    held && current >= limit.mul_ratio(AT_LIMIT, 100)
}

impl StallDetector {
    /// Applies one sample. Returns true when the group has been stalled for [`MIN_STALL_DURATION`].
    pub fn is_stuck(&mut self, look: &StallSample<'_>) -> bool {
        let tight = is_tight(look.current, look.limit, look.stat);
        let counts = look.stat.workingset_refault_file.zip(look.major_faults);
        let Some((refaults, faults)) = counts.filter(|_| tight) else {
            self.window.clear();
            return false;
        };
        let now = StallCounters {
            at: look.now,
            refaults,
            faults,
        };
        let before = self
            .window
            .iter()
            .rev()
            .find(|seen| look.now.since(seen.at) >= REST);
        if before.is_some_and(|before| is_rest(before, &now)) {
            self.window.clear();
        }
        self.window.push_back(now);
        // The comparison uses the newest sample that is at least [`MIN_STALL_DURATION`] old.
        while self.window.len() > LOOKS
            || self
                .window
                .get(1)
                .is_some_and(|next| look.now.since(next.at) >= MIN_STALL_DURATION)
        {
            self.window.pop_front();
        }
        let Some(then) = self
            .window
            .front()
            .filter(|then| look.now.since(then.at) >= MIN_STALL_DURATION)
        else {
            return false;
        };
        // The number of file pages that fit into the rest of the limit.
        let left = look
            .limit
            .saturating_sub(look.stat.demand().unwrap_or_default())
            .get()
            / PAGE;
        refaults.saturating_sub(then.refaults) >= left.max(REFAULTS)
            && faults.saturating_sub(then.faults) >= MAJOR_FAULTS
    }
}

/// True when almost no page was read again since that sample.
fn is_rest(before: &StallCounters, now: &StallCounters) -> bool {
    let ms = millis(now.at.since(before.at));
    let min_ms = millis(MIN_STALL_DURATION);
    // The threshold is a tenth of the rate that counts as a stall.
    now.refaults
        .saturating_sub(before.refaults)
        .saturating_mul(10)
        .saturating_mul(min_ms)
        < REFAULTS.saturating_mul(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes::from_mib(256);

    fn stat(anon: u64, refaults: u64) -> MemoryStat {
        MemoryStat {
            anon: Some(Bytes::from_mib(anon)),
            workingset_refault_file: Some(refaults),
            ..MemoryStat::default()
        }
    }

    fn look(
        s: &mut StallDetector,
        ms: u64,
        current: u64,
        stat: &MemoryStat,
        faults: Option<u64>,
    ) -> bool {
        s.is_stuck(&StallSample {
            now: Tick(ms),
            current: Bytes::from_mib(current),
            limit: LIMIT,
            stat,
            major_faults: faults,
        })
    }

    /// Feeds a minute of samples at 4 Hz and returns the time of the first stall. In milliseconds.
    fn stuck_at(current: u64, anon: u64, refaults: u64, faults: u64) -> Option<u64> {
        let mut s = StallDetector::default();
        let counted = |a_second: u64, ms: u64| a_second * ms / 1000;
        (0..240).map(|i| i * 250).find(|ms| {
            look(
                &mut s,
                *ms,
                current,
                &stat(anon, counted(refaults, *ms)),
                Some(counted(faults, *ms)),
            )
        })
    }

    #[test]
    fn a_full_heap_without_memory_for_code_stalls_after_the_timeout() {
        assert_eq!(stuck_at(256, 240, 120_000, 110), Some(3000));
        assert_eq!(
            stuck_at(256, 240, 2_000, 6),
            Some(3000),
            "on a slow disk: the memory for files was replaced once"
        );
    }

    #[test]
    fn readers_of_large_files_and_programs_below_the_limit_do_not_stall() {
        assert_eq!(
            stuck_at(256, 20, 150_000, 200),
            None,
            "page cache can be reclaimed"
        );
        assert_eq!(
            stuck_at(200, 190, 150_000, 200),
            None,
            "the use is below the limit"
        );
        assert_eq!(stuck_at(256, 240, 100, 200), None, "few refaults");
        assert_eq!(
            stuck_at(256, 220, 40_000, 0),
            None,
            "a large heap and files that are read again, without waits for its own pages"
        );
    }

    #[test]
    fn a_kernel_without_wait_counters_is_supported() {
        let mut s = StallDetector::default();
        assert!((0..80).all(|i| !look(&mut s, i * 250, 256, &stat(240, i * 30_000), None)));
        let silent = MemoryStat {
            anon: Some(Bytes::from_mib(240)),
            ..MemoryStat::default()
        };
        assert!((0..80).all(|i| !look(&mut s, i * 250, 256, &silent, Some(i * 100))));
    }

    #[test]
    fn a_second_without_reads_restarts_the_timeout() {
        let (mut s, mut count) = (StallDetector::default(), 0);
        for i in 0..80u64 {
            count += if i % 12 >= 7 { 0 } else { 30_000 };
            assert!(
                !look(&mut s, i * 250, 256, &stat(240, count), Some(count)),
                "sample {i}"
            );
        }
    }

    /// Measured values of a JVM without memory for its own code, on a busy machine.
    #[test]
    fn a_stall_with_pauses_for_collections_is_detected() {
        let (mut s, mut count) = (StallDetector::default(), 0);
        let found = (0..20u64).find(|i| {
            count += if i % 3 == 0 { 6_000 } else { 1 };
            look(&mut s, i * 250, 256, &stat(230, count), Some(i * 5))
        });
        assert_eq!(found, Some(12), "3000 ms");
    }

    /// Measured values of a JVM in a guest with a quarter of a processor. It was full for 22 s
    /// during a slow start without reading pages again, and then stalled.
    #[test]
    fn a_slow_start_at_the_limit_is_no_stall_and_a_later_stall_is_found() {
        let (mut s, mut refaults, mut faults) = (StallDetector::default(), 0, 39);
        for i in 0..73u64 {
            refaults += u64::from(i % 4 == 0);
            assert!(
                !look(
                    &mut s,
                    16_152 + i * 290,
                    256,
                    &stat(226, refaults),
                    Some(faults)
                ),
                "look {i}"
            );
        }
        let looks = [
            (38_014, 239, 0, 0),
            (38_315, 239, 258, 11),
            (38_614, 240, 45, 2),
            (38_919, 241, 27, 2),
            (39_203, 241, 57, 4),
            (39_502, 241, 16, 1),
            (39_811, 241, 190, 7),
            (40_109, 241, 187, 10),
            (40_413, 242, 0, 0),
            (40_703, 242, 271, 14),
            (41_003, 243, 602, 32),
            (41_300, 244, 336, 21),
            (41_610, 245, 500, 24),
            (41_903, 246, 358, 16),
            (42_251, 247, 739, 32),
        ];
        let found = looks.into_iter().find(|(ms, anon, read, waited)| {
            (refaults, faults) = (refaults + read, faults + waited);
            look(&mut s, *ms, 256, &stat(*anon, refaults), Some(faults))
        });
        assert_eq!(
            found.map(|(ms, ..)| ms),
            Some(42_251),
            "3.9 s after the first"
        );
    }

    #[test]
    fn late_samples_and_an_uneven_disk_do_not_hide_a_stall() {
        let (mut s, mut count) = (StallDetector::default(), 0);
        let found = (0..20u64).find(|i| {
            count += if i % 2 == 0 { 200 } else { 6_000 };
            look(&mut s, i * 900, 256, &stat(240, count), Some(i * 30))
        });
        assert_eq!(found, Some(4), "3600 ms");
    }
}

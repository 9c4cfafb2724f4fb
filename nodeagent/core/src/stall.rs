//! Sees a program that is stuck at its limit: nothing can be taken from it, and it reads its own pages again for ever.
//!
//! Owned by whoever samples a group. The kernel may leave such a program alone for minutes, because reclaim does make progress:
//! of pages that are needed again at once. Three things together tell it from a program that merely reads a lot of files at its
//! limit, which every long-lived reader comes to: almost everything is memory that cannot be given back; the little that is left
//! for pages of files was read again as a whole; and the program *waited* for such pages as it ran, which counts as a major fault
//! (a `read` does not). All three are counted over one window, because a slow or busy disk makes a stuck program slow, not free.

use std::collections::VecDeque;
use std::time::Duration;

use headroom_types::exit::MemoryStat;
use headroom_types::{Bytes, Tick};

/// How long it must last. With the samples before and after, and the end itself, its report is there within five seconds.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Pages of files read again in that time, at the least: fewer are an accident. While stuck, 118,000 a second were measured on a quick disk.
pub const REFAULTS: u64 = 1_500;
/// Major faults in that time, at the least: 110 a second and more were measured.
pub const MAJOR_FAULTS: u64 = 15;
/// So long without pages read again, and whatever it was, it is over. A runtime that is stuck still computes for some tenths of a second
/// now and then, when it collects.
const REST: Duration = Duration::from_secs(1);
/// In use, of the limit. Per cent.
const AT_LIMIT: u64 = 97;
/// Not to be given back, of the limit. Per cent.
const DEMAND: u64 = 80;
/// The usual page.
const PAGE: u64 = 4096;
/// Most looks that are remembered; more frequent ones make the window shorter than it has to be, never longer.
const LOOKS: usize = 64;

/// What one look at a group found.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// When.
    pub now: Tick,
    /// In use.
    pub current: Bytes,
    /// Its limit.
    pub limit: Bytes,
    /// By kind.
    pub stat: &'a MemoryStat,
    /// Major faults so far; `None` where the kernel does not tell.
    pub major_faults: Option<u64>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Tick,
    refaults: u64,
    faults: u64,
}

/// Watches one group.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    /// While it was full without a break, oldest first.
    window: VecDeque<Seen>,
}

/// Whether a group is so full, of what cannot be given back, that it could be stuck: only then its major faults are of interest.
pub fn is_tight(current: Bytes, limit: Bytes, stat: &MemoryStat) -> bool {
    let held = stat.demand().is_some_and(|demand| demand >= limit.mul_ratio(DEMAND, 100));
    held && current >= limit.mul_ratio(AT_LIMIT, 100)
}

impl Stall {
    /// Takes in one look; true when it has been stuck for [`PATIENCE`].
    pub fn is_stuck(&mut self, look: &Look<'_>) -> bool {
        let tight = is_tight(look.current, look.limit, look.stat);
        let counts = look.stat.workingset_refault_file.zip(look.major_faults);
        let Some((refaults, faults)) = counts.filter(|_| tight) else {
            self.window.clear();
            return false;
        };
        let now = Seen { at: look.now, refaults, faults };
        let before = self.window.iter().rev().find(|seen| look.now.since(seen.at) >= REST);
        if before.is_some_and(|before| is_rest(before, &now)) {
            self.window.clear();
        }
        self.window.push_back(now);
        // The oldest look that is old enough is the one to compare with.
        while self.window.len() > LOOKS || self.window.get(1).is_some_and(|next| look.now.since(next.at) >= PATIENCE) {
            self.window.pop_front();
        }
        let Some(then) = self.window.front().filter(|then| look.now.since(then.at) >= PATIENCE) else { return false };
        // What is left for pages of files, once through.
        let left = look.limit.saturating_sub(look.stat.demand().unwrap_or_default()).get() / PAGE;
        refaults.saturating_sub(then.refaults) >= left.max(REFAULTS) && faults.saturating_sub(then.faults) >= MAJOR_FAULTS
    }
}

/// It read next to nothing again since that look.
fn is_rest(before: &Seen, now: &Seen) -> bool {
    let ms = u64::try_from(now.at.since(before.at).as_millis()).unwrap_or(u64::MAX);
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
    // A tenth of the pace at which it would count.
    now.refaults.saturating_sub(before.refaults).saturating_mul(10).saturating_mul(patience) < REFAULTS.saturating_mul(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes::from_mib(256);

    fn stat(anon: u64, refaults: u64) -> MemoryStat {
        MemoryStat { anon: Some(Bytes::from_mib(anon)), workingset_refault_file: Some(refaults), ..MemoryStat::default() }
    }

    fn look(s: &mut Stall, ms: u64, current: u64, stat: &MemoryStat, faults: Option<u64>) -> bool {
        s.is_stuck(&Look { now: Tick(ms), current: Bytes::from_mib(current), limit: LIMIT, stat, major_faults: faults })
    }

    /// Feeds a minute of samples at 4 Hz and says when it was first seen as stuck. Milliseconds.
    fn stuck_at(current: u64, anon: u64, refaults: u64, faults: u64) -> Option<u64> {
        let mut s = Stall::default();
        let counted = |a_second: u64, ms: u64| a_second * ms / 1000;
        (0..240)
            .map(|i| i * 250)
            .find(|ms| look(&mut s, *ms, current, &stat(anon, counted(refaults, *ms)), Some(counted(faults, *ms))))
    }

    #[test]
    fn a_full_heap_without_room_for_its_code_is_stuck_after_the_patience() {
        assert_eq!(stuck_at(256, 240, 120_000, 110), Some(3000));
        assert_eq!(stuck_at(256, 240, 2_000, 6), Some(3000), "on a slow disk: what is left for files went round once");
    }

    #[test]
    fn readers_of_large_files_and_programs_below_the_limit_are_not() {
        assert_eq!(stuck_at(256, 20, 150_000, 200), None, "page cache can be given back");
        assert_eq!(stuck_at(200, 190, 150_000, 200), None, "not at its limit");
        assert_eq!(stuck_at(256, 240, 100, 200), None, "few refaults");
        assert_eq!(
            stuck_at(256, 220, 40_000, 0),
            None,
            "a large heap beside files that are read again, without waiting on its own pages"
        );
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_believed() {
        let mut s = Stall::default();
        assert!((0..80).all(|i| !look(&mut s, i * 250, 256, &stat(240, i * 30_000), None)));
        let silent = MemoryStat { anon: Some(Bytes::from_mib(240)), ..MemoryStat::default() };
        assert!((0..80).all(|i| !look(&mut s, i * 250, 256, &silent, Some(i * 100))));
    }

    #[test]
    fn a_second_of_rest_starts_the_patience_anew() {
        let (mut s, mut count) = (Stall::default(), 0);
        for i in 0..80u64 {
            count += if i % 12 >= 7 { 0 } else { 30_000 };
            assert!(!look(&mut s, i * 250, 256, &stat(240, count), Some(count)), "sample {i}");
        }
    }

    /// As a JVM was measured that had no room for its own code, on a busy machine.
    #[test]
    fn a_runtime_that_collects_now_and_then_is_stuck_all_the_same() {
        let (mut s, mut count) = (Stall::default(), 0);
        let found = (0..20u64).find(|i| {
            count += if i % 3 == 0 { 6_000 } else { 1 };
            look(&mut s, i * 250, 256, &stat(230, count), Some(i * 5))
        });
        assert_eq!(found, Some(12), "3000 ms");
    }

    /// As a JVM was measured in a guest with a quarter of a processor: full for 22 s while it slowly started, reading nothing again, then stuck.
    #[test]
    fn a_slow_start_at_the_limit_is_not_stuck_and_what_follows_is_found_as_soon_as_elsewhere() {
        let (mut s, mut refaults, mut faults) = (Stall::default(), 0, 39);
        for i in 0..73u64 {
            refaults += u64::from(i % 4 == 0);
            assert!(!look(&mut s, 16_152 + i * 290, 256, &stat(226, refaults), Some(faults)), "look {i}");
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
        assert_eq!(found.map(|(ms, ..)| ms), Some(42_251), "3.9 s after the first");
    }

    #[test]
    fn late_looks_and_an_uneven_disk_do_not_matter() {
        let (mut s, mut count) = (Stall::default(), 0);
        let found = (0..20u64).find(|i| {
            count += if i % 2 == 0 { 200 } else { 6_000 };
            look(&mut s, i * 900, 256, &stat(240, count), Some(i * 30))
        });
        assert_eq!(found, Some(4), "3600 ms");
    }
}

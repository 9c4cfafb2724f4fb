//! A step of a mode's ladder, and its arithmetic: the next size in one dimension or in proportion,
//! rounded and capped.

use headroom_types::{Bytes, Profile};

use super::attempt_size::AttemptSize;

/// A step of a mode's ladder.
pub(crate) enum LadderStep {
    /// The next size, with the reason.
    To(AttemptSize, String),
    /// The ladder has no larger size.
    Top(String),
}

/// Rounding step below 1 GiB.
const FINE: Bytes = Bytes::from_mib(8);
/// Rounding step from 1 GiB on.
const COARSE: Bytes = Bytes::from_mib(64);

/// A size rounded up, so that few different profiles exist.
pub fn rounded(size: Bytes) -> Bytes {
    let step = if size >= Bytes::from_gib(1) {
        COARSE
    } else {
        FINE
    };
    size.round_up(step)
}

/// `profile` with `heap` changed so that heap and overhead add up to `memory`. If no heap would
/// remain, both change in proportion.
pub fn with_heap_filling(profile: &Profile, memory: Bytes) -> Profile {
    let heap = memory.saturating_sub(profile.overhead);
    if heap.is_zero() {
        in_proportion(profile, memory)
    } else {
        Profile {
            heap,
            ..profile.clone()
        }
    }
}

/// `profile` with `overhead` changed so that heap and overhead add up to `memory`.
pub fn with_overhead_filling(profile: &Profile, memory: Bytes) -> Profile {
    Profile {
        overhead: memory.saturating_sub(profile.heap),
        ..profile.clone()
    }
}

/// `profile` with both quantities scaled so that they add up to `memory`.
pub fn in_proportion(profile: &Profile, memory: Bytes) -> Profile {
    let heap = memory.mul_ratio(profile.heap.get(), profile.memory().get());
    Profile {
        heap,
        overhead: memory.saturating_sub(heap),
        ..profile.clone()
    }
}

/// Overhead after an off-heap kill: twice the old one, and well above the measured use. The fixed
/// step of 256 MiB is limited to the measured use, so that small tasks stay small.
pub fn next_overhead(overhead: Bytes, seen: Bytes) -> Bytes {
    let step = Bytes::from_mib(256).min(seen);
    overhead
        .mul_ratio(2, 1)
        .max(seen.mul_ratio(3, 2))
        .max(seen.saturating_add(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Cpus;
    use proptest::prelude::*;

    fn profile(heap: u64, overhead: u64) -> Profile {
        Profile {
            heap: Bytes::from_mib(heap),
            overhead: Bytes::from_mib(overhead),
            cpus: Cpus::from_cores(1),
        }
    }

    #[test]
    fn rounding_is_fine_for_small_sizes() {
        assert_eq!(rounded(Bytes::from_mib(129)), Bytes::from_mib(136));
        assert_eq!(rounded(Bytes::from_mib(1025)), Bytes::from_mib(1088));
    }

    #[test]
    fn overhead_grows_beyond_the_observed_use() {
        assert_eq!(
            next_overhead(Bytes::from_mib(32), Bytes::from_mib(20)),
            Bytes::from_mib(64)
        );
        assert_eq!(
            next_overhead(Bytes::from_mib(32), Bytes::from_mib(100)),
            Bytes::from_mib(200)
        );
        assert_eq!(
            next_overhead(Bytes::from_mib(384), Bytes::from_mib(1000)),
            Bytes::from_mib(1500)
        );
    }

    proptest! {
        #[test]
        fn every_fill_rule_yields_exactly_the_memory(heap in 1u64..4096, overhead in 0u64..4096, memory in 1u64..16384) {
            let p = profile(heap, overhead);
            let memory = Bytes::from_mib(memory);
            prop_assert_eq!(in_proportion(&p, memory).memory(), memory);
            prop_assert_eq!(with_heap_filling(&p, memory).memory(), memory);
            if memory >= p.heap {
                prop_assert_eq!(with_overhead_filling(&p, memory).memory(), memory);
            }
        }
    }
}

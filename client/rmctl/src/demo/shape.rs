//! The skew of the generated data set: the number of keys in each partition. Most partitions need
//! less than the memory of a slot, a fifth of them three times as much, and one more than a whole
//! executor.

use headroom_types::Bytes;

/// Memory of the grouping program before its first row: program, libraries, buffers. Measured.
const BASE: Bytes = Bytes::from_mib(2);
/// Memory of each key: its text, its values, its node in the tree. Measured.
const PER_KEY: u64 = 141;

/// Memory of a partition, in hundredths of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartitionWeight {
    /// Less than one slot.
    Light,
    /// More than two slots, less than three.
    Heavy,
    /// More than an executor with four slots and its own reserve.
    Mega,
}

impl PartitionWeight {
    /// Hundredths of a slot.
    pub(crate) fn hundredths(self) -> u64 {
        match self {
            PartitionWeight::Light => 78,
            PartitionWeight::Heavy => 240,
            PartitionWeight::Mega => 530,
        }
    }
}

/// The weight of each partition.
pub(crate) fn weights(partitions: u32) -> Vec<PartitionWeight> {
    let mega = partitions / 2 + 1;
    let weight = |i: u32| match i {
        i if i == mega => PartitionWeight::Mega,
        i if i % 5 == 2 => PartitionWeight::Heavy,
        _ => PartitionWeight::Light,
    };
    (0..partitions).map(weight).collect()
}

/// Number of keys with which the grouping program needs that much of `share`.
pub(crate) fn keys(weight: PartitionWeight, share: Bytes) -> u64 {
    share
        .mul_ratio(weight.hundredths(), 100)
        .saturating_sub(BASE)
        .get()
        / PER_KEY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_partitions_are_heavy_and_the_largest_exceeds_an_executor() {
        let all = weights(20);
        let count = |w: PartitionWeight| all.iter().filter(|x| **x == w).count();
        assert_eq!(
            (
                count(PartitionWeight::Light),
                count(PartitionWeight::Heavy),
                count(PartitionWeight::Mega)
            ),
            (15, 4, 1)
        );
        assert!(PartitionWeight::Heavy.hundredths() >= 3 * PartitionWeight::Light.hundredths());
        for n in 6..=64 {
            assert_eq!(
                weights(n)
                    .iter()
                    .filter(|w| **w == PartitionWeight::Mega)
                    .count(),
                1,
                "{n} partitions"
            );
            assert!(
                weights(n).contains(&PartitionWeight::Heavy),
                "{n} partitions"
            );
        }
    }

    #[test]
    fn keys_grow_with_the_share() {
        let at = |mib| keys(PartitionWeight::Light, Bytes::from_mib(mib));
        assert!(at(48) > at(32) && at(32) > 100_000);
        assert_eq!(
            keys(PartitionWeight::Light, Bytes::from_mib(1)),
            0,
            "a share below the size of the program holds no key"
        );
    }
}

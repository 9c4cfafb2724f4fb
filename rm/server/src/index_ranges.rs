//! A set of task indexes as ranges. Tasks of a stage end roughly in order, so a live job with
//! millions of ended tasks needs few ranges.

use std::collections::BTreeMap;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexRanges {
    /// First index of a range to its last one. Ranges neither overlap nor touch.
    ranges: BTreeMap<u32, u32>,
}

impl IndexRanges {
    /// True if the set contains the index.
    pub(crate) fn contains(&self, index: u32) -> bool {
        let before = self.ranges.range(..=index).next_back();
        before.is_some_and(|(_, last)| index <= *last)
    }

    /// Adds an index.
    pub(crate) fn insert(&mut self, index: u32) {
        if self.contains(index) {
            return;
        }
        let before = self.ranges.range(..index).next_back();
        let before = before.filter(|(_, last)| last.checked_add(1) == Some(index));
        let first = before.map_or(index, |(first, _)| *first);
        let next = index.checked_add(1);
        let last = next.and_then(|next| self.ranges.remove(&next));
        self.ranges.insert(first, last.unwrap_or(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn indexes_in_any_order_become_ranges() {
        let mut set = IndexRanges::default();
        let all: BTreeSet<u32> = (0..1000)
            .map(|n| n * 7 % 1000)
            .filter(|n| n % 10 != 3)
            .collect();
        for n in 0..1000u32 {
            let index = n * 7 % 1000;
            if index % 10 != 3 {
                set.insert(index);
                set.insert(index);
            }
        }
        assert!((0..1010).all(|n| set.contains(n) == all.contains(&n)));
        assert_eq!(set.ranges.len(), 101);
        (0..100).for_each(|n| set.insert(n * 10 + 3));
        assert_eq!(set.ranges, [(0, 999)].into());
        set.insert(u32::MAX);
        set.insert(u32::MAX - 1);
        assert!(set.contains(u32::MAX) && set.ranges.len() == 2);
    }
}

//! Scheduling order of siblings: child queues of one queue, or applications of one leaf.
//!
//! Siblings are sorted by rank within size classes. One check of a class skips all waiters that
//! need more than any node has free.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use headroom_types::{Bytes, Cpus, Resource};

use super::bound::DominantShare;

/// Position among siblings: priority, guarantee, share, then a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiblingRank {
    /// Higher goes first.
    pub priority: Reverse<i32>,
    /// Below the guarantee goes first.
    pub standing: GuaranteePosition,
    /// Smaller goes first.
    pub share: DominantShare,
    /// Number of the sibling; unique among siblings.
    pub who: u32,
}

impl SiblingRank {
    /// Priority and guarantee as one number that compares in the same order.
    #[inline]
    fn group(&self) -> i64 {
        let below = match self.standing {
            GuaranteePosition::Below => 0,
            GuaranteePosition::Above => 1,
        };
        -2 * i64::from(self.priority.0) + below
    }
}

impl Ord for SiblingRank {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let groups = self.group().cmp(&other.group());
        let shares = groups.then_with(|| self.share.cmp(&other.share));
        shares.then_with(|| self.who.cmp(&other.who))
    }
}
impl PartialOrd for SiblingRank {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Position of a queue relative to its guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuaranteePosition {
    /// Less than the guarantee.
    Below,
    /// At least the guarantee, or no guarantee.
    Above,
}

/// Size class: a lower bound of the needed resources. Each class is a quarter of an octave wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass {
    memory: u16,
    cpus: u16,
}

impl SizeClass {
    /// Class of waiters whose size does not decide where they fit.
    pub const ANY: SizeClass = SizeClass { memory: 0, cpus: 0 };

    /// The class of a size.
    pub fn of(size: &Resource) -> SizeClass {
        SizeClass {
            memory: step(size.memory.get()),
            cpus: step(size.cpus.milli().into()),
        }
    }
    /// Minimum of both classes in each resource.
    pub fn least(self, other: SizeClass) -> SizeClass {
        SizeClass {
            memory: self.memory.min(other.memory),
            cpus: self.cpus.min(other.cpus),
        }
    }
    /// Lower bound of all sizes in the class.
    pub fn floor(self) -> Resource {
        let cpus = u32::try_from(edge(self.cpus)).unwrap_or(u32::MAX);
        Resource::new(Bytes::new(edge(self.memory)), Cpus::from_milli(cpus))
    }
}

/// Number of the step; four steps per octave.
fn step(n: u64) -> u16 {
    if n < 4 {
        return u16::try_from(n).unwrap_or(0);
    }
    let octave = n.ilog2();
    u16::try_from(u64::from(octave) * 4 + ((n >> (octave - 2)) & 3)).unwrap_or(u16::MAX)
}

/// The smallest number of a step.
fn edge(step: u16) -> u64 {
    if step < 8 {
        return u64::from(step.min(4));
    }
    let (octave, quarter) = (step / 4, u64::from(step % 4));
    (4 + quarter) << (octave - 2)
}

/// Waiting siblings of one queue.
#[derive(Clone, Debug, Default)]
pub struct SiblingOrder {
    /// By class; there are only a few. Lists may be empty.
    classes: Vec<(SizeClass, BTreeSet<SiblingRank>)>,
}

impl SiblingOrder {
    /// Adds a sibling.
    pub fn put(&mut self, class: SizeClass, rank: SiblingRank) {
        let place = match self.place_of(class) {
            Ok(place) => place,
            Err(_) => {
                // classes without siblings are kept for their allocation until a new one appears
                self.classes.retain(|(_, ranks)| !ranks.is_empty());
                let place = self.place_of(class).unwrap_or_else(|place| place);
                self.classes.insert(place, (class, BTreeSet::new()));
                place
            }
        };
        if let Some((_, ranks)) = self.classes.get_mut(place) {
            ranks.insert(rank);
        }
    }
    fn place_of(&self, class: SizeClass) -> Result<usize, usize> {
        self.classes.binary_search_by_key(&class, |(of, _)| *of)
    }
    /// Removes a sibling.
    pub fn remove(&mut self, class: SizeClass, rank: &SiblingRank) {
        let place = self.place_of(class).ok();
        if let Some((_, ranks)) = place.and_then(|place| self.classes.get_mut(place)) {
            ranks.remove(rank);
        }
    }
    /// Number of siblings.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(|(_, ranks)| ranks.len()).sum()
    }
    /// True when the sibling is present.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) fn has(&self, class: SizeClass, rank: &SiblingRank) -> bool {
        self.classes
            .iter()
            .any(|(of, ranks)| *of == class && ranks.contains(rank))
    }
    /// Minimum of all classes. `None` when no sibling waits.
    pub fn least(&self) -> Option<SizeClass> {
        let waiting = self.classes.iter().filter(|(_, ranks)| !ranks.is_empty());
        waiting.map(|(class, _)| *class).reduce(SizeClass::least)
    }
    /// First rank after `after` in a class that is `open`, unless `passed` skips it.
    pub fn next(
        &self,
        after: Option<SiblingRank>,
        mut open: impl FnMut(SizeClass) -> bool,
        passed: impl Fn(&SiblingRank) -> bool,
    ) -> Option<SiblingRank> {
        let mut first: Option<SiblingRank> = None;
        for (class, ranks) in &self.classes {
            if ranks.is_empty() || !open(*class) {
                continue;
            }
            let is_earlier = |rank: &&SiblingRank| first.is_none_or(|f| **rank < f);
            let found = match after {
                None => {
                    let mut rest = ranks.iter().take_while(is_earlier);
                    rest.find(|rank| !passed(rank)).copied()
                }
                Some(after) => {
                    let rest = ranks.range((Excluded(after), Unbounded));
                    let mut rest = rest.take_while(is_earlier);
                    rest.find(|rank| !passed(rank)).copied()
                }
            };
            first = found.or(first);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A class never requires more than its sizes, so no fitting waiter is skipped.
        #[test]
        fn a_size_class_never_requires_more_than_its_sizes(n in any::<u64>(), more in 0u64..1 << 40) {
            prop_assert!(edge(step(n)) <= n);
            prop_assert!(step(n) <= step(n.saturating_add(more)));
            prop_assert!(n < 8 || edge(step(n)) >= n - n / 4, "a class requires at least three quarters of its sizes");
        }
    }

    #[test]
    fn the_first_rank_of_all_open_classes_is_next() {
        let rank = |priority, share, who| {
            let share = DominantShare::of_all(
                &Resource::new(Bytes::new(share), Cpus::ZERO),
                &Resource::new(Bytes::new(100), Cpus::ZERO),
            );
            SiblingRank {
                priority: Reverse(priority),
                standing: GuaranteePosition::Above,
                share,
                who,
            }
        };
        let class = |gib| SizeClass::of(&Resource::new(Bytes::from_gib(gib), Cpus::ZERO));
        let mut siblings = SiblingOrder::default();
        for (gib, rank) in [
            (1, rank(0, 30, 1)),
            (8, rank(0, 20, 2)),
            (1, rank(0, 40, 3)),
            (8, rank(1, 90, 4)),
        ] {
            siblings.put(class(gib), rank);
        }
        let mut order = Vec::new();
        let mut at = None;
        while let Some(next) = siblings.next(at, |_| true, |rank| rank.who == 3) {
            order.push(next.who);
            at = Some(next);
        }
        assert_eq!(order, [4, 2, 1]);
        assert_eq!(
            siblings
                .next(None, |c| c == class(1), |_| false)
                .map(|r| r.who),
            Some(1)
        );
        assert_eq!(siblings.least(), Some(class(1)));
    }
}

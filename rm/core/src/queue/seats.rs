//! The order in which siblings are served: queues of one queue, or applications of one leaf.
//!
//! Sorted by rank within classes of size, so that all who wait for more than any node has are passed over by one question.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use headroom_types::{Bytes, Cpus, Resource};

use super::bound::Dominant;

/// The place among siblings: priority, below or above the guarantee, share, name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Higher goes first.
    pub priority: Reverse<i32>,
    /// Below the guarantee goes first.
    pub standing: Standing,
    /// Less goes first.
    pub share: Dominant,
    /// Whose place this is: no two siblings have the same.
    pub who: u32,
}

/// Whether a queue has what it can count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has less.
    Below,
    /// It has all of it, or can count on nothing.
    Above,
}

/// At least so much room is needed for anything in here. A quarter of an octave wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    memory: u16,
    cpus: u16,
}

impl Class {
    /// For those of whom their size does not tell where they could go.
    pub const ANY: Class = Class { memory: 0, cpus: 0 };

    /// The class of a size.
    pub fn of(size: &Resource) -> Class {
        Class { memory: step(size.memory.get()), cpus: step(size.cpus.milli().into()) }
    }
    /// The least of both.
    pub fn least(self, other: Class) -> Class {
        Class { memory: self.memory.min(other.memory), cpus: self.cpus.min(other.cpus) }
    }
    /// Every size of the class is at least this.
    pub fn floor(self) -> Resource {
        let cpus = u32::try_from(edge(self.cpus)).unwrap_or(u32::MAX);
        Resource::new(Bytes::new(edge(self.memory)), Cpus::from_milli(cpus))
    }
}

/// Four steps to an octave.
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

/// Those who wait below one queue.
#[derive(Clone, Debug, Default)]
pub struct Seats {
    classes: BTreeMap<Class, BTreeSet<Rank>>,
}

impl Seats {
    /// Takes a seat.
    pub fn put(&mut self, class: Class, rank: Rank) {
        self.classes.entry(class).or_default().insert(rank);
    }
    /// Leaves it.
    pub fn remove(&mut self, class: Class, rank: &Rank) {
        let Some(ranks) = self.classes.get_mut(&class) else { return };
        ranks.remove(rank);
        if ranks.is_empty() {
            self.classes.remove(&class);
        }
    }
    /// How many have a seat.
    pub(crate) fn len(&self) -> usize {
        self.classes.values().map(BTreeSet::len).sum()
    }
    /// True when this seat is taken.
    pub(crate) fn has(&self, class: Class, rank: &Rank) -> bool {
        self.classes.get(&class).is_some_and(|ranks| ranks.contains(rank))
    }
    /// The least that anybody here needs. `None` when nobody waits.
    pub fn least(&self) -> Option<Class> {
        self.classes.keys().copied().reduce(Class::least)
    }
    /// The first after `after` in a class that is `open` and whom `passed` does not pass over.
    pub fn next(&self, after: Option<Rank>, mut open: impl FnMut(Class) -> bool, passed: impl Fn(&Rank) -> bool) -> Option<Rank> {
        let mut first: Option<Rank> = None;
        for (class, ranks) in &self.classes {
            if !open(*class) {
                continue;
            }
            let from = after.map_or(Unbounded, Excluded);
            let mut rest = ranks.range((from, Unbounded)).take_while(|rank| first.is_none_or(|f| **rank < f));
            first = rest.find(|rank| !passed(rank)).copied().or(first);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Nobody is passed over who might have fitted: a class never asks for more than a size in it.
        #[test]
        fn a_class_never_asks_for_more_than_its_sizes(n in any::<u64>(), more in 0u64..1 << 40) {
            prop_assert!(edge(step(n)) <= n);
            prop_assert!(step(n) <= step(n.saturating_add(more)));
            prop_assert!(n < 8 || edge(step(n)) >= n - n / 4, "and not much less");
        }
    }

    #[test]
    fn the_first_of_all_open_classes_is_next() {
        let rank = |priority, share, who| {
            let share =
                Dominant::of_all(&Resource::new(Bytes::new(share), Cpus::ZERO), &Resource::new(Bytes::new(100), Cpus::ZERO));
            Rank { priority: Reverse(priority), standing: Standing::Above, share, who }
        };
        let class = |gib| Class::of(&Resource::new(Bytes::from_gib(gib), Cpus::ZERO));
        let mut seats = Seats::default();
        for (gib, rank) in [(1, rank(0, 30, 1)), (8, rank(0, 20, 2)), (1, rank(0, 40, 3)), (8, rank(1, 90, 4))] {
            seats.put(class(gib), rank);
        }
        let mut order = Vec::new();
        let mut at = None;
        while let Some(next) = seats.next(at, |_| true, |rank| rank.who == 3) {
            order.push(next.who);
            at = Some(next);
        }
        assert_eq!(order, [4, 2, 1]);
        assert_eq!(seats.next(None, |c| c == class(1), |_| false).map(|r| r.who), Some(1));
        assert_eq!(seats.least(), Some(class(1)));
    }
}

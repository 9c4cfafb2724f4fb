//! How far one predictor was off with the last tasks of a kind, kept in the order in which a ladder is worked out.

use super::REMEMBERED;

/// One prediction beside what was needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Miss {
    /// Need as a ratio to what was predicted.
    pub(super) ratio: f64,
    /// Bytes.
    pub(super) need: f64,
    /// Seconds.
    pub(super) runtime: f64,
    /// The number of the observation of its kind.
    pub(super) at: u64,
}

/// What misses are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// How far the predictor was off.
    #[default]
    Ratio,
    /// What tasks needed: for a predictor that says the same of all.
    Need,
}

/// The last misses of a predictor.
#[derive(Clone, Debug, Default)]
pub(super) struct Misses {
    order: Order,
    /// By slot. The oldest is replaced once [`REMEMBERED`] are kept.
    kept: Vec<Miss>,
    oldest: usize,
    /// Slots, ascending by [`Order`] and then by age, the oldest first.
    sorted: Vec<u16>,
}

impl Misses {
    pub(super) fn new(order: Order) -> Misses {
        Misses { order, ..Misses::default() }
    }

    pub(super) fn push(&mut self, miss: Miss) {
        let slot = if self.kept.len() < REMEMBERED {
            self.kept.push(miss);
            self.kept.len() - 1
        } else {
            let slot = self.oldest;
            self.oldest = (slot + 1) % REMEMBERED;
            if let Some(gone) = self.kept.get(slot).copied() {
                let at = self.place(&gone);
                self.sorted.remove(at);
            }
            if let Some(place) = self.kept.get_mut(slot) {
                *place = miss;
            }
            slot
        };
        let at = self.place(&miss);
        self.sorted.insert(at, u16::try_from(slot).unwrap_or(u16::MAX));
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Mean run time of the tasks. Seconds.
    pub(super) fn runtime_s(&self) -> f64 {
        let (newer, older) = self.kept.split_at(self.oldest.min(self.kept.len()));
        older.iter().chain(newer).map(|miss| miss.runtime).sum::<f64>() / super::count(self.len()).max(1.0)
    }

    /// In their order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = &Miss> {
        self.sorted.iter().filter_map(|slot| self.kept.get(usize::from(*slot)))
    }

    fn place(&self, miss: &Miss) -> usize {
        let key = |miss: &Miss| match self.order {
            Order::Ratio => miss.ratio,
            Order::Need => miss.need,
        };
        let before = |other: &Miss| key(other).total_cmp(&key(miss)).then(other.at.cmp(&miss.at)).is_lt();
        self.sorted.partition_point(|slot| self.kept.get(usize::from(*slot)).is_some_and(before))
    }
}

#[cfg(test)]
impl Misses {
    /// What is allocated for them. Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.kept.capacity() * size_of::<Miss>() + self.sorted.capacity() * size_of::<u16>()
    }
}

//! Prediction errors of one predictor for the last tasks of a kind, sorted for the computation of a
//! ladder.

use super::float::count;
use super::predict::MAX_OBSERVATIONS;

/// A prediction and the observed need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PredictionError {
    /// Ratio of the need to the prediction.
    pub(super) ratio: f64,
    /// Need. Bytes.
    pub(super) need: f64,
    /// Run time. Seconds.
    pub(super) runtime: f64,
    /// Number of the observation within its kind.
    pub(super) at: u64,
}

/// The sort order of prediction errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ErrorOrder {
    /// By ratio of need to prediction.
    #[default]
    Ratio,
    /// By need, for a predictor with the same prediction for all tasks.
    Need,
}

/// The last prediction errors of a predictor.
#[derive(Clone, Debug, Default)]
pub(super) struct PredictionErrors {
    order: ErrorOrder,
    /// Entries by slot. The oldest is replaced once [`MAX_OBSERVATIONS`] are kept.
    kept: Vec<PredictionError>,
    oldest: usize,
    /// Slots in ascending [`ErrorOrder`], then by age, the oldest first.
    sorted: Vec<u16>,
}

impl PredictionErrors {
    pub(super) fn new(order: ErrorOrder) -> PredictionErrors {
        PredictionErrors {
            order,
            ..PredictionErrors::default()
        }
    }

    pub(super) fn push(&mut self, miss: PredictionError) {
        let slot = if self.kept.len() < MAX_OBSERVATIONS {
            self.kept.push(miss);
            self.kept.len() - 1
        } else {
            let slot = self.oldest;
            self.oldest = (slot + 1) % MAX_OBSERVATIONS;
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
        self.sorted
            .insert(at, u16::try_from(slot).unwrap_or(u16::MAX));
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Mean run time of the tasks. Seconds.
    pub(super) fn runtime_s(&self) -> f64 {
        let (newer, older) = self.kept.split_at(self.oldest.min(self.kept.len()));
        older
            .iter()
            .chain(newer)
            .map(|miss| miss.runtime)
            .sum::<f64>()
            / count(self.len()).max(1.0)
    }

    /// Entries in sort order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = &PredictionError> {
        self.sorted
            .iter()
            .filter_map(|slot| self.kept.get(usize::from(*slot)))
    }

    fn place(&self, miss: &PredictionError) -> usize {
        let key = |miss: &PredictionError| match self.order {
            ErrorOrder::Ratio => miss.ratio,
            ErrorOrder::Need => miss.need,
        };
        let before = |other: &PredictionError| {
            key(other)
                .total_cmp(&key(miss))
                .then(other.at.cmp(&miss.at))
                .is_lt()
        };
        self.sorted
            .partition_point(|slot| self.kept.get(usize::from(*slot)).is_some_and(before))
    }
}

#[cfg(test)]
impl PredictionErrors {
    /// Allocated memory. Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.kept.capacity() * size_of::<PredictionError>()
            + self.sorted.capacity() * size_of::<u16>()
    }
}

//! Observations of the tasks of one kind, and the cheapest ladder for the next task.
//!
//! An observation costs a few insertions into sorted lists. Ladders, and the mean prediction that
//! scales their costs, are computed once after each observation, on the first query. Every further
//! query costs one prediction per method.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::float::{count, count_u64};
use super::ladder::{self, CheapestLadder, KillPrices, ObservedTask};
use super::predict::{
    KindHistory, MAX_OBSERVATIONS, Observation, PREDICTION_METHODS, PredictionMethod,
};
use super::prediction_error::{ErrorOrder, PredictionError, PredictionErrors};

/// Minimum weight of tasks that needed more than a killed one, for their needs to be used for it.
pub(super) const MIN_AGREEING_WEIGHT: f64 = 3.0;
/// Number of later tasks after which an observation has half its weight.
const HALF_LIFE: f64 = 125.0;
/// Assumed need of a killed task as a multiple of its size, if no larger need is known.
const UNSEEN_NEED_FACTOR: f64 = 1.5;

/// The state of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct KindObservations {
    pub(super) history: KindHistory,
    /// Prediction errors of each method.
    pub(super) misses: BTreeMap<PredictionMethod, PredictionErrors>,
    /// Total number of observations.
    pub(super) count: u64,
    /// Killed tasks that have not ended: input, and the size that was too small. Bytes.
    pub(super) open: BTreeMap<u64, (f64, f64)>,
    /// Number of kills since the last success, and the largest size that was too small. Bytes.
    pub(super) wave: (usize, f64),
    /// The ladder of each method, cached until the next observation.
    pub(super) ladders: Option<Vec<PricedLadder>>,
}

/// The ladder of one method.
#[derive(Clone, Debug)]
pub(super) struct PricedLadder {
    way: PredictionMethod,
    pub(super) rungs: CheapestLadder,
    /// Cost for a task with the mean prediction, so that ladders of different methods are
    /// comparable. Bytes × mean runs.
    cost: f64,
}

/// A ladder for one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeLadder<'a> {
    pub(super) way: PredictionMethod,
    /// Bytes.
    predicted: f64,
    ratios: &'a [f64],
}

impl<'a> SizeLadder<'a> {
    /// Sizes in ascending order. Bytes.
    pub(super) fn sizes(self) -> impl Iterator<Item = f64> + use<'a> {
        self.ratios.iter().map(move |ratio| ratio * self.predicted)
    }
    pub(super) fn first(self) -> Option<f64> {
        self.sizes().next()
    }
    pub(super) fn last(self) -> Option<f64> {
        self.ratios.last().map(|ratio| ratio * self.predicted)
    }
}

impl KindObservations {
    /// Records a kill of a task at a size. Bytes.
    pub(super) fn killed(&mut self, task: u64, input: f64, size: f64) {
        self.open.insert(task, (input, size));
        self.wave = (self.wave.0 + 1, self.wave.1.max(size));
        if self.open.len() > MAX_OBSERVATIONS {
            self.open.pop_first();
        }
        self.ladders = None;
    }

    /// Records that a killed task does not run again.
    pub(super) fn dropped(&mut self, task: u64) {
        if self.open.remove(&task).is_some() {
            self.ladders = None;
        }
    }

    /// Records a success: the task no longer counts as killed.
    pub(super) fn ended(&mut self, task: u64) {
        self.open.remove(&task);
        self.wave = (0, 0.0);
    }

    /// Adds the need of a successful task.
    pub(super) fn learn(&mut self, point: Observation) {
        for way in PREDICTION_METHODS {
            let ratio = if self.history.points().is_empty() {
                (way == PredictionMethod::Median).then_some(1.0)
            } else {
                self.history
                    .predict(way, point.input)
                    .map(|predicted| point.need / predicted)
            };
            let Some(ratio) = ratio else { continue };
            let order = if way == PredictionMethod::Median {
                ErrorOrder::Need
            } else {
                ErrorOrder::Ratio
            };
            let misses = self
                .misses
                .entry(way)
                .or_insert_with(|| PredictionErrors::new(order));
            misses.push(PredictionError {
                ratio,
                need: point.need,
                runtime: point.runtime,
                at: self.count,
            });
        }
        self.history.push(point);
        self.count += 1;
        self.ladders = None;
    }

    /// Mean run time of its tasks. Seconds; 0 without a success.
    pub(super) fn runtime_s(&self) -> f64 {
        self.history.runtime_s()
    }

    /// The ladder with the lowest cost for a task with this input.
    pub(super) fn ladder(&mut self, input: f64, prices: KillPrices) -> Option<SizeLadder<'_>> {
        if self.ladders.is_none() {
            self.ladders = Some(self.all_ladders(prices));
        }
        let history = &self.history;
        let able = self
            .ladders
            .iter()
            .flatten()
            .filter_map(|one| Some((one, history.predict(one.way, input)?)));
        let (one, predicted) = able.min_by(|(a, _), (b, _)| a.cost.total_cmp(&b.cost))?;
        Some(SizeLadder {
            way: one.way,
            predicted,
            ratios: &one.rungs.sizes,
        })
    }

    fn all_ladders(&self, prices: KillPrices) -> Vec<PricedLadder> {
        PREDICTION_METHODS
            .into_iter()
            .filter_map(|way| self.priced(way, prices))
            .collect()
    }

    fn priced(&self, way: PredictionMethod, prices: KillPrices) -> Option<PricedLadder> {
        let misses = self
            .misses
            .get(&way)
            .filter(|misses| misses.len() >= enough(way))?;
        let mean = misses.runtime_s();
        // The median is the same for all tasks, so their needs are compared with its current value,
        // not with its value at their time.
        let median = (way == PredictionMethod::Median)
            .then(|| self.history.predict(way, 0.0))
            .flatten();
        let seen = |miss: &PredictionError| {
            let weight = weight(self.count - miss.at);
            let need = median.map_or(miss.ratio, |median| miss.need / median);
            ObservedTask {
                need,
                weight,
                time: weight * miss.runtime / mean,
            }
        };
        let mut seen: Vec<ObservedTask> = misses.sorted().map(seen).collect();
        if !self.open.is_empty() {
            let had = |(input, size): &(f64, f64)| Some(size / self.history.predict(way, *input)?);
            count_killed(&mut seen, self.open.values().filter_map(had));
        }
        let rungs = ladder::cheapest(&mut seen, prices);
        Some(PricedLadder {
            way,
            cost: rungs.cost * self.history.mean(way),
            rungs,
        })
    }
}

#[cfg(test)]
impl KindObservations {
    /// Allocated memory. Bytes.
    pub(super) fn bytes(&self) -> usize {
        let ladder = |one: &PricedLadder| {
            size_of::<PricedLadder>() + one.rungs.sizes.capacity() * size_of::<f64>()
        };
        let ladders: usize = self.ladders.iter().flatten().map(ladder).sum();
        let misses: usize = self.misses.values().map(PredictionErrors::bytes).sum();
        self.history.bytes()
            + misses
            + ladders
            + self.open.len() * 2 * size_of::<(u64, (f64, f64))>()
    }
}

/// Weight of an observation after `age` later ones.
fn weight(age: u64) -> f64 {
    /// Precomputed weights of recent observations. Older ones exist only for a method that seldom
    /// predicts.
    static WEIGHTS: LazyLock<Vec<f64>> = LazyLock::new(|| {
        (0..=MAX_OBSERVATIONS)
            .map(|age| half_lives(count(age)))
            .collect()
    });
    let known = usize::try_from(age)
        .ok()
        .and_then(|age| WEIGHTS.get(age))
        .copied();
    known.unwrap_or_else(|| half_lives(count_u64(age)))
}

fn half_lives(age: f64) -> f64 {
    0.5_f64.powf(age / HALF_LIFE)
}

/// Minimum number of predictions of a method before it is used; the median is used at once.
fn enough(way: PredictionMethod) -> usize {
    if way == PredictionMethod::Median {
        1
    } else {
        3
    }
}

/// Counts a killed task with the observed tasks that needed more than its size, because its need is
/// distributed like theirs. With hardly any such task, it counts by itself. `seen` is in ascending
/// order.
fn count_killed(seen: &mut Vec<ObservedTask>, had: impl Iterator<Item = f64>) {
    let mut above = vec![0.0; seen.len() + 1];
    for (n, one) in seen.iter().enumerate().rev() {
        above[n] = above[n + 1] + one.weight;
    }
    let mut share = vec![0.0; seen.len() + 1];
    let mut alone = Vec::new();
    for had in had {
        let from = seen.partition_point(|s| s.need <= had);
        if above[from] < MIN_AGREEING_WEIGHT {
            alone.push(ObservedTask {
                need: had * UNSEEN_NEED_FACTOR,
                weight: 1.0,
                time: 1.0,
            });
        } else {
            share[from] += 1.0 / above[from];
        }
    }
    let mut more = 1.0;
    for (one, share) in seen.iter_mut().zip(share) {
        more += share;
        one.weight *= more;
        one.time *= more;
    }
    seen.extend(alone);
}

//! Sizes learned per kind of task: the first size of the next task, and its size after a kill, from
//! the needs of earlier tasks.
//!
//! Each prediction method records its own errors: it predicts before it learns the need. The method
//! whose cheapest ladder costs least is used. A kill only shows that a task needs more than its
//! size.
//!
//! *Architecture Invariant*: no clock, no files; the same observations in the same order give the
//! same sizes.

mod float;
mod kind;
pub mod ladder;
pub mod predict;
mod prediction_error;

use std::collections::BTreeMap;

use headroom_types::Bytes;

use float::{count_u64, float, whole};
use kind::{KindObservations, MIN_AGREEING_WEIGHT};
use ladder::{KillPrices, ObservedTask};
use predict::{Observation, PredictionMethod};

/// Minimum number of known kinds before they are used for an unknown kind.
const MIN_POOLED_KINDS: usize = 5;
/// Granularity of sizes in bytes, for small sizes; for large sizes it is [`FACTOR`].
const STEP: f64 = 32.0 * 1024.0 * 1024.0;
/// Granularity of sizes as a factor, for sizes where it exceeds [`STEP`].
const FACTOR: f64 = 1.03;
/// Minimum factor between a size that was too small and the next one.
const MIN_STEP_FACTOR: f64 = 1.1;
/// Number of consecutive kills of a kind after which all waiting tasks get a larger size.
const MIN_WAVE_KILLS: usize = 3;
/// Factor between a size that was too small for a kind and the next first size of the kind.
const WAVE_SIZE_FACTOR: f64 = 1.25;
/// Maximum number of running tasks of a kind without observations.
const MAX_CANARIES: usize = 8;
/// Number of additional running tasks per success.
const RAMP: u64 = 4;
/// Number of successes that one kill cancels.
const SUCCESSES_PER_KILL: u64 = 2;

/// The origin of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOrigin {
    /// Tasks of the same kind.
    Kind(PredictionMethod),
    /// Other kinds.
    Pool,
    /// The requested size.
    Request,
    /// Above the requested size: tasks of the kind were killed at a size, and none has succeeded.
    Killed,
    /// No observations.
    Share,
}

/// The known need of a killed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeAfterKill {
    /// The size that holds all observations of its kind.
    Rung(Bytes),
    /// Above all observations of its kind.
    Beyond,
    /// Unknown.
    Unknown,
}

/// The first size of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSize {
    /// Memory.
    pub size: Bytes,
    /// Origin of the size.
    pub source: SizeOrigin,
}

/// A task that requests a size.
#[derive(Clone, Copy, Debug)]
pub struct SizeRequest<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Size of its input. `None` if unknown.
    pub input: Option<Bytes>,
    /// Its requested size. `None` without a request.
    pub request: Option<Bytes>,
}

/// The learner for all kinds of a job.
#[derive(Clone, Debug)]
pub struct SizeLearner {
    kinds: BTreeMap<String, KindObservations>,
    /// Per kind: ratio of the largest observed need to the first size.
    pool: BTreeMap<String, f64>,
    /// Cached result of [`SizeLearner::pooled`], valid until the pool changes.
    pooled: Option<Option<f64>>,
    share: Bytes,
    prices: KillPrices,
}

impl SizeLearner {
    /// Creates a learner without observations. `share` is the size of a task about which nothing is
    /// known.
    pub fn new(share: Bytes, prices: KillPrices) -> SizeLearner {
        SizeLearner {
            kinds: BTreeMap::new(),
            pool: BTreeMap::new(),
            pooled: None,
            share,
            prices,
        }
    }

    /// Sets the prices of kills relative to memory.
    pub fn set_prices(&mut self, prices: KillPrices) {
        if self.prices != prices {
            self.prices = prices;
            self.pooled = None;
            self.kinds.values_mut().for_each(|kind| kind.ladders = None);
        }
    }

    /// True if one more task of this kind may start besides `running` others. With few observations
    /// only few tasks run. A whole wave with a size that is too small would be killed together. A
    /// wave with a size that is too large would waste memory. The first successes are short tasks,
    /// which are seldom the large ones.
    pub fn may_start(&self, kind: &str, running: usize) -> bool {
        let Some(known) = self.kinds.get(kind) else {
            return running < MAX_CANARIES;
        };
        let killed = u64::try_from(known.open.len()).unwrap_or(u64::MAX);
        let more = known
            .count
            .saturating_sub(killed.saturating_mul(SUCCESSES_PER_KILL))
            .saturating_mul(RAMP);
        running < MAX_CANARIES.saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
    }

    /// The first size of a task.
    pub fn first(&mut self, asks: &SizeRequest<'_>) -> FirstSize {
        if let Some((size, way)) = self
            .ladder(asks)
            .and_then(|ladder| Some((ladder.first()?, ladder.way)))
        {
            let wave_size = self
                .kinds
                .get(asks.kind)
                .filter(|kind| kind.wave.0 >= MIN_WAVE_KILLS)
                .map_or(0.0, |kind| kind.wave.1 * WAVE_SIZE_FACTOR);
            return FirstSize {
                size: step_to(size.max(wave_size), asks.request),
                source: SizeOrigin::Kind(way),
            };
        }
        let (known, source) = match asks.request {
            Some(request) => (request, SizeOrigin::Request),
            None => (self.share, SizeOrigin::Share),
        };
        let floor = self
            .killed_at(asks.kind)
            .map_or(0.0, |size| size * WAVE_SIZE_FACTOR);
        let pooled = self
            .pooled()
            .map(|ratio| ratio * float(known))
            .filter(|size| *size > floor);
        match pooled {
            Some(size) => FirstSize {
                size: step_up(size),
                source: SizeOrigin::Pool,
            },
            None if floor > float(known) => FirstSize {
                size: step_up(floor),
                source: SizeOrigin::Killed,
            },
            None => FirstSize {
                size: step_up(float(known)),
                source,
            },
        }
    }

    /// The size after the kill number `failures` of a task at `size`; `largest` is the largest
    /// available size. The second attempt is above all observations of its kind, the third has
    /// `largest`. A task that is larger than any node therefore fails after three attempts.
    pub fn next(
        &mut self,
        asks: &SizeRequest<'_>,
        size: Bytes,
        failures: u32,
        largest: Bytes,
    ) -> Bytes {
        if failures > 1 {
            return largest;
        }
        let least = float(size) * MIN_STEP_FACTOR;
        let known = self
            .ladder(asks)
            .and_then(|ladder| ladder.last())
            .filter(|top| *top >= least);
        step_up(known.unwrap_or(float(size) * 2.0)).min(largest)
    }

    /// The known need after the kill number `failures` of a task at `size`. Like
    /// [`SizeLearner::next`], for callers with their own rule for an unknown need.
    pub fn after_kill(
        &mut self,
        asks: &SizeRequest<'_>,
        size: Bytes,
        failures: u32,
    ) -> SizeAfterKill {
        let Some(ladder) = self.ladder(asks) else {
            return SizeAfterKill::Unknown;
        };
        if failures <= 1 {
            let top = ladder
                .last()
                .filter(|top| *top >= float(size) * MIN_STEP_FACTOR);
            return top.map_or(SizeAfterKill::Unknown, |top| {
                SizeAfterKill::Rung(step_up(top))
            });
        }
        let known = self
            .kinds
            .get(asks.kind)
            .is_some_and(|kind| count_u64(kind.count) >= MIN_AGREEING_WEIGHT);
        if known {
            SizeAfterKill::Beyond
        } else {
            SizeAfterKill::Unknown
        }
    }

    /// The size of a task that grows at its limit: the next rung, or one and a half times the size.
    pub fn grown(&mut self, asks: &SizeRequest<'_>, size: Bytes) -> Bytes {
        let least = float(size) * MIN_STEP_FACTOR;
        let rung = self
            .ladder(asks)
            .and_then(|ladder| ladder.sizes().find(|rung| *rung >= least));
        step_up(rung.unwrap_or(float(size) * 1.5))
    }

    /// Records a kill of a task at this size.
    pub fn record_kill(&mut self, asks: &SizeRequest<'_>, task: u64, size: Bytes) {
        let kind = self.kinds.entry(asks.kind.to_owned()).or_default();
        kind.killed(task, asks.input.map_or(0.0, float), float(size));
    }

    /// Records that a killed task does not run again. Its need is unknown and does not count.
    pub fn record_abandoned(&mut self, kind: &str, task: u64) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.dropped(task);
        }
    }

    /// Records a success.
    pub fn record_success(
        &mut self,
        asks: &SizeRequest<'_>,
        task: u64,
        peak: Bytes,
        runtime_s: f64,
    ) {
        let known = asks.request.unwrap_or(self.share);
        if !known.is_zero() {
            let ratio = float(peak) / float(known);
            match self.pool.get_mut(asks.kind) {
                Some(most) if *most >= ratio => {}
                Some(most) => (*most, self.pooled) = (ratio, None),
                None => {
                    self.pool.insert(asks.kind.to_owned(), ratio);
                    self.pooled = None;
                }
            }
        }
        let kind = self.kinds.entry(asks.kind.to_owned()).or_default();
        kind.ended(task);
        kind.learn(Observation {
            input: asks.input.map_or(0.0, float),
            need: float(peak).max(1.0),
            runtime: runtime_s.max(0.001),
        });
    }

    /// Mean run time of tasks of a kind. Seconds; 0 without a success.
    pub fn runtime_s(&self, kind: &str) -> f64 {
        self.kinds
            .get(kind)
            .map_or(0.0, KindObservations::runtime_s)
    }

    fn killed_at(&self, kind: &str) -> Option<f64> {
        self.kinds
            .get(kind)?
            .open
            .values()
            .map(|(_, size)| *size)
            .reduce(f64::max)
    }

    /// Typical ratio of need to first size over the kinds, for unknown kinds.
    fn pooled(&mut self) -> Option<f64> {
        if self.pool.len() < MIN_POOLED_KINDS {
            return None;
        }
        let (pool, prices) = (&self.pool, self.prices);
        *self.pooled.get_or_insert_with(|| {
            let mut seen: Vec<ObservedTask> = pool
                .values()
                .map(|need| ObservedTask {
                    need: *need,
                    weight: 1.0,
                    time: 1.0,
                })
                .collect();
            ladder::cheapest(&mut seen, prices).sizes.first().copied()
        })
    }

    /// The ladder with the lowest cost for this task.
    fn ladder(&mut self, asks: &SizeRequest<'_>) -> Option<kind::SizeLadder<'_>> {
        self.kinds
            .get_mut(asks.kind)?
            .ladder(asks.input.map_or(0.0, float), self.prices)
    }
}

/// Rounds up to the size granularity, so that there are few profiles.
pub fn step_up(size: f64) -> Bytes {
    let size = size.max(1.0);
    let even = STEP / (FACTOR - 1.0);
    let above = (size / even).ln() / FACTOR.ln();
    let stepped = if size <= even {
        (size / STEP).ceil() * STEP
    } else {
        even * FACTOR.powf(above.ceil())
    };
    whole(stepped.max(size))
}

/// Rounds up to the size granularity, or to the request if that lies in between.
fn step_to(size: f64, request: Option<Bytes>) -> Bytes {
    let stepped = step_up(size);
    request
        .filter(|request| size <= float(*request))
        .map_or(stepped, |request| stepped.min(request))
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

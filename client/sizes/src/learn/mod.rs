//! Sizes learned per kind of task: from what tasks of it needed, which size the next one is given, and what after a kill.
//!
//! Each way of predicting keeps its own record of how far it was off, told before it learned the answer; the way whose cheapest
//! ladder costs least speaks. Nothing is learned from a task that was killed but that it needs more.
//!
//! *Architecture Invariant*: no clock, no files; the same observations in the same order give the same sizes.

mod kind;
mod misses;
pub mod predict;
pub mod rungs;

use std::collections::BTreeMap;

use headroom_types::Bytes;

use kind::Kind;
use predict::{Point, Way};
use rungs::{Prices, Seen};

/// Tasks of a kind that are remembered.
const REMEMBERED: usize = 250;
/// Kinds that must be known before an unknown one is judged by them.
const POOL: usize = 5;
/// Steps of sizes: this while it is more than ...
const STEP: f64 = 32.0 * 1024.0 * 1024.0;
/// ... this factor.
const FACTOR: f64 = 1.03;
/// A size that was not enough is followed by one at least so much larger.
const BEYOND: f64 = 1.1;
/// So many of a kind killed in a row are followed by all that wait ...
const HERD: usize = 3;
/// ... at this times the size that was not enough.
const AFTER: f64 = 1.25;
/// Tasks that needed more than a killed one had, from which on they are believed to say what it needs.
const AGREE: f64 = 3.0;
/// Tasks of a kind that may run before anything is known of it.
const CANARIES: usize = 8;
/// How many more may run for each one that has ended well.
const RAMP: u64 = 4;
/// How many of those that have ended well a killed one outweighs.
const DOUBT: u64 = 2;

/// Why a size is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From tasks of its kind.
    Kind(Way),
    /// From the other kinds.
    Pool,
    /// What was asked for.
    Request,
    /// More than what was asked for: tasks of its kind were killed at a size, and none has ended well.
    Killed,
    /// Nothing is known.
    Share,
}

/// What is known of the need of a task that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// This holds all that was seen of its kind.
    Rung(Bytes),
    /// More than all that was seen of its kind.
    Beyond,
    /// Nothing.
    Unknown,
}

/// What a task starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Memory.
    pub size: Bytes,
    /// From where.
    pub source: Source,
}

/// A task that asks for a size.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Size of its input. `None` where it is not known.
    pub input: Option<Bytes>,
    /// What was asked for it. `None` where nothing was.
    pub request: Option<Bytes>,
}

/// All kinds of a job family.
#[derive(Clone, Debug)]
pub struct Learner {
    kinds: BTreeMap<String, Kind>,
    /// For each kind: the largest need that was seen as a ratio to what it would have started with.
    pool: BTreeMap<String, f64>,
    /// The ratio that [`Learner::pooled`] gives, while the pool stays as it is.
    pooled: Option<Option<f64>>,
    share: Bytes,
    prices: Prices,
}

impl Learner {
    /// Knows nothing. `share` is given to a task of which nothing at all is known.
    pub fn new(share: Bytes, prices: Prices) -> Learner {
        Learner { kinds: BTreeMap::new(), pool: BTreeMap::new(), pooled: None, share, prices }
    }

    /// Weighs kills against memory by other prices from now on.
    pub fn set_prices(&mut self, prices: Prices) {
        if self.prices != prices {
            self.prices = prices;
            self.pooled = None;
            self.kinds.values_mut().for_each(|kind| kind.ladders = None);
        }
    }

    /// True when one more task of this kind may start beside `running` others. While little is known few of them run: a whole wave
    /// at a size that is too small would be killed together, and one at a size that is too large would waste as much. The first
    /// that end are the short ones besides, and seldom the large ones.
    pub fn may_start(&self, kind: &str, running: usize) -> bool {
        let Some(known) = self.kinds.get(kind) else { return running < CANARIES };
        let killed = u64::try_from(known.open.len()).unwrap_or(u64::MAX);
        let more = known.count.saturating_sub(killed.saturating_mul(DOUBT)).saturating_mul(RAMP);
        running < CANARIES.saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
    }

    /// The size that a task starts with.
    pub fn first(&mut self, asks: &Asks<'_>) -> First {
        if let Some((size, way)) = self.ladder(asks).and_then(|ladder| Some((ladder.first()?, ladder.way))) {
            let herd = self.kinds.get(asks.kind).filter(|kind| kind.wave.0 >= HERD).map_or(0.0, |kind| kind.wave.1 * AFTER);
            return First { size: step_to(size.max(herd), asks.request), source: Source::Kind(way) };
        }
        let (known, source) = match asks.request {
            Some(request) => (request, Source::Request),
            None => (self.share, Source::Share),
        };
        let floor = self.killed_at(asks.kind).map_or(0.0, |size| size * AFTER);
        let pooled = self.pooled().map(|ratio| ratio * float(known)).filter(|size| *size > floor);
        match pooled {
            Some(size) => First { size: step_up(size), source: Source::Pool },
            None if floor > float(known) => First { size: step_up(floor), source: Source::Killed },
            None => First { size: step_up(float(known)), source },
        }
    }

    /// The size after a task was killed at `size`, for the `failures`th time; `largest` is the largest there is. The second try is
    /// above all that is known of its kind, and the third has everything: what is larger than any node has cost three attempts then,
    /// and is given up.
    pub fn next(&mut self, asks: &Asks<'_>, size: Bytes, failures: u32, largest: Bytes) -> Bytes {
        if failures > 1 {
            return largest;
        }
        let least = float(size) * BEYOND;
        let known = self.ladder(asks).and_then(|ladder| ladder.last()).filter(|top| *top >= least);
        step_up(known.unwrap_or(float(size) * 2.0)).min(largest)
    }

    /// What is known when a task was killed at `size`, for the `failures`th time: as [`Learner::next`], for those who have a way of
    /// their own where nothing is known.
    pub fn after_kill(&mut self, asks: &Asks<'_>, size: Bytes, failures: u32) -> After {
        let Some(ladder) = self.ladder(asks) else { return After::Unknown };
        if failures <= 1 {
            let top = ladder.last().filter(|top| *top >= float(size) * BEYOND);
            return top.map_or(After::Unknown, |top| After::Rung(step_up(top)));
        }
        let known = self.kinds.get(asks.kind).is_some_and(|kind| count_u64(kind.count) >= AGREE);
        if known { After::Beyond } else { After::Unknown }
    }

    /// The size of a task that stands at its limit and is given more where it runs: the next rung, or half as much again.
    pub fn grown(&mut self, asks: &Asks<'_>, size: Bytes) -> Bytes {
        let least = float(size) * BEYOND;
        let rung = self.ladder(asks).and_then(|ladder| ladder.sizes().find(|rung| *rung >= least));
        step_up(rung.unwrap_or(float(size) * 1.5))
    }

    /// A task of this kind was killed at this size.
    pub fn killed(&mut self, asks: &Asks<'_>, task: u64, size: Bytes) {
        let kind = self.kinds.entry(asks.kind.to_owned()).or_default();
        kind.killed(task, asks.input.map_or(0.0, float), float(size));
    }

    /// A task that was killed does not run again. What it would have needed is not known, and does not count.
    pub fn dropped(&mut self, kind: &str, task: u64) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.dropped(task);
        }
    }

    /// A task has ended well.
    pub fn ended(&mut self, asks: &Asks<'_>, task: u64, peak: Bytes, runtime_s: f64) {
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
        kind.learn(Point { input: asks.input.map_or(0.0, float), need: float(peak).max(1.0), runtime: runtime_s.max(0.001) });
    }

    /// How long tasks of a kind run in the mean. Seconds; 0 where none has ended.
    pub fn runtime_s(&self, kind: &str) -> f64 {
        self.kinds.get(kind).map_or(0.0, Kind::runtime_s)
    }

    fn killed_at(&self, kind: &str) -> Option<f64> {
        self.kinds.get(kind)?.open.values().map(|(_, size)| *size).reduce(f64::max)
    }

    /// What kinds that nothing is known of turned out to need, as a ratio to what they started with.
    fn pooled(&mut self) -> Option<f64> {
        if self.pool.len() < POOL {
            return None;
        }
        let (pool, prices) = (&self.pool, self.prices);
        *self.pooled.get_or_insert_with(|| {
            let mut seen: Vec<Seen> = pool.values().map(|need| Seen { need: *need, weight: 1.0, time: 1.0 }).collect();
            rungs::cheapest(&mut seen, prices).sizes.first().copied()
        })
    }

    /// The sizes of the way whose ladder costs least for this task.
    fn ladder(&mut self, asks: &Asks<'_>) -> Option<kind::Ladder<'_>> {
        self.kinds.get_mut(asks.kind)?.ladder(asks.input.map_or(0.0, float), self.prices)
    }
}

/// Sizes come in steps, so that profiles stay few.
pub fn step_up(size: f64) -> Bytes {
    let size = size.max(1.0);
    let even = STEP / (FACTOR - 1.0);
    let above = (size / even).ln() / FACTOR.ln();
    let stepped = if size <= even { (size / STEP).ceil() * STEP } else { even * FACTOR.powf(above.ceil()) };
    whole(stepped.max(size))
}

/// The next step, or what was asked for where that lies before it.
fn step_to(size: f64, request: Option<Bytes>) -> Bytes {
    let stepped = step_up(size);
    request.filter(|request| size <= float(*request)).map_or(stepped, |request| stepped.min(request))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes are far below 2^53
fn whole(size: f64) -> Bytes {
    Bytes::new(size.ceil().min(1e18) as u64)
}
#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
fn float(size: Bytes) -> f64 {
    size.get() as f64
}
#[allow(clippy::cast_precision_loss)] // small numbers
fn count(n: usize) -> f64 {
    n as f64
}
#[allow(clippy::cast_precision_loss)] // small numbers
fn count_u64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

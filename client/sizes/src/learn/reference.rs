//! A reference learner without sorted structures and caches: it computes everything from the
//! observations on each query. The property test below requires bit-identical results of the
//! optimized learner.

use std::collections::BTreeMap;

use headroom_types::Bytes;
use proptest::prelude::*;

use super::float::{count, count_u64, float};
use super::ladder::{self, KillPrices, ObservedTask};
use super::predict::{MAX_OBSERVATIONS, Observation, PREDICTION_METHODS, PredictionMethod};
use super::{SizeLearner, SizeRequest};

#[derive(Clone, Copy)]
struct Miss {
    ratio: f64,
    need: f64,
    runtime: f64,
    at: u64,
}

#[derive(Default)]
struct ReferenceLearner {
    points: Vec<Observation>,
    oldest: usize,
    misses: BTreeMap<PredictionMethod, Vec<Miss>>,
    count: u64,
    open: BTreeMap<u64, (f64, f64)>,
}

impl ReferenceLearner {
    fn killed(&mut self, task: u64, input: f64, size: f64) {
        self.open.insert(task, (input, size));
        if self.open.len() > MAX_OBSERVATIONS {
            self.open.pop_first();
        }
    }

    fn ended(&mut self, task: u64, point: Observation) {
        self.open.remove(&task);
        for way in PREDICTION_METHODS {
            let ratio = match self.points.is_empty() {
                true => (way == PredictionMethod::Median).then_some(1.0),
                false => self
                    .predict(way, point.input)
                    .map(|predicted| point.need / predicted),
            };
            let Some(ratio) = ratio else { continue };
            let misses = self.misses.entry(way).or_default();
            if misses.len() >= MAX_OBSERVATIONS {
                misses.remove(0);
            }
            misses.push(Miss {
                ratio,
                need: point.need,
                runtime: point.runtime,
                at: self.count,
            });
        }
        if self.points.len() < MAX_OBSERVATIONS {
            self.points.push(point);
        } else {
            self.points[self.oldest] = point;
            self.oldest = (self.oldest + 1) % MAX_OBSERVATIONS;
        }
        self.count += 1;
    }

    fn predict(&self, way: PredictionMethod, input: f64) -> Option<f64> {
        let mut needs: Vec<f64> = self.points.iter().map(|p| p.need).collect();
        needs.sort_by(f64::total_cmp);
        let (least, most) = (*needs.first()?, *needs.last()?);
        let known = || self.points.iter().filter(|p| p.input > 0.0);
        let raw = match way {
            PredictionMethod::Median => needs[needs.len() / 2],
            PredictionMethod::Linear => {
                let (a, b) =
                    line(known().map(|p| (p.input, p.need)).collect()).filter(|_| input > 0.0)?;
                a + b * input
            }
            PredictionMethod::LogLog => {
                let (a, b) = line(known().map(|p| (p.input.ln(), p.need.ln())).collect())
                    .filter(|_| input > 0.0)?;
                (a + b * input.ln()).exp()
            }
            PredictionMethod::Nearest => {
                let mut near: Vec<(f64, f64)> =
                    known().map(|p| ((p.input - input).abs(), p.need)).collect();
                near.sort_by(|a, b| a.0.total_cmp(&b.0));
                near.iter()
                    .take(5)
                    .map(|(_, need)| *need)
                    .reduce(f64::max)
                    .filter(|_| input > 0.0)?
            }
        };
        Some(raw.clamp(least * 0.5, most * 8.0)).filter(|need| *need > 0.0)
    }

    fn seen(&self, way: PredictionMethod, misses: &[Miss]) -> Vec<ObservedTask> {
        let mean = misses.iter().map(|m| m.runtime).sum::<f64>() / count(misses.len());
        let median = (way == PredictionMethod::Median)
            .then(|| self.predict(way, 0.0))
            .flatten();
        let mut seen: Vec<ObservedTask> = Vec::new();
        for miss in misses {
            let weight = 0.5_f64.powf(count_u64(self.count - miss.at) / 125.0);
            let need = median.map_or(miss.ratio, |median| miss.need / median);
            seen.push(ObservedTask {
                need,
                weight,
                time: weight * miss.runtime / mean,
            });
        }
        seen.sort_by(|a, b| a.need.total_cmp(&b.need));
        let above = |from: usize| seen[from..].iter().rev().fold(0.0, |sum, s| sum + s.weight);
        let (mut alone, mut share) = (Vec::new(), vec![0.0; seen.len() + 1]);
        for (input, size) in self.open.values() {
            let Some(had) = self.predict(way, *input).map(|predicted| size / predicted) else {
                continue;
            };
            let from = seen.partition_point(|s| s.need <= had);
            if above(from) < 3.0 {
                alone.push(ObservedTask {
                    need: had * 1.5,
                    weight: 1.0,
                    time: 1.0,
                });
            } else {
                share[from] += 1.0 / above(from);
            }
        }
        let mut more = 1.0;
        for (one, share) in seen.iter_mut().zip(share) {
            more += share;
            one.weight *= more;
            one.time *= more;
        }
        seen.extend(alone);
        seen
    }

    fn mean(&self, way: PredictionMethod) -> f64 {
        if way == PredictionMethod::Median {
            return self.predict(way, 0.0).unwrap_or(f64::INFINITY);
        }
        let of: Vec<f64> = self
            .points
            .iter()
            .step_by(8)
            .filter_map(|p| self.predict(way, p.input))
            .collect();
        if of.is_empty() {
            f64::INFINITY
        } else {
            of.iter().sum::<f64>() / count(of.len())
        }
    }

    fn ladder(&self, input: f64, prices: KillPrices) -> Option<(PredictionMethod, Vec<f64>)> {
        let mut best: Option<(f64, PredictionMethod, Vec<f64>)> = None;
        for way in PREDICTION_METHODS {
            let enough = if way == PredictionMethod::Median {
                1
            } else {
                3
            };
            let Some(misses) = self
                .misses
                .get(&way)
                .filter(|misses| misses.len() >= enough)
            else {
                continue;
            };
            let Some(predicted) = self.predict(way, input) else {
                continue;
            };
            let rungs = ladder::cheapest(&mut self.seen(way, misses), prices);
            let cost = rungs.cost * self.mean(way);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((
                    cost,
                    way,
                    rungs.sizes.iter().map(|ratio| ratio * predicted).collect(),
                ));
            }
        }
        best.map(|(_, way, sizes)| (way, sizes))
    }
}

fn line(points: Vec<(f64, f64)>) -> Option<(f64, f64)> {
    let n = count(points.len());
    let (sx, sy) = points
        .iter()
        .fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let (mx, my) = (sx / n, sy / n);
    let (sxx, sxy) = points.iter().fold((0.0, 0.0), |(xx, xy), (x, y)| {
        (xx + (x - mx) * (x - mx), xy + (x - mx) * (y - my))
    });
    let steep = (points.len() >= 3 && sxx > f64::EPSILON * mx.abs().max(1.0)).then(|| sxy / sxx)?;
    Some((my - steep * mx, steep))
}

/// An event of a task of the kind.
#[derive(Clone, Copy, Debug)]
enum TaskHappening {
    Ended,
    Killed,
    Dropped,
}

/// Tasks: number, input and need (from few values, so that many are equal), and run time.
fn history() -> impl Strategy<Value = Vec<(TaskHappening, u64, u64, u64, u32)>> {
    let happens = prop_oneof![10 => Just(TaskHappening::Ended), 2 => Just(TaskHappening::Killed), 1 => Just(TaskHappening::Dropped)];
    let input =
        prop_oneof![1 => Just(0u64), 4 => (1u64..20).prop_map(|n| n << 20), 4 => 1u64..1 << 34];
    let need = prop_oneof![2 => (1u64..12).prop_map(|n| n << 26), 3 => 1u64 << 20..1 << 36];
    prop::collection::vec((happens, 0u64..40, input, need, 1u32..5000), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_learner_matches_the_reference_implementation(history in history(), asked in prop::collection::vec(0u64..1 << 33, 3)) {
        let prices = KillPrices::default();
        let (mut fast, mut plain) = (SizeLearner::new(Bytes::from_gib(4), prices), ReferenceLearner::default());
        for (n, (happens, task, input, size, millis)) in history.iter().copied().enumerate() {
            let asks = SizeRequest { kind: "k", input: (input > 0).then_some(Bytes::new(input)), request: None };
            let (input, size) = (float(Bytes::new(input)), Bytes::new(size));
            match happens {
                TaskHappening::Ended => {
                    let runtime = f64::from(millis) / 1000.0;
                    fast.record_success(&asks, task, size, runtime);
                    plain.ended(task, Observation { input, need: float(size), runtime });
                }
                TaskHappening::Killed => {
                    fast.record_kill(&asks, task, size);
                    plain.killed(task, input, float(size));
                }
                TaskHappening::Dropped => {
                    fast.record_abandoned("k", task);
                    plain.open.remove(&task);
                }
            }
            if n % 16 != 0 && n + 1 != history.len() {
                continue;
            }
            for input in asked.iter().copied().chain([0, 3 << 20]) {
                let asks = SizeRequest { input: Some(Bytes::new(input)), ..asks };
                let found = fast.ladder(&asks).map(|ladder| (ladder.way, ladder.sizes().collect::<Vec<f64>>()));
                let expected = plain.ladder(float(Bytes::new(input)), prices).filter(|_| !plain.points.is_empty());
                prop_assert_eq!(found, expected, "after {} observations, input {}", n + 1, input);
            }
        }
    }
}

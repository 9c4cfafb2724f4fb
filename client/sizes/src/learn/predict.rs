//! Predictors of a task's need from the size of its input: four simple methods, each fitted to the
//! last successful tasks.
//!
//! [`KindHistory`] keeps the tasks sorted by input and by need, so that a new task costs a few
//! insertions, and a prediction a binary search.

use super::float::count;

/// A successful task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Size of its input; 0 if unknown. Bytes.
    pub input: f64,
    /// Memory need. Bytes.
    pub need: f64,
    /// Run time. Seconds.
    pub runtime: f64,
}

/// A prediction method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PredictionMethod {
    /// The median need, regardless of the input.
    Median,
    /// A linear fit of need over input.
    Linear,
    /// A linear fit of their logarithms.
    LogLog,
    /// The largest need among the five tasks with the nearest inputs.
    Nearest,
}

/// All methods.
pub const PREDICTION_METHODS: [PredictionMethod; 4] = [
    PredictionMethod::Median,
    PredictionMethod::Linear,
    PredictionMethod::LogLog,
    PredictionMethod::Nearest,
];
/// Maximum number of observations per kind.
pub(super) const MAX_OBSERVATIONS: usize = 250;
/// Number of neighbours of [`PredictionMethod::Nearest`].
const NEIGHBOURS: usize = 5;
/// The mean of a predictor uses one of this number of tasks.
const SAMPLED: usize = 8;

/// A straight line: its value at 0, and its slope.
type LinearFit = (f64, f64);

/// The last tasks of a kind, with the predictors fitted to them.
#[derive(Clone, Debug, Default)]
pub struct KindHistory {
    /// Tasks by slot. The oldest is replaced once all slots are taken.
    points: Vec<Observation>,
    oldest: usize,
    /// Logarithms of input and need, by slot.
    logs: Vec<(f64, f64)>,
    /// Inputs with the slots of their tasks, ascending. Tasks without an input are omitted.
    by_input: Vec<(f64, usize)>,
    /// Needs, ascending. Bytes.
    needs: Vec<f64>,
    linear: Option<LinearFit>,
    loglog: Option<LinearFit>,
    /// Mean run time. Seconds.
    runtime: f64,
}

impl KindHistory {
    /// Adds a task and fits all predictors. Replaces the oldest task once 250 are kept.
    pub fn push(&mut self, point: Observation) {
        let slot = if self.points.len() < MAX_OBSERVATIONS {
            self.points.push(point);
            self.logs.push((0.0, 0.0));
            self.points.len() - 1
        } else {
            let slot = self.oldest;
            self.oldest = (slot + 1) % MAX_OBSERVATIONS;
            if let Some(place) = self.points.get_mut(slot) {
                let gone = std::mem::replace(place, point);
                self.forget(slot, gone);
            }
            slot
        };
        if let Some(logs) = self.logs.get_mut(slot) {
            *logs = (point.input.ln(), point.need.ln());
        }
        self.needs.insert(
            self.needs.partition_point(|need| *need < point.need),
            point.need,
        );
        if point.input > 0.0 {
            let at = self
                .by_input
                .partition_point(|other| before(*other, (point.input, slot)));
            self.by_input.insert(at, (point.input, slot));
        }
        self.fit();
    }

    /// The kept tasks, by slot.
    pub fn points(&self) -> &[Observation] {
        &self.points
    }

    /// Mean run time of the tasks. Seconds; 0 without tasks.
    pub fn runtime_s(&self) -> f64 {
        self.runtime
    }

    /// Predicted need of a task with this input. Bytes; `None` if the method has no prediction.
    pub fn predict(&self, way: PredictionMethod, input: f64) -> Option<f64> {
        let (least, most) = (*self.needs.first()?, *self.needs.last()?);
        let raw = match way {
            PredictionMethod::Median => *self.needs.get(self.needs.len() / 2)?,
            PredictionMethod::Linear => self
                .linear
                .filter(|_| input > 0.0)
                .map(|(a, b)| a + b * input)?,
            PredictionMethod::LogLog => self
                .loglog
                .filter(|_| input > 0.0)
                .map(|(a, b)| (a + b * input.ln()).exp())?,
            PredictionMethod::Nearest => self.nearest(input)?,
        };
        // Predictions far beyond the observed needs are not credible.
        Some(raw.clamp(least * 0.5, most * 8.0)).filter(|need| *need > 0.0)
    }

    /// Mean prediction of a method, so that costs of methods are comparable. Bytes; infinite
    /// without predictions.
    pub fn mean(&self, way: PredictionMethod) -> f64 {
        if way == PredictionMethod::Median {
            return self.predict(way, 0.0).unwrap_or(f64::INFINITY);
        }
        let sampled = self
            .points
            .iter()
            .step_by(SAMPLED)
            .filter_map(|point| self.predict(way, point.input));
        let (sum, count) = sampled.fold((0.0, 0.0), |(sum, count), need| (sum + need, count + 1.0));
        if count > 0.0 {
            sum / count
        } else {
            f64::INFINITY
        }
    }

    fn forget(&mut self, slot: usize, gone: Observation) {
        let at = self.needs.partition_point(|need| *need < gone.need);
        if at < self.needs.len() {
            self.needs.remove(at);
        }
        let at = self
            .by_input
            .partition_point(|other| before(*other, (gone.input, slot)));
        if gone.input > 0.0 && at < self.by_input.len() {
            self.by_input.remove(at);
        }
    }

    fn fit(&mut self) {
        self.runtime = self.points.iter().map(|point| point.runtime).sum::<f64>()
            / count(self.points.len()).max(1.0);
        let known = || {
            self.points
                .iter()
                .zip(&self.logs)
                .filter(|(point, _)| point.input > 0.0)
        };
        self.linear = line(known().map(|(point, _)| (point.input, point.need)));
        self.loglog = line(
            known()
                .filter(|(point, _)| point.need > 0.0)
                .map(|(_, logs)| *logs),
        );
    }

    /// The largest need among the [`NEIGHBOURS`] tasks with the nearest inputs. Among equal
    /// distances the lower slot comes first.
    fn nearest(&self, input: f64) -> Option<f64> {
        if input <= 0.0 {
            return None;
        }
        let mut above = self.by_input.partition_point(|(other, _)| *other < input);
        let mut below = self.equal_inputs_before(above);
        let mut most = 0.0_f64;
        for _ in 0..NEIGHBOURS {
            let distance = |(other, slot): &(f64, usize)| ((other - input).abs(), *slot);
            let right = self.by_input.get(above).map(distance);
            let left = self
                .by_input
                .get(below.at)
                .filter(|_| below.at < below.end)
                .map(distance);
            let slot = match (left, right) {
                (Some(left), right) if right.is_none_or(|right| before(left, right)) => {
                    below.at += 1;
                    left.1
                }
                (_, Some(right)) => {
                    above += 1;
                    right.1
                }
                (_, None) => break,
            };
            if below.at == below.end && below.at > below.start {
                below = self.equal_inputs_before(below.start);
            }
            most = most.max(self.points.get(slot).map_or(0.0, |point| point.need));
        }
        (most > 0.0).then_some(most)
    }

    /// The tasks before `end` in sort order that share the input of the last of them.
    fn equal_inputs_before(&self, end: usize) -> EqualInputs {
        let ahead = self.by_input.get(..end).unwrap_or_default();
        let start = ahead.last().map_or(0, |(last, _)| {
            ahead.partition_point(|(other, _)| other < last)
        });
        EqualInputs {
            start,
            at: start,
            end,
        }
    }
}

#[cfg(test)]
impl KindHistory {
    /// Allocated memory. Bytes.
    pub(super) fn bytes(&self) -> usize {
        let points = self.points.capacity() * size_of::<Observation>()
            + self.logs.capacity() * size_of::<(f64, f64)>();
        points
            + self.by_input.capacity() * size_of::<(f64, usize)>()
            + self.needs.capacity() * size_of::<f64>()
    }
}

/// A range of tasks with equal inputs, and the next of them to visit.
#[derive(Clone, Copy, Debug)]
struct EqualInputs {
    start: usize,
    at: usize,
    end: usize,
}

/// Compares inputs or distances, then slots.
fn before(one: (f64, usize), other: (f64, usize)) -> bool {
    one.0 < other.0 || (one.0 <= other.0 && one.1 < other.1)
}

/// Least-squares fit: intercept and slope. Requires two different x values.
fn line(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<LinearFit> {
    let (n, sx, sy) = points.clone().fold((0.0, 0.0, 0.0), |(n, sx, sy), (x, y)| {
        (n + 1.0, sx + x, sy + y)
    });
    if n < 3.0 {
        return None;
    }
    let (mx, my) = (sx / n, sy / n);
    let (sxx, sxy) = points.fold((0.0, 0.0), |(sxx, sxy), (x, y)| {
        (sxx + (x - mx) * (x - mx), sxy + (x - mx) * (y - my))
    });
    if sxx <= f64::EPSILON * mx.abs().max(1.0) {
        return None;
    }
    let slope = sxy / sxx;
    Some((my - slope * mx, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(of: impl Fn(f64) -> f64) -> KindHistory {
        let mut history = KindHistory::default();
        (1..50).for_each(|n| {
            history.push(Observation {
                input: f64::from(n) * 1e6,
                need: of(f64::from(n) * 1e6),
                runtime: 1.0,
            })
        });
        history
    }
    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a / b - 1.0).abs() < 0.01)
    }

    #[test]
    fn a_linear_relation_is_learned() {
        assert!(near(
            history(|x| 5e7 + 3.0 * x).predict(PredictionMethod::Linear, 7e7),
            5e7 + 21e7
        ));
    }

    #[test]
    fn a_power_relation_is_learned() {
        assert!(near(
            history(|x| 2.0 * x.powf(1.2)).predict(PredictionMethod::LogLog, 6e7),
            2.0 * 6e7_f64.powf(1.2)
        ));
    }

    #[test]
    fn nearest_inputs_predict_their_largest_need() {
        assert!(near(
            history(|x| x).predict(PredictionMethod::Nearest, 20.2e6),
            22e6
        ));
    }

    #[test]
    fn without_an_input_only_the_median_predicts() {
        let history = history(|x| x);
        assert!(history.predict(PredictionMethod::Median, 0.0).is_some());
        for way in [
            PredictionMethod::Linear,
            PredictionMethod::LogLog,
            PredictionMethod::Nearest,
        ] {
            assert_eq!(history.predict(way, 0.0), None);
        }
    }

    #[test]
    fn equal_inputs_yield_no_line() {
        let mut history = KindHistory::default();
        assert_eq!(history.predict(PredictionMethod::Median, 1.0), None);
        (0..10).for_each(|_| {
            history.push(Observation {
                input: 5.0,
                need: 7.0,
                runtime: 1.0,
            })
        });
        assert_eq!(history.predict(PredictionMethod::Linear, 9.0), None);
    }
}

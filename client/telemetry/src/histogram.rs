//! A histogram that several threads can add to without a lock.
//!
//! The sum is stored in millionths of its unit, so that one atomic integer holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds for times from 0.1 ms to 10 s: calls, writes, turns of a loop. Seconds.
pub const SHORT: &[f64] = &[
    0.0001, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Bounds for times from 0.1 s to 2 h: waits and run times. Seconds.
pub const LONG: &[f64] = &[
    0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0,
];
/// Bounds for fractions of a whole, finer near 1.
pub const PARTS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];

const MILLION: f64 = 1e6;

/// Counts by size.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One count for each bound, and one for values above the last bound.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSnapshot {
    /// Sum of all values.
    pub sum: f64,
    /// Upper bounds with the number of values between each bound and the one before. The last bound
    /// is infinity.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// An empty histogram; `bounds` must be ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram {
            bounds,
            counts,
            sum: AtomicU64::new(0),
        }
    }

    /// Adds one value, which must not be negative.
    pub fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates"
        )]
        self.sum
            .fetch_add((value * MILLION) as u64, Ordering::Relaxed);
    }

    /// Adds one duration, in seconds.
    pub fn time(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// The present contents.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        #[expect(
            clippy::cast_precision_loss,
            reason = "millionths are lost beyond 2^53 of them"
        )]
        let sum = self.sum.load(Ordering::Relaxed) as f64 / MILLION;
        HistogramSnapshot {
            sum,
            buckets: bounds.zip(counts).collect(),
        }
    }
}

impl HistogramSnapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, n)| n).sum()
    }

    /// The sum of two histograms with the same bounds.
    #[must_use]
    pub fn plus(mut self, other: &HistogramSnapshot) -> Self {
        if self.buckets.is_empty() {
            return other.clone();
        }
        self.sum += other.sum;
        for ((_, n), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *n += more;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_lowest_matching_bucket() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 7.25] {
            histogram.observe(value);
        }
        let spread = histogram.snapshot();
        assert_eq!(spread.buckets, [(1.0, 2), (2.0, 2), (f64::INFINITY, 1)]);
        assert_eq!(
            (spread.sum.to_string().as_str(), spread.count()),
            ("11.75", 5)
        );
        assert_eq!(spread.clone().plus(&spread).count(), 10);
    }
}

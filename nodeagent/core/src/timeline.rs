//! The memory of one container or task from birth to now, in a bounded number of points.
//!
//! When it is full it keeps every second point and takes in half as many from then on, so that a long life is covered as evenly
//! as a short one. The largest use in a stretch is the one that is kept: a timeline never hides a peak.

use headroom_types::exit::Sample;

/// Most points of a timeline by default: a minute at 4 Hz in full resolution, and 4 KiB per 100 points.
pub const POINTS: usize = 512;

/// A bounded timeline.
#[derive(Clone, Debug)]
pub struct Timeline {
    points: Vec<Sample>,
    most: usize,
    /// How many samples stand behind one point.
    stride: u64,
    /// How many samples were taken into the last point.
    in_last: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline::new(POINTS)
    }
}

impl Timeline {
    /// An empty timeline of at most `most` points, and at least two.
    pub fn new(most: usize) -> Self {
        Timeline { points: Vec::new(), most: most.max(2), stride: 1, in_last: 0 }
    }

    /// Takes in one sample. Samples come in the order of their time.
    pub fn push(&mut self, sample: Sample) {
        if self.in_last < self.stride && self.in_last > 0 {
            self.in_last += 1;
            if let Some(last) = self.points.last_mut() {
                *last = larger(*last, sample);
            }
            return;
        }
        if self.points.len() >= self.most {
            self.halve();
        }
        self.points.push(sample);
        self.in_last = 1;
    }

    /// The points so far, oldest first.
    pub fn points(&self) -> &[Sample] {
        &self.points
    }

    /// The last point.
    pub fn last(&self) -> Option<&Sample> {
        self.points.last()
    }

    /// All points, oldest first.
    pub fn into_vec(self) -> Vec<Sample> {
        self.points
    }

    fn halve(&mut self) {
        self.points = self
            .points
            .chunks(2)
            .filter_map(|pair| match pair {
                [a, b] => Some(larger(*a, *b)),
                [a] => Some(*a),
                _ => None,
            })
            .collect();
        self.stride = self.stride.saturating_mul(2);
    }
}

fn larger(a: Sample, b: Sample) -> Sample {
    if b.current >= a.current { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;
    use proptest::prelude::*;

    fn sample(at_ms: u64, current: u64) -> Sample {
        Sample { at_ms, current: Bytes::new(current), anon: None, file: None, heap: None, limit: None }
    }

    #[test]
    fn a_short_life_is_kept_whole() {
        let mut t = Timeline::new(8);
        (0..8).for_each(|i| t.push(sample(i * 250, i)));
        assert_eq!(t.points().iter().map(|s| s.at_ms).collect::<Vec<_>>(), (0..8).map(|i| i * 250).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_life_is_thinned_evenly() {
        let mut t = Timeline::new(8);
        (0..1000).for_each(|i| t.push(sample(i, i)));
        let points = t.into_vec();
        assert!((4..=8).contains(&points.len()), "{} points", points.len());
        let gaps: Vec<u64> = points.windows(2).map(|w| w[1].at_ms - w[0].at_ms).collect();
        assert!(gaps.iter().all(|gap| *gap >= 64), "{gaps:?}");
    }

    proptest! {
        #[test]
        fn is_bounded_ordered_and_never_hides_the_peak(
            most in 2usize..40,
            uses in proptest::collection::vec(0u64..1 << 40, 1..2000),
        ) {
            let mut t = Timeline::new(most);
            for (at, used) in (0u64..).zip(&uses) {
                t.push(sample(at, *used));
            }
            let peak = uses.iter().max().copied();
            prop_assert_eq!(t.points().iter().map(|s| s.current.get()).max(), peak);
            prop_assert!(t.points().len() <= most);
            prop_assert!(t.points().windows(2).all(|w| w[0].at_ms < w[1].at_ms));
        }
    }
}

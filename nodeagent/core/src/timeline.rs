//! The memory of one container or task from its start, in a bounded number of points.
//!
//! A full timeline keeps every second point and then accepts half as many, so that a long run is
//! covered as evenly as a short one. Each point holds the largest use of its samples, so the
//! timeline never hides a peak. Marks are never thinned out: a change of the limit, a starved heap,
//! the end.

use std::cmp::Ordering;

use headroom_types::exit::{MemorySample, TimelineMark};
use headroom_types::{Bytes, Evidence, ExitReason};

/// Default for the maximum number of points: two minutes at 4 Hz in full resolution, and 4 KiB per
/// 100 points.
pub const POINTS: usize = 512;

/// A bounded timeline.
#[derive(Clone, Debug)]
pub struct MemoryTimeline {
    points: Vec<MemorySample>,
    most: usize,
    /// Number of samples per point.
    stride: u64,
    /// Number of samples in the last point.
    in_last: u64,
    /// The limit of the last sample.
    limit: Option<Bytes>,
}

impl Default for MemoryTimeline {
    fn default() -> Self {
        MemoryTimeline::new(POINTS)
    }
}

impl MemoryTimeline {
    /// An empty timeline of at most `most` points, and at least two.
    pub fn new(most: usize) -> Self {
        MemoryTimeline {
            points: Vec::new(),
            most: most.max(2),
            stride: 1,
            in_last: 0,
            limit: None,
        }
    }

    /// Adds one sample. Samples arrive in the order of their time.
    pub fn push(&mut self, mut sample: MemorySample) {
        sample.mark = sample.mark.max(self.limit_moved(sample.limit));
        if self.in_last < self.stride && self.in_last > 0 {
            self.in_last += 1;
            if let Some(last) = self.points.last_mut() {
                *last = last.merge_larger(sample);
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
    pub fn points(&self) -> &[MemorySample] {
        &self.points
    }

    /// The last point.
    pub fn last(&self) -> Option<&MemorySample> {
        self.points.last()
    }

    /// All points, oldest first.
    pub fn into_vec(self) -> Vec<MemorySample> {
        self.points
    }

    /// The change of the limit since the previous sample.
    fn limit_moved(&mut self, now: Option<Bytes>) -> Option<TimelineMark> {
        let next = now.or(self.limit);
        let before = std::mem::replace(&mut self.limit, next)?;
        match now?.cmp(&before) {
            Ordering::Greater => Some(TimelineMark::LimitRaised),
            Ordering::Less => Some(TimelineMark::LimitLowered),
            Ordering::Equal => None,
        }
    }

    fn halve(&mut self) {
        self.points = self
            .points
            .chunks(2)
            .filter_map(|pair| match pair {
                [a, b] => Some(a.merge_larger(*b)),
                [a] => Some(*a),
                _ => None,
            })
            .collect();
        self.stride = self.stride.saturating_mul(2);
    }
}

/// Marks the last point with the kind of end.
pub fn mark_end(points: &mut [MemorySample], reason: ExitReason, e: &Evidence) {
    let Some(last) = points.last_mut() else {
        return;
    };
    last.mark = last.mark.max(Some(end(reason, e)));
}

fn end(reason: ExitReason, e: &Evidence) -> TimelineMark {
    if e.stop_asked.is_some() && e.exit_code != Some(0) {
        return TimelineMark::Stopped;
    }
    match reason {
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::AncestorOom
        | ExitReason::NodeOom
            if e.signal.is_some() && e.heap_marker.is_none() =>
        {
            TimelineMark::Killed
        }
        ExitReason::StalledAtLimit
        | ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost => TimelineMark::Stopped,
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::AncestorOom
        | ExitReason::NodeOom
        | ExitReason::KilledExternally
        | ExitReason::LaunchFailed
        | ExitReason::Exit { .. }
        | ExitReason::Signal { .. } => TimelineMark::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::EnforcerKind;
    use proptest::prelude::*;

    fn sample(at_ms: u64, current: u64) -> MemorySample {
        MemorySample {
            at_ms,
            current: Bytes::new(current),
            anon: None,
            file: None,
            heap: None,
            limit: None,
            mark: None,
        }
    }

    #[test]
    fn a_short_timeline_keeps_all_points() {
        let mut t = MemoryTimeline::new(8);
        (0..8).for_each(|i| t.push(sample(i * 250, i)));
        assert_eq!(
            t.points().iter().map(|s| s.at_ms).collect::<Vec<_>>(),
            (0..8).map(|i| i * 250).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_long_timeline_is_thinned_evenly() {
        let mut t = MemoryTimeline::new(8);
        (0..1000).for_each(|i| t.push(sample(i, i)));
        let points = t.into_vec();
        assert!((4..=8).contains(&points.len()), "{} points", points.len());
        let gaps: Vec<u64> = points.windows(2).map(|w| w[1].at_ms - w[0].at_ms).collect();
        assert!(gaps.iter().all(|gap| *gap >= 64), "{gaps:?}");
    }

    #[test]
    fn a_change_of_the_limit_is_marked_and_survives_thinning() {
        let mut t = MemoryTimeline::new(8);
        for i in 0..1000u64 {
            let limit = Bytes::new(if i < 333 { 500 } else { 700 });
            t.push(MemorySample {
                limit: Some(limit),
                ..sample(i, i % 7)
            });
        }
        let marks: Vec<u64> = t
            .points()
            .iter()
            .filter(|s| s.mark == Some(TimelineMark::LimitRaised))
            .map(|s| s.at_ms)
            .collect();
        assert_eq!(marks.len(), 1, "{:?}", t.points());
        assert!(
            marks[0].abs_diff(333) <= 256,
            "the mark is near its time: {marks:?}"
        );
    }

    #[test]
    fn the_end_has_the_mark_of_its_cause() {
        let mut killed = Evidence::empty(EnforcerKind::Cgroup2);
        killed.signal = Some(9);
        let mark = |reason, e: &Evidence| {
            let mut points = [sample(0, 1), sample(1, 2)];
            mark_end(&mut points, reason, e);
            (points[0].mark, points[1].mark)
        };
        assert_eq!(
            mark(ExitReason::TaskOom, &killed),
            (None, Some(TimelineMark::Killed))
        );
        assert_eq!(
            mark(ExitReason::KilledExternally, &killed),
            (None, Some(TimelineMark::Ended))
        );
        let mut by_itself = Evidence::empty(EnforcerKind::Cgroup2);
        by_itself.exit_code = Some(3);
        assert_eq!(
            mark(ExitReason::HeapOom, &by_itself),
            (None, Some(TimelineMark::Ended))
        );
        killed.stop_asked = Some(headroom_types::StopCause::Stalled);
        assert_eq!(
            mark(ExitReason::StalledAtLimit, &killed),
            (None, Some(TimelineMark::Stopped))
        );
        mark_end(&mut [], ExitReason::TaskOom, &killed);
    }

    proptest! {
        #[test]
        fn is_bounded_ordered_and_never_hides_the_peak(
            most in 2usize..40,
            uses in proptest::collection::vec(0u64..1 << 40, 1..2000),
        ) {
            let mut t = MemoryTimeline::new(most);
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

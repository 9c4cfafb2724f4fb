//! The memory of one container or task from its start, in a bounded number of points.
//!
//! A full timeline keeps every second point and then accepts half as many, so that a long run is
//! covered as evenly as a short one. Each point holds the largest use of its samples, so the
//! timeline never hides a peak. Marks are never thinned out: a change of the limit, a starved heap,
//! the end.
//!
//! Consecutive points that differ only in their time are one run. It takes the room of one point,
//! and readers get its first and its last point. Thousands of idle programs then cost little memory,
//! and their reports are short.

use std::cmp::Ordering;

use headroom_types::exit::{MemorySample, TimelineMark};
use headroom_types::{Bytes, Evidence, ExitReason};

/// Default for the maximum number of points: two minutes at 4 Hz in full resolution, and 6 KiB per
/// 100 runs.
pub const POINTS: usize = 512;

/// A bounded timeline.
#[derive(Clone, Debug)]
pub struct MemoryTimeline {
    /// All points but the last.
    runs: Vec<PointRun>,
    /// Number of points in all runs.
    len: usize,
    /// The last point, which may accept more samples.
    last: Option<MemorySample>,
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
            runs: Vec::new(),
            len: 0,
            last: None,
            most: most.max(2),
            stride: 1,
            in_last: 0,
            limit: None,
        }
    }

    /// Adds one sample. Samples arrive in the order of their time.
    pub fn push(&mut self, mut sample: MemorySample) {
        sample.mark = sample.mark.max(self.limit_moved(sample.limit));
        if let Some(last) = &mut self.last {
            if self.in_last < self.stride {
                self.in_last += 1;
                *last = last.merge_larger(sample);
                return;
            }
            let last = *last;
            self.append(last);
            if self.len >= self.most {
                self.halve();
            }
        }
        self.last = Some(sample);
        self.in_last = 1;
    }

    /// The points so far, oldest first. Of each run, the first and the last point.
    pub fn points(&self) -> Vec<MemorySample> {
        let mut points = Vec::with_capacity(2 * self.runs.len() + 1);
        for run in &self.runs {
            points.push(run.at(run.first_ms));
            points.extend((run.len > 1).then(|| run.at(run.last_ms)));
        }
        let Some(last) = self.last else {
            return points;
        };
        // The last point may continue a run.
        if let (Some(run), Some(end)) = (self.runs.last(), points.last_mut())
            && run.len > 1
            && run.continues_with(&last)
        {
            *end = last;
        } else {
            points.push(last);
        }
        points
    }

    /// The largest use so far.
    pub fn peak(&self) -> Option<Bytes> {
        let runs = self.runs.iter().map(|run| Bytes::new(run.current));
        runs.chain(self.last.map(|last| last.current)).max()
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

    fn append(&mut self, point: MemorySample) {
        self.len += 1;
        match self.runs.last_mut() {
            Some(run) if run.continues_with(&point) => {
                run.last_ms = point.at_ms;
                run.len += 1;
            }
            Some(_) | None => self.runs.push(PointRun::of(&point)),
        }
    }

    fn halve(&mut self) {
        let points: Vec<MemorySample> = self.runs.iter().flat_map(PointRun::points).collect();
        self.runs.clear();
        self.len = 0;
        for pair in points.chunks(2) {
            if let Some(point) = pair.iter().copied().reduce(MemorySample::merge_larger) {
                self.append(point);
            }
        }
        self.stride = self.stride.saturating_mul(2);
    }
}

/// The value of a quantity that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Consecutive points that differ only in their time. Quantities in bytes.
#[derive(Clone, Copy, Debug)]
struct PointRun {
    first_ms: u64,
    last_ms: u64,
    current: u64,
    anon: u64,
    file: u64,
    heap: u64,
    limit: u64,
    len: u32,
    /// A point with a mark is a run of its own.
    mark: Option<TimelineMark>,
}

impl PointRun {
    fn of(point: &MemorySample) -> PointRun {
        let packed = |bytes: Option<Bytes>| bytes.map_or(UNKNOWN, Bytes::get);
        PointRun {
            first_ms: point.at_ms,
            last_ms: point.at_ms,
            current: point.current.get(),
            anon: packed(point.anon),
            file: packed(point.file),
            heap: packed(point.heap),
            limit: packed(point.limit),
            len: 1,
            mark: point.mark,
        }
    }

    /// The point of the run at this time.
    fn at(&self, at_ms: u64) -> MemorySample {
        let unpacked = |bytes: u64| (bytes != UNKNOWN).then_some(Bytes::new(bytes));
        MemorySample {
            at_ms,
            current: Bytes::new(self.current),
            anon: unpacked(self.anon),
            file: unpacked(self.file),
            heap: unpacked(self.heap),
            limit: unpacked(self.limit),
            mark: self.mark,
        }
    }

    fn continues_with(&self, point: &MemorySample) -> bool {
        let next = MemorySample {
            at_ms: self.first_ms,
            ..*point
        };
        self.mark.is_none() && self.at(self.first_ms) == next
    }

    /// All points. Those between the first and the last have even distances.
    fn points(&self) -> impl Iterator<Item = MemorySample> {
        let (span, steps) = (self.last_ms - self.first_ms, u64::from(self.len - 1).max(1));
        (0..u64::from(self.len)).map(move |n| self.at(self.first_ms + span * n / steps))
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
    fn equal_points_are_a_run_with_a_first_and_a_last_point() {
        let mut t = MemoryTimeline::new(64);
        for at_ms in 0..40 {
            t.push(sample(at_ms, if at_ms < 10 { 5 } else { 7 }));
        }
        let shape = |t: &MemoryTimeline| {
            let points = t.points().into_iter();
            points
                .map(|s| (s.at_ms, s.current.get()))
                .collect::<Vec<_>>()
        };
        assert_eq!(shape(&t), [(0, 5), (9, 5), (10, 7), (39, 7)]);
        t.push(sample(40, 9));
        assert_eq!(shape(&t), [(0, 5), (9, 5), (10, 7), (39, 7), (40, 9)]);
        assert_eq!(t.runs.len(), 2);
        assert_eq!(t.peak(), Some(Bytes::new(9)));
    }

    #[test]
    fn a_long_run_is_thinned_like_other_points() {
        let mut t = MemoryTimeline::new(8);
        (0..1000).for_each(|i| t.push(sample(i, 5)));
        (1000..2000).for_each(|i| t.push(sample(i, i)));
        let points = t.points();
        let flat: Vec<u64> = points
            .iter()
            .filter(|s| s.current.get() == 5)
            .map(|s| s.at_ms)
            .collect();
        assert!(flat[0] < 512 && flat.len() == 2, "{points:?}");
        assert!(flat[1].abs_diff(1000) <= 512, "{points:?}");
        assert!(points.len() >= 4, "{points:?}");
    }

    #[test]
    fn a_mark_does_not_disappear_in_a_run() {
        let mut t = MemoryTimeline::new(8);
        let mark = Some(TimelineMark::HeapStarved);
        t.push(sample(0, 5));
        t.push(MemorySample {
            mark,
            ..sample(1, 5)
        });
        (2..6).for_each(|i| t.push(sample(i, 5)));
        let marks: Vec<_> = t.points().iter().map(|s| (s.at_ms, s.mark)).collect();
        assert_eq!(marks, [(0, None), (1, mark), (2, None), (5, None)]);
    }

    #[test]
    fn a_long_timeline_is_thinned_evenly() {
        let mut t = MemoryTimeline::new(8);
        (0..1000).for_each(|i| t.push(sample(i, i)));
        let points = t.points();
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
            prop_assert_eq!(t.peak().map(Bytes::get), peak);
            prop_assert_eq!(t.points().iter().map(|s| s.current.get()).max(), peak);
            prop_assert!(t.points().len() <= most);
            prop_assert!(t.points().windows(2).all(|w| w[0].at_ms < w[1].at_ms));
        }
    }
}

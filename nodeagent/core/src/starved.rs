//! The recent share of collection time of a runtime: an early sign of a heap that is too small.

use std::collections::VecDeque;

use headroom_types::exit::{HeapReport, TimelineMark};

/// Length of the window. In milliseconds.
const WINDOW_MS: u64 = 10_000;
/// Minimum time between two measurements for a share. In milliseconds.
const LEAST_MS: u64 = 500;
/// A heap is starved above this share, over at least this time.
const STARVED_PERCENT: u8 = 20;
const STARVED_MS: u64 = 2_000;
/// Maximum number of measurements: a little more than ten seconds at 4 Hz.
const MOST: usize = 64;

/// The measurements of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct GcTimeWindow {
    /// Time of the measurement and total collection time at that time. Both in milliseconds.
    points: VecDeque<(u64, u64)>,
    reported: bool,
    starved: bool,
}

impl GcTimeWindow {
    /// Adds the counters of the runtime at `at_ms`, and writes the recent share into them. Returns
    /// a mark the first time that the heap is starved.
    pub fn take(&mut self, at_ms: u64, facts: &mut HeapReport) -> Option<TimelineMark> {
        let gc = facts.gc.as_mut()?;
        while self.points.len() >= MOST
            || self
                .points
                .front()
                .is_some_and(|(at, _)| at_ms.saturating_sub(*at) > WINDOW_MS)
        {
            self.points.pop_front();
        }
        self.points.push_back((at_ms, gc.spent_ms));
        let (first_at, first_spent) = *self.points.front()?;
        let span = at_ms.saturating_sub(first_at);
        if span < LEAST_MS {
            return None;
        }
        let share = gc.spent_ms.saturating_sub(first_spent).saturating_mul(100) / span;
        let share = u8::try_from(share.min(100)).unwrap_or(100);
        gc.recent_percent = Some(share);
        self.starved = share > STARVED_PERCENT && span >= STARVED_MS;
        let newly = self.starved && !self.reported;
        self.reported |= self.starved;
        newly.then_some(TimelineMark::HeapStarved)
    }

    /// Whether the heap was starved at the last measurement.
    pub fn is_starved(&self) -> bool {
        self.starved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::CollectionReport;

    fn heap_report(spent_ms: u64) -> HeapReport {
        HeapReport {
            gc: Some(CollectionReport {
                spent_ms,
                ..CollectionReport::default()
            }),
            ..HeapReport::default()
        }
    }

    fn percent(
        window: &mut GcTimeWindow,
        at: u64,
        spent: u64,
    ) -> (Option<u8>, Option<TimelineMark>) {
        let mut facts = heap_report(spent);
        let mark = window.take(at, &mut facts);
        (facts.gc.and_then(|gc| gc.recent_percent), mark)
    }

    #[test]
    fn the_share_covers_the_last_ten_seconds() {
        let mut w = GcTimeWindow::default();
        assert_eq!(percent(&mut w, 0, 0), (None, None));
        assert_eq!(
            percent(&mut w, 250, 200),
            (None, None),
            "the time is too short for a value"
        );
        assert_eq!(
            percent(&mut w, 1000, 500),
            (Some(50), None),
            "too short to be starved"
        );
        assert_eq!(
            percent(&mut w, 2000, 1000),
            (Some(50), Some(TimelineMark::HeapStarved))
        );
        assert_eq!(
            percent(&mut w, 3000, 1600),
            (Some(53), None),
            "the mark is set once"
        );
        for at in 4..=30 {
            percent(&mut w, at * 1000, 1600);
        }
        assert_eq!(percent(&mut w, 31_000, 1600), (Some(0), None));
        assert!(w.points.len() <= MOST);
    }

    #[test]
    fn a_runtime_without_gc_counters_has_no_share() {
        let mut facts = HeapReport::default();
        assert_eq!(GcTimeWindow::default().take(9, &mut facts), None);
        assert_eq!(facts, HeapReport::default());
    }
}

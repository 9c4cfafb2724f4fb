//! First sizes for the next job of a family, from what its tasks needed in earlier jobs, and what they would have cost and spared.
//!
//! *Architecture Invariant*: no clock, no files; the same family gives the same suggestions.

use headroom_types::Bytes;
use headroom_wire::v1::families::{Family, Kind, Need};
use serde::Serialize;

use crate::policy::learn::rungs::Prices;
use crate::policy::learn::{Asks, Learner};

/// Fewer tasks say too little about a stage.
const ENOUGH: usize = 8;

/// What one stage should begin with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The stage.
    pub kind: String,
    /// Tasks that are remembered.
    pub tasks: usize,
    /// What its tasks began with last. Bytes.
    pub asked: Bytes,
    /// Half of them needed no more. Bytes.
    pub p50: Bytes,
    /// Nineteen of twenty needed no more. Bytes.
    pub p95: Bytes,
    /// The most that one needed. Bytes.
    pub max: Bytes,
    /// The size to begin with; `None` while too little is known. Bytes.
    pub suggested: Option<Bytes>,
    /// Attempts of them that failed for memory.
    pub kills: u64,
    /// How many would have failed for memory once at the suggested size.
    pub would_fail: usize,
    /// Memory × time of the attempts that ended well. GiB·hours.
    pub allocated_gib_h: f64,
    /// The same with the suggested size, those that fail counted twice. GiB·hours.
    pub would_allocate_gib_h: f64,
}

/// One suggestion for each stage with tasks, in the order of their names.
pub fn suggest(family: &Family) -> Vec<Suggestion> {
    family.kinds.iter().filter_map(of_kind).collect()
}

fn of_kind(kind: &Kind) -> Option<Suggestion> {
    let asked = kind.tasks.last()?.first;
    let mut peaks: Vec<Bytes> = kind.tasks.iter().map(|need| need.peak).collect();
    peaks.sort_unstable();
    let suggested = (peaks.len() >= ENOUGH).then(|| learned(kind, asked));
    let size = suggested.unwrap_or(asked);
    Some(Suggestion {
        kind: kind.name.clone(),
        tasks: peaks.len(),
        asked,
        p50: rank(&peaks, 50),
        p95: rank(&peaks, 95),
        max: rank(&peaks, 100),
        suggested,
        kills: kind.tasks.iter().map(|need| u64::from(need.kills)).sum(),
        would_fail: peaks.iter().filter(|peak| **peak > size).count(),
        allocated_gib_h: kind.tasks.iter().map(|need| cost(need, need.last)).sum(),
        would_allocate_gib_h: kind.tasks.iter().map(|need| after(need, size)).sum(),
    })
}

/// What the learner gives the next task of the kind after it has seen these.
fn learned(kind: &Kind, asked: Bytes) -> Bytes {
    let mut learner = Learner::new(asked, Prices::default());
    let asks = Asks { kind: &kind.name, input: None, request: Some(asked) };
    for (task, need) in (0..).zip(&kind.tasks) {
        learner.ended(&asks, task, need.peak, seconds(need));
    }
    learner.first(&asks).size
}

/// The smallest size that so many of a hundred needed at most.
fn rank(sorted: &[Bytes], percent: usize) -> Bytes {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// One that fails is repeated with what it needs.
fn after(need: &Need, size: Bytes) -> f64 {
    if need.peak > size { cost(need, size) + cost(need, need.peak) } else { cost(need, size) }
}

fn cost(need: &Need, size: Bytes) -> f64 {
    size.as_gib_f64() * seconds(need) / 3600.0
}

fn seconds(need: &Need) -> f64 {
    std::time::Duration::from_millis(need.runtime_ms).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::UnixMillis;

    fn family(peaks_mib: &[u64]) -> Family {
        let need = |mib: &u64| Need {
            peak: Bytes::from_mib(*mib),
            first: Bytes::from_gib(4),
            last: Bytes::from_gib(4),
            kills: 0,
            runtime_ms: 60_000,
        };
        let kinds = vec![Kind { name: "map".into(), tasks: peaks_mib.iter().map(need).collect() }];
        Family { user: "ann".into(), name: "count".parse().expect("a name"), runs: 1, last: UnixMillis(1), kinds }
    }

    #[test]
    fn a_stage_that_asked_for_much_too_much_is_told_a_size_that_nearly_all_fit() {
        let peaks: Vec<u64> = (0..100).map(|i| 300 + i).collect();
        let found = suggest(&family(&peaks));
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.p50, one.p95, one.max), (Bytes::from_mib(349), Bytes::from_mib(394), Bytes::from_mib(399)));
        let size = one.suggested.expect("enough is known");
        assert!(size >= Bytes::from_mib(350) && size <= Bytes::from_mib(640), "{size}");
        assert!(one.would_fail <= 10, "{one:?}");
        assert!(one.would_allocate_gib_h < one.allocated_gib_h / 5.0, "{one:?}");
    }

    #[test]
    fn little_knowledge_suggests_nothing_and_changes_no_figure() {
        let found = suggest(&family(&[300, 310, 320]));
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.suggested, one.would_fail), (None, 0));
        assert!((one.would_allocate_gib_h - one.allocated_gib_h).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn one_giant_is_not_what_all_are_given() {
        let mut peaks = vec![300; 99];
        peaks.push(16_000);
        let found = suggest(&family(&peaks));
        let size = found.first().and_then(|one| one.suggested).expect("enough is known");
        assert!(size < Bytes::from_gib(2), "{size}");
    }

    #[test]
    fn a_stage_without_tasks_is_not_mentioned() {
        assert_eq!(suggest(&family(&[])), []);
    }
}

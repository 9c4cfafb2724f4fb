//! Leak detection: a leaking program grows at the same pace through every size that it gets.
//!
//! One attempt is no proof, because a program that loads its data grows steadily too. A leak fills
//! several sizes, the last of them much larger than the first, at the same pace and without a
//! pause.

use headroom_types::exit::MemorySample;
use headroom_types::{Bytes, Certainty, Diagnosis, SubCause, UnixMillis, millis};
use headroom_wire::v1::job::{AttemptGrowth, AttemptRow};

/// Minimum ratio of the last size to the first for a leak over several attempts.
const FACTOR: u64 = 4;
/// The same ratio for one attempt that grew while it ran, which is weaker evidence.
const FACTOR_OF_ONE: u64 = 8;
/// Minimum number of sizes for a diagnosis.
const MIN_SIZES: usize = 3;
/// Minimum number of samples to determine the shape of an attempt's growth.
const MIN_SAMPLES: usize = 8;
/// Minimum run time to determine a pace. Milliseconds.
const MIN_LIFE_MS: u64 = 1000;
/// Maximum distance of a sample from a straight line, relative to the peak. Per cent.
const MAX_DISTANCE: u64 = 15;
/// Maximum ratio of the fastest pace to the slowest.
const MAX_SPREAD: u64 = 2;

/// The diagnosis of a task that has filled each of its sizes steadily. `rows` are its attempts that
/// ended by memory failures, the first one first.
pub fn diagnose(rows: &[&AttemptRow]) -> Option<Diagnosis> {
    let (first, last) = (rows.first()?, rows.last()?);
    let began = first
        .grown
        .first()
        .map_or_else(|| first.profile.memory(), |step| step.from);
    let reached = last.profile.memory();
    let (paces, factor) = match rows.len() {
        n if n >= MIN_SIZES => (
            rows.iter()
                .map(|row| steady(&row.timeline))
                .collect::<Option<Vec<u64>>>()?,
            FACTOR,
        ),
        _ => (pace_of_growth(&last.grown, last.ended?)?, FACTOR_OF_ONE),
    };
    let pace = same_pace(&paces).filter(|_| reached >= began.mul_ratio(factor, 1))?;
    let sizes = rows.len() + rows.iter().map(|row| row.grown.len()).sum::<usize>();
    let cause = format!(
        "it grew steadily by {pace} a second through {sizes} sizes, from {began} to {reached}, without levelling off"
    );
    let fix = format!(
        "find the objects that it never releases (a heap dump, tracemalloc, pprof); if it needs so much, give its stage more than {reached}"
    );
    Some(Diagnosis::new(SubCause::Leak, Certainty::Likely, cause, fix).with_trade_off("none"))
}

/// The reason for no further growth of a running attempt whose steps were all filled at the same
/// pace. `now` is the current time.
pub fn grows_like_a_leak(row: &AttemptRow, now: UnixMillis) -> Option<String> {
    let began = row.grown.first()?.from;
    let paces = pace_of_growth(&row.grown, now)?;
    let pace =
        same_pace(&paces).filter(|_| row.profile.memory() >= began.mul_ratio(FACTOR_OF_ONE, 1))?;
    Some(format!(
        "it grows steadily by {pace} a second through {} sizes, as a leak does",
        row.grown.len() + 1
    ))
}

/// Bytes per second of each growth step, from the time at which it was granted to the time at which
/// it was full.
fn pace_of_growth(grown: &[AttemptGrowth], full: UnixMillis) -> Option<Vec<u64>> {
    let ends = grown.iter().skip(1).map(|step| step.at).chain([full]);
    let paces: Vec<u64> = grown
        .iter()
        .zip(ends)
        .filter_map(|(step, end)| pace(step.to.saturating_sub(step.from), age_ms(step, end)))
        .collect();
    let all = grown
        .first()
        .map(|step| age_ms(step, full))
        .unwrap_or_default();
    (paces.len() > MIN_SIZES && all >= 2 * MIN_LIFE_MS).then_some(paces)
}

fn age_ms(step: &AttemptGrowth, end: UnixMillis) -> u64 {
    millis(end.since(step.at))
}

fn pace(bytes: Bytes, ms: u64) -> Option<u64> {
    bytes.get().saturating_mul(1000).checked_div(ms)
}

/// Bytes per second of an attempt that grew linearly; `None` for any other.
fn steady(timeline: &[MemorySample]) -> Option<u64> {
    let fullest = timeline.iter().map(|sample| sample.current).max()?;
    let end = timeline
        .iter()
        .find(|sample| sample.current == fullest)?
        .at_ms;
    let whole = end
        .checked_sub(timeline.first()?.at_ms)
        .filter(|life| *life >= MIN_LIFE_MS)?;
    // The memory that a runtime takes to start is not part of the shape.
    let begin = end - whole.saturating_mul(7) / 8;
    let mut points: Vec<&MemorySample> = timeline
        .iter()
        .filter(|sample| (begin..=end).contains(&sample.at_ms))
        .collect();
    // A sample between the kill and its detection: the process had already freed a part of its
    // memory.
    if let [.., before, dying, _] = points.as_slice()
        && dying.current < before.current
    {
        points.remove(points.len() - 2);
    }
    let (begin, base) = points.first().map(|first| (first.at_ms, first.current))?;
    let life = end.checked_sub(begin)?;
    let grown = fullest
        .checked_sub(base)
        .filter(|grown| *grown >= fullest.mul_ratio(1, 2))?;
    let distance = fullest.mul_ratio(MAX_DISTANCE, 100).get();
    let straight = |sample: &&MemorySample| {
        let wanted = base.saturating_add(grown.mul_ratio(sample.at_ms - begin, life.max(1)));
        wanted.get().abs_diff(sample.current.get()) <= distance
    };
    (points.len() >= MIN_SAMPLES && points.iter().all(straight)).then(|| pace(grown, life))?
}

/// The slowest pace, if the fastest is not much faster.
fn same_pace(paces: &[u64]) -> Option<Bytes> {
    let (least, most) = (*paces.iter().min()?, *paces.iter().max()?);
    (least > 0 && most <= least.saturating_mul(MAX_SPREAD)).then_some(Bytes::new(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Cpus, Profile};

    fn life(mib_a_second: u64, to: u64, shape: impl Fn(u64) -> u64) -> Vec<MemorySample> {
        let ms = to * 1000 / mib_a_second;
        let point = |at_ms: u64| MemorySample {
            at_ms,
            current: Bytes::from_mib(shape(at_ms * mib_a_second / 1000)),
            anon: None,
            file: None,
            heap: None,
            limit: None,
            mark: None,
        };
        (0..=20).map(|n| point(n * ms / 20)).collect()
    }

    fn row(mib: u64, timeline: Vec<MemorySample>) -> AttemptRow {
        let profile = Profile {
            heap: Bytes::from_mib(mib),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(1),
        };
        AttemptRow {
            attempt: "map/7@1".parse().expect("id"),
            profile,
            slots: 1,
            rung: 1,
            container: "job.1.e1.c1".parse().expect("id"),
            node: "n1".parse().expect("id"),
            started: UnixMillis(1),
            ended: None,
            peak: None,
            used: None,
            reason: None,
            dimension: None,
            evidence: None,
            diagnosis: Vec::new(),
            decision: String::new(),
            timeline,
            log_tail: String::new(),
            grown: Vec::new(),
            why: String::new(),
            shadow: None,
            input: None,
            treatment: None,
            remedies: Vec::new(),
            log_marker: None,
            silent: false,
        }
    }

    fn found(rows: &[AttemptRow]) -> bool {
        diagnose(&rows.iter().collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn the_same_pace_through_three_sizes_is_a_leak() {
        let all: Vec<AttemptRow> = [64, 128, 256]
            .map(|mib| row(mib, life(16, mib, |mib| mib)))
            .into();
        assert!(found(&all));
        assert!(!found(&all[..2]), "two sizes prove no leak");
        let close: Vec<AttemptRow> = [64, 72, 80]
            .map(|mib| row(mib, life(16, mib, |mib| mib)))
            .into();
        assert!(!found(&close), "it may need a little more");
    }

    /// Like an interpreter that uses 10 MiB before the first line of its program runs.
    #[test]
    fn startup_memory_of_a_runtime_is_not_a_leak() {
        let starts = |at: u64| if at == 0 { 1 } else { at.max(10) };
        let all: Vec<AttemptRow> = [48, 96, 192]
            .map(|mib| row(mib, life(20, mib, starts)))
            .into();
        assert!(found(&all));
    }

    /// The sample between the kill and its detection.
    #[test]
    fn memory_freed_by_a_dying_process_does_not_hide_a_leak() {
        let dying = |mib: u64| -> Vec<MemorySample> {
            let mut life = life(16, mib, |mib| mib);
            let last = life.len() - 1;
            life[last - 1].current = Bytes::from_mib(mib / 2);
            life
        };
        let all: Vec<AttemptRow> = [64, 128, 256].map(|mib| row(mib, dying(mib))).into();
        assert!(found(&all));
        let mut earlier = all.clone();
        let last = earlier[1].timeline.len() - 1;
        earlier[1].timeline[last - 4].current = Bytes::from_mib(40);
        assert!(!found(&earlier), "the task freed memory and continued");
    }

    #[test]
    fn other_shapes_and_other_paces_are_no_leak() {
        let jump = |mib: u64| move |at: u64| if at * 10 >= mib * 9 { mib } else { 8 };
        let jumps: Vec<AttemptRow> = [64, 128, 256]
            .map(|mib| row(mib, life(16, mib, jump(mib))))
            .into();
        assert!(!found(&jumps), "the task allocates much at once");
        let paces: Vec<AttemptRow> = [(64, 16), (128, 64), (256, 256)]
            .map(|(mib, pace)| row(mib, life(pace, mib, |m| m)))
            .into();
        assert!(!found(&paces));
        let short: Vec<AttemptRow> = [64, 128, 256]
            .map(|mib| row(mib, life(4096, mib, |mib| mib)))
            .into();
        assert!(!found(&short), "the attempt is too short");
    }

    fn growing(steps: &[u64], every_ms: u64) -> AttemptRow {
        let at = |n: usize| UnixMillis(1 + every_ms * u64::try_from(n).expect("small"));
        let pairs = steps.iter().zip(steps.iter().skip(1)).enumerate();
        let grown = pairs
            .map(|(n, (from, to))| AttemptGrowth {
                at: at(n),
                from: Bytes::from_mib(*from),
                to: Bytes::from_mib(*to),
                frozen_us: None,
            })
            .collect();
        AttemptRow {
            grown,
            ..row(*steps.last().expect("one"), Vec::new())
        }
    }

    #[test]
    fn a_running_task_that_fills_every_step_alike_gets_no_more() {
        let steps = [64, 192, 320, 448, 576];
        let now = UnixMillis(1 + 1000 * 4);
        assert!(
            grows_like_a_leak(&growing(&steps, 1000), now)
                .is_some_and(|why| why.contains("128 MiB a second"))
        );
        assert!(
            grows_like_a_leak(&growing(&steps[..4], 1000), now).is_none(),
            "not far above its first size"
        );
        assert!(
            grows_like_a_leak(&growing(&steps, 10), UnixMillis(41)).is_none(),
            "the task loads its working set"
        );
        assert!(grows_like_a_leak(&growing(&[64], 1000), now).is_none());
    }
}

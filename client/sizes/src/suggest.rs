//! Suggested first sizes for the next job with the same name, from the needs of its tasks in
//! earlier jobs, with costs and savings.
//!
//! The suggested size has the lowest total cost, retries included. If few tasks need much memory, a
//! retry of these at a large size is cheaper than a large size for all. The suggestion is then
//! below the 95th percentile and says so.

use headroom_types::Bytes;
use headroom_wire::v1::job_history::{JobHistory, TaskKindHistory, TaskMemoryNeed};
use headroom_wire::v1::suggestions::Suggestion;

use crate::learn::ladder::KillPrices;
use crate::learn::{SizeLearner, SizeRequest, step_up};

/// Minimum number of tasks for a suggestion.
const MIN_TASKS: usize = 8;

/// One suggestion per stage with tasks, ordered by name.
pub fn suggest(family: &JobHistory) -> Vec<Suggestion> {
    family
        .kinds
        .iter()
        .filter_map(|kind| of_kind(family, kind))
        .collect()
}

fn of_kind(family: &JobHistory, kind: &TaskKindHistory) -> Option<Suggestion> {
    let asked = kind.tasks.last()?.first;
    let mut peaks: Vec<Bytes> = kind.tasks.iter().map(|need| need.peak).collect();
    peaks.sort_unstable();
    let (p95, max) = (rank(&peaks, 95), rank(&peaks, 100));
    let learned = (peaks.len() >= MIN_TASKS).then(|| learned(kind, asked));
    let (size, top) = learned.unwrap_or((asked, asked.max(max)));
    let failed = peaks.iter().filter(|peak| **peak > size).count();
    let sum = |cost: &dyn Fn(&TaskMemoryNeed) -> f64| kind.tasks.iter().map(cost).sum::<f64>();
    let suggestion = Suggestion {
        user: family.user.clone(),
        job: family.name.clone(),
        kind: kind.name.clone(),
        tasks: number(peaks.len()),
        asked,
        p50: rank(&peaks, 50),
        p95,
        max,
        kills: kind.tasks.iter().map(|need| u64::from(need.kills)).sum(),
        suggested: learned.map(|(size, _)| size),
        then: learned.filter(|_| failed > 0).map(|(_, top)| top),
        stated: learned.map(|(size, _)| {
            if size < p95 {
                step_up(float(p95))
            } else {
                size
            }
        }),
        would_fail: number(failed),
        needed_gib_h: sum(&|need| cost(need, need.peak)),
        allocated_gib_h: sum(&|need| cost(need, need.last)),
        would_allocate_gib_h: sum(&|need| cost_with_retry(need, size, top)),
        one_size_gib_h: sum(&|need| cost(need, step_up(float(max)))),
        why: String::new(),
    };
    Some(Suggestion {
        why: why(&suggestion),
        ..suggestion
    })
}

/// Sizes of the learner after these observations: for the next task of the kind, and for one that
/// fails at that size.
fn learned(kind: &TaskKindHistory, asked: Bytes) -> (Bytes, Bytes) {
    let mut learner = SizeLearner::new(asked, KillPrices::default());
    let asks = SizeRequest {
        kind: &kind.name,
        input: None,
        request: Some(asked),
    };
    for (task, need) in (0..).zip(&kind.tasks) {
        learner.record_success(&asks, task, need.peak, seconds(need));
    }
    let size = learner.first(&asks).size;
    (size, learner.next(&asks, size, 1, Bytes::new(u64::MAX)))
}

fn why(s: &Suggestion) -> String {
    let (Some(size), Some(stated)) = (s.suggested, s.stated) else {
        return format!(
            "{} succeeded, and a suggestion needs {MIN_TASKS}",
            tasks(s.tasks)
        );
    };
    let holds = format!(
        "holds {} of {}",
        s.tasks.saturating_sub(s.would_fail),
        tasks(s.tasks)
    );
    let Some(then) = s.then else { return holds };
    let again = format!("{holds}; the others are retried at {then}");
    if size >= s.p95 {
        return again;
    }
    let (with, without) = (s.would_allocate_gib_h, s.one_size_gib_h);
    let spares = if with < without {
        format!("that takes {with:.2} GiB·h, and one size for all takes {without:.2}")
    } else {
        format!(
            "that is as much memory, {with:.2} GiB·h, as one size for all, {without:.2}, and leaves room for others"
        )
    };
    format!(
        "below P95 on purpose: {again}: {spares}. For sizes = \"learned\"; where sizes are stated, write {stated}"
    )
}

fn tasks(n: u32) -> String {
    if n == 1 {
        "1 task".to_owned()
    } else {
        format!("{n} tasks")
    }
}

/// The smallest size that `percent` per cent of the tasks fit.
fn rank(sorted: &[Bytes], percent: usize) -> Bytes {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// Memory × time of the task with this size. A task that fails is repeated with `then`, or with its
/// need if that is larger.
fn cost_with_retry(need: &TaskMemoryNeed, size: Bytes, then: Bytes) -> f64 {
    if need.peak > size {
        cost(need, size) + cost(need, then.max(need.peak))
    } else {
        cost(need, size)
    }
}

fn cost(need: &TaskMemoryNeed, size: Bytes) -> f64 {
    size.as_gib_f64() * seconds(need) / 3600.0
}

fn seconds(need: &TaskMemoryNeed) -> f64 {
    std::time::Duration::from_millis(need.runtime_ms).as_secs_f64()
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
fn float(size: Bytes) -> f64 {
    size.get() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::UnixMillis;

    fn family(peaks_mib: &[u64]) -> JobHistory {
        let need = |mib: &u64| TaskMemoryNeed {
            peak: Bytes::from_mib(*mib),
            first: Bytes::from_gib(4),
            last: Bytes::from_gib(4),
            kills: 0,
            runtime_ms: 60_000,
        };
        let kinds = vec![TaskKindHistory {
            name: "map".into(),
            tasks: peaks_mib.iter().map(need).collect(),
        }];
        JobHistory {
            user: "ann".into(),
            name: "count".parse().expect("a name"),
            runs: 1,
            last: UnixMillis(1),
            kinds,
            enlarged: Vec::new(),
        }
    }

    fn one(peaks_mib: &[u64]) -> Suggestion {
        let mut found = suggest(&family(peaks_mib));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn an_oversized_stage_gets_a_suggestion_that_most_tasks_fit() {
        let peaks: Vec<u64> = (0..100).map(|i| 300 + i).collect();
        let one = one(&peaks);
        assert_eq!(
            (one.p50, one.p95, one.max),
            (
                Bytes::from_mib(349),
                Bytes::from_mib(394),
                Bytes::from_mib(399)
            )
        );
        let size = one.suggested.expect("has a suggestion");
        assert!(
            size >= Bytes::from_mib(350) && size <= Bytes::from_mib(640),
            "{size}"
        );
        assert!(one.would_fail <= 10, "{one:?}");
        assert!(
            one.would_allocate_gib_h < one.allocated_gib_h / 5.0,
            "{one:?}"
        );
    }

    #[test]
    fn few_tasks_yield_no_suggestion() {
        let one = one(&[300, 310, 320]);
        assert_eq!(
            (one.suggested, one.stated, one.then, one.would_fail),
            (None, None, None, 0)
        );
        assert!(
            (one.would_allocate_gib_h - one.allocated_gib_h).abs() < 1e-9,
            "{one:?}"
        );
        assert_eq!(one.why, "3 tasks succeeded, and a suggestion needs 8");
    }

    #[test]
    fn an_outlier_does_not_set_the_suggestion() {
        let mut peaks = vec![300; 99];
        peaks.push(16_000);
        let one = one(&peaks);
        assert!(
            one.suggested.expect("has a suggestion") < Bytes::from_gib(2),
            "{one:?}"
        );
        assert!(one.then >= Some(Bytes::from_mib(16_000)), "{one:?}");
        assert!(
            one.why
                .starts_with("holds 99 of 100 tasks; the others are retried at "),
            "{}",
            one.why
        );
    }

    #[test]
    fn a_suggestion_below_p95_names_the_stated_alternative() {
        // Eleven small ones and one that needs six times as much.
        let one = one(&[24, 25, 24, 26, 24, 25, 157, 24, 25, 24, 26, 24]);
        let (size, stated) = (one.suggested.expect("enough"), one.stated.expect("enough"));
        assert_eq!(
            (size, one.p95, one.would_fail),
            (Bytes::from_mib(32), Bytes::from_mib(157), 1)
        );
        assert!(
            stated >= one.p95,
            "the stated alternative fits nineteen of twenty: {one:?}"
        );
        assert!(one.then >= Some(Bytes::from_mib(157)), "{one:?}");
        assert!(
            one.would_allocate_gib_h < one.one_size_gib_h,
            "the suggestion allocates less: {one:?}"
        );
        assert!(
            one.why
                .starts_with("below P95 on purpose: holds 11 of 12 tasks")
                && one.why.ends_with(&format!("write {stated}"))
        );
    }

    #[test]
    fn a_stage_without_tasks_is_not_mentioned() {
        assert_eq!(suggest(&family(&[])), []);
    }
}

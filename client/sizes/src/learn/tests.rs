use super::predict::MAX_OBSERVATIONS;
use super::*;

const MIB: u64 = 1 << 20;

fn asks(kind: &str) -> SizeRequest<'_> {
    SizeRequest {
        kind,
        input: None,
        request: None,
    }
}

fn taught(needs_mib: impl IntoIterator<Item = u64>) -> SizeLearner {
    let mut learner = SizeLearner::new(Bytes::from_gib(4), KillPrices::default());
    for (n, mib) in needs_mib.into_iter().enumerate() {
        learner.record_success(&asks("sort"), n as u64, Bytes::new(mib * MIB), 10.0);
    }
    learner
}

#[test]
fn a_new_kind_gets_the_request_or_else_the_share() {
    let mut learner = taught([]);
    assert_eq!(
        learner.first(&asks("sort")),
        FirstSize {
            size: step_up(float(Bytes::from_gib(4))),
            source: SizeOrigin::Share
        }
    );
    let asked = SizeRequest {
        request: Some(Bytes::from_mib(512)),
        ..asks("sort")
    };
    assert_eq!(
        learner.first(&asked),
        FirstSize {
            size: Bytes::from_mib(512),
            source: SizeOrigin::Request
        }
    );
}

#[test]
fn similar_tasks_get_little_more_than_their_need() {
    let first = taught([900; 60]).first(&asks("sort"));
    assert!(matches!(first.source, SizeOrigin::Kind(_)));
    assert!(
        (Bytes::from_mib(900)..Bytes::from_mib(1100)).contains(&first.size),
        "{first:?}"
    );
}

#[test]
fn an_outlier_does_not_change_the_first_size() {
    let first = taught((0..100).map(|n| if n == 50 { 20_000 } else { 900 })).first(&asks("sort"));
    assert!(first.size < Bytes::from_mib(1400), "{first:?}");
}

#[test]
fn the_input_size_predicts_the_need_of_dependent_kinds() {
    let mut learner = taught([]);
    for n in 1..60u64 {
        let asks = SizeRequest {
            input: Some(Bytes::from_mib(n * 10)),
            ..asks("join")
        };
        learner.record_success(&asks, n, Bytes::from_mib(100 + n * 30), 10.0);
    }
    let first = |mib| SizeRequest {
        input: Some(Bytes::from_mib(mib)),
        ..asks("join")
    };
    let (small, large) = (
        learner.first(&first(50)).size,
        learner.first(&first(550)).size,
    );
    assert!(
        small < Bytes::from_mib(600) && large > Bytes::from_mib(1500),
        "{small} {large}"
    );
}

#[test]
fn every_kill_is_answered_by_a_larger_size() {
    let mut learner = taught([900, 950, 1000, 870, 3000, 910]);
    let mut size = learner.first(&asks("sort")).size;
    for failures in 1..3 {
        learner.record_kill(&asks("sort"), 99, size);
        let next = learner.next(&asks("sort"), size, failures, Bytes::from_gib(128));
        assert!(next > size, "{failures}: {size} then {next}");
        size = next;
    }
}

#[test]
fn a_size_that_killed_tasks_of_a_new_kind_is_not_given_again() {
    let mut learner = taught([]);
    learner.record_kill(&asks("sort"), 1, Bytes::from_gib(4));
    assert!(learner.first(&asks("sort")).size >= Bytes::from_gib(5));
}

#[test]
fn the_memory_of_a_kind_is_bounded() {
    let learner = taught((0..2000).map(|n| 500 + n % 300));
    let kind = learner.kinds.get("sort").expect("known");
    assert_eq!(kind.history.points().len(), MAX_OBSERVATIONS);
    assert!(
        kind.misses
            .values()
            .all(|misses| misses.len() <= MAX_OBSERVATIONS)
    );
}

#[test]
fn the_same_tasks_in_the_same_order_give_the_same_sizes() {
    let needs: Vec<u64> = (0..300).map(|n| 300 + (n * 7919) % 900).collect();
    let first = |mut learner: SizeLearner| learner.first(&asks("sort"));
    assert_eq!(first(taught(needs.clone())), first(taught(needs)));
}

/// Simulates a task that needs `mib`: returns the number of kills and its final size.
fn lives(learner: &mut SizeLearner, task: u64, mib: u64) -> (u32, Bytes) {
    let (asks, need) = (asks("sort"), Bytes::from_mib(mib));
    let (mut size, mut kills) = (learner.first(&asks).size, 0);
    while size < need {
        kills += 1;
        learner.record_kill(&asks, task, size);
        size = learner.next(&asks, size, kills, Bytes::from_gib(128));
    }
    learner.record_success(&asks, task, need, 10.0);
    (kills, size)
}

#[test]
fn few_tasks_of_a_new_kind_run_first_and_more_after_each_success() {
    let mut learner = taught([]);
    assert!(learner.may_start("sort", 7) && !learner.may_start("sort", 8));
    learner.record_success(&asks("sort"), 0, Bytes::from_mib(900), 10.0);
    assert!(learner.may_start("sort", 11) && !learner.may_start("sort", 12));
    learner.record_kill(&asks("sort"), 1, Bytes::from_mib(900));
    assert!(
        !learner.may_start("sort", 8),
        "the kills outweigh the success"
    );
    assert!(taught([900; 100]).may_start("sort", 400));
}

#[test]
fn a_wave_of_kills_of_a_new_kind_raises_the_size_of_waiting_tasks() {
    let mut learner = taught([]);
    (0..200).for_each(|task| learner.record_kill(&asks("sort"), task, Bytes::from_gib(4)));
    assert!(learner.first(&asks("sort")).size >= Bytes::from_gib(5));
    assert!(
        !learner.may_start("sort", 8),
        "no second wave starts beside them"
    );
    // For a known kind, three kills are enough.
    let mut learner = taught([900; 20]);
    (0..3).for_each(|task| learner.record_kill(&asks("sort"), task, Bytes::from_mib(1200)));
    assert!(
        learner.first(&asks("sort")).size >= Bytes::from_mib(1200),
        "{:?}",
        learner.first(&asks("sort"))
    );
}

#[test]
fn tasks_with_unknown_or_empty_input_are_sized_as_their_kind() {
    let mut learner = taught([]);
    for n in 1..60u64 {
        let asks = SizeRequest {
            input: Some(Bytes::from_mib(n * 10)),
            ..asks("sort")
        };
        learner.record_success(&asks, n, Bytes::from_mib(100 + n * 30), 10.0);
    }
    for input in [None, Some(Bytes::ZERO)] {
        let first = learner.first(&SizeRequest {
            input,
            ..asks("sort")
        });
        assert_eq!(first.source, SizeOrigin::Kind(PredictionMethod::Median));
        assert!(
            (Bytes::from_mib(900)..Bytes::from_gib(4)).contains(&first.size),
            "{first:?}"
        );
    }
}

#[test]
fn the_second_size_reaches_the_second_peak_of_a_kind() {
    let mut learner = taught((0..200).map(|n| if n % 8 == 0 { 3000 } else { 100 }));
    let first = learner.first(&asks("sort")).size;
    let enough = Bytes::from_mib(3000);
    assert!(
        first >= enough || learner.next(&asks("sort"), first, 1, Bytes::from_gib(128)) >= enough,
        "{first}"
    );
}

#[test]
fn five_in_a_hundred_more_every_day_is_followed() {
    let mut learner = taught([]);
    let (mut kills, mut task) = (0, 0);
    let mut need = 1000.0_f64;
    for _day in 0..60 {
        for n in 0..20u32 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
            let mib = (need * (1.0 + f64::from(n % 5) / 100.0)) as u64;
            kills += lives(&mut learner, task, mib).0;
            task += 1;
        }
        need *= 1.05;
    }
    assert!(kills <= 120, "{kills} kills in 1200 runs");
    let first = learner.first(&asks("sort")).size.as_gib_f64() * 1024.0;
    assert!(first < need * 1.6, "{first} MiB where {need} is needed");
}

#[test]
fn a_leak_does_not_change_learned_sizes() {
    let mut learner = taught([900; 100]);
    let before = learner.first(&asks("sort")).size;
    lives(&mut learner, 1000, 60_000);
    assert!(
        learner.first(&asks("sort")).size <= before.mul_ratio(5, 4),
        "the first size stays"
    );
    (0..300).for_each(|n| assert_eq!(lives(&mut learner, 2000 + n, 900).0, 0));
    let after = learner.next(&asks("sort"), before, 1, Bytes::from_gib(128));
    assert!(
        after < Bytes::from_gib(4),
        "the leak is forgotten after a while: {after}"
    );
}

#[test]
fn a_task_is_killed_at_most_three_times() {
    let mut learner = taught([900; 100]);
    assert!(
        lives(&mut learner, 1000, 100_000).0 <= 2,
        "the third attempt has the largest size"
    );
}

/// Gate 6: bound on the memory of a kind.
#[test]
fn a_kind_takes_less_than_64_kib() {
    let mut learner = taught([]);
    for n in 0..600u64 {
        let asks = SizeRequest {
            input: Some(Bytes::from_mib(1 + n * 7 % 500)),
            ..asks("sort")
        };
        learner.first(&asks);
        learner.record_success(&asks, n, Bytes::from_mib(100 + n % 700), 10.0);
        learner.record_kill(&asks, 10_000 + n, Bytes::from_mib(100));
    }
    let kind = learner.kinds.get("sort").expect("known");
    assert!(kind.bytes() < 64 * 1024, "{} bytes", kind.bytes());
    assert!(kind.open.len() <= MAX_OBSERVATIONS);
}

#[test]
fn the_pool_is_recomputed_when_a_kind_needs_more() {
    let mut learner = taught([]);
    let mut sizes = std::collections::BTreeSet::new();
    for n in 0..40u64 {
        let kind = format!("kind-{}", n % 8);
        learner.record_success(&asks(&kind), n, Bytes::from_mib(100 + n * 200), 10.0);
        let cached = learner.first(&asks("new")).size;
        learner.pooled = None;
        assert_eq!(learner.first(&asks("new")).size, cached, "after {n}");
        sizes.insert(cached);
    }
    assert!(sizes.len() > 5, "{sizes:?}");
}

/// The cost of a task must not depend on the number of waiting tasks.
#[test]
fn requests_between_two_observations_share_their_ladders() {
    let mut learner = taught([900; 60]);
    learner.first(&asks("sort"));
    let ladders = |learner: &SizeLearner| {
        learner
            .kinds
            .get("sort")
            .and_then(|kind| kind.ladders.as_ref())
            .map(|l| l.as_ptr())
    };
    let before = ladders(&learner).expect("worked out");
    (0..100).for_each(|_| assert_eq!(learner.first(&asks("sort")), learner.first(&asks("sort"))));
    assert_eq!(ladders(&learner), Some(before));
    learner.record_success(&asks("sort"), 1000, Bytes::from_mib(900), 10.0);
    assert_eq!(ladders(&learner), None);
}

use super::*;
use headroom_types::Cpus;

fn profile(heap: u64, overhead: u64) -> Profile {
    Profile {
        heap: Bytes::from_mib(heap),
        overhead: Bytes::from_mib(overhead),
        cpus: Cpus::from_cores(1),
    }
}

fn ask<'a>(
    kind: &'a str,
    memory: MemoryQuantities,
    stated: &'a Profile,
    task: u64,
) -> TaskSizeQuery<'a> {
    TaskSizeQuery {
        kind,
        memory,
        input: None,
        stated,
        task,
    }
}

fn need(heap: Option<u64>, rest: u64) -> MeasuredNeed {
    MeasuredNeed {
        heap: heap.map(Bytes::from_mib),
        rest: Bytes::from_mib(rest),
    }
}

fn mib(profile: &Profile) -> (u64, u64) {
    (profile.heap.whole_mib(), profile.overhead.whole_mib())
}

#[test]
fn an_unknown_kind_gets_exactly_the_stated_size() {
    let stated = profile(77, 0);
    for mode in [MemoryFailureMode::Headroom, MemoryFailureMode::Tovar] {
        let first = TaskSizePredictor::new(mode, false).first(&ask(
            "map",
            MemoryQuantities::One,
            &stated,
            0,
        ));
        assert_eq!(
            (first.profile, first.learned),
            (stated.clone(), false),
            "{mode:?}"
        );
        assert!(first.why.contains("stage"), "{}", first.why);
    }
}

#[test]
fn heap_and_overhead_are_learned_separately() {
    let stated = profile(1024, 256);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Headroom, false);
    for task in 0..40 {
        sizer.ended(
            &ask("map", MemoryQuantities::HeapAndOverhead, &stated, task),
            &need(Some(300), 180),
            10.0,
        );
    }
    let learned = sizer
        .first(&ask("map", MemoryQuantities::HeapAndOverhead, &stated, 99))
        .profile;
    assert!(
        (300..400).contains(&mib(&learned).0) && (180..256).contains(&mib(&learned).1),
        "{learned}"
    );
    // Three kills for the heap raise only the heap.
    for task in 50..53 {
        sizer.killed(
            &ask("map", MemoryQuantities::HeapAndOverhead, &stated, task),
            Dimension::Heap,
            &learned,
        );
    }
    let after = sizer
        .first(&ask("map", MemoryQuantities::HeapAndOverhead, &stated, 99))
        .profile;
    assert!(after.heap >= learned.heap.mul_ratio(5, 4), "{after}");
    assert_eq!(after.overhead, learned.overhead);
}

#[test]
fn an_unreported_heap_is_not_learned() {
    let stated = profile(1024, 256);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Headroom, false);
    sizer.ended(
        &ask("map", MemoryQuantities::HeapAndOverhead, &stated, 1),
        &need(None, 500),
        10.0,
    );
    assert!(
        !sizer
            .first(&ask("map", MemoryQuantities::HeapAndOverhead, &stated, 2))
            .learned
    );
}

#[test]
fn a_killed_size_is_a_lower_bound_until_the_task_is_given_up() {
    let stated = profile(100, 0);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Headroom, false);
    sizer.killed(
        &ask("map", MemoryQuantities::One, &stated, 1),
        Dimension::Native,
        &stated,
    );
    let first = sizer.first(&ask("map", MemoryQuantities::One, &stated, 2));
    assert!(
        first.profile.memory() >= Bytes::from_mib(125) && first.why.contains("not enough"),
        "{first:?}"
    );
    sizer.dropped(&ask("map", MemoryQuantities::One, &stated, 1));
    assert!(
        !sizer
            .first(&ask("map", MemoryQuantities::One, &stated, 2))
            .learned
    );
}

#[test]
fn after_a_kill_the_sizer_returns_a_size_for_all_observed_tasks() {
    let stated = profile(1024, 0);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Headroom, false);
    let asks = |task| ask("map", MemoryQuantities::One, &stated, task);
    assert_eq!(
        sizer.after_kill(&asks(1), Dimension::Native, &stated, 1),
        SizeAfterKill::Unknown
    );
    (0..50).for_each(|task| {
        sizer.ended(
            &asks(task),
            &need(None, if task % 10 == 0 { 3000 } else { 100 }),
            10.0,
        )
    });
    let SizeAfterKill::Rung(rung) =
        sizer.after_kill(&asks(99), Dimension::Native, &profile(128, 0), 1)
    else {
        panic!("a rung")
    };
    assert!((3000..4000).contains(&rung.whole_mib()), "{rung}");
    assert_eq!(
        sizer.after_kill(&asks(99), Dimension::Native, &profile(3500, 0), 2),
        SizeAfterKill::Beyond
    );
}

#[test]
fn a_new_kind_is_sized_by_the_ratios_of_five_other_kinds() {
    let stated = profile(1000, 0);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Headroom, false);
    for kind in ["a", "b", "c", "d", "e"] {
        (0..4).for_each(|task| {
            sizer.ended(
                &ask(kind, MemoryQuantities::One, &stated, task),
                &need(None, 200),
                10.0,
            )
        });
    }
    let first = sizer.first(&ask("new", MemoryQuantities::One, &stated, 9));
    assert!(
        first.learned && first.why.contains("other kinds"),
        "{first:?}"
    );
    assert!(
        (200..500).contains(&first.profile.memory().whole_mib()),
        "{first:?}"
    );
}

#[test]
fn tovar_wastes_least_and_delays_no_task() {
    let stated = profile(96, 32);
    let mut sizer = TaskSizePredictor::new(MemoryFailureMode::Tovar, false);
    sizer.ended(
        &ask("map", MemoryQuantities::One, &stated, 1),
        &need(None, 64),
        10.0,
    );
    assert_eq!(
        mib(&sizer
            .first(&ask("map", MemoryQuantities::One, &stated, 2))
            .profile),
        (48, 16),
        "both quantities alike"
    );
    assert!(sizer.may_start("new", MemoryQuantities::One, 10_000));
    assert!(
        !TaskSizePredictor::new(MemoryFailureMode::Headroom, false).may_start(
            "new",
            MemoryQuantities::One,
            10_000
        )
    );
}

#[test]
fn a_need_fits_when_each_quantity_does() {
    assert!(need(Some(60), 30).fits(&profile(64, 32)));
    assert!(
        !need(Some(70), 10).fits(&profile(64, 32)) && !need(Some(10), 40).fits(&profile(64, 32))
    );
    assert!(need(None, 96).fits(&profile(64, 32)) && !need(None, 97).fits(&profile(64, 32)));
}

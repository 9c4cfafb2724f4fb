//! One table for each mode, and the properties of every decision.

use headroom_config::{ExecutorSpec, RetrySpec, TaskRuntime};
use headroom_types::{Bytes, Cpus, Profile};
use proptest::prelude::*;

use super::*;
use crate::policy::attempt_size::TaskSizeCap;
use crate::policy::budget::SpentBudgets;
use crate::policy::classify::MemoryFailure;
use crate::policy::learn::SizeAfterKill;

fn set() -> ExecutorSpec {
    let profile = Profile {
        heap: Bytes::from_mib(288),
        overhead: Bytes::ZERO,
        cpus: Cpus::from_cores(4),
    };
    let (name, reserve, idle) = (
        "main".parse().expect("name"),
        Bytes::from_mib(32),
        std::time::Duration::ZERO,
    );
    ExecutorSpec {
        name,
        profile,
        count: 2,
        min: 0,
        idle,
        slots: 4,
        reserve,
        program: None,
        place: Default::default(),
    }
}

fn size(heap: u64, overhead: u64, slots: u32, place: AttemptPlace) -> AttemptSize {
    let profile = Profile {
        heap: Bytes::from_mib(heap),
        overhead: Bytes::from_mib(overhead),
        cpus: Cpus::from_cores(1),
    };
    AttemptSize {
        profile,
        slots,
        rung: 1,
        place,
    }
}

struct Given {
    size: AttemptSize,
    set: ExecutorSpec,
    retry: RetrySpec,
    spent: SpentBudgets,
    dimension: Dimension,
    off_heap: u64,
    live: Option<u64>,
    mode: MemoryFailureMode,
    runtime: TaskRuntime,
    cap_mib: u64,
    known: SizeAfterKill,
    bound: Option<GrowthBound<'static>>,
    remote_input: u64,
}

impl Given {
    fn shared(mode: MemoryFailureMode) -> Self {
        Given {
            size: size(64, 0, 1, AttemptPlace::Shared),
            set: set(),
            retry: RetrySpec::default(),
            spent: SpentBudgets::default(),
            dimension: Dimension::Native,
            off_heap: 0,
            live: None,
            mode,
            runtime: TaskRuntime::Native,
            cap_mib: 4096,
            known: SizeAfterKill::Unknown,
            bound: None,
            remote_input: 0,
        }
    }
    fn jvm(dimension: Dimension, heap: u64, overhead: u64, off_heap: u64) -> Self {
        let size = size(heap, overhead, 2, AttemptPlace::Shared);
        Given {
            size,
            dimension,
            off_heap,
            runtime: TaskRuntime::Jvm,
            ..Given::shared(MemoryFailureMode::Headroom)
        }
    }
    fn after(mut self, memory: u32, mib: u64, place: AttemptPlace) -> Self {
        self.spent.memory = memory;
        self.size = size(mib, 0, 1, place);
        self
    }
    fn decide_with(
        &self,
        class: AttemptEndClass,
        fate: AttemptFate,
    ) -> (ChargeAccount, TaskDecision) {
        decide(&DecisionInput {
            mode: self.mode,
            task: "map/7",
            reason: ExitReason::TaskOom,
            class,
            fate,
            size: &self.size,
            set: &self.set,
            runtime: self.runtime,
            idempotent: Idempotent::Yes,
            retry: &self.retry,
            spent: self.spent,
            cap: TaskSizeCap {
                task: Bytes::from_mib(self.cap_mib),
                largest: Some(Bytes::from_mib(self.cap_mib + 32)),
                by_job: false,
            },
            known: self.known,
            bound: self.bound,
            remote_input: Bytes::from_mib(self.remote_input),
            treated: None,
        })
    }
    fn killed(&self) -> TaskDecision {
        let failure = MemoryFailure {
            dimension: self.dimension,
            off_heap: Bytes::from_mib(self.off_heap),
            live: self.live.map(Bytes::from_mib),
            spike: false,
        };
        self.decide_with(AttemptEndClass::Memory(failure), AttemptFate::Own)
            .1
    }
    /// Memory in MiB, slots and place of the next attempt; `None` when there is none.
    fn next(&self) -> Option<(u64, u32, AttemptPlace)> {
        match self.killed() {
            TaskDecision::Again { size, .. } => {
                Some((size.memory().whole_mib(), size.slots, size.place))
            }
            TaskDecision::Done | TaskDecision::GiveUp { .. } => None,
        }
    }
}

#[test]
fn headroom_climbs_by_its_factors() {
    let h = || Given::shared(MemoryFailureMode::Headroom);
    assert_eq!(h().next(), Some((128, 2, AttemptPlace::Shared)));
    assert_eq!(
        h().after(1, 128, AttemptPlace::Shared).next(),
        Some((192, 1, AttemptPlace::Own))
    );
    assert_eq!(
        h().after(2, 192, AttemptPlace::Own).next(),
        Some((384, 1, AttemptPlace::Own))
    );
    assert_eq!(
        h().after(3, 384, AttemptPlace::Own).next(),
        Some((1536, 1, AttemptPlace::Own))
    );
    assert_eq!(
        h().after(4, 1536, AttemptPlace::Own).next(),
        Some((4096, 1, AttemptPlace::Own)),
        "the last chance is the cap itself"
    );
    assert_eq!(h().after(5, 4096, AttemptPlace::Own).next(), None);
    assert_eq!(
        h().after(2, 4096, AttemptPlace::Own).next(),
        None,
        "alone at the cap is final despite remaining budget"
    );
}

#[test]
fn headroom_without_slots_to_spare_asks_for_a_container_at_once() {
    let mut given = Given::shared(MemoryFailureMode::Headroom);
    given.size = size(192, 0, 3, AttemptPlace::Shared);
    assert_eq!(given.next(), Some((384, 1, AttemptPlace::Own)));
}

#[test]
fn headroom_uses_the_learned_size_of_the_kind() {
    let known = |known: SizeAfterKill| Given {
        known,
        ..Given::shared(MemoryFailureMode::Headroom)
    };
    let rung = |mib| SizeAfterKill::Rung(Bytes::from_mib(mib));
    assert_eq!(
        known(rung(96)).next(),
        Some((128, 2, AttemptPlace::Shared)),
        "whole slots, where there are enough"
    );
    assert_eq!(
        known(rung(180)).next(),
        Some((192, 3, AttemptPlace::Shared)),
        "twice the share would be too small"
    );
    assert_eq!(
        known(rung(500)).next(),
        Some((500, 1, AttemptPlace::Own)),
        "directly to a container of that size"
    );
    assert_eq!(
        known(rung(66)).after(0, 64, AttemptPlace::Own).next(),
        Some((72, 1, AttemptPlace::Own)),
        "never less than a tenth more"
    );
    assert_eq!(
        known(SizeAfterKill::Beyond)
            .after(1, 500, AttemptPlace::Own)
            .next(),
        Some((4096, 1, AttemptPlace::Own)),
        "one jump"
    );
    assert_eq!(
        known(rung(9000)).next(),
        Some((4096, 1, AttemptPlace::Own)),
        "never above the cap"
    );
}

#[test]
fn a_learned_quantity_does_not_change_the_other() {
    for (dimension, wanted) in [
        (Dimension::Heap, (300, 32)),
        (Dimension::Overhead, (64, 300)),
    ] {
        let given = Given {
            known: SizeAfterKill::Rung(Bytes::from_mib(300)),
            ..Given::jvm(dimension, 64, 32, 40)
        };
        let TaskDecision::Again { size, .. } = given.killed() else {
            panic!("again")
        };
        assert_eq!(
            (
                size.profile.heap.whole_mib(),
                size.profile.overhead.whole_mib()
            ),
            wanted
        );
    }
}

#[test]
fn tasks_of_a_badly_sized_stage_get_no_more_memory() {
    let given = Given {
        bound: Some(GrowthBound::Stage(
            "11 of 20 tasks of stage map were killed",
        )),
        ..Given::shared(MemoryFailureMode::Headroom)
    };
    let TaskDecision::GiveUp { cause, message } = given.killed() else {
        panic!("given up")
    };
    assert_eq!(cause, GiveUpCause::Memory);
    assert!(
        message.contains("11 of 20") && message.contains("retry.breaker"),
        "{message}"
    );
    let fixed = Given {
        bound: given.bound,
        ..Given::shared(MemoryFailureMode::Fixed)
    };
    assert_eq!(
        fixed.next(),
        Some((64, 1, AttemptPlace::Shared)),
        "the mode does not grow in any case"
    );
}

#[test]
fn headroom_grows_only_the_dimension_that_ran_out() {
    let grown = |given: Given| match given.killed() {
        TaskDecision::Again { size, .. } => (
            size.profile.heap.whole_mib(),
            size.profile.overhead.whole_mib(),
        ),
        next @ (TaskDecision::Done | TaskDecision::GiveUp { .. }) => panic!("{next:?}"),
    };
    assert_eq!(grown(Given::jvm(Dimension::Heap, 64, 32, 0)), (128, 32));
    assert_eq!(grown(Given::jvm(Dimension::Overhead, 64, 32, 40)), (64, 80));
    let mut capped = Given::jvm(Dimension::Heap, 64, 32, 0);
    capped.cap_mib = 120;
    assert_eq!(
        grown(capped),
        (88, 32),
        "the cap leaves the other dimension alone"
    );
}

#[test]
fn pinterest_climbs_to_two_three_and_four_times_the_executor() {
    let p = || Given::shared(MemoryFailureMode::Pinterest);
    assert_eq!(p().next(), Some((128, 2, AttemptPlace::Shared)));
    assert_eq!(
        p().after(1, 128, AttemptPlace::Shared).next(),
        Some((544, 1, AttemptPlace::Own))
    );
    assert_eq!(
        p().after(2, 544, AttemptPlace::Own).next(),
        Some((832, 1, AttemptPlace::Own))
    );
    assert_eq!(
        p().after(3, 832, AttemptPlace::Own).next(),
        Some((1120, 1, AttemptPlace::Own))
    );
    assert_eq!(p().after(4, 1120, AttemptPlace::Own).next(), None);
}

#[test]
fn uber_gives_a_whole_executor_once() {
    assert_eq!(
        Given::shared(MemoryFailureMode::Uber).next(),
        Some((256, 4, AttemptPlace::Shared))
    );
    let mut whole = Given::shared(MemoryFailureMode::Uber);
    whole.size = size(256, 0, 4, AttemptPlace::Shared);
    assert_eq!(whole.next(), None);
}

#[test]
fn uber_isolates_all_tasks_of_the_executor_without_a_charge() {
    let failure = MemoryFailure {
        dimension: Dimension::Native,
        off_heap: Bytes::ZERO,
        live: None,
        spike: false,
    };
    let (account, next) = Given::shared(MemoryFailureMode::Uber)
        .decide_with(AttemptEndClass::Memory(failure), AttemptFate::Bystander);
    assert_eq!(account, ChargeAccount::Bystander);
    assert!(matches!(next, TaskDecision::Again { size, .. } if size.slots == 4));
}

#[test]
fn tasks_of_a_job_over_its_budget_get_no_more_memory() {
    let given = Given {
        bound: Some(GrowthBound::Budget(
            "memory failures have cost this job 2.600 GiB·h",
        )),
        ..Given::shared(MemoryFailureMode::Headroom)
    };
    let failure = MemoryFailure {
        dimension: Dimension::Native,
        off_heap: Bytes::ZERO,
        live: None,
        spike: false,
    };
    let TaskDecision::GiveUp { cause, message } = given
        .decide_with(AttemptEndClass::Memory(failure), AttemptFate::Own)
        .1
    else {
        panic!("given more")
    };
    assert_eq!(cause, GiveUpCause::Memory);
    assert!(
        message.contains("2.600 GiB·h") && message.contains("raise retry.budget_gib_h"),
        "{message}"
    );
}

#[test]
fn headroom_separates_blamed_and_collateral_tasks_of_a_dead_executor() {
    let failure = MemoryFailure {
        dimension: Dimension::Native,
        off_heap: Bytes::from_mib(100),
        live: None,
        spike: false,
    };
    let after = |fate| {
        Given::shared(MemoryFailureMode::Headroom)
            .decide_with(AttemptEndClass::Memory(failure), fate)
    };
    let sized = |next: TaskDecision| match next {
        TaskDecision::Again { size, .. } => {
            Some((size.memory().whole_mib(), size.rung, size.place))
        }
        TaskDecision::Done | TaskDecision::GiveUp { .. } => None,
    };
    let (account, next) = after(AttemptFate::Bystander);
    assert_eq!(
        (account, sized(next)),
        (ChargeAccount::Bystander, Some((64, 1, AttemptPlace::Own))),
        "its own size, alone in a container"
    );
    let (account, next) = after(AttemptFate::Blamed);
    assert_eq!(
        (account, sized(next)),
        (ChargeAccount::Memory, Some((128, 2, AttemptPlace::Own))),
        "not with other tasks again"
    );
    let (_, next) = after(AttemptFate::Own);
    assert_eq!(
        sized(next),
        Some((128, 2, AttemptPlace::Shared)),
        "its own limit stopped it, so other tasks are not in danger"
    );
}

#[test]
fn databricks_doubles_up_to_the_largest_there_is() {
    let d = || Given::shared(MemoryFailureMode::Databricks);
    assert_eq!(d().next(), Some((128, 1, AttemptPlace::Own)));
    assert_eq!(
        d().after(1, 128, AttemptPlace::Own).next(),
        Some((256, 1, AttemptPlace::Own))
    );
    assert_eq!(
        d().after(2, 3000, AttemptPlace::Own).next(),
        Some((4096, 1, AttemptPlace::Own)),
        "the last class is the cap"
    );
    assert_eq!(d().after(3, 4096, AttemptPlace::Own).next(), None);
    assert_eq!(
        d().after(5, 128, AttemptPlace::Own).next(),
        None,
        "six attempts are the maximum"
    );
}

#[test]
fn tovar_gives_the_largest_there_is_at_once() {
    let t = || Given::shared(MemoryFailureMode::Tovar);
    assert_eq!(t().next(), Some((4096, 1, AttemptPlace::Own)));
    assert_eq!(t().after(1, 4096, AttemptPlace::Own).next(), None);
}

#[test]
fn classes_and_largest_sizes_grow_heap_and_overhead_alike() {
    for mode in [MemoryFailureMode::Databricks, MemoryFailureMode::Tovar] {
        let given = Given {
            mode,
            ..Given::jvm(Dimension::Overhead, 96, 32, 40)
        };
        let TaskDecision::Again { size, .. } = given.killed() else {
            panic!("again")
        };
        assert_eq!(
            size.profile.heap.get(),
            3 * size.profile.overhead.get(),
            "{mode:?}"
        );
    }
}

#[test]
fn fixed_repeats_the_size_and_counts_every_failure() {
    let mut given = Given::shared(MemoryFailureMode::Fixed);
    assert_eq!(given.next(), Some((64, 1, AttemptPlace::Shared)));
    (given.spent.memory, given.spent.plain) = (2, 1);
    assert_eq!(given.next(), None);
}

#[test]
fn page_cache_at_the_limit_gets_the_same_size_once() {
    let spike = MemoryFailure {
        dimension: Dimension::Native,
        off_heap: Bytes::ZERO,
        live: None,
        spike: true,
    };
    let mut given = Given::shared(MemoryFailureMode::Headroom);
    let (account, next) = given.decide_with(AttemptEndClass::Memory(spike), AttemptFate::Own);
    assert!(
        account == ChargeAccount::Spike
            && matches!(next, TaskDecision::Again { size, .. } if size == given.size)
    );
    given.spent.spikes = 1;
    assert_eq!(
        given
            .decide_with(AttemptEndClass::Memory(spike), AttemptFate::Own)
            .0,
        ChargeAccount::Memory
    );
}

#[test]
fn the_last_message_names_task_size_and_remedy() {
    let TaskDecision::GiveUp { message, cause } = Given::shared(MemoryFailureMode::Headroom)
        .after(3, 4096, AttemptPlace::Own)
        .killed()
    else {
        panic!("final")
    };
    assert_eq!(cause, GiveUpCause::Memory);
    for word in [
        "map/7",
        "4 GiB",
        "largest container here",
        "split its input",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }
}

proptest! {
    /// Safety: a size never shrinks, never exceeds the cap, and leaves the other dimension
    /// unchanged. Liveness: every ladder ends within the budget.
    #[test]
    fn every_ladder_rises_and_ends(
        heap in 1u64..512, overhead in 0u64..512, cap in 64u64..8192, mode in 0usize..6, heaps in any::<bool>(), jvm in any::<bool>(),
    ) {
        let mut given = Given::shared(MemoryFailureMode::ALL[mode]);
        given.cap_mib = cap;
        given.size = size(heap, overhead, set().slots_for(Bytes::from_mib(heap + overhead)).min(4), AttemptPlace::Shared);
        if jvm {
            given.runtime = TaskRuntime::Jvm;
            given.dimension = if heaps { Dimension::Heap } else { Dimension::Overhead };
        }
        let mut tries = 0;
        while let TaskDecision::Again { size, .. } = given.killed() {
            tries += 1;
            prop_assert!(tries <= given.retry.memory_attempts);
            let (old, new) = (&given.size.profile, &size.profile);
            prop_assert!(new.memory() >= old.memory());
            prop_assert!(new.memory() <= Bytes::from_mib(cap) || new.memory() == old.memory());
            prop_assert!(given.mode == MemoryFailureMode::Fixed || new.memory() > old.memory() || size.slots > given.size.slots);
            if given.mode == MemoryFailureMode::Headroom && jvm {
                let untouched = if heaps { new.overhead == old.overhead } else { new.heap == old.heap };
                prop_assert!(untouched);
            }
            prop_assert!(size.slots <= given.set.slots);
            given.size = size;
            given.spent.memory += 1;
        }
    }
}

/// Two quantities at the cap: memory that the other quantity does not need is moved before the task
/// is given up.
#[test]
fn at_the_largest_size_unused_memory_moves_between_heap_and_overhead() {
    let parted = |dimension, live, off_heap| {
        let given = Given {
            size: size(3072, 1024, 1, AttemptPlace::Own),
            live,
            spent: SpentBudgets {
                memory: 2,
                ..SpentBudgets::default()
            },
            ..Given::jvm(dimension, 0, 0, off_heap)
        };
        match given.killed() {
            TaskDecision::Again { size, .. } => Some((
                size.profile.heap.whole_mib(),
                size.profile.overhead.whole_mib(),
                size.place,
            )),
            TaskDecision::Done | TaskDecision::GiveUp { .. } => None,
        }
    };
    assert_eq!(
        parted(Dimension::Overhead, Some(400), 1024),
        Some((600, 3496, AttemptPlace::Own))
    );
    assert_eq!(
        parted(Dimension::Overhead, Some(2000), 1024),
        None,
        "the heap is used"
    );
    assert_eq!(
        parted(Dimension::Overhead, None, 1024),
        None,
        "the used heap is unknown"
    );
    assert_eq!(
        parted(Dimension::Heap, Some(3072), 200),
        Some((3792, 304, AttemptPlace::Own))
    );
    assert_eq!(
        parted(Dimension::Heap, Some(3072), 900),
        None,
        "the overhead is used"
    );
}

#[test]
fn the_next_overhead_includes_a_remote_input() {
    let next = |dimension, remote_input| match (Given {
        remote_input,
        ..Given::jvm(dimension, 64, 32, 40)
    })
    .killed()
    {
        TaskDecision::Again { size, why, .. } => (
            size.profile.heap.whole_mib(),
            size.profile.overhead.whole_mib(),
            why,
        ),
        TaskDecision::Done | TaskDecision::GiveUp { .. } => panic!("given up"),
    };
    let (heap, overhead, why) = next(Dimension::Overhead, 0);
    assert_eq!((heap, overhead, why.contains("network")), (64, 80, false));
    let (heap, overhead, why) = next(Dimension::Overhead, 300);
    assert_eq!(
        (
            heap,
            overhead,
            why.contains("its input of 300 MiB that comes over the network")
        ),
        (64, 336, true),
        "{why}"
    );
}

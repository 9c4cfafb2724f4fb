//! Mode `headroom`: only the task that needs more gets more, and only in the dimension that ran
//! out.
//!
//! The first step is cheap: twice the slots of an existing executor. The next steps are own
//! containers of 1.5 times, twice and four times the previous size. The last step goes directly to
//! the cap; a kill there proves a genuine need. Where sizes of the task's kind are known, they
//! replace the factors: first the size that holds every observed need, then the cap.

use headroom_config::MemoryQuantities;
use headroom_sizes::learn::SizeAfterKill;
use headroom_types::{Bytes, Dimension, Profile};

use super::attempt_size::{AttemptPlace, AttemptSize};
use super::blame::AttemptFate;
use super::classify::MemoryFailure;
use super::decision_input::DecisionInput;
use super::ladder::{self, LadderStep};

pub(super) fn grow(case: &DecisionInput<'_>, failure: MemoryFailure) -> LadderStep {
    let (size, cap) = (case.size, case.cap.task);
    if size.memory() >= cap {
        if let Some(profile) = parted_anew(case, failure) {
            let rung = size.rung + 1;
            let why = format!(
                "rung {rung}: {profile}, the same total, with unused memory of the other quantity"
            );
            return LadderStep::To(
                AttemptSize {
                    profile,
                    rung,
                    ..size.clone()
                },
                why,
            );
        }
        let place = match size.place {
            AttemptPlace::Own => "alone in a container of its own",
            AttemptPlace::Shared => "at the limit of its own cgroup",
        };
        return LadderStep::Top(format!(
            "it ran {place} at the largest size, set by {}",
            case.cap.words()
        ));
    }
    let grown = climb(case, failure, cap);
    match grown {
        LadderStep::To(size, why) if !case.remote_input.is_zero() => LadderStep::To(
            size,
            format!(
                "{why}, with its input of {} that comes over the network",
                case.remote_input
            ),
        ),
        LadderStep::To(..) | LadderStep::Top(_) => grown,
    }
}

/// The same memory, divided differently, if the quantity that did not run out has much unused
/// memory. If less than 45 % of that quantity was in use, it keeps 1.5 times its use.
fn parted_anew(case: &DecisionInput<'_>, failure: MemoryFailure) -> Option<Profile> {
    let profile = &case.size.profile;
    let little = |used: Bytes, had: Bytes| used.mul_ratio(100, 45) < had;
    let keeps = |used: Bytes| ladder::rounded(used.mul_ratio(3, 2));
    match (case.runtime.memory(), failure.dimension) {
        (MemoryQuantities::One, _) | (MemoryQuantities::HeapAndOverhead, Dimension::Native) => None,
        (MemoryQuantities::HeapAndOverhead, Dimension::Overhead) => {
            let heap = keeps(
                failure
                    .live
                    .filter(|live| !live.is_zero() && little(*live, profile.heap))?,
            );
            Some(Profile {
                heap,
                overhead: profile.memory().saturating_sub(heap),
                ..profile.clone()
            })
        }
        (MemoryQuantities::HeapAndOverhead, Dimension::Heap) => {
            let used = Some(failure.off_heap)
                .filter(|used| !used.is_zero() && little(*used, profile.overhead))?;
            Some(ladder::with_heap_filling(
                &Profile {
                    overhead: keeps(used),
                    ..profile.clone()
                },
                profile.memory(),
            ))
        }
    }
}

fn climb(case: &DecisionInput<'_>, failure: MemoryFailure, cap: Bytes) -> LadderStep {
    let size = case.size;
    let failures = case.spent.memory + 1;
    let last_chance = failures + 1 >= case.retry.memory_attempts;
    // A task that is blamed for the death of an executor does not share one again.
    let cheap =
        failures == 1 && size.place == AttemptPlace::Shared && case.fate != AttemptFate::Blamed;
    if cheap && let Some(grown) = cheap_step(case, failure) {
        return grown;
    }
    let wanted = match case.known {
        SizeAfterKill::Beyond => cap,
        SizeAfterKill::Rung(_) | SizeAfterKill::Unknown if last_chance => cap,
        SizeAfterKill::Rung(_) | SizeAfterKill::Unknown => wanted(case, failure, failures),
    };
    let profile = fill(&size.profile, failure.dimension, wanted.min(cap));
    learned(own(case, profile), case.known)
}

/// Adds to the reason of a size that it is based on observations, if it is.
fn learned(growth: LadderStep, known: SizeAfterKill) -> LadderStep {
    match (growth, known) {
        (LadderStep::To(size, why), SizeAfterKill::Rung(_)) => LadderStep::To(
            size,
            format!("{why}, which fits all observed tasks of its kind"),
        ),
        (LadderStep::To(size, why), SizeAfterKill::Beyond) => LadderStep::To(
            size,
            format!("{why}: it needs more than all observed tasks of its kind"),
        ),
        (
            growth @ (LadderStep::To(..) | LadderStep::Top(_)),
            SizeAfterKill::Rung(_) | SizeAfterKill::Beyond | SizeAfterKill::Unknown,
        ) => growth,
    }
}

/// Heap and overhead for the next attempt, rounded and not capped. Bytes.
fn wanted(case: &DecisionInput<'_>, failure: MemoryFailure, failures: u32) -> Bytes {
    let profile = &case.size.profile;
    if let SizeAfterKill::Rung(rung) = case.known {
        return match failure.dimension {
            Dimension::Native => rung.max(more(profile.memory())),
            Dimension::Heap => rung
                .max(more(profile.heap))
                .saturating_add(profile.overhead),
            Dimension::Overhead => rung
                .max(more(with_input(case)))
                .saturating_add(profile.heap),
        };
    }
    match failure.dimension {
        Dimension::Native => {
            let (num, den) = match failures {
                0 | 1 => (2, 1),
                2 => (3, 2),
                3 => (2, 1),
                4.. => (4, 1),
            };
            ladder::rounded(profile.memory().mul_ratio(num, den))
        }
        Dimension::Heap => {
            ladder::rounded(profile.heap.mul_ratio(2, 1)).saturating_add(profile.overhead)
        }
        Dimension::Overhead => {
            let next =
                ladder::next_overhead(profile.overhead.max(Bytes::from_mib(1)), failure.off_heap);
            ladder::rounded(next.max(with_input(case))).saturating_add(profile.heap)
        }
    }
}

/// The previous overhead plus the input that the task fetches from other hosts.
fn with_input(case: &DecisionInput<'_>) -> Bytes {
    case.size.profile.overhead.saturating_add(case.remote_input)
}

/// The minimum size after one that was too small, independent of observations.
fn more(had: Bytes) -> Bytes {
    ladder::rounded(had.mul_ratio(11, 10))
}

/// `profile` with the dimension that ran out enlarged, so that both add up to `memory`.
fn fill(profile: &Profile, dimension: Dimension, memory: Bytes) -> Profile {
    match dimension {
        Dimension::Heap | Dimension::Native => ladder::with_heap_filling(profile, memory),
        Dimension::Overhead => ladder::with_overhead_filling(profile, memory),
    }
}

/// More slots of an existing executor, if it has them.
fn cheap_step(case: &DecisionInput<'_>, failure: MemoryFailure) -> Option<LadderStep> {
    let (size, set) = (case.size, case.set);
    let wanted = wanted(case, failure, 1);
    let (slots, memory) = match case.runtime.memory() {
        // With a known need, the step is the number of slots that hold it, not twice the share.
        MemoryQuantities::One if case.known != SizeAfterKill::Unknown => {
            let slots = set.slots_for(wanted).max(size.slots);
            (
                slots,
                wanted.max(set.slot_memory().mul_ratio(u64::from(slots), 1)),
            )
        }
        MemoryQuantities::One => {
            let slots = size.slots.checked_mul(2)?;
            (
                slots,
                wanted.min(set.slot_memory().mul_ratio(u64::from(slots), 1)),
            )
        }
        MemoryQuantities::HeapAndOverhead => (set.slots_for(wanted).max(size.slots), wanted),
    };
    if slots > set.slots || memory > case.cap.task || memory <= size.memory() {
        return None;
    }
    let profile = fill(&size.profile, failure.dimension, memory);
    let rung = size.rung + 1;
    let why = format!("rung {rung}: {profile}, {slots} slots of a shared executor");
    Some(learned(
        LadderStep::To(
            AttemptSize {
                profile,
                slots,
                rung,
                place: AttemptPlace::Shared,
            },
            why,
        ),
        case.known,
    ))
}

/// A step to the task's own container.
pub(super) fn own(case: &DecisionInput<'_>, profile: Profile) -> LadderStep {
    let rung = case.size.rung + 1;
    let why = format!("rung {rung}: {profile} in a container of its own");
    LadderStep::To(
        AttemptSize {
            profile,
            slots: 1,
            rung,
            place: AttemptPlace::Own,
        },
        why,
    )
}

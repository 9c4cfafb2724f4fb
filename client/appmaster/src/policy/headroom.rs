//! Mode `headroom`: only the task that needs it, only in the dimension that ran out.
//!
//! First the cheap step: twice the slots of an executor that is there already. Then a container of its own, half as large again,
//! then twice, then four times. One jump to the cap instead of a last small step; killed there, the need is genuine.

use headroom_config::Runtime;
use headroom_types::{Bytes, Dimension, Profile};

use super::classify::MemoryFailure;
use super::{Case, Growth, Place, Size, ladder};

pub(super) fn grow(case: &Case<'_>, failure: MemoryFailure) -> Growth {
    let (size, cap) = (case.size, case.cap.task);
    if size.memory() >= cap {
        let place = match size.place {
            Place::Own => "alone in a container of its own",
            Place::Shared => "at the limit of its own cgroup",
        };
        return Growth::Top(format!("it ran {place} at the largest size, set by {}", case.cap.words()));
    }
    let failures = case.spent.memory + 1;
    let last_chance = failures + 1 >= case.retry.memory_attempts;
    let cheap = failures == 1 && size.place == Place::Shared;
    if cheap && let Some(grown) = cheap_step(case, failure) {
        return grown;
    }
    let wanted = if last_chance { cap } else { wanted(case, failure, failures) };
    let profile = fill(&size.profile, failure.dimension, wanted.min(cap));
    own(case, profile)
}

/// Heap and overhead together that the next attempt should have, rounded, not capped.
fn wanted(case: &Case<'_>, failure: MemoryFailure, failures: u32) -> Bytes {
    let profile = &case.size.profile;
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
        Dimension::Heap => ladder::rounded(profile.heap.mul_ratio(2, 1)).saturating_add(profile.overhead),
        Dimension::Overhead => {
            let next = ladder::next_overhead(profile.overhead.max(Bytes::from_mib(1)), failure.off_heap);
            ladder::rounded(next).saturating_add(profile.heap)
        }
    }
}

/// `profile` with the dimension that ran out grown so that both make `memory`.
fn fill(profile: &Profile, dimension: Dimension, memory: Bytes) -> Profile {
    match dimension {
        Dimension::Heap | Dimension::Native => ladder::with_heap_filling(profile, memory),
        Dimension::Overhead => ladder::with_overhead_filling(profile, memory),
    }
}

/// More slots of an executor that is there already, when it has them.
fn cheap_step(case: &Case<'_>, failure: MemoryFailure) -> Option<Growth> {
    let (size, set) = (case.size, case.set);
    let wanted = wanted(case, failure, 1);
    let (slots, memory) = match case.runtime {
        Runtime::Native => {
            let slots = size.slots.checked_mul(2)?;
            (slots, wanted.min(set.share().mul_ratio(u64::from(slots), 1)))
        }
        Runtime::Jvm => (set.slots_for(wanted).max(size.slots), wanted),
    };
    if slots > set.slots || memory > case.cap.task || memory <= size.memory() {
        return None;
    }
    let profile = fill(&size.profile, failure.dimension, memory);
    let rung = size.rung + 1;
    let why = format!("rung {rung}: {profile}, {slots} slots of a shared executor");
    Some(Growth::To(Size { profile, slots, rung, place: Place::Shared }, why))
}

/// A container of its own.
pub(super) fn own(case: &Case<'_>, profile: Profile) -> Growth {
    let rung = case.size.rung + 1;
    let why = format!("rung {rung}: {profile} in a container of its own");
    Growth::To(Size { profile, slots: 1, rung, place: Place::Own }, why)
}

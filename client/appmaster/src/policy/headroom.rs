//! Mode `headroom`: only the task that needs it, only in the dimension that ran out.
//!
//! First the cheap step: twice the slots of an executor that is there already. Then a container of its own, half as large again,
//! then twice, then four times. One jump to the cap instead of a last small step; killed there, the need is genuine. Where something
//! is known of the task's kind, that takes the place of the factors: first what holds all that was seen of it, then the cap.

use headroom_config::Memory;
use headroom_types::{Bytes, Dimension, Profile};

use super::blame::Fate;
use super::classify::MemoryFailure;
use super::learn::After;
use super::{Case, Growth, Place, Size, ladder};

pub(super) fn grow(case: &Case<'_>, failure: MemoryFailure) -> Growth {
    let (size, cap) = (case.size, case.cap.task);
    if size.memory() >= cap {
        if let Some(profile) = parted_anew(case, failure) {
            let rung = size.rung + 1;
            let why = format!("rung {rung}: {profile}, as much as before, of which the other quantity did not need its part");
            return Growth::To(Size { profile, rung, ..size.clone() }, why);
        }
        let place = match size.place {
            Place::Own => "alone in a container of its own",
            Place::Shared => "at the limit of its own cgroup",
        };
        return Growth::Top(format!("it ran {place} at the largest size, set by {}", case.cap.words()));
    }
    let grown = climb(case, failure, cap);
    match grown {
        Growth::To(size, why) if !case.remote_input.is_zero() => {
            Growth::To(size, format!("{why}, with its input of {} that comes over the network", case.remote_input))
        }
        Growth::To(..) | Growth::Top(_) => grown,
    }
}

/// The same memory with more of what ran out, where the other quantity has much that it does not use: a heap of which less than 45 % is
/// live keeps half as much again as that, an overhead of which less was seen likewise.
fn parted_anew(case: &Case<'_>, failure: MemoryFailure) -> Option<Profile> {
    let profile = &case.size.profile;
    let little = |used: Bytes, had: Bytes| used.mul_ratio(100, 45) < had;
    let keeps = |used: Bytes| ladder::rounded(used.mul_ratio(3, 2));
    match (case.runtime.memory(), failure.dimension) {
        (Memory::One, _) | (Memory::HeapAndOverhead, Dimension::Native) => None,
        (Memory::HeapAndOverhead, Dimension::Overhead) => {
            let heap = keeps(failure.live.filter(|live| !live.is_zero() && little(*live, profile.heap))?);
            Some(Profile { heap, overhead: profile.memory().saturating_sub(heap), ..profile.clone() })
        }
        (Memory::HeapAndOverhead, Dimension::Heap) => {
            let used = Some(failure.off_heap).filter(|used| !used.is_zero() && little(*used, profile.overhead))?;
            Some(ladder::with_heap_filling(&Profile { overhead: keeps(used), ..profile.clone() }, profile.memory()))
        }
    }
}

fn climb(case: &Case<'_>, failure: MemoryFailure, cap: Bytes) -> Growth {
    let size = case.size;
    let failures = case.spent.memory + 1;
    let last_chance = failures + 1 >= case.retry.memory_attempts;
    // Whoever took a whole executor with it is not put beside others again.
    let cheap = failures == 1 && size.place == Place::Shared && case.fate != Fate::Blamed;
    if cheap && let Some(grown) = cheap_step(case, failure) {
        return grown;
    }
    let wanted = match case.known {
        After::Beyond => cap,
        After::Rung(_) | After::Unknown if last_chance => cap,
        After::Rung(_) | After::Unknown => wanted(case, failure, failures),
    };
    let profile = fill(&size.profile, failure.dimension, wanted.min(cap));
    learned(own(case, profile), case.known)
}

/// Says what a size rests on, where it rests on something.
fn learned(growth: Growth, known: After) -> Growth {
    match (growth, known) {
        (Growth::To(size, why), After::Rung(_)) => Growth::To(size, format!("{why}, which holds all that was seen of its kind")),
        (Growth::To(size, why), After::Beyond) => {
            Growth::To(size, format!("{why}: it needs more than all that was seen of its kind"))
        }
        (growth @ (Growth::To(..) | Growth::Top(_)), After::Rung(_) | After::Beyond | After::Unknown) => growth,
    }
}

/// Heap and overhead together that the next attempt should have, rounded, not capped.
fn wanted(case: &Case<'_>, failure: MemoryFailure, failures: u32) -> Bytes {
    let profile = &case.size.profile;
    if let After::Rung(rung) = case.known {
        return match failure.dimension {
            Dimension::Native => rung.max(more(profile.memory())),
            Dimension::Heap => rung.max(more(profile.heap)).saturating_add(profile.overhead),
            Dimension::Overhead => rung.max(more(with_input(case))).saturating_add(profile.heap),
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
        Dimension::Heap => ladder::rounded(profile.heap.mul_ratio(2, 1)).saturating_add(profile.overhead),
        Dimension::Overhead => {
            let next = ladder::next_overhead(profile.overhead.max(Bytes::from_mib(1)), failure.off_heap);
            ladder::rounded(next.max(with_input(case))).saturating_add(profile.heap)
        }
    }
}

/// The overhead it had, and what it fetches from other hosts beside it.
fn with_input(case: &Case<'_>) -> Bytes {
    case.size.profile.overhead.saturating_add(case.remote_input)
}

/// The least that follows a size that was not enough, whatever is known.
fn more(had: Bytes) -> Bytes {
    ladder::rounded(had.mul_ratio(11, 10))
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
    let (slots, memory) = match case.runtime.memory() {
        // Twice the share is no step towards what is known to be needed; as many slots as hold it are.
        Memory::One if case.known != After::Unknown => {
            let slots = set.slots_for(wanted).max(size.slots);
            (slots, wanted.max(set.share().mul_ratio(u64::from(slots), 1)))
        }
        Memory::One => {
            let slots = size.slots.checked_mul(2)?;
            (slots, wanted.min(set.share().mul_ratio(u64::from(slots), 1)))
        }
        Memory::HeapAndOverhead => (set.slots_for(wanted).max(size.slots), wanted),
    };
    if slots > set.slots || memory > case.cap.task || memory <= size.memory() {
        return None;
    }
    let profile = fill(&size.profile, failure.dimension, memory);
    let rung = size.rung + 1;
    let why = format!("rung {rung}: {profile}, {slots} slots of a shared executor");
    Some(learned(Growth::To(Size { profile, slots, rung, place: Place::Shared }, why), case.known))
}

/// A container of its own.
pub(super) fn own(case: &Case<'_>, profile: Profile) -> Growth {
    let rung = case.size.rung + 1;
    let why = format!("rung {rung}: {profile} in a container of its own");
    Growth::To(Size { profile, slots: 1, rung, place: Place::Own }, why)
}

//! Where a task of a learned size goes: slots of a shared executor, or a container of its own.

use headroom_config::{ExecutorSpec, Memory, StageSpec};
use headroom_types::Profile;

use super::{Cap, Place, Size, ladder};

/// Where a task of this size goes: into as many slots as it needs, or a container of its own. In an executor with one slot it would
/// leave what it does not need to nobody, so that much less means a container of its own too, unless it does not even run long.
pub fn seated(stage: &StageSpec, set: &ExecutorSpec, (wanted, long): (&Profile, bool), cap: Cap) -> Size {
    let profile = if wanted.memory() > cap.task { ladder::with_heap_filling(wanted, cap.task) } else { wanted.clone() };
    let slots = set.slots_for(profile.memory()).max(stage.cpus_per_task);
    let alone = long && set.slots == 1 && profile.memory() < set.room().mul_ratio(7, 8);
    if slots > set.slots || alone {
        return Size { profile, slots: 1, rung: 1, place: Place::Own };
    }
    // What is left over in its slots is of no use to others.
    let there = set.share().mul_ratio(u64::from(slots), 1).min(cap.task);
    let stated = &stage.profile;
    let roomy = match stage.runtime.memory() {
        Memory::One => ladder::with_heap_filling(&profile, profile.memory().max(stated.memory().min(there))),
        Memory::HeapAndOverhead => {
            let (heap, overhead) = (profile.heap.max(stated.heap), profile.overhead.max(stated.overhead));
            let both = Profile { heap, overhead, ..profile.clone() };
            if both.memory() <= there { both } else { profile }
        }
    };
    Size { profile: roomy, slots, rung: 1, place: Place::Shared }
}

//! The place of a task with a learned size: slots of a shared executor, or its own container.

use headroom_config::{ExecutorSpec, MemoryQuantities, StageSpec};
use headroom_types::Profile;

use super::attempt_size::{AttemptPlace, AttemptSize, TaskSizeCap};
use super::ladder;

/// The size and place of a task: as many slots as it needs, or its own container. In an executor
/// with one slot, the unused memory of the task would be wasted. A long task with a much smaller
/// size therefore gets its own container as well.
pub fn place_sized_task(
    stage: &StageSpec,
    set: &ExecutorSpec,
    (wanted, long): (&Profile, bool),
    cap: TaskSizeCap,
) -> AttemptSize {
    let profile = if wanted.memory() > cap.task {
        ladder::with_heap_filling(wanted, cap.task)
    } else {
        wanted.clone()
    };
    let slots = set.slots_for(profile.memory()).max(stage.cpus_per_task);
    let alone = long && set.slots == 1 && profile.memory() < set.task_memory().mul_ratio(7, 8);
    if slots > set.slots || alone {
        return AttemptSize {
            profile,
            slots: 1,
            rung: 1,
            place: AttemptPlace::Own,
        };
    }
    // Other tasks cannot use the remaining memory of its slots.
    let there = set
        .slot_memory()
        .mul_ratio(u64::from(slots), 1)
        .min(cap.task);
    let stated = &stage.profile;
    let roomy = match stage.runtime.memory() {
        MemoryQuantities::One => {
            ladder::with_heap_filling(&profile, profile.memory().max(stated.memory().min(there)))
        }
        MemoryQuantities::HeapAndOverhead => {
            let (heap, overhead) = (
                profile.heap.max(stated.heap),
                profile.overhead.max(stated.overhead),
            );
            let both = Profile {
                heap,
                overhead,
                ..profile.clone()
            };
            if both.memory() <= there {
                both
            } else {
                profile
            }
        }
    };
    AttemptSize {
        profile: roomy,
        slots,
        rung: 1,
        place: AttemptPlace::Shared,
    }
}

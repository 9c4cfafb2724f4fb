//! Evidence of the end of a simulated task.

use headroom_types::exit::{HeapReport, MemoryEvents};
use headroom_types::{EnforcerKind, Evidence, StopCause};
use headroom_wire::v1::task::TaskStart;

use crate::scenario::SimTaskPlan;

/// The end of a task's process.
#[derive(Clone, Copy, Debug)]
pub(super) enum SimTaskEnd {
    Code(i32),
    /// Killed by the kernel at its own limit.
    OutOfMemory,
    Killed,
    Stopped,
}

/// Whether the task exceeds its own limit.
pub(super) fn exceeds_limit(habit: &SimTaskPlan, start: &TaskStart) -> bool {
    let Some(limit) = start.limit else {
        return false;
    };
    match start.heap {
        Some(budget) => habit.heap > budget || habit.off_heap > limit.saturating_sub(budget),
        None => habit.memory() > limit,
    }
}

/// The evidence of a task that ended in this way.
pub(super) fn evidence(start: &TaskStart, habit: &SimTaskPlan, how: SimTaskEnd) -> Evidence {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.own.limit = start.limit;
    e.own.peak = Some(
        start
            .limit
            .map_or(habit.memory(), |l| l.min(habit.memory())),
    );
    e.heap_budget = start.heap;
    e.heap = start.heap.map(|budget| {
        let used = habit.heap.min(budget);
        HeapReport {
            used,
            committed: used,
            max: budget,
            ..HeapReport::default()
        }
    });
    match how {
        SimTaskEnd::Code(code) => e.exit_code = Some(code),
        SimTaskEnd::Killed => e.signal = Some(9),
        SimTaskEnd::Stopped => (e.signal, e.stop_asked) = (Some(15), Some(StopCause::Asked)),
        SimTaskEnd::OutOfMemory => {
            let moved = MemoryEvents {
                oom: 1,
                oom_kill: 1,
                oom_group_kill: 1,
                ..MemoryEvents::default()
            };
            (e.signal, e.own.events, e.own.local) = (Some(9), moved, moved);
        }
    }
    e
}

//! Behaviour of a task in the simulated cluster, and the end that the kernel or its runtime would
//! cause.

use headroom_types::exit::TaskReport;
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::task::TaskStart;

/// The behaviour of a task.
#[derive(Clone, Debug)]
pub struct TaskBehaviour {
    /// Memory outside a managed heap (for a native task: all of it).
    pub off_heap: Bytes,
    /// Heap it needs, for a task with one.
    pub heap: Bytes,
    /// Run time without a limit. Milliseconds.
    pub runs_ms: u64,
    /// Ends of its first attempts, independent of their size.
    pub ends: Vec<ExitReason>,
    /// Changes the report of its executor.
    pub tells: fn(&mut TaskReport),
    /// True if its runtime spends most of its time collecting its heap.
    pub starved: bool,
}

impl TaskBehaviour {
    pub fn native(mib: u64, runs_ms: u64) -> Self {
        TaskBehaviour {
            off_heap: Bytes::from_mib(mib),
            heap: Bytes::ZERO,
            runs_ms,
            ends: Vec::new(),
            tells: |_| {},
            starved: false,
        }
    }
    pub fn jvm(heap: u64, off_heap: u64) -> Self {
        TaskBehaviour {
            heap: Bytes::from_mib(heap),
            ..TaskBehaviour::native(off_heap, 1000)
        }
    }
    pub fn starved(self) -> Self {
        TaskBehaviour {
            starved: true,
            ..self
        }
    }
    pub fn telling(self, tells: fn(&mut TaskReport)) -> Self {
        TaskBehaviour { tells, ..self }
    }
    pub fn ending(ends: &[ExitReason]) -> Self {
        TaskBehaviour {
            ends: ends.to_vec(),
            ..TaskBehaviour::native(1, 1000)
        }
    }
}

pub(super) fn total(habit: &TaskBehaviour) -> Bytes {
    habit.off_heap.saturating_add(habit.heap)
}

/// The end that the kernel, or the runtime, would cause.
pub(super) fn verdict(
    habit: &TaskBehaviour,
    start: &TaskStart,
) -> Option<(ExitReason, Option<Dimension>)> {
    let limit = start.limit?;
    match start.heap {
        Some(budget) if habit.heap > budget => Some((ExitReason::HeapOom, Some(Dimension::Heap))),
        Some(budget) if habit.off_heap > limit.saturating_sub(budget) => {
            Some((ExitReason::OverheadOom, Some(Dimension::Overhead)))
        }
        Some(_) => None,
        None => (total(habit) > limit).then_some((ExitReason::TaskOom, Some(Dimension::Native))),
    }
}

//! How a task of the played cluster behaves, and how the kernel or its runtime would end it.

use headroom_types::exit::TaskReport;
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::task::TaskStart;

/// How a task behaves.
#[derive(Clone, Debug)]
pub struct Habit {
    /// Memory outside a managed heap (for a native task: all of it).
    pub off_heap: Bytes,
    /// Heap it needs, for a task with one.
    pub heap: Bytes,
    /// How long it runs when nothing stops it. Milliseconds.
    pub runs_ms: u64,
    /// How its first attempts end whatever their size.
    pub ends: Vec<ExitReason>,
    /// What is odd about what its executor tells.
    pub tells: fn(&mut TaskReport),
    /// Its runtime does little but collect its heap.
    pub starved: bool,
}

impl Habit {
    pub fn native(mib: u64, runs_ms: u64) -> Self {
        Habit { off_heap: Bytes::from_mib(mib), heap: Bytes::ZERO, runs_ms, ends: Vec::new(), tells: |_| {}, starved: false }
    }
    pub fn jvm(heap: u64, off_heap: u64) -> Self {
        Habit { heap: Bytes::from_mib(heap), ..Habit::native(off_heap, 1000) }
    }
    pub fn starved(self) -> Self {
        Habit { starved: true, ..self }
    }
    pub fn telling(self, tells: fn(&mut TaskReport)) -> Self {
        Habit { tells, ..self }
    }
    pub fn ending(ends: &[ExitReason]) -> Self {
        Habit { ends: ends.to_vec(), ..Habit::native(1, 1000) }
    }
}

pub(super) fn total(habit: &Habit) -> Bytes {
    habit.off_heap.saturating_add(habit.heap)
}

/// How the kernel, or the runtime, would end it.
pub(super) fn verdict(habit: &Habit, start: &TaskStart) -> Option<(ExitReason, Option<Dimension>)> {
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

//! What an end means for the policy: the closed reason of a report, and which quantity must grow.

use headroom_config::Runtime;
use headroom_types::exit::Sample;
use headroom_types::{Bytes, Charge, Dimension, Evidence, ExitReason, Profile};

/// What an end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It did what it should.
    Success,
    /// The task's own failure, and no matter of memory.
    Plain,
    /// Not the task's fault.
    Transient,
    /// It stayed within its own size and was killed for its executor's limit.
    Bystander,
    /// The task's own memory failure, as far as its report can tell.
    Memory(MemoryFailure),
}

/// A memory failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFailure {
    /// Which quantity ran out.
    pub dimension: Dimension,
    /// Off-heap memory seen; a lower bound. Bytes.
    pub off_heap: Bytes,
    /// Page cache explains the full limit, so the same size may do.
    pub spike: bool,
}

/// The facts of an end that the class depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The closed reason.
    pub reason: ExitReason,
    /// Which quantity ran out, as the reporter saw it.
    pub dimension: Option<Dimension>,
    /// What it was decided from, when there was a report.
    pub evidence: Option<&'a Evidence>,
    /// Memory from birth to death.
    pub timeline: &'a [Sample],
    /// Size of the attempt.
    pub profile: &'a Profile,
    /// What manages its memory.
    pub runtime: Runtime,
}

/// Classifies an end.
pub fn classify(facts: &Facts<'_>) -> Class {
    match facts.reason.charge() {
        Charge::Success => Class::Success,
        Charge::Plain => Class::Plain,
        Charge::Free if facts.reason == ExitReason::AncestorOom && hit_by_container(facts.evidence) => Class::Bystander,
        Charge::Free => Class::Transient,
        Charge::Memory => Class::Memory(failure(facts)),
    }
}

/// True when the outer limit that was hit is that of the task's own executor, so that another task is behind it.
fn hit_by_container(evidence: Option<&Evidence>) -> bool {
    evidence.is_some_and(|e| e.outer.iter().any(|o| o.level == "container" && (o.local.oom > 0 || o.local.max > 0)))
}

fn failure(facts: &Facts<'_>) -> MemoryFailure {
    MemoryFailure { dimension: dimension(facts), off_heap: off_heap(facts), spike: spike(facts) }
}

/// A program without a managed heap has one quantity, whatever the reporter called it.
fn dimension(facts: &Facts<'_>) -> Dimension {
    match facts.runtime {
        Runtime::Native => Dimension::Native,
        Runtime::Jvm => match (facts.dimension, facts.reason) {
            (Some(Dimension::Heap), _) | (None, ExitReason::HeapOom) => Dimension::Heap,
            (Some(Dimension::Overhead), _) => Dimension::Overhead,
            (Some(Dimension::Native) | None, _) if heap_is_full(facts) => Dimension::Heap,
            (Some(Dimension::Native) | None, _) => Dimension::Overhead,
        },
    }
}

fn heap_is_full(facts: &Facts<'_>) -> bool {
    let heap = facts.evidence.and_then(|e| e.heap);
    heap.is_some_and(|h| h.used.mul_ratio(100, 95) >= facts.profile.heap)
}

/// The most that was charged beyond what the heap had taken.
fn off_heap(facts: &Facts<'_>) -> Bytes {
    let peak = facts.evidence.and_then(|e| e.own.peak).unwrap_or_else(|| facts.profile.memory());
    match facts.evidence.and_then(|e| e.heap) {
        Some(heap) => peak.saturating_sub(heap.committed.min(facts.profile.heap)),
        None => peak.saturating_sub(facts.profile.heap),
    }
}

/// Page cache stays charged after the kill, while the program's own memory is gone. So what is left then, and what the last sample
/// saw before, must agree that at least 15 % of the limit was cache.
fn spike(facts: &Facts<'_>) -> bool {
    let Some(evidence) = facts.evidence else { return false };
    let limit = evidence.own.limit.unwrap_or_else(|| facts.profile.memory());
    let stat = &evidence.own.stat;
    let (Some(file), Some(last)) = (stat.file, facts.timeline.last()) else { return false };
    let cache = file.saturating_sub(stat.shmem.unwrap_or_default());
    let share = limit.mul_ratio(15, 100);
    let anon_left_room = last.anon.is_some_and(|anon| anon < limit.mul_ratio(85, 100));
    !limit.is_zero() && cache >= share && anon_left_room && last.file.is_some_and(|f| f >= share)
}

//! Rules for the heap: too small, fragmented, collected without end, without its budget, or too
//! large.

use headroom_types::exit::{GarbageCollector, GcCause, HeapReport};
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, ExitReason, SubCause};

use super::case::{DiagnosisInput, next_size, row};

/// From this share of the last seconds on, a runtime mainly collects. In percent.
const BOUND: u8 = 50;
/// Less collection time in total is normal before any heap fails. In milliseconds.
const BOUND_MS: u64 = 2000;
/// A heap that fails with less than this in use did not fail for being full. In percent.
const FULL: u64 = 80;

/// Largest ratio of old to new generation. Above it, new objects have too little memory. The
/// default of the JVM is 2.
const MOST_OLD: u64 = 6;

pub(super) fn is_heap(c: &DiagnosisInput<'_>) -> bool {
    c.verdict.reason == ExitReason::HeapOom || c.verdict.dimension == Some(Dimension::Heap)
}

/// The budget and the maximum of the runtime are two settings that the user has to keep equal.
pub(super) fn beyond_budget(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (heap, budget) = c.heap()?;
    if heap.max <= budget.mul_ratio(105, 100) {
        return None;
    }
    let cause = format!(
        "the runtime may let its heap grow to {}, beyond its budget of {budget}",
        heap.max
    );
    let fix = format!(
        "pass the budget to the runtime (-Xmx{}k, or {{heap}} in the command), or declare a heap of {}",
        budget.get() >> 10,
        heap.max
    );
    let row = row(SubCause::BudgetNotPassed, Certainty::Certain, cause, fix);
    let beyond = heap.used.saturating_sub(budget);
    Some(if beyond.is_zero() {
        row
    } else {
        row.with_would_fit(c.without(beyond))
    })
}

/// A cache must fit into the old generation. The rest of it takes memory from new objects, and each
/// full collection copies it without effect.
pub(super) fn cache(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (heap, budget) = c.heap()?;
    let (cached, old) = (heap.cached?, heap.old_max?);
    if !is_heap(c) || cached <= old {
        return None;
    }
    let cause = format!(
        "{cached} are kept as a cache; the old generation, where long-lived objects go, holds {old} of {}",
        heap.max
    );
    // The old generation also holds other objects: a tenth of the cache.
    let room = cached.mul_ratio(11, 10);
    let other = match (2..=MOST_OLD).find(|ratio| heap.max.mul_ratio(*ratio, ratio + 1) >= room) {
        Some(ratio) => format!("a larger old generation in the same heap (-XX:NewRatio={ratio})"),
        None => format!("heap {}", next_size(budget.max(room))),
    };
    let fix = format!(
        "keep at most {} as a cache (drop the rest, or keep it on a disk or off the heap); or {other}",
        old.mul_ratio(9, 10)
    );
    Some(
        row(SubCause::CacheBeyondOld, Certainty::Certain, cause, fix)
            .with_trade_off("dropped entries are computed again; a larger old generation leaves less for new objects"),
    )
}

/// A heap that is large enough for its live objects, and the part of the budget that it frees.
pub(super) struct SmallerHeap {
    live: Bytes,
    size: Bytes,
    pub(super) freed: Bytes,
}

/// The smaller heap of a program that ran out of memory outside a mostly free heap.
pub(super) fn smaller(c: &DiagnosisInput<'_>) -> Option<SmallerHeap> {
    let (heap, budget) = c.heap()?;
    let live = heap.old_used.unwrap_or(heap.used);
    if !c.beside_heap() || live >= budget.mul_ratio(60, 100) {
        return None;
    }
    let size = live
        .mul_ratio(3, 2)
        .round_up(Bytes::from_mib(8))
        .max(Bytes::from_mib(16));
    let freed = budget.checked_sub(size).filter(|b| !b.is_zero())?;
    Some(SmallerHeap { live, size, freed })
}

/// The memory outside the heap ran out while the heap had much free memory.
pub(super) fn idle(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (heap, budget) = c.heap()?;
    let SmallerHeap {
        live,
        size: smaller,
        freed,
    } = smaller(c)?;
    let row = row(
        SubCause::HeapIdle,
        Certainty::Likely,
        format!("the heap uses {live} of its {budget}; the memory outside it ran out"),
        format!(
            "make the heap {smaller}: the same container then has {freed} more for other memory"
        ),
    )
    .with_trade_off("the collector runs more often");
    let given_back = heap.committed.saturating_sub(smaller);
    Some(if given_back.is_zero() {
        row
    } else {
        row.with_would_fit(c.without(given_back))
    })
}

/// Collection took most of the time and freed almost nothing.
pub(super) fn bound(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !is_heap(c) {
        return None;
    }
    let gc = c.e.heap.and_then(|h| h.gc);
    let busy =
        gc.filter(|gc| gc.recent_percent.is_some_and(|p| p >= BOUND) && gc.spent_ms >= BOUND_MS);
    if busy.is_none() && !c.message_contains("gc overhead limit") {
        return None;
    }
    let figures = gc.map(|gc| {
        let recent = gc
            .recent_percent
            .map(|p| format!("{p} % of its last seconds"))
            .unwrap_or_else(|| "most of its time".into());
        format!(
            ": {recent} in {} collections, {} of the whole heap",
            gc.collections, gc.full
        )
    });
    let cause = format!(
        "the runtime spent its time collecting a nearly full heap{}",
        figures.unwrap_or_default()
    );
    let wanted =
        c.e.heap_budget
            .map(|b| format!("heap {}", next_size(b)))
            .unwrap_or_else(|| "a larger heap".to_owned());
    let fix = format!(
        "{wanted}; or a smaller working set: smaller partitions, fewer tasks at once, less caching"
    );
    Some(
        row(SubCause::GcBound, Certainty::Certain, cause, fix).with_trade_off(
            "a larger heap means fewer tasks on a node; smaller partitions mean more tasks",
        ),
    )
}

/// The heap failed: full, or without contiguous free memory.
pub(super) fn full(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !is_heap(c) {
        return None;
    }
    let Some((heap, budget)) = c.heap() else {
        return (!c.was_refused()).then(|| unexplained(c));
    };
    let larger = next_size(budget.max(heap.used));
    let long_lived = heap
        .old_used
        .map(|live| format!(", {live} of it long-lived"))
        .unwrap_or_default();
    if let Some(row) = fragmented(&heap, budget, larger, &long_lived) {
        return Some(row);
    }
    // An old generation is two thirds of the heap unless a flag changes that.
    let certain = heap
        .old_used
        .is_some_and(|live| live >= budget.mul_ratio(60, 100))
        && bound(c).is_none();
    let certainty = if certain {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    let cause = format!(
        "the heap of {budget} is full: {} in use{long_lived}",
        heap.used
    );
    Some(
        row(
            SubCause::LiveHeap,
            certainty,
            cause,
            format!("heap {larger}, or smaller partitions"),
        )
        .with_trade_off(
            "a larger heap means fewer tasks on a node; smaller partitions mean more tasks",
        ),
    )
}

/// There are no counters, only the runtime message.
fn unexplained(c: &DiagnosisInput<'_>) -> Diagnosis {
    match c.e.heap_budget {
        Some(budget) => row(
            SubCause::LiveHeap,
            Certainty::Likely,
            format!("the runtime reported that its heap of {budget} is full; it shares no counters about the contents"),
            format!("heap {}, or smaller partitions", next_size(budget)),
        )
        .with_trade_off("a larger heap means fewer tasks on a node"),
        None => row(
            SubCause::LiveHeap,
            Certainty::Likely,
            "the runtime reported that its heap is full",
            "declare the heap of this runtime, so that it can be sized and measured",
        ),
    }
}

fn fragmented(
    heap: &HeapReport,
    budget: Bytes,
    larger: Bytes,
    long_lived: &str,
) -> Option<Diagnosis> {
    let gc = heap.gc.unwrap_or_default();
    let regions = gc.humongous.filter(|n| *n > 0);
    let asked_large = gc.cause == Some(GcCause::Humongous);
    if heap.used >= budget.mul_ratio(FULL, 100) {
        return None;
    }
    let by_regions = matches!(gc.collector, Some(GarbageCollector::G1));
    let certainty = if by_regions && (asked_large || regions.is_some()) {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    let of_them = regions
        .map(|n| format!("; {n} regions hold one large object each"))
        .unwrap_or_default();
    let size = gc.region.map(|r| format!(", now {r}")).unwrap_or_default();
    let cause = format!(
        "the heap of {budget} failed with only {} in use{long_lived}: a very large allocation, or a fragmented heap{of_them}",
        heap.used
    );
    let fix = format!(
        "smaller arrays or partitions; for G1, larger regions (-XX:G1HeapRegionSize{size}) or -XX:+UseParallelGC; then heap {larger}"
    );
    Some(
        row(SubCause::HeapFragmented, certainty, cause, fix)
            .with_trade_off("larger regions waste some memory with small objects; the parallel collector has longer pauses"),
    )
}

//! Causes and cures of a verdict: a table of rules over the evidence.
//!
//! Rows are sorted by certainty, and by the price of the cure among equals. The author of the
//! verdict calls it. It never changes the verdict, and returns nothing without evidence. The
//! numbers of a killed process are lower bounds of its need, and the text says so.
//!
//! Cures in the order of their price: other flags, less concurrency, overhead, heap, a bigger
//! container.

mod heap;
mod limits;
mod other_causes;
mod overhead;
mod runtime_message;

use headroom_types::exit::HeapReport;
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, Evidence, ExitReason, SubCause};

use crate::classify::{MarkedMemory, Verdict, is_refusal, marked_memory};

/// One row of the table: nothing, or a cause with its cure.
type Rule = fn(&Case<'_>) -> Option<Diagnosis>;

/// Rules for the memory that filled the limit of its own memory failure, in the order of the price
/// of their cures.
const TAKEN: [Rule; 19] = [
    limits::heap,
    limits::beside_heap,
    limits::array_size,
    heap::beyond_budget,
    heap::cache,
    runtime_message::direct,
    runtime_message::metaspace,
    runtime_message::code,
    runtime_message::threads,
    overhead::tmpfs,
    overhead::children,
    overhead::threads,
    overhead::arenas,
    overhead::page_cache,
    overhead::sockets,
    overhead::kernel,
    overhead::metaspace,
    overhead::code,
    overhead::direct,
];

/// Rules for the part that was too small, and for the part that had free memory.
const SHORT: [Rule; 5] = [
    heap::idle,
    overhead::unknown,
    heap::bound,
    heap::full,
    other_causes::own_data,
];

/// Causes and cures for a verdict; empty for ends without a memory failure and without evidence.
pub fn diagnose(e: &Evidence, v: &Verdict) -> Vec<Diagnosis> {
    let case = Case::new(e, v);
    match v.reason {
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::StalledAtLimit => {
            let mut rows: Vec<Diagnosis> = TAKEN.iter().filter_map(|rule| rule(&case)).collect();
            let taken = rows.iter().any(|row| row.certainty <= Certainty::Likely);
            rows.extend(overhead::thrashing(&case, taken));
            rows.extend(SHORT.iter().filter_map(|rule| rule(&case)));
            rows.sort_by_key(|row| row.certainty); // stable: cheapest first among equals
            rows
        }
        ExitReason::AncestorOom => {
            vec![other_causes::leftover(&case).unwrap_or_else(|| other_causes::outer_limit(&case))]
        }
        ExitReason::NodeOom => vec![other_causes::host()],
        ExitReason::KilledExternally => vec![other_causes::from_outside()],
        ExitReason::Exit { code: 137 } => vec![other_causes::code_137()],
        ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost
        | ExitReason::LaunchFailed => Vec::new(),
        ExitReason::Exit { .. } | ExitReason::Signal { .. } => {
            limits::refused(&case).into_iter().collect()
        }
    }
}

/// The next size to try after a kill at `seen`: half as much again, rounded up to 64 MiB or 8 MiB.
pub fn next_size(seen: Bytes) -> Bytes {
    let wanted = seen.mul_ratio(3, 2);
    let step = if wanted >= Bytes::from_gib(1) {
        Bytes::from_mib(64)
    } else {
        Bytes::from_mib(8)
    };
    wanted.round_up(step)
}

/// The evidence, with values that several rules need.
struct Case<'a> {
    e: &'a Evidence,
    verdict: Verdict,
    /// The limit, or the peak where there was no limit.
    limit: Bytes,
    /// The known need: the larger of peak and last use.
    seen: Bytes,
    marked: Option<MarkedMemory>,
}

impl<'a> Case<'a> {
    fn new(e: &'a Evidence, v: &Verdict) -> Self {
        let seen = e.own.peak.unwrap_or(e.own.current).max(e.own.current);
        let limit = e.own.limit.unwrap_or(seen);
        Case {
            e,
            verdict: *v,
            limit,
            seen: seen.max(Bytes::new(1)),
            marked: e.heap_marker.as_deref().map(marked_memory),
        }
    }
    /// True when `part` is at least `percent` of the limit.
    fn is_share(&self, part: Bytes, percent: u64) -> bool {
        !part.is_zero() && part >= self.limit.mul_ratio(percent, 100)
    }
    /// True when the runtime message contains `words`, given in lower case.
    fn message_contains(&self, words: &str) -> bool {
        self.e
            .heap_marker
            .as_deref()
            .is_some_and(|line| line.to_ascii_lowercase().contains(words))
    }
    /// True when the program reported a refused allocation and has no heap with a maximum that
    /// could be the reason: Python, Go, C++, Rust.
    fn was_refused(&self) -> bool {
        self.e.heap_budget.is_none() && self.e.heap_marker.as_deref().is_some_and(is_refusal)
    }
    fn heap(&self) -> Option<(HeapReport, Bytes)> {
        Some((self.e.heap?, self.e.heap_budget?))
    }
    /// The memory that the limit leaves outside the heap budget.
    fn overhead(&self) -> Option<Bytes> {
        self.e
            .heap_budget
            .map(|budget| self.limit.saturating_sub(budget))
    }
    /// True when it was killed at its limit and its runtime reported nothing.
    fn is_kill(&self) -> bool {
        self.marked.is_none() && self.e.exit_code.is_none()
    }
    /// True when the kill was for memory outside the heap.
    fn beside_heap(&self) -> bool {
        self.is_kill() && self.verdict.dimension == Some(Dimension::Overhead)
    }
    /// The size that would have sufficed without `part`, for the use so far.
    fn without(&self, part: Bytes) -> Bytes {
        self.seen
            .saturating_sub(part)
            .max(Bytes::from_mib(1))
            .round_up(Bytes::from_mib(1))
    }
}

fn row(
    name: SubCause,
    certainty: Certainty,
    cause: impl Into<String>,
    fix: impl Into<String>,
) -> Diagnosis {
    Diagnosis::new(name, certainty, cause, fix)
}

const LESS_AT_ONCE: &str = "less concurrency takes longer";
const MORE_OVERHEAD: &str = "more overhead is memory that no other task can have";

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;

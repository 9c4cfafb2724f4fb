//! The evidence of one verdict with the values that several rules need, and the row that a rule
//! returns.
//!
//! [`diagnose`](super::diagnose) owns it for one call; the rules only read it.

use headroom_types::exit::HeapReport;
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, Evidence, SubCause};

use crate::classify::{MarkedMemory, Verdict, is_refusal, marked_memory};

/// The evidence, with values that several rules need.
pub(super) struct DiagnosisInput<'a> {
    pub(super) e: &'a Evidence,
    pub(super) verdict: Verdict,
    /// The limit, or the peak where there was no limit.
    pub(super) limit: Bytes,
    /// The known need: the larger of peak and last use.
    pub(super) seen: Bytes,
    pub(super) marked: Option<MarkedMemory>,
}

impl<'a> DiagnosisInput<'a> {
    /// The case of a verdict.
    pub(super) fn new(e: &'a Evidence, v: &Verdict) -> Self {
        let seen = e.own.peak.unwrap_or(e.own.current).max(e.own.current);
        let limit = e.own.limit.unwrap_or(seen);
        DiagnosisInput {
            e,
            verdict: *v,
            limit,
            seen: seen.max(Bytes::new(1)),
            marked: e.heap_marker.as_deref().map(marked_memory),
        }
    }
    /// True when `part` is at least `percent` of the limit.
    pub(super) fn is_share(&self, part: Bytes, percent: u64) -> bool {
        !part.is_zero() && part >= self.limit.mul_ratio(percent, 100)
    }
    /// True when the runtime message contains `words`, given in lower case.
    pub(super) fn message_contains(&self, words: &str) -> bool {
        self.e
            .heap_marker
            .as_deref()
            .is_some_and(|line| line.to_ascii_lowercase().contains(words))
    }
    /// True when the program reported a refused allocation and has no heap with a maximum that
    /// could be the reason: Python, Go, C++, Rust.
    pub(super) fn was_refused(&self) -> bool {
        self.e.heap_budget.is_none() && self.e.heap_marker.as_deref().is_some_and(is_refusal)
    }
    /// The counters of the heap and its budget, if both are known.
    pub(super) fn heap(&self) -> Option<(HeapReport, Bytes)> {
        Some((self.e.heap?, self.e.heap_budget?))
    }
    /// The memory that the limit leaves outside the heap budget.
    pub(super) fn overhead(&self) -> Option<Bytes> {
        self.e
            .heap_budget
            .map(|budget| self.limit.saturating_sub(budget))
    }
    /// True when it was killed at its limit and its runtime reported nothing.
    pub(super) fn is_kill(&self) -> bool {
        self.marked.is_none() && self.e.exit_code.is_none()
    }
    /// True when the kill was for memory outside the heap.
    pub(super) fn beside_heap(&self) -> bool {
        self.is_kill() && self.verdict.dimension == Some(Dimension::Overhead)
    }
    /// The size that would have sufficed without `part`, for the use so far.
    pub(super) fn without(&self, part: Bytes) -> Bytes {
        self.seen
            .saturating_sub(part)
            .max(Bytes::from_mib(1))
            .round_up(Bytes::from_mib(1))
    }
}

/// A row without a size that would have fitted and without a trade-off.
pub(super) fn row(
    name: SubCause,
    certainty: Certainty,
    cause: impl Into<String>,
    fix: impl Into<String>,
) -> Diagnosis {
    Diagnosis::new(name, certainty, cause, fix)
}

/// Trade-off of lower concurrency.
pub(super) const LESS_AT_ONCE: &str = "less concurrency takes longer";

/// Trade-off of more overhead.
pub(super) const MORE_OVERHEAD: &str = "more overhead is memory that no other task can have";

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

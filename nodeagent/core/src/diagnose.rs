//! Causes and cures of a verdict: a table of rules over the evidence.
//!
//! Rows are sorted by certainty, and by the price of the cure among equals. The author of the
//! verdict calls it. It never changes the verdict, and returns nothing without evidence. The
//! numbers of a killed process are lower bounds of its need, and the text says so.
//!
//! Cures in the order of their price: other flags, less concurrency, overhead, heap, a bigger
//! container.

mod case;
mod heap;
mod limits;
mod other_causes;
mod overhead;
mod runtime_message;

use headroom_types::{Certainty, Diagnosis, Evidence, ExitReason};

use crate::classify::Verdict;
use case::DiagnosisInput;

pub use case::next_size;

/// One row of the table: nothing, or a cause with its cure.
type DiagnosisRule = fn(&DiagnosisInput<'_>) -> Option<Diagnosis>;

/// Rules for the memory that filled the limit of its own memory failure, in the order of the price
/// of their cures.
const TAKEN: [DiagnosisRule; 19] = [
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
const SHORT: [DiagnosisRule; 5] = [
    heap::idle,
    overhead::unknown,
    heap::bound,
    heap::full,
    other_causes::own_data,
];

/// Causes and cures for a verdict; empty for ends without a memory failure and without evidence.
pub fn diagnose(e: &Evidence, v: &Verdict) -> Vec<Diagnosis> {
    let case = DiagnosisInput::new(e, v);
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

#[cfg(test)]
mod tests;

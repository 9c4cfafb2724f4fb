//! Rules for the memory that the runtime message names.

use headroom_types::{Certainty, Diagnosis, SubCause};

use super::case::{DiagnosisInput, LESS_AT_ONCE, MORE_OVERHEAD, row};
use crate::classify::MarkedMemory;

fn says(c: &DiagnosisInput<'_>, words: &str) -> bool {
    c.marked == Some(MarkedMemory::Beside) && c.message_contains(words)
}

pub(super) fn direct(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let fix = "fewer tasks or fetches at once; or raise -XX:MaxDirectMemorySize and the overhead by the same amount";
    says(c, "direct buffer").then(|| {
        row(
            SubCause::DirectBuffers,
            Certainty::Certain,
            "direct (NIO) buffers reached the runtime's own maximum",
            fix,
        )
        .with_trade_off(format!("{LESS_AT_ONCE}; {MORE_OVERHEAD}"))
    })
}

pub(super) fn metaspace(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !says(c, "metaspace") && !says(c, "class space") {
        return None;
    }
    let used =
        c.e.heap
            .and_then(|h| h.metaspace)
            .map(|m| format!(" ({m} in use)"))
            .unwrap_or_default();
    let fix = "load fewer classes or generate less code; or raise -XX:MaxMetaspaceSize and the overhead by the same amount";
    let cause = format!("class metadata reached its maximum{used}");
    Some(row(SubCause::Metaspace, Certainty::Certain, cause, fix).with_trade_off(MORE_OVERHEAD))
}

pub(super) fn code(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !says(c, "codecache") {
        return None;
    }
    let fix = "raise -XX:ReservedCodeCacheSize and the overhead by the same amount; or generate less code";
    let cause = "compiled code reached its maximum: the code cache has no free memory";
    Some(row(SubCause::CodeCache, Certainty::Certain, cause, fix).with_trade_off(MORE_OVERHEAD))
}

pub(super) fn threads(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !says(c, "native thread") {
        return None;
    }
    let many =
        c.e.heap
            .and_then(|h| h.threads)
            .map(|n| format!(" in addition to its {n}"))
            .unwrap_or_default();
    let fix = "smaller thread pools or fewer tasks at once; or raise max_processes of the launch";
    let cause = format!("the runtime could not create another thread{many}");
    Some(row(SubCause::ThreadLimit, Certainty::Certain, cause, fix).with_trade_off(LESS_AT_ONCE))
}

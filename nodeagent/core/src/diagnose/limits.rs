//! Rules for limits that the program sets and for requests beyond any size. A larger container does
//! not help.

use headroom_types::{Bytes, Certainty, Diagnosis, OwnLimit, OwnLimitKind, SubCause};

use super::case::{DiagnosisInput, row};
use crate::classify::{MarkedMemory, is_refused};
use crate::marker;

/// A maximum below this share of the budget does not come from the budget. In percent.
const BELOW: u64 = 95;
/// A maximum that a runtime reports omits parts of the heap. It counts only below this share of the
/// budget. In percent.
const WELL_BELOW: u64 = 80;

/// The program was refused memory far below the limit of its container.
pub(super) fn refused(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !is_refused(c.e) {
        return None;
    }
    let asked = c.e.heap_marker.as_deref().and_then(marker::requested_bytes);
    match c.e.own_limits.iter().find(|limit| limit.kind.is_rlimit()) {
        Some(limit) => Some(rlimit(c, *limit, asked)),
        None => Some(impossible(c, asked)),
    }
}

fn rlimit(c: &DiagnosisInput<'_>, limit: OwnLimit, asked: Option<Bytes>) -> Diagnosis {
    let wanted = asked
        .map(|asked| format!(" for a request of {asked}"))
        .unwrap_or_default();
    let cause = format!(
        "the program's own limit {limit} refused memory{wanted}, with {} of {} in use",
        c.seen, c.limit
    );
    let fix = format!(
        "remove or raise {} in the command or script; the container allows {}, and a larger container does not help",
        limit.kind.setting(),
        c.limit
    );
    row(SubCause::OwnLimit, Certainty::Certain, cause, fix)
}

fn impossible(c: &DiagnosisInput<'_>, asked: Option<Bytes>) -> Diagnosis {
    let request = asked.map_or_else(
        || "one request".to_owned(),
        |asked| format!("one request for {asked}"),
    );
    let cause = format!(
        "{request} was refused at once, with {} of {} in use: the host has less memory",
        c.seen, c.limit
    );
    let fix = "request less at once: smaller arrays, blocks or partitions; a larger container does not help";
    let certainty = if asked.is_some() {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    Diagnosis {
        asked,
        ..row(SubCause::ImpossibleRequest, certainty, cause, fix)
    }
}

/// A Java array cannot have that many elements with any heap size.
pub(super) fn array_size(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !c.message_contains("requested array size exceeds vm limit") {
        return None;
    }
    let cause = "the program requested an array with more elements than a JVM allows";
    Some(row(
        SubCause::ImpossibleRequest,
        Certainty::Certain,
        cause,
        "use several smaller arrays; a larger heap does not help",
    ))
}

/// The heap is full at a maximum that was set by hand below the budget.
pub(super) fn heap(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let budget = c.e.heap_budget?;
    if !super::heap::is_heap(c) {
        return None;
    }
    let flag =
        c.e.own_limits
            .iter()
            .find(|limit| matches!(limit.kind, OwnLimitKind::JvmHeap | OwnLimitKind::NodeHeap));
    let by_flag = flag.filter(|limit| limit.value < budget.mul_ratio(BELOW, 100));
    let reported =
        c.e.heap
            .map(|heap| heap.max)
            .filter(|max| !max.is_zero() && *max < budget.mul_ratio(WELL_BELOW, 100));
    let (cause, setting, certainty) = match (by_flag, reported) {
        (Some(limit), _) => (
            format!("the heap is full at {limit}, below its budget of {budget}"),
            limit.kind.setting(),
            Certainty::Certain,
        ),
        (None, Some(max)) if flag.is_none() => (
            format!("the heap is full at a maximum of {max}, below its budget of {budget}"),
            "the maximum heap",
            Certainty::Likely,
        ),
        (None, _) => return None,
    };
    let fix = format!(
        "remove {setting} from the command, or write {{heap}} there; the budget is passed on, and a larger one does not help"
    );
    Some(row(SubCause::OwnLimit, certainty, cause, fix))
}

/// A kind of memory outside the heap is full at a maximum that was set by hand.
pub(super) fn beside_heap(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if c.marked != Some(MarkedMemory::Beside) {
        return None;
    }
    let kind = if c.message_contains("direct buffer") {
        OwnLimitKind::DirectMemory
    } else if c.message_contains("metaspace") {
        OwnLimitKind::Metaspace
    } else if c.message_contains("codecache") {
        OwnLimitKind::CodeCache
    } else {
        return None;
    };
    let limit = c.e.own_limits.iter().find(|limit| limit.kind == kind)?;
    let cause = format!("the program's own limit {limit} is reached");
    let fix = format!(
        "remove or raise {} in the command, and raise the overhead by the same amount; more overhead alone does not help",
        kind.setting()
    );
    Some(row(SubCause::OwnLimit, Certainty::Certain, cause, fix))
}

//! Maps evidence to one closed reason. The table never decides by exit code 137 alone.
//!
//! The observer of the end calls it: the node agent for a container, an executor for a task. It
//! does no input or output. A value that could not be measured is absent from the evidence and does
//! not count.
//!
//! ```text
//!  order  evidence                                             reason
//!  1      our enforcer ended it (over its limit, or stalled    own limit / stalled_at_limit
//!         at it) before it could exit with 0
//!  2      a stop was ordered before any counter moved          stopped / preempted / timeout /
//!                                                              node_lost
//!  3      exit 0                                               exit(0)
//!  4      kills in its group, and its own limit was hit        own limit
//!  5      kills in its group, and no limit within it was hit   ancestor_oom / node_oom
//!  6      its runtime reported full memory: by a marker,       heap_oom / overhead_oom, by the
//!         else by a declared exit code (not if memory was      message
//!         refused far below the limit; then 8 or 9)
//!  7      SIGKILL, and no counter moved                        killed_externally
//!  8      any other signal                                     signal(n)
//!  9      any other code                                       exit(n)
//!
//!  own limit:  heap budget declared, heap at or beyond it     heap_oom       heap
//!              heap budget declared, heap within it           overhead_oom   overhead
//!              no managed heap, a container                   overhead_oom   native
//!              no managed heap, a task                        task_oom       native
//! ```
//!
//! The kernel shows which limit was hit. v2: `oom` of `memory.events.local` moves at the level that
//! owns the limit, and the kills are counted in the groups of the victims. v1: `failcnt` moves at
//! the level that owns the limit. It also moves when reclaim helped, so the peak must have reached
//! the limit too.

use headroom_types::exit::{HeapReport, OuterLevel};
use headroom_types::{Bytes, Dimension, EnforcerKind, Evidence, ExitReason, StopCause};

/// The object whose end is classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictScope {
    /// A container, with everything in it.
    Container,
    /// One task, in its own cgroup or in that of its executor.
    Task,
}

/// The reason and, for memory failures of its own, the exhausted dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The closed reason.
    pub reason: ExitReason,
    /// The exhausted dimension; `None` for reasons without one.
    pub dimension: Option<Dimension>,
}

impl Verdict {
    fn plain(reason: ExitReason) -> Self {
        Verdict {
            reason,
            dimension: None,
        }
    }
}

const SIGKILL: i32 = 9;
/// A heap that is used to this share of its budget is full. In percent.
const HEAP_FULL: u64 = 95;
/// Below this share of its limit, an allocation was not refused because of the limit. In percent.
const HAS_ROOM: u64 = 75;
/// A task below this share of its own limit did not cause its container's failure. In percent.
const WITHIN_OWN: u64 = 95;
/// v1 charges in batches and fails large pages first, so a peak may stop this far below the limit.
const V1_SLACK: Bytes = Bytes::from_mib(2);

/// Decides the reason of an end. `heap_exit_codes` are exit codes with which the runtime reports a
/// full heap.
pub fn classify(e: &Evidence, scope: VerdictScope, heap_exit_codes: &[i32]) -> Verdict {
    let done_before_our_kill = e.exit_code == Some(0) && ended_by_our_enforcer(e);
    if !done_before_our_kill && let Some(verdict) = asked(e, scope) {
        return verdict;
    }
    if e.exit_code == Some(0) {
        return Verdict::plain(ExitReason::Exit { code: 0 });
    }
    match kernel_kill(e) {
        Some(LimitOwner::Own) => return own_limit(e, scope),
        Some(LimitOwner::Outer) if scope == VerdictScope::Task => return outer_limit_of_task(e),
        Some(LimitOwner::Outer) => return Verdict::plain(ExitReason::AncestorOom),
        Some(LimitOwner::Host) => return Verdict::plain(ExitReason::NodeOom),
        None => {}
    }
    if !is_refused(e)
        && let Some(verdict) = runtime_verdict(e, heap_exit_codes)
    {
        return verdict;
    }
    Verdict::plain(match (e.signal, e.exit_code) {
        (Some(SIGKILL), _) | (None, None) => ExitReason::KilledExternally,
        (Some(signal), _) => ExitReason::Signal { signal },
        (None, Some(code)) => ExitReason::Exit { code },
    })
}

fn ended_by_our_enforcer(e: &Evidence) -> bool {
    match e.stop_asked {
        Some(StopCause::OverLimit | StopCause::Stalled) => true,
        Some(StopCause::Asked | StopCause::Preempted | StopCause::Timeout | StopCause::Fenced)
        | None => false,
    }
}

fn asked(e: &Evidence, scope: VerdictScope) -> Option<Verdict> {
    Some(match e.stop_asked? {
        StopCause::Asked => Verdict::plain(ExitReason::Stopped),
        StopCause::Preempted => Verdict::plain(ExitReason::Preempted),
        StopCause::Timeout => Verdict::plain(ExitReason::Timeout),
        StopCause::Fenced => Verdict::plain(ExitReason::NodeLost),
        StopCause::OverLimit => own_limit(e, scope),
        StopCause::Stalled => Verdict {
            reason: ExitReason::StalledAtLimit,
            dimension: Some(dimension(e)),
        },
    })
}

/// The owner of the limit for which the kernel killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitOwner {
    Own,
    Outer,
    Host,
}

fn kernel_kill(e: &Evidence) -> Option<LimitOwner> {
    if e.own.events.oom_kill == 0 && e.own.events.oom_group_kill == 0 {
        // Without a cgroup of its own there are no counters of its own. The host's counter is the
        // only one.
        let host_only =
            e.enforcer == EnforcerKind::Poll && e.signal == Some(SIGKILL) && host_moved(e);
        return host_only.then_some(LimitOwner::Host);
    }
    if own_limit_hit(e) {
        return Some(LimitOwner::Own);
    }
    // A limit below its own was hit, so one of its tasks was the victim. That does not explain its
    // own end.
    let inner = e.own.events.oom > e.own.local.oom;
    if e.outer.iter().any(|level| level_hit(level, e.enforcer)) {
        return (!inner || e.signal == Some(SIGKILL)).then_some(LimitOwner::Outer);
    }
    if inner {
        return None;
    }
    Some(if host_moved(e) {
        LimitOwner::Host
    } else {
        LimitOwner::Outer
    })
}

fn own_limit_hit(e: &Evidence) -> bool {
    match e.enforcer {
        EnforcerKind::Cgroup2 => e.own.local.oom > 0,
        EnforcerKind::Cgroup1 => e.own.local.max > 0 && reached(e.own.peak, e.own.limit),
        EnforcerKind::Poll => false,
    }
}

fn reached(peak: Option<Bytes>, limit: Option<Bytes>) -> bool {
    let Some(limit) = limit else { return false };
    // A peak that the kernel does not record is no evidence against the kill.
    peak.is_none_or(|peak| peak.saturating_add(V1_SLACK.max(limit.mul_ratio(2, 100))) >= limit)
}

fn is_host(level: &OuterLevel) -> bool {
    level.level == "host"
}

fn level_hit(level: &OuterLevel, enforcer: EnforcerKind) -> bool {
    !is_host(level)
        && match enforcer {
            EnforcerKind::Cgroup2 => level.local.oom > 0,
            EnforcerKind::Cgroup1 => level.local.max > 0,
            EnforcerKind::Poll => false,
        }
}

fn host_moved(e: &Evidence) -> bool {
    e.outer
        .iter()
        .any(|level| is_host(level) && level.local.oom_kill > 0)
}

/// A task died for the limit of its container. It is charged to the task unless the task stayed
/// well below a limit of its own.
fn outer_limit_of_task(e: &Evidence) -> Verdict {
    let containers_own = e
        .outer
        .iter()
        .any(|level| level.level == "container" && level_hit(level, e.enforcer));
    let within = match (e.own.limit, e.own.peak) {
        (Some(limit), Some(peak)) => peak < limit.mul_ratio(WITHIN_OWN, 100),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if !containers_own || within {
        return Verdict::plain(ExitReason::AncestorOom);
    }
    own_limit(e, VerdictScope::Task)
}

fn own_limit(e: &Evidence, scope: VerdictScope) -> Verdict {
    let dimension = dimension(e);
    let reason = match (dimension, scope) {
        (Dimension::Heap, _) => ExitReason::HeapOom,
        (Dimension::Overhead, _) | (Dimension::Native, VerdictScope::Container) => {
            ExitReason::OverheadOom
        }
        (Dimension::Native, VerdictScope::Task) => ExitReason::TaskOom,
    };
    Verdict {
        reason,
        dimension: Some(dimension),
    }
}

fn dimension(e: &Evidence) -> Dimension {
    match e.heap_budget {
        None => Dimension::Native,
        Some(budget) if e.heap.is_some_and(|heap| is_full(&heap, budget)) => Dimension::Heap,
        Some(_) => Dimension::Overhead,
    }
}

/// Committed memory up to the budget is no evidence (`-Xms` = `-Xmx` commits it all at once);
/// beyond the budget it is.
pub(crate) fn is_full(heap: &HeapReport, budget: Bytes) -> bool {
    heap.used >= budget.mul_ratio(HEAP_FULL, 100) || heap.committed > budget
}

/// The kind of memory that a runtime message reports as exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedMemory {
    /// The heap.
    Heap,
    /// Memory outside the heap: direct buffers, class metadata, threads, mappings.
    Beside,
}

/// Reads the line in which a runtime reports full memory. A line with unknown words means the heap.
pub fn marked_memory(line: &str) -> MarkedMemory {
    const BESIDE: [&str; 7] = [
        "direct buffer memory",
        "metaspace",
        "compressed class space",
        "codecache",
        "native thread",
        "map failed",
        "native method",
    ];
    let line = line.to_ascii_lowercase();
    if BESIDE.iter().any(|words| line.contains(words)) {
        MarkedMemory::Beside
    } else {
        MarkedMemory::Heap
    }
}

/// True when the line reports a refused allocation, which is no evidence of a full heap. These are
/// the messages of runtimes whose memory is one quantity, and those of managed runtimes that could
/// not reserve their heap.
pub(crate) fn is_refusal(line: &str) -> bool {
    const ONE_QUANTITY: [&str; 6] = [
        "memoryerror",
        "runtime: out of memory",
        "bad_alloc",
        "memory allocation of",
        "nomemoryerror",
        "you tried to allocate",
    ];
    let line = line.to_ascii_lowercase();
    ONE_QUANTITY.iter().any(|words| line.contains(words)) || is_failed_reservation(&line)
}

/// True for a managed runtime that could not reserve its first addresses. `line` is in lower case.
fn is_failed_reservation(line: &str) -> bool {
    [
        "could not reserve enough space for",
        "failed to reserve virtual memory",
        "native memory allocation (mmap)",
    ]
    .iter()
    .any(|words| line.contains(words))
}

/// True when memory was refused although the container had free memory: by a limit of the program's
/// own, or because the request exceeds any host.
pub(crate) fn is_refused(e: &Evidence) -> bool {
    let Some(line) = e.heap_marker.as_deref().filter(|line| is_refusal(line)) else {
        return false;
    };
    if e.heap_budget.is_some() && !is_failed_reservation(&line.to_ascii_lowercase()) {
        return false;
    }
    let seen = e.own.peak.unwrap_or(e.own.current).max(e.own.current);
    let has_room = e
        .own
        .limit
        .is_some_and(|limit| seen < limit.mul_ratio(HAS_ROOM, 100));
    has_room || e.own_limits.iter().any(|limit| limit.kind.is_rlimit())
}

fn runtime_verdict(e: &Evidence, heap_exit_codes: &[i32]) -> Option<Verdict> {
    let declared = e
        .exit_code
        .is_some_and(|code| heap_exit_codes.contains(&code));
    let kind = match &e.heap_marker {
        Some(line) => marked_memory(line),
        None if declared => MarkedMemory::Heap,
        None => return None,
    };
    let managed = e.heap_budget.is_some();
    Some(match kind {
        MarkedMemory::Heap => Verdict {
            reason: ExitReason::HeapOom,
            dimension: Some(if managed {
                Dimension::Heap
            } else {
                Dimension::Native
            }),
        },
        MarkedMemory::Beside => Verdict {
            reason: ExitReason::OverheadOom,
            dimension: Some(if managed {
                Dimension::Overhead
            } else {
                Dimension::Native
            }),
        },
    })
}

#[cfg(test)]
mod tests;

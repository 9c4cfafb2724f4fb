//! Classification of an end for the policy: from the closed reason of a report to the quantity that
//! must grow.

use headroom_config::{MemoryQuantities, TaskRuntime};
use headroom_types::exit::MemorySample;
use headroom_types::{Bytes, Dimension, Evidence, ExitCharge, ExitReason, Profile};

/// The class of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEndClass {
    /// The task succeeded.
    Success,
    /// The task's own failure, not related to memory.
    Plain,
    /// Not caused by the task.
    Transient,
    /// The platform preempted its container, or drained its node.
    Taken,
    /// The task was killed for a limit around several containers, or for the memory of the host.
    Collateral,
    /// The task stayed within its own size and was killed for its executor's limit.
    Bystander,
    /// The task's own memory failure, according to its report.
    Memory(MemoryFailure),
}

/// A memory failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFailure {
    /// The quantity that ran out.
    pub dimension: Dimension,
    /// Measured off-heap memory; a lower bound. Bytes.
    pub off_heap: Bytes,
    /// Heap in use as the runtime reported it; `None` without such a report. Bytes.
    pub live: Option<Bytes>,
    /// Page cache explains the full limit, so the same size may be enough.
    pub spike: bool,
}

/// The facts of an end that determine its class.
#[derive(Clone, Copy, Debug)]
pub struct AttemptEndFacts<'a> {
    /// The closed reason.
    pub reason: ExitReason,
    /// The quantity that ran out, as the reporter determined it.
    pub dimension: Option<Dimension>,
    /// The evidence of the report, if there was a report.
    pub evidence: Option<&'a Evidence>,
    /// Memory samples from the start to the end.
    pub timeline: &'a [MemorySample],
    /// Size of the attempt.
    pub profile: &'a Profile,
    /// The manager of its memory.
    pub runtime: TaskRuntime,
}

/// Returns the class of an end.
pub fn classify(facts: &AttemptEndFacts<'_>) -> AttemptEndClass {
    match facts.reason.charge() {
        ExitCharge::Success => AttemptEndClass::Success,
        ExitCharge::Plain => AttemptEndClass::Plain,
        ExitCharge::Free
            if facts.reason == ExitReason::AncestorOom && hit_by_container(facts.evidence) =>
        {
            AttemptEndClass::Bystander
        }
        ExitCharge::Free
            if facts.reason == ExitReason::LaunchFailed && program_is_wrong(facts.evidence) =>
        {
            AttemptEndClass::Plain
        }
        ExitCharge::Free if is_outer(facts.reason) => AttemptEndClass::Collateral,
        ExitCharge::Free => AttemptEndClass::Transient,
        ExitCharge::Memory => AttemptEndClass::Memory(failure(facts)),
    }
}

/// The class of a container's end, for its tasks without reports of their own.
pub fn class_of_container(reason: ExitReason) -> AttemptEndClass {
    if is_outer(reason) {
        AttemptEndClass::Collateral
    } else {
        AttemptEndClass::Transient
    }
}

/// True when memory outside of the container ran out.
fn is_outer(reason: ExitReason) -> bool {
    match reason {
        ExitReason::AncestorOom | ExitReason::NodeOom => true,
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::StalledAtLimit
        | ExitReason::KilledExternally
        | ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost
        | ExitReason::LaunchFailed
        | ExitReason::Exit { .. }
        | ExitReason::Signal { .. } => false,
    }
}

/// True when the program does not exist or cannot be executed. Such a failure comes from the task's
/// definition, not from its node.
fn program_is_wrong(evidence: Option<&Evidence>) -> bool {
    evidence.is_some_and(|e| e.exit_code.is_some())
}

/// True when the reached outer limit is that of the task's own executor, so that another task is
/// the cause.
fn hit_by_container(evidence: Option<&Evidence>) -> bool {
    evidence.is_some_and(|e| {
        e.outer
            .iter()
            .any(|o| o.level == "container" && (o.local.oom > 0 || o.local.max > 0))
    })
}

fn failure(facts: &AttemptEndFacts<'_>) -> MemoryFailure {
    let live = facts.evidence.and_then(|e| e.heap).map(|heap| heap.used);
    MemoryFailure {
        dimension: dimension(facts),
        off_heap: off_heap(facts),
        live,
        spike: spike(facts),
    }
}

/// The quantity that ran out. A program without a managed heap has only one, independent of
/// the dimension that the reporter named.
fn dimension(facts: &AttemptEndFacts<'_>) -> Dimension {
    match facts.runtime.memory() {
        MemoryQuantities::One => Dimension::Native,
        MemoryQuantities::HeapAndOverhead => match (facts.dimension, facts.reason) {
            (Some(Dimension::Heap), _) | (None, ExitReason::HeapOom) => Dimension::Heap,
            (Some(Dimension::Overhead), _) => Dimension::Overhead,
            (Some(Dimension::Native) | None, _) if heap_is_full(facts) => Dimension::Heap,
            (Some(Dimension::Native) | None, _) => Dimension::Overhead,
        },
    }
}

fn heap_is_full(facts: &AttemptEndFacts<'_>) -> bool {
    let heap = facts.evidence.and_then(|e| e.heap);
    heap.is_some_and(|h| h.used.mul_ratio(100, 95) >= facts.profile.heap)
}

/// The largest charged memory beyond the committed heap.
fn off_heap(facts: &AttemptEndFacts<'_>) -> Bytes {
    let peak = facts
        .evidence
        .and_then(|e| e.own.peak)
        .unwrap_or_else(|| facts.profile.memory());
    match facts.evidence.and_then(|e| e.heap) {
        Some(heap) => peak.saturating_sub(heap.committed.min(facts.profile.heap)),
        None => peak.saturating_sub(facts.profile.heap),
    }
}

/// True when the kernel killed the task at its own limit, and page cache explains the kill. The
/// last sample must show a full limit with a large part of page cache. Cache stays charged after
/// the kill while the program's own memory is gone, so the reading after the kill must agree.
/// Failures that a runtime reports of its own heap are unrelated to cache.
fn spike(facts: &AttemptEndFacts<'_>) -> bool {
    let by_kernel = matches!(facts.reason, ExitReason::TaskOom | ExitReason::OverheadOom);
    let (Some(evidence), Some(last)) = (facts.evidence, facts.timeline.last()) else {
        return false;
    };
    let limit = evidence.own.limit.unwrap_or_else(|| facts.profile.memory());
    let tmpfs = evidence.own.stat.shmem.unwrap_or_default();
    let share = limit.mul_ratio(15, 100);
    let cached = |file: Option<Bytes>| file.is_some_and(|f| f.saturating_sub(tmpfs) >= share);
    let full = last.current >= limit.mul_ratio(95, 100);
    let room_but_for_cache = last
        .anon
        .is_some_and(|anon| anon < limit.mul_ratio(85, 100));
    by_kernel
        && !limit.is_zero()
        && full
        && room_but_for_cache
        && cached(last.file)
        && cached(evidence.own.stat.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::{HeapReport, MemoryEvents, OuterLevel};
    use headroom_types::{Cpus, EnforcerKind};

    fn profile() -> Profile {
        Profile {
            heap: Bytes::from_mib(64),
            overhead: Bytes::from_mib(36),
            cpus: Cpus::from_cores(1),
        }
    }
    fn evidence() -> Evidence {
        let mut e = Evidence::empty(EnforcerKind::Cgroup2);
        (e.own.limit, e.own.peak) = (Some(Bytes::from_mib(100)), Some(Bytes::from_mib(100)));
        e
    }
    fn class(
        reason: ExitReason,
        dimension: Option<Dimension>,
        runtime: TaskRuntime,
        e: &Evidence,
        timeline: &[MemorySample],
    ) -> AttemptEndClass {
        classify(&AttemptEndFacts {
            reason,
            dimension,
            evidence: Some(e),
            timeline,
            profile: &profile(),
            runtime,
        })
    }
    fn failed(class: AttemptEndClass) -> MemoryFailure {
        match class {
            AttemptEndClass::Memory(failure) => failure,
            other @ (AttemptEndClass::Success
            | AttemptEndClass::Plain
            | AttemptEndClass::Transient
            | AttemptEndClass::Taken
            | AttemptEndClass::Collateral
            | AttemptEndClass::Bystander) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn the_reported_dimension_counts_unless_the_runtime_is_native() {
        let e = evidence();
        let of = |reason, dimension, runtime| {
            failed(class(reason, dimension, runtime, &e, &[])).dimension
        };
        assert_eq!(
            of(
                ExitReason::HeapOom,
                Some(Dimension::Heap),
                TaskRuntime::Native
            ),
            Dimension::Native
        );
        assert_eq!(
            of(ExitReason::HeapOom, None, TaskRuntime::Jvm),
            Dimension::Heap
        );
        assert_eq!(
            of(
                ExitReason::OverheadOom,
                Some(Dimension::Overhead),
                TaskRuntime::Jvm
            ),
            Dimension::Overhead
        );
        assert_eq!(
            of(
                ExitReason::TaskOom,
                Some(Dimension::Native),
                TaskRuntime::Jvm
            ),
            Dimension::Overhead,
            "no evidence of a full heap"
        );
    }

    #[test]
    fn a_measured_full_heap_makes_a_kernel_kill_a_matter_of_the_heap() {
        let mut e = evidence();
        let heap = Bytes::from_mib(63);
        e.heap = Some(HeapReport {
            used: heap,
            committed: heap,
            max: Bytes::from_mib(64),
            ..HeapReport::default()
        });
        let failure = failed(class(ExitReason::TaskOom, None, TaskRuntime::Jvm, &e, &[]));
        assert_eq!(
            (failure.dimension, failure.off_heap),
            (Dimension::Heap, Bytes::from_mib(37))
        );
    }

    #[test]
    fn a_kill_for_the_limit_of_the_executor_makes_a_bystander() {
        let mut e = evidence();
        let hit = MemoryEvents {
            oom: 1,
            ..MemoryEvents::default()
        };
        e.outer = vec![OuterLevel::counted("container", None, hit)];
        assert_eq!(
            class(ExitReason::AncestorOom, None, TaskRuntime::Native, &e, &[]),
            AttemptEndClass::Bystander
        );
        e.outer[0].level = "containers".into();
        assert_eq!(
            class(ExitReason::AncestorOom, None, TaskRuntime::Native, &e, &[]),
            AttemptEndClass::Collateral
        );
        assert_eq!(
            class(ExitReason::NodeOom, None, TaskRuntime::Native, &e, &[]),
            AttemptEndClass::Collateral
        );
    }

    #[test]
    fn a_missing_program_is_a_failure_of_the_task() {
        let mut e = evidence();
        assert_eq!(
            class(ExitReason::LaunchFailed, None, TaskRuntime::Native, &e, &[]),
            AttemptEndClass::Transient,
            "no slot, no cgroup"
        );
        e.exit_code = Some(127);
        assert_eq!(
            class(ExitReason::LaunchFailed, None, TaskRuntime::Native, &e, &[]),
            AttemptEndClass::Plain
        );
    }

    #[test]
    fn only_a_kernel_kill_at_a_limit_full_of_cache_is_a_spike() {
        let mut e = evidence();
        e.own.stat.file = Some(Bytes::from_mib(30));
        let sample = |current, anon, file| MemorySample {
            at_ms: 0,
            current: Bytes::from_mib(current),
            anon: Some(Bytes::from_mib(anon)),
            file: Some(Bytes::from_mib(file)),
            heap: None,
            limit: None,
            mark: None,
        };
        let spike = |reason, e: &Evidence, s| {
            failed(class(reason, None, TaskRuntime::Native, e, &[s])).spike
        };
        assert!(spike(ExitReason::TaskOom, &e, sample(99, 65, 32)));
        assert!(
            !spike(ExitReason::HeapOom, &e, sample(99, 65, 32)),
            "the runtime reported it, so cache is not the cause"
        );
        assert!(
            !spike(ExitReason::TaskOom, &e, sample(60, 25, 32)),
            "the last sample was long before the kill"
        );
        assert!(!spike(ExitReason::TaskOom, &e, sample(99, 90, 8)));
        e.own.stat.shmem = Some(Bytes::from_mib(30));
        assert!(
            !spike(ExitReason::TaskOom, &e, sample(99, 65, 32)),
            "tmpfs is no cache: it stays"
        );
    }
}

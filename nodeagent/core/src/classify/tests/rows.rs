//! The table of ends and their verdicts, with builders of evidence.

use headroom_types::exit::{CgroupStats, HeapReport, MemoryEvents, OuterLevel};
use headroom_types::{Bytes, Dimension, EnforcerKind, Evidence, ExitReason, StopCause};

use crate::classify::VerdictScope;

fn v2() -> Evidence {
    Evidence::empty(EnforcerKind::Cgroup2)
}

fn v1() -> Evidence {
    Evidence::empty(EnforcerKind::Cgroup1)
}

pub(super) fn events(max: u64, oom: u64, oom_kill: u64, oom_group_kill: u64) -> MemoryEvents {
    MemoryEvents {
        high: 0,
        max,
        oom,
        oom_kill,
        oom_group_kill,
    }
}

pub(super) fn own(limit: u64, peak: u64, all: MemoryEvents, local: MemoryEvents) -> CgroupStats {
    CgroupStats {
        limit: Some(Bytes::from_mib(limit)),
        peak: Some(Bytes::from_mib(peak)),
        events: all,
        local,
        ..CgroupStats::default()
    }
}

fn killed(mut e: Evidence) -> Evidence {
    e.signal = Some(9);
    e
}

fn code(mut e: Evidence, code: i32) -> Evidence {
    e.exit_code = Some(code);
    e
}

fn asked_for(mut e: Evidence, cause: StopCause) -> Evidence {
    e.stop_asked = Some(cause);
    e
}

fn heap(mut e: Evidence, budget: u64, used: u64) -> Evidence {
    e.heap_budget = Some(Bytes::from_mib(budget));
    e.heap = Some(HeapReport {
        used: Bytes::from_mib(used),
        committed: Bytes::from_mib(used),
        ..HeapReport::default()
    });
    e
}

fn marker(mut e: Evidence, line: &str) -> Evidence {
    e.heap_marker = Some(line.to_owned());
    e
}

fn used(mut e: Evidence, limit: u64, peak: u64) -> Evidence {
    e.own = own(
        limit,
        peak,
        MemoryEvents::default(),
        MemoryEvents::default(),
    );
    e
}

fn outer(mut e: Evidence, level: &str, local: MemoryEvents) -> Evidence {
    e.outer.push(OuterLevel::counted(level, None, local));
    e
}

/// v2: the group's own limit was hit, and the victims were in its `main`.
fn at_own_limit(mut e: Evidence) -> Evidence {
    e.own = own(64, 64, events(40, 1, 2, 1), events(40, 1, 0, 0));
    outer(e, "host", events(0, 0, 2, 0))
}

/// v2: kills are counted here, and no limit within was hit.
fn victim_here(mut e: Evidence, peak: u64) -> Evidence {
    e.own = own(64, peak, events(0, 0, 2, 1), events(0, 0, 0, 0));
    e
}

fn v1_own_limit(mut e: Evidence) -> Evidence {
    e.own = own(64, 64, events(12, 0, 1, 0), events(12, 0, 0, 0));
    e
}

/// One line of the table: an end, and its verdict.
pub(super) struct ClassificationRow {
    pub(super) what: &'static str,
    pub(super) scope: VerdictScope,
    pub(super) evidence: Evidence,
    pub(super) codes: &'static [i32],
    pub(super) reason: ExitReason,
    pub(super) dimension: Option<Dimension>,
}

fn row(
    what: &'static str,
    scope: VerdictScope,
    evidence: Evidence,
    reason: ExitReason,
    dimension: Option<Dimension>,
) -> ClassificationRow {
    ClassificationRow {
        what,
        scope,
        evidence,
        codes: &[],
        reason,
        dimension,
    }
}

/// The whole table.
pub(super) fn all() -> Vec<ClassificationRow> {
    [
        asked_rows(),
        enforcer_rows(),
        own_limit_rows(),
        own_limit_end_rows(),
        outer_rows(),
        outer_end_rows(),
        runtime_rows(),
        marker_rows(),
        refused_rows(),
        plain_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Ends that were ordered for another reason than memory.
fn asked_rows() -> Vec<ClassificationRow> {
    use ExitReason as R;
    use StopCause as S;
    use VerdictScope::{Container as C, Task as T};
    vec![
        row(
            "ordered to stop",
            C,
            asked_for(killed(v2()), S::Asked),
            R::Stopped,
            None,
        ),
        row(
            "ordered to stop, exit 0 by the SIGTERM handler",
            C,
            asked_for(code(v2(), 0), S::Asked),
            R::Stopped,
            None,
        ),
        row(
            "preempted",
            C,
            asked_for(killed(v2()), S::Preempted),
            R::Preempted,
            None,
        ),
        row(
            "the timeout expired",
            T,
            asked_for(killed(v2()), S::Timeout),
            R::Timeout,
            None,
        ),
        row(
            "a stop, then a kill for memory while it ended",
            C,
            asked_for(at_own_limit(killed(v2())), S::Asked),
            R::Stopped,
            None,
        ),
    ]
}

/// Ends that our own enforcer ordered.
fn enforcer_rows() -> Vec<ClassificationRow> {
    use ExitReason as R;
    use StopCause as S;
    use VerdictScope::{Container as C, Task as T};
    vec![
        row(
            "poll enforcer",
            C,
            asked_for(killed(poll()), S::OverLimit),
            R::OverheadOom,
            Some(Dimension::Native),
        ),
        row(
            "poll enforcer, a task",
            T,
            asked_for(killed(poll()), S::OverLimit),
            R::TaskOom,
            Some(Dimension::Native),
        ),
        row(
            "poll enforcer, heap full",
            C,
            asked_for(heap(killed(poll()), 64, 64), S::OverLimit),
            R::HeapOom,
            Some(Dimension::Heap),
        ),
        row(
            "the poll enforcer was too late",
            C,
            asked_for(code(poll(), 0), S::OverLimit),
            R::Exit { code: 0 },
            None,
        ),
        row(
            "stuck at its limit",
            C,
            asked_for(killed(v1()), S::Stalled),
            R::StalledAtLimit,
            Some(Dimension::Native),
        ),
        row(
            "stuck, heap full",
            C,
            asked_for(heap(killed(v2()), 64, 62), S::Stalled),
            R::StalledAtLimit,
            Some(Dimension::Heap),
        ),
        row(
            "stuck, heap within",
            C,
            asked_for(heap(killed(v2()), 64, 20), S::Stalled),
            R::StalledAtLimit,
            Some(Dimension::Overhead),
        ),
    ]
}

fn poll() -> Evidence {
    Evidence::empty(EnforcerKind::Poll)
}

/// Containers at their own limit; the heap decides.
fn own_limit_rows() -> Vec<ClassificationRow> {
    use Dimension as D;
    use ExitReason as R;
    use VerdictScope::Container as C;
    let mut unmeasured = at_own_limit(killed(v2()));
    unmeasured.heap_budget = Some(Bytes::from_mib(48));
    let mut all_committed = heap(at_own_limit(killed(v2())), 48, 10);
    all_committed.heap = all_committed.heap.map(|h| HeapReport {
        committed: Bytes::from_mib(48),
        ..h
    });
    let mut beyond = heap(at_own_limit(killed(v2())), 48, 40);
    beyond.heap = beyond.heap.map(|h| HeapReport {
        committed: Bytes::from_mib(60),
        ..h
    });
    vec![
        row(
            "own limit",
            C,
            at_own_limit(killed(v2())),
            R::OverheadOom,
            Some(D::Native),
        ),
        row(
            "own limit, heap full",
            C,
            heap(at_own_limit(killed(v2())), 48, 47),
            R::HeapOom,
            Some(D::Heap),
        ),
        row(
            "own limit, heap within",
            C,
            heap(at_own_limit(killed(v2())), 48, 20),
            R::OverheadOom,
            Some(D::Overhead),
        ),
        row(
            "own limit, heap committed at once but empty",
            C,
            all_committed,
            R::OverheadOom,
            Some(D::Overhead),
        ),
        row(
            "own limit, heap beyond its budget",
            C,
            beyond,
            R::HeapOom,
            Some(D::Heap),
        ),
        row(
            "own limit, heap not measured",
            C,
            unmeasured,
            R::OverheadOom,
            Some(D::Overhead),
        ),
    ]
}

/// Tasks at their own limit, and ends that are not a kill of the root process.
fn own_limit_end_rows() -> Vec<ClassificationRow> {
    use Dimension as D;
    use ExitReason as R;
    use VerdictScope::{Container as C, Task as T};
    let child_killed_v1 = code(v1_own_limit(v1()), 1);
    let mut v1_page_cache = killed(v1());
    v1_page_cache.own = own(64, 64, events(900, 0, 0, 0), events(900, 0, 0, 0));
    vec![
        row(
            "a task at its own limit",
            T,
            at_own_limit(killed(v2())),
            R::TaskOom,
            Some(D::Native),
        ),
        row(
            "a JVM task at its own limit",
            T,
            heap(at_own_limit(killed(v2())), 48, 9),
            R::OverheadOom,
            Some(D::Overhead),
        ),
        row(
            "a child was killed, the root exited",
            C,
            code(at_own_limit(v2()), 1),
            R::OverheadOom,
            Some(D::Native),
        ),
        row(
            "a shell returns the exit code 137 of its child",
            T,
            code(at_own_limit(v2()), 137),
            R::TaskOom,
            Some(D::Native),
        ),
        row(
            "v1",
            C,
            killed(v1_own_limit(v1())),
            R::OverheadOom,
            Some(D::Native),
        ),
        row(
            "v1, a child was killed",
            C,
            child_killed_v1,
            R::OverheadOom,
            Some(D::Native),
        ),
        row(
            "v1, only page cache hit the limit, then kill -9",
            C,
            v1_page_cache,
            R::KilledExternally,
            None,
        ),
        row(
            "exit 0 although a child was killed",
            C,
            code(at_own_limit(v2()), 0),
            R::Exit { code: 0 },
            None,
        ),
        row(
            "the exit code is unknown, the counters are known",
            C,
            at_own_limit(v2()),
            R::OverheadOom,
            Some(D::Native),
        ),
    ]
}

/// Containers whose processes were killed for a limit above them.
fn outer_rows() -> Vec<ClassificationRow> {
    use ExitReason as R;
    use VerdictScope::Container as C;
    let host = events(0, 0, 2, 0);
    let hit = events(3, 1, 0, 0);
    vec![
        row(
            "the fence",
            C,
            outer(
                outer(victim_here(killed(v2()), 20), "containers", hit),
                "host",
                host,
            ),
            R::AncestorOom,
            None,
        ),
        row(
            "the host",
            C,
            outer(victim_here(killed(v2()), 20), "host", host),
            R::NodeOom,
            None,
        ),
        row(
            "a limit above all containers",
            C,
            outer(
                outer(victim_here(killed(v2()), 20), "above all containers", hit),
                "host",
                host,
            ),
            R::AncestorOom,
            None,
        ),
        row(
            "no limit above was hit, though reclaim worked there",
            C,
            outer(
                outer(
                    victim_here(killed(v2()), 20),
                    "above all containers",
                    events(9, 0, 0, 0),
                ),
                "host",
                host,
            ),
            R::NodeOom,
            None,
        ),
        row(
            "the host, without other evidence",
            C,
            victim_here(killed(v2()), 20),
            R::AncestorOom,
            None,
        ),
        row(
            "the host, without a cgroup",
            C,
            outer(killed(poll()), "host", host),
            R::NodeOom,
            None,
        ),
    ]
}

/// Kills for an outer limit with cgroup v1, beside the container, and of tasks.
fn outer_end_rows() -> Vec<ClassificationRow> {
    use ExitReason as R;
    use VerdictScope::{Container as C, Task as T};
    let host = events(0, 0, 2, 0);
    let hit = events(3, 1, 0, 0);
    let mut v1_victim = killed(v1());
    v1_victim.own = own(64, 20, events(0, 0, 1, 0), events(0, 0, 0, 0));
    let mut task_died_before = code(v2(), 1);
    task_died_before.own = own(64, 50, events(9, 1, 2, 1), events(0, 0, 0, 0));
    let mut no_limit_of_its_own = victim_here(killed(v2()), 60);
    no_limit_of_its_own.own.limit = None;
    vec![
        row(
            "v1, the fence",
            C,
            outer(v1_victim.clone(), "containers", events(4, 0, 0, 0)),
            R::AncestorOom,
            None,
        ),
        row(
            "v1, the host",
            C,
            outer(v1_victim, "host", host),
            R::NodeOom,
            None,
        ),
        row(
            "another process was killed on the host",
            C,
            outer(killed(v2()), "host", host),
            R::KilledExternally,
            None,
        ),
        row(
            "a task was killed before; the executor failed by itself",
            C,
            outer(task_died_before.clone(), "host", host),
            R::Exit { code: 1 },
            None,
        ),
        row(
            "a task well within its own limit",
            T,
            outer(victim_here(killed(v2()), 20), "container", hit),
            R::AncestorOom,
            None,
        ),
        row(
            "a task close to its own limit",
            T,
            outer(victim_here(killed(v2()), 62), "container", hit),
            R::TaskOom,
            Some(Dimension::Native),
        ),
        row(
            "a task without a limit of its own",
            T,
            outer(no_limit_of_its_own, "container", hit),
            R::TaskOom,
            Some(Dimension::Native),
        ),
        row(
            "a task killed for the fence",
            T,
            outer(victim_here(killed(v2()), 62), "containers", hit),
            R::AncestorOom,
            None,
        ),
        row(
            "a task killed for the host",
            T,
            outer(victim_here(killed(v2()), 62), "host", host),
            R::NodeOom,
            None,
        ),
    ]
}

/// A refused allocation is evidence about the limit only where the limit was almost reached.
fn refused_rows() -> Vec<ClassificationRow> {
    use Dimension as D;
    use ExitReason as R;
    use VerdictScope::Task as T;
    vec![
        row(
            "python, full",
            T,
            marker(used(code(v2(), 1), 64, 60), "MemoryError"),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "python, an allocation failed far below the limit",
            T,
            marker(used(code(v2(), 1), 64, 8), "MemoryError"),
            R::Exit { code: 1 },
            None,
        ),
        row(
            "c++, an allocation failed far below the limit",
            T,
            marker(
                used(signal(6), 64, 8),
                "terminate called after throwing an instance of 'std::bad_alloc'",
            ),
            R::Signal { signal: 6 },
            None,
        ),
        row(
            "a JVM that could not reserve its heap",
            T,
            marker(
                heap(used(code(v2(), 1), 64, 8), 32, 0),
                "Could not reserve enough space for 262144KB object heap",
            ),
            R::Exit { code: 1 },
            None,
        ),
    ]
}

/// JVMs that report full memory by a declared exit code or by a marker.
fn runtime_rows() -> Vec<ClassificationRow> {
    use Dimension as D;
    use ExitReason as R;
    use VerdictScope::{Container as C, Task as T};
    let jvm = |c| heap(code(v2(), c), 64, 30);
    let declared = |what, scope, e, reason, d| ClassificationRow {
        codes: &[3, 52],
        ..row(what, scope, e, reason, d)
    };
    let space = "java.lang.OutOfMemoryError: Java heap space";
    let direct = "java.lang.OutOfMemoryError: Direct buffer memory";
    let direct17 = "java.lang.OutOfMemoryError: Cannot reserve 1048576 bytes of direct buffer memory (allocated: 1, limit: 2)";
    vec![
        declared("declared exit code", C, jvm(3), R::HeapOom, Some(D::Heap)),
        declared(
            "declared exit code of a task",
            T,
            jvm(52),
            R::HeapOom,
            Some(D::Heap),
        ),
        declared(
            "declared exit code, no budget",
            C,
            code(v2(), 3),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "exit code 3, not declared",
            C,
            jvm(3),
            R::Exit { code: 3 },
            None,
        ),
        row(
            "java heap space",
            T,
            marker(jvm(1), space),
            R::HeapOom,
            Some(D::Heap),
        ),
        row(
            "gc overhead",
            C,
            marker(
                jvm(1),
                "java.lang.OutOfMemoryError: GC overhead limit exceeded",
            ),
            R::HeapOom,
            Some(D::Heap),
        ),
        row(
            "direct buffers",
            C,
            marker(jvm(1), direct),
            R::OverheadOom,
            Some(D::Overhead),
        ),
        declared(
            "direct buffers take precedence over the code",
            C,
            marker(jvm(3), direct17),
            R::OverheadOom,
            Some(D::Overhead),
        ),
        row(
            "metaspace",
            T,
            marker(jvm(1), "java.lang.OutOfMemoryError: Metaspace"),
            R::OverheadOom,
            Some(D::Overhead),
        ),
    ]
}

/// Markers beside signals, of other runtimes, and without effect.
fn marker_rows() -> Vec<ClassificationRow> {
    use Dimension as D;
    use ExitReason as R;
    use VerdictScope::Container as C;
    let space = "java.lang.OutOfMemoryError: Java heap space";
    let direct = "java.lang.OutOfMemoryError: Direct buffer memory";
    vec![
        row(
            "abort with a marker",
            C,
            marker(signal(6), space),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "kill -9 %p by the JVM itself",
            C,
            marker(
                killed(v2()),
                "Terminating due to java.lang.OutOfMemoryError: Java heap space",
            ),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "python, limit unknown",
            C,
            marker(code(v2(), 1), "MemoryError"),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "node, by its own signal",
            C,
            marker(
                heap(signal(6), 32, 30),
                "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            ),
            R::HeapOom,
            Some(D::Heap),
        ),
        row(
            "a marker with other text",
            C,
            marker(code(v2(), 7), "arena exhausted"),
            R::HeapOom,
            Some(D::Native),
        ),
        row(
            "caught, exit 0",
            C,
            marker(code(v2(), 0), space),
            R::Exit { code: 0 },
            None,
        ),
        row(
            "a kill by the kernel takes precedence over the marker",
            C,
            marker(at_own_limit(killed(v2())), direct),
            R::OverheadOom,
            Some(D::Native),
        ),
    ]
}

fn signal(n: i32) -> Evidence {
    let mut e = v2();
    e.signal = Some(n);
    e
}

fn plain_rows() -> Vec<ClassificationRow> {
    use ExitReason as R;
    use VerdictScope::{Container as C, Task as T};
    vec![
        row("success", C, code(v2(), 0), R::Exit { code: 0 }, None),
        row(
            "137 by itself proves nothing",
            T,
            code(v2(), 137),
            R::Exit { code: 137 },
            None,
        ),
        row("kill -9", C, killed(v2()), R::KilledExternally, None),
        row("kill -9, v1", T, killed(v1()), R::KilledExternally, None),
        row(
            "kill -9, no privileges",
            C,
            killed(poll()),
            R::KilledExternally,
            None,
        ),
        row(
            "segmentation fault",
            C,
            signal(11),
            R::Signal { signal: 11 },
            None,
        ),
        row(
            "SIGTERM from an unknown process",
            C,
            signal(15),
            R::Signal { signal: 15 },
            None,
        ),
        row("no evidence", C, v2(), R::KilledExternally, None),
    ]
}

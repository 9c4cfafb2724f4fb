use super::*;
use crate::classify::{VerdictScope, classify};
use headroom_types::exit::{
    CollectionReport, GarbageCollector, GcCause, HeapReport, LeftoverOwner, MemoryEvents,
    OuterLevel, ProcessMemory, Unattributed, VictimProcess,
};
use headroom_types::{Bytes, EnforcerKind, OwnLimit, OwnLimitKind, SubCause};

mod child_processes;

const MIB: fn(u64) -> Bytes = Bytes::from_mib;

fn killed_at(limit: u64) -> Evidence {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.signal = Some(9);
    e.own.limit = Some(MIB(limit));
    e.own.peak = Some(MIB(limit));
    e.own.local = MemoryEvents {
        max: 9,
        oom: 1,
        ..MemoryEvents::default()
    };
    e.own.events = MemoryEvents {
        max: 9,
        oom: 1,
        oom_kill: 2,
        oom_group_kill: 1,
        ..MemoryEvents::default()
    };
    e
}

fn diagnoses(e: &Evidence, scope: VerdictScope) -> Vec<Diagnosis> {
    diagnose(e, &classify(e, scope, &[3]))
}

fn finds(e: &Evidence, words: &str) -> Diagnosis {
    let all = diagnoses(e, VerdictScope::Container);
    all.iter()
        .find(|d| d.cause.contains(words))
        .cloned()
        .unwrap_or_else(|| panic!("no {words:?} in {all:#?}"))
}

#[test]
fn a_native_program_gets_the_next_size() {
    let mut e = killed_at(64);
    e.own.stat.anon = Some(MIB(62));
    let all = diagnoses(&e, VerdictScope::Task);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(
        all[0].fix.contains("96 MiB") && all[0].certainty == Certainty::Certain,
        "{all:#?}"
    );
}

/// Measured evidence of a Go program that `ulimit -v` limited instead of its cgroup.
#[test]
fn an_allocation_refused_far_below_the_limit_needs_no_larger_container() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup1);
    e.exit_code = Some(2);
    e.own.limit = Some(MIB(256));
    e.own.peak = Some(MIB(70));
    e.heap_marker =
        Some("runtime: out of memory: cannot allocate 4194304-byte block (66912256 in use)".into());
    let rows = diagnoses(&e, VerdictScope::Task);
    assert_eq!(
        (rows.len(), rows[0].name),
        (1, SubCause::ImpossibleRequest),
        "{rows:#?}"
    );
    assert!(
        rows[0].cause.contains("4 MiB") && rows[0].cause.contains("70 MiB of 256 MiB"),
        "{rows:#?}"
    );
    e.own_limits = vec![OwnLimit {
        kind: OwnLimitKind::AddressSpace,
        value: MIB(100),
    }];
    let rows = diagnoses(&e, VerdictScope::Task);
    assert_eq!(
        (rows.len(), rows[0].name, rows[0].certainty),
        (1, SubCause::OwnLimit, Certainty::Certain),
        "{rows:#?}"
    );
    assert!(
        rows[0].fix.contains("ulimit -v") && rows[0].cause.contains("100 MiB"),
        "{rows:#?}"
    );
    e.own_limits.clear();
    e.own.peak = Some(MIB(250));
    assert!(
        diagnoses(&e, VerdictScope::Task)[0]
            .fix
            .contains("next size"),
        "the memory is full"
    );
}

#[test]
fn a_heap_maximum_below_the_budget_is_the_own_limit() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup1);
    (e.exit_code, e.heap_budget, e.own.limit, e.own.peak) =
        (Some(3), Some(MIB(128)), Some(MIB(256)), Some(MIB(90)));
    e.heap_marker = Some("Terminating due to java.lang.OutOfMemoryError: Java heap space".into());
    e.heap = Some(HeapReport {
        used: MIB(31),
        committed: MIB(32),
        max: MIB(32),
        ..HeapReport::default()
    });
    let first = |e: &Evidence| {
        diagnoses(e, VerdictScope::Task)
            .first()
            .cloned()
            .expect("a row")
    };
    assert_eq!(
        (first(&e).name, first(&e).certainty),
        (SubCause::OwnLimit, Certainty::Likely),
        "no flag was found"
    );
    e.own_limits = vec![OwnLimit {
        kind: OwnLimitKind::JvmHeap,
        value: MIB(32),
    }];
    assert_eq!(
        (first(&e).name, first(&e).certainty),
        (SubCause::OwnLimit, Certainty::Certain)
    );
    assert!(
        first(&e).cause.contains("-Xmx = 32 MiB") && first(&e).fix.contains("remove -Xmx"),
        "{:?}",
        first(&e)
    );
    e.own_limits[0].value = MIB(128);
    e.heap = Some(HeapReport {
        used: MIB(127),
        committed: MIB(128),
        max: MIB(124),
        ..HeapReport::default()
    });
    assert_ne!(
        first(&e).name,
        SubCause::OwnLimit,
        "the maximum is the budget"
    );
}

#[test]
fn a_manual_maximum_outside_the_heap_is_the_own_limit() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup1);
    (e.exit_code, e.heap_budget, e.own.limit, e.own.peak) =
        (Some(1), Some(MIB(64)), Some(MIB(256)), Some(MIB(90)));
    e.heap_marker =
        Some("java.lang.OutOfMemoryError: Cannot reserve 99 bytes of direct buffer memory".into());
    assert_eq!(
        diagnoses(&e, VerdictScope::Task)[0].name,
        SubCause::DirectBuffers,
        "the cap follows the overhead"
    );
    e.own_limits = vec![OwnLimit {
        kind: OwnLimitKind::DirectMemory,
        value: MIB(24),
    }];
    assert_eq!(
        diagnoses(&e, VerdictScope::Task)[0].name,
        SubCause::OwnLimit
    );
}

#[test]
fn tmpfs_is_named_before_a_bigger_container() {
    let mut e = killed_at(64);
    e.own.stat.shmem = Some(MIB(50));
    e.own.stat.file = Some(MIB(50));
    let all = diagnoses(&e, VerdictScope::Container);
    assert!(
        all[0].cause.contains("tmpfs") && all[0].certainty == Certainty::Certain,
        "{all:#?}"
    );
    assert!(
        !all.iter().any(|d| d.cause.contains("page cache")),
        "tmpfs is not page cache"
    );
}

#[test]
fn an_idle_heap_gives_memory_to_the_overhead() {
    let mut e = killed_at(128);
    e.heap_budget = Some(MIB(96));
    e.heap = Some(HeapReport {
        used: MIB(20),
        committed: MIB(30),
        old_used: Some(MIB(10)),
        ..HeapReport::default()
    });
    let idle = finds(&e, "the heap uses 10 MiB of its 96 MiB");
    assert_eq!(
        (idle.name, idle.would_fit),
        (SubCause::HeapIdle, Some(MIB(114))),
        "{idle:#?}"
    );
    let beside = finds(&e, "outside the heap");
    assert!(
        beside.cause.starts_with("98 MiB")
            && beside.fix.contains("overhead 152 MiB instead of 32 MiB"),
        "{beside:#?}"
    );
}

#[test]
fn live_data_needs_a_larger_heap_and_a_large_array_does_not() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(3);
    e.heap_budget = Some(MIB(64));
    let heap = |used, old| {
        Some(HeapReport {
            used: MIB(used),
            max: MIB(64),
            old_used: Some(MIB(old)),
            ..HeapReport::default()
        })
    };
    e.heap = heap(62, 42);
    let full = finds(&e, "is full: 62 MiB in use, 42 MiB of it long-lived");
    assert!(
        full.fix.contains("heap 96 MiB") && full.certainty == Certainty::Certain,
        "{full:#?}"
    );
    e.heap = heap(30, 20);
    assert!(
        finds(&e, "a very large allocation")
            .fix
            .contains("G1HeapRegionSize")
    );
}

#[test]
fn a_runtime_without_its_budget_is_named_first() {
    let mut e = killed_at(128);
    e.heap_budget = Some(MIB(64));
    e.heap = Some(HeapReport {
        used: MIB(92),
        committed: MIB(138),
        max: MIB(300),
        ..HeapReport::default()
    });
    let all = diagnoses(&e, VerdictScope::Container);
    assert!(
        all[0].cause.contains("grow to 300 MiB") && all[0].fix.contains("-Xmx65536k"),
        "{all:#?}"
    );
}

#[test]
fn the_message_of_the_runtime_decides() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(1);
    e.heap_budget = Some(MIB(64));
    for (line, words) in [
        (
            "java.lang.OutOfMemoryError: Direct buffer memory",
            "direct (NIO) buffers",
        ),
        ("java.lang.OutOfMemoryError: Metaspace", "class metadata"),
        (
            "java.lang.VirtualMachineError: Out of space in CodeCache for adapters",
            "compiled code",
        ),
        (
            "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
            "another thread",
        ),
    ] {
        e.heap_marker = Some(line.into());
        assert_eq!(finds(&e, words).certainty, Certainty::Certain);
    }
}

#[test]
fn threads_children_cache_sockets_and_kernel_memory_are_diagnosed() {
    let mut e = killed_at(256);
    e.own.stat.kernel_stack = Some(MIB(16));
    assert!(finds(&e, "threads").cause.contains("1024"));
    let mut e = killed_at(64);
    let child = |pid| VictimProcess {
        pid,
        name: "worker".into(),
        rss: MIB(12),
    };
    e.victims = vec![child(1), child(2), child(3)];
    assert!(finds(&e, "3 processes").fix.contains("fewer"));
    let mut e = killed_at(64);
    e.own.stat.anon = Some(MIB(10));
    e.own.stat.file = Some(MIB(40));
    assert_eq!(finds(&e, "page cache").certainty, Certainty::Possible);
    let mut e = killed_at(64);
    e.own.stat.sock = Some(MIB(20));
    finds(&e, "sockets");
    let mut e = killed_at(64);
    e.own.stat.kernel = Some(MIB(30));
    finds(&e, "are kernel memory");
}

#[test]
fn external_causes_are_diagnosed() {
    let mut e = killed_at(64);
    e.own.local = MemoryEvents::default();
    e.own.events.oom = 0;
    let local = MemoryEvents {
        oom: 1,
        ..MemoryEvents::default()
    };
    e.outer
        .push(OuterLevel::counted("containers", Some(MIB(512)), local));
    assert!(
        finds(&e, "`containers` (512 MiB)")
            .fix
            .contains("another node")
    );
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(137);
    assert!(
        diagnoses(&e, VerdictScope::Container)[0]
            .cause
            .contains("no memory counter moved")
    );
    e.exit_code = Some(0);
    assert!(diagnoses(&e, VerdictScope::Container).is_empty());
}

/// A diagnosis of a victim of an outer limit names leftovers that fill a tenth of that level;
/// otherwise it names only the level.
#[test]
fn leftovers_that_filled_the_outer_level_are_named() {
    let victim = |left: u64, owners: &[(&str, u64)], hit: u64| {
        let mut e = killed_at(64);
        e.own.local = MemoryEvents::default();
        e.own.events.oom = 0;
        let local = MemoryEvents {
            oom: hit,
            ..MemoryEvents::default()
        };
        let owner = |(name, mib): &(&str, u64)| LeftoverOwner {
            name: (*name).to_owned(),
            memory: MIB(*mib),
        };
        let unattributed = Unattributed {
            memory: MIB(left),
            left_by: owners.iter().map(owner).collect(),
        };
        let level = OuterLevel::counted("containers", Some(MIB(3072)), local);
        e.outer.push(OuterLevel {
            unattributed: Some(unattributed),
            ..level
        });
        diagnoses(&e, VerdictScope::Container)
    };
    let rows = victim(1300, &[("etl.1.e1.c2", 800), ("etl.1.e1.c3", 500)], 1);
    assert_eq!(
        (rows.len(), rows[0].name, rows[0].certainty),
        (1, SubCause::Leftover, Certainty::Certain),
        "{rows:#?}"
    );
    for words in [
        "1.3 GiB",
        "`containers` (3 GiB)",
        "etl.1.e1.c2 (800 MiB), etl.1.e1.c3 (500 MiB)",
    ] {
        assert!(rows[0].cause.contains(words), "{words}: {}", rows[0].cause);
    }
    let little = victim(320, &[], 1);
    assert_eq!(
        (little[0].name, little[0].certainty),
        (SubCause::Leftover, Certainty::Likely)
    );
    assert!(
        little[0].cause.contains("its owner is unknown"),
        "{}",
        little[0].cause
    );
    assert_eq!(
        victim(300, &[], 1)[0].name,
        SubCause::OuterLimit,
        "less than a tenth of the level"
    );
    assert_eq!(
        victim(1300, &[], 0)[0].name,
        SubCause::OuterLimit,
        "the limit of the level was not reached"
    );
}

#[test]
fn a_stall_is_explained_by_refaulted_pages() {
    let mut e = killed_at(256);
    e.stop_asked = Some(headroom_types::StopCause::Stalled);
    e.own.stat.workingset_refault_file = Some(120_000);
    assert!(finds(&e, "120000 pages").fix.contains("384 MiB in all"));
}

/// The memory that filled the limit is the cause; the stall only describes how it ended.
#[test]
fn a_stall_is_named_after_the_memory_that_filled_the_limit() {
    let stalled = |e: Evidence| Evidence {
        stop_asked: Some(headroom_types::StopCause::Stalled),
        ..e
    };
    let mut e = stalled(jvm_with(ProcessMemory {
        other: MIB(180),
        ..ProcessMemory::default()
    }));
    e.own.events = MemoryEvents::default();
    e.own.local = MemoryEvents {
        max: 9000,
        ..MemoryEvents::default()
    };
    e.own.stat.workingset_refault_file = Some(50_000);
    e.heap = e.heap.map(|h| HeapReport {
        metaspace: Some(MIB(140)),
        ..h
    });
    let names = |e: &Evidence| {
        diagnoses(e, VerdictScope::Task)
            .iter()
            .map(|row| (row.name, row.certainty))
            .collect::<Vec<_>>()
    };
    let rows = names(&e);
    assert_eq!(
        classify(&e, VerdictScope::Task, &[3]).reason,
        ExitReason::StalledAtLimit
    );
    assert_eq!(
        rows.first(),
        Some(&(SubCause::Metaspace, Certainty::Certain)),
        "{rows:?}"
    );
    assert!(
        rows.contains(&(SubCause::Thrashing, Certainty::Likely)),
        "the diagnosis still contains the stall: {rows:?}"
    );
    e.own.stat.shmem = Some(MIB(150));
    assert_eq!(
        names(&e).first(),
        Some(&(SubCause::Tmpfs, Certainty::Certain)),
        "the most certain cause is first"
    );
    let mut e = stalled(killed_at(256));
    e.own.stat.workingset_refault_file = Some(50_000);
    e.own.stat.anon = Some(MIB(240));
    assert_eq!(
        names(&e),
        [(SubCause::Thrashing, Certainty::Certain)],
        "the program's own data filled the limit"
    );
}

#[test]
fn every_memory_failure_gets_a_diagnosis() {
    for limit in [16, 64, 4096] {
        for budget in [None, Some(limit / 2)] {
            let mut e = killed_at(limit);
            e.heap_budget = budget.map(MIB);
            assert!(
                !diagnoses(&e, VerdictScope::Container).is_empty(),
                "limit {limit}, budget {budget:?}"
            );
            assert!(
                !diagnoses(&e, VerdictScope::Task).is_empty(),
                "limit {limit}, budget {budget:?}"
            );
        }
    }
}

/// A JVM that the kernel killed at 256 MiB: 64 MiB heap budget, 20 MiB of heap in use, and `inside`
/// in its largest process.
fn jvm_with(inside: ProcessMemory) -> Evidence {
    let mut e = killed_at(256);
    e.heap_budget = Some(MIB(64));
    e.heap = Some(HeapReport {
        used: MIB(20),
        committed: MIB(40),
        max: MIB(64),
        old_used: Some(MIB(50)),
        metaspace: Some(MIB(6)),
        ..HeapReport::default()
    });
    e.own.stat.anon = Some(MIB(250));
    e.inside = Some(inside);
    e
}

fn named(e: &Evidence) -> SubCause {
    diagnoses(e, VerdictScope::Container)
        .first()
        .map_or(SubCause::Unnamed, |row| row.name)
}

#[test]
fn memory_outside_the_heap_is_diagnosed_from_mappings() {
    let other = MIB(50);
    let cases = [
        (
            ProcessMemory {
                other: MIB(240),
                ..ProcessMemory::default()
            },
            SubCause::DirectBuffers,
        ),
        (
            ProcessMemory {
                other,
                stacks: MIB(180),
                stack_count: 700,
                ..ProcessMemory::default()
            },
            SubCause::ThreadStacks,
        ),
        (
            ProcessMemory {
                other,
                arenas: MIB(180),
                arena_count: 16,
                ..ProcessMemory::default()
            },
            SubCause::NativeArenas,
        ),
        (
            ProcessMemory {
                other,
                code: MIB(120),
                ..ProcessMemory::default()
            },
            SubCause::CodeCache,
        ),
    ];
    for (inside, wanted) in cases {
        let e = jvm_with(inside);
        assert_eq!(
            named(&e),
            wanted,
            "{:#?}",
            diagnoses(&e, VerdictScope::Container)
        );
    }
    let mut e = jvm_with(ProcessMemory {
        other: MIB(180),
        ..ProcessMemory::default()
    });
    e.heap = e.heap.map(|h| HeapReport {
        metaspace: Some(MIB(140)),
        ..h
    });
    assert_eq!(
        named(&e),
        SubCause::Metaspace,
        "{:#?}",
        diagnoses(&e, VerdictScope::Container)
    );
}

#[test]
fn an_idle_heap_that_frees_as_much_goes_before_native_blocks() {
    let idle = |other| {
        let mut e = jvm_with(ProcessMemory {
            other,
            ..ProcessMemory::default()
        });
        e.heap_budget = Some(MIB(160));
        e.heap = e.heap.map(|h| HeapReport {
            committed: MIB(160),
            max: MIB(160),
            old_used: Some(MIB(10)),
            ..h
        });
        e
    };
    assert_eq!(
        named(&idle(MIB(240))),
        SubCause::HeapIdle,
        "74 MiB of blocks, 144 MiB freed"
    );
    let mut e = idle(MIB(240));
    e.heap = e.heap.map(|h| HeapReport {
        committed: MIB(40),
        ..h
    });
    assert_eq!(
        named(&e),
        SubCause::DirectBuffers,
        "194 MiB of blocks, 144 MiB freed"
    );
}

#[test]
fn arenas_and_sockets_take_precedence_over_own_data() {
    let mut e = killed_at(64);
    e.own.stat.anon = Some(MIB(62));
    e.inside = Some(ProcessMemory {
        arenas: MIB(55),
        arena_count: 16,
        ..ProcessMemory::default()
    });
    assert_eq!(named(&e), SubCause::NativeArenas);
    assert_eq!(
        diagnoses(&e, VerdictScope::Task)[0].would_fit,
        Some(MIB(16))
    );
    e.inside = Some(ProcessMemory {
        arenas: MIB(4),
        arena_count: 2,
        other: MIB(50),
        ..ProcessMemory::default()
    });
    assert_eq!(named(&e), SubCause::OwnData);
    let mut e = killed_at(64);
    e.own.stat.kernel = Some(MIB(50));
    e.own.stat.anon = Some(MIB(5));
    e.inside = Some(ProcessMemory {
        sockets: 64,
        ..ProcessMemory::default()
    });
    assert_eq!(named(&e), SubCause::Sockets);
}

#[test]
fn a_gc_bound_heap_is_distinguished_from_a_full_heap() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(3);
    e.heap_budget = Some(MIB(64));
    let gc = CollectionReport {
        collections: 400,
        full: 200,
        spent_ms: 9000,
        recent_percent: Some(91),
        ..CollectionReport::default()
    };
    let heap = |gc| HeapReport {
        used: MIB(63),
        max: MIB(64),
        old_used: Some(MIB(60)),
        gc: Some(gc),
        ..HeapReport::default()
    };
    e.heap = Some(heap(gc));
    assert_eq!(named(&e), SubCause::GcBound);
    assert!(
        finds(&e, "91 % of its last seconds")
            .fix
            .contains("heap 96 MiB")
    );
    e.heap = Some(heap(CollectionReport {
        spent_ms: 300,
        ..gc
    }));
    assert_eq!(
        named(&e),
        SubCause::LiveHeap,
        "a short time of collections is not GC-bound"
    );
    e.heap_marker = Some("java.lang.OutOfMemoryError: GC overhead limit exceeded".into());
    assert_eq!(named(&e), SubCause::GcBound);
}

#[test]
fn a_cache_larger_than_the_old_generation_is_diagnosed() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(3);
    e.heap_budget = Some(MIB(64));
    let heap = |cached, old_max| HeapReport {
        used: MIB(62),
        max: MIB(64),
        old_used: Some(MIB(43)),
        old_max,
        cached,
        ..HeapReport::default()
    };
    e.heap = Some(heap(Some(MIB(46)), Some(MIB(43))));
    let row = &diagnoses(&e, VerdictScope::Container)[0];
    assert_eq!(
        (row.name, row.certainty),
        (SubCause::CacheBeyondOld, Certainty::Certain)
    );
    assert!(row.cause.starts_with(
        "46 MiB are kept as a cache; the old generation, where long-lived objects go, holds 43 MiB"
    ));
    assert!(
        row.fix.contains("at most 38") && row.fix.contains("-XX:NewRatio=4"),
        "{row:#?}"
    );
    assert!(row.trade_off.contains("computed again"), "{row:#?}");
    e.heap = Some(heap(Some(MIB(58)), Some(MIB(43))));
    assert!(
        diagnoses(&e, VerdictScope::Container)[0]
            .fix
            .ends_with("heap 96 MiB"),
        "no ratio of this heap has enough memory"
    );
    for (cached, old_max) in [
        (Some(MIB(40)), Some(MIB(43))),
        (Some(MIB(60)), None),
        (None, Some(MIB(43))),
    ] {
        e.heap = Some(heap(cached, old_max));
        assert_eq!(named(&e), SubCause::LiveHeap, "{cached:?} {old_max:?}");
    }
}

#[test]
fn a_fragmented_heap_reported_by_the_collector_is_certain() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(3);
    e.heap_budget = Some(MIB(64));
    let gc = CollectionReport {
        collector: Some(GarbageCollector::G1),
        cause: Some(GcCause::Humongous),
        ..CollectionReport::default()
    };
    e.heap = Some(HeapReport {
        used: MIB(33),
        max: MIB(64),
        gc: Some(gc),
        ..HeapReport::default()
    });
    let row = &diagnoses(&e, VerdictScope::Container)[0];
    assert_eq!(
        (row.name, row.certainty),
        (SubCause::HeapFragmented, Certainty::Certain)
    );
    e.heap = e.heap.map(|h| HeapReport {
        gc: Some(CollectionReport { cause: None, ..gc }),
        ..h
    });
    assert_eq!(
        diagnoses(&e, VerdictScope::Container)[0].certainty,
        Certainty::Likely
    );
}

#[test]
fn the_most_certain_row_is_first() {
    let mut e = killed_at(64);
    e.own.stat.anon = Some(MIB(10));
    e.own.stat.file = Some(MIB(50));
    e.own.stat.shmem = Some(MIB(20));
    let all = diagnoses(&e, VerdictScope::Container);
    assert!(
        all.len() > 1 && all.windows(2).all(|w| w[0].certainty <= w[1].certainty),
        "{all:#?}"
    );
}

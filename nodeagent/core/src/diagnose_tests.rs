use super::*;
use crate::classify::{Scope, classify};
use headroom_types::EnforcerKind;
use headroom_types::exit::{MemoryEvents, Victim};

const MIB: fn(u64) -> Bytes = Bytes::from_mib;

fn killed_at(limit: u64) -> Evidence {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.signal = Some(9);
    e.own.limit = Some(MIB(limit));
    e.own.peak = Some(MIB(limit));
    e.own.local = MemoryEvents { max: 9, oom: 1, ..MemoryEvents::default() };
    e.own.events = MemoryEvents { max: 9, oom: 1, oom_kill: 2, oom_group_kill: 1, ..MemoryEvents::default() };
    e
}

fn told(e: &Evidence, scope: Scope) -> Vec<Diagnosis> {
    diagnose(e, &classify(e, scope, &[3]))
}

fn finds(e: &Evidence, words: &str) -> Diagnosis {
    let all = told(e, Scope::Container);
    all.iter().find(|d| d.cause.contains(words)).cloned().unwrap_or_else(|| panic!("no {words:?} in {all:#?}"))
}

#[test]
fn a_native_program_is_told_a_size() {
    let mut e = killed_at(64);
    e.own.stat.anon = Some(MIB(62));
    let all = told(&e, Scope::Task);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].fix.contains("96 MiB") && all[0].certainty == Certainty::Certain, "{all:#?}");
}

#[test]
fn tmpfs_is_named_before_a_bigger_container() {
    let mut e = killed_at(64);
    e.own.stat.shmem = Some(MIB(50));
    e.own.stat.file = Some(MIB(50));
    let all = told(&e, Scope::Container);
    assert!(all[0].cause.contains("tmpfs") && all[0].certainty == Certainty::Certain, "{all:#?}");
    assert!(!all.iter().any(|d| d.cause.contains("page cache")), "tmpfs is no cache");
}

#[test]
fn an_idle_heap_gives_to_what_is_beside_it() {
    let mut e = killed_at(128);
    e.heap_budget = Some(MIB(96));
    e.heap = Some(HeapFacts { used: MIB(20), committed: MIB(30), old_used: Some(MIB(10)), ..HeapFacts::default() });
    let all = told(&e, Scope::Container);
    assert!(all[0].cause.contains("the heap uses 10 MiB of its 96 MiB"), "{all:#?}");
    let beside = finds(&e, "beside the heap");
    assert!(beside.cause.starts_with("98 MiB") && beside.fix.contains("overhead 152 MiB instead of 32 MiB"), "{beside:#?}");
}

#[test]
fn live_data_wants_a_larger_heap_and_a_lone_large_array_does_not() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(3);
    e.heap_budget = Some(MIB(64));
    let heap = |used, old| Some(HeapFacts { used: MIB(used), max: MIB(64), old_used: Some(MIB(old)), ..HeapFacts::default() });
    e.heap = heap(62, 42);
    let full = finds(&e, "is full: 62 MiB in use, 42 MiB of it long-lived");
    assert!(full.fix.contains("heap 96 MiB") && full.certainty == Certainty::Certain, "{full:#?}");
    e.heap = heap(30, 20);
    assert!(finds(&e, "one very large allocation").fix.contains("G1HeapRegionSize"));
}

#[test]
fn a_runtime_that_was_not_told_its_budget_is_named_first() {
    let mut e = killed_at(128);
    e.heap_budget = Some(MIB(64));
    e.heap = Some(HeapFacts { used: MIB(92), committed: MIB(138), max: MIB(300), ..HeapFacts::default() });
    let all = told(&e, Scope::Container);
    assert!(all[0].cause.contains("grow to 300 MiB") && all[0].fix.contains("-Xmx65536k"), "{all:#?}");
}

#[test]
fn the_runtimes_own_words_decide() {
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(1);
    e.heap_budget = Some(MIB(64));
    for (line, words) in [
        ("java.lang.OutOfMemoryError: Direct buffer memory", "direct (NIO) buffers"),
        ("java.lang.OutOfMemoryError: Metaspace", "class metadata"),
        ("java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory", "another thread"),
    ] {
        e.heap_marker = Some(line.into());
        assert_eq!(finds(&e, words).certainty, Certainty::Certain);
    }
}

#[test]
fn threads_children_cache_sockets_and_kernel_are_seen() {
    let mut e = killed_at(256);
    e.own.stat.kernel_stack = Some(MIB(16));
    assert!(finds(&e, "threads").cause.contains("1024"));
    let mut e = killed_at(64);
    let child = |pid| Victim { pid, name: "worker".into(), rss: MIB(12) };
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
    finds(&e, "the kernel's own");
}

#[test]
fn ends_that_are_no_fault_of_its_own_say_so() {
    let mut e = killed_at(64);
    e.own.local = MemoryEvents::default();
    e.own.events.oom = 0;
    e.outer.push(headroom_types::exit::OuterLevel {
        level: "containers".into(),
        limit: Some(MIB(512)),
        local: MemoryEvents { oom: 1, ..MemoryEvents::default() },
    });
    assert!(finds(&e, "`containers` (512 MiB)").fix.contains("another node"));
    let mut e = Evidence::empty(EnforcerKind::Cgroup2);
    e.exit_code = Some(137);
    assert!(told(&e, Scope::Container)[0].cause.contains("no memory counter moved"));
    e.exit_code = Some(0);
    assert!(told(&e, Scope::Container).is_empty());
}

#[test]
fn a_stall_is_explained_by_what_it_read_again() {
    let mut e = killed_at(256);
    e.stop_asked = Some(headroom_types::StopCause::Stalled);
    e.own.stat.workingset_refault_file = Some(120_000);
    assert!(finds(&e, "120000 pages").fix.contains("384 MiB in all"));
}

#[test]
fn every_memory_failure_gets_a_cure() {
    for limit in [16, 64, 4096] {
        for budget in [None, Some(limit / 2)] {
            let mut e = killed_at(limit);
            e.heap_budget = budget.map(MIB);
            assert!(!told(&e, Scope::Container).is_empty(), "limit {limit}, budget {budget:?}");
            assert!(!told(&e, Scope::Task).is_empty(), "limit {limit}, budget {budget:?}");
        }
    }
}

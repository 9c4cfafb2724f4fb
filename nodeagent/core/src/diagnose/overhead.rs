//! Rules for memory outside the heap, by the kernel's counters and the mappings of the largest
//! process.

use headroom_types::exit::{ProcessMemory, VictimProcess};
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, ExitReason, SubCause};

use super::case::{DiagnosisInput, LESS_AT_ONCE, MORE_OVERHEAD, next_size, row};
use super::heap;

/// A program with fewer threads is not diagnosed for its threads.
const MANY_THREADS: u64 = 64;
/// A program with fewer arenas is not diagnosed for its arenas.
const MANY_ARENAS: u32 = 4;
/// This many open sockets or pipe ends can hold the kernel memory of a process.
const MANY_ENDS: u32 = 16;

/// Too little memory for code and files. If another row explains the full memory, that row is the
/// cause, and this row only describes how it ended.
pub(super) fn thrashing(c: &DiagnosisInput<'_>, taken: bool) -> Option<Diagnosis> {
    if c.verdict.reason != ExitReason::StalledAtLimit {
        return None;
    }
    let reads = c.e.own.stat.workingset_refault_file.unwrap_or_default();
    let cause = format!(
        "the limit of {} left no memory for code and files of the program: it read {reads} pages of them repeatedly",
        c.limit
    );
    let fix = format!(
        "add at least 32 MiB to the memory that it needs, {} in all",
        next_size(c.seen)
    );
    let certainty = if taken {
        Certainty::Likely
    } else {
        Certainty::Certain
    };
    Some(
        row(SubCause::Thrashing, certainty, cause, fix)
            .with_trade_off("the memory is idle when the program needs less"),
    )
}

pub(super) fn tmpfs(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let shmem = c.e.own.stat.shmem.filter(|shmem| c.is_share(*shmem, 25))?;
    let certainty = if c.is_share(shmem, 50) {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    let fix = "write temporary files to a disk (set TMPDIR), or remove them sooner";
    Some(
        row(
            SubCause::Tmpfs,
            certainty,
            format!("{shmem} of tmpfs files or shared memory are charged to it"),
            fix,
        )
        .with_trade_off("a disk is slower than memory")
        .with_would_fit(c.without(shmem)),
    )
}

pub(super) fn children(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    children_of_runtime(c).or_else(|| several_processes(c))
}

/// Child processes of a runtime, such as Python workers of a JVM, hold most of the memory outside
/// the heap.
fn children_of_runtime(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (runtime, overhead) = (c.e.runtime_pid()?, c.overhead()?);
    if c.verdict.dimension != Some(Dimension::Overhead) || c.marked.is_some() {
        return None;
    }
    // The process id of a main process that ended before it was sampled is 0.
    let children = || c.e.victims.iter().filter(|v| v.pid > 0 && v.pid != runtime);
    let largest = children().next()?;
    let held = sum(children());
    let committed = c.e.heap.map(|heap| heap.committed).unwrap_or_default();
    let outside = c.seen.saturating_sub(committed);
    if held < outside.mul_ratio(50, 100) {
        return None;
    }
    let VictimProcess { pid, name, rss } = largest;
    let rank = if c.e.victims.first() == Some(largest) {
        "the largest"
    } else {
        "the largest child process"
    };
    let count = children().count() + 1;
    let cause = format!("{count} processes shared the limit; {rank}, {name} ({pid}), held {rss}");
    let settings = if name.starts_with("python") {
        " (in PySpark: spark.executor.pyspark.memory or spark.executor.memoryOverhead)"
    } else {
        ""
    };
    let fix = format!(
        "run fewer tasks at once, or give the child process {name} less data at once (smaller batches); or overhead {} instead of {overhead}{settings}",
        next_size(outside)
    );
    let row = row(SubCause::ChildProcesses, Certainty::Likely, cause, fix)
        .with_trade_off(format!("{LESS_AT_ONCE}; {MORE_OVERHEAD}"));
    let rest = held.saturating_sub(*rss);
    Some(if rest.is_zero() {
        row
    } else {
        row.with_would_fit(c.without(rest))
    })
}

fn several_processes(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (largest, rest) = c.e.victims.split_first()?;
    let others = others(c);
    if rest.is_empty() || !c.is_share(others, 30) || c.marked.is_some() {
        return None;
    }
    let cause = format!(
        "{} processes shared the limit; the largest, {} ({}), held {}",
        rest.len() + 1,
        largest.name,
        largest.pid,
        largest.rss
    );
    let fix = format!("run fewer of them at once, or give {}", next_size(c.seen));
    Some(
        row(SubCause::ChildProcesses, Certainty::Likely, cause, fix)
            .with_trade_off(LESS_AT_ONCE)
            .with_would_fit(c.without(others)),
    )
}

/// The memory of all processes except the largest.
pub(super) fn others(c: &DiagnosisInput<'_>) -> Bytes {
    sum(c.e.victims.iter().skip(1))
}

fn sum<'a>(processes: impl Iterator<Item = &'a VictimProcess>) -> Bytes {
    processes.fold(Bytes::ZERO, |sum, v| sum.saturating_add(v.rss))
}

pub(super) fn threads(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    // Each thread has a kernel stack of 16 KiB on every supported architecture.
    let by_kernel = c.e.own.stat.kernel_stack.map(|b| b.get() / (16 << 10));
    let by_maps = c.e.inside.map(|i| u64::from(i.stack_count));
    let count =
        c.e.heap
            .and_then(|h| h.threads)
            .into_iter()
            .chain(by_kernel)
            .chain(by_maps)
            .max()?;
    let measured =
        c.e.inside
            .map(|i| i.stacks)
            .filter(|stacks| c.is_share(*stacks, 25));
    let guessed = Bytes::from_kib(64).mul_ratio(count, 1);
    let (taken, certainty) = match measured {
        Some(stacks) => (stacks, Certainty::Certain),
        None if count >= 200 && c.is_share(guessed, 10) => (guessed, Certainty::Likely),
        None => return None,
    };
    if count < MANY_THREADS || c.marked.is_some() {
        return None;
    }
    let cause = format!("about {count} threads: their stacks take {taken} or more");
    let fix = "smaller thread pools, or smaller stacks (-Xss256k for a JVM, ulimit -s for others)";
    Some(
        row(SubCause::ThreadStacks, certainty, cause, fix)
            .with_trade_off("deep recursion may no longer fit in a smaller stack")
            .with_would_fit(c.without(taken.mul_ratio(3, 4))),
    )
}

pub(super) fn arenas(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let inside =
        c.e.inside
            .filter(|i| i.arena_count >= MANY_ARENAS && c.is_share(i.arenas, 30))?;
    if c.marked.is_some() {
        return None;
    }
    let cause = format!(
        "{} arenas of the native allocator, one per few threads, hold {}",
        inside.arena_count, inside.arenas
    );
    let kept = inside.arenas.mul_ratio(2, u64::from(inside.arena_count));
    Some(
        row(
            SubCause::NativeArenas,
            Certainty::Likely,
            cause,
            "MALLOC_ARENA_MAX=2, or another allocator (jemalloc), or fewer threads",
        )
        .with_trade_off(
            "fewer arenas cost some speed with many threads; memory in use does not shrink",
        )
        .with_would_fit(c.without(inside.arenas.saturating_sub(kept))),
    )
}

pub(super) fn page_cache(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let file =
        c.e.own
            .stat
            .file?
            .saturating_sub(c.e.own.stat.shmem.unwrap_or_default());
    let demand = c.e.own.stat.demand()?;
    if !c.is_share(file, 30) || c.is_share(demand, 85) || c.marked.is_some() {
        return None;
    }
    let mapped =
        c.e.inside
            .map(|i| i.file)
            .filter(|mapped| c.is_share(*mapped, 30));
    let (certainty, part) = match mapped {
        Some(mapped) => (
            Certainty::Likely,
            format!(", {mapped} of it mapped or locked by the largest process"),
        ),
        None => (Certainty::Possible, String::new()),
    };
    let cause = format!(
        "{file} were page cache or mapped files at the last measurement{part}; {demand} could not be reclaimed"
    );
    let fix = "read through smaller windows (no mmap or mlock of whole files), or try the same size again: cache is reclaimable";
    Some(
        row(SubCause::PageCache, certainty, cause, fix)
            .with_trade_off("another try may end the same way")
            .with_would_fit(c.without(file)),
    )
}

pub(super) fn sockets(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let fix =
        "fewer connections at once, faster readers, or smaller buffers (SO_SNDBUF, SO_RCVBUF)";
    let dear = "each transfer may be slower";
    if let Some(sock) = c.e.own.stat.sock.filter(|sock| c.is_share(*sock, 15)) {
        let cause = format!("{sock} are buffers of sockets");
        return Some(
            row(SubCause::Sockets, Certainty::Certain, cause, fix)
                .with_trade_off(dear)
                .with_would_fit(c.without(sock)),
        );
    }
    // Buffers of local sockets and pipes are plain kernel memory. A process with many of them open
    // probably owns that memory.
    let kernel = kernel_beside_stacks(c).filter(|kernel| c.is_share(*kernel, 25))?;
    let ProcessMemory { sockets, pipes, .. } =
        c.e.inside
            .filter(|i| i.sockets.saturating_add(i.pipes) >= MANY_ENDS)?;
    let cause = format!(
        "{kernel} of kernel memory, with {sockets} sockets and {pipes} pipe ends open: unread data in them"
    );
    Some(
        row(SubCause::Sockets, Certainty::Likely, cause, fix)
            .with_trade_off(dear)
            .with_would_fit(c.without(kernel)),
    )
}

fn kernel_beside_stacks(c: &DiagnosisInput<'_>) -> Option<Bytes> {
    let stat = &c.e.own.stat;
    Some(
        stat.kernel
            .or(stat.slab_unreclaimable)?
            .saturating_sub(stat.kernel_stack.unwrap_or_default()),
    )
}

pub(super) fn kernel(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let kernel = kernel_beside_stacks(c).filter(|kernel| c.is_share(*kernel, 25))?;
    if sockets(c).is_some() || threads(c).is_some() {
        return None;
    }
    let cause = format!("{kernel} are kernel memory: page tables, directory entries, pipes");
    let fix = "fewer open files and mappings, or huge pages for a large sparse mapping";
    Some(
        row(SubCause::KernelMemory, Certainty::Likely, cause, fix)
            .with_would_fit(c.without(kernel)),
    )
}

pub(super) fn metaspace(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let heap = c.e.heap.filter(|_| c.beside_heap())?;
    let metaspace = heap
        .metaspace
        .filter(|m| *m >= c.seen.saturating_sub(heap.committed).mul_ratio(40, 100))?;
    if !c.is_share(metaspace, 20) {
        return None;
    }
    let cause = format!(
        "{metaspace} of class metadata, outside a heap of {}",
        heap.committed
    );
    let fix = format!(
        "generate or load fewer classes, or close their loaders; else overhead {}; -XX:MaxMetaspaceSize shows a leak sooner",
        next_size(c.seen.saturating_sub(heap.committed))
    );
    Some(row(SubCause::Metaspace, Certainty::Certain, cause, fix).with_trade_off(MORE_OVERHEAD))
}

pub(super) fn code(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let code =
        c.e.runtime_memory()
            .map(|i| i.code)
            .filter(|code| c.is_share(*code, 20) && c.is_kill())?;
    let cause = format!("{code} of code generated at run time");
    let fix = "-XX:ReservedCodeCacheSize below the overhead (48m is enough for most programs); or generate less code";
    Some(
        row(SubCause::CodeCache, Certainty::Certain, cause, fix)
            .with_trade_off(
                "with a full code cache, the rest of the program is interpreted, which is slow",
            )
            .with_would_fit(c.without(code.mul_ratio(1, 2))),
    )
}

/// Large native blocks of a managed runtime are direct buffers, unless it links a native library.
pub(super) fn direct(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let (heap, _) = c.heap()?;
    let inside = c.e.runtime_memory().filter(|_| c.beside_heap())?;
    let known = heap
        .committed
        .saturating_add(heap.metaspace.unwrap_or_default());
    let blocks = inside.other.saturating_sub(known);
    let overhead = c.overhead()?;
    if !c.is_share(blocks, 20) || blocks < overhead.mul_ratio(40, 100) {
        return None;
    }
    // A heap that can free as much is the cheaper cure: it costs a flag.
    let idle = heap::smaller(c).is_some_and(|smaller| smaller.freed >= blocks);
    let certainty = if idle {
        Certainty::Possible
    } else {
        Certainty::Likely
    };
    let cause = format!(
        "{blocks} in large native blocks outside the heap, with {overhead} planned: direct (NIO) buffers, or a native library"
    );
    let wanted = next_size(c.seen.saturating_sub(heap.committed));
    let fix = format!(
        "fewer tasks or fetches at once; or overhead {wanted} instead of {overhead}; -XX:MaxDirectMemorySize shows a leak sooner"
    );
    Some(
        row(SubCause::DirectBuffers, certainty, cause, fix)
            .with_trade_off(format!("{LESS_AT_ONCE}; {MORE_OVERHEAD}")),
    )
}

/// Memory outside the heap without a more exact cause.
pub(super) fn unknown(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if !c.beside_heap() {
        return None;
    }
    let (overhead, heap) = (c.overhead()?, c.e.heap);
    let beside = heap
        .map(|h| c.seen.saturating_sub(h.committed))
        .filter(|b| *b > overhead);
    let wanted = next_size(beside.unwrap_or(overhead).max(Bytes::from_mib(16)));
    let meta = heap
        .and_then(|h| h.metaspace)
        .map(|m| format!(" (class metadata is {m} of it)"))
        .unwrap_or_default();
    let (certainty, cause) = match beside {
        Some(b) if c.e.inside.is_none() && children_of_runtime(c).is_none() => (
            Certainty::Likely,
            format!(
                "{b} outside the heap{meta} with {overhead} planned for it: direct buffers, native libraries or allocator arenas"
            ),
        ),
        Some(b) => (
            Certainty::Possible,
            format!("{b} outside the heap{meta} with {overhead} planned for it"),
        ),
        None => (
            Certainty::Possible,
            format!("memory outside the heap exceeded the {overhead} planned for it"),
        ),
    };
    let fix = format!(
        "overhead {wanted} instead of {overhead}; or fewer tasks at once, or MALLOC_ARENA_MAX=2 for native allocators"
    );
    Some(
        row(SubCause::BesideHeap, certainty, cause, fix).with_trade_off(format!(
            "{MORE_OVERHEAD}; fewer arenas cost some speed with many threads"
        )),
    )
}

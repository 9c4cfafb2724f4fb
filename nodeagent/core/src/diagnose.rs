//! What to do about it: a table of rules over the evidence, cheapest cure first.
//!
//! Owned by whoever made the verdict. It never changes the verdict, and it stays silent where nothing points anywhere. Figures
//! of a killed process are lower bounds of what it needed, and are worded so.

use headroom_types::exit::HeapFacts;
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, Evidence, ExitReason};

use crate::classify::{Marked, Verdict, marked};

/// One row of the table: silent, or a cause with its cure.
type Rule = fn(&Case<'_>) -> Option<Diagnosis>;

/// Rules for a memory failure of its own, in the order of what their cures cost.
const OWN: [Rule; 14] = [
    beyond_budget,
    told_direct,
    told_metaspace,
    told_threads,
    heap_can_give,
    tmpfs,
    children,
    threads,
    page_cache,
    sockets,
    kernel,
    beside_heap,
    heap_full,
    bigger,
];

/// Causes and cures for a verdict; empty where memory was not the matter and nothing is known.
pub fn diagnose(e: &Evidence, v: &Verdict) -> Vec<Diagnosis> {
    let case = Case::new(e, v);
    match v.reason {
        ExitReason::HeapOom | ExitReason::OverheadOom | ExitReason::TaskOom | ExitReason::StalledAtLimit => {
            stalled(&case).into_iter().chain(OWN.iter().filter_map(|rule| rule(&case))).collect()
        }
        ExitReason::AncestorOom => vec![outer_limit(&case)],
        ExitReason::NodeOom => vec![host()],
        ExitReason::KilledExternally => vec![from_outside()],
        ExitReason::Exit { code: 137 } => vec![code_137()],
        ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost
        | ExitReason::LaunchFailed
        | ExitReason::Exit { .. }
        | ExitReason::Signal { .. } => Vec::new(),
    }
}

/// The next size worth trying after a kill at `seen`: half as much again, in steps a scheduler likes.
pub fn fitting(seen: Bytes) -> Bytes {
    let wanted = seen.mul_ratio(3, 2);
    let step = if wanted >= Bytes::from_gib(1) { Bytes::from_mib(64) } else { Bytes::from_mib(8) };
    wanted.round_up(step)
}

/// The evidence with what several rules need.
struct Case<'a> {
    e: &'a Evidence,
    verdict: Verdict,
    /// What it was held to, or what it reached where there was no limit.
    limit: Bytes,
    /// What it is known to have needed.
    seen: Bytes,
    told: Option<Marked>,
}

impl<'a> Case<'a> {
    fn new(e: &'a Evidence, v: &Verdict) -> Self {
        let seen = e.own.peak.unwrap_or(e.own.current).max(e.own.current);
        let limit = e.own.limit.unwrap_or(seen);
        Case { e, verdict: *v, limit, seen: seen.max(Bytes::new(1)), told: e.heap_marker.as_deref().map(marked) }
    }
    /// True when `part` is at least `percent` of the limit.
    fn is_share(&self, part: Bytes, percent: u64) -> bool {
        !part.is_zero() && part >= self.limit.mul_ratio(percent, 100)
    }
    fn says(&self, words: &str) -> bool {
        self.told == Some(Marked::Beside)
            && self.e.heap_marker.as_deref().is_some_and(|line| line.to_ascii_lowercase().contains(words))
    }
    fn heap(&self) -> Option<(HeapFacts, Bytes)> {
        Some((self.e.heap?, self.e.heap_budget?))
    }
    /// What the limit leaves beside the heap budget.
    fn overhead(&self) -> Option<Bytes> {
        self.e.heap_budget.map(|budget| self.limit.saturating_sub(budget))
    }
}

fn row(certainty: Certainty, cause: String, fix: String, trade_off: &str) -> Option<Diagnosis> {
    Some(Diagnosis { cause, fix, trade_off: trade_off.to_owned(), certainty })
}

fn stalled(c: &Case<'_>) -> Option<Diagnosis> {
    if c.verdict.reason != ExitReason::StalledAtLimit {
        return None;
    }
    let reads = c.e.own.stat.workingset_refault_file.unwrap_or_default();
    row(
        Certainty::Certain,
        format!(
            "its limit of {} left no room for its own code and files: it read {reads} pages of them again and again",
            c.limit
        ),
        format!("add at least 32 MiB beside what it needs itself, {} in all", fitting(c.seen)),
        "memory that is idle when the program needs less",
    )
}

fn told_direct(c: &Case<'_>) -> Option<Diagnosis> {
    if !c.says("direct buffer") {
        return None;
    }
    row(
        Certainty::Certain,
        "direct (NIO) buffers reached the runtime's own maximum for them".into(),
        "fewer tasks or fetches at once; or raise -XX:MaxDirectMemorySize and the overhead by the same amount".into(),
        "fewer at once takes longer; more overhead is memory that no other task can have",
    )
}

fn told_metaspace(c: &Case<'_>) -> Option<Diagnosis> {
    if !c.says("metaspace") && !c.says("class space") {
        return None;
    }
    let used = c.e.heap.and_then(|h| h.metaspace).map(|m| format!(" ({m} in use)")).unwrap_or_default();
    row(
        Certainty::Certain,
        format!("class metadata reached its maximum{used}"),
        "load fewer classes or generate less code; or raise -XX:MaxMetaspaceSize and the overhead by the same amount".into(),
        "more overhead is memory that no other task can have",
    )
}

fn told_threads(c: &Case<'_>) -> Option<Diagnosis> {
    if !c.says("native thread") {
        return None;
    }
    row(
        Certainty::Certain,
        "the runtime could not make another thread".into(),
        "smaller thread pools or fewer tasks at once; or raise max_processes of the launch".into(),
        "less concurrency takes longer",
    )
}

fn heap_can_give(c: &Case<'_>) -> Option<Diagnosis> {
    let (heap, budget) = c.heap()?;
    let live = heap.old_used.unwrap_or(heap.used);
    if c.told.is_some() || c.verdict.dimension != Some(Dimension::Overhead) || live >= budget.mul_ratio(60, 100) {
        return None;
    }
    let smaller = live.mul_ratio(3, 2).round_up(Bytes::from_mib(8)).max(Bytes::from_mib(16));
    let freed = budget.checked_sub(smaller).filter(|b| !b.is_zero())?;
    row(
        Certainty::Likely,
        format!("the heap uses {live} of its {budget}; what is beside it ran out"),
        format!("make the heap {smaller}: the same container then has {freed} more for all else"),
        "the collector runs more often",
    )
}

fn tmpfs(c: &Case<'_>) -> Option<Diagnosis> {
    let shmem = c.e.own.stat.shmem?;
    if !c.is_share(shmem, 25) {
        return None;
    }
    let certainty = if c.is_share(shmem, 50) { Certainty::Certain } else { Certainty::Likely };
    row(
        certainty,
        format!("{shmem} of tmpfs files or shared memory are charged to it"),
        "write temporary files to a disk (set TMPDIR), or remove them sooner".into(),
        "a disk is slower than memory",
    )
}

fn children(c: &Case<'_>) -> Option<Diagnosis> {
    let (largest, rest) = c.e.victims.split_first()?;
    let others = rest.iter().fold(Bytes::ZERO, |sum, v| sum.saturating_add(v.rss));
    if rest.is_empty() || !c.is_share(others, 30) {
        return None;
    }
    row(
        Certainty::Likely,
        format!(
            "{} processes shared the limit; the largest, {} ({}), held {}",
            rest.len() + 1,
            largest.name,
            largest.pid,
            largest.rss
        ),
        format!("run fewer of them at once, or give {}", fitting(c.seen)),
        "fewer at once takes longer",
    )
}

fn threads(c: &Case<'_>) -> Option<Diagnosis> {
    // 16 KiB of kernel stack for each thread on every architecture this runs on.
    let by_stacks = c.e.own.stat.kernel_stack.map(|b| b.get() / (16 << 10));
    let count = c.e.heap.and_then(|h| h.threads).into_iter().chain(by_stacks).max()?;
    let least = Bytes::from_kib(64).mul_ratio(count, 1);
    if count < 200 || !c.is_share(least, 10) {
        return None;
    }
    row(
        Certainty::Likely,
        format!("about {count} threads: their stacks take {least} or more"),
        "smaller thread pools, or smaller stacks (-Xss256k for a JVM, ulimit -s for others)".into(),
        "deep recursion may no longer fit in a smaller stack",
    )
}

fn page_cache(c: &Case<'_>) -> Option<Diagnosis> {
    let file = c.e.own.stat.file?.saturating_sub(c.e.own.stat.shmem.unwrap_or_default());
    let demand = c.e.own.stat.demand()?;
    if !c.is_share(file, 30) || c.is_share(demand, 85) {
        return None;
    }
    row(
        Certainty::Possible,
        format!("{file} were page cache or mapped files when it was last measured; what it cannot give back was {demand}"),
        "read through smaller windows (no mmap of whole files), or try the same size once more: cache is given back first".into(),
        "another try may end the same way",
    )
}

fn sockets(c: &Case<'_>) -> Option<Diagnosis> {
    let sock = c.e.own.stat.sock?;
    if !c.is_share(sock, 15) {
        return None;
    }
    row(
        Certainty::Likely,
        format!("{sock} are buffers of sockets"),
        "fewer connections at once, or smaller socket buffers".into(),
        "each transfer may be slower",
    )
}

fn kernel(c: &Case<'_>) -> Option<Diagnosis> {
    let stat = &c.e.own.stat;
    let kernel = stat.kernel.or(stat.slab_unreclaimable)?.saturating_sub(stat.kernel_stack.unwrap_or_default());
    if !c.is_share(kernel, 25) {
        return None;
    }
    row(
        Certainty::Likely,
        format!("{kernel} are the kernel's own: page tables, directory entries, pipes"),
        "fewer open files and mappings, or huge pages for a large sparse mapping".into(),
        "none known",
    )
}

fn beside_heap(c: &Case<'_>) -> Option<Diagnosis> {
    if c.verdict.dimension != Some(Dimension::Overhead) || c.told.is_some() {
        return None;
    }
    let (overhead, heap) = (c.overhead()?, c.e.heap);
    let beside = heap.map(|h| c.seen.saturating_sub(h.committed)).filter(|b| *b > overhead);
    let wanted = fitting(beside.unwrap_or(overhead).max(Bytes::from_mib(16)));
    let meta = heap.and_then(|h| h.metaspace).map(|m| format!(" (class metadata is {m} of it)")).unwrap_or_default();
    let (certainty, cause) = match beside {
        Some(b) => (
            Certainty::Likely,
            format!(
                "{b} beside the heap{meta} with {overhead} planned for it: direct buffers, native libraries or allocator arenas"
            ),
        ),
        None => (Certainty::Possible, format!("memory beside the heap passed the {overhead} planned for it")),
    };
    row(
        certainty,
        cause,
        format!("overhead {wanted} instead of {overhead}; or fewer tasks at once, or MALLOC_ARENA_MAX=2 for native allocators"),
        "more overhead is memory that no other task can have; fewer arenas cost some speed with many threads",
    )
}

fn heap_full(c: &Case<'_>) -> Option<Diagnosis> {
    if c.verdict.reason != ExitReason::HeapOom && c.verdict.dimension != Some(Dimension::Heap) {
        return None;
    }
    let Some((heap, budget)) = c.heap() else {
        return row(
            Certainty::Likely,
            "the runtime said that its heap is full".into(),
            "declare the heap of this runtime, so that it can be sized and measured".into(),
            "none",
        );
    };
    let larger = fitting(budget.max(heap.used));
    let trade_off = "a larger heap means fewer tasks on a node; smaller partitions mean more tasks";
    let long_lived = heap.old_used.map(|live| format!(", {live} of it long-lived")).unwrap_or_default();
    if heap.used < budget.mul_ratio(80, 100) {
        return row(
            Certainty::Likely,
            format!(
                "the heap of {budget} failed with only {} in use{long_lived}: one very large allocation, or a fragmented heap",
                heap.used
            ),
            format!("smaller arrays or partitions; for G1, larger regions (-XX:G1HeapRegionSize); then heap {larger}"),
            "larger regions waste some memory with small objects",
        );
    }
    // An old generation is two thirds of the heap unless somebody says otherwise.
    let certain = heap.old_used.is_some_and(|live| live >= budget.mul_ratio(60, 100));
    row(
        if certain { Certainty::Certain } else { Certainty::Likely },
        format!("the heap of {budget} is full: {} in use{long_lived}", heap.used),
        format!("heap {larger}, or smaller partitions"),
        trade_off,
    )
}

/// The budget and the runtime's own maximum are two numbers that somebody has to keep equal.
fn beyond_budget(c: &Case<'_>) -> Option<Diagnosis> {
    let (heap, budget) = c.heap()?;
    if heap.max <= budget.mul_ratio(105, 100) {
        return None;
    }
    row(
        Certainty::Certain,
        format!("the runtime may let its heap grow to {}, beyond its budget of {budget}", heap.max),
        format!(
            "pass the budget on (-Xmx{}k, or {{heap}} in the command), or declare a heap of {}",
            budget.get() >> 10,
            heap.max
        ),
        "none",
    )
}

fn bigger(c: &Case<'_>) -> Option<Diagnosis> {
    if c.verdict.dimension != Some(Dimension::Native) || c.verdict.reason == ExitReason::StalledAtLimit {
        return None;
    }
    let anon = c.e.own.stat.anon.filter(|anon| c.is_share(*anon, 50));
    let (certainty, what) = match anon {
        Some(anon) => (
            Certainty::Certain,
            format!("its own data ({anon} of anonymous memory when last measured) filled the limit of {}", c.limit),
        ),
        None => (
            Certainty::Likely,
            format!("it needs more than its limit of {}; where it went grew too fast to be measured", c.limit),
        ),
    };
    row(
        certainty,
        what,
        format!("{} is the next size worth trying: more than {} is all a killed process tells", fitting(c.seen), c.seen),
        "fewer tasks fit on a node",
    )
}

fn outer_limit(c: &Case<'_>) -> Diagnosis {
    let level = c.e.outer.iter().find(|l| l.level != "host" && (l.local.oom > 0 || l.local.max > 0));
    let whose = level.map_or("an outer cgroup".to_owned(), |l| match l.limit {
        Some(limit) => format!("the cgroup `{}` ({limit})", l.level),
        None => format!("the cgroup `{}`", l.level),
    });
    Diagnosis {
        cause: format!("{whose} ran out of memory, and this was chosen as the victim with {} in use", c.seen),
        fix: "try again with the same size on another node; here, raise the outer limit or offer less".into(),
        trade_off: "none for the application".into(),
        certainty: if level.is_some() { Certainty::Certain } else { Certainty::Likely },
    }
}

fn host() -> Diagnosis {
    Diagnosis {
        cause: "the host itself ran out of memory; something outside the containers took it".into(),
        fix: "try again with the same size on another node; here, raise the node's `reserve`".into(),
        trade_off: "a larger reserve means fewer containers on this node".into(),
        certainty: Certainty::Certain,
    }
}

fn from_outside() -> Diagnosis {
    Diagnosis {
        cause: "a SIGKILL that neither the kernel's memory counters nor this agent account for".into(),
        fix: "look for an operator or for systemd-oomd (journalctl -u systemd-oomd) at the time of the end".into(),
        trade_off: "none".into(),
        certainty: Certainty::Possible,
    }
}

fn code_137() -> Diagnosis {
    Diagnosis {
        cause: "exit code 137 means that some process below it got SIGKILL, and no memory counter moved".into(),
        fix: "look into its log for who was killed, and by whom".into(),
        trade_off: "none".into(),
        certainty: Certainty::Possible,
    }
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;

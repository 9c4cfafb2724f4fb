//! Causes and cures of memory failures: a closed set of sub-causes, and one row of a diagnosis.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// One row of a diagnosis: a cause and its cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// Name of the sub-cause; `docs/diagnosis.md` has a section for each.
    #[serde(default)]
    pub name: SubCause,
    /// The sub-cause in one sentence.
    pub cause: String,
    /// The cheapest change that cures it.
    pub fix: String,
    /// The cost of that change.
    pub trade_off: String,
    /// Certainty of the row.
    pub certainty: Certainty,
    /// Size in which the attempt would have fitted with this cure alone, based on its use until its
    /// end. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_fit: Option<Bytes>,
    /// Size of a single request that was rejected at once. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Bytes>,
}

impl Diagnosis {
    /// A row without `would_fit` and `asked`.
    pub fn new(
        name: SubCause,
        certainty: Certainty,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Diagnosis {
            name,
            cause: cause.into(),
            fix: fix.into(),
            trade_off: "none".into(),
            certainty,
            would_fit: None,
            asked: None,
        }
    }
    /// Sets the cost of the cure.
    pub fn with_trade_off(mut self, trade_off: impl Into<String>) -> Self {
        self.trade_off = trade_off.into();
        self
    }
    /// Sets the size that would have fitted.
    pub fn with_would_fit(mut self, size: Bytes) -> Self {
        self.would_fit = Some(size);
        self
    }
}

word_enum! {
    /// The certainty of a diagnosis.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Certainty: "is not a certainty; use" {
        /// Follows from counters or from messages of the runtime.
        Certain = "certain",
        /// Fits the measurements best.
        Likely = "likely",
        /// One of several candidates.
        Possible = "possible",
    }
}

word_enum! {
    /// The use of the memory, or the reason that it was not available.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum SubCause: "is no sub-cause; use" {
        /// The heap is full of live data.
        LiveHeap = "live_heap",
        /// The heap had free memory, but not in one piece: large arrays with a region-based collector.
        HeapFragmented = "heap_fragmented",
        /// The runtime spent its time in garbage collection and freed almost nothing.
        GcBound = "gc_bound",
        /// The program's cache is larger than the old generation.
        CacheBeyondOld = "cache_beyond_old",
        /// The runtime did not receive its heap budget.
        BudgetNotPassed = "budget_not_passed",
        /// Much of the heap was free; memory outside the heap ran out.
        HeapIdle = "heap_idle",
        /// Direct (NIO) buffers.
        DirectBuffers = "direct_buffers",
        /// Stacks of many threads.
        ThreadStacks = "thread_stacks",
        /// The limit on threads or processes was reached.
        ThreadLimit = "thread_limit",
        /// Metadata of loaded classes.
        Metaspace = "metaspace",
        /// Compiled code.
        CodeCache = "code_cache",
        /// Arenas of the native allocator, one per few threads.
        NativeArenas = "native_arenas",
        /// Child processes.
        ChildProcesses = "child_processes",
        /// Page cache or mapped files.
        PageCache = "page_cache",
        /// Files of tmpfs, or shared memory.
        Tmpfs = "tmpfs",
        /// Buffers of sockets and pipes.
        Sockets = "sockets",
        /// Other memory of the kernel: page tables, directory entries.
        KernelMemory = "kernel_memory",
        /// Memory outside the heap, of unknown kind.
        BesideHeap = "beside_heap",
        /// The program's own data: it needs more memory than it has.
        OwnData = "own_data",
        /// A limit that the program, its command or its job file sets by hand.
        OwnLimit = "own_limit",
        /// A single request for more memory than any node has.
        ImpossibleRequest = "impossible_request",
        /// It grew at the same rate with every size.
        Leak = "leak",
        /// The limit is too small for the program's own code and files.
        Thrashing = "thrashing",
        /// Memory left behind by ended programs filled an outer cgroup.
        Leftover = "leftover",
        /// The limit of an outer cgroup.
        OuterLimit = "outer_limit",
        /// The host ran out of memory.
        HostMemory = "host_memory",
        /// A kill of unknown origin.
        FromOutside = "from_outside",
        /// Exit code 137 of a program that was not itself killed.
        Code137 = "code137",
        /// The program could not be started.
        NotStarted = "not_started";
        /// A row of a writer without names, or a name that this reader does not know.
        #[default]
        #[serde(other)]
        Unnamed = "unnamed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_their_json_names_and_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for name in SubCause::ALL {
            let text = serde_json::to_string(&name).expect("writes");
            assert_eq!(text, format!("{:?}", name.as_str()));
            assert!(seen.insert(name.as_str()), "{name} twice");
        }
    }

    #[test]
    fn rows_of_older_and_newer_writers_are_readable() {
        let old = r#"{"cause":"a","fix":"b","trade_off":"c","certainty":"likely"}"#;
        let row: Diagnosis = serde_json::from_str(old).expect("reads");
        assert_eq!((row.name, row.would_fit), (SubCause::Unnamed, None));
        let newer =
            r#"{"name":"cosmic_rays","cause":"a","fix":"b","trade_off":"c","certainty":"likely"}"#;
        let row: Diagnosis = serde_json::from_str(newer).expect("reads");
        assert_eq!(row.name, SubCause::Unnamed);
    }
}

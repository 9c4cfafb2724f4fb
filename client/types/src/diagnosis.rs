//! What a memory failure came from, and what cures it: a closed set of names, and one row of a diagnosis.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// What to do about it: one row of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diagnosis {
    /// The sub-cause by its name; the page `docs/diagnosis.md` has a section for each.
    #[serde(default)]
    pub name: SubCause,
    /// The sub-cause in one sentence.
    pub cause: String,
    /// The cheapest change that cures it.
    pub fix: String,
    /// What that change costs.
    pub trade_off: String,
    /// How sure this is.
    pub certainty: Certainty,
    /// What it would have fitted in with this cure alone, as far as it had come when it ended. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_fit: Option<Bytes>,
    /// What one request asked for that was refused at once. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Bytes>,
}

impl Diagnosis {
    /// A row without a size that it would have fitted in.
    pub fn new(name: SubCause, certainty: Certainty, cause: impl Into<String>, fix: impl Into<String>) -> Self {
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
    /// The same with what its cure costs.
    pub fn at_the_price_of(mut self, trade_off: impl Into<String>) -> Self {
        self.trade_off = trade_off.into();
        self
    }
    /// The same with what it would have fitted in.
    pub fn fitting(mut self, size: Bytes) -> Self {
        self.would_fit = Some(size);
        self
    }
}

/// How sure a diagnosis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Follows from counters or from the runtime's own words.
    Certain,
    /// Fits the measurements best.
    Likely,
    /// One of several.
    Possible,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Certainty::Certain => "certain",
            Certainty::Likely => "likely",
            Certainty::Possible => "possible",
        })
    }
}

macro_rules! sub_causes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Where the memory went, or why it was not there.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum SubCause {
            $($(#[$doc])* $variant,)+
            /// Told by a writer that knew no names, or one that this reader does not know.
            #[default]
            #[serde(other)]
            Unnamed,
        }

        impl SubCause {
            /// Every name that a diagnosis may give.
            pub const ALL: &'static [SubCause] = &[$(SubCause::$variant,)+];

            /// The name used in JSON, screens and documentation.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(SubCause::$variant => $name,)+
                    SubCause::Unnamed => "unnamed",
                }
            }
        }
    };
}

sub_causes! {
    /// The heap is full of data that is still needed.
    LiveHeap = "live_heap",
    /// The heap had room, but not in one piece: large arrays under a collector with regions.
    HeapFragmented = "heap_fragmented",
    /// The runtime spent its time collecting, and freed next to nothing.
    GcBound = "gc_bound",
    /// What it keeps as a cache is more than the old generation holds.
    CacheBeyondOld = "cache_beyond_old",
    /// The runtime was never told of its heap budget.
    BudgetNotPassed = "budget_not_passed",
    /// The heap had much to spare; what is beside it ran out.
    HeapIdle = "heap_idle",
    /// Direct (NIO) buffers.
    DirectBuffers = "direct_buffers",
    /// Stacks of many threads.
    ThreadStacks = "thread_stacks",
    /// No further thread or process may be made.
    ThreadLimit = "thread_limit",
    /// Metadata of loaded classes.
    Metaspace = "metaspace",
    /// Compiled code.
    CodeCache = "code_cache",
    /// Arenas of the native allocator, one for each few threads.
    NativeArenas = "native_arenas",
    /// Processes that it started.
    ChildProcesses = "child_processes",
    /// Page cache or mapped files.
    PageCache = "page_cache",
    /// Files of tmpfs, or shared memory.
    Tmpfs = "tmpfs",
    /// Buffers of sockets and pipes.
    Sockets = "sockets",
    /// Other memory of the kernel: page tables, directory entries.
    KernelMemory = "kernel_memory",
    /// Memory beside the heap; which one could not be told.
    BesideHeap = "beside_heap",
    /// Its own data: it needs more than it was given.
    OwnData = "own_data",
    /// A limit that the program, its command or its job file sets by hand.
    OwnLimit = "own_limit",
    /// One request for more memory than any node has.
    ImpossibleRequest = "impossible_request",
    /// It grew at the same pace through every size that it was given.
    Leak = "leak",
    /// A limit too small for its own code and files.
    Thrashing = "thrashing",
    /// Memory that ended programs left behind filled an outer cgroup.
    Leftover = "leftover",
    /// The limit of an outer cgroup.
    OuterLimit = "outer_limit",
    /// The host itself.
    HostMemory = "host_memory",
    /// A kill that nobody here accounts for.
    FromOutside = "from_outside",
    /// The code 137 of a program that was not killed itself.
    Code137 = "code137",
    /// It could not be started.
    NotStarted = "not_started",
}

impl fmt::Display for SubCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_json_says_and_all_different() {
        let mut seen = std::collections::BTreeSet::new();
        for name in SubCause::ALL {
            let text = serde_json::to_string(name).expect("writes");
            assert_eq!(text, format!("{:?}", name.as_str()));
            assert!(seen.insert(name.as_str()), "{name} twice");
        }
    }

    #[test]
    fn an_older_writer_and_a_newer_one_are_understood() {
        let old = r#"{"cause":"a","fix":"b","trade_off":"c","certainty":"likely"}"#;
        let row: Diagnosis = serde_json::from_str(old).expect("reads");
        assert_eq!((row.name, row.would_fit), (SubCause::Unnamed, None));
        let newer = r#"{"name":"cosmic_rays","cause":"a","fix":"b","trade_off":"c","certainty":"likely"}"#;
        let row: Diagnosis = serde_json::from_str(newer).expect("reads");
        assert_eq!(row.name, SubCause::Unnamed);
    }
}

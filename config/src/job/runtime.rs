//! What manages a task's memory, what it is told of its budget, and which exit codes speak of its heap.

use std::collections::BTreeMap;

use toml::de::DeValue;

use crate::problem::Report;
use crate::raw::{self, Section, hint};

/// What manages a task's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// The program itself: one quantity.
    #[default]
    Native,
    /// A Java virtual machine: heap and overhead.
    Jvm,
    /// Node.js: heap (of V8) and overhead.
    Node,
    /// CPython: one quantity, and its native allocator kept small.
    Python,
    /// Go: one quantity, which its collector is told of.
    Go,
}

/// How many quantities a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A heap with a maximum of its own, and all else.
    HeapAndOverhead,
    /// One quantity: whatever it takes is its own data.
    One,
}

impl Runtime {
    /// All of them, in the order in which they are named to people.
    pub const ALL: [Runtime; 5] = [Runtime::Native, Runtime::Jvm, Runtime::Node, Runtime::Python, Runtime::Go];

    /// The name in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Native => "native",
            Runtime::Jvm => "jvm",
            Runtime::Node => "node",
            Runtime::Python => "python",
            Runtime::Go => "go",
        }
    }

    /// Whether it keeps its heap to a budget by itself.
    pub fn memory(self) -> Memory {
        match self {
            Runtime::Jvm | Runtime::Node => Memory::HeapAndOverhead,
            Runtime::Native | Runtime::Python | Runtime::Go => Memory::One,
        }
    }

    /// The exit codes by which it says that its heap is full unless a job file says otherwise.
    pub fn heap_exit_codes(self) -> &'static [i32] {
        match self {
            Runtime::Jvm => &[3],    // -XX:+ExitOnOutOfMemoryError
            Runtime::Node => &[134], // aborted, below a shell
            Runtime::Native | Runtime::Python | Runtime::Go => &[],
        }
    }
}

/// What a runtime is told of its budget by flags and environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flags {
    /// Its heap, and to end when that is full.
    #[default]
    Heap,
    /// That, and a maximum for each kind of memory beside the heap.
    Caps,
    /// Nothing: the command says it all.
    None,
}

/// Whether the collector writes a log, which a diagnosis reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GcLog {
    /// Into the task's standard output.
    On,
    /// No.
    #[default]
    Off,
}

/// `runtime = "…"`.
pub(super) fn read(s: &mut Section<'_>, r: &mut Report<'_>) -> Runtime {
    let hint = hint("it says what a full heap looks like", "write \"native\", \"jvm\", \"node\", \"python\" or \"go\"");
    let all = Runtime::ALL.map(|runtime| (runtime.as_str(), runtime));
    s.read_or(r, "runtime", hint, Runtime::Native, |v| raw::choice(v, &all))
}

/// `runtime_flags` and `gc_log`.
pub(super) fn told(s: &mut Section<'_>, r: &mut Report<'_>) -> (Flags, GcLog) {
    let flags = hint("it says what the runtime is told of its budget", "write runtime_flags = \"heap\", \"caps\" or \"none\"");
    let log = hint("a diagnosis tells more with it", "write gc_log = \"yes\" or \"no\"");
    (
        s.read_or(r, "runtime_flags", flags, Flags::Heap, |v| {
            raw::choice(v, &[("heap", Flags::Heap), ("caps", Flags::Caps), ("none", Flags::None)])
        }),
        s.read_or(r, "gc_log", log, GcLog::Off, |v| raw::choice(v, &[("yes", GcLog::On), ("no", GcLog::Off)])),
    )
}

/// The job's own table `[exit_codes]`: what a code means for every stage that does not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExitCodes(BTreeMap<i32, Meaning>);

/// What an exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The heap is full.
    Heap,
    /// Nothing about memory.
    Plain,
}

impl ExitCodes {
    /// Reads the table; none is an empty one.
    pub(super) fn read(root: &mut Section<'_>, r: &mut Report<'_>) -> ExitCodes {
        let codes = hint(
            "it says what an exit code means",
            "write a table such as [exit_codes] with 52 = \"heap\", or 3 = \"plain\" for one that is not about memory",
        );
        ExitCodes(root.read_or(r, "exit_codes", codes, BTreeMap::new(), meanings))
    }

    /// The codes that speak of the heap of `runtime`: its usual ones and the table's, without those the table calls plain.
    pub(super) fn of(&self, runtime: Runtime) -> Vec<i32> {
        let named = |wanted: Meaning| self.0.iter().filter(move |(_, m)| **m == wanted).map(|(code, _)| *code);
        let mut codes: Vec<i32> = runtime.heap_exit_codes().to_vec();
        codes.retain(|code| !named(Meaning::Plain).any(|plain| plain == *code));
        codes.extend(named(Meaning::Heap));
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

fn meanings(value: &DeValue<'_>) -> Result<BTreeMap<i32, Meaning>, String> {
    let table = value.as_table().ok_or_else(|| format!("this is {}, not a table of exit codes", raw::kind(value)))?;
    let one = |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
        let word = key.get_ref();
        let code: i32 = word
            .parse()
            .ok()
            .filter(|n| (1..=255).contains(n))
            .ok_or_else(|| format!("{word:?} is no exit code from 1 to 255"))?;
        let meaning = raw::choice(value.get_ref(), &[("heap", Meaning::Heap), ("plain", Meaning::Plain)])?;
        Ok((code, meaning))
    };
    table.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_adds_to_the_usual_codes_and_takes_from_them() {
        let table = ExitCodes(BTreeMap::from([(3, Meaning::Plain), (52, Meaning::Heap), (7, Meaning::Heap)]));
        assert_eq!(table.of(Runtime::Jvm), [7, 52]);
        assert_eq!(table.of(Runtime::Native), [7, 52]);
        assert_eq!(table.of(Runtime::Node), [7, 52, 134]);
        assert_eq!(ExitCodes::default().of(Runtime::Jvm), [3]);
        assert!(ExitCodes::default().of(Runtime::Go).is_empty());
    }
}

//! Runtimes: the manager of a task's memory, how it receives its budget, and its exit codes for a
//! full heap.

use std::collections::BTreeMap;

use headroom_types::word_enum;
use toml::de::DeValue;

use crate::toml_reader::{self, TomlSection, hint, parsed};

word_enum! {
    /// The manager of a task's memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TaskRuntime: "is not one of" {
        /// The program itself: one quantity.
        #[default]
        Native = "native",
        /// A Java virtual machine: heap and overhead.
        Jvm = "jvm",
        /// Node.js: heap (of V8) and overhead.
        Node = "node",
        /// CPython: one quantity; its native allocator is kept small.
        Python = "python",
        /// Go: one quantity, which is passed to the collector.
        Go = "go",
    }
}

/// The number of memory quantities of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryQuantities {
    /// A heap with its own maximum, and overhead.
    HeapAndOverhead,
    /// One quantity: all memory counts as the program's own data.
    One,
}

impl TaskRuntime {
    /// Quantities of the runtime; two if it limits its heap by itself.
    pub fn memory(self) -> MemoryQuantities {
        match self {
            TaskRuntime::Jvm | TaskRuntime::Node => MemoryQuantities::HeapAndOverhead,
            TaskRuntime::Native | TaskRuntime::Python | TaskRuntime::Go => MemoryQuantities::One,
        }
    }

    /// Default exit codes for a full heap, if the job file does not set others.
    pub fn heap_exit_codes(self) -> &'static [i32] {
        match self {
            TaskRuntime::Jvm => &[3],    // -XX:+ExitOnOutOfMemoryError
            TaskRuntime::Node => &[134], // SIGABRT, as a shell reports it
            TaskRuntime::Native | TaskRuntime::Python | TaskRuntime::Go => &[],
        }
    }
}

word_enum! {
    /// The flags and environment variables by which a runtime receives its budget.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum RuntimeFlags: "is not one of" {
        /// The maximum heap, and the order to exit when the heap is full.
        #[default]
        Heap = "heap",
        /// As `Heap`, plus a maximum for each kind of overhead.
        Caps = "caps",
        /// None: the command sets all flags.
        None = "none",
    }
}

word_enum! {
    /// Whether the collector writes a log, which a diagnosis uses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum GcLogSetting: "is not one of" {
        /// Written to the task's standard output.
        On = "yes",
        /// No log.
        #[default]
        Off = "no",
    }
}

/// `runtime = "…"`.
pub(super) fn read(s: &mut TomlSection<'_>) -> TaskRuntime {
    let hint = hint(
        "it sets how a full heap is recognized",
        "write \"native\", \"jvm\", \"node\", \"python\" or \"go\"",
    );
    s.read_or("runtime", hint, TaskRuntime::Native, parsed)
}

/// Reads `runtime_flags` and `gc_log`.
pub(super) fn read_flags(s: &mut TomlSection<'_>) -> (RuntimeFlags, GcLogSetting) {
    let flags = hint(
        "it sets the memory flags of the runtime",
        "write runtime_flags = \"heap\", \"caps\" or \"none\"",
    );
    let log = hint(
        "the log makes a diagnosis more exact",
        "write gc_log = \"yes\" or \"no\"",
    );
    (
        s.read_or("runtime_flags", flags, RuntimeFlags::Heap, parsed),
        s.read_or("gc_log", log, GcLogSetting::Off, parsed),
    )
}

/// The table `[exit_codes]` of a job: default meanings of exit codes for all stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExitCodes(BTreeMap<i32, ExitCodeMeaning>);

word_enum! {
    /// The meaning of an exit code.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum ExitCodeMeaning: "is not one of" {
        /// The heap is full.
        Heap = "heap",
        /// Unrelated to memory.
        Plain = "plain",
    }
}

impl ExitCodes {
    /// Reads the table; empty if absent.
    pub(super) fn read(root: &mut TomlSection<'_>) -> ExitCodes {
        let codes = hint(
            "it sets the meaning of exit codes",
            "write a table such as [exit_codes] with 52 = \"heap\", or 3 = \"plain\" for a code without a relation to memory",
        );
        ExitCodes(root.read_or("exit_codes", codes, BTreeMap::new(), meanings))
    }

    /// The codes that mean a full heap of `runtime`: its defaults and those of the table, without
    /// the codes that the table declares plain.
    pub(super) fn of(&self, runtime: TaskRuntime) -> Vec<i32> {
        let named = |wanted: ExitCodeMeaning| {
            self.0
                .iter()
                .filter(move |(_, m)| **m == wanted)
                .map(|(code, _)| *code)
        };
        let mut codes: Vec<i32> = runtime.heap_exit_codes().to_vec();
        codes.retain(|code| !named(ExitCodeMeaning::Plain).any(|plain| plain == *code));
        codes.extend(named(ExitCodeMeaning::Heap));
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

fn meanings(value: &DeValue<'_>) -> Result<BTreeMap<i32, ExitCodeMeaning>, String> {
    let table = value.as_table().ok_or_else(|| {
        format!(
            "this is {}, not a table of exit codes",
            toml_reader::kind(value)
        )
    })?;
    let one = |(key, value): (
        &toml::Spanned<std::borrow::Cow<'_, str>>,
        &toml::Spanned<DeValue<'_>>,
    )| {
        let word = key.get_ref();
        let code: i32 = word
            .parse()
            .ok()
            .filter(|n| (1..=255).contains(n))
            .ok_or_else(|| format!("{word:?} is not an exit code from 1 to 255"))?;
        let meaning = parsed(value.get_ref())?;
        Ok((code, meaning))
    };
    table.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_adds_and_removes_default_exit_codes() {
        let table = ExitCodes(BTreeMap::from([
            (3, ExitCodeMeaning::Plain),
            (52, ExitCodeMeaning::Heap),
            (7, ExitCodeMeaning::Heap),
        ]));
        assert_eq!(table.of(TaskRuntime::Jvm), [7, 52]);
        assert_eq!(table.of(TaskRuntime::Native), [7, 52]);
        assert_eq!(table.of(TaskRuntime::Node), [7, 52, 134]);
        assert_eq!(ExitCodes::default().of(TaskRuntime::Jvm), [3]);
        assert!(ExitCodes::default().of(TaskRuntime::Go).is_empty());
    }
}

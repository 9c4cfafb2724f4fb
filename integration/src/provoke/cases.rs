//! The table of programs: the memory that each exhausts, and their limits.

use headroom_types::{Bytes, SubCause};

use super::Programs;

/// The tools that a program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No tools.
    Nothing,
    /// `java` and `javac`.
    Java,
    /// `node`.
    Node,
    /// `python3`.
    Python,
    /// `go`.
    Go,
}

impl Needs {
    /// The first missing tool on this machine; `None` if all are installed.
    pub fn missing(self) -> Option<&'static str> {
        let programs: &[&'static str] = match self {
            Needs::Nothing => &[],
            Needs::Java => &["java", "javac"],
            Needs::Node => &["node"],
            Needs::Python => &["python3"],
            Needs::Go => &["go"],
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        programs
            .iter()
            .copied()
            .find(|program| !std::env::split_paths(&path).any(|dir| dir.join(program).exists()))
    }
}

/// One program that fails.
#[derive(Clone, Debug)]
pub struct DiagnosisCase {
    /// Its name in the table.
    pub program: &'static str,
    /// The runtime of its memory.
    pub runtime: &'static str,
    /// The sub-cause of its failure.
    pub expected: SubCause,
    /// The tools that it needs.
    pub needs: Needs,
    /// Its limit.
    pub limit: Bytes,
    /// Its heap budget.
    pub heap: Option<Bytes>,
    /// Exit codes that mean a full heap.
    pub codes: &'static [i32],
    /// Its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// The program and its arguments.
    pub command: fn(&Programs) -> Vec<String>,
}

const fn native(
    program: &'static str,
    mib: u64,
    expected: SubCause,
    command: fn(&Programs) -> Vec<String>,
) -> DiagnosisCase {
    let limit = Bytes::from_mib(mib);
    DiagnosisCase {
        program,
        runtime: "native",
        expected,
        needs: Needs::Nothing,
        limit,
        heap: None,
        codes: &[],
        env: &[],
        command,
    }
}

/// A JVM with this heap and this limit.
const fn jvm(
    program: &'static str,
    (heap, mib): (u64, u64),
    expected: SubCause,
    command: fn(&Programs) -> Vec<String>,
) -> DiagnosisCase {
    DiagnosisCase {
        runtime: "jvm",
        needs: Needs::Java,
        heap: Some(Bytes::from_mib(heap)),
        codes: &[3],
        ..native(program, mib, expected, command)
    }
}

fn own(p: &Programs, words: &[&str]) -> Vec<String> {
    let program = p.native.display().to_string();
    std::iter::once(program)
        .chain(words.iter().map(|w| (*w).to_owned()))
        .collect()
}

fn java(p: &Programs, flags: &str, what: &str) -> Vec<String> {
    let usual = ["java", "-XX:+ExitOnOutOfMemoryError", "-cp"].map(str::to_owned);
    let classes = p.classes.display().to_string();
    let flags = flags.split_whitespace().map(str::to_owned);
    usual
        .into_iter()
        .chain([classes])
        .chain(flags)
        .chain(["Provoke".to_owned(), what.to_owned()])
        .collect()
}

fn script(program: &str, p: &Programs, file: &str, what: &str) -> Vec<String> {
    let file = p.sources.join(file).display().to_string();
    let dir = p.dir.display().to_string();
    vec![program.to_owned(), file, what.to_owned(), dir]
}

fn go_program(p: &Programs, what: &str) -> Vec<String> {
    vec![p.go.display().to_string(), what.to_owned()]
}

/// All programs.
pub fn cases() -> Vec<DiagnosisCase> {
    jvm_cases().into_iter().chain(other_cases()).collect()
}

fn jvm_cases() -> Vec<DiagnosisCase> {
    use SubCause::{
        BudgetNotPassed, CacheBeyondOld, CodeCache, DirectBuffers, GcBound, HeapFragmented,
        LiveHeap, Metaspace, OwnLimit, ThreadStacks,
    };
    vec![
        jvm("live-heap", (64, 224), LiveHeap, |p| {
            java(p, "-Xmx64m -XX:+UseG1GC", "live")
        }),
        jvm("humongous", (64, 224), HeapFragmented, |p| {
            java(p, "-Xmx64m -XX:+UseG1GC", "humongous")
        }),
        jvm("humongous-gc-log", (64, 224), HeapFragmented, |p| {
            java(p, "-Xmx64m -XX:+UseG1GC -Xlog:gc*", "humongous")
        }),
        jvm("cache", (64, 224), CacheBeyondOld, |p| {
            java(p, "-Xmx64m -XX:+UseSerialGC", "cache")
        }),
        jvm("gc-bound", (48, 224), GcBound, |p| {
            java(p, "-Xmx48m -XX:+UseSerialGC", "gc-bound")
        }),
        jvm("gc-overhead-limit", (48, 224), GcBound, |p| {
            java(p, "-Xmx48m -XX:+UseParallelGC", "gc-bound")
        }),
        jvm("budget-not-passed", (32, 128), BudgetNotPassed, |p| {
            java(p, "-Xmx400m -XX:+UseSerialGC", "live")
        }),
        jvm("direct-buffers", (48, 160), DirectBuffers, |p| {
            java(
                p,
                "-Xmx48m -XX:+UseSerialGC -XX:MaxDirectMemorySize=1g",
                "direct",
            )
        }),
        jvm("direct-buffers-capped", (48, 224), OwnLimit, |p| {
            java(
                p,
                "-Xmx48m -XX:+UseSerialGC -XX:MaxDirectMemorySize=24m",
                "direct",
            )
        }),
        jvm("thread-stacks", (32, 160), ThreadStacks, |p| {
            java(p, "-Xmx32m -XX:+UseSerialGC", "threads")
        }),
        jvm("metaspace", (48, 160), Metaspace, |p| {
            java(p, "-Xmx48m -XX:+UseSerialGC", "metaspace")
        }),
        jvm("metaspace-capped", (48, 224), OwnLimit, |p| {
            java(
                p,
                "-Xmx48m -XX:+UseSerialGC -XX:MaxMetaspaceSize=16m",
                "metaspace",
            )
        }),
        jvm("code-cache", (32, 112), CodeCache, |p| {
            let compiler =
                "-Xcomp -XX:-Inline -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m";
            let only = "-XX:CompileCommand=quiet -XX:CompileCommand=compileonly,C*::m*";
            java(
                p,
                &format!("-Xmx32m -XX:+UseSerialGC {compiler} {only}"),
                "code",
            )
        }),
    ]
}

fn other_cases() -> Vec<DiagnosisCase> {
    use SubCause::{
        BesideHeap, ChildProcesses, KernelMemory, LiveHeap, NativeArenas, OwnData, OwnLimit,
        PageCache, Sockets, ThreadStacks, Tmpfs,
    };
    let python = |program, mib, expected, command| DiagnosisCase {
        runtime: "python",
        needs: Needs::Python,
        ..native(program, mib, expected, command)
    };
    let node = |program, mib, expected, command| DiagnosisCase {
        runtime: "node",
        needs: Needs::Node,
        heap: Some(Bytes::from_mib(48)),
        codes: &[134],
        env: &[("NODE_OPTIONS", "--max-old-space-size=48")],
        ..native(program, mib, expected, command)
    };
    // The diagnosis cannot distinguish goroutine stacks and mapped blocks from other data. It only
    // must not assign a cause with a different cure.
    let go = |program, mib, command| DiagnosisCase {
        runtime: "go",
        needs: Needs::Go,
        env: &[("GOMEMLIMIT", "230MiB"), ("GOMAXPROCS", "1")],
        ..native(program, mib, OwnData, command)
    };
    vec![
        native("own-data", 64, OwnData, |p| own(p, &["own-data"])),
        native("native-arenas", 96, NativeArenas, |p| own(p, &["arenas"])),
        native("child-processes", 64, ChildProcesses, |p| {
            own(p, &["children"])
        }),
        native("native-threads", 96, ThreadStacks, |p| own(p, &["threads"])),
        native("tmpfs", 64, Tmpfs, |p| {
            own(p, &["tmpfs", &p.in_memory.display().to_string()])
        }),
        native("sockets", 64, Sockets, |p| own(p, &["sockets"])),
        python("python-data", 64, OwnData, |p| {
            script("python3", p, "provoke.py", "data")
        }),
        python("python-memory-error", 128, OwnLimit, |p| {
            script("python3", p, "provoke.py", "limited")
        }),
        python("locked-files", 96, PageCache, |p| {
            script("python3", p, "provoke.py", "locked")
        }),
        python("page-tables", 64, KernelMemory, |p| {
            script("python3", p, "provoke.py", "sparse")
        }),
        go("go-heap", 256, |p| go_program(p, "heap")),
        go("go-goroutines", 128, |p| go_program(p, "goroutines")),
        go("go-off-heap", 128, |p| go_program(p, "off-heap")),
        DiagnosisCase {
            expected: OwnLimit,
            ..go("go-out-of-memory", 256, |p| go_program(p, "limited"))
        },
        node("node-heap", 256, LiveHeap, |p| {
            script("node", p, "provoke.js", "heap")
        }),
        node("node-buffers", 160, BesideHeap, |p| {
            script("node", p, "provoke.js", "buffers")
        }),
    ]
}

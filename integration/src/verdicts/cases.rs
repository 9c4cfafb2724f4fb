//! The cases, grouped by the cause of the end: the kernel, an operator, or a runtime.

use headroom_types::{Dimension, ExitReason as R};

use super::case::{
    ALL, CaseAction, CaseFrequency, ExpectedVerdict, KERNEL, Program as P, Runtime, Stage, V2,
    VerdictCase,
};

const NATIVE: Option<Dimension> = Some(Dimension::Native);
const HEAP: Option<Dimension> = Some(Dimension::Heap);
const OVERHEAD: Option<Dimension> = Some(Dimension::Overhead);
const OVER: ExpectedVerdict = ExpectedVerdict::Is(R::OverheadOom, NATIVE);
const ENDED: ExpectedVerdict = ExpectedVerdict::Is(R::Exit { code: 0 }, None);
const OUTSIDE: ExpectedVerdict = ExpectedVerdict::Is(R::KilledExternally, None);

/// The defaults of a case: a small container, each round, no action.
const PLAIN: VerdictCase = VerdictCase {
    name: "",
    on: ALL,
    stage: Stage::Roomy,
    pace: CaseFrequency::Every,
    mib: 16,
    program: P::Steps(&[]),
    act: CaseAction::None,
    right: OVER,
};

const fn case(
    name: &'static str,
    steps: &'static [&'static str],
    right: ExpectedVerdict,
) -> VerdictCase {
    VerdictCase {
        name,
        program: P::Steps(steps),
        right,
        ..PLAIN
    }
}

/// All cases.
pub(super) fn all() -> Vec<VerdictCase> {
    [
        own_limit(),
        own_limit_on_stages(),
        other_limits(),
        people(),
        no_matter(),
        jvm_reports(),
        other_reports(),
        stuck(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn own_limit() -> Vec<VerdictCase> {
    vec![
        case("root process killed", &["hog:64"], OVER),
        case(
            "child killed, root goes on",
            &["outlive:hog:64", "sleep:30000", "exit:0"],
            OVER,
        ),
        VerdictCase {
            on: KERNEL,
            ..case(
                "child killed, root exits 1",
                &["child:hog:64", "exit:1"],
                OVER,
            )
        },
        VerdictCase {
            on: V2,
            ..case(
                "group kill off, root exits 137",
                &["alone", "child:hog:64"],
                OVER,
            )
        },
        VerdictCase {
            on: V2,
            ..case(
                "group kill off, root exits 0",
                &["alone", "outlive:hog:64", "exit:0"],
                ENDED,
            )
        },
        VerdictCase {
            on: KERNEL,
            mib: 1,
            ..case("in the first 10 ms", &["hog:64"], OVER)
        },
        VerdictCase {
            pace: CaseFrequency::Tenth,
            mib: 64,
            ..case("100 processes", &["sleepers:100", "hog:128"], OVER)
        },
        VerdictCase {
            on: KERNEL,
            ..case("tmpfs filled", &["tmpfs:64"], OVER)
        },
        VerdictCase {
            on: KERNEL,
            ..case("socket buffers filled", &["sockets:64"], OVER)
        },
    ]
}

/// Kills at the own limit beside many containers, with swap, and during a crash or a stop.
fn own_limit_on_stages() -> Vec<VerdictCase> {
    vec![
        VerdictCase {
            stage: Stage::Burst,
            mib: 8,
            on: KERNEL,
            ..case("100 containers at once", &["hog:64"], OVER)
        },
        VerdictCase {
            stage: Stage::Swapped,
            on: V2,
            ..case("swap present", &["hog:64"], OVER)
        },
        VerdictCase {
            stage: Stage::Fragile,
            act: CaseAction::CrashAsItContinues,
            ..case(
                "agent killed in mid-OOM",
                &["take:4", "ready", "await-go", "hog:64"],
                OVER,
            )
        },
        VerdictCase {
            act: CaseAction::StopAsItContinues,
            ..case(
                "stop and OOM race",
                &["hold-term", "take:4", "ready", "await-go", "hog:64"],
                ExpectedVerdict::StopOrKill,
            )
        },
        VerdictCase {
            act: CaseAction::Stop,
            on: KERNEL,
            ..case(
                "OOM while it stops",
                &["hold-term", "ready", "await-term", "hog:64"],
                ExpectedVerdict::Is(R::Stopped, None),
            )
        },
    ]
}

fn other_limits() -> Vec<VerdictCase> {
    let ancestor = ExpectedVerdict::Is(R::AncestorOom, None);
    let tasks = |name, count, mib, steps, right| VerdictCase {
        program: P::Tasks(count, mib, steps),
        mib: 320,
        ..case(name, &[], right)
    };
    vec![
        VerdictCase {
            pace: CaseFrequency::Tenth,
            ..tasks(
                "tasks of an executor, 16 at once",
                16,
                8,
                &["hog:12"],
                ExpectedVerdict::EachTask(R::TaskOom, NATIVE),
            )
        },
        VerdictCase {
            on: KERNEL,
            mib: 96,
            ..tasks(
                "task dies for its container's limit",
                1,
                512,
                &["hog:128"],
                ExpectedVerdict::TaskOrExecutor,
            )
        },
        tasks(
            "task killed by itself",
            1,
            32,
            &["take:4", "raise:9"],
            ExpectedVerdict::EachTask(R::KilledExternally, None),
        ),
        VerdictCase {
            on: KERNEL,
            program: P::Executor(&["task:8,hog:64"]),
            mib: 32,
            ..case(
                "task's cgroup the victim, root lives",
                &[],
                ExpectedVerdict::TaskVictim,
            )
        },
        VerdictCase {
            on: KERNEL,
            stage: Stage::Fenced,
            mib: 512,
            ..case("limit of all containers", &["hog:128"], ancestor)
        },
        VerdictCase {
            on: V2,
            stage: Stage::Nested,
            mib: 512,
            ..case("limit above the node", &["hog:128"], ancestor)
        },
        VerdictCase {
            on: V2,
            stage: Stage::Starved,
            mib: 2048,
            ..case(
                "host out of memory",
                &["hog:1024"],
                ExpectedVerdict::Is(R::NodeOom, None),
            )
        },
    ]
}

fn people() -> Vec<VerdictCase> {
    vec![
        VerdictCase {
            act: CaseAction::Kill,
            ..case(
                "SIGKILL from outside",
                &["take:4", "ready", "sleep:30000"],
                OUTSIDE,
            )
        },
        VerdictCase {
            act: CaseAction::Kill,
            on: KERNEL,
            ..case(
                "SIGKILL from outside, cache at its limit",
                &["cache:SCRATCH,32,1", "ready", "sleep:30000"],
                OUTSIDE,
            )
        },
        VerdictCase {
            act: CaseAction::KillAll,
            ..case(
                "whole cgroup killed from outside",
                &["sleepers:4", "ready", "sleep:30000"],
                OUTSIDE,
            )
        },
        VerdictCase {
            act: CaseAction::Stop,
            ..case(
                "stopped",
                &["ready", "sleep:30000"],
                ExpectedVerdict::Is(R::Stopped, None),
            )
        },
    ]
}

fn no_matter() -> Vec<VerdictCase> {
    vec![
        VerdictCase {
            on: KERNEL,
            ..case("page cache only", &["cache:SCRATCH,48,3", "exit:0"], ENDED)
        },
        VerdictCase {
            on: KERNEL,
            program: P::Few(32, &["bomb:64"]),
            mib: 64,
            ..case(
                "fork bomb",
                &[],
                ExpectedVerdict::Is(R::Exit { code: 11 }, None),
            )
        },
        case(
            "exit 137 by itself",
            &["exit:137"],
            ExpectedVerdict::Is(R::Exit { code: 137 }, None),
        ),
        case(
            "abort by itself",
            &["raise:6"],
            ExpectedVerdict::Is(R::Signal { signal: 6 }, None),
        ),
        case("ends well", &["take:4", "exit:0"], ENDED),
    ]
}

/// A JVM with a short start.
macro_rules! java {
    ($mode:literal $(, $flag:literal)*) => {
        Runtime::Java(&["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k" $(, $flag)*], $mode)
    };
}

fn runtime(
    name: &'static str,
    runtime: Runtime,
    heap: u64,
    codes: &'static [i32],
    right: ExpectedVerdict,
) -> VerdictCase {
    VerdictCase {
        name,
        pace: CaseFrequency::Tenth,
        mib: 256,
        program: P::Runtime(runtime, heap, codes),
        right,
        ..PLAIN
    }
}

const NODE_FILLS: &str = "const a = []; for (;;) a.push(new Array(1000).fill(1.5));";
const PYTHON_FILLS: &str = "import resource, sys\nn = int(sys.argv[1]) << 20\nresource.setrlimit(resource.RLIMIT_AS, (n, n))\n\
                            kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))\n";

/// A JVM that runs out of memory and reports it, or is killed.
fn jvm_reports() -> Vec<VerdictCase> {
    let (heap, overhead) = (
        ExpectedVerdict::Is(R::HeapOom, HEAP),
        ExpectedVerdict::Is(R::OverheadOom, OVERHEAD),
    );
    let exits = java!("heap", "-Xmx24m", "-XX:+ExitOnOutOfMemoryError");
    let aborts = java!(
        "heap",
        "-Xmx24m",
        "-XX:+CrashOnOutOfMemoryError",
        "-XX:-CreateCoredumpOnCrash"
    );
    let direct = java!("direct", "-Xmx24m", "-XX:MaxDirectMemorySize=8m");
    let off_heap = java!("direct", "-Xmx24m", "-XX:MaxDirectMemorySize=1g");
    let too_large = VerdictCase {
        on: KERNEL,
        mib: 128,
        ..runtime(
            "JVM killed, heap beyond its budget",
            java!("heap", "-Xmx512m"),
            64,
            &[3],
            heap,
        )
    };
    vec![
        runtime("JVM heap, exit 3", exits, 24, &[3], heap),
        runtime(
            "JVM heap, exit 52 as Spark's",
            java!("caught52", "-Xmx24m"),
            24,
            &[52],
            heap,
        ),
        runtime("JVM heap, abort 134", aborts, 24, &[3], heap),
        runtime(
            "JVM heap, uncaught, exit 1",
            java!("heap", "-Xmx24m"),
            24,
            &[3],
            heap,
        ),
        runtime("JVM direct buffers, exit 1", direct, 24, &[3], overhead),
        VerdictCase {
            on: KERNEL,
            mib: 96,
            ..runtime(
                "JVM killed for direct buffers",
                off_heap,
                24,
                &[3],
                overhead,
            )
        },
        too_large,
    ]
}

/// Programs of other runtimes that report full memory.
fn other_reports() -> Vec<VerdictCase> {
    let heap = ExpectedVerdict::Is(R::HeapOom, HEAP);
    vec![
        runtime(
            "Node heap, abort",
            Runtime::Node(&["--max-old-space-size=32"], NODE_FILLS),
            32,
            &[],
            heap,
        ),
        runtime(
            "Node heap, 134 through a shell",
            Runtime::NodeInShell(NODE_FILLS),
            32,
            &[134],
            heap,
        ),
        runtime(
            "Python MemoryError",
            Runtime::Python(PYTHON_FILLS, "160"),
            0,
            &[],
            ExpectedVerdict::Is(R::Exit { code: 1 }, None),
        ),
        runtime(
            "Go out of memory, exit 2",
            Runtime::Go("limited"),
            0,
            &[],
            ExpectedVerdict::Is(R::Exit { code: 2 }, None),
        ),
        case(
            "marker file",
            &["marker:arena_exhausted", "exit:9"],
            ExpectedVerdict::Is(R::HeapOom, NATIVE),
        ),
    ]
}

/// Allocates memory, maps a file that does not fit beside it, and touches all of its pages again
/// and again. The order is scattered, as for code: with sequential access the kernel reads ahead
/// and no access has to wait.
const PYTHON_MAPS: &str = "import mmap, os, sys, tempfile, time\n\
    held, mapped, seconds = (int(n) for n in sys.argv[1].split(','))\n\
    kept = b'\\1' * (held << 20)\n\
    file = tempfile.TemporaryFile(dir=os.environ['SCRATCH'])\n\
    for _ in range(mapped):\n    file.write(b'\\2' * (1 << 20))\n    file.flush()\n    os.fsync(file.fileno())\n\
    pages = mmap.mmap(file.fileno(), mapped << 20, prot=mmap.PROT_READ)\n\
    print('started', int(time.time() * 1000), file=sys.stderr, flush=True)\n\
    end = time.time() + seconds\n\
    while time.time() < end:\n    for i in range(mapped << 8):\n        pages[(i * 7919 % (mapped << 8)) << 12]\n\
    \x20       if not i & 255 and time.time() > end:\n            break\n";

fn stuck() -> Vec<VerdictCase> {
    let maps = |name, argument, right| VerdictCase {
        on: KERNEL,
        pace: CaseFrequency::Hundredth,
        mib: 96,
        ..runtime(name, Runtime::Python(PYTHON_MAPS, argument), 0, &[], right)
    };
    // The heap is allocated at the start and never full; the rest is too small for the JVM's own
    // code.
    let churn = Runtime::OwnJava(
        &[
            "-Xms200m",
            "-Xmx200m",
            "-XX:+AlwaysPreTouch",
            "-XX:+UseSerialGC",
        ],
        "churn",
    );
    let stalled = ExpectedVerdict::Is(R::StalledAtLimit, OVERHEAD);
    let near = Runtime::ColdJava(&["-Xmx248m", "-XX:+ExitOnOutOfMemoryError"], "near");
    vec![
        maps(
            "stuck: mapped file, no room for it",
            "72,64,60",
            ExpectedVerdict::Is(R::StalledAtLimit, NATIVE),
        ),
        maps("not stuck: mapped file, little held", "4,128,8", ENDED),
        VerdictCase {
            on: KERNEL,
            pace: CaseFrequency::Hundredth,
            ..runtime("JVM, no room for its own code", churn, 200, &[3], stalled)
        },
        VerdictCase {
            on: KERNEL,
            pace: CaseFrequency::Hundredth,
            ..runtime(
                "JVM -Xmx248m under 256 MiB",
                near,
                248,
                &[3],
                ExpectedVerdict::StuckOrDead,
            )
        },
    ]
}

/// A container within its limit, beside one that exhausts the memory. It must survive.
pub(super) fn unaffected_neighbour() -> VerdictCase {
    case(
        "unaffected neighbour",
        &["take:4", "ready", "await-go", "exit:0"],
        ENDED,
    )
}

//! The cases, grouped by the cause of the end: the kernel, an operator, or a runtime.

use headroom_types::{Dimension, ExitReason as R};

use super::case::{ALL, Act, Case, KERNEL, Pace, Program as P, Right, Runtime, Stage, V2};

const NATIVE: Option<Dimension> = Some(Dimension::Native);
const HEAP: Option<Dimension> = Some(Dimension::Heap);
const OVERHEAD: Option<Dimension> = Some(Dimension::Overhead);
const OVER: Right = Right::Is(R::OverheadOom, NATIVE);
const ENDED: Right = Right::Is(R::Exit { code: 0 }, None);
const OUTSIDE: Right = Right::Is(R::KilledExternally, None);

/// The defaults of a case: a small container, each round, no action.
const PLAIN: Case = Case {
    name: "",
    on: ALL,
    stage: Stage::Roomy,
    pace: Pace::Every,
    mib: 16,
    program: P::Steps(&[]),
    act: Act::None,
    right: OVER,
};

const fn case(name: &'static str, steps: &'static [&'static str], right: Right) -> Case {
    Case { name, program: P::Steps(steps), right, ..PLAIN }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    [own_limit(), other_limits(), people(), no_matter(), told(), stuck()].into_iter().flatten().collect()
}

fn own_limit() -> Vec<Case> {
    vec![
        case("root process killed", &["hog:64"], OVER),
        case("child killed, root goes on", &["outlive:hog:64", "sleep:30000", "exit:0"], OVER),
        Case { on: KERNEL, ..case("child killed, root exits 1", &["child:hog:64", "exit:1"], OVER) },
        Case { on: V2, ..case("group kill off, root exits 137", &["alone", "child:hog:64"], OVER) },
        Case { on: V2, ..case("group kill off, root exits 0", &["alone", "outlive:hog:64", "exit:0"], ENDED) },
        Case { on: KERNEL, mib: 1, ..case("in the first 10 ms", &["hog:64"], OVER) },
        Case { pace: Pace::Tenth, mib: 64, ..case("100 processes", &["sleepers:100", "hog:128"], OVER) },
        Case { on: KERNEL, ..case("tmpfs filled", &["tmpfs:64"], OVER) },
        Case { on: KERNEL, ..case("socket buffers filled", &["sockets:64"], OVER) },
        Case { stage: Stage::Herd, mib: 8, on: KERNEL, ..case("100 containers at once", &["hog:64"], OVER) },
        Case { stage: Stage::Swapped, on: V2, ..case("swap present", &["hog:64"], OVER) },
        Case {
            stage: Stage::Fragile,
            act: Act::CrashAtGate,
            ..case("agent killed in mid-OOM", &["take:4", "ready", "gate", "hog:64"], OVER)
        },
        Case {
            act: Act::StopAtGate,
            ..case("stop and OOM race", &["hold-term", "take:4", "ready", "gate", "hog:64"], Right::StopOrKill)
        },
        Case {
            act: Act::Stop,
            on: KERNEL,
            ..case("OOM while it stops", &["hold-term", "ready", "await-term", "hog:64"], Right::Is(R::Stopped, None))
        },
    ]
}

fn other_limits() -> Vec<Case> {
    let ancestor = Right::Is(R::AncestorOom, None);
    let tasks =
        |name, count, mib, steps, right| Case { program: P::Tasks(count, mib, steps), mib: 320, ..case(name, &[], right) };
    vec![
        Case {
            pace: Pace::Tenth,
            ..tasks("tasks of an executor, 16 at once", 16, 8, &["hog:12"], Right::EachTask(R::TaskOom, NATIVE))
        },
        Case { on: KERNEL, mib: 96, ..tasks("task dies for its container's limit", 1, 512, &["hog:128"], Right::TaskOrExecutor) },
        tasks("task killed by itself", 1, 32, &["take:4", "raise:9"], Right::EachTask(R::KilledExternally, None)),
        Case {
            on: KERNEL,
            program: P::Executor(&["task:8,hog:64"]),
            mib: 32,
            ..case("task's cgroup the victim, root lives", &[], Right::TaskVictim)
        },
        Case { on: KERNEL, stage: Stage::Fenced, mib: 512, ..case("limit of all containers", &["hog:128"], ancestor) },
        Case { on: V2, stage: Stage::Nested, mib: 512, ..case("limit above the node", &["hog:128"], ancestor) },
        Case {
            on: V2,
            stage: Stage::Starved,
            mib: 2048,
            ..case("host out of memory", &["hog:1024"], Right::Is(R::NodeOom, None))
        },
    ]
}

fn people() -> Vec<Case> {
    vec![
        Case { act: Act::Kill, ..case("SIGKILL from outside", &["take:4", "ready", "sleep:30000"], OUTSIDE) },
        Case {
            act: Act::Kill,
            on: KERNEL,
            ..case("SIGKILL from outside, cache at its limit", &["cache:SCRATCH,32,1", "ready", "sleep:30000"], OUTSIDE)
        },
        Case { act: Act::KillAll, ..case("whole cgroup killed from outside", &["sleepers:4", "ready", "sleep:30000"], OUTSIDE) },
        Case { act: Act::Stop, ..case("stopped", &["ready", "sleep:30000"], Right::Is(R::Stopped, None)) },
    ]
}

fn no_matter() -> Vec<Case> {
    vec![
        Case { on: KERNEL, ..case("page cache only", &["cache:SCRATCH,48,3", "exit:0"], ENDED) },
        Case {
            on: KERNEL,
            program: P::Few(32, &["bomb:64"]),
            mib: 64,
            ..case("fork bomb", &[], Right::Is(R::Exit { code: 11 }, None))
        },
        case("exit 137 by itself", &["exit:137"], Right::Is(R::Exit { code: 137 }, None)),
        case("abort by itself", &["raise:6"], Right::Is(R::Signal { signal: 6 }, None)),
        case("ends well", &["take:4", "exit:0"], ENDED),
    ]
}

/// A JVM with a short start.
macro_rules! java {
    ($mode:literal $(, $flag:literal)*) => {
        Runtime::Java(&["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k" $(, $flag)*], $mode)
    };
}

fn runtime(name: &'static str, runtime: Runtime, heap: u64, codes: &'static [i32], right: Right) -> Case {
    Case { name, pace: Pace::Tenth, mib: 256, program: P::Runtime(runtime, heap, codes), right, ..PLAIN }
}

const NODE_FILLS: &str = "const a = []; for (;;) a.push(new Array(1000).fill(1.5));";
const PYTHON_FILLS: &str = "import resource, sys\nn = int(sys.argv[1]) << 20\nresource.setrlimit(resource.RLIMIT_AS, (n, n))\n\
                            kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))\n";

fn told() -> Vec<Case> {
    let (heap, overhead) = (Right::Is(R::HeapOom, HEAP), Right::Is(R::OverheadOom, OVERHEAD));
    let exits = java!("heap", "-Xmx24m", "-XX:+ExitOnOutOfMemoryError");
    let aborts = java!("heap", "-Xmx24m", "-XX:+CrashOnOutOfMemoryError", "-XX:-CreateCoredumpOnCrash");
    let direct = java!("direct", "-Xmx24m", "-XX:MaxDirectMemorySize=8m");
    let off_heap = java!("direct", "-Xmx24m", "-XX:MaxDirectMemorySize=1g");
    let too_large =
        Case { on: KERNEL, mib: 128, ..runtime("JVM killed, heap beyond its budget", java!("heap", "-Xmx512m"), 64, &[3], heap) };
    vec![
        runtime("JVM heap, exit 3", exits, 24, &[3], heap),
        runtime("JVM heap, exit 52 as Spark's", java!("caught52", "-Xmx24m"), 24, &[52], heap),
        runtime("JVM heap, abort 134", aborts, 24, &[3], heap),
        runtime("JVM heap, uncaught, exit 1", java!("heap", "-Xmx24m"), 24, &[3], heap),
        runtime("JVM direct buffers, exit 1", direct, 24, &[3], overhead),
        Case { on: KERNEL, mib: 96, ..runtime("JVM killed for direct buffers", off_heap, 24, &[3], overhead) },
        too_large,
        runtime("Node heap, abort", Runtime::Node(&["--max-old-space-size=32"], NODE_FILLS), 32, &[], heap),
        runtime("Node heap, 134 through a shell", Runtime::NodeInShell(NODE_FILLS), 32, &[134], heap),
        runtime("Python MemoryError", Runtime::Python(PYTHON_FILLS, "160"), 0, &[], Right::Is(R::Exit { code: 1 }, None)),
        runtime("Go out of memory, exit 2", Runtime::Go("limited"), 0, &[], Right::Is(R::Exit { code: 2 }, None)),
        case("marker file", &["marker:arena_exhausted", "exit:9"], Right::Is(R::HeapOom, NATIVE)),
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
    print('begun', int(time.time() * 1000), file=sys.stderr, flush=True)\n\
    end = time.time() + seconds\n\
    while time.time() < end:\n    for i in range(mapped << 8):\n        pages[(i * 7919 % (mapped << 8)) << 12]\n\
    \x20       if not i & 255 and time.time() > end:\n            break\n";

fn stuck() -> Vec<Case> {
    let maps = |name, argument, right| Case {
        on: KERNEL,
        pace: Pace::Hundredth,
        mib: 96,
        ..runtime(name, Runtime::Python(PYTHON_MAPS, argument), 0, &[], right)
    };
    // The heap is allocated at the start and never full; the rest is too small for the JVM's own
    // code.
    let churn = Runtime::OwnJava(&["-Xms200m", "-Xmx200m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC"], "churn");
    let stalled = Right::Is(R::StalledAtLimit, OVERHEAD);
    let near = Runtime::ColdJava(&["-Xmx248m", "-XX:+ExitOnOutOfMemoryError"], "near");
    vec![
        maps("stuck: mapped file, no room for it", "72,64,60", Right::Is(R::StalledAtLimit, NATIVE)),
        maps("not stuck: mapped file, little held", "4,128,8", ENDED),
        Case { on: KERNEL, pace: Pace::Hundredth, ..runtime("JVM, no room for its own code", churn, 200, &[3], stalled) },
        Case { on: KERNEL, pace: Pace::Hundredth, ..runtime("JVM -Xmx248m under 256 MiB", near, 248, &[3], Right::StuckOrDead) },
    ]
}

/// A container within its limit, beside one that exhausts the memory. It must survive.
pub(super) fn innocent() -> Case {
    case("innocent beside it", &["take:4", "ready", "gate", "exit:0"], ENDED)
}

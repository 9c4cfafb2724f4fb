//! Programs that show each treatment in a job: the programs of the diagnosis, and some that a
//! treatment cures.

use headroom_types::treatment::usual_treatment;
use headroom_types::{Bytes, SubCause, Treatment};

use crate::guest::in_guest;
use crate::provoke::{Needs, Programs, cases};

/// The expected end of a case's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreatmentEnd {
    /// The task succeeds.
    Cured,
    /// The task fails at once with this text in its message.
    Failed(&'static str),
    /// The program never succeeds; only the size and environment of its second attempt are checked.
    Treated,
}

/// The condition of a case's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCondition {
    /// No special condition.
    Quiet,
    /// The limit of all containers is below the node's memory.
    Fenced,
    /// As `Fenced`, and an ended program has left a file in memory.
    Littered,
    /// A process outside all containers uses nearly all memory of the host. Only in a guest,
    /// because hosts run other programs.
    Starved,
}

/// A job with one task.
#[derive(Clone, Debug)]
pub struct TreatmentCase {
    /// Its name in the table.
    pub program: String,
    /// The sub-cause of its failure.
    pub cause: SubCause,
    /// The expected treatment of its first attempt, as displayed; empty for the default of the
    /// sub-cause.
    pub treatment: &'static str,
    /// The tools that it needs.
    pub needs: Needs,
    /// Number of attempts that the treatment implies.
    pub attempts: usize,
    /// The expected end of its job.
    pub ends: TreatmentEnd,
    /// Memory limit of a task.
    pub limit: Bytes,
    /// Heap of a task, if it has one.
    pub heap: Option<Bytes>,
    /// Keys of its stage besides the command.
    pub stage: String,
    /// The remaining tables of the job file.
    pub rest: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The condition of its node.
    pub place: NodeCondition,
}

impl TreatmentCase {
    /// The first tool or condition that this machine lacks.
    pub fn missing(&self) -> Option<&'static str> {
        let guest = (self.place == NodeCondition::Starved && !in_guest())
            .then_some("host to starve, only guests");
        self.needs.missing().or(guest)
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// All cases. The programs may still be uncompiled.
pub fn all(programs: &Programs) -> Vec<TreatmentCase> {
    let mut all = own_limits(programs);
    all.extend(treated(programs));
    all.extend(run_again());
    all.extend(short_of_something(programs));
    all.extend(outer(programs));
    all.extend(provoked(programs));
    all
}

fn plain(program: &str, cause: SubCause, needs: Needs, command: Vec<String>) -> TreatmentCase {
    TreatmentCase {
        program: program.to_owned(),
        cause,
        treatment: "",
        needs,
        attempts: 1,
        ends: TreatmentEnd::Cured,
        limit: Bytes::from_mib(64),
        heap: None,
        stage: String::new(),
        rest: String::new(),
        command,
        place: NodeCondition::Quiet,
    }
}

fn python(program: &str, cause: SubCause, code: &str) -> TreatmentCase {
    let stage = "runtime = \"python\"".to_owned();
    TreatmentCase {
        stage,
        ..plain(
            program,
            cause,
            Needs::Python,
            words(&["python3", "-c", code]),
        )
    }
}

/// A case that fails at once with this text in its message.
fn failed(case: TreatmentCase, says: &'static str) -> TreatmentCase {
    TreatmentCase {
        ends: TreatmentEnd::Failed(says),
        limit: Bytes::from_mib(288),
        ..case
    }
}

/// A case with a heap of 96 MiB.
fn with_heap(case: TreatmentCase, runtime: &str) -> TreatmentCase {
    TreatmentCase {
        heap: Some(Bytes::from_mib(96)),
        stage: format!("runtime = \"{runtime}\""),
        ..case
    }
}

fn script(text: String) -> Vec<String> {
    words(&["sh", "-c", &text])
}

/// Cases that fail at once.
fn own_limits(p: &Programs) -> Vec<TreatmentCase> {
    let classes = p.classes.display().to_string();
    let java = |flags: &str, what: &str| words(&["java", "-cp", &classes, flags, "Provoke", what]);
    let own = |program, needs, command| plain(program, SubCause::OwnLimit, needs, command);
    let fill = "k=[]\nwhile True: k.append(bytearray(1<<20))";
    let shell = script(format!("ulimit -v 102400; exec python3 -c '{fill}'"));
    let go = script(format!("exec {} limited", p.go.display()));
    let provoke = p.sources.join("provoke.js").display().to_string();
    let node = words(&["node", "--max-old-space-size=32", &provoke, "heap"]);
    let direct = java("-XX:MaxDirectMemorySize=24m", "direct");
    vec![
        failed(
            TreatmentCase {
                stage: "runtime = \"python\"".into(),
                ..own("ulimit-v", Needs::Python, shell)
            },
            "ulimit -v",
        ),
        failed(
            TreatmentCase {
                stage: "runtime = \"go\"".into(),
                ..own("go-ulimit-v", Needs::Go, go)
            },
            "RLIMIT_AS",
        ),
        with_heap(
            failed(
                own("xmx-by-hand", Needs::Java, java("-Xmx32m", "live")),
                "-Xmx",
            ),
            "jvm",
        ),
        with_heap(
            failed(
                own("direct-by-hand", Needs::Java, direct),
                "MaxDirectMemorySize",
            ),
            "jvm",
        ),
        with_heap(
            failed(
                own("old-space-by-hand", Needs::Node, node),
                "--max-old-space-size",
            ),
            "node",
        ),
        failed(
            python(
                "impossible",
                SubCause::ImpossibleRequest,
                "bytearray(1 << 40)",
            ),
            "request less at once",
        ),
    ]
}

/// Cases that a treatment cures, and a leak.
fn treated(p: &Programs) -> Vec<TreatmentCase> {
    let native = |program, cause, arguments: &[&str]| {
        let path = p.native.display().to_string();
        let command = std::iter::once(path).chain(words(arguments)).collect();
        TreatmentCase {
            attempts: 2,
            ..plain(program, cause, Needs::Nothing, command)
        }
    };
    let leak = "import time\nk=[]\nwhile True:\n k.append(b'x' * (1 << 20))\n time.sleep(0.05)";
    let data =
        "import time\nk=[]\nfor n in range(90):\n k.append(b'x' * (1 << 20))\n time.sleep(0.008)";
    let leak = TreatmentCase {
        // The sizes are 48, 96, 144 and 288 MiB. The last is more than four times the first.
        attempts: 4,
        treatment: "grow memory",
        limit: Bytes::from_mib(48),
        ends: TreatmentEnd::Failed("(leak)"),
        ..python("leak", SubCause::Leak, leak)
    };
    let arenas = native("idle-arenas", SubCause::NativeArenas, &["idle-arenas"]);
    let files = native("temporary-files", SubCause::Tmpfs, &["temporary", "120"]);
    vec![
        leak,
        TreatmentCase {
            attempts: 2,
            ..python("larger-data", SubCause::OwnData, data)
        },
        TreatmentCase {
            stage: "runtime_flags = \"none\"".to_owned(),
            ..arenas
        },
        native("thread-pool", SubCause::ThreadStacks, &["pool"]),
        TreatmentCase {
            stage: "env = { TMPDIR = \"/dev/shm\" }".to_owned(),
            ..files
        },
    ]
}

/// Failures unrelated to the program's memory. The task runs again, elsewhere or on the same node.
fn run_again() -> Vec<TreatmentCase> {
    let first_ends = |how: &str| script(format!("[ {{attempt}} = 1 ] && {how}; exit 0"));
    let twice = |program, cause, command| TreatmentCase {
        attempts: 2,
        ..plain(program, cause, Needs::Nothing, command)
    };
    let rest = "[retry]\nmax_attempts = 2\n".to_owned();
    let missing = twice(
        "no-such-program",
        SubCause::NotStarted,
        words(&["/nowhere/no-such-program"]),
    );
    vec![
        twice(
            "killed-from-outside",
            SubCause::FromOutside,
            first_ends("kill -9 $$"),
        ),
        twice("exit-137", SubCause::Code137, first_ends("exit 137")),
        TreatmentCase {
            rest,
            ends: TreatmentEnd::Failed("its program does not exist"),
            ..missing
        },
    ]
}

/// Memory of a JVM beside its heap, threads that the host refuses, and files in memory.
fn short_of_something(p: &Programs) -> Vec<TreatmentCase> {
    let (classes, file) = (
        p.classes.display(),
        p.sources.join("provoke.py").display().to_string(),
    );
    let java = |flags: &str, what: &str| {
        script(format!(
            "exec java -XX:+ExitOnOutOfMemoryError -cp {classes} {flags} Provoke {what}"
        ))
    };
    let rest = "[retry]\nmax_attempts = 2\nmemory_attempts = 2\ncap = \"1GiB\"\n".to_owned();
    let jvm = |program, cause, mib, command| TreatmentCase {
        limit: Bytes::from_mib(mib),
        heap: Some(Bytes::from_mib(160)),
        stage: "runtime = \"jvm\"\nruntime_flags = \"none\"".to_owned(),
        rest: rest.clone(),
        attempts: 2,
        ends: TreatmentEnd::Treated,
        ..plain(program, cause, Needs::Java, command)
    };
    let piped = script(format!(
        "[ {{attempt}} = 1 ] || exit 0; exec python3 {file} piped ."
    ));
    let mapped = words(&["python3", &file, "mapped", "."]);
    vec![
        jvm(
            "idle-heap",
            SubCause::HeapIdle,
            256,
            java(
                "-Xms160m -Xmx160m -XX:+AlwaysPreTouch -XX:+UseSerialGC",
                "beside",
            ),
        ),
        jvm(
            "too-many-threads",
            SubCause::ThreadLimit,
            640,
            java("-Xmx160m -XX:+UseSerialGC", "sleepers"),
        ),
        TreatmentCase {
            attempts: 2,
            ..python_program("files-in-pipes", SubCause::PageCache, piped)
        },
        TreatmentCase {
            attempts: 2,
            limit: Bytes::from_mib(96),
            ..python_program("no-room-for-files", SubCause::Thrashing, mapped)
        },
    ]
}

fn python_program(program: &str, cause: SubCause, command: Vec<String>) -> TreatmentCase {
    TreatmentCase {
        stage: "runtime = \"python\"".to_owned(),
        ..plain(program, cause, Needs::Python, command)
    }
}

/// Cases in which the first attempt is killed for a limit outside the task.
fn outer(p: &Programs) -> Vec<TreatmentCase> {
    let fill = script(format!(
        "[ {{attempt}} = 1 ] || exit 0; exec {} own-data",
        p.native.display()
    ));
    let on = |program, cause, place| TreatmentCase {
        attempts: 2,
        limit: Bytes::from_mib(288),
        place,
        ..plain(program, cause, Needs::Nothing, fill.clone())
    };
    vec![
        on("outer-limit", SubCause::OuterLimit, NodeCondition::Fenced),
        on(
            "left-in-memory",
            SubCause::Leftover,
            NodeCondition::Littered,
        ),
        on(
            "host-out-of-memory",
            SubCause::HostMemory,
            NodeCondition::Starved,
        ),
    ]
}

/// The programs of the diagnosis, each as a task with two attempts.
fn provoked(p: &Programs) -> Vec<TreatmentCase> {
    let one = |case: crate::provoke::DiagnosisCase| {
        let row = usual_treatment(case.expected);
        let fails = row.first == Treatment::Fail;
        let env: Vec<String> = case
            .env
            .iter()
            .map(|(name, value)| format!("{name} = {value:?}"))
            .collect();
        let stage = format!(
            "runtime = {:?}\nruntime_flags = \"none\"\nenv = {{ {} }}",
            case.runtime,
            env.join(", ")
        );
        TreatmentCase {
            program: case.program.to_owned(),
            cause: case.expected,
            treatment: "",
            needs: case.needs,
            attempts: if fails { 1 } else { 2 },
            ends: if fails {
                TreatmentEnd::Failed("limit")
            } else {
                TreatmentEnd::Treated
            },
            limit: case.limit,
            heap: case.heap,
            stage,
            // The cap limits the last attempt, because some programs take very long to fill a node.
            rest: format!(
                "[retry]\nmax_attempts = 2\nmemory_attempts = 2\ncap = \"{}B\"\n",
                case.limit.mul_ratio(2, 1).get()
            ),
            command: (case.command)(p),
            place: NodeCondition::Quiet,
        }
    };
    // The locked memory limit of tasks is too low for that program, so it would end differently.
    cases()
        .into_iter()
        .filter(|case| case.expected != SubCause::PageCache)
        .map(one)
        .collect()
}

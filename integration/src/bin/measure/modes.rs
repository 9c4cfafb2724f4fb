//! A comparison of all modes on a real kernel, with stages that fail for memory. One stage has the
//! twenty tasks of Uber's figure. The other resembles Pinterest's: one task in fifty is heavy, with
//! a Pareto tail. It runs with declared input sizes and without.
//!
//! A further stage consists of JVMs, some of which need heap and some memory beside it. It compares
//! two methods: heap and overhead are learned and raised separately, or one parameter sets the heap
//! and a tenth of it as overhead, and both double after a kill.
//!
//! Each mode runs as in its origin: `headroom` limits each task, the others limit the executor, as
//! Spark does. In addition, `headroom` runs with limits of the executor. Native tasks allocate
//! their memory in 0.3 s and keep it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::{AppId, Bytes, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, MemoryFailureMode, TaskState};
use integration::cluster::{Cluster, NodeShape, ran, until};
use integration::programs;

use crate::progress;

/// Timeout of one job.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Share of one slot in MiB. An executor has four slots.
const SHARE: u32 = 64;
/// Number of JVMs in their stage.
const JVMS: u32 = 40;
/// Arguments of `Hog` for each JVM: most need a small heap, one in ten a large heap, one in ten
/// much memory beside it.
const NEEDS: [&str; 10] = [
    "heap 24",
    "heap 24",
    "heap 24",
    "direct 110",
    "heap 24",
    "heap 24",
    "heap 24",
    "heap 160",
    "heap 24",
    "heap 24",
];
/// The sizings of the JVMs, with heap and overhead of the first size in MiB. The larger single
/// parameter is the smallest with which the usual task runs: a JVM uses about 45 MiB beside its
/// heap.
const SIZINGS: [(&str, MemoryFailureMode, u32, u32); 3] = [
    ("jvm", MemoryFailureMode::Headroom, 64, 64),
    ("jvm-one-knob", MemoryFailureMode::Databricks, 480, 48),
    (
        "jvm-one-knob-same-size",
        MemoryFailureMode::Databricks,
        116,
        12,
    ),
];

/// Results.
#[derive(Debug, serde::Serialize)]
pub(crate) struct ModeResults {
    runs: Vec<Run>,
}

/// The results of one stage in one mode.
#[derive(Debug, serde::Serialize)]
struct Run {
    stage: &'static str,
    mode: MemoryFailureMode,
    growth: bool,
    enforce: Holds,
    /// Attempts that ended for lack of memory, of the task itself or of a task beside it.
    kills: u32,
    /// Attempts of tasks within their size that were killed together with others.
    collateral_kills: u32,
    /// Failed tasks.
    lost: usize,
    allocated_gib_s: f64,
    /// Sum of the peak of each attempt times its run time.
    used_gib_s: f64,
    rerun_gib_s: f64,
    makespan_s: f64,
}

/// The object with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Holds {
    Task,
    Executor,
}

/// The mode, whether tasks grow, and the object with a limit.
type Way = (MemoryFailureMode, bool, Holds);

/// A stage: the need of each task in MiB, and whether the job declares the sizes of their inputs.
struct Stage {
    name: &'static str,
    needs: Vec<u32>,
    declares_inputs: bool,
}

/// Runs all stages with `only` in their name, in all modes.
pub(crate) fn measure(only: &str) -> Result<ModeResults> {
    let shape = NodeShape {
        memory: Bytes::from_mib(3072),
        cpus: 16,
        enforcer: None,
    };
    let cluster = Cluster::start(&[shape])?;
    let mut runs = Vec::new();
    for stage in stages()
        .into_iter()
        .filter(|stage| stage.name.contains(only))
    {
        let usual = |mode| {
            (
                mode,
                false,
                if mode == MemoryFailureMode::Headroom {
                    Holds::Task
                } else {
                    Holds::Executor
                },
            )
        };
        let also = [
            (MemoryFailureMode::Headroom, true, Holds::Task),
            (MemoryFailureMode::Headroom, false, Holds::Executor),
        ];
        for way in MemoryFailureMode::ALL.into_iter().map(usual).chain(also) {
            let run = run(&cluster, &stage, way)
                .with_context(|| format!("{} in mode {}", stage.name, way.0.as_str()))?;
            progress::print_line(&format!("{run:?}"));
            runs.push(run);
        }
    }
    let classes = compiled(cluster.dir())?;
    for (stage, mode, heap, overhead) in SIZINGS
        .into_iter()
        .filter(|(stage, ..)| stage.contains(only))
    {
        let app = cluster.submit(&jvms(stage, mode, (heap, overhead), &classes))?;
        let run = run_results(stage, (mode, false, Holds::Task), &ended(&cluster, &app)?)
            .with_context(|| stage.to_owned())?;
        progress::print_line(&format!("{run:?}"));
        runs.push(run);
    }
    Ok(ModeResults { runs })
}

/// Compiles the program of the JVM stage once, so that no task compiles it.
fn compiled(dir: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/examples/jvm/Hog.java");
    let ran = ran({
        let mut javac = Command::new("javac");
        javac.arg("-d").arg(dir).arg(source);
        javac
    })?;
    ensure!(ran.code == 0, "javac: {}", ran.stderr);
    Ok(dir.to_owned())
}

/// A job with one executor of four slots. A task selects its arguments by its index.
fn jvms(
    name: &str,
    mode: MemoryFailureMode,
    (heap, overhead): (u32, u32),
    classes: &Path,
) -> String {
    let needs: Vec<String> = NEEDS.iter().map(|need| format!("'{need}'")).collect();
    // The heap is fully touched, like a heap that fills between two collections. Its unused part
    // cannot serve memory beside the heap.
    let flags = "-XX:+AlwaysPreTouch -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:MaxDirectMemorySize=1g";
    let (classes, needs, of) = (classes.display(), needs.join(" "), NEEDS.len());
    let script = format!(
        "n=$(($1 % {of})); x=$2; set -- {needs}; shift $n; exec java -Xmx$x -Xms$x {flags} -cp {classes} Hog $1"
    );
    format!(
        "version = 1\nname = \"{name}\"\nmode = \"{}\"\n{}\
         [profiles.exec]\nmemory = \"{}MiB\"\ncpus = 4\n[profiles.task]\nheap = \"{heap}MiB\"\noverhead = \"{overhead}MiB\"\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 4\nreserve = \"32MiB\"\n\
         [[stage]]\nname = \"work\"\ncount = {JVMS}\nprofile = \"task\"\nruntime = \"jvm\"\ngrow = false\nenv = {{ HOG_HOLD_MS = \"500\" }}\n\
         command = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{index}}\", \"{{heap}}\"]\n",
        mode.as_str(),
        if mode == MemoryFailureMode::Headroom {
            "sizes = \"learned\"\n"
        } else {
            ""
        },
        (heap + overhead) * 4 + 32,
    )
}

fn stages() -> Vec<Stage> {
    // The heavy tasks come first, so that they overlap.
    let uber = (0..20).map(|n| if n < 5 { 150 } else { 30 }).collect();
    let skewed: Vec<u32> = (0..200u32)
        .map(|n| {
            if n % 50 == 13 {
                pareto(n / 50)
            } else {
                20 + n % 25
            }
        })
        .collect();
    vec![
        Stage {
            name: "uber",
            needs: uber,
            declares_inputs: false,
        },
        Stage {
            name: "pinterest",
            needs: skewed.clone(),
            declares_inputs: false,
        },
        Stage {
            name: "pinterest-inputs",
            needs: skewed,
            declares_inputs: true,
        },
    ]
}

/// The n-th of four heavy needs: quantiles of a Pareto tail from 90 MiB, with exponent 1. MiB.
fn pareto(n: u32) -> u32 {
    90 * 4 / (4 - n.min(3))
}

fn run(cluster: &Cluster, stage: &Stage, way: Way) -> Result<Run> {
    let app = cluster.submit(&job(stage, way, &cluster.dir().join("work.log"))?)?;
    run_results(stage.name, way, &ended(cluster, &app)?)
}

/// The results of one job.
fn run_results(stage: &'static str, (mode, growth, enforce): Way, end: &AppView) -> Result<Run> {
    let view = end.job.as_ref().context("no job")?;
    let attempts: Vec<&AttemptRow> = view.tasks.iter().flat_map(|task| &task.attempts).collect();
    let (first, last) = (
        attempts.iter().map(|a| a.started).min(),
        attempts.iter().filter_map(|a| a.ended).max(),
    );
    let (Some(first), Some(last)) = (first, last) else {
        bail!("no attempt was made")
    };
    Ok(Run {
        stage,
        mode,
        growth,
        enforce,
        kills: view.totals.memory_kills,
        collateral_kills: view.totals.collateral_reruns,
        lost: view
            .tasks
            .iter()
            .filter(|task| task.state != TaskState::Done)
            .count(),
        allocated_gib_s: gib_s(view.totals.allocated_byte_ms),
        used_gib_s: gib_s(attempts.iter().map(|a| used(a)).sum()),
        rerun_gib_s: gib_s(view.totals.rerun_byte_ms),
        makespan_s: last.since(first).as_secs_f64(),
    })
}

/// Waits for the end. A job that loses a task fails, which some modes are measured for.
fn ended(cluster: &Cluster, app: &AppId) -> Result<AppView> {
    until("the job to end", TIMEOUT, || {
        Ok(cluster.app(app).ok().filter(|view| view.state.is_final()))
    })
}

fn used(attempt: &AttemptRow) -> u128 {
    let ran = |end: UnixMillis| end.since(attempt.started).as_millis();
    u128::from(attempt.peak.unwrap_or_default().get()) * attempt.ended.map_or(0, ran)
}

#[allow(clippy::cast_precision_loss)] // a rounded number
fn gib_s(byte_ms: u128) -> f64 {
    byte_ms as f64 / f64::from(1u32 << 30) / 1000.0
}

/// A job with two executors of four slots. A task selects its need by its index.
fn job(stage: &Stage, (mode, growth, enforce): Way, log: &Path) -> Result<String> {
    let program = programs::path("workload")?;
    let needs: Vec<String> = stage.needs.iter().map(u32::to_string).collect();
    let (needs, program) = (needs.join(" "), program.display());
    // A task with a declared input size reads that much, otherwise the master does not trust the
    // declaration.
    let reads = if stage.declares_inputs {
        "head -c $(($1 * 2))M /dev/zero > /dev/null; "
    } else {
        ""
    };
    let script = format!(
        "n=$1; set -- {needs}; shift $n; {reads}exec {program} run --log {} --mib $1 --over-ms 300",
        log.display()
    );
    let own = mode == MemoryFailureMode::Headroom;
    let mut text = format!(
        "version = 1\nname = \"{}-{}{}{}\"\nmode = \"{}\"\n{}\
         [profiles.exec]\nmemory = \"{}MiB\"\ncpus = 4\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 4\nreserve = \"32MiB\"\n\
         [[stage]]\nname = \"work\"\narray = \"0-{}\"\ncommand = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{index}}\"]\n",
        stage.name,
        mode.as_str(),
        if growth { "-grow" } else { "" },
        if enforce == Holds::Executor {
            "-shared"
        } else {
            ""
        },
        mode.as_str(),
        if own { "sizes = \"learned\"\n" } else { "" },
        SHARE * 4 + 32,
        stage.needs.len().saturating_sub(1),
    );
    if enforce == Holds::Executor {
        text.push_str("enforce = \"executor\"\n");
    }
    text.push_str(if growth {
        "grow = true\n"
    } else {
        "grow = false\n"
    });
    if stage.declares_inputs {
        // Twice the need: proportional to it, but not equal.
        let inputs: Vec<String> = stage
            .needs
            .iter()
            .map(|mib| format!("\"{}MiB\"", mib * 2))
            .collect();
        text.push_str(&format!("input = [{}]\n", inputs.join(", ")));
    }
    Ok(text)
}

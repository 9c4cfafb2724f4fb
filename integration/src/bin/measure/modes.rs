//! Two stages on a real kernel under every way of answering memory failures, side by side: the twenty tasks of Uber's figure, and a stage like
//! Pinterest's, of which one task in fifty is heavy, with a Pareto tail; once with input sizes that tell, once without.
//!
//! And a stage of JVMs, some of which need heap and some memory beside it: learned and raised apart, and by one knob, which sets the heap and a
//! tenth of it for all else, and doubles both after a kill.
//!
//! Each mode runs as where it comes from: `headroom` holds each task to its own limit, the others hold the executor, as Spark does; beside
//! them `headroom` where it holds the executor too. Native tasks that take their memory in a third of a second and keep it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::{AppId, Bytes, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, Mode, TaskState};
use integration::cluster::{Cluster, NodeShape, ran, until};
use integration::programs;

use crate::progress;

/// Longest that one job may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Share of one slot, in MiB. An executor has four.
const SHARE: u32 = 64;
/// JVMs in their stage.
const JVMS: u32 = 40;
/// What a JVM does, as words to `Hog`: most need a little heap, one in ten much heap, one in ten much beside it.
const NEEDS: [&str; 10] =
    ["heap 24", "heap 24", "heap 24", "direct 110", "heap 24", "heap 24", "heap 24", "heap 160", "heap 24", "heap 24"];
/// How the JVMs are sized, with heap and overhead of the first size in MiB. The larger knob is the smallest by which the usual task runs: a
/// JVM takes some 45 MiB beside its heap.
const SIZINGS: [(&str, Mode, u32, u32); 3] = [
    ("jvm", Mode::Headroom, 64, 64),
    ("jvm-one-knob", Mode::Databricks, 480, 48),
    ("jvm-one-knob-same-size", Mode::Databricks, 116, 12),
];

/// What came of all runs.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Figures {
    runs: Vec<Run>,
}

/// One stage under one mode.
#[derive(Debug, serde::Serialize)]
struct Run {
    stage: &'static str,
    mode: Mode,
    growth: bool,
    enforce: Holds,
    /// Attempts that ended for want of memory, of the task's own or of one beside it.
    kills: u32,
    /// Attempts of tasks within their size that died with others.
    innocent_kills: u32,
    /// Tasks that were given up.
    lost: usize,
    allocated_gib_s: f64,
    /// Largest use of each attempt for as long as it ran.
    used_gib_s: f64,
    rerun_gib_s: f64,
    makespan_s: f64,
}

/// What has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Holds {
    Task,
    Executor,
}

/// Mode, whether tasks grow, and what has a limit.
type Way = (Mode, bool, Holds);

/// A stage: what each of its tasks needs, in MiB, and whether the sizes of their inputs are told.
struct Stage {
    name: &'static str,
    needs: Vec<u32>,
    told: bool,
}

/// Runs every stage whose name has `only` in it, under every mode.
pub(crate) fn measure(only: &str) -> Result<Figures> {
    let shape = NodeShape { memory: Bytes::from_mib(3072), cpus: 16, enforcer: None };
    let cluster = Cluster::start(&[shape])?;
    let mut runs = Vec::new();
    for stage in stages().into_iter().filter(|stage| stage.name.contains(only)) {
        let usual = |mode| (mode, false, if mode == Mode::Headroom { Holds::Task } else { Holds::Executor });
        let also = [(Mode::Headroom, true, Holds::Task), (Mode::Headroom, false, Holds::Executor)];
        for way in Mode::ALL.into_iter().map(usual).chain(also) {
            let run = run(&cluster, &stage, way).with_context(|| format!("{} in mode {}", stage.name, way.0.as_str()))?;
            progress::tell(&format!("{run:?}"));
            runs.push(run);
        }
    }
    let classes = compiled(cluster.dir())?;
    for (stage, mode, heap, overhead) in SIZINGS.into_iter().filter(|(stage, ..)| stage.contains(only)) {
        let app = cluster.submit(&jvms(stage, mode, (heap, overhead), &classes))?;
        let run = told(stage, (mode, false, Holds::Task), &ended(&cluster, &app)?).with_context(|| stage.to_owned())?;
        progress::tell(&format!("{run:?}"));
        runs.push(run);
    }
    Ok(Figures { runs })
}

/// The program of the JVM stage as a class: compiled once, not by every task.
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

/// One executor of four slots; a task looks up what it does by its number.
fn jvms(name: &str, mode: Mode, (heap, overhead): (u32, u32), classes: &Path) -> String {
    let needs: Vec<String> = NEEDS.iter().map(|need| format!("'{need}'")).collect();
    // A heap in full use, as one that is filled between two collections: what it does not need is of no use to the rest.
    let flags =
        "-XX:+AlwaysPreTouch -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:MaxDirectMemorySize=1g";
    let (classes, needs, of) = (classes.display(), needs.join(" "), NEEDS.len());
    let script =
        format!("n=$(($1 % {of})); x=$2; set -- {needs}; shift $n; exec java -Xmx$x -Xms$x {flags} -cp {classes} Hog $1");
    format!(
        "version = 1\nname = \"{name}\"\nmode = \"{}\"\n{}\
         [profiles.exec]\nmemory = \"{}MiB\"\ncpus = 4\n[profiles.task]\nheap = \"{heap}MiB\"\noverhead = \"{overhead}MiB\"\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 4\nreserve = \"32MiB\"\n\
         [[stage]]\nname = \"work\"\ncount = {JVMS}\nprofile = \"task\"\nruntime = \"jvm\"\ngrow = false\nenv = {{ HOG_HOLD_MS = \"500\" }}\n\
         command = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{index}}\", \"{{heap}}\"]\n",
        mode.as_str(),
        if mode == Mode::Headroom { "sizes = \"learned\"\n" } else { "" },
        (heap + overhead) * 4 + 32,
    )
}

fn stages() -> Vec<Stage> {
    // The heavy ones come first, so that they meet.
    let uber = (0..20).map(|n| if n < 5 { 150 } else { 30 }).collect();
    let skewed: Vec<u32> = (0..200u32).map(|n| if n % 50 == 13 { pareto(n / 50) } else { 20 + n % 25 }).collect();
    vec![
        Stage { name: "uber", needs: uber, told: false },
        Stage { name: "pinterest", needs: skewed.clone(), told: false },
        Stage { name: "pinterest-told", needs: skewed, told: true },
    ]
}

/// The n-th of four heavy needs: quantiles of a Pareto tail from 90 MiB on, with exponent 1. MiB.
fn pareto(n: u32) -> u32 {
    90 * 4 / (4 - n.min(3))
}

fn run(cluster: &Cluster, stage: &Stage, way: Way) -> Result<Run> {
    let app = cluster.submit(&job(stage, way, &cluster.dir().join("work.log"))?)?;
    told(stage.name, way, &ended(cluster, &app)?)
}

/// What came of one job.
fn told(stage: &'static str, (mode, growth, enforce): Way, end: &AppView) -> Result<Run> {
    let view = end.job.as_ref().context("no job")?;
    let attempts: Vec<&AttemptRow> = view.tasks.iter().flat_map(|task| &task.attempts).collect();
    let (first, last) = (attempts.iter().map(|a| a.started).min(), attempts.iter().filter_map(|a| a.ended).max());
    let (Some(first), Some(last)) = (first, last) else { bail!("no attempt was made") };
    Ok(Run {
        stage,
        mode,
        growth,
        enforce,
        kills: view.totals.memory_kills,
        innocent_kills: view.totals.innocent_reruns,
        lost: view.tasks.iter().filter(|task| task.state != TaskState::Done).count(),
        allocated_gib_s: gib_s(view.totals.allocated_byte_ms),
        used_gib_s: gib_s(attempts.iter().map(|a| used(a)).sum()),
        rerun_gib_s: gib_s(view.totals.rerun_byte_ms),
        makespan_s: last.since(first).as_secs_f64(),
    })
}

/// A job that loses a task has failed, and is what some modes are measured for.
fn ended(cluster: &Cluster, app: &AppId) -> Result<AppView> {
    until("the job to end", PATIENCE, || Ok(cluster.app(app).ok().filter(|view| view.state.is_final())))
}

fn used(attempt: &AttemptRow) -> u128 {
    let ran = |end: UnixMillis| end.since(attempt.started).as_millis();
    u128::from(attempt.peak.unwrap_or_default().get()) * attempt.ended.map_or(0, ran)
}

#[allow(clippy::cast_precision_loss)] // a figure for people
fn gib_s(byte_ms: u128) -> f64 {
    byte_ms as f64 / f64::from(1u32 << 30) / 1000.0
}

/// Two executors of four slots; a task looks up what it needs by its number.
fn job(stage: &Stage, (mode, growth, enforce): Way, log: &Path) -> Result<String> {
    let program = programs::path("workload")?;
    let needs: Vec<String> = stage.needs.iter().map(u32::to_string).collect();
    let (needs, program) = (needs.join(" "), program.display());
    // Who says what it will read reads that; what it says is not believed otherwise.
    let reads = if stage.told { "head -c $(($1 * 2))M /dev/zero > /dev/null; " } else { "" };
    let script =
        format!("n=$1; set -- {needs}; shift $n; {reads}exec {program} run --log {} --mib $1 --over-ms 300", log.display());
    let own = mode == Mode::Headroom;
    let mut text = format!(
        "version = 1\nname = \"{}-{}{}{}\"\nmode = \"{}\"\n{}\
         [profiles.exec]\nmemory = \"{}MiB\"\ncpus = 4\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 4\nreserve = \"32MiB\"\n\
         [[stage]]\nname = \"work\"\narray = \"0-{}\"\ncommand = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{index}}\"]\n",
        stage.name,
        mode.as_str(),
        if growth { "-grow" } else { "" },
        if enforce == Holds::Executor { "-shared" } else { "" },
        mode.as_str(),
        if own { "sizes = \"learned\"\n" } else { "" },
        SHARE * 4 + 32,
        stage.needs.len().saturating_sub(1),
    );
    if enforce == Holds::Executor {
        text.push_str("enforce = \"executor\"\n");
    }
    text.push_str(if growth { "grow = true\n" } else { "grow = false\n" });
    if stage.told {
        // Twice what will be needed: proportional, and not the answer itself.
        let inputs: Vec<String> = stage.needs.iter().map(|mib| format!("\"{}MiB\"", mib * 2)).collect();
        text.push_str(&format!("input = [{}]\n", inputs.join(", ")));
    }
    Ok(text)
}

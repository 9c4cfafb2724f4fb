//! Two stages on a real kernel under every way of answering memory failures, side by side: the twenty tasks of Uber's figure, and a stage like
//! Pinterest's, of which one task in fifty is heavy, with a Pareto tail; once with input sizes that tell, once without.
//!
//! Each mode runs as where it comes from: `headroom` holds each task to its own limit, the others hold the executor, as Spark does. Native
//! tasks that take their memory in a third of a second and keep it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use headroom_types::{AppId, Bytes, UnixMillis};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, Mode, TaskState};
use integration::cluster::{Cluster, NodeShape, until};
use integration::programs;

use crate::progress;

/// Longest that one job may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Share of one slot, in MiB. An executor has four.
const SHARE: u32 = 64;

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

/// A stage: what each of its tasks needs, in MiB, and whether the sizes of their inputs are told.
struct Stage {
    name: &'static str,
    needs: Vec<u32>,
    told: bool,
}

/// Runs every stage under every mode.
pub(crate) fn measure() -> Result<Figures> {
    let shape = NodeShape { memory: Bytes::from_mib(3072), cpus: 16, enforcer: None };
    let cluster = Cluster::start(&[shape])?;
    let mut runs = Vec::new();
    for stage in stages() {
        let ways = Mode::ALL.into_iter().map(|mode| (mode, false)).chain([(Mode::Headroom, true)]);
        for (mode, growth) in ways {
            let run = run(&cluster, &stage, mode, growth).with_context(|| format!("{} in mode {}", stage.name, mode.as_str()))?;
            progress::tell(&format!("{run:?}"));
            runs.push(run);
        }
    }
    Ok(Figures { runs })
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

fn run(cluster: &Cluster, stage: &Stage, mode: Mode, growth: bool) -> Result<Run> {
    let app = cluster.submit(&job(stage, mode, growth, &cluster.dir().join("work.log"))?)?;
    let end = ended(cluster, &app)?;
    let view = end.job.as_ref().context("no job")?;
    let attempts: Vec<&AttemptRow> = view.tasks.iter().flat_map(|task| &task.attempts).collect();
    let (first, last) = (attempts.iter().map(|a| a.started).min(), attempts.iter().filter_map(|a| a.ended).max());
    let (Some(first), Some(last)) = (first, last) else { bail!("no attempt was made") };
    Ok(Run {
        stage: stage.name,
        mode,
        growth,
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
fn job(stage: &Stage, mode: Mode, growth: bool, log: &Path) -> Result<String> {
    let program = programs::path("workload")?;
    let needs: Vec<String> = stage.needs.iter().map(u32::to_string).collect();
    let (needs, program) = (needs.join(" "), program.display());
    let script = format!("n=$1; set -- {needs}; shift $n; exec {program} run --log {} --mib $1 --over-ms 300", log.display());
    let own = mode == Mode::Headroom;
    let mut text = format!(
        "version = 1\nname = \"{}-{}{}\"\nmode = \"{}\"\n{}\
         [profiles.exec]\nmemory = \"{}MiB\"\ncpus = 4\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 4\nreserve = \"32MiB\"\n\
         [[stage]]\nname = \"work\"\narray = \"0-{}\"\ncommand = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{index}}\"]\n",
        stage.name,
        mode.as_str(),
        if growth { "-grow" } else { "" },
        mode.as_str(),
        if own { "sizes = \"learned\"\n" } else { "" },
        SHARE * 4 + 32,
        stage.needs.len().saturating_sub(1),
    );
    if !own {
        text.push_str("enforce = \"executor\"\n");
    }
    if growth {
        text.push_str("grow = true\n");
    }
    if stage.told {
        // Twice what will be needed: proportional, and not the answer itself.
        let inputs: Vec<String> = stage.needs.iter().map(|mib| format!("\"{}MiB\"", mib * 2)).collect();
        text.push_str(&format!("input = [{}]\n", inputs.join(", ")));
    }
    Ok(text)
}

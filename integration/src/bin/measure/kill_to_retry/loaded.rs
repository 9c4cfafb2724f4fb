//! From kill to retry while the job's own tasks keep every processor of the node.
//!
//! A node with two processors, two executors of one processor and one slot each, a hundred short tasks. Some of them are killed at
//! their first attempt and need a container of their own, for which there is room only where an executor of the job leaves. The same
//! job without kills runs in turns, for the makespan.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::job::TaskRow;
use integration::cluster::{Cluster, NodeShape};
use integration::programs;

use crate::quantiles::{millis, quantile};

/// Tasks of one job.
const TASKS: usize = 100;
/// Run time of a task. Milliseconds.
const TASK_MS: u64 = 300;
/// What a victim's first attempt tries to take, of the 48 MiB that it has. MiB.
const TAKES_MIB: u32 = 64;
/// Which tasks are killed, in the jobs of one round.
const VICTIMS: [&[usize]; 3] = [&[0], &[40], &[10, 11, 60]];

/// Times from the end of a killed attempt to the start of the next one.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    mean_task_ms: f64,
    n: usize,
    /// Jobs in which one task is killed: the longest wait, as a multiple of the mean run time.
    worst_single: f64,
    /// Makespan of the jobs with one kill, as a multiple of that of the jobs without.
    makespan_ratio: f64,
}

/// What one job has shown.
struct Shown {
    waits: Vec<u128>,
    runs: Vec<u128>,
    makespan: Duration,
}

/// Runs so many rounds of jobs.
pub(crate) fn measure(rounds: u32) -> Result<Figures> {
    let cluster = Cluster::start(&[NodeShape { memory: Bytes::from_mib(2048), cpus: 2, enforcer: None }])?;
    let (mut waits, mut runs, mut single) = (Vec::new(), Vec::new(), Vec::new());
    let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
    for round in 0..rounds {
        let calm = run(&cluster, &format!("calm-{round}"), &[])?;
        for (n, victims) in VICTIMS.iter().enumerate() {
            let shown = run(&cluster, &format!("loaded-{round}-{n}"), victims)?;
            if victims.len() == 1 {
                single.extend(shown.waits.iter().copied());
                with += shown.makespan;
                without += calm.makespan;
            }
            waits.extend(shown.waits);
            runs.extend(shown.runs);
        }
    }
    let at = |percent| quantile(&waits, percent).map(millis).context("nothing was killed");
    let mean = millis(runs.iter().sum::<u128>() / u128::try_from(runs.len().max(1))?);
    let worst = single.iter().max().copied().map(millis).context("nothing was killed")?;
    Ok(Figures {
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        mean_task_ms: mean,
        n: waits.len(),
        worst_single: worst / mean,
        makespan_ratio: with.as_secs_f64() / without.as_secs_f64(),
    })
}

fn run(cluster: &Cluster, name: &str, victims: &[usize]) -> Result<Shown> {
    let app = cluster.submit(&job(name, victims)?)?;
    let end = cluster.until_ended(&app)?;
    ensure!(end.state == AppState::Finished, "{name} ended as {}: {}", end.state.as_str(), end.diagnostics);
    let tasks = end.job.context("a job has rows")?.tasks;
    let attempts = || tasks.iter().flat_map(|task| &task.attempts);
    let nanos = |time: Duration| time.as_nanos();
    let waits: Vec<u128> = tasks.iter().filter_map(wait).map(nanos).collect();
    ensure!(waits.len() == victims.len(), "{name}: {} of {} tasks were killed", waits.len(), victims.len());
    let well = attempts().filter(|a| a.reason.is_some_and(|reason| reason.charge() == headroom_types::Charge::Success));
    let runs = well.filter_map(|a| Some(nanos(a.ended?.since(a.started)))).collect();
    let (first, last) = (attempts().map(|a| a.started).min(), attempts().filter_map(|a| a.ended).max());
    let makespan = last.zip(first).map(|(last, first)| last.since(first)).context("nothing ran")?;
    Ok(Shown { waits, runs, makespan })
}

/// From the end of the first attempt to the start of the second one.
fn wait(task: &TaskRow) -> Option<Duration> {
    let [first, second, ..] = &task.attempts[..] else { return None };
    Some(second.started.since(first.ended?))
}

/// One slot in each executor, so that a killed task gets a container of its own.
fn job(name: &str, victims: &[usize]) -> Result<String> {
    let program = programs::path("workload")?;
    let mut cases = String::new();
    for victim in victims {
        // Its next attempts have the room.
        write!(cases, "{victim}) sleep 0.1; {} act take:{TAKES_MIB}; sleep 0.2;; ", program.display())?;
    }
    let script = format!("case $HEADROOM_INDEX in {cases}*) sleep {};; esac", Duration::from_millis(TASK_MS).as_secs_f64());
    Ok(format!(
        "version = 1\nname = \"{name}\"\n\
         [profiles.exec]\nmemory = \"144MiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 1\nreserve = \"96MiB\"\n\
         [[stage]]\nname = \"map\"\ncount = {TASKS}\ngrow = false\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    ))
}

//! From kill to retry while the job's own tasks use all processors of the node.
//!
//! The node has two processors; the job has two executors with one processor and one slot each, and
//! a hundred short tasks. Some tasks are killed in their first attempt and need their own
//! container, which only fits after an executor of the job has ended. The same job without kills
//! runs in turns, to compare the makespan. Further loads:
//!
//! - other tasks are frozen for growth on a node without free memory;
//! - the queue is full on a node with free memory;
//! - another queue requests its half.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, ExitCharge};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use integration::cluster::{Cluster, NodeShape, SOON};
use integration::programs;

use crate::quantiles::{millis, quantile};

/// Tasks of one job.
const TASKS: usize = 100;
/// Run time of a task. Milliseconds.
const TASK_MS: u64 = 300;
/// Allocation of a victim's first attempt; its limit is 48 MiB. MiB.
const TAKES_MIB: u32 = 64;

/// The stage of tasks that are killed while the others grow.
const VICTIMS: &str = "victims";

/// The load that delays the container of the killed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// The job's own tasks use all processors of the node.
    Alone,
    /// Other tasks are frozen near their limits and wait for memory that the node does not have.
    Growing,
    /// The job uses the maximum of its queue; the node has more.
    FullQueue,
    /// Another queue requests its half of the node during the wait.
    Preempted,
}

/// The loads, with the indexes of the killed tasks in each of their jobs.
const KINDS: [(&str, Load, &[&[usize]]); 5] = [
    ("one kill", Load::Alone, &[&[0], &[40]]),
    ("three kills", Load::Alone, &[&[10, 11, 60]]),
    (
        "one kill, neighbours held for growth",
        Load::Growing,
        &[&[40]],
    ),
    ("one kill, the queue is full", Load::FullQueue, &[&[40]]),
    ("one kill, preemption near", Load::Preempted, &[&[8]]),
];

/// Results: times from the end of a killed attempt to the start of the next one.
#[derive(Debug, serde::Serialize)]
pub(crate) struct LoadedRetryResults {
    p50_ms: f64,
    p99_ms: f64,
    mean_task_ms: f64,
    n: usize,
    /// Longest wait in jobs with one killed task, as a multiple of the mean run time.
    worst_single: f64,
    /// Makespan of the jobs with one kill, as a multiple of the makespan without kills.
    makespan_ratio: f64,
    kinds: Vec<Kind>,
}

/// The results of one load.
#[derive(Debug, serde::Serialize)]
struct Kind {
    kind: &'static str,
    /// The longest wait. Milliseconds.
    longest_ms: f64,
    /// The longest wait as a multiple of the mean run time of its tasks.
    longest_in_task_times: f64,
    /// Makespan with kills, as a multiple of the makespan without.
    makespan_ratio: f64,
    n: usize,
}

/// The measurements of one job.
struct Shown {
    waits: Vec<u128>,
    runs: Vec<u128>,
    makespan: Duration,
}

/// The measurements of all jobs of one load.
#[derive(Default)]
struct Sums {
    waits: Vec<u128>,
    runs: Vec<u128>,
    with: Duration,
    without: Duration,
}

impl Sums {
    fn mean_ms(&self) -> Result<f64> {
        Ok(millis(
            self.runs.iter().sum::<u128>() / u128::try_from(self.runs.len().max(1))?,
        ))
    }

    fn longest_ms(&self) -> Result<f64> {
        self.waits
            .iter()
            .max()
            .copied()
            .map(millis)
            .context("nothing was killed")
    }

    fn ratio(&self) -> f64 {
        self.with.as_secs_f64() / self.without.as_secs_f64()
    }
}

/// Runs this number of rounds.
pub(crate) fn measure(rounds: u32) -> Result<LoadedRetryResults> {
    let (mut kinds, mut alone) = (Vec::new(), Sums::default());
    for (kind, load, jobs) in KINDS {
        let sums = of_kind(load, jobs, rounds).with_context(|| kind.to_owned())?;
        let (longest_ms, mean) = (sums.longest_ms()?, sums.mean_ms()?);
        let longest_in_task_times = longest_ms / mean;
        kinds.push(Kind {
            kind,
            longest_ms,
            longest_in_task_times,
            makespan_ratio: sums.ratio(),
            n: sums.waits.len(),
        });
        if load == Load::Alone {
            alone.waits.extend(sums.waits);
            alone.runs.extend(sums.runs);
        }
    }
    let at = |percent| {
        quantile(&alone.waits, percent)
            .map(millis)
            .context("nothing was killed")
    };
    let first = kinds.first().context("a kind")?;
    Ok(LoadedRetryResults {
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        mean_task_ms: alone.mean_ms()?,
        n: alone.waits.len(),
        worst_single: first.longest_in_task_times,
        makespan_ratio: first.makespan_ratio,
        kinds,
    })
}

/// Runs all jobs of one load; each round includes a job without kills.
fn of_kind(load: Load, jobs: &[&[usize]], rounds: u32) -> Result<Sums> {
    let cluster = cluster(load)?;
    let mut sums = Sums::default();
    for round in 0..rounds {
        let calm = run(&cluster, load, &format!("calm-{round}"), &[])?;
        for (n, victims) in jobs.iter().enumerate() {
            let shown = run(&cluster, load, &format!("loaded-{round}-{n}"), victims)?;
            sums.with += shown.makespan;
            sums.without += calm.makespan;
            sums.waits.extend(shown.waits);
            sums.runs.extend(shown.runs);
        }
    }
    Ok(sums)
}

fn cluster(load: Load) -> Result<Cluster> {
    let node = |mib, cpus| NodeShape {
        memory: Bytes::from_mib(mib),
        cpus,
        enforcer: None,
    };
    match load {
        Load::Alone => Cluster::start(&[node(2048, 2)]),
        // The node has memory for a master, two executors, and less than a larger slot.
        Load::Growing => Cluster::start(&[node(72 + 2 * 144 + 16, 2)]),
        Load::FullQueue => Cluster::start_managed(
            &[node(4096, 8)],
            "[queues.default]\n[queues.ours]\nmaximum = { cpus = 2 }\n",
        ),
        Load::Preempted => Cluster::start_managed(
            &[node(2048, 2)],
            "[scheduling]\npreempt_warning = \"1s\"\npreempt_every = \"500ms\"\npreempt_part = \"100%\"\n\
             [queues.default]\nguaranteed = \"50%\"\n[queues.ours]\nguaranteed = \"50%\"\n",
        ),
    }
}

fn run(cluster: &Cluster, load: Load, name: &str, victims: &[usize]) -> Result<Shown> {
    let app = cluster.submit(&job(load, name, victims)?)?;
    let other = if load == Load::Preempted {
        let both = |app: &AppView| (app.job.as_ref()?.totals.running == 2).then_some(());
        cluster.until_app(&app, "both executors", SOON, both)?;
        Some(cluster.submit(&other(name))?)
    } else {
        None
    };
    let end = cluster.until_ended(&app)?;
    if let Some(other) = other {
        cluster.until_ended(&other)?;
    }
    ensure!(
        end.state == AppState::Finished,
        "{name} ended as {}: {}",
        end.state.as_str(),
        end.diagnostics
    );
    let tasks = end.job.context("a job has rows")?.tasks;
    let attempts = || tasks.iter().flat_map(|task| &task.attempts);
    let nanos = |time: Duration| time.as_nanos();
    let is_victim = |task: &TaskRow| match load {
        Load::Growing => task.task.stage.as_str() == VICTIMS,
        Load::Alone | Load::FullQueue | Load::Preempted => victims
            .iter()
            .any(|v| u32::try_from(*v) == Ok(task.task.index)),
    };
    let of_victims = tasks.iter().filter(|task| is_victim(task));
    let waits: Vec<u128> = of_victims.filter_map(wait).map(nanos).collect();
    ensure!(
        waits.len() == victims.len(),
        "{name}: {} of {} tasks were killed",
        waits.len(),
        victims.len()
    );
    let well = attempts().filter(|a| {
        a.reason
            .is_some_and(|reason| reason.charge() == ExitCharge::Success)
    });
    let runs = well
        .filter_map(|a| Some(nanos(a.ended?.since(a.started))))
        .collect();
    let (first, last) = (
        attempts().map(|a| a.started).min(),
        attempts().filter_map(|a| a.ended).max(),
    );
    let makespan = last
        .zip(first)
        .map(|(last, first)| last.since(first))
        .context("nothing ran")?;
    Ok(Shown {
        waits,
        runs,
        makespan,
    })
}

/// A short job of the other queue.
fn other(name: &str) -> String {
    format!(
        "version = 1\nname = \"other-{name}\"\nqueue = \"default\"\n[profiles.exec]\nmemory = \"144MiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 1\nreserve = \"96MiB\"\n\
         [[stage]]\nname = \"map\"\ncount = 8\ncommand = [\"sleep\", \"0.3\"]\n"
    )
}

/// From the end of the attempt that was killed for memory to the start of the next one.
fn wait(task: &TaskRow) -> Option<Duration> {
    let killed = |row: &AttemptRow| {
        row.reason
            .is_some_and(|reason| reason.charge() == ExitCharge::Memory)
    };
    let at = task.attempts.iter().position(killed)?;
    Some(
        task.attempts
            .get(at + 1)?
            .started
            .since(task.attempts.get(at)?.ended?),
    )
}

/// A job with one slot in each executor, so that a killed task gets its own container.
fn job(load: Load, name: &str, victims: &[usize]) -> Result<String> {
    let takes = format!(
        "sleep 0.1; {} act take:{TAKES_MIB}; sleep 0.2",
        programs::path("workload")?.display()
    );
    let (mut cases, mut first) = (String::new(), String::new());
    match load {
        Load::Alone | Load::FullQueue | Load::Preempted => {
            for victim in victims {
                // The next attempts have enough memory.
                write!(cases, "{victim}) {takes};; ")?;
            }
        }
        Load::Growing => {
            // These tasks exceed their limit and are frozen until memory is free.
            write!(cases, "*[05]) {takes};; ")?;
            if !victims.is_empty() {
                // Tasks that are killed, beside those that grow.
                let count = victims.len();
                write!(
                    first,
                    "[[stage]]\nname = \"{VICTIMS}\"\ncount = {count}\ngrow = false\ncommand = [\"sh\", \"-c\", '''{takes}''']\n"
                )?;
            }
        }
    }
    let (queue, grow) = match load {
        Load::Alone => ("", "grow = false"),
        Load::Growing => ("", "grow = true"),
        Load::FullQueue | Load::Preempted => ("queue = \"ours\"\n", "grow = false"),
    };
    let tasks = if first.is_empty() {
        TASKS
    } else {
        TASKS - victims.len()
    };
    let script = format!(
        "case $HEADROOM_INDEX in {cases}*) sleep {};; esac",
        Duration::from_millis(TASK_MS).as_secs_f64()
    );
    Ok(format!(
        "version = 1\nname = \"{name}\"\n{queue}\
         [profiles.exec]\nmemory = \"144MiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 1\nreserve = \"96MiB\"\n\
         {first}[[stage]]\nname = \"map\"\ncount = {tasks}\n{grow}\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    ))
}

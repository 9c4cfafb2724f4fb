//! Two users on one node: one leaks, forks, fills `/dev/shm` and floods its logs; the tasks of the
//! other must not be affected.
//!
//! The node offers two processors and each user requests one. The victim uses only that; the
//! hostile user uses all it can get. The same 500 tasks run alone, then repeatedly beside the
//! hostile jobs, then alone again. Latency is the time from an attempt's start to its end, as seen
//! by its master.
//!
//! A machine with one processor offers that one, and each user requests half of it. There the
//! requests are limits: the victim has no more than its half when it runs alone either.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::{AppId, Bytes, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::AttemptRow;
use integration::cluster::{Cluster, NodeShape, ran};
use integration::jobs::JobFile;
use integration::{leftovers, programs};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::quantiles::quantile;
use crate::{guest_run, progress};

/// Memory of the node.
const NODE: Bytes = Bytes::from_mib(3072);
/// Memory of the guest: the node, the daemons and page cache.
const GUEST: Bytes = Bytes::from_mib(4608);
/// Maximum number of processors of the node. Weights have no effect if a node offers more
/// processors than it has.
const MAX_CPUS: u32 = 2;
/// Tasks of one job of the victim.
const TASKS: u32 = 500;
/// Timeout of the victim's job, on a machine with twenty times the load it can handle.
const JOB_TIMEOUT: Duration = Duration::from_secs(900);
/// Tasks of one hostile job: the kind and the amount in MiB or seconds.
const HOSTILE: [(&str, &str); 10] = [
    ("posix-shm", "170"),
    ("sysv-shm", "170"),
    ("fork-bomb", "5"),
    ("fill-dev-shm", "4096"),
    ("log-flood", "5"),
    ("memfd-detached", "170"),
    ("dev-shm-file", "150"),
    ("oom-with-shm", "170"),
    ("sockets-detached", "64"),
    ("fill-disk", "256"),
];

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct IsolationResults {
    /// Tasks of the victim beside the hostile jobs.
    victim_tasks: u32,
    /// Tasks that did not finish, or with an attempt that did not succeed.
    victim_failed: u32,
    /// Ratio of the median latencies beside the hostile jobs and alone.
    latency_ratio: f64,
    enforcer: String,
    /// Run time of the hostile jobs.
    seconds: u64,
    alone_median_ms: u128,
    beside_median_ms: u128,
    alone_p99_ms: u128,
    beside_p99_ms: u128,
    /// Jobs of the victim that ran beside the hostile jobs.
    victim_jobs: u32,
    hostile_jobs: u32,
    hostile_tasks: u32,
    /// Attempts of the victim that were killed for an outer limit.
    collateral: u32,
}

/// Runs the measurement with hostile jobs for `seconds`.
pub(crate) fn measure(seconds: u64) -> Result<IsolationResults> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root can run the jobs of two users: run it as root, or with --guest"
    );
    let cluster = start_node()?;
    let program = leftovers::compile(&cluster.dir().join("bin"))?
        .display()
        .to_string();
    let enforcer = cluster
        .call(cluster.client().nodes())?
        .first()
        .context("no node")?
        .enforcer
        .to_string();
    let mut alone = victim(&cluster, &program)?;
    progress::print_line(&format!("alone: {}", alone.line()));
    let beside = run_beside(&cluster, &program, seconds)?;
    alone.add(victim(&cluster, &program)?);
    progress::print_line(&format!("alone, before and after: {}", alone.line()));
    ensure!(
        alone.failed == 0,
        "{} tasks failed that ran alone",
        alone.failed
    );
    Ok(IsolationResults {
        victim_tasks: beside.victim.tasks,
        victim_failed: beside.victim.failed,
        latency_ratio: ratio(beside.victim.at(50), alone.at(50)),
        enforcer,
        seconds: beside.seconds,
        alone_median_ms: alone.at(50),
        beside_median_ms: beside.victim.at(50),
        alone_p99_ms: alone.at(99),
        beside_p99_ms: beside.victim.at(99),
        victim_jobs: beside.victim_jobs,
        hostile_jobs: beside.hostile_jobs,
        hostile_tasks: beside.hostile_tasks,
        collateral: beside.victim.collateral,
    })
}

/// Starts a cluster of one node that maps the victim and the hostile user to two accounts.
fn start_node() -> Result<Cluster> {
    let cpus = processors();
    let cpu = if cpus == 1 { "limit" } else { "share" };
    let configuration = format!(
        "[isolation]\nprivate_tmp = false\ncpu = \"{cpu}\"\n[isolation.users]\nvictim = \"daemon\"\nhostile = \"nobody\"\n"
    );
    let shape = NodeShape {
        memory: NODE,
        cpus,
        enforcer: None,
    };
    Cluster::start_configured(&[shape], &configuration)
}

/// Jobs of both users that ran at the same time.
struct BesideHostile {
    victim: Victim,
    /// Jobs of the victim.
    victim_jobs: u32,
    hostile_jobs: u32,
    hostile_tasks: u32,
    /// Run time of the hostile jobs.
    seconds: u64,
}

/// Runs jobs of the victim, one after the other, beside hostile jobs for `seconds`.
fn run_beside(cluster: &Cluster, program: &str, seconds: u64) -> Result<BesideHostile> {
    let (over, jobs, tasks) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let started = Instant::now();
    let url = cluster.url();
    let (victim, victim_jobs) = std::thread::scope(|scope| -> Result<(Victim, u32)> {
        let hostile = scope.spawn(|| {
            hostile(
                &url,
                &cluster.dir().join("hostile.toml"),
                program,
                (&over, &jobs, &tasks),
            )
        });
        let mut all = Victim::default();
        let mut rounds = 0;
        let ended = (|| {
            while rounds == 0 || started.elapsed().as_secs() < seconds {
                all.add(self::victim(cluster, program)?);
                rounds += 1;
                let at = started.elapsed().as_secs();
                progress::print_line(&format!(
                    "{at} s, beside {} hostile jobs: {}",
                    jobs.load(Ordering::Relaxed),
                    all.line()
                ));
            }
            Ok(())
        })();
        over.store(true, Ordering::Relaxed);
        hostile
            .join()
            .map_err(|_| anyhow::anyhow!("the thread of the hostile jobs has ended"))??;
        ended.map(|()| (all, rounds))
    })?;
    Ok(BesideHostile {
        victim,
        victim_jobs,
        hostile_jobs: jobs.into_inner(),
        hostile_tasks: tasks.into_inner(),
        seconds: started.elapsed().as_secs(),
    })
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(seconds: u64) -> Result<Map<String, Value>> {
    let words = ["noisy-neighbour", "--seconds", &seconds.to_string()];
    guest_run::in_a_guest_of(
        GUEST,
        &words,
        Duration::from_secs(seconds) + JOB_TIMEOUT * 3,
    )
}

/// Ended jobs of the victim.
#[derive(Debug, Default)]
struct Victim {
    tasks: u32,
    failed: u32,
    collateral: u32,
    /// Latency of each successful attempt. Milliseconds.
    latencies: Vec<u128>,
}

impl Victim {
    fn add(&mut self, other: Victim) {
        self.tasks += other.tasks;
        self.failed += other.failed;
        self.collateral += other.collateral;
        self.latencies.extend(other.latencies);
    }
    fn at(&self, percent: usize) -> u128 {
        quantile(&self.latencies, percent).unwrap_or(0)
    }
    fn line(&self) -> String {
        let (p50, p99) = (self.at(50), self.at(99));
        format!(
            "{} tasks, {} failed, p50 {p50} ms, p99 {p99} ms",
            self.tasks, self.failed
        )
    }
}

/// Number of processors that the node offers.
fn processors() -> u32 {
    let present = std::thread::available_parallelism()
        .map_or(1, |n| u32::try_from(n.get()).unwrap_or(MAX_CPUS));
    present.min(MAX_CPUS)
}

/// The job with executors that request half of the node's processors. A job file without other
/// words requests half a processor.
fn half(job: JobFile) -> JobFile {
    if processors() == 1 { job } else { job.cpus(1) }
}

/// Runs one job of the victim to its end.
fn victim(cluster: &Cluster, program: &str) -> Result<Victim> {
    let job = half(JobFile::new("victim", 1, 1, Bytes::from_mib(64)));
    let job = job.stage("work", TASKS, &[program, "work", "24"], "");
    let app = submit(
        &cluster.url(),
        &cluster.dir().join("victim.toml"),
        &job,
        "victim",
    )?;
    let end = cluster.until_app(&app, "the victim's job to end", JOB_TIMEOUT, |view| {
        view.state.is_final().then(|| view.clone())
    })?;
    Ok(judged(&end))
}

fn judged(end: &AppView) -> Victim {
    let tasks = end.job.iter().flat_map(|job| &job.tasks);
    let mut all = Victim {
        tasks: TASKS,
        ..Victim::default()
    };
    let mut well = 0;
    for task in tasks {
        let good = |attempt: &AttemptRow| attempt.reason == Some(ExitReason::Exit { code: 0 });
        well += u32::from(!task.attempts.is_empty() && task.attempts.iter().all(good));
        let hit = |attempt: &&AttemptRow| {
            matches!(
                attempt.reason,
                Some(ExitReason::AncestorOom | ExitReason::NodeOom)
            )
        };
        all.collateral +=
            u32::try_from(task.attempts.iter().filter(hit).count()).unwrap_or(u32::MAX);
        let took = |attempt: &AttemptRow| Some(attempt.ended?.since(attempt.started).as_millis());
        all.latencies.extend(
            task.attempts
                .iter()
                .filter(|attempt| good(attempt))
                .filter_map(took),
        );
    }
    all.failed = if end.state == AppState::Finished {
        TASKS - well
    } else {
        TASKS
    };
    all
}

/// Runs hostile jobs, one after the other. Their results do not matter.
fn hostile(
    url: &str,
    file: &std::path::Path,
    program: &str,
    (over, jobs, tasks): (&AtomicBool, &AtomicU32, &AtomicU32),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = headroom_client::Client::new(url)?;
    while !over.load(Ordering::Relaxed) {
        let mut job = half(JobFile::new("hostile", 1, 4, Bytes::from_mib(200)));
        for (kind, amount) in HOSTILE {
            job = job.stage(kind, 2, &[program, kind, amount], "grow = false");
        }
        let job = job.stage(
            "last",
            1,
            &["/bin/true"],
            "[retry]\nmax_attempts = 1\nmemory_attempts = 1",
        );
        let app = submit(url, file, &job, "hostile")?;
        jobs.fetch_add(1, Ordering::Relaxed);
        loop {
            let view = runtime.block_on(client.app(&app)).ok();
            if let Some(view) = view.filter(|view| view.state.is_final()) {
                let ended = view
                    .job
                    .map_or(0, |job| job.totals.done + job.totals.failed);
                tasks.fetch_add(ended, Ordering::Relaxed);
                break;
            }
            if over.load(Ordering::Relaxed) {
                // The cluster removes the rest of the job; the tasks that run alone afterwards must
                // not meet it.
                stop(url, &app)?;
            }
            integration::clock::pause(Duration::from_millis(500));
        }
    }
    Ok(())
}

fn rmctl(url: &str, words: &[&str], user: &str) -> Result<integration::cluster::ProgramOutput> {
    let mut command = Command::new(programs::path("rmctl")?);
    command
        .args(words)
        .env("HEADROOM_ADDR", url)
        .env("USER", user)
        .env("LOGNAME", user);
    ran(command)
}

fn submit(url: &str, file: &std::path::Path, job: &JobFile, user: &str) -> Result<AppId> {
    std::fs::write(file, job.text())?;
    let ran = rmctl(
        url,
        &["submit", &file.display().to_string(), "-o", "name"],
        user,
    )?;
    ensure!(
        ran.code == 0,
        "rmctl submit: exit code {}\n{}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
    ran.stdout
        .trim()
        .parse()
        .with_context(|| format!("rmctl submit -o name wrote {:?}", ran.stdout))
}

fn stop(url: &str, app: &AppId) -> Result<()> {
    let ran = rmctl(url, &["kill", &app.to_string()], "hostile")?;
    progress::print_line(&format!(
        "the hostile job is stopped: {}",
        ran.stdout.trim()
    ));
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // milliseconds of a task
fn ratio(beside: u128, alone: u128) -> f64 {
    (beside as f64 / alone.max(1) as f64 * 1000.0).round() / 1000.0
}

//! Empty tasks through the full path of a task: submission with `rmctl`, a separate cgroup with
//! verified limits, reaping, verdict, acknowledgement, and the journal of the master.
//!
//! The same run compares `xargs -P2`, which only starts and reaps the same program, and GNU
//! parallel and HyperQueue (its Python package) if they are installed. Finally it measures single
//! tasks, one application each, from the start of `rmctl` to the end of the application, and commands
//! of `rmctl run`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::AppState;
use integration::clock;
use integration::cluster::{Cluster, NodeShape};

use crate::quantiles::{millis, quantile};

/// Timeout of all tasks.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Interval of polls for the end of a single task.
const GLANCE: Duration = Duration::from_millis(2);
/// Interval of polls for the end of all tasks. Polls use processor time of the tasks.
const SELDOM: Duration = Duration::from_millis(20);
/// Number of applications with one task.
const SINGLES: usize = 20;
/// Number of programs that `xargs` and `parallel` start.
const PEERS: u32 = 2000;

/// Results.
#[derive(Debug, serde::Serialize)]
pub(crate) struct TaskRateResults {
    /// From the start of `rmctl submit` to the end of the application.
    tasks_per_s: f64,
    /// Wall-clock time for one of them. Microseconds.
    us_per_task: f64,
    n: u32,
    /// One application of one task, from the start of `rmctl` to the application's end.
    single_p50_ms: f64,
    single_p99_ms: f64,
    /// `rmctl run -- true`, from its start to its end.
    run_p50_ms: f64,
    run_p99_ms: f64,
    xargs_per_s: f64,
    /// `tasks_per_s` divided by `xargs_per_s`.
    vs_xargs: f64,
    parallel_per_s: Option<f64>,
    hyperqueue_per_s: Option<f64>,
}

/// Runs `n` tasks.
pub(crate) fn measure(n: u32) -> Result<TaskRateResults> {
    let cluster = Cluster::start(&[NodeShape {
        memory: Bytes::from_gib(4),
        cpus: 4,
        enforcer: None,
    }])?;
    let started = Instant::now();
    run(&cluster, n)?;
    let all = started.elapsed();
    let singles: Vec<u128> = (0..SINGLES)
        .map(|_| single(&cluster))
        .collect::<Result<_>>()?;
    let runs: Vec<u128> = (0..SINGLES)
        .map(|_| run_command(&cluster))
        .collect::<Result<_>>()?;
    let at = |times: &[u128], percent| {
        quantile(times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    let tasks_per_s = f64::from(n) / all.as_secs_f64();
    let xargs_per_s = peer("xargs", &["-P2", "-n1", "true"])?.context("xargs is not installed")?;
    Ok(TaskRateResults {
        tasks_per_s,
        us_per_task: all.as_secs_f64() * 1e6 / f64::from(n),
        n,
        single_p50_ms: at(&singles, 50)?,
        single_p99_ms: at(&singles, 99)?,
        run_p50_ms: at(&runs, 50)?,
        run_p99_ms: at(&runs, 99)?,
        xargs_per_s,
        vs_xargs: tasks_per_s / xargs_per_s,
        parallel_per_s: peer("parallel", &["-j2", "true"])?,
        hyperqueue_per_s: hyperqueue(n)?,
    })
}

/// Runs one job of `n` tasks to its end.
pub(crate) fn run(cluster: &Cluster, n: u32) -> Result<()> {
    let app = cluster.submit(&job(n))?;
    end_of(cluster, &app, SELDOM)?;
    let done = cluster.app(&app)?.job.map_or(0, |job| job.totals.done);
    ensure!(done == n, "{done} of {n} tasks are reported as done");
    Ok(())
}

/// A job with more slots than processors, because tasks also wait for the disk.
fn job(n: u32) -> String {
    let last = n.saturating_sub(1);
    format!(
        "version = 1\nname = \"tasks\"\n[profiles.exec]\nmemory = \"1GiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 8\n\
         [[stage]]\nname = \"nothing\"\narray = \"0-{last}\"\ncommand = [\"true\"]\n"
    )
}

/// Waits until the application is over, with a list that contains no tasks.
fn end_of(cluster: &Cluster, app: &AppId, every: Duration) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let apps = cluster.call(cluster.client().apps())?;
        let view = apps
            .into_iter()
            .find(|a| a.id == *app)
            .with_context(|| format!("{app} is not listed"))?;
        if view.state.is_final() {
            ensure!(
                view.state == AppState::Finished,
                "{app} ended as {}: {}",
                view.state.as_str(),
                view.diagnostics
            );
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{app} has not ended within {} s",
            TIMEOUT.as_secs()
        );
        clock::pause(every);
    }
}

/// Time for one application of one task. Nanoseconds.
fn single(cluster: &Cluster) -> Result<u128> {
    let started = Instant::now();
    let app = cluster.submit(&job(1))?;
    end_of(cluster, &app, GLANCE)?;
    Ok(started.elapsed().as_nanos())
}

/// Time of `rmctl run -- true`. Nanoseconds.
fn run_command(cluster: &Cluster) -> Result<u128> {
    let started = Instant::now();
    let output = cluster.rmctl(&["run", "--", "true"])?;
    let elapsed = started.elapsed().as_nanos();
    ensure!(output.code == 0, "rmctl run failed: {}", output.stderr);
    Ok(elapsed)
}

/// Programs per second that another tool starts; `None` if it is not installed.
fn peer(program: &str, args: &[&str]) -> Result<Option<f64>> {
    let started = Instant::now();
    let mut child = match Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
    {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context(program.to_owned()),
    };
    let lines: String = (0..PEERS).map(|i| format!("{i}\n")).collect();
    child
        .stdin
        .take()
        .context("the input of the program")?
        .write_all(lines.as_bytes())?;
    ensure!(child.wait()?.success(), "{program} failed");
    Ok(Some(f64::from(PEERS) / started.elapsed().as_secs_f64()))
}

/// Tasks per second of HyperQueue; `None` if `python3` has no such package.
fn hyperqueue(n: u32) -> Result<Option<f64>> {
    let python = |code: &str| {
        let mut command = Command::new("python3");
        command
            .args(["-c", code])
            .arg(n.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    if !python("import hyperqueue")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return Ok(None);
    }
    // HyperQueue writes a file for each task into its working directory.
    let dir = tempfile::tempdir().context("a directory for its files")?;
    let output = python(include_str!("hyperqueue.py"))
        .current_dir(dir.path())
        .output()
        .context("python3")?;
    ensure!(
        output.status.success(),
        "HyperQueue ended with {}",
        output.status
    );
    let stdout = String::from_utf8_lossy(&output.stdout);
    let rate = stdout
        .lines()
        .rev()
        .find_map(|line| line.trim().parse().ok());
    rate.with_context(|| format!("HyperQueue printed no rate: {stdout}"))
        .map(Some)
}

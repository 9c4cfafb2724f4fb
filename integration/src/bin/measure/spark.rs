//! Skewed Spark jobs on stock Spark and on Headroom in several modes, and queries without failures
//! on both.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::Bytes;
use headroom_wire::v1::apps::AppView;
use integration::background::last_lines;
use integration::cluster::{Cluster, NodeShape, ProgramOutput};
use integration::spark::{
    APPLICATION, SparkInstallation, VERSIONS, lines_of, master_url, only_app,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::progress;
use crate::quantiles::quantile;

/// Standalone executors with the size of the containers.
const STOCK: &str = "local-cluster[2,2,896]";
/// Standalone executors with the memory of the largest rung from the start, for every task.
const STOCK_ENOUGH: &str = "local-cluster[2,2,2432]";
/// Rows of an ordinary partition of a skewed job.
const ROWS: &str = "12000";
/// Timeout of one skewed job, most of whose time is starts of executors.
const JOB: Duration = Duration::from_secs(60);
/// Thousands of rows of the largest table of the queries.
const TABLE: &str = "1000";
/// Pairs of runs of the queries.
const PAIRS: usize = 3;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct SparkResults {
    /// Versions of Spark that ran.
    versions: Vec<String>,
    /// Skewed jobs in each mode.
    jobs: usize,
    /// Failed jobs on stock Spark with executors of the same size.
    stock_failed: usize,
    /// Failed jobs on stock Spark with executors of four times the heap.
    stock_enough_failed: usize,
    /// Time of all jobs there. Seconds.
    stock_enough_seconds: f64,
    /// Failed jobs on Headroom.
    headroom_failed: usize,
    /// Jobs with a wrong result, in any mode.
    wrong_results: usize,
    /// From the end of an attempt that ran out of memory to the start of the next one. Milliseconds.
    kill_to_retry_p50_ms: Option<u128>,
    /// From the grant of a container to the registration of its executor. Milliseconds.
    executor_start_p50_ms: Option<u128>,
    /// Time of the queries on Headroom, divided by that on standalone executors.
    overhead_vs_standalone: f64,
    /// Memory × time of attempts that ran again. GiB-seconds.
    rerun_gib_s: f64,
    /// Each mode of the plugin over the same jobs.
    modes: Vec<ModeResults>,
}

/// The skewed jobs in one mode.
#[derive(Debug, Serialize)]
struct ModeResults {
    mode: String,
    failed: usize,
    /// Time of all jobs. Seconds.
    seconds: f64,
    /// Memory × time of all attempts. GiB-hours.
    gib_h: f64,
    memory_kills: u32,
}

/// The output of `skewed_jobs.py`.
#[derive(Debug, Deserialize)]
struct JobReport {
    failed: Vec<usize>,
    wrong: Vec<usize>,
    seconds: Vec<f64>,
}

/// Runs skewed jobs one after another in one application.
fn run_jobs(
    spark: &SparkInstallation,
    master: &str,
    settings: &[&str],
    jobs: u32,
) -> Result<ProgramOutput> {
    let count = jobs.to_string();
    spark
        .start(master, settings, "skewed_jobs.py", &[&count, ROWS])?
        .wait(APPLICATION + JOB * jobs)
}

/// Runs `jobs` skewed jobs in each mode, and the queries in pairs.
pub(crate) fn measure(jobs: u32, version: &str) -> Result<SparkResults> {
    let spark = SparkInstallation::of(version)?;
    progress::print_line(&format!("{jobs} skewed jobs on stock Spark {version}"));
    let rounds = jobs;
    let stock = report(&run_jobs(&spark, STOCK, &[], jobs)?)?;
    progress::print_line("the same with four times the heap from the start");
    let settings = ["spark.executor.memory=2g"];
    let enough = run_jobs(&spark, STOCK_ENOUGH, &settings, jobs)?;
    let enough = report(&enough)?;
    let mut wrong_results = stock.wrong.len() + enough.wrong.len();
    let mut modes = Vec::new();
    let mut headroom: Option<AppView> = None;
    let mut starts = Vec::new();
    for mode in ["headroom", "off", "uber", "pinterest"] {
        progress::print_line(&format!("{jobs} skewed jobs in mode {mode}"));
        let events = tempfile::tempdir()?;
        let settings = [
            format!("spark.headroom.memory.mode={mode}"),
            "spark.eventLog.enabled=true".to_owned(),
            "spark.eventLog.compress=false".to_owned(),
            format!("spark.eventLog.dir=file://{}", events.path().display()),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let cluster = cluster()?;
        let output = run_jobs(&spark, &master_url(&cluster), &settings, jobs)?;
        let jobs = report(&output)?;
        let app = only_app(&cluster)?;
        let totals = &app.job.as_ref().context("a view of the job")?.totals;
        wrong_results += jobs.wrong.len();
        progress::print_line(&format!("{} of {rounds} failed", jobs.failed.len()));
        modes.push(ModeResults {
            mode: mode.to_owned(),
            failed: jobs.failed.len(),
            seconds: jobs.seconds.iter().sum(),
            gib_h: gib_s(totals.allocated_byte_ms) / 3600.0,
            memory_kills: totals.memory_kills,
        });
        if mode == "headroom" {
            starts = executor_starts(&cluster, &app, events.path())?;
            headroom = Some(app);
        }
    }
    let app = headroom.context("the first mode")?;
    let totals = &app.job.as_ref().context("a view of the job")?.totals;
    Ok(SparkResults {
        versions: vec![version.to_owned()],
        jobs: usize::try_from(jobs)?,
        stock_failed: stock.failed.len(),
        stock_enough_failed: enough.failed.len(),
        stock_enough_seconds: enough.seconds.iter().sum(),
        headroom_failed: modes.first().map_or(0, |mode| mode.failed),
        wrong_results,
        kill_to_retry_p50_ms: quantile(&retries(&app), 50),
        executor_start_p50_ms: quantile(&starts, 50),
        overhead_vs_standalone: overhead(&spark)?,
        rerun_gib_s: gib_s(totals.rerun_byte_ms),
        modes,
    })
}

/// The newest version that the tests install.
pub(crate) fn newest() -> &'static str {
    VERSIONS[VERSIONS.len() - 1]
}

fn cluster() -> Result<Cluster> {
    Cluster::start(&[NodeShape {
        memory: Bytes::from_mib(8192),
        cpus: 8,
        enforcer: None,
    }])
}

fn report(output: &ProgramOutput) -> Result<JobReport> {
    let lines = lines_of(output, "RESULT");
    let line = lines.first().with_context(|| {
        format!(
            "the driver ended with {} and no result:\n{}",
            output.code,
            last_lines(&output.stderr, 40)
        )
    })?;
    Ok(serde_json::from_str(line)?)
}

/// From the end of each attempt that ran out of memory to the next start, in milliseconds.
fn retries(app: &AppView) -> Vec<u128> {
    let rows = app.job.iter().flat_map(|job| &job.tasks);
    rows.flat_map(|row| row.attempts.windows(2))
        .filter_map(|pair| {
            let [failed, next] = pair else { return None };
            let ended = failed.dimension.and(failed.ended)?;
            Some(u128::from(next.started.0.saturating_sub(ended.0)))
        })
        .collect()
}

/// From the grant of each container to the event of Spark that its executor was added.
fn executor_starts(
    cluster: &Cluster,
    app: &AppView,
    events: &std::path::Path,
) -> Result<Vec<u128>> {
    let mut added = std::collections::BTreeMap::new();
    for file in walk(events)? {
        for line in std::fs::read_to_string(file)?.lines() {
            let event: Value = serde_json::from_str(line)?;
            if event["Event"] == "SparkListenerExecutorAdded" {
                let id = event["Executor ID"].as_str().unwrap_or_default().to_owned();
                added.insert(id, event["Timestamp"].as_u64().unwrap_or_default());
            }
        }
    }
    ensure!(!added.is_empty(), "no executor in the event log");
    let containers = cluster.call(cluster.client().containers(Some(&app.id)))?;
    Ok(containers
        .iter()
        .filter_map(|container| {
            let request = container.request.as_ref()?.to_string();
            let at = added.get(request.rsplit('-').next()?)?;
            Some(u128::from(at.saturating_sub(container.granted.0)))
        })
        .collect())
}

/// All files below a directory.
fn walk(dir: &std::path::Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else if path.extension().is_none_or(|extension| extension != "crc")
            && !path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("appstatus"))
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// The median of the ratios of pairs of runs, Headroom and standalone in turn.
fn overhead(spark: &SparkInstallation) -> Result<f64> {
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        progress::print_line(&format!("queries on both, pair {} of {PAIRS}", pair + 1));
        let cluster = cluster()?;
        let ours = queries(&spark.submit(&master_url(&cluster), &[], "suite.py", &[TABLE])?)?;
        drop(cluster);
        let stock = queries(&spark.submit(STOCK, &[], "suite.py", &[TABLE])?)?;
        ensure!(
            ours["sums"] == stock["sums"],
            "the results of the queries differ"
        );
        let total = |value: &Value| value["total"].as_f64().context("a total");
        ratios.push(total(&ours)? / total(&stock)?);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

fn queries(output: &ProgramOutput) -> Result<Value> {
    let lines = lines_of(output, "RESULT");
    let line = lines
        .first()
        .with_context(|| format!("no result:\n{}", last_lines(&output.stderr, 40)))?;
    Ok(serde_json::from_str(line)?)
}

#[allow(clippy::cast_precision_loss)] // a measurement of a few digits
fn gib_s(byte_ms: u128) -> f64 {
    byte_ms as f64 / 1000.0 / f64::from(1 << 30)
}

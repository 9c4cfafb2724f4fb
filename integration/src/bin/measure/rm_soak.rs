//! A long run of the resource manager through its real API, at 70 % of the rate that it can serve.
//!
//! The load is that of `rm-http`. The highest rate is measured first. Memory and times of the first
//! and last quarter show whether either grows. At the end, the records of all peers are compared.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::load::daemon::Daemon;
use serde::Serialize;

use crate::load_runtime::load_runtime;
use crate::progress::print_line;
use crate::quantiles::{millis, quantile};
use crate::rm_http::{self, AgentVersion, Phase, WATCHED};

/// Share of the highest rate.
const SHARE: f64 = 0.7;
/// Length of a window; each has its own rate and times.
const WINDOW: Duration = Duration::from_secs(60);

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct SoakResults {
    agents: usize,
    seconds: u64,
    peak_per_s: f64,
    per_s: f64,
    /// Containers that ran during the soak.
    containers: u64,
    first_quarter: QuarterResults,
    last_quarter: QuarterResults,
    rss_max_mib: u64,
    lost: u64,
    twice: u64,
}

/// Medians over the windows of a quarter of the time.
#[derive(Debug, Serialize)]
struct QuarterResults {
    p50_ms: f64,
    p99_ms: f64,
    rss_mib: u64,
    cpus: f64,
}

/// Runs the load for `time`.
pub(crate) fn measure(agents: usize, time: Duration) -> Result<SoakResults> {
    let runtime = load_runtime()?;
    let daemon = Daemon::start()?;
    runtime.block_on(soak(&daemon, agents, time))
}

async fn soak(daemon: &Daemon, agents: usize, time: Duration) -> Result<SoakResults> {
    let protocol = AgentVersion::Present.protocol(agents)?;
    let (fleet, crowd) = rm_http::start_load(daemon, agents, protocol).await?;
    rm_http::set_full_load(&crowd, rm_http::WINDOW);
    let peak = rm_http::watch("highest rate", daemon, &crowd, WATCHED).await?;
    rm_http::set_rate(&crowd, peak.per_s * SHARE);
    let windows = (time.as_secs() / WINDOW.as_secs()).max(4);
    let before = rm_http::containers(&crowd);
    let mut phases = Vec::new();
    for n in 1..=windows {
        let what = format!("window {n} of {windows}");
        let phase = rm_http::watch(&what, daemon, &crowd, WINDOW).await?;
        ensure!(!phase.times.is_empty(), "no container ran in {what}");
        phases.push(phase);
    }
    let containers = rm_http::containers(&crowd) - before;
    let records = rm_http::close(fleet, crowd).await?;
    let faults = daemon.faults()?;
    ensure!(faults.is_empty(), "the daemon logged errors: {faults:?}");
    let quarter = (phases.len() / 4).max(1);
    let (first, last) = (
        phases.get(..quarter).unwrap_or(&[]),
        phases.get(phases.len() - quarter..).unwrap_or(&[]),
    );
    print_line(&format!("{containers} containers"));
    Ok(SoakResults {
        agents,
        seconds: windows * WINDOW.as_secs(),
        peak_per_s: peak.per_s,
        per_s: median(phases.iter().map(|phase| phase.per_s).collect())?,
        containers,
        first_quarter: results(first)?,
        last_quarter: results(last)?,
        rss_max_mib: phases
            .iter()
            .map(|phase| phase.after.rss_mib)
            .max()
            .unwrap_or(0),
        lost: records.lost,
        twice: records.twice + records.oversold,
    })
}

fn results(phases: &[Phase]) -> Result<QuarterResults> {
    let at = |percent| {
        let times = phases
            .iter()
            .filter_map(|phase| quantile(&phase.times, percent).map(millis));
        median(times.collect())
    };
    let last = phases.last().context("no window was measured")?;
    Ok(QuarterResults {
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        rss_mib: last.after.rss_mib,
        cpus: median(phases.iter().map(|phase| phase.cpus).collect())?,
    })
}

fn median(mut figures: Vec<f64>) -> Result<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    figures
        .get(figures.len() / 2)
        .copied()
        .context("no window was measured")
}

//! The throughput of a resource manager through its real API while thousands of agents are
//! connected.
//!
//! The daemon is its own process; this process simulates all agents and masters. The order is:
//!
//! 1. All agents connect, and staying containers fill a part of the cluster.
//! 2. The daemon is measured while it is idle: with agents that send a heartbeat each second, and
//!    with the interval that it sets.
//! 3. The masters keep as many requests in flight as it can serve.
//! 4. The masters request at half that rate.
//! 5. Applications are submitted to a second daemon, in turns with a bare server of the same
//!    library that echoes its input.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, Cpus, Resource};
use integration::load::agents::{self, AgentFleet, AgentProtocol};
use integration::load::daemon::{Daemon, Usage};
use integration::load::limits;
use integration::load::master::{self, MasterPool, RequestPace};
use integration::load::records::{RecordComparison, compare};
use serde::Serialize;

use crate::load_runtime::load_runtime;
use crate::progress::{print_line, until, wait};
use crate::quantiles::{millis, quantile};
use crate::submissions;

/// Number of masters.
const MASTERS: usize = 16;
/// Containers of each master between request and running at full load.
pub(crate) const WINDOW: u32 = 24;
/// Run time of a container that ends by itself.
const LIFE: Duration = Duration::from_secs(2);
/// Number of containers of this size that fit a node.
const ON_A_NODE: u32 = 10;
/// Number of staying containers on each node.
const STAYING: usize = 5;
/// Length of one measurement.
pub(crate) const WATCHED: Duration = Duration::from_secs(20);
/// Wait before each measurement.
const WARM: Duration = Duration::from_secs(4);
/// Timeout for all agents and containers to start.
const ARRIVAL: Duration = Duration::from_secs(180);

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct ManagerApiResults {
    agents: usize,
    /// Containers of all masters between request and running at full load.
    in_flight: usize,
    containers_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    half_rate_per_s: f64,
    half_rate_p50_ms: f64,
    half_rate_p99_ms: f64,
    durable_apps_per_s: f64,
    bare_axum_per_s: f64,
    rm_rss_mib: u64,
    rm_idle_cpus: f64,
    rm_idle_cpus_at_1s: f64,
    rm_busy_cpus: f64,
    containers_at_once: u64,
    reports_per_s_idle: f64,
    lost: u64,
    twice: u64,
}

/// Runs the whole measurement.
pub(crate) fn measure(
    agents: usize,
    window: u32,
    version: AgentVersion,
) -> Result<ManagerApiResults> {
    let protocol = version.protocol(agents)?;
    let runtime = load_runtime()?;
    let daemon = Daemon::start()?;
    let pressed = runtime.block_on(press(&daemon, agents, protocol, window))?;
    drop(daemon);
    let submitted = runtime.block_on(submissions::measure())?;
    Ok(ManagerApiResults {
        durable_apps_per_s: submitted.durable_apps_per_s,
        bare_axum_per_s: submitted.bare_axum_per_s,
        agents,
        ..pressed
    })
}

/// Results of one measured time.
pub(crate) struct Phase {
    pub(crate) per_s: f64,
    /// From a request to the report that its container runs. Nanoseconds.
    pub(crate) times: Vec<u128>,
    pub(crate) cpus: f64,
    pub(crate) after: Usage,
}

/// Version of the simulated agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AgentVersion {
    /// One connection for desired state and reports.
    Present,
    /// A stream of desired state, and reports as calls.
    Earlier,
}

impl AgentVersion {
    /// The protocol for this number of agents, after the limit of descriptors was raised.
    pub(crate) fn protocol(self, agents: usize) -> Result<AgentProtocol> {
        let descriptors = limits::raise()?;
        Ok(match self {
            AgentVersion::Present => AgentProtocol::Channel,
            AgentVersion::Earlier => AgentProtocol::Calls {
                connections: limits::report_lines(agents, descriptors),
            },
        })
    }
}

/// Starts all agents and masters, and the containers that stay.
pub(crate) async fn start_load(
    daemon: &Daemon,
    agents: usize,
    protocol: AgentProtocol,
) -> Result<(AgentFleet, MasterPool)> {
    let size = Resource::new(Bytes::from_mib(1024), Cpus::from_milli(500));
    let offers = Resource::new(
        Bytes::from_mib(1024 * u64::from(ON_A_NODE)),
        Cpus::from_cores(ON_A_NODE),
    );
    let rm: SocketAddr = daemon.address();
    let fleet = AgentFleet::start(&agents::AgentFleetPlan {
        rm: rm.into(),
        agents,
        offers,
        protocol,
    })?;
    until("agents listening", agents, ARRIVAL, || {
        fleet
            .totals
            .listening
            .load(std::sync::atomic::Ordering::Relaxed)
    })
    .await?;
    let staying = u32::try_from(agents * STAYING / MASTERS).context("too many")?;
    let crowd = MasterPool::start(&master::MasterPoolPlan {
        rm: rm.into(),
        masters: MASTERS,
        staying,
        size,
        life: LIFE,
    })
    .await?;
    let all = staying as usize * MASTERS;
    until("containers that stay", all, ARRIVAL, || {
        usize::try_from(count(&crowd.seen.staying)).unwrap_or(0)
    })
    .await?;
    Ok((fleet, crowd))
}

/// Keeps so many requests of each master in flight.
pub(crate) fn set_full_load(crowd: &MasterPool, window: u32) {
    crowd.pace(RequestPace::Window(window));
}

/// Requests so many containers per second.
pub(crate) fn set_rate(crowd: &MasterPool, per_s: f64) {
    let masters = u32::try_from(MASTERS).unwrap_or(u32::MAX);
    crowd.pace(RequestPace::Rate(per_s / f64::from(masters)));
}

/// Number of containers that have run.
pub(crate) fn containers(crowd: &MasterPool) -> u64 {
    count(&crowd.seen.running)
}

async fn press(
    daemon: &Daemon,
    agents: usize,
    protocol: AgentProtocol,
    window: u32,
) -> Result<ManagerApiResults> {
    let (fleet, crowd) = start_load(daemon, agents, protocol).await?;
    let cpus_each_second = idle_each_second(daemon, &fleet).await?;
    let (idle_cpus, reports_per_s_idle) = idle(daemon, &fleet).await?;
    set_full_load(&crowd, window);
    let full = watch("pressed", daemon, &crowd, WATCHED).await?;
    let containers_at_once = u64::try_from(
        fleet
            .totals
            .running
            .load(std::sync::atomic::Ordering::Relaxed),
    )
    .unwrap_or(0);
    set_rate(&crowd, full.per_s / 2.0);
    let half = watch("at half the rate", daemon, &crowd, WATCHED).await?;
    let balance = close(fleet, crowd).await?;
    let faults = daemon.faults()?;
    ensure!(faults.is_empty(), "the daemon logged errors: {faults:?}");
    let at = |phase: &Phase, percent| {
        quantile(&phase.times, percent)
            .map(millis)
            .context("no container ran")
    };
    Ok(ManagerApiResults {
        agents,
        in_flight: usize::try_from(window)? * MASTERS,
        containers_per_s: full.per_s,
        p50_ms: at(&full, 50)?,
        p99_ms: at(&full, 99)?,
        half_rate_per_s: half.per_s,
        half_rate_p50_ms: at(&half, 50)?,
        half_rate_p99_ms: at(&half, 99)?,
        durable_apps_per_s: 0.0,
        bare_axum_per_s: 0.0,
        rm_rss_mib: full.after.rss_mib,
        rm_idle_cpus: idle_cpus,
        rm_idle_cpus_at_1s: cpus_each_second,
        rm_busy_cpus: full.cpus,
        containers_at_once,
        reports_per_s_idle,
        lost: balance.lost,
        twice: balance.twice + balance.oversold,
    })
}

fn count(figure: &std::sync::atomic::AtomicU64) -> u64 {
    figure.load(std::sync::atomic::Ordering::Relaxed)
}

/// Measures as [`idle`], with agents that send a heartbeat each second. Returns the processors.
async fn idle_each_second(daemon: &Daemon, fleet: &AgentFleet) -> Result<f64> {
    let each_second = &fleet.totals.each_second;
    each_second.store(true, std::sync::atomic::Ordering::Relaxed);
    wait("one heartbeat a second", 3 * WARM).await;
    let (cpus, _) = idle(daemon, fleet).await?;
    each_second.store(false, std::sync::atomic::Ordering::Relaxed);
    wait("the set interval", 3 * WARM).await;
    Ok(cpus)
}

/// Measures while all agents are connected and only heartbeats occur.
async fn idle(daemon: &Daemon, fleet: &AgentFleet) -> Result<(f64, f64)> {
    wait("settling", WARM).await;
    let (before, reports) = (daemon.usage()?, count(&fleet.totals.reports));
    wait("idle", WATCHED / 2).await;
    let after = daemon.usage()?;
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let (cpus, per_s) = (
        after.cpus_since(&before),
        as_f64(count(&fleet.totals.reports) - reports) / seconds,
    );
    print_line(&format!(
        "idle: {cpus:.2} processors, {per_s:.0} reports/s, {} MiB",
        after.rss_mib
    ));
    Ok((cpus, per_s))
}

/// Measures for `time`, after the load has become steady.
pub(crate) async fn watch(
    what: &str,
    daemon: &Daemon,
    crowd: &MasterPool,
    time: Duration,
) -> Result<Phase> {
    wait("warming", WARM).await;
    crowd.seen.take_times();
    let (before, running, started) = (daemon.usage()?, containers(crowd), Instant::now());
    wait(what, time).await;
    let (ran, seconds) = (containers(crowd) - running, started.elapsed().as_secs_f64());
    let times = crowd
        .seen
        .take_times()
        .into_iter()
        .map(|us| u128::from(us) * 1000)
        .collect();
    let after = daemon.usage()?;
    let phase = Phase {
        per_s: as_f64(ran) / seconds,
        times,
        cpus: after.cpus_since(&before),
        after,
    };
    let middle = quantile(&phase.times, 50).map(millis);
    print_line(&format!(
        "{what}: {:.0} containers/s, p50 {middle:?} ms, {:.2} processors",
        phase.per_s, phase.cpus
    ));
    Ok(phase)
}

/// Ends all containers and compares the records of agents and masters.
pub(crate) async fn close(fleet: AgentFleet, crowd: MasterPool) -> Result<RecordComparison> {
    let masters = tokio::time::timeout(ARRIVAL, crowd.drain())
        .await
        .context("the masters did not end in time")??;
    let agents = fleet.end().await?;
    let balance = compare(&agents, &masters);
    print_line(&format!("records: {balance:?}"));
    Ok(balance)
}

#[allow(clippy::cast_precision_loss)] // counts of one run are small
fn as_f64(n: u64) -> f64 {
    n as f64
}

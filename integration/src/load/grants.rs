//! The rate at which a resource manager grants containers and hears that they run, for any place of
//! its state.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::agents::AgentProtocol;
use super::daemon::Daemon;
use super::limits;
use super::manager_address::ManagerAddress;
use super::master::RequestPace;
use super::restart::{BACK, RestartPlan, start_load};

/// Load before the measurement.
const WARM: Duration = Duration::from_secs(2);
/// Length of the measurement.
const WATCHED: Duration = Duration::from_secs(8);

/// A rate of containers.
#[derive(Clone, Copy, Debug)]
pub struct GrantRate {
    /// Containers that were requested, granted, launched and reported as running, per second.
    pub per_second: u64,
    /// Median time from the request to the report. Milliseconds.
    pub p50_ms: u64,
}

/// Measures a resource manager with this configuration while `agents` nodes take containers.
///
/// # Errors
/// A container did not run, or the resource manager logged an error.
pub async fn run(
    configuration: &str,
    agents: usize,
    progress: &(dyn Fn(String) + Sync),
) -> Result<GrantRate> {
    limits::raise()?;
    let daemon = Daemon::start_configured(configuration)?;
    let plan = RestartPlan {
        agents,
        masters: 16,
        staying: 1,
        window: 50,
        life: Duration::from_millis(100),
        submitters: 0,
        rounds: 0,
        seed: 0,
        protocol: AgentProtocol::Channel,
    };
    let address = ManagerAddress::from(daemon.address());
    let (fleet, crowd) = start_load(&plan, &address, progress).await?;
    crowd.pace(RequestPace::Window(plan.window));
    tokio::time::sleep(WARM).await;
    crowd.seen.take_times();
    let (before, started) = (crowd.seen.running.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(WATCHED).await;
    let ran = crowd.seen.running.load(Ordering::Relaxed) - before;
    let millis = u64::try_from(started.elapsed().as_millis())?;
    let mut times = crowd.seen.take_times();
    tokio::time::timeout(BACK, crowd.drain())
        .await
        .context("the masters did not end in time")??;
    fleet.end().await?;
    let faults = daemon.faults()?;
    ensure!(faults.is_empty(), "the daemon logged errors: {faults:?}");
    times.sort_unstable();
    let p50 = *times.get(times.len() / 2).context("no container ran")?;
    Ok(GrantRate {
        per_second: ran * 1000 / millis.max(1),
        p50_ms: p50 / 1000,
    })
}

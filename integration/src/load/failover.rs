//! Failover between two resource managers with their state in etcd, under the load of a large
//! cluster.
//!
//! Agents and masters call the manager that leads, as programs with a list of addresses do. A round
//! kills the leader and ends with the first grant of the next one.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_client::Client;
use headroom_test_fakes::EtcdCluster;
use headroom_types::Epoch;
use headroom_wire::v1::operator::{LeaderView, ManagerRole};

use super::daemon::Daemon;
use super::limits;
use super::manager_address::ManagerAddress;
use super::master::RequestPace;
use super::restart::{BACK, RestartPlan, grant_after, start_load, until_all_listen};

/// Interval at which the leader is looked up.
const LOOK: Duration = Duration::from_millis(10);
/// Load between two kills.
const BETWEEN: Duration = Duration::from_secs(2);

/// Runs the rounds of `plan`. Returns the times from each kill to the first grant of the next
/// leader, in milliseconds.
pub async fn run(plan: &RestartPlan, progress: &(dyn Fn(String) + Sync)) -> Result<Vec<u128>> {
    limits::raise()?;
    let dir = tempfile::tempdir().context("a directory for etcd")?;
    let etcd = EtcdCluster::start(dir.path(), 3)?;
    let configuration = format!("[etcd]\nendpoints = {:?}\n", etcd.endpoints());
    let mut managers = [
        Daemon::start_configured(&configuration)?,
        Daemon::start_configured(&configuration)?,
    ];
    let mut leader = leading(&managers).await?;
    let address = ManagerAddress::from(managers[leader].address());
    let (fleet, crowd) = start_load(plan, &address, progress).await?;
    crowd.pace(RequestPace::Window(plan.window));
    let mut epoch = grant_after(&crowd, Epoch(0)).await?.0;
    let mut times = Vec::new();
    for round in 0..plan.rounds {
        tokio::time::sleep(BETWEEN).await;
        let killed = Instant::now();
        managers[leader].kill()?;
        let next = leading(&managers[1 - leader..2 - leader])
            .await
            .map(|_| 1 - leader)?;
        let elected = killed.elapsed().as_millis();
        address.set(managers[next].address());
        let (now, at) = grant_after(&crowd, epoch)
            .await
            .with_context(|| format!("round {round}"))?;
        let time = at.into_std().duration_since(killed).as_millis();
        progress(format!(
            "round {round}: elected after {elected} ms, first grant after {time} ms"
        ));
        times.push(time);
        managers[leader].spawn()?;
        (leader, epoch) = (next, now);
        until_all_listen(plan, &fleet, &crowd).await?;
    }
    tokio::time::timeout(BACK, crowd.drain())
        .await
        .context("the masters did not end in time")??;
    fleet.end().await?;
    Ok(times)
}

/// The index of the manager that leads, as each says of itself.
async fn leading(managers: &[Daemon]) -> Result<usize> {
    let started = Instant::now();
    loop {
        for (n, manager) in managers.iter().enumerate() {
            let client = Client::new(&format!("http://{}", manager.address()))?;
            let client = client.with_timeout(Duration::from_millis(500));
            let view = client.get::<LeaderView>("/v1/leader").await;
            if view.is_ok_and(|view| view.state == ManagerRole::Leader) {
                return Ok(n);
            }
        }
        anyhow::ensure!(started.elapsed() < BACK, "no manager leads");
        tokio::time::sleep(LOOK).await;
    }
}

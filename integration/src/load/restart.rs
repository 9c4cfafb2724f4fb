//! Repeated SIGKILL of a resource manager under load, and a check for lost and duplicated
//! containers and applications.
//!
//! Agents, masters and submitters continue through all rounds and keep records. A round ends when
//! the new incarnation has granted its first container and all agents and masters listen again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use headroom_client::Client;
use headroom_types::{AppId, Bytes, Cpus, Epoch, Resource};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::agents::{self, AgentFleet, AgentProtocol};
use super::daemon::Daemon;
use super::http::HttpConnection;
use super::limits;
use super::manager_address::ManagerAddress;
use super::master::{self, MasterPool, RequestPace, submit, unmanaged};
use super::records::{RecordComparison, compare};
use crate::simulation::random_source::RandomSource;

/// Timeout for all agents and masters to be back.
pub(super) const BACK: Duration = Duration::from_secs(300);
/// Pause of a submitter between two applications.
const REST: Duration = Duration::from_millis(20);
/// Prefix of the names of the submitted applications.
const NAME: &str = "submitted-";

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct RestartPlan {
    /// Nodes.
    pub agents: usize,
    /// Masters.
    pub masters: usize,
    /// Average number of staying containers per node.
    pub staying: usize,
    /// Containers of each master between request and running at any time.
    pub window: u32,
    /// Run time of those containers.
    pub life: Duration,
    /// Callers that submit applications.
    pub submitters: usize,
    /// Number of kills of the resource manager.
    pub rounds: u32,
    /// Seed of the times of the kills.
    pub seed: u64,
    /// Way of the reports of the agents.
    pub protocol: AgentProtocol,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct RestartResults {
    /// From the start of each new process to its first grant. Milliseconds.
    pub recoveries_ms: Vec<u128>,
    /// Number of running containers at each kill.
    pub live: Vec<usize>,
    /// Comparison of the records of agents and masters.
    pub balance: RecordComparison,
    /// Number of accepted applications.
    pub submitted: u64,
    /// Accepted applications that a later incarnation did not know.
    pub submissions_lost: u64,
    /// Applications that exist twice.
    pub submissions_twice: u64,
    /// Errors in the log of the daemon.
    pub faults: Vec<String>,
}

/// Runs the rounds. `progress` receives progress messages.
pub async fn run(plan: &RestartPlan, progress: &(dyn Fn(String) + Sync)) -> Result<RestartResults> {
    limits::raise()?;
    let mut daemon = Daemon::start()?;
    let rm = daemon.address();
    let address = ManagerAddress::from(rm);
    let (fleet, crowd) = start_load(plan, &address, progress).await?;
    crowd.pace(RequestPace::Window(plan.window));
    let submitters = Submitters::start(rm, plan.submitters);
    let (mut outcome, mut chance, mut epoch) = (
        RestartResults::default(),
        RandomSource::new(plan.seed),
        Epoch(0),
    );
    epoch = grant_after(&crowd, epoch).await?.0;
    for round in 0..plan.rounds {
        tokio::time::sleep(Duration::from_millis(300 + chance.below(1000))).await;
        outcome
            .live
            .push(fleet.totals.running.load(Ordering::Relaxed));
        daemon.kill()?;
        let started: Instant = daemon.spawn()?.into();
        let (next, at) = grant_after(&crowd, epoch)
            .await
            .with_context(|| format!("round {round}"))?;
        outcome
            .recoveries_ms
            .push(at.duration_since(started).as_millis());
        epoch = next;
        until_all_listen(plan, &fleet, &crowd).await?;
        submitters
            .check(rm, &mut outcome)
            .await
            .with_context(|| format!("round {round}"))?;
        progress(format!(
            "round {round}: {} ms, {} submitted",
            at.duration_since(started).as_millis(),
            outcome.submitted
        ));
    }
    submitters.end(rm, &mut outcome).await?;
    let masters = tokio::time::timeout(BACK, crowd.drain())
        .await
        .context("the masters did not end in time")??;
    let agents = fleet.end().await?;
    outcome.balance = compare(&agents, &masters);
    outcome.faults = daemon.faults()?;
    Ok(outcome)
}

/// Starts agents with room for the staying containers, and masters that hold those.
pub(super) async fn start_load(
    plan: &RestartPlan,
    rm: &ManagerAddress,
    progress: &(dyn Fn(String) + Sync),
) -> Result<(AgentFleet, MasterPool)> {
    let size = Resource::new(Bytes::from_mib(1024), Cpus::from_milli(500));
    let room = u32::try_from(plan.staying + 2)?;
    let offers = Resource::new(
        Bytes::from_mib(1024 * u64::from(room)),
        Cpus::from_cores(room),
    );
    let fleet = AgentFleet::start(&agents::AgentFleetPlan {
        rm: rm.clone(),
        agents: plan.agents,
        offers,
        protocol: plan.protocol,
    })?;
    reach("agents to listen", plan.agents, || {
        fleet.totals.listening.load(Ordering::Relaxed)
    })
    .await?;
    let staying = u32::try_from(plan.agents * plan.staying / plan.masters)?;
    let crowd = MasterPool::start(&master::MasterPoolPlan {
        rm: rm.clone(),
        masters: plan.masters,
        staying,
        size,
        life: plan.life,
    })
    .await?;
    let stay = staying as usize * plan.masters;
    reach("containers that stay", stay, || {
        usize::try_from(crowd.seen.staying.load(Ordering::Relaxed)).unwrap_or(0)
    })
    .await?;
    progress(format!(
        "{} nodes, {stay} containers that stay",
        plan.agents
    ));
    Ok((fleet, crowd))
}

/// Waits until all agents and masters listen to the new incarnation.
pub(super) async fn until_all_listen(
    plan: &RestartPlan,
    fleet: &AgentFleet,
    crowd: &MasterPool,
) -> Result<()> {
    reach("agents to listen again", plan.agents, || {
        fleet.totals.listening.load(Ordering::Relaxed)
    })
    .await?;
    reach("masters to listen again", plan.masters, || {
        crowd.seen.listening.load(Ordering::Relaxed)
    })
    .await
}

async fn reach(what: &str, wanted: usize, look: impl Fn() -> usize) -> Result<()> {
    let started = Instant::now();
    while look() < wanted {
        if started.elapsed() > BACK {
            bail!(
                "timed out after {} s waiting for {wanted} {what}; there are {}",
                BACK.as_secs(),
                look()
            );
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

pub(super) async fn grant_after(crowd: &MasterPool, epoch: Epoch) -> Result<(Epoch, Instant)> {
    let started = Instant::now();
    loop {
        if let Some(found) = crowd.seen.first_grant_after(epoch) {
            return Ok(found);
        }
        if started.elapsed() > BACK {
            bail!(
                "no container was granted within {} s after epoch {epoch}",
                BACK.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Callers that submit applications continuously. Each repeats a submission until it is accepted.
struct Submitters {
    accepted: Arc<Mutex<BTreeMap<String, AppId>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Submitters {
    fn start(rm: SocketAddr, callers: usize) -> Self {
        let accepted = Arc::new(Mutex::new(BTreeMap::new()));
        let tasks = (0..callers)
            .map(|caller| tokio::spawn(submit_all(rm, caller, accepted.clone())))
            .collect();
        Submitters { accepted, tasks }
    }

    /// Checks that all accepted applications exist exactly once, then kills them and clears the
    /// list.
    async fn check(&self, rm: SocketAddr, outcome: &mut RestartResults) -> Result<()> {
        let accepted =
            std::mem::take(&mut *self.accepted.lock().unwrap_or_else(PoisonError::into_inner));
        let client = Client::new(&format!("http://{rm}"))?;
        let mut names: BTreeMap<String, Vec<AppId>> = BTreeMap::new();
        for app in client
            .apps()
            .await?
            .into_iter()
            .filter(|a| a.id.name().as_str().starts_with(NAME))
        {
            names
                .entry(app.id.name().as_str().to_owned())
                .or_default()
                .push(app.id);
        }
        outcome.submissions_twice += names
            .values()
            .map(|ids| u64::try_from(ids.len()).unwrap_or(1) - 1)
            .sum::<u64>();
        for (name, id) in accepted {
            outcome.submitted += 1;
            if names.get(&name).is_some_and(|ids| ids.contains(&id)) {
                client.kill(&id, None).await?;
            } else {
                outcome.submissions_lost += 1;
            }
        }
        Ok(())
    }

    async fn end(self, rm: SocketAddr, outcome: &mut RestartResults) -> Result<()> {
        for task in &self.tasks {
            task.abort();
        }
        self.check(rm, outcome).await
    }
}

async fn submit_all(rm: SocketAddr, caller: usize, accepted: Arc<Mutex<BTreeMap<String, AppId>>>) {
    let mut wire = None;
    for n in 0_u64.. {
        let name = format!("{NAME}{caller}-{n}");
        // The idempotency key is the same until a response arrives, because a submission may have
        // been stored before a kill.
        while let Err(_lost) = submit_one(rm, &mut wire, &name, &accepted).await {
            wire = None;
            tokio::time::sleep(REST).await;
        }
        tokio::time::sleep(REST).await;
    }
}

async fn submit_one(
    rm: SocketAddr,
    wire: &mut Option<HttpConnection>,
    name: &str,
    accepted: &Mutex<BTreeMap<String, AppId>>,
) -> Result<()> {
    let mut line = match wire.take() {
        Some(line) => line,
        None => HttpConnection::connect(rm, limits::address(0)).await?,
    };
    let submitted = submit(&mut line, &unmanaged(name, Some(name.to_owned()))?).await?;
    accepted
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(name.to_owned(), submitted.app);
    *wire = Some(line);
    Ok(())
}

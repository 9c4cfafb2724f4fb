//! Failures of resource managers, of etcd and of hosts under load, and the rate of durable
//! applications with the state in etcd and in sled.
//!
//! The rounds are in `integration::managers`; a test runs a few of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_client::Client;
use headroom_config::etcd::EtcdConfig;
use headroom_test_fakes::EtcdCluster;
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};
use integration::clock;
use integration::cluster::Cluster;
use integration::load::agents::AgentProtocol;
use integration::load::failover;
use integration::load::grants::{self, GrantRate};
use integration::load::restart::RestartPlan;
use integration::lost_node::{JOURNALS, LostNode};
use integration::managers::{FailurePlan, run};
use serde::Serialize;

use crate::load_runtime::load_runtime;
use crate::progress::print_line;
use crate::quantiles::quantile;

/// Time for which a paused leader is stopped.
const PAUSE: Duration = Duration::from_secs(30);
/// Tasks in flight.
const TASKS: u32 = 500;
/// Failovers of the large cluster.
const FAILOVERS: u32 = 5;
/// Staying containers on each of its nodes.
const STAYING: usize = 10;
/// Callers that submit applications at once.
const SUBMITTERS: usize = 16;
/// Nodes while grants are counted.
const GRANT_NODES: usize = 1_000;
/// Applications of each. All together stay below the maximum of a queue.
const SUBMISSIONS: usize = 500;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct HighAvailabilityResults {
    rounds: u32,
    lost: u64,
    twice: u64,
    verdicts_lost: u64,
    p50_gap_ms: u128,
    max_gap_ms: u128,
    /// The longest time without a grant of the containers of one node: it may be lost.
    p50_node_gap_ms: u128,
    max_node_gap_ms: u128,
    /// Median by kind of failure.
    gap_ms: BTreeMap<&'static str, u128>,
    /// Longest by kind of failure.
    max_gap_by_failure_ms: BTreeMap<&'static str, u128>,
    accepted: u64,
    full_disks_that_end_etcd: u64,
    /// With three members.
    etcd_apps_per_s: u64,
    etcd_p50_ms: u128,
    etcd_one_member_apps_per_s: u64,
    etcd_one_member_p50_ms: u128,
    sled_apps_per_s: u64,
    sled_p50_ms: u128,
    /// Containers from the request to the report that they run, with three members.
    etcd_grants_per_s: u64,
    etcd_grants_p50_ms: u64,
    etcd_one_member_grants_per_s: u64,
    etcd_one_member_grants_p50_ms: u64,
    sled_grants_per_s: u64,
    sled_grants_p50_ms: u64,
    /// From the kill of the leader to the first grant of the next one, with `--agents` nodes and ten
    /// containers on each. Median and longest.
    failover_10k_ms: u128,
    max_failover_10k_ms: u128,
    nodes_10k: usize,
    /// Finished tasks that ran again after the loss of the master's node, with journals in a shared
    /// directory.
    master_rerun_finished: u32,
    /// The same with journals on each node.
    master_rerun_finished_without: u32,
    seed: u64,
    notes: Vec<String>,
}

/// Runs the rounds, and measures the rates.
pub(crate) fn measure(
    rounds: u32,
    seed: Option<u64>,
    agents: usize,
) -> Result<HighAvailabilityResults> {
    let seed =
        seed.unwrap_or_else(|| u64::try_from(clock::realtime_nanos() % 1_000_000_007).unwrap_or(1));
    // The lease that users get.
    let lease = EtcdConfig::default().lease;
    let sled = rate(&Cluster::start(&[])?)?;
    let one = rate(&Cluster::start_replicated(&[], (1, 1), lease)?)?;
    let three = rate(&Cluster::start_replicated(&[], (1, 3), lease)?)?;
    print_line(&format!(
        "ha: sled {sled:?}, etcd of one {one:?}, of three {three:?}"
    ));
    let [sled_grants, one_grants, three_grants] = [None, Some(1), Some(3)].map(grants);
    let (sled_grants, one_grants, three_grants) = (sled_grants?, one_grants?, three_grants?);
    let shared = LostNode::begin("moved", Some(JOURNALS))?.lose_node()?;
    let apart = LostNode::begin("restarted", None)?.lose_node()?;
    let failovers = failover(agents)?;
    let plan = FailurePlan {
        tasks: TASKS,
        rounds,
        lease,
        pause: PAUSE,
        seed,
    };
    let results = run(&plan, &mut |line| print_line(&line))?;
    let by = |percent| {
        let each = results.by_failure.iter();
        each.filter_map(|(kind, gaps)| Some((*kind, quantile(gaps, percent)?)))
            .collect()
    };
    let at = |percent| quantile(&results.gaps_ms, percent).context("no round");
    Ok(HighAvailabilityResults {
        rounds,
        lost: results.lost,
        twice: results.twice,
        verdicts_lost: results.verdicts_lost,
        p50_gap_ms: at(50)?,
        max_gap_ms: at(100)?,
        p50_node_gap_ms: quantile(&results.node_gaps_ms, 50).context("no round")?,
        max_node_gap_ms: quantile(&results.node_gaps_ms, 100).context("no round")?,
        gap_ms: by(50),
        max_gap_by_failure_ms: by(100),
        accepted: results.accepted,
        full_disks_that_end_etcd: results.full_disks_that_end_etcd,
        etcd_apps_per_s: three.per_second,
        etcd_p50_ms: three.p50_ms,
        etcd_one_member_apps_per_s: one.per_second,
        etcd_one_member_p50_ms: one.p50_ms,
        sled_apps_per_s: sled.per_second,
        sled_p50_ms: sled.p50_ms,
        etcd_grants_per_s: three_grants.per_second,
        etcd_grants_p50_ms: three_grants.p50_ms,
        etcd_one_member_grants_per_s: one_grants.per_second,
        etcd_one_member_grants_p50_ms: one_grants.p50_ms,
        sled_grants_per_s: sled_grants.per_second,
        sled_grants_p50_ms: sled_grants.p50_ms,
        failover_10k_ms: quantile(&failovers, 50).context("no failover")?,
        max_failover_10k_ms: quantile(&failovers, 100).context("no failover")?,
        nodes_10k: agents,
        master_rerun_finished: shared.rerun_finished,
        master_rerun_finished_without: apart.rerun_finished,
        seed,
        notes: results.notes,
    })
}

/// Grants with the state in an etcd of this number of members, or in sled.
fn grants(members: Option<usize>) -> Result<GrantRate> {
    let dir = tempfile::tempdir().context("a directory for etcd")?;
    let etcd = members
        .map(|members| EtcdCluster::start(dir.path(), members))
        .transpose()?;
    let configuration = etcd.as_ref().map_or(String::new(), |etcd| {
        format!("[etcd]\nendpoints = {:?}\n", etcd.endpoints())
    });
    let progress = |line: String| print_line(&line);
    let rate = load_runtime()?.block_on(grants::run(&configuration, GRANT_NODES, &progress))?;
    print_line(&format!(
        "ha: grants with etcd members {members:?}: {rate:?}"
    ));
    Ok(rate)
}

fn failover(agents: usize) -> Result<Vec<u128>> {
    let plan = RestartPlan {
        agents,
        masters: 16,
        staying: STAYING,
        window: 10,
        life: Duration::from_secs(2),
        submitters: 0,
        rounds: FAILOVERS,
        seed: 2,
        protocol: AgentProtocol::Channel,
    };
    load_runtime()?.block_on(failover::run(&plan, &|line| print_line(&line)))
}

/// Durable applications per second, and the median time until one is accepted.
#[derive(Clone, Copy, Debug)]
struct SubmissionRate {
    per_second: u64,
    p50_ms: u128,
}

fn rate(cluster: &Cluster) -> Result<SubmissionRate> {
    let runtime = load_runtime()?;
    let url = cluster.url();
    let started = Instant::now();
    let tasks: Vec<_> = (0..SUBMITTERS)
        .map(|caller| runtime.spawn(submit_all(url.clone(), caller)))
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(runtime.block_on(task)??);
    }
    let millis = started.elapsed().as_millis().max(1);
    let count = u128::try_from(times.len())?;
    Ok(SubmissionRate {
        per_second: u64::try_from(count * 1000 / millis)?,
        p50_ms: quantile(&times, 50).context("no application was accepted")?,
    })
}

async fn submit_all(url: String, caller: usize) -> Result<Vec<u128>> {
    let client = Client::new(&url)?;
    let mut times = Vec::new();
    for _ in 0..SUBMISSIONS {
        let new = SubmitApplicationRequest {
            name: format!("rate-{caller}").parse()?,
            queue: None,
            priority: 0,
            user: Some("ann".into()),
            lifetime_ms: None,
            master: ApplicationMaster::Unmanaged,
            idempotency_key: None,
            access: AppAccess::default(),
        };
        let sent = Instant::now();
        client.submit(&new).await?;
        times.push(sent.elapsed().as_millis());
    }
    Ok(times)
}

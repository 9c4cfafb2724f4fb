//! Repeated SIGKILL of a resource manager under load: lost and duplicated containers, and the time
//! to the next grant.
//!
//! The first part has many rounds with a small cluster and short-lived containers, so that kills
//! hit all moments in the life cycle of a container. The second has a few rounds with the requested
//! number of nodes and ten long-lived containers on each.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::load::agents::AgentProtocol;
use integration::load::restart::{RestartPlan, RestartResults, run};
use serde::Serialize;

use crate::load_runtime::load_runtime;
use crate::progress::print_line;
use crate::quantiles::quantile;

/// Nodes of the small cluster.
const SMALL: usize = 200;
/// Rounds with the large cluster.
const LARGE_ROUNDS: u32 = 5;
/// Staying containers on each node of the large cluster.
const STAYING: usize = 10;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct ManagerKillResults {
    rounds: u32,
    lost: u64,
    twice: u64,
    p50_recovery_ms: u128,
    max_recovery_ms: u128,
    launched: u64,
    submitted: u64,
    rounds_10k: u32,
    nodes_10k: usize,
    live_10k: usize,
    p50_recovery_10k_ms: u128,
    max_recovery_10k_ms: u128,
    lost_10k: u64,
    twice_10k: u64,
}

/// Runs all rounds.
pub(crate) fn measure(rounds: u32, agents: usize) -> Result<ManagerKillResults> {
    let runtime = load_runtime()?;
    let life = Duration::from_millis(800);
    let small = RestartPlan {
        agents: SMALL,
        masters: 8,
        staying: 3,
        window: 40,
        life,
        submitters: 2,
        rounds,
        seed: 1,
        protocol: AgentProtocol::Channel,
    };
    let small = runtime.block_on(run(&small, &|what| print_line(&what)))?;
    let life = Duration::from_secs(2);
    let large = RestartPlan {
        agents,
        masters: 16,
        staying: STAYING,
        window: 10,
        life,
        submitters: 2,
        rounds: LARGE_ROUNDS,
        seed: 2,
        protocol: AgentProtocol::Channel,
    };
    let large = runtime.block_on(run(&large, &|what| print_line(&what)))?;
    for outcome in [&small, &large] {
        print_line(&format!("{:?}", outcome.balance));
        ensure!(
            outcome.faults.is_empty(),
            "the daemon logged errors: {:?}",
            outcome.faults
        );
    }
    let at = |outcome: &RestartResults, percent| {
        quantile(&outcome.recoveries_ms, percent).context("no round")
    };
    Ok(ManagerKillResults {
        rounds,
        lost: lost(&small),
        twice: twice(&small),
        p50_recovery_ms: at(&small, 50)?,
        max_recovery_ms: at(&small, 100)?,
        launched: small.balance.launched,
        submitted: small.submitted,
        rounds_10k: LARGE_ROUNDS,
        nodes_10k: agents,
        live_10k: large.live.iter().copied().min().unwrap_or(0),
        p50_recovery_10k_ms: at(&large, 50)?,
        max_recovery_10k_ms: at(&large, 100)?,
        lost_10k: lost(&large),
        twice_10k: twice(&large),
    })
}

fn lost(outcome: &RestartResults) -> u64 {
    outcome.balance.lost + outcome.submissions_lost
}

fn twice(outcome: &RestartResults) -> u64 {
    outcome.balance.twice + outcome.balance.oversold + outcome.submissions_twice
}
